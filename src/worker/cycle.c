/*-------------------------------------------------------------------------
 *
 * cycle.c
 *	  One cycle of a worker: one transaction that applies all answers that
 *	  have arrived and claims the next work; and what becomes of it when it
 *	  fails.
 *
 *	  Nothing outside of the database happens before the commit: then asks are
 *	  answered and calls are started.
 *
 * IDENTIFICATION
 *	  src/worker/cycle.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/spi.h"
#include "worker/worker.h"

#define PAUSE_FIRST SECONDS(1)
#define PAUSE_LAST SECONDS(30)
#define QUIET_PAUSE_FIRST MILLISECONDS(50)
#define QUIET_PAUSE_LAST SECONDS(1)

/* ---- when ---- */

TimestampTz
next_cycle_at(Worker *worker)
{
	TimestampTz at = worker->look_at;
	HASH_SEQ_STATUS scan;
	ProviderState *state;

	if (worker->paused_until != 0)
		return worker->paused_until;
	if (!dlist_is_empty(&worker->answers) || worker->woken)
		return 0;
	at = Min(at, worker->later_at);
	if (worker->asks_refused > 0)
		at = worker->room_made ? 0 : Min(at, worker->asks_at);
	at = Min(at, worker->check_providers_at);
	hash_seq_init(&scan, worker->providers);
	while ((state = hash_seq_search(&scan)) != NULL)
	{
		for (int i = 0; i < WORK_SOURCES; i++)
		{
			Source	   *source = &state->sources[i];
			TimestampTz look_at = source->wants_room && worker->room_made ? 0 : source->look_at;

			at = Min(at, Max(look_at, source->not_before));
		}
	}
	return at;
}

bool
cycle_is_due(Worker *worker, TimestampTz now)
{
	return next_cycle_at(worker) <= now;
}

/* ---- the transaction ---- */

/*
 * The extension is not there, or is another one than this worker began with:
 * nothing that the worker holds means anything any more.
 */
static void
end_worker(Worker *worker, bool exists)
{
	int			in_flight = calls_in_flight(worker);

	AbortCurrentTransaction();
	if (in_flight > 0)
		ereport(LOG,
				(errmsg("extension \"payflow\" was dropped: the answers to %d calls in flight are given up", in_flight)));
	if (!exists)
		worker_slot_report(WORKER_NO_EXTENSION, "", worker->in_flight, worker->calls);
	proc_exit(0);
}

/*
 * Keeps the extension from being dropped or altered during the transaction.
 * Does not wait for somebody who is doing that: he may wait for us to exit.
 */
static void
lock_extension(Worker *worker)
{
	Oid			extension = get_extension_oid("payflow", true);
	LOCKTAG		tag;

	if (OidIsValid(extension))
	{
		SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, extension, 0);
		if (LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("extension \"payflow\" is being changed")));
		AcceptInvalidationMessages();
		extension = get_extension_oid("payflow", true);
	}
	if (!OidIsValid(worker->extension))
		worker->extension = extension;
	if (!OidIsValid(extension) || extension != worker->extension)
		end_worker(worker, OidIsValid(extension));
}

static void
set_commit_mode(const char *mode)
{
	(void) set_config_option("synchronous_commit", mode, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
}

void
begin_work(Worker *worker)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	lock_extension(worker);

	/* a mark that a call may have been sent must survive a crash */
	if (synchronous_commit < SYNCHRONOUS_COMMIT_ON)
		set_commit_mode("on");
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	PushActiveSnapshot(GetTransactionSnapshot());
	forget_outgrown_plans();
	MemoryContextSwitchTo(worker->loop_context);
}

void
commit_work(Worker *worker)
{
	PopActiveSnapshot();
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "could not disconnect from SPI");
	CommitTransactionCommand();
	MemoryContextSwitchTo(worker->loop_context);
}

ErrorData *
catch_error(Worker *worker)
{
	ErrorData  *error;

	MemoryContextSwitchTo(worker->loop_context);
	error = CopyErrorData();
	HOLD_INTERRUPTS();
	AbortCurrentTransaction();
	FlushErrorState();
	RESUME_INTERRUPTS();
	MemoryContextSwitchTo(worker->loop_context);
	return error;
}

ErrorData *
run_apart(Worker *worker, void (*function) (void *arg), void *arg)
{
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		begin_work(worker);
		function(arg);
		commit_work(worker);
	}
	PG_CATCH();
	{
		error = catch_error(worker);
	}
	PG_END_TRY();
	return error;
}

/* ---- errors ---- */

ErrorKind
error_kind(const ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return ERROR_OF_SERVER;
		case ERRCODE_TRANSACTION_ROLLBACK:
			return ERROR_TRANSIENT;
		default:
			return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ? ERROR_TRANSIENT : ERROR_OF_ITEM;
	}
}

/*
 * Leaves the database alone for a while.  Calls in flight go on, and what they
 * bring is kept.  Of the error only the message is logged: its details may
 * hold data of payers.
 */
void
pause_worker(Worker *worker, const ErrorData *error)
{
	bool		quiet = error_kind(error) == ERROR_TRANSIENT;
	int64		pause = quiet ? QUIET_PAUSE_FIRST : PAUSE_FIRST;

	pause = Min(pause << Min(worker->pauses, 10), quiet ? QUIET_PAUSE_LAST : PAUSE_LAST);
	worker->pauses++;
	worker->pause_is_quiet = quiet;
	worker->paused_until = GetCurrentTimestamp() + pause;
	if (!quiet)
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("payflow worker pauses for %d s: %s", (int) (pause / USECS_PER_SEC), error->message)));
}

