/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  wait(): sleeps until a payment session has changed as wished.
 *
 * IDENTIFICATION
 *	  src/api/wait.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "portability/instr_time.h"

#include "api/api.h"
#include "api/args.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "shared/shared.h"

typedef enum Until
{
	UNTIL_SETTLED,				/* no longer in progress */
	UNTIL_CHANGED,				/* other than at the first reading */
	UNTIL_FINAL,
} Until;

PG_FUNCTION_INFO_V1(payflow_wait);

static Until
arg_until(FunctionCallInfo fcinfo, int n)
{
	char	   *until = arg_text(fcinfo, n);

	if (until != NULL)
	{
		if (strcmp(until, "settled") == 0)
			return UNTIL_SETTLED;
		if (strcmp(until, "changed") == 0)
			return UNTIL_CHANGED;
		if (strcmp(until, "final") == 0)
			return UNTIL_FINAL;
	}
	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_argument"),
			 until == NULL ? errmsg("until is null") :
			 errmsg("until \"%s\" is not known", brief(until)),
			 errhint("Pass settled, changed or final.")));
}

/* An authorized payment is settled, unless its capture was asked for and runs. */
static bool
is_settled(const pg_uuid_t *session_id, const LatestState *now)
{
	ApiCall		call;
	bool		running;

	if (now->status != STATUS_AUTHORIZED)
		return !status_in_progress(now->status);
	api_enter(&call);
	running = capture_is_running(session_id);
	api_leave(&call);
	return !running;
}

static bool
is_reached(const pg_uuid_t *session_id, Until until, const LatestState *first, const LatestState *now)
{
	switch (until)
	{
		case UNTIL_SETTLED:
			return is_settled(session_id, now);
		case UNTIL_CHANGED:
			return now->status != first->status || now->stage != first->stage ||
				now->updated_at != first->updated_at;
		case UNTIL_FINAL:
			return status_is_final(now->status);
	}
	pg_unreachable();
}

/*
 * Each reading comes after the sleep was prepared, so that a change between
 * the two ends the sleep at once.  An error leaves a prepared sleep behind,
 * which the end of the (sub)transaction cancels.
 */
static void
wait_until(const pg_uuid_t *session_id, Until until, long timeout)
{
	LatestState first;
	LatestState now;
	instr_time	start;
	long		left = timeout;

	INSTR_TIME_SET_CURRENT(start);
	waiter_prepare(session_id);
	first = read_latest_to_wait(session_id, "payflow.wait()");
	now = first;
	while (!is_reached(session_id, until, &first, &now) && left > 0)
	{
		instr_time	elapsed;

		(void) waiter_sleep(session_id, RecoveryInProgress() ? Min(left, STANDBY_NAP_MS) : left);
		now = read_latest(session_id);
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		left = timeout - (long) INSTR_TIME_GET_MILLISEC(elapsed);
	}
	waiter_done();
}

Datum
payflow_wait(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *session_id;
	long		timeout;
	Until		until;
	ApiCall		call;
	PaymentRow *row;
	Datum		result;

	require_loaded();
	session_id = arg_session_id(fcinfo, 0);
	timeout = arg_wait(fcinfo, 1, "timeout");
	until = arg_until(fcinfo, 2);
	require_can_wait("payflow.wait()");

	wait_until(session_id, until, timeout);

	api_enter(&call);
	row = read_payment(session_id);
	result = payment_datum(fcinfo, &call, row, false, http_status_of(row));
	api_leave(&call);
	return result;
}
