/*-------------------------------------------------------------------------
 *
 * decisions.c
 *	  What people decide where payflow cannot: settle_refund(), retry_now(),
 *	  resolve_discrepancy(), acknowledge_alert().
 *
 * IDENTIFICATION
 *	  src/api/decisions.c
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
#include "lib/spi.h"
#include "lib/uuid.h"
#include "session/session.h"

/* what somebody may decide about a discrepancy; the names are those of resolutions[] */
typedef enum Resolution
{
	RESOLVE_ACCEPT,
	RESOLVE_REFUND,
	RESOLVE_WRITE_OFF,
	RESOLVE_NO_MONEY,
} Resolution;

static const char *const resolutions[] = {"accept", "refund", "write_off", "no_money", NULL};
static const char *const refund_outcomes[] = {"succeeded", "failed", NULL};

/* a discrepancy as it is */
typedef struct Discrepancy
{
	int64		id;
	bool		has_session;
	pg_uuid_t	session_id;
	char	   *resolution;		/* NULL: open */
	int64		amount;			/* money in suspense; 0: none */
	char	   *currency;
} Discrepancy;

#define DISCREPANCY_BY_ID \
	"SELECT d.session_id, d.resolution, d.amount, d.currency::pg_catalog.text" \
	" FROM payflow.discrepancies d WHERE d.id OPERATOR(pg_catalog.=) $1"

static Statement discrepancy_by_id = {
	.sql = DISCREPANCY_BY_ID,
	.nargs = 1,
	.argtypes = {INT8OID}
};

static Statement lock_discrepancy = {
	.sql = DISCREPANCY_BY_ID " FOR NO KEY UPDATE",
	.nargs = 1,
	.argtypes = {INT8OID}
};

/* For what is about no session: there is nothing to book. */
static Statement close_discrepancy = {
	.sql = "UPDATE payflow.discrepancies SET status = 'resolved', resolved_at = pg_catalog.clock_timestamp(),"
	" resolution = $2, resolved_by = $3, note = $4 WHERE id OPERATOR(pg_catalog.=) $1",
	.nargs = 4,
	.argtypes = {INT8OID, TEXTOID, TEXTOID, TEXTOID}
};

static Statement order_of_payment = {
	.sql = "SELECT o.active_session_id IS NOT NULL, o.amount::pg_catalog.int8, o.currency::pg_catalog.text"
	" FROM payflow.orders o"
	" WHERE o.merchant OPERATOR(pg_catalog.=) $1 AND o.order_id OPERATOR(pg_catalog.=) $2",
	.nargs = 2,
	.argtypes = {TEXTOID, TEXTOID}
};

static Statement close_alert = {
	.sql = "UPDATE payflow.alerts SET closed_at = pg_catalog.clock_timestamp(), closed_by = $2, note = $3"
	" WHERE id OPERATOR(pg_catalog.=) $1 AND closed_at IS NULL",
	.nargs = 3,
	.argtypes = {INT8OID, TEXTOID, TEXTOID}
};

static Statement alert_by_id = {
	.sql = "SELECT FROM payflow.alerts a WHERE a.id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {INT8OID}
};

PG_FUNCTION_INFO_V1(payflow_settle_refund);
PG_FUNCTION_INFO_V1(payflow_retry_now);
PG_FUNCTION_INFO_V1(payflow_resolve_discrepancy);
PG_FUNCTION_INFO_V1(payflow_acknowledge_alert);

#define bad_argument(...) \
	ereport(ERROR, (payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_argument"), __VA_ARGS__))
#define conflict(word, ...) \
	ereport(ERROR, (payflow_error(ERRCODE_PAYFLOW_CONFLICT, (word)), __VA_ARGS__))

/* Who decides: the caller's login, not the owner as whom this runs. */
static Datum
decider(void)
{
	return CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), false));
}

static int64
arg_number(FunctionCallInfo fcinfo, int n, const char *table)
{
	if (PG_ARGISNULL(n))
		bad_argument(errmsg("id is null"),
					 errhint("Pass the id of a row of payflow.%s.", table));
	return PG_GETARG_INT64(n);
}

/*
 * Locks the payment of a refund, then reads the refund as it is by now.
 */
