/*-------------------------------------------------------------------------
 *
 * check.c
 *	  check(), payer_returned() and force_check(): have the provider asked
 *	  now.
 *
 *	  The question goes into the ring of asks in shared memory, from where a
 *	  worker takes it.  No row is written for it; force_check() writes into the
 *	  journal who has asked and why.
 *
 * IDENTIFICATION
 *	  src/api/check.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "portability/instr_time.h"

#include "api/api.h"
#include "api/args.h"
#include "lib/compat.h"
#include "lib/json.h"
#include "session/session.h"
#include "provider/provider.h"
#include "shared/shared.h"

typedef struct Question
{
	const char *function;		/* who asks, for messages */
	const pg_uuid_t *session_id;
	bool		returned;		/* the payer is back */
	const char *params;			/* JSON text or NULL */
	const char *reason;			/* to be journaled; NULL: not */
	long		wait;			/* milliseconds */
} Question;

PG_FUNCTION_INFO_V1(payflow_check);
PG_FUNCTION_INFO_V1(payflow_payer_returned);
PG_FUNCTION_INFO_V1(payflow_force_check);

/*
 * Sleeps until the question is answered or the time is over.  The sleep is
 * prepared before each look at the answer; an error leaves that to the end of
 * the (sub)transaction.  False: no answer came in time.
 */
static bool
wait_for_answer(const pg_uuid_t *session_id, const AskTicket *ticket, long timeout)
{
	instr_time	start;
	long		left = timeout;
	bool		answered;

	INSTR_TIME_SET_CURRENT(start);
	waiter_prepare(session_id);
	while (!(answered = ask_answered(ticket)) && left > 0)
	{
		instr_time	elapsed;

		(void) waiter_sleep(session_id, left);
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		left = timeout - (long) INSTR_TIME_GET_MILLISEC(elapsed);
	}
	waiter_done();
	return answered;
}

/*
 * Before the question is put: whether it is answered or not, somebody has
 * asked.  Nothing else of the session is written or locked, so that the answer
 * can be applied while this transaction waits for it.
 */
static void
journal_question(const Question *question)
{
	ApiCall		call;
	PaymentRow *row;
	StringInfoData detail;

	api_enter(&call);
	row = read_payment(question->session_id);
	initStringInfo(&detail);
	json_open_object(&detail);
	json_put_string(&detail, "reason", question->reason);
	json_close_object(&detail);
	api_pin_search_path(&call);
	journal_event(question->session_id, "api", "force_check", row->status, row->status, detail.data);
	api_unpin_search_path(&call);
	api_leave(&call);
}

/*
 * Asks, waits if so wished, and returns the session as it is then: 202 also
 * when nobody could be asked (the ring is full, the provider is gone), or no
 * answer came in time.
 */
static Datum
ask(FunctionCallInfo fcinfo, const Question *question)
{
	AskTicket	ticket;
	bool		asked = true;
	ApiCall		call;
	PaymentRow *row;
	Datum		result;

	PreventCommandDuringRecovery(question->function);
	if (question->wait > 0)
	{
		require_can_wait(question->function);
		(void) read_latest_to_wait(question->session_id, question->function);
	}
	if (question->reason != NULL)
		journal_question(question);
	if (question->wait > 0)
	{
		asked = ask_put(question->session_id, question->returned, question->params, &ticket);
		if (asked)
			asked = wait_for_answer(question->session_id, &ticket, question->wait);
	}

	api_enter(&call);
	row = read_payment(question->session_id);
	if (question->wait == 0)
		asked = ask_put(question->session_id, question->returned, question->params, &ticket);
	asked = asked && provider_by_name(row->provider) != NULL;
	result = payment_datum(fcinfo, &call, row, false, asked ? http_status_of(row) : 202);
	api_leave(&call);
	return result;
}

Datum
payflow_check(PG_FUNCTION_ARGS)
{
	Question	question = {0};

	require_loaded();
	question.function = "payflow.check()";
	question.session_id = arg_session_id(fcinfo, 0);
	question.wait = arg_wait(fcinfo, 1, "wait");
	return ask(fcinfo, &question);
}

Datum
payflow_payer_returned(PG_FUNCTION_ARGS)
{
	Question	question = {0};

	require_loaded();
	question.function = "payflow.payer_returned()";
	question.session_id = arg_session_id(fcinfo, 0);
	question.returned = true;
	question.params = arg_return_params(fcinfo, 1);
	question.wait = arg_wait(fcinfo, 2, "wait");
	return ask(fcinfo, &question);
}

Datum
payflow_force_check(PG_FUNCTION_ARGS)
{
	Question	question = {0};

	require_loaded();
	question.function = "payflow.force_check()";
	question.session_id = arg_session_id(fcinfo, 0);
	question.reason = arg_required_reason(fcinfo, 1, "reason");
	question.wait = arg_wait(fcinfo, 2, "wait");
	PreventCommandIfReadOnly(question.function);
	return ask(fcinfo, &question);
}
