/*-------------------------------------------------------------------------
 *
 * claims.c
 *	  Taking work: what callers ask for, then what is due.
 *
 *	  Each provider is looked at by itself, work source by work source, and
 *	  only for as many as may be called now, so that one that hangs hides
 *	  nobody.  In between a source of a provider is left alone until the next
 *	  alarm that is known, a wake-up, or room for another call.
 *
 * IDENTIFICATION
 *	  src/worker/claims.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "worker/worker.h"

#define CLAIMS_MAX 200
#define PART_FOR_OTHERS 10
#define ASKS_MAX 64
#define ASKS_PAUSE_FIRST MILLISECONDS(100)
#define LEASE_MARGIN SECONDS(10)
/* due rows that could not be taken, because somebody holds them */
#define HELD_PAUSE MILLISECONDS(100)
#define FAILED_PAUSE SECONDS(1)
#define POISONED_PAUSE SECONDS(60)
#define PASSED_MAX 100
#define LOOK_SLOW MILLISECONDS(5)
#define LOOK_MARGIN SECONDS(10)
#define LOOK_FROM_TIME SECONDS(5)
#define CHECK_INTERVAL SECONDS(10)
#define MISSING_PAUSE_LAST SECONDS(60)
#define MISSING_MAX 1000

/* ---- providers and their sources ---- */

void
read_providers(Cycle *cycle)
{
	ListCell   *cell;

	/* copies: the next statement may empty the cache */
	foreach(cell, all_providers())
		cycle->providers = lappend(cycle->providers, provider_copy(lfirst(cell)));
}

static const Provider *
find_provider(const Cycle *cycle, const char *name)
{
	ListCell   *cell;

	foreach(cell, cycle->providers)
	{
		const Provider *provider = lfirst(cell);

		if (strcmp(provider->name, name) == 0)
			return provider;
	}
	return NULL;
}

static ProviderState *
state_of(Worker *worker, Oid serverid)
{
	bool		found;
	ProviderState *state = hash_search(worker->providers, &serverid, HASH_ENTER, &found);

	if (!found)
	{
		memset(state->in_flight, 0, sizeof(state->in_flight));
		memset(state->sources, 0, sizeof(state->sources));
		for (int i = 0; i < WORK_SOURCES; i++)
			state->sources[i].next_due = DT_NOEND;
	}
	state->cycle = worker->cycle;
	return state;
}

static void
forget_dropped_providers(Worker *worker)
{
	HASH_SEQ_STATUS scan;
	ProviderState *state;

	hash_seq_init(&scan, worker->providers);
	while ((state = hash_seq_search(&scan)) != NULL)
	{
		if (state->cycle != worker->cycle && sum_of_queues(state->in_flight) == 0)
			hash_search(worker->providers, &state->serverid, HASH_REMOVE, NULL);
	}
}

void
look_at_provider(Worker *worker, Oid serverid)
{
	ProviderState *state = hash_search(worker->providers, &serverid, HASH_FIND, NULL);

	for (int i = 0; state != NULL && i < WORK_SOURCES; i++)
		state->sources[i].look_at = 0;
}

/* How many calls of that queue this worker may start. */
static int
room(const Worker *worker, Queue queue)
{
	return Max(Min(setting_max_in_flight[queue] - worker->in_flight[queue],
				   worker->capacity - calls_in_flight(worker)), 0);
}

/* What one provider may have of n calls: where it hangs, the others need some. */
static int
most_of(int n)
{
	return n - n / PART_FOR_OTHERS;
}

/*
 * How many calls of that queue this worker may start for one provider, which
 * gets most of what the others leave.
 */
static int
share(const Worker *worker, const ProviderState *state, Queue queue)
{
	int			in_queue = setting_max_in_flight[queue] - worker->in_flight[queue] + state->in_flight[queue];
	int			all = worker->capacity - calls_in_flight(worker) + sum_of_queues(state->in_flight);

	return Max(Min(most_of(in_queue) - state->in_flight[queue],
				   most_of(all) - sum_of_queues(state->in_flight)), 0);
}

static void
fill_request(ClaimRequest *request, const Provider *provider, const Cycle *cycle)
{
	request->provider = provider->name;
	request->endpoint = provider->endpoint;
	request->account = provider->account;
	request->terms = &provider->terms;
	request->lease = Max(SECONDS(setting_lease), provider->connect_timeout + provider->timeout + LEASE_MARGIN);
	request->never_sent_is_believed = cycle->never_sent_is_believed;
}

/* ---- claims become tasks ---- */

/* A call that changes something at the provider: that it may have been made must not be forgotten. */
static bool
call_is_mutating(CallKind call)
{
	return call != CALL_NONE && call != CALL_FIND && call != CALL_GET;
}