static OperationRow *
lock_refund(const OperationRow *seen, PaymentRow **payment)
{
	OperationRow *refund;

	*payment = lock_payment(&seen->session_id);
	refund = operation_by_id(&seen->operation_id);
	if (refund == NULL)
		refund_not_found(&seen->operation_id);
	return refund;
}

/* ---- settle_refund() ---- */

/*
 * Whether there is still something to decide.
 */
static bool
refund_is_undecided(const OperationRow *refund, bool succeeded)
{
	char		id[UUID_TEXT_SIZE];

	uuid_to_text(&refund->operation_id, id);
	if (refund->status == OPERATION_UNKNOWN)
		return true;
	if (!operation_is_settled(refund->status))
		conflict("payment_in_progress",
				 errmsg("refund %s is running", id),
				 errhint("Only a refund whose result cannot be learned, status \"unknown\", is settled by hand."));
	if ((refund->status == OPERATION_SUCCEEDED) == succeeded)
		return false;
	conflict("not_refundable",
			 errmsg("refund %s has status \"%s\"", id, operation_status_name(refund->status)),
			 errhint("What is settled stays so; for money that has moved otherwise see payflow.discrepancies."));
}

Datum
payflow_settle_refund(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *refund_id;
	bool		succeeded;
	char	   *note;
	ApiCall		call;
	OperationRow *refund;
	PaymentRow *payment;
	bool		undecided;
	Datum		result;

	require_loaded();
	refund_id = arg_refund_id(fcinfo, 0);
	succeeded = arg_word(fcinfo, 1, "outcome", refund_outcomes) == 0;
	note = arg_required_reason(fcinfo, 2, "note");
	PreventCommandIfReadOnly("payflow.settle_refund()");

	api_enter(&call);
	refund = read_refund(refund_id);
	api_pin_search_path(&call);
	refund = lock_refund(refund, &payment);
	undecided = refund_is_undecided(refund, succeeded);
	if (undecided)
	{
		ProviderTerms terms;
		Outcome		decision;

		wish_init(&decision, &terms, OUTCOME_REFUND_DECIDED, "settle_refund", payment);
		decision.has_operation = true;
		decision.operation_id = *refund_id;
		decision.decided_success = succeeded;
		decision.reason = note;
		session_apply_wish(&decision);
	}
	api_unpin_search_path(&call);

	result = refund_datum(fcinfo, &call, read_refund(refund_id), !undecided);
	api_leave(&call);
	return result;
}

/* ---- retry_now() ---- */

/*
 * Only what the provider has refused may be tried again: of everything else it
 * may know already.
 */
static void
require_retryable(const PaymentRow *payment, const OperationRow *refund)
{
	char		id[UUID_TEXT_SIZE];

	uuid_to_text(&refund->operation_id, id);
	if (refund->status != OPERATION_FAILED)
		conflict("not_refundable",
				 errmsg("refund %s has status \"%s\"", id, refund_status(refund)),
				 errhint("Only a refund that the provider has refused can be tried again."));
	if (refund->failure_code == NULL || strcmp(refund->failure_code, "refused") != 0)
		conflict("not_refundable",
				 errmsg("refund %s has failed otherwise than by a refusal", id),
				 errhint("Ask for a new one with payflow.refund()."));
	if (refund->from_suspense)
		conflict("not_refundable",
				 errmsg("refund %s was of money in suspense, about which is to be decided again", id),
				 errhint("Resolve its discrepancy once more with payflow.resolve_discrepancy()."));
	if (refund->amount > payment->refundable_amount)
		conflict("refund_exceeds_captured",
				 errmsg("amount %lld is more than the %lld that can still be refunded",
						(long long) refund->amount, (long long) payment->refundable_amount),
				 errhint("Refunds that are not settled and disputes count as given back."));
}

static void
retry_refund(const char *id, const char *reason)
{
	pg_uuid_t	refund_id;
	ApiCall		call;
	OperationRow *refund;
	PaymentRow *payment;
	ProviderTerms terms;
	Outcome		wish;

	if (!uuid_from_text(id, &refund_id))
		bad_argument(errmsg("id \"%s\" is not a uuid", brief(id)),
					 errhint("Pass the refund_id that payflow.refund() returned."));

	api_enter(&call);
	refund = read_refund(&refund_id);
	api_pin_search_path(&call);
	refund = lock_refund(refund, &payment);
	require_retryable(payment, refund);
	wish_init(&wish, &terms, OUTCOME_REFUND_ASKED, "retry", payment);
	wish.has_operation = true;
	wish.operation_id = refund_id;
	wish.wished_amount = refund->amount;
	wish.reason = reason;
	session_apply_wish(&wish);
	api_unpin_search_path(&call);
	api_leave(&call);
}

