/*-------------------------------------------------------------------------
 *
 * task.c
 *	  The life of a task: from a claim to a request, a call, an outcome.
 *
 *	  A task owns a memory context with all that it needs after the
 *	  transaction that claimed it, and is freed as a whole.
 *
 * IDENTIFICATION
 *	  src/worker/task.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "worker/worker.h"

/* a provider that asks for more is asked again after a day */
#define LONGEST_RETRY_AFTER ((int64) USECS_PER_DAY)

static char *
copy_text(const char *text)
{
	return text ? pstrdup(text) : NULL;
}

static OperationRow *
copy_operation(const OperationRow *operation)
{
	OperationRow *copy;

	if (operation == NULL)
		return NULL;
	copy = palloc_object(OperationRow);
	*copy = *operation;
	copy->currency = copy_text(operation->currency);
	copy->idempotency_key = copy_text(operation->idempotency_key);
	copy->provider_ref = copy_text(operation->provider_ref);
	copy->failure_code = copy_text(operation->failure_code);
	copy->failure_message = copy_text(operation->failure_message);
	copy->reason = copy_text(operation->reason);
	copy->receipt = copy_text(operation->receipt);
	return copy;
}

static PaymentRow *
copy_payment(const PaymentRow *payment)
{
	PaymentRow *copy = palloc_object(PaymentRow);

	*copy = *payment;
	copy->merchant = copy_text(payment->merchant);
	copy->order_id = copy_text(payment->order_id);
	copy->currency = copy_text(payment->currency);
	copy->provider = copy_text(payment->provider);
	copy->provider_payment_id = copy_text(payment->provider_payment_id);
	copy->provider_status = copy_text(payment->provider_status);
	copy->redirect_url = copy_text(payment->redirect_url);
	copy->failure_code = copy_text(payment->failure_code);
	copy->failure_message = copy_text(payment->failure_message);
	copy->endpoint = copy_text(payment->endpoint);
	copy->account = copy_text(payment->account);
	copy->return_url = copy_text(payment->return_url);
	copy->description = copy_text(payment->description);
	copy->customer = copy_text(payment->customer);
	copy->receipt = copy_text(payment->receipt);
	copy->return_params = copy_text(payment->return_params);
	copy->operation = copy_operation(payment->operation);
	return copy;
}

const pg_uuid_t *
claim_id(const PaymentRow *payment)
{
	return payment->operation ? &payment->operation->operation_id : &payment->session_id;
}

/* What every outcome of the task says, whoever fills in the rest. */
static void
begin_outcome(Task *task)
{
	Outcome    *outcome = &task->outcome;

	outcome_init(outcome, task->payment, &task->terms, "worker");
	outcome->has_operation = task->payment->operation != NULL;
	if (outcome->has_operation)
		outcome->operation_id = task->payment->operation->operation_id;
	outcome->call = task->call;
	outcome->lease_token = task->payment->lease_token;
	outcome->mark_set = task->mark_set;
	outcome->attempt = task->payment->attempts;
	outcome->stage = task->payment->stage;
}

/* ---- counting ---- */

int
sum_of_queues(const int *counts)
{
	int			n = 0;

	for (int queue = 0; queue < QUEUE_COUNT; queue++)
		n += counts[queue];
	return n;
}

int
calls_in_flight(const Worker *worker)
{
	return sum_of_queues(worker->in_flight);
}

static void
count(Worker *worker, Task *task, int step)
{
	ProviderState *state = hash_search(worker->providers, &task->serverid, HASH_FIND, NULL);

	worker->in_flight[task->queue] += step;
	state->in_flight[task->queue] += step;
	task->counted = step > 0;
}

/* ---- from a claim to a request ---- */

