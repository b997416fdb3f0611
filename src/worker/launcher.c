/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The launcher: the one process that starts and ends workers.
 *
 *	  Workers are never restarted by the postmaster: with two supervisors
 *	  there would be two workers in place of one.  What the launcher knows
 *	  stands in the workers' slots, so that after a restart of its own it
 *	  finds them again.
 *
 * IDENTIFICATION
 *	  src/worker/launcher.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "shared/shared.h"
#include "worker/supervision.h"

#define LAUNCHER_RESTART 5		/* seconds */

#define HEALTHY_AFTER ((int64) 60 * USECS_PER_SEC)
#define PAUSE_FIRST ((int64) 1 * USECS_PER_SEC)
#define PAUSE_LAST ((int64) 60 * USECS_PER_SEC)

/* what was logged of a database last: a state is logged once */
typedef enum NotedState
{
	NOTED_NOTHING,
	NOTED_MISSING,
	NOTED_NO_EXTENSION,
	NOTED_NO_SLOT,
	NOTED_NO_PROCESS,
} NotedState;

typedef struct ListedDatabase
{
	char	   *name;
	Oid			oid;			/* InvalidOid: there is none of that name */
	NotedState	noted;
	int			failures;		/* since a worker ran healthily */
	TimestampTz not_before;		/* start no worker earlier */
} ListedDatabase;

/* the worker that this launcher has registered for a slot */
typedef struct StartedWorker
{
	BackgroundWorkerHandle *handle; /* NULL: none */
	uint64		generation;
} StartedWorker;

static MemoryContext launcher_context;
static List *databases;			/* of ListedDatabase * */
static StartedWorker started[MAX_WORKERS];
static TimestampTz pauses_reset_at;

/* ---- the list ---- */

static ListedDatabase *
find_listed(const char *name)
{
	ListCell   *cell;

	foreach(cell, databases)
	{
		ListedDatabase *database = lfirst(cell);

		if (strcmp(database->name, name) == 0)
			return database;
	}
	return NULL;
}

static ListedDatabase *
find_listed_oid(Oid oid)
{
	ListCell   *cell;

	foreach(cell, databases)
	{
		ListedDatabase *database = lfirst(cell);

		if (database->oid == oid)
			return database;
	}
	return NULL;
}

/*
 * Reads payflow.databases; what is known of those that stay is kept.
 */
static void
read_list(void)
{
	MemoryContext scratch = AllocSetContextCreate(launcher_context, "payflow list", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(scratch);
	List	   *names = listed_databases();
	List	   *now = NIL;
	ListCell   *cell;

	MemoryContextSwitchTo(launcher_context);
	foreach(cell, names)
	{
		ListedDatabase *database = find_listed(lfirst(cell));

		if (database == NULL)
		{
			database = palloc0_object(ListedDatabase);
			database->name = pstrdup(lfirst(cell));
		}
		else
			databases = list_delete_ptr(databases, database);
		now = lappend(now, database);
	}
	foreach(cell, databases)
	{
		ListedDatabase *database = lfirst(cell);

		pfree(database->name);
		pfree(database);
	}
	list_free(databases);
	databases = now;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);
}

static void
note(ListedDatabase *database, NotedState state)
{
	if (database->noted == state)
		return;
	database->noted = state;
	switch (state)
	{
		case NOTED_NOTHING:
			break;
		case NOTED_MISSING:
			ereport(LOG,
					(errmsg("database \"%s\" of payflow.databases does not exist", database->name)));
			break;
		case NOTED_NO_EXTENSION:
			ereport(LOG,
					(errmsg("database \"%s\" has no extension \"payflow\"", database->name),
					 errhint("Run CREATE EXTENSION payflow there, or take it out of payflow.databases.")));
			break;
		case NOTED_NO_SLOT:
			ereport(LOG,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("no more workers can be started for database \"%s\"", database->name),
					 errdetail("There are at most %d payflow workers in a server.", MAX_WORKERS),
					 errhint("Lower payflow.workers.")));
			break;
		case NOTED_NO_PROCESS:
			ereport(LOG,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("no background worker slot is free for database \"%s\"", database->name),
					 errhint("Raise max_worker_processes.")));
			break;
	}
}