Datum
payflow_retry_now(PG_FUNCTION_ARGS)
{
	char	   *what;
	char	   *id;
	char	   *reason;

	require_loaded();
	what = arg_text(fcinfo, 0);
	id = arg_text(fcinfo, 1);
	if (what == NULL || id == NULL)
		bad_argument(errmsg("%s is null", what == NULL ? "what" : "id"),
					 errhint("Pass what is to be tried again, \"refund\", and its id."));
	reason = arg_required_reason(fcinfo, 2, "reason");
	if (strcmp(what, "refund") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" cannot be tried again by hand", brief(what)),
				 errhint("Supported is \"refund\".")));
	PreventCommandIfReadOnly("payflow.retry_now()");
	retry_refund(id, reason);
	PG_RETURN_VOID();
}

/* ---- resolve_discrepancy() ---- */

static void
read_discrepancy(Statement *statement, int64 id, Discrepancy *discrepancy)
{
	Datum		values[1] = {Int64GetDatum(id)};

	if (run(statement, values, NULL) == 0)
		bad_argument(errmsg("discrepancy %lld does not exist", (long long) id),
					 errhint("Pass the id of a row of payflow.discrepancies."));
	discrepancy->id = id;
	discrepancy->has_session = result_uuid(0, 1, &discrepancy->session_id);
	discrepancy->resolution = result_text(0, 2);
	discrepancy->amount = result_int64(0, 3);
	discrepancy->currency = result_text(0, 4);
}

/* Of the money in suspense, what refunds on their way have been promised. */
static int64
promised_suspense(const PaymentRow *payment)
{
	int64		sum = 0;
	ListCell   *cell;

	foreach(cell, operations_of_session(&payment->session_id))
	{
		const OperationRow *operation = lfirst(cell);

		if (operation->kind == OPERATION_REFUND && operation->from_suspense &&
			!operation_is_settled(operation->status) && strcmp(operation->currency, payment->currency) == 0)
			sum += operation->amount;
	}
	return sum;
}

/*
 * Money becomes the order's receipt only where create() could have had it
 * paid, and only if it is what the order costs.
 */
static void
require_acceptable(const Discrepancy *discrepancy, const PaymentRow *payment)
{
	Datum		values[2];
	char	   *currency;
	int64		amount;
	int64		left;

	if (payment->order_status != ORDER_OPEN)
		conflict("order_already_paid",
				 errmsg("order \"%s\" has been paid already", brief(payment->order_id)),
				 errhint("Give the money back: resolve with \"refund\"."));

	values[0] = CStringGetTextDatum(payment->merchant);
	values[1] = CStringGetTextDatum(payment->order_id);
	if (run(&order_of_payment, values, NULL) == 0)
		elog(ERROR, "a locked order could not be read");
	if (result_bool(0, 1))
		conflict("payment_in_progress",
				 errmsg("a payment of order \"%s\" is running", brief(payment->order_id)),
				 errhint("Wait until it has ended, or cancel it; or give this money back."));
	amount = result_int64(0, 2);
	currency = result_text(0, 3);
	if (amount != discrepancy->amount || strcmp(currency, discrepancy->currency) != 0 ||
		strcmp(currency, payment->currency) != 0)
		bad_argument(errmsg("the money is %lld %s, and order \"%s\" costs %lld %s",
							(long long) discrepancy->amount, discrepancy->currency, brief(payment->order_id),
							(long long) amount, currency),
					 errhint("Only the order's own amount can be accepted: resolve with \"refund\"."));
	left = payment->suspense_amount - promised_suspense(payment);
	if (left < amount)
		bad_argument(errmsg("of the money of discrepancy %lld, %lld %s are left",
							(long long) discrepancy->id, (long long) Max(left, 0), currency),
					 errhint("Some of it has gone back, or is on its way: resolve with \"refund\"."));
}