/*
 * NULL where there is nothing to do: the claim is given back.
 */
static Task *
make_task(Worker *worker, Cycle *cycle, const Claim *claim, const Provider *provider, Queue queue, bool asked)
{
	Task	   *task;

	/* an earlier call outlives its lease: not two at a time */
	if (hash_search(worker->called, claim_id(claim->payment), HASH_FIND, NULL) != NULL)
	{
		release_claim(claim);
		return NULL;
	}
	if (asked && claim->call == CALL_NONE && claim->local == OUTCOME_PENDING)
	{
		release_claim(claim);
		return NULL;
	}
	task = task_make(worker, cycle, claim, provider, queue);
	task_prepare(task, claim, provider);
	if (claim->mark_set || call_is_mutating(claim->call))
		cycle->durable = true;
	return task;
}

static int
take_places(Worker *worker, Cycle *cycle, const Provider *provider, Queue queue, int wanted, TimestampTz *again_at)
{
	wanted = Min(wanted, share(worker, state_of(worker, provider->serverid), queue));
	cycle->places_of = provider->serverid;
	cycle->places_queue = queue;
	cycle->places = limits_take(provider->serverid, queue, wanted, provider->max_in_flight, provider->max_rps,
								cycle->now, again_at);
	return cycle->places;
}

static void
release_places(Cycle *cycle)
{
	limits_release(cycle->places_of, cycle->places_queue, cycle->places);
	cycle->places = 0;
}

/* ---- asks ---- */

static bool
same_session(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, sizeof(pg_uuid_t)) == 0;
}

/*
 * Serves the asks of one session by one claim.
 */
static void
serve_asks(Worker *worker, Cycle *cycle, const Claim *claim, const Provider *provider)
{
	Task	   *task = make_task(worker, cycle, claim, provider, QUEUE_STATUS, true);

	for (int i = 0; i < cycle->nasks; i++)
	{
		if (!same_session(&cycle->asks[i].session_id, &claim->payment->session_id))
			continue;
		if (task != NULL)
			task_add_ask(task, &cycle->asks[i]);
		cycle->ask_served[i] = task != NULL;
		cycle->ask_done[i] = task == NULL;
	}
}

/*
 * Claims the sessions of one provider that are asked for and not in flight.
 */
static void
claim_asks_of(Worker *worker, Cycle *cycle, const Provider *provider, char **names)
{
	pg_uuid_t  *ids = palloc_array(pg_uuid_t, cycle->nasks);
	int			n = 0;
	TimestampTz again_at;
	ClaimRequest request;
	List	   *claims;
	ListCell   *cell;

	for (int i = 0; i < cycle->nasks; i++)
	{
		const pg_uuid_t *id = &cycle->asks[i].session_id;
		bool		listed = false;

		if (names[i] == NULL || strcmp(names[i], provider->name) != 0 ||
			hash_search(worker->called, id, HASH_FIND, NULL) != NULL)
			continue;
		for (int j = 0; j < n && !listed; j++)
			listed = same_session(&ids[j], id);
		if (!listed)
			ids[n++] = *id;
	}
	n = take_places(worker, cycle, provider, QUEUE_STATUS, n, &again_at);
	if (n == 0)
		return;
	fill_request(&request, provider, cycle);
	claims = claim_asked(&request, ids, n, NIL);
	foreach(cell, claims)
		serve_asks(worker, cycle, lfirst(cell), provider);
	release_places(cycle);
}

/*
 * Asks that had to be given back: their sessions are in flight, held or leased
 * elsewhere, or there is no room.  They are not tried again in each cycle.
 */
static void
note_refused_asks(Worker *worker, const Cycle *cycle, int waiting)
{
	int			refused = waiting - cycle->nasks;

	for (int i = 0; i < cycle->nasks; i++)
		refused += !cycle->ask_done[i] && !cycle->ask_served[i];
	worker->asks_refused = Max(refused, 0);
	worker->refusals = refused > 0 ? worker->refusals + 1 : 0;
	worker->asks_at = cycle->now + (ASKS_PAUSE_FIRST << Min(worker->refusals, 4));
}

