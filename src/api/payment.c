/*-------------------------------------------------------------------------
 *
 * payment.c
 *	  Forms the composite payflow.payment.
 *
 * IDENTIFICATION
 *	  src/api/payment.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/api.h"
#include "api/composite.h"
#include "lib/compat.h"

/*
 * The order's receipt is this session's money, nobody had canceled it before,
 * and not all of it has gone back.  The totals are the provider's, so their
 * sum might overflow.
 */
static bool
is_paid(const PaymentRow *row)
{
	return row->order_receipt_is_ours && !row->cancel_lost && row->reversed_amount == 0 &&
		row->captured_amount - row->refunded_amount > row->disputed_amount;
}

static void
list_fields(FieldList *list, const PaymentRow *row, bool replayed, int http_status)
{
	field_uuid(list, "session_id", &row->session_id);
	field_text(list, "merchant", row->merchant);
	field_text(list, "order_id", row->order_id);
	field_int64(list, "amount", row->amount);
	field_text(list, "currency", row->currency);
	field_text(list, "provider", row->provider);
	field_text(list, "status", status_name(row->status));
	field_text(list, "stage", stage_name(row->stage));
	field_bool(list, "paid", is_paid(row));
	field_text(list, "redirect_url", row->redirect_url);
	field_text(list, "provider_payment_id", row->provider_payment_id);
	field_int64(list, "authorized_amount", row->authorized_amount);
	field_int64(list, "captured_amount", row->captured_amount);
	field_int64(list, "refunded_amount", row->refunded_amount);
	field_int64(list, "disputed_amount", row->disputed_amount);
	field_int64(list, "suspense_amount", row->suspense_amount);
	field_int64(list, "refundable_amount", row->refundable_amount);
	field_text(list, "order_status", order_status_name(row->order_status));
	field_text(list, "failure_code", row->failure_code);
	field_text(list, "failure_message", row->failure_message);
	field_time(list, "next_action_at", row->next_action_at);
	field_time(list, "expires_at", row->expires_at);
	field_time(list, "created_at", row->created_at);
	field_time(list, "updated_at", row->updated_at);
	field_bool(list, "replayed", replayed);
	field_int32(list, "http_status", http_status);
}

HeapTuple
payment_tuple(FunctionCallInfo fcinfo, const PaymentRow *row, bool replayed, int http_status)
{
	FieldList	list = {0};

	list_fields(&list, row, replayed, http_status);
	return composite_tuple(fcinfo, &list);
}

Datum
payment_datum(FunctionCallInfo fcinfo, const ApiCall *call, const PaymentRow *row,
			  bool replayed, int http_status)
{
	FieldList	list = {0};

	list_fields(&list, row, replayed, http_status);
	return composite_datum(fcinfo, call, &list);
}

int
http_status_of(const PaymentRow *row)
{
	if (status_in_progress(row->status))
		return 202;
	return row->status == STATUS_AUTHORIZED && capture_is_running(&row->session_id) ? 202 : 200;
}
