/*-------------------------------------------------------------------------
 *
 * cancel.c
 *	  cancel(): the payment shall not be, or its money shall go back to the
 *	  card.
 *
 *	  The code is used up, the payment is looked at and set to canceling in
 *	  one transaction, under the order's lock, before the provider is called.
 *
 * IDENTIFICATION
 *	  src/api/cancel.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "api/api.h"
#include "api/args.h"
#include "api/cancel_code.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "lib/spi.h"
#include "lib/uuid.h"
#include "session/session.h"
#include "sweep/sweep.h"

typedef enum CancelResult
{
	CANCEL_STARTED,
	CANCEL_REPLAYED,			/* it is being canceled, or was */
	CANCEL_WRONG_CODE,
} CancelResult;

static Statement merchant_requires_code = {
	.sql = "SELECT m.cancel_requires_code FROM payflow.merchants m WHERE m.id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {TEXTOID}
};

PG_FUNCTION_INFO_V1(payflow_cancel);

static bool
code_is_required(const char *merchant)
{
	Datum		values[1] = {CStringGetTextDatum(merchant)};

	if (run(&merchant_requires_code, values, NULL) == 0)
		merchant_not_found(merchant);
	return result_bool(0, 1);
}

static void
require_not_ended(const PaymentRow *payment)
{
	char		id[UUID_TEXT_SIZE];

	if (payment->status == STATUS_COMPLETED)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "not_cancelable"),
				 errmsg("payment session %s is completed", uuid_to_text(&payment->session_id, id)),
				 payment->cancel_lost ?
				 errhint("Its cancel was accepted before: all of it goes back by itself, see order_status.") :
				 payment->captured_amount > 0 ?
				 errhint("The money was taken: give it back with payflow.refund().") :
				 errhint("Its capture failed afterwards, no money is here: take the payment under a new order id.")));
	if (payment->status == STATUS_FAILED)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "not_cancelable"),
				 errmsg("payment session %s has failed", uuid_to_text(&payment->session_id, id)),
				 errhint("There is nothing to cancel: the order can be paid by a new session.")));
}

/*
 * A code that is given must be right, also where none is required.
 */
static CancelResult
ask_for_cancel(const pg_uuid_t *session_id, const char *code, const char *reason)
{
	PaymentRow *payment = lock_payment(session_id);
	ProviderTerms terms;
	Outcome		wish;

	if (payment->status == STATUS_CANCELING || payment->status == STATUS_CANCELED)
		return CANCEL_REPLAYED;
	require_not_ended(payment);
	if ((code != NULL || code_is_required(payment->merchant)) && !use_cancel_code(payment, code))
		return CANCEL_WRONG_CODE;

	wish_init(&wish, &terms, OUTCOME_CANCEL_ASKED, "cancel", payment);
	wish.never_sent_is_believed = timeline_is_noted();
	wish.reason = reason;
	session_apply_wish(&wish);
	return CANCEL_STARTED;
}

Datum
payflow_cancel(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *session_id;
	char	   *code;
	char	   *reason;
	ApiCall		call;
	CancelResult cancel;
	PaymentRow *row;
	Datum		result;

	require_loaded();
	session_id = arg_session_id(fcinfo, 0);
	code = arg_text(fcinfo, 1);
	reason = arg_reason(fcinfo, 2, "reason");
	PreventCommandIfReadOnly("payflow.cancel()");

	api_enter(&call);
	api_pin_search_path(&call);
	cancel = ask_for_cancel(session_id, code, reason);
	api_unpin_search_path(&call);
	row = read_payment(session_id);
	result = payment_datum(fcinfo, &call, row, cancel == CANCEL_REPLAYED,
						   cancel == CANCEL_WRONG_CODE ? 403 : http_status_of(row));
	api_leave(&call);
	return result;
}