/* ---- the cycle ---- */

/*
 * SPI leaves its own memory context behind, which ends with the transaction;
 * what the phases keep beyond it belongs to the loop context.
 */
static void
enter_phase(Worker *worker, Cycle *cycle, CyclePhase phase)
{
	cycle->phase = phase;
	MemoryContextSwitchTo(worker->loop_context);
}

/*
 * A payment may be younger than what was read of its provider at the beginning
 * of this cycle: it must not be called, or given up, as things were before.
 */
static void
recheck_providers(void)
{
	if (!providers_are_current())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("providers have changed since they were read")));
}

static void
do_cycle(Worker *worker, Cycle *cycle)
{
	begin_work(worker);
	if (!worker->never_sent_is_believed)
	{
		cycle->never_sent_is_believed = reconcile_timeline();
		cycle->durable = true;
	}

	enter_phase(worker, cycle, CYCLE_APPLY);
	apply_answers(worker, cycle);
	enter_phase(worker, cycle, CYCLE_BEGIN);
	read_providers(cycle);
	enter_phase(worker, cycle, CYCLE_ASKS);
	take_asks(worker, cycle);
	enter_phase(worker, cycle, CYCLE_CLAIM);
	take_due(worker, cycle);
	enter_phase(worker, cycle, CYCLE_CHECK);
	check_providers(worker, cycle);
	if (!dlist_is_empty(&cycle->fresh) || worker->checks_missing > 0)
		recheck_providers();

	enter_phase(worker, cycle, CYCLE_COMMIT);
	if (!cycle->durable)
		set_commit_mode("off");
	commit_work(worker);
}

static void
finish_asks(Cycle *cycle)
{
	for (int i = 0; i < cycle->nasks; i++)
	{
		if (cycle->ask_done[i])
			ask_done(cycle->asks[i].place, cycle->asks[i].generation);
		else if (!cycle->ask_served[i])
			ask_give_back(cycle->asks[i].place, cycle->asks[i].generation);
	}
}

static void
cycle_committed(Worker *worker, Cycle *cycle)
{
	worker->never_sent_is_believed = cycle->never_sent_is_believed;
	worker->pauses = 0;
	answers_applied(worker, cycle);
	finish_asks(cycle);
	while (!dlist_is_empty(&cycle->fresh))
		task_start(worker, dlist_head_element(Task, node, &cycle->fresh));
}

/*
 * An internal error that does not go away by itself is laid to what was worked
 * on: one row that is damaged must not stop all others.
 */
static bool
is_of_item(const Worker *worker, const ErrorData *error)
{
	return error_kind(error) == ERROR_OF_ITEM ||
		(worker->pauses > 0 && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INTERNAL_ERROR);
}

/*
 * Nothing was claimed, for the transaction is gone: gives back what stands
 * outside of it.  Then it depends on whose fault it was.
 */
static void
cycle_failed(Worker *worker, Cycle *cycle, const ErrorData *error)
{
	limits_release(cycle->places_of, cycle->places_queue, cycle->places);
	while (!dlist_is_empty(&cycle->fresh))
	{
		Task	   *task = dlist_head_element(Task, node, &cycle->fresh);

		dlist_delete(&task->node);
		task_free(worker, task);
	}
	for (int i = 0; i < cycle->nasks; i++)
		cycle->ask_served[i] = false;

	if (cycle->nbatch > 0 && (cycle->phase == CYCLE_APPLY || cycle->phase == CYCLE_COMMIT) &&
		(error_kind(error) != ERROR_OF_SERVER || worker->pauses > 0))
		apply_one_by_one(worker, cycle);
	else if (is_of_item(worker, error) && cycle->phase != CYCLE_BEGIN && cycle->phase != CYCLE_COMMIT)
		claims_failed(worker, cycle, error);
	else
		pause_worker(worker, error);
	keep_answers(worker, cycle);
	finish_asks(cycle);
	worker->woken = true;		/* it did not look at what it was to look at */
}

void
run_cycle(Worker *worker)
{
	Cycle	   *cycle;
	ErrorData  *volatile error = NULL;

	MemoryContextSwitchTo(worker->loop_context);
	cycle = palloc0_object(Cycle);
	cycle->now = GetCurrentTimestamp();
	cycle->never_sent_is_believed = worker->never_sent_is_believed;
	cycle->look_everywhere = worker->woken || worker->look_at <= cycle->now;
	cycle->room_made = worker->room_made;
	dlist_init(&cycle->fresh);
	worker->woken = false;
	worker->room_made = false;
	worker->cycle++;
	worker->paused_until = 0;
	choose_answers(worker, cycle);

	PG_TRY();
	{
		do_cycle(worker, cycle);
	}
	PG_CATCH();
	{
		error = catch_error(worker);
	}
	PG_END_TRY();

	if (error == NULL)
		cycle_committed(worker, cycle);
	else
		cycle_failed(worker, cycle, error);

	MemoryContextSwitchTo(worker->context);
	MemoryContextResetCompat(worker->loop_context);
}