/*
 * Whether there is still something to decide, and it may be decided so.
 */
static bool
discrepancy_is_undecided(const Discrepancy *discrepancy, Resolution resolution)
{
	if (discrepancy->resolution != NULL)
	{
		if (strcmp(discrepancy->resolution, resolutions[resolution]) == 0)
			return false;
		conflict("parameters_differ",
				 errmsg("discrepancy %lld was resolved by \"%s\" already", (long long) discrepancy->id, discrepancy->resolution),
				 errhint("What was decided stays so."));
	}
	if (discrepancy->amount == 0 && (resolution == RESOLVE_ACCEPT || resolution == RESOLVE_REFUND))
		bad_argument(errmsg("discrepancy %lld has no money that could be moved", (long long) discrepancy->id),
					 errhint("Close it with \"no_money\" or \"write_off\"."));
	return true;
}

static void
resolve_without_session(int64 id, Resolution resolution, const char *note)
{
	Discrepancy discrepancy;
	Datum		values[4];

	read_discrepancy(&lock_discrepancy, id, &discrepancy);
	if (!discrepancy_is_undecided(&discrepancy, resolution))
		return;
	values[0] = Int64GetDatum(id);
	values[1] = CStringGetTextDatum(resolutions[resolution]);
	values[2] = decider();
	values[3] = CStringGetTextDatum(note);
	(void) run(&close_discrepancy, values, NULL);
}

static void
resolve(const pg_uuid_t *session_id, int64 id, Resolution resolution, const char *note)
{
	PaymentRow *payment = lock_payment(session_id);
	Discrepancy discrepancy;
	ProviderTerms terms;
	Outcome		decision;

	read_discrepancy(&lock_discrepancy, id, &discrepancy);
	if (!discrepancy_is_undecided(&discrepancy, resolution))
		return;
	if (resolution == RESOLVE_ACCEPT)
		require_acceptable(&discrepancy, payment);

	wish_init(&decision, &terms, OUTCOME_DISCREPANCY_DECIDED, "resolve_discrepancy", payment);
	decision.discrepancy_id = id;
	decision.resolution = resolutions[resolution];
	decision.reason = note;
	session_apply_wish(&decision);
}

Datum
payflow_resolve_discrepancy(PG_FUNCTION_ARGS)
{
	int64		id;
	Resolution	resolution;
	char	   *note;
	ApiCall		call;
	Discrepancy discrepancy;

	require_loaded();
	id = arg_number(fcinfo, 0, "discrepancies");
	resolution = (Resolution) arg_word(fcinfo, 1, "resolution", resolutions);
	note = arg_required_reason(fcinfo, 2, "note");
	PreventCommandIfReadOnly("payflow.resolve_discrepancy()");

	api_enter(&call);
	read_discrepancy(&discrepancy_by_id, id, &discrepancy);
	api_pin_search_path(&call);
	if (discrepancy.has_session)
		resolve(&discrepancy.session_id, id, resolution, note);
	else
		resolve_without_session(id, resolution, note);
	api_unpin_search_path(&call);
	api_leave(&call);
	PG_RETURN_VOID();
}

/* ---- acknowledge_alert() ---- */

/*
 * Somebody else may have closed it: then his word stays.
 */
Datum
payflow_acknowledge_alert(PG_FUNCTION_ARGS)
{
	int64		id;
	char	   *note;
	ApiCall		call;
	Datum		values[3];

	require_loaded();
	id = arg_number(fcinfo, 0, "alerts");
	note = arg_reason(fcinfo, 1, "note");
	PreventCommandIfReadOnly("payflow.acknowledge_alert()");

	api_enter(&call);
	api_pin_search_path(&call);
	values[0] = Int64GetDatum(id);
	values[1] = decider();
	values[2] = note == NULL ? (Datum) 0 : CStringGetTextDatum(note);
	if (run(&close_alert, values, note == NULL ? "  n" : NULL) == 0 &&
		run(&alert_by_id, values, NULL) == 0)
		bad_argument(errmsg("alert %lld does not exist", (long long) id),
					 errhint("Pass the id of a row of payflow.alerts."));
	api_unpin_search_path(&call);
	api_leave(&call);
	PG_RETURN_VOID();
}