/* What is known of an earlier database of that name means nothing for this one. */
static void
set_oid(ListedDatabase *database, Oid oid)
{
	if (database->oid == oid)
		return;
	database->oid = oid;
	database->failures = 0;
	database->not_before = 0;
}

/*
 * Finds which databases exist, by their present names.  Reads the catalog from
 * end to end: without a database of its own, a process cannot count on indexes.
 */
static void
look_up_databases(void)
{
	Relation	catalog;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *found = NIL;
	ListCell   *cell;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	catalog = table_open(DatabaseRelationId, AccessShareLock);
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		ListedDatabase *database = find_listed(NameStr(form->datname));

		if (database == NULL)
			continue;
		set_oid(database, form->oid);
		found = lappend(found, database);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	foreach(cell, databases)
	{
		if (!list_member_ptr(found, lfirst(cell)))
			set_oid(lfirst(cell), InvalidOid);
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(launcher_context);
}

/* ---- ends ---- */

static void
pause_after_failure(ListedDatabase *database, TimestampTz now)
{
	int64		pause = 0;

	if (database->failures > 0)
		pause = Min(PAUSE_FIRST << Min(database->failures - 1, 10), PAUSE_LAST);
	database->failures++;
	database->not_before = now + pause;
}

/*
 * A worker has ended, or was never able to start.
 */
static void
note_end(const WorkerInfo *info, TimestampTz now)
{
	ListedDatabase *database = find_listed_oid(info->database);

	if (database == NULL)
		return;
	if (info->state == WORKER_ENDED && info->end == END_ASKED)
		return;					/* not its fault: another may start at once */
	if (info->state == WORKER_ENDED && info->end == END_NO_EXTENSION)
	{
		/* perhaps it looked just before the extension was made */
		if (info->started_at <= pauses_reset_at)
			return;
		note(database, NOTED_NO_EXTENSION);
		database->not_before = now + PAUSE_LAST;
		return;
	}
	if (now - info->started_at >= HEALTHY_AFTER)
		database->failures = 0;
	pause_after_failure(database, now);
}

static void
forget_handle(int slot)
{
	if (started[slot].handle != NULL)
		pfree(started[slot].handle);
	started[slot].handle = NULL;
}

/*
 * Frees the slots of workers that have ended or will never attach.
 */
static void
reap(TimestampTz now)
{
	WorkerInfo	infos[MAX_WORKERS];
	int			n = worker_slots_read(infos);

	for (int i = 0; i < n; i++)
	{
		StartedWorker *mine = &started[infos[i].slot];
		bool		is_mine = mine->handle != NULL && mine->generation == infos[i].generation;
		pid_t		pid;

		if (infos[i].state == WORKER_ENDED)
			;
		else if (infos[i].pid == 0 &&
				 (!is_mine || GetBackgroundWorkerPid(mine->handle, &pid) == BGWH_STOPPED))
			;					/* also what an earlier launcher has left */
		else
			continue;
		note_end(&infos[i], now);
		worker_slot_free(infos[i].slot, infos[i].generation);
		if (is_mine)
			forget_handle(infos[i].slot);
	}
}

/* ---- starts ---- */

static bool
register_worker(const ListedDatabase *database, int slot, int number, const WorkerStart *start)
{
	BackgroundWorker worker = {0};

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "payflow", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "payflow_worker_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "payflow worker for %s #%d", database->name, number);
	strlcpy(worker.bgw_type, "payflow worker", sizeof(worker.bgw_type));
	worker.bgw_main_arg = Int32GetDatum(slot);
	memcpy(worker.bgw_extra, start, sizeof(*start));
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, &started[slot].handle);
}

/*
 * The first time may be a worker's place that is not free yet.
 */
static void
could_not_start(ListedDatabase *database, NotedState state, TimestampTz now)
{
	if (database->failures > 0)
		note(database, state);
	database->failures = Max(database->failures, 1);
	pause_after_failure(database, now);
}

