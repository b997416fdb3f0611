/*-------------------------------------------------------------------------
 *
 * capture.c
 *	  capture(): takes the money that a payment has authorized, once.
 *
 * IDENTIFICATION
 *	  src/api/capture.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "api/api.h"
#include "api/args.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "lib/uuid.h"
#include "session/session.h"

PG_FUNCTION_INFO_V1(payflow_capture);

bool
capture_is_running(const pg_uuid_t *session_id)
{
	ListCell   *cell;

	foreach(cell, operations_of_session(session_id))
	{
		const OperationRow *operation = lfirst(cell);

		if (operation->kind == OPERATION_CAPTURE && !operation_is_settled(operation->status))
			return true;
	}
	return false;
}

pg_noreturn static void
not_capturable(const PaymentRow *payment)
{
	char		id[UUID_TEXT_SIZE];

	uuid_to_text(&payment->session_id, id);
	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "not_capturable"),
			 payment->status == STATUS_AUTHORIZED ?
			 errmsg("payment session %s is captured by the provider itself", id) :
			 errmsg("payment session %s has status \"%s\"", id, status_name(payment->status)),
			 errhint("Only an authorized payment that was created with capture \"manual\" can be captured, once.")));
}

/*
 * A person may want one capture while another one may have reached the
 * provider: then nobody knows what would be taken.
 */
static void
require_capturable(const PaymentRow *payment, int64 amount)
{
	char		id[UUID_TEXT_SIZE];

	if (payment->status == STATUS_CANCELING)
		not_capturable(payment);
	if (capture_is_running(&payment->session_id))
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "payment_in_progress"),
				 errmsg("a capture of payment session %s is running", uuid_to_text(&payment->session_id, id)),
				 errhint("Wait for its result, or pass its idempotency key to get it back.")));
	if (payment->status != STATUS_AUTHORIZED || !payment->manual_capture)
		not_capturable(payment);
	if (amount > payment->authorized_amount)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "capture_exceeds_authorized"),
				 errmsg("amount %lld is more than the %lld that are authorized",
						(long long) amount, (long long) payment->authorized_amount),
				 errhint("Capture that much or less; what is left is released.")));
}

static void
ask_for_capture(const pg_uuid_t *session_id, int64 amount, const char *receipt, const pg_uuid_t *operation_id)
{
	PaymentRow *payment = lock_payment(session_id);
	ProviderTerms terms;
	Outcome		wish;

	require_capturable(payment, amount);
	wish_init(&wish, &terms, OUTCOME_CAPTURE_ASKED, "capture", payment);
	wish.has_operation = true;
	wish.operation_id = *operation_id;
	wish.wished_amount = amount != 0 ? amount : payment->authorized_amount;
	wish.wished_receipt = receipt;
	session_apply_wish(&wish);
}

Datum
payflow_capture(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *session_id;
	int64		amount;
	char	   *key;
	char	   *receipt;
	ApiCall		call;
	PaymentRow *row;
	pg_uuid_t	operation_id;
	bool		replayed;
	Datum		result;

	require_loaded();
	session_id = arg_session_id(fcinfo, 0);
	amount = arg_part_amount(fcinfo, 1);
	key = arg_idempotency_key(fcinfo, 2);
	receipt = arg_receipt(fcinfo, 3);
	PreventCommandIfReadOnly("payflow.capture()");

	api_enter(&call);
	row = read_payment(session_id);
	new_operation_id(row, &operation_id);
	api_pin_search_path(&call);
	replayed = key != NULL && !claim_key(row, "capture", key, amount, &operation_id);
	if (!replayed)
		ask_for_capture(session_id, amount, receipt, &operation_id);
	api_unpin_search_path(&call);

	row = read_payment(session_id);
	result = payment_datum(fcinfo, &call, row, replayed, http_status_of(row));
	api_leave(&call);
	return result;
}
