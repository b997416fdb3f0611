/*-------------------------------------------------------------------------
 *
 * refund.c
 *	  refund(): gives money of a completed payment back; get_refund() and
 *	  wait_refund().
 *
 * IDENTIFICATION
 *	  src/api/refund.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/builtins.h"

#include "api/api.h"
#include "api/args.h"
#include "api/composite.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "lib/spi.h"
#include "lib/uuid.h"
#include "session/session.h"
#include "shared/shared.h"

/* what the caller wants */
typedef struct Wanted
{
	const pg_uuid_t *session_id;
	int64		amount;			/* 0: all that is left */
	const char *key;			/* NULL: none */
	const char *reason;
	const char *receipt;		/* JSON text or NULL */
} Wanted;

static Statement refund_by_id = {
	.sql = "SELECT " OPERATION_ROW_COLUMNS " FROM payflow.operations op"
	" WHERE op.operation_id OPERATOR(pg_catalog.=) $1 AND op.kind OPERATOR(pg_catalog.=) 'refund'",
	.nargs = 1,
	.argtypes = {UUIDOID}
};

/*
 * The refund of this transaction that was asked for without a key and for the
 * same amount; "all that was left" is also one that took all of it.  Keys of
 * this transaction are not older than it is.
 */
static Statement same_refund = {
	.sql = "SELECT op.operation_id FROM payflow.operations op"
	" WHERE op.session_id OPERATOR(pg_catalog.=) $1 AND op.kind OPERATOR(pg_catalog.=) 'refund'"
	" AND op.source OPERATOR(pg_catalog.=) 'receipt'"
	" AND op.created_xid OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id()"
	" AND op.amount OPERATOR(pg_catalog.=) CASE WHEN $2 OPERATOR(pg_catalog.=) 0 THEN op.limit_amount ELSE $2 END"
	" AND NOT EXISTS (SELECT FROM payflow.idempotency_keys k"
	" WHERE k.created_at OPERATOR(pg_catalog.>=) pg_catalog.now()"
	" AND k.operation_id OPERATOR(pg_catalog.=) op.operation_id)"
	" ORDER BY op.created_at DESC, op.operation_id DESC LIMIT 1",
	.nargs = 2,
	.argtypes = {UUIDOID, INT8OID}
};

PG_FUNCTION_INFO_V1(payflow_refund);
PG_FUNCTION_INFO_V1(payflow_get_refund);
PG_FUNCTION_INFO_V1(payflow_wait_refund);

/* ---- reading ---- */

void
refund_not_found(const pg_uuid_t *refund_id)
{
	char		text[UUID_TEXT_SIZE];

	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_NOT_FOUND, "refund_not_found"),
			 errmsg("refund %s does not exist", uuid_to_text(refund_id, text)),
			 errhint("Pass the refund_id that payflow.refund() returned, or look in payflow.refunds.")));
}

OperationRow *
read_refund(const pg_uuid_t *refund_id)
{
	Datum		values[1] = {UUIDPGetDatum(refund_id)};

	if (run(&refund_by_id, values, NULL) == 0)
		refund_not_found(refund_id);
	return operation_row_read(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 0);
}

/* Whether it has been sent yet is nothing to its callers. */
const char *
refund_status(const OperationRow *refund)
{
	return operation_status_name(refund->status == OPERATION_SENT ? OPERATION_PENDING : refund->status);
}

Datum
refund_datum(FunctionCallInfo fcinfo, const ApiCall *call, const OperationRow *refund, bool replayed)
{
	FieldList	list = {0};

	field_uuid(&list, "refund_id", &refund->operation_id);
	field_uuid(&list, "session_id", &refund->session_id);
	field_int64(&list, "amount", refund->amount);
	field_text(&list, "currency", refund->currency);
	field_text(&list, "status", refund_status(refund));
	field_text(&list, "provider_refund_id", refund->provider_ref);
	field_text(&list, "failure_code", refund->failure_code);
	field_text(&list, "failure_message", refund->failure_message);
	field_bool(&list, "replayed", replayed);
	field_int32(&list, "http_status", operation_is_settled(refund->status) ? 200 : 202);
	field_time(&list, "created_at", refund->created_at);
	field_time(&list, "updated_at", refund->updated_at);
	return composite_datum(fcinfo, call, &list);
}

Datum
payflow_get_refund(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *refund_id;
	ApiCall		call;
	Datum		result;

	require_loaded();
	refund_id = arg_refund_id(fcinfo, 0);

	api_enter(&call);
	result = refund_datum(fcinfo, &call, read_refund(refund_id), false);
	api_leave(&call);
	return result;
}

/* ---- waiting ---- */

static bool
is_awaited(const LatestRefund *refund)
{
	return refund->status == OPERATION_PENDING || refund->status == OPERATION_SENT;
}

/*
 * Each reading comes after the sleep was prepared, so that a change between
 * the two ends the sleep at once.  An error leaves a prepared sleep behind,
 * which the end of the (sub)transaction cancels.
 */