/*
 * False when no more workers can be started for this database now.
 */
static bool
start_worker(ListedDatabase *database, TimestampTz now)
{
	WorkerStart start = {.database = database->oid};
	int			number = 0;
	int			slot = worker_slot_reserve(database->oid, database->name, &start.generation, &number);

	if (slot == SLOT_STOPPED)
		return false;			/* we are woken when the statement has ended */
	if (slot == SLOT_NONE)
	{
		could_not_start(database, NOTED_NO_SLOT, now);
		return false;
	}
	forget_handle(slot);
	started[slot].generation = start.generation;
	if (!register_worker(database, slot, number, &start))
	{
		worker_slot_free(slot, start.generation);
		could_not_start(database, NOTED_NO_PROCESS, now);
		return false;
	}
	if (database->noted != NOTED_NO_EXTENSION)
		note(database, NOTED_NOTHING);
	return true;
}

static int
wanted_workers(Oid oid)
{
	return find_listed_oid(oid) != NULL ? setting_workers : 0;
}

/*
 * Ends workers that are too many, and starts those that are missing.
 */
static void
adjust(TimestampTz now)
{
	WorkerInfo	infos[MAX_WORKERS];
	int			n = worker_slots_read(infos);
	ListCell   *cell;

	for (int i = 0; i < n; i++)
	{
		int			before = 0;

		/* those that end are counted until they are gone: never too many at a time */
		for (int j = 0; j < i; j++)
			before += infos[j].database == infos[i].database;
		if (before >= wanted_workers(infos[i].database))
			worker_slot_terminate(infos[i].slot, infos[i].generation);
	}
	foreach(cell, databases)
	{
		ListedDatabase *database = lfirst(cell);
		int			count = 0;

		if (!OidIsValid(database->oid))
		{
			note(database, NOTED_MISSING);
			database->not_before = now + PAUSE_LAST;	/* then it is looked up again */
			continue;
		}
		for (int i = 0; i < n; i++)
			count += infos[i].database == database->oid;
		while (count < setting_workers && database->not_before <= now && start_worker(database, now))
			count++;
	}
}

/* ---- the loop ---- */

/* Milliseconds until a pause is over; -1: none is on. */
static long
time_to_sleep(TimestampTz now)
{
	TimestampTz at = DT_NOEND;
	ListCell   *cell;

	foreach(cell, databases)
	{
		ListedDatabase *database = lfirst(cell);

		if (database->not_before > now)
			at = Min(at, database->not_before);
	}
	return TIMESTAMP_IS_NOEND(at) ? -1 : TimestampDifferenceMilliseconds(now, at);
}

static void
reset_pauses(TimestampTz now)
{
	ListCell   *cell;

	pauses_reset_at = now;
	foreach(cell, databases)
	{
		ListedDatabase *database = lfirst(cell);

		database->failures = 0;
		database->not_before = 0;
		if (database->noted == NOTED_NO_EXTENSION)
			note(database, NOTED_NOTHING);
	}
}

static long
supervise(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (launcher_pauses_reset())
		reset_pauses(now);
	look_up_databases();
	reap(now);
	adjust(now);
	pgstat_report_activity(STATE_IDLE, NULL);
	return time_to_sleep(now);
}

void
payflow_launcher_main(Datum arg pg_attribute_unused())
{
	uint32		wait_event;

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	launcher_attach();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	launcher_context = AllocSetContextCreate(TopMemoryContext, "payflow launcher", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(launcher_context);
	wait_event = NewWaitEvent("PayflowLauncherMain");
	read_list();
	for (;;)
	{
		long		timeout;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			read_list();
		}
		timeout = supervise();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout >= 0 ? WL_TIMEOUT : 0),
						 timeout, wait_event);
		ResetLatch(MyLatch);
	}
}

void
register_launcher(void)
{
	BackgroundWorker worker = {0};

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = LAUNCHER_RESTART;
	strlcpy(worker.bgw_library_name, "payflow", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "payflow_launcher_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "payflow launcher", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "payflow launcher", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}