void
take_asks(Worker *worker, Cycle *cycle)
{
	int			waiting = queue_is_worked(QUEUE_STATUS) ? asks_waiting(MyDatabaseId) : 0;
	pg_uuid_t	ids[ASKS_MAX];
	char	   *names[ASKS_MAX] = {NULL};
	ListCell   *cell;

	if (waiting == 0)
		worker->asks_refused = 0;
	if (waiting <= worker->asks_refused && !cycle->room_made && worker->asks_at > cycle->now)
		return;					/* no new ones */
	if (waiting == 0)
		return;

	cycle->asks = palloc_array(Ask, ASKS_MAX);
	cycle->ask_done = palloc0_array(bool, ASKS_MAX);
	cycle->ask_served = palloc0_array(bool, ASKS_MAX);
	cycle->nasks = ask_take(MyDatabaseId, worker->slot, cycle->asks,
							Min(room(worker, QUEUE_STATUS), ASKS_MAX));
	if (cycle->nasks > 0)
	{
		for (int i = 0; i < cycle->nasks; i++)
			ids[i] = cycle->asks[i].session_id;
		providers_of_sessions(ids, cycle->nasks, names);
		for (int i = 0; i < cycle->nasks; i++)
			cycle->ask_done[i] = names[i] == NULL || find_provider(cycle, names[i]) == NULL;
		foreach(cell, cycle->providers)
			claim_asks_of(worker, cycle, lfirst(cell), names);
	}
	note_refused_asks(worker, cycle, waiting);
}

/* ---- due work ---- */

/*
 * When to look at a source again, after `got` of `asked` payments were claimed
 * from it.
 */
static void
note_claimed(Source *source, const Cycle *cycle, int asked, int got, TimestampTz next_due, TimestampTz again_at)
{
	bool		singly = source->one_by_one > 0;

	source->next_due = next_due;
	source->wants_room = false;
	if (singly)
		source->one_by_one--;
	if (got < asked)
		source->look_at = next_due <= cycle->now ? cycle->now + HELD_PAUSE : next_due;
	else if (asked == cycle->claim_max && (asked == CLAIMS_MAX || singly))
		source->look_at = 0;
	else
	{
		source->wants_room = true;
		source->look_at = again_at != 0 ? again_at : DT_NOEND;
	}
}

/*
 * While somebody holds an old snapshot, the index keeps what has become of all
 * payments since, and each look would go through it from the beginning.
 */
static void
leave_out_dead(const Source *source, Cycle *cycle)
{
	int64		left = source->look_from_until - cycle->now;

	/* more is left than there ever was: the clock was set back */
	if (left > 0 && left <= LOOK_FROM_TIME && source->passed == 0)
		cycle->request.from = source->look_from;
	else
		cycle->request.from = DT_NOBEGIN;
}

/*
 * The look from the beginning was slow: for a while only alarms are looked at
 * that are not much older than the first one that it has found.  The margin is
 * for transactions that set an alarm and commit later.
 */
static void
note_dead(Source *source, const Cycle *cycle)
{
	if (!TIMESTAMP_IS_NOBEGIN(cycle->request.from) || cycle->request.look_time < LOOK_SLOW)
		return;
	source->look_from = Min(cycle->request.first_alarm, cycle->now) - LOOK_MARGIN;
	source->look_from_until = cycle->now + LOOK_FROM_TIME;
}

static void
claim_source(Worker *worker, Cycle *cycle, const Provider *provider, WorkSourceId id, Source *source)
{
	Queue		queue = work_source_queue(id);
	TimestampTz again_at = 0;
	TimestampTz next_due = DT_NOEND;
	List	   *claims = NIL;
	ListCell   *cell;
	int			places;

	cycle->claim_max = Min(room(worker, queue), source->one_by_one > 0 ? 1 : CLAIMS_MAX);
	places = take_places(worker, cycle, provider, queue, cycle->claim_max, &again_at);
	if (places == 0)
	{
		source->wants_room = true;
		source->look_at = again_at != 0 ? again_at : DT_NOEND;
		return;
	}
	cycle->source = source;
	cycle->source_id = id;
	fill_request(&cycle->request, provider, cycle);
	if (source->passed_until <= cycle->now)
		source->passed = 0;
	leave_out_dead(source, cycle);
	claims = claim_due(id, &cycle->request, places, source->passed, NIL, &next_due);
	foreach(cell, claims)
		(void) make_task(worker, cycle, lfirst(cell), provider, queue, false);
	release_places(cycle);
	note_dead(source, cycle);
	note_claimed(source, cycle, places, list_length(claims), next_due, again_at);
	/* what it has left out, it does not leave for long */
	if (!TIMESTAMP_IS_NOBEGIN(cycle->request.from))
		source->look_at = Min(source->look_at, source->look_from_until);
	cycle->source = NULL;
}

static bool
source_is_due(const Source *source, const Cycle *cycle)
{
	if (source->not_before > cycle->now)
		return false;
	return cycle->look_everywhere || source->look_at <= cycle->now || (source->wants_room && cycle->room_made);
}