static void
wait_for_refund(const pg_uuid_t *refund_id, long timeout)
{
	LatestRefund refund = read_latest_refund_to_wait(refund_id, "payflow.wait_refund()");
	instr_time	start;
	long		left = timeout;

	INSTR_TIME_SET_CURRENT(start);
	waiter_prepare(&refund.session_id);
	refund = read_latest_refund(refund_id);
	while (is_awaited(&refund) && left > 0)
	{
		instr_time	elapsed;

		(void) waiter_sleep(&refund.session_id, RecoveryInProgress() ? Min(left, STANDBY_NAP_MS) : left);
		refund = read_latest_refund(refund_id);
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		left = timeout - (long) INSTR_TIME_GET_MILLISEC(elapsed);
	}
	waiter_done();
}

Datum
payflow_wait_refund(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *refund_id;
	long		timeout;
	ApiCall		call;
	Datum		result;

	require_loaded();
	refund_id = arg_refund_id(fcinfo, 0);
	timeout = arg_wait(fcinfo, 1, "timeout");
	require_can_wait("payflow.wait_refund()");

	wait_for_refund(refund_id, timeout);

	api_enter(&call);
	result = refund_datum(fcinfo, &call, read_refund(refund_id), false);
	api_leave(&call);
	return result;
}

/* ---- asking for one ---- */

static void
require_receipt_money(const PaymentRow *payment)
{
	char		id[UUID_TEXT_SIZE];

	if (payment->order_receipt_is_ours && payment->captured_amount > 0)
		return;
	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "not_refundable"),
			 errmsg("payment session %s has status \"%s\" and no money to give back",
					uuid_to_text(&payment->session_id, id), status_name(payment->status)),
			 payment->reversed_amount > 0 ?
			 errhint("Its capture failed afterwards, no money is here: take the payment under a new order id.") :
			 status_is_final(payment->status) ?
			 errhint("Only the order's receipt is refunded; for unexpected money see payflow.resolve_discrepancy().") :
			 errhint("Nothing was taken yet: use payflow.cancel().")));
}

/*
 * What is to go back, within what may.
 */
static int64
resolve_amount(const PaymentRow *payment, int64 amount)
{
	char		id[UUID_TEXT_SIZE];

	require_receipt_money(payment);
	if (amount == 0 && payment->refundable_amount == 0)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "not_refundable"),
				 errmsg("nothing of payment session %s is left to refund", uuid_to_text(&payment->session_id, id)),
				 errhint("It has gone back, or is on its way: see payflow.refunds and the payment's disputed_amount.")));
	if (amount > payment->refundable_amount)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "refund_exceeds_captured"),
				 errmsg("amount %lld is more than the %lld that can still be refunded",
						(long long) amount, (long long) payment->refundable_amount),
				 errhint("Refunds that are not settled and disputes count as given back.")));
	return amount != 0 ? amount : payment->refundable_amount;
}

static bool
find_same_refund(const Wanted *wanted, pg_uuid_t *operation_id)
{
	Datum		values[2];

	values[0] = UUIDPGetDatum(wanted->session_id);
	values[1] = Int64GetDatum(wanted->amount);
	return run(&same_refund, values, NULL) > 0 && result_uuid(0, 1, operation_id);
}

/*
 * False: the transaction has asked for this refund before, and *operation_id
 * is that one.
 */
static bool
ask_for_refund(const Wanted *wanted, pg_uuid_t *operation_id)
{
	PaymentRow *payment = lock_payment(wanted->session_id);
	ProviderTerms terms;
	Outcome		wish;

	/* of "all that is left" again, nothing is left */
	if (wanted->key == NULL && (wanted->amount != 0 || payment->refundable_amount == 0) &&
		find_same_refund(wanted, operation_id))
		return false;

	wish_init(&wish, &terms, OUTCOME_REFUND_ASKED, "refund", payment);
	wish.has_operation = true;
	wish.operation_id = *operation_id;
	wish.wished_amount = resolve_amount(payment, wanted->amount);
	wish.wished_receipt = wanted->receipt;
	wish.reason = wanted->reason;
	session_apply_wish(&wish);
	return true;
}

Datum
payflow_refund(PG_FUNCTION_ARGS)
{
	Wanted		wanted;
	ApiCall		call;
	PaymentRow *row;
	pg_uuid_t	operation_id;
	bool		replayed;
	Datum		result;

	require_loaded();
	wanted.session_id = arg_session_id(fcinfo, 0);
	wanted.amount = arg_part_amount(fcinfo, 1);
	wanted.key = arg_idempotency_key(fcinfo, 2);
	wanted.reason = arg_reason(fcinfo, 3, "reason");
	wanted.receipt = arg_receipt(fcinfo, 4);
	PreventCommandIfReadOnly("payflow.refund()");

	api_enter(&call);
	row = read_payment(wanted.session_id);
	new_operation_id(row, &operation_id);
	api_pin_search_path(&call);
	replayed = wanted.key != NULL && !claim_key(row, "refund", wanted.key, wanted.amount, &operation_id);
	if (!replayed)
		replayed = !ask_for_refund(&wanted, &operation_id);
	api_unpin_search_path(&call);

	result = refund_datum(fcinfo, &call, read_refund(&operation_id), replayed);
	api_leave(&call);
	return result;
}