Task *
task_make(Worker *worker, Cycle *cycle, const Claim *claim, const Provider *provider, Queue queue)
{
	/* one block for all of a usual task: the server keeps some of those for the next ones */
	MemoryContext context = AllocSetContextCreate(worker->context, "payflow task", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Task	   *task = palloc0_object(Task);

	task->context = context;
	dlist_push_tail(&cycle->fresh, &task->node);
	task->serverid = provider->serverid;
	task->has_place = true;
	cycle->places--;
	task->queue = queue;
	count(worker, task, 1);

	task->payment = copy_payment(claim->payment);
	task->call = claim->call;
	task->mark_set = claim->mark_set;
	task->driver = provider->driver;
	task->terms = provider->terms;
	task->breaker_failures = provider->breaker_failures;
	task->breaker_pause = provider->breaker_pause;
	begin_outcome(task);
	MemoryContextSwitchTo(old);
	return task;
}

static void
settle(Task *task, OutcomeKind kind, const char *error)
{
	task->outcome.kind = kind;
	task->outcome.error = error;
	task->outcome_known = true;
}

/* Why the provider cannot be called for this payment as things stand; NULL: it can. */
static const char *
why_unreachable(const PaymentRow *payment, const Provider *provider)
{
	if (provider->api_key == NULL)
		return "secret missing";
	if (payment->endpoint == NULL)
		return NULL;			/* nothing was ever sent */
	if (strcmp(payment->endpoint, provider->endpoint) != 0)
		return "endpoint changed";
	if ((payment->account == NULL) != (provider->account == NULL) ||
		(payment->account != NULL && strcmp(payment->account, provider->account) != 0))
		return "account changed";
	return NULL;
}

static long
milliseconds(int64 microseconds)
{
	return (long) Max(Min(microseconds / 1000, INT_MAX), 1);
}

static void
fill_call(Task *task, const ProviderRequest *request, const Provider *provider)
{
	HttpCall   *http = &task->http;
	ListCell   *cell;

	http->method = request->method;
	http->url = request->url;
	http->headers = palloc_array(const char *, list_length(request->headers) + 1);
	foreach(cell, request->headers)
		http->headers[http->nheaders++] = lfirst(cell);
	http->body = request->body;
	http->body_length = request->body_length;
	http->once = request->mutating;
	if (provider->ca_file != NULL)
		http->ca_file = pstrdup(provider->ca_file);
	else if (setting_ca_file != NULL && setting_ca_file[0] != '\0')
		http->ca_file = pstrdup(setting_ca_file);
	http->connect_timeout_ms = milliseconds(provider->connect_timeout);
	http->timeout_ms = milliseconds(provider->timeout);
	http->start_before = task->payment->lease_until - provider->timeout;
	http->owner = task;
	task->has_call = true;
}

/*
 * A payment whose request cannot be built must not stop the others: its error
 * ends a subtransaction and becomes its outcome.  Only when the server itself
 * is in trouble the error goes on.
 */
static void
build(Task *task, const Provider *provider)
{
	ProviderRequest request = {0};
	MemoryContext old = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(task->context);
	PG_TRY();
	{
		task->driver->build(task->call, task->payment, provider, &request);
		fill_call(task, &request, provider);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(old);
		if (error_kind(error) == ERROR_OF_SERVER && ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_INTERNAL_ERROR)
			ReThrowError(error);
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("request to provider \"%s\" could not be built: %s", provider->name, error->message)));
		FreeErrorData(error);
		task->has_call = false;
		settle(task, OUTCOME_UNREACHABLE_SETTING, "request cannot be built");
	}
	PG_END_TRY();
	CurrentResourceOwner = owner;
	MemoryContextSwitchTo(old);
}

void
task_prepare(Task *task, const Claim *claim, const Provider *provider)
{
	const char *why;

	if (task->call == CALL_NONE)
		settle(task, claim->local, NULL);
	else if ((why = why_unreachable(task->payment, provider)) != NULL)
		settle(task, OUTCOME_UNREACHABLE_SETTING, why);
	else
		build(task, provider);
}

