/*-------------------------------------------------------------------------
 *
 * payment_row.c
 *	  Reads a row of payment_sessions, in the order of PAYMENT_ROW_COLUMNS.
 *
 * IDENTIFICATION
 *	  src/lib/payment_row.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/payment_row.h"
#include "lib/tuple_reader.h"

PaymentRow *
payment_row_read(HeapTuple tuple, TupleDesc tupdesc)
{
	PaymentRow *row = palloc0_object(PaymentRow);
	TupleReader reader = read_tuple(tuple, tupdesc, 0);
	char	   *order_status;
	pg_uuid_t	paid_session_id;

	Assert(tupdesc->natts >= PAYMENT_ROW_NCOLUMNS);
	(void) next_uuid(&reader, &row->session_id);
	row->merchant = next_text(&reader);
	row->order_id = next_text(&reader);
	row->amount = next_int64(&reader);
	row->currency = next_text(&reader);
	row->provider = next_text(&reader);
	row->manual_capture = strcmp(next_text(&reader), "manual") == 0;
	row->status = status_from_name(next_text(&reader));
	row->stage = stage_from_name(next_text(&reader));
	row->next_action_at = next_time(&reader);
	row->lease_until = next_time(&reader);
	row->lease_token = next_int64(&reader);
	row->attempts = next_int32(&reader);
	row->expiring = next_bool(&reader);
	row->repeat_due = next_bool(&reader);
	row->expires_at = next_time(&reader);
	row->provider_expires_at = next_time(&reader);
	row->first_sent_at = next_time(&reader);
	row->answered_at = next_time(&reader);
	row->unresolved_since = next_time(&reader);
	row->redirected_at = next_time(&reader);
	row->returned_at = next_time(&reader);
	row->created_at = next_time(&reader);
	row->updated_at = next_time(&reader);
	row->authorized_amount = next_int64(&reader);
	row->captured_amount = next_int64(&reader);
	row->refunded_amount = next_int64(&reader);
	row->disputed_amount = next_int64(&reader);
	row->reversed_amount = next_int64(&reader);
	row->suspense_amount = next_int64(&reader);
	row->reserved_amount = next_int64(&reader);
	row->refundable_amount = next_int64(&reader);
	row->cancel_lost = next_bool(&reader);
	row->provider_payment_id = next_text(&reader);
	row->provider_status = next_text(&reader);
	row->redirect_url = next_text(&reader);
	row->failure_code = next_text(&reader);
	row->failure_message = next_text(&reader);
	row->endpoint = next_text(&reader);
	row->account = next_text(&reader);
	row->return_url = next_text(&reader);
	row->description = next_text(&reader);
	row->customer = next_text(&reader);
	row->receipt = next_text(&reader);
	row->return_params = next_text(&reader);
	order_status = next_text(&reader);
	if (order_status != NULL)
		row->order_status = order_status_from_name(order_status);
	row->order_receipt_is_ours = next_uuid(&reader, &paid_session_id) &&
		memcmp(&paid_session_id, &row->session_id, UUID_LEN) == 0;
	row->form_timeout = next_interval(&reader);
	row->return_timeout = next_interval(&reader);
	row->authentication_timeout = next_interval(&reader);
	next_tid(&reader, &row->tid);
	Assert(reader.next == PAYMENT_ROW_NCOLUMNS);
	return row;
}