void
take_due(Worker *worker, Cycle *cycle)
{
	int			n = list_length(cycle->providers);

	/* another one first each time: the room may not suffice for all */
	for (int i = 0; i < n; i++)
	{
		const Provider *provider = list_nth(cycle->providers, (i + worker->cycle / WORK_SOURCES) % n);
		ProviderState *state = state_of(worker, provider->serverid);

		for (int j = 0; j < WORK_SOURCES; j++)
		{
			WorkSourceId id = (j + worker->cycle) % WORK_SOURCES;
			Source	   *source = &state->sources[id];

			if (!queue_is_worked(work_source_queue(id)))
			{
				source->look_at = DT_NOEND;
				source->next_due = DT_NOEND;
				source->wants_room = false;
			}
			else if (source_is_due(source, cycle))
				claim_source(worker, cycle, provider, id, source);
		}
	}
	forget_dropped_providers(worker);
	if (cycle->look_everywhere)
		worker->look_at = cycle->now + MILLISECONDS(setting_poll_interval);
}

/* ---- providers that are gone ---- */

static void
set_interval(Interval *interval, int64 microseconds)
{
	interval->month = 0;
	interval->day = 0;
	interval->time = microseconds;
}

/*
 * Payments and operations of a foreign server that was dropped or renamed stay
 * live, with an alert, and ring only now and then.
 */
void
check_providers(Worker *worker, Cycle *cycle)
{
	ListCell   *cell;
	Interval	pause;
	bool		missing = false;

	if (worker->check_providers_at > cycle->now)
		return;
	worker->check_providers_at = cycle->now + CHECK_INTERVAL;
	set_interval(&pause, Min(CHECK_INTERVAL << Min(worker->checks_missing, 4), MISSING_PAUSE_LAST));
	foreach(cell, providers_with_live_work())
	{
		char	   *name = lfirst(cell);

		if (find_provider(cycle, name) != NULL)
			continue;
		missing = true;
		raise_alert(psprintf("provider_missing:%s", name), "critical",
					psprintf("there is no provider \"%s\", but live payments or operations name it", name));
		for (int i = 0; i < WORK_SOURCES; i++)
			postpone_due(i, name, &pause, MISSING_MAX);
	}
	worker->checks_missing = missing ? worker->checks_missing + 1 : 0;
}

/* ---- when it fails ---- */

/* What is said of a row of a source. */
static const char *
what_is_claimed(WorkSourceId id)
{
	return id == SOURCE_OPERATIONS ? "an operation" : "a payment session";
}

static void
alert_poisoned(void *arg)
{
	const Cycle *cycle = arg;
	const char *provider = cycle->request.provider;

	raise_alert(psprintf("claim_failed:%s", provider), "critical",
				psprintf("%s of provider \"%s\" cannot be taken; the server's log says why",
						 what_is_claimed(cycle->source_id), provider));
}

static void
postpone_poisoned(void *arg)
{
	const Cycle *cycle = arg;
	Interval	pause;

	set_interval(&pause, POISONED_PAUSE);
	if (cycle->request.has_taken)
		postpone_one(cycle->source_id, &cycle->request.taken_id, &pause);
	else
		postpone_due(cycle->source_id, cycle->request.provider, &pause, 1);
}

/*
 * Claiming from one source failed: its payments are claimed one by one, until
 * the one that fails alone is found and put off.  One that cannot be written
 * even for that stays where it is, in front of all others, and is passed over.
 */
static void
source_failed(Worker *worker, Cycle *cycle, const ErrorData *error)
{
	Source	   *source = cycle->source;
	ErrorData  *another;

	if (cycle->claim_max > 1)
	{
		source->one_by_one = cycle->claim_max;
		return;
	}
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("%s of provider \"%s\" could not be taken: %s",
					what_is_claimed(cycle->source_id), cycle->request.provider, error->message)));
	source->not_before = cycle->now + FAILED_PAUSE;
	another = run_apart(worker, alert_poisoned, cycle);
	if (another == NULL)
		another = run_apart(worker, postpone_poisoned, cycle);
	if (another == NULL)
		return;
	if (error_kind(another) != ERROR_OF_ITEM || source->passed == PASSED_MAX)
	{
		pause_worker(worker, another);
		return;
	}
	source->passed++;
	source->passed_until = cycle->now + POISONED_PAUSE;
}

void
claims_failed(Worker *worker, Cycle *cycle, const ErrorData *error)
{
	if (cycle->phase == CYCLE_CLAIM && cycle->source != NULL)
	{
		source_failed(worker, cycle, error);
		return;
	}
	if (cycle->phase != CYCLE_ASKS && cycle->phase != CYCLE_CHECK)
	{
		pause_worker(worker, error);
		return;
	}
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("payflow worker could not %s: %s",
					cycle->phase == CYCLE_ASKS ? "serve questions of callers" : "check its providers",
					error->message)));
	/* they would fail again: the callers get what is known, and the sweep asks in its turn */
	for (int i = 0; i < cycle->nasks && cycle->phase == CYCLE_ASKS; i++)
		cycle->ask_done[i] = true;
}