void
task_add_ask(Task *task, const Ask *ask)
{
	MemoryContext old = MemoryContextSwitchTo(task->context);

	if (task->asks == NULL)
		task->asks = palloc_array(AskTicket, 1);
	else
		task->asks = repalloc(task->asks, sizeof(AskTicket) * (task->nasks + 1));
	task->asks[task->nasks].place = ask->place;
	task->asks[task->nasks].generation = ask->generation;
	task->nasks++;

	if (ask->returned)
		task->outcome.payer_returned = true;
	if (ask->params[0] != '\0')
		task->outcome.return_params = pstrdup(ask->params);
	MemoryContextSwitchTo(old);
}

/* ---- calling ---- */

static void
uncount(Worker *worker, Task *task)
{
	if (task->counted)
		count(worker, task, -1);
}

/*
 * After the commit of the claim: starts the call, or has the outcome applied
 * at once where there is none to make.
 */
void
task_start(Worker *worker, Task *task)
{
	dlist_delete(&task->node);
	if (task->has_call)
	{
		hash_search(worker->called, claim_id(task->payment), HASH_ENTER, NULL);
		worker->calls++;
		http_start(&task->http);
		return;
	}
	limits_release(task->serverid, task->queue, 1);
	task->has_place = false;
	uncount(worker, task);
	dlist_push_tail(&worker->answers, &task->node);
}

void
task_ended(Worker *worker, Task *task)
{
	hash_search(worker->called, claim_id(task->payment), HASH_REMOVE, NULL);
	uncount(worker, task);
	worker->room_made = true;
	dlist_push_tail(&worker->answers, &task->node);
}

/* ---- the answer ---- */

/*
 * The place in the provider's limits is given back only here, because whether
 * the answer was of any use is for the driver to say.
 */
static void
end_place(Task *task)
{
	const HttpCall *http = &task->http;
	const Outcome *outcome = &task->outcome;

	if (!task->has_place)
		return;
	task->has_place = false;
	if (http->own_fault)
	{
		limits_release(task->serverid, task->queue, 1);
		return;
	}
	limits_end(task->serverid, task->queue, outcome_is_failure(outcome->kind), http->duration,
			   outcome->retry_after, outcome->error ? outcome->error : outcome_name(outcome->kind),
			   task->breaker_failures, task->breaker_pause, GetCurrentTimestamp());
}

static void
parse(Task *task)
{
	const HttpCall *http = &task->http;
	ProviderResponse response = {
		.http_status = http->status,
		.body = http->response ? http->response : "",
		.body_length = http->response_length,
		.truncated = http->truncated,
		.retry_after = http->retry_after,
	};
	MemoryContext old = MemoryContextSwitchTo(task->context);

	task->driver->parse(task->call, task->payment, &response, &task->outcome);
	MemoryContextSwitchTo(old);
}

void
task_read_answer(Task *task)
{
	const HttpCall *http = &task->http;

	if (!task->outcome_known)
	{
		task->outcome.http_status = http->status;
		task->outcome.duration = http->duration;
		task->outcome.sent_at = http->sent_at;
		task->outcome.error = http->error;
		task->outcome.retry_after = http->retry_after;
		if (http->result == HTTP_ANSWERED)
			parse(task);
		else
			settle(task, http->result == HTTP_UNSENT ? OUTCOME_UNSENT : OUTCOME_LOST, http->error);
		task->outcome.retry_after = Min(task->outcome.retry_after, LONGEST_RETRY_AFTER);
		task->outcome_known = true;
	}
	end_place(task);
}

void
task_tell(Task *task)
{
	for (int i = 0; i < task->nasks; i++)
		ask_done(task->asks[i].place, task->asks[i].generation);
	task->nasks = 0;
}

/*
 * Frees a task that is in no list and whose call, if any, has ended or was
 * never started.
 */
void
task_free(Worker *worker, Task *task)
{
	if (task->has_place)
		limits_release(task->serverid, task->queue, 1);
	uncount(worker, task);
	if (task->has_call)
		http_release(&task->http);
	MemoryContextDelete(task->context);
}
