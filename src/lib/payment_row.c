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

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/payment_row.h"

/* the columns of one tuple, taken one after the other */
typedef struct Reader
{
	Datum	   *values;
	bool	   *nulls;
	int			next;
} Reader;

static char *
next_text(Reader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? NULL : TextDatumGetCString(reader->values[i]);
}

static int64
next_int64(Reader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? 0 : DatumGetInt64(reader->values[i]);
}

static bool
next_bool(Reader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? false : DatumGetBool(reader->values[i]);
}

static TimestampTz
next_time(Reader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? 0 : DatumGetTimestampTz(reader->values[i]);
}

static Interval *
next_interval(Reader *reader)
{
	int			i = reader->next++;
	Interval   *copy;

	if (reader->nulls[i])
		return NULL;
	copy = palloc_object(Interval);
	*copy = *DatumGetIntervalP(reader->values[i]);
	return copy;
}

PaymentRow *
payment_row_read(HeapTuple tuple, TupleDesc tupdesc)
{
	PaymentRow *row = palloc0_object(PaymentRow);
	Reader		reader;
	int			i;

	Assert(tupdesc->natts >= PAYMENT_ROW_NCOLUMNS);
	reader.values = palloc_array(Datum, tupdesc->natts);
	reader.nulls = palloc_array(bool, tupdesc->natts);
	reader.next = 0;
	heap_deform_tuple(tuple, tupdesc, reader.values, reader.nulls);

	row->session_id = *DatumGetUUIDP(reader.values[reader.next++]);
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
	row->attempts = DatumGetInt32(reader.values[reader.next++]);
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
	row->suspense_amount = next_int64(&reader);
	row->reserved_amount = next_int64(&reader);
	row->refundable_amount = next_int64(&reader);
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
	row->order_status = order_status_from_name(next_text(&reader));
	i = reader.next++;
	row->order_receipt_is_ours = !reader.nulls[i] &&
		memcmp(DatumGetUUIDP(reader.values[i]), &row->session_id, UUID_LEN) == 0;
	row->form_timeout = next_interval(&reader);
	row->return_timeout = next_interval(&reader);
	row->authentication_timeout = next_interval(&reader);
	Assert(reader.next == PAYMENT_ROW_NCOLUMNS);
	return row;
}
