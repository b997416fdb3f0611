/*-------------------------------------------------------------------------
 *
 * database_alone.c
 *	  What a worker does in the database, without a provider: claims due
 *	  payments and applies answers that are made up.
 *
 *	  A call of database_alone() is what a cycle of the worker is: it applies
 *	  the answers to what the call before has claimed, and claims the next.
 *	  The code is payflow's own, linked in.
 *
 * IDENTIFICATION
 *	  test/bench/database_alone.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/uuid.h"
#include "provider/provider.h"
#include "session/session.h"
#include "sweep/sweep.h"

#define LEASE (60 * USECS_PER_SEC)

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(database_alone);

/* answers to what was claimed last, for the next call */
static MemoryContext answers_context;
static Outcome **answers;
static int	n_answers;

/* The answer of a provider with which everybody pays at once. */
static Outcome *
make_up_answer(const Claim *claim, const Provider *provider)
{
	const PaymentRow *payment = claim->payment;
	Outcome    *outcome = palloc_object(Outcome);
	char		id[UUID_TEXT_SIZE];

	uuid_to_text(&payment->session_id, id);
	outcome_init(outcome, payment, &provider->terms, "worker");
	/* the claim ends before it is applied */
	outcome->merchant = pstrdup(payment->merchant);
	outcome->order_id = pstrdup(payment->order_id);
	outcome->call = claim->call;
	outcome->lease_token = payment->lease_token;
	outcome->mark_set = claim->mark_set;
	outcome->attempt = payment->attempts;
	outcome->http_status = 200;
	outcome->duration = 1000;
	outcome->sent_at = GetCurrentTimestamp();
	outcome->provider_payment_id = psprintf("pay_%s", id);
	outcome->amount = payment->amount;
	strlcpy(outcome->currency, payment->currency, sizeof(outcome->currency));
	outcome->refunded = 0;
	outcome->disputed = 0;
	if (claim->call == CALL_REGISTER)
	{
		outcome->kind = OUTCOME_PENDING;
		outcome->stage = STAGE_FORM;
		outcome->provider_status = "pending";
		outcome->redirect_url = psprintf("%s/pay/%s", provider->endpoint, id);
	}
	else
	{
		outcome->kind = OUTCOME_PAID;
		outcome->provider_status = "paid";
		outcome->authorized = payment->amount;
		outcome->captured = payment->amount;
	}
	return outcome;
}

static void
apply_answers(void)
{
	ApplyResult *results = palloc_array(ApplyResult, n_answers);

	session_apply(answers, n_answers, results);
	for (int i = 0; i < n_answers; i++)
	{
		if (results[i] != APPLY_DONE)
			elog(ERROR, "an answer was not applied: %d", (int) results[i]);
	}
}

static List *
claim_work(const Provider *provider, int batch)
{
	ClaimRequest request = {
		.provider = provider->name,
		.endpoint = provider->endpoint,
		.account = provider->account,
		.terms = &provider->terms,
		.lease = LEASE,
		.never_sent_is_believed = true,
		.from = DT_NOBEGIN,
	};
	TimestampTz next_due = DT_NOEND;
	List	   *claims;

	claims = claim_due(SOURCE_ASK, &request, batch, 0, NIL, &next_due);
	if (list_length(claims) < batch)
		claims = claim_due(SOURCE_REGISTER, &request, batch - list_length(claims), 0, claims, &next_due);
	return claims;
}

/*
 * database_alone(provider, batch): how many answers were applied and payments
 * claimed.
 */
Datum
database_alone(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const Provider *provider;
	List	   *claims;
	ListCell   *cell;
	int			done = n_answers;

	SPI_connect();
	if (n_answers > 0)
		apply_answers();

	if (answers_context == NULL)
		answers_context = AllocSetContextCreate(TopMemoryContext, "answers", ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(answers_context);
	n_answers = 0;
	provider = provider_by_name(name);
	if (provider == NULL)
		elog(ERROR, "there is no provider \"%s\"", name);
	MemoryContextSwitchTo(answers_context);
	provider = provider_copy(provider);
	claims = claim_work(provider, PG_GETARG_INT32(1));

	/* SPI has its own context current */
	MemoryContextSwitchTo(answers_context);
	answers = palloc_array(Outcome *, list_length(claims) + 1);
	foreach(cell, claims)
		answers[n_answers++] = make_up_answer(lfirst(cell), provider);
	SPI_finish();
	PG_RETURN_INT32(done + n_answers);
}
