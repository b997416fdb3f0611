/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The worker process of one database: its start, its loop, its waiting.
 *
 *	  The loop does HTTP in slices, runs a cycle when there is something to do
 *	  in the database, and sleeps on one wait event set: the latch, libcurl's
 *	  sockets, the postmaster's death.  It never sleeps inside a transaction.
 *
 * IDENTIFICATION
 *	  src/worker/worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/resource.h>

#include "access/xact.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "worker/supervision.h"
#include "worker/worker.h"

/* descriptors that neither a call nor a data file has */
#define DESCRIPTORS_SPARE 32

/* a look-up of a name, or two addresses tried at a time; and a connection kept for later */
#define DESCRIPTORS_PER_CALL 3

/* no wait is longer: the clock may be set back meanwhile */
#define LONGEST_WAIT_MS 60000L

/* how often a worker that never sleeps says what it does */
#define ACTIVITY_INTERVAL MILLISECONDS(500)

static Worker me;
static WaitEventSet *wait_set;
static uint32 wait_event;
static bool stats_unsent;

/* ---- start ---- */

/*
 * Settings that databases and users may have changed for their own purposes.
 * At this level neither ALTER DATABASE nor a reload gets at them.
 */
static void
force_settings(void)
{
	static const char *const forced[][2] = {
		{"role", "none"},
		{"exit_on_error", "off"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"search_path", "pg_catalog, pg_temp"},
		{"row_security", "off"},
		{"session_replication_role", "origin"},
		{"lock_timeout", "200ms"},
		{"statement_timeout", "0"},
		{"transaction_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"idle_session_timeout", "0"},
		{"jit", "off"},

		/*
		 * All statements find few rows by an index.  Plans are kept, and one
		 * made while a table is small must not become a scan of it for ever.
		 */
		{"enable_seqscan", "off"},
		{"enable_bitmapscan", "off"},
		{"enable_hashjoin", "off"},
		{"enable_mergejoin", "off"},
		{"application_name", "payflow worker"},
	};

	for (size_t i = 0; i < lengthof(forced); i++)
	{
		/* not every server version has all of them */
		if (GetConfigOption(forced[i][0], true, false) != NULL)
			SetConfigOption(forced[i][0], forced[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
}

/*
 * Raises the soft limit of open files to the hard one and returns how many
 * calls may be in flight under it.
 */
static int
raise_file_limit(void)
{
	struct rlimit limit;
	int64		files = 1024;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
	{
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
			(void) getrlimit(RLIMIT_NOFILE, &limit);
		files = limit.rlim_cur == RLIM_INFINITY ? INT_MAX : (int64) Min(limit.rlim_cur, INT_MAX);
	}

	/* data files may be closed to make room, so calls get at least half */
	files = Max(files - max_safe_fds - DESCRIPTORS_SPARE, files / 2);
	return (int) Max(files / DESCRIPTORS_PER_CALL, 1);
}

static void
on_server_change(Datum arg pg_attribute_unused(), int cache pg_attribute_unused(),
				 uint32 hash pg_attribute_unused())
{
	me.check_providers_at = 0;
	me.look_at = 0;
}

static void
make_wait_set(void)
{
	wait_event = NewWaitEvent("PayflowWorkerMain");
	wait_set = CreateWaitEventSetForever(3);
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, http_fd(), NULL, NULL);
}

static HTAB *
make_table(const char *name, Size key, Size entry)
{
	HASHCTL		control = {
		.keysize = key,
		.entrysize = entry,
		.hcxt = me.context,
	};

	return hash_create(name, 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static void
start_worker(int slot)
{
	me.slot = slot;
	me.context = AllocSetContextCreate(TopMemoryContext, "payflow worker", ALLOCSET_DEFAULT_SIZES);
	me.loop_context = AllocSetContextCreate(me.context, "payflow worker cycle", ALLOCSET_DEFAULT_SIZES);
	me.capacity = raise_file_limit();
	me.called = make_table("payflow calls", sizeof(pg_uuid_t), sizeof(pg_uuid_t));
	me.providers = make_table("payflow providers", sizeof(Oid), sizeof(ProviderState));
	dlist_init(&me.answers);
	dlist_init(&me.later);
	me.later_at = DT_NOEND;
	me.woken = true;

	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, on_server_change, (Datum) 0);
	http_init(me.capacity);
	make_wait_set();
}

/* ---- what others see ---- */

static const char *
queues_worked(void)
{
	static char list[64];

	list[0] = '\0';
	for (int queue = 0; queue < QUEUE_COUNT; queue++)
	{
		if (!queue_is_worked(queue))
			continue;
		if (list[0] != '\0')
			strlcat(list, ",", sizeof(list));
		strlcat(list, queue_name(queue), sizeof(list));
	}
	return list;
}

static TimestampTz
next_alarm(void)
{
	TimestampTz at = DT_NOEND;
	HASH_SEQ_STATUS scan;
	ProviderState *state;

	hash_seq_init(&scan, me.providers);
	while ((state = hash_seq_search(&scan)) != NULL)
	{
		for (int queue = 0; queue < WORK_SOURCES; queue++)
			at = Min(at, state->sources[queue].next_due);
	}
	return at;
}

/*
 * What pg_stat_activity shows in place of a query.
 */
static void
describe_activity(char *text, size_t size)
{
	int			n = calls_in_flight(&me);
	TimestampTz now = GetCurrentTimestamp();
	const char *separator = " (";

	if (n > 0)
	{
		snprintf(text, size, "%d calls in flight", n);
		for (int queue = 0; queue < QUEUE_COUNT; queue++)
		{
			size_t		length = strlen(text);

			if (me.in_flight[queue] == 0)
				continue;
			snprintf(text + length, size - length, "%s%s %d", separator, queue_name(queue), me.in_flight[queue]);
			separator = ", ";
		}
		strlcat(text, ")", size);
	}
	else if (me.paused_until != 0 && !me.pause_is_quiet)
		snprintf(text, size, "paused after an error");
	else
	{
		TimestampTz at = next_alarm();

		if (TIMESTAMP_IS_NOEND(at))
			snprintf(text, size, "idle, no alarm set");
		else
			snprintf(text, size, "idle, next alarm in %ld s",
					 (TimestampDifferenceMilliseconds(now, at) + 999) / 1000);
	}
}

static void
report(bool about_to_sleep)
{
	static char last[128];
	static TimestampTz last_at;
	char		text[128];
	TimestampTz now = GetCurrentTimestamp();
	bool		busy = calls_in_flight(&me) > 0;
	WorkerState state = busy ? WORKER_WORKING : WORKER_IDLE;

	if (me.paused_until != 0 && !me.pause_is_quiet)
		state = WORKER_PAUSED;
	worker_slot_report(state, queues_worked(), me.in_flight, me.calls);

	if (!about_to_sleep && now - last_at < ACTIVITY_INTERVAL)
		return;
	last_at = now;
	describe_activity(text, sizeof(text));
	if (strcmp(text, last) == 0)
		return;
	strlcpy(last, text, sizeof(last));
	pgstat_report_activity(busy ? STATE_RUNNING : STATE_IDLE, text);
}

/* ---- the loop ---- */

static void
handle_signals(void)
{
	/* pg_cancel_backend() between two cycles has nothing to cancel */
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
	QueryCancelPending = false;

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		me.woken = true;		/* limits may have changed */
	}
}

static void
take_ended_calls(void)
{
	HttpCall   *call;

	while ((call = http_next_ended()) != NULL)
		task_ended(&me, call->owner);
}

/* How long there will be nothing to do, in milliseconds. */
static long
time_to_sleep(void)
{
	TimestampTz at = next_cycle_at(&me);
	long		http = http_timeout();
	long		timeout = LONGEST_WAIT_MS;

	if (!TIMESTAMP_IS_NOEND(at))
		timeout = Min(timeout, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), at));
	if (http >= 0)
		timeout = Min(timeout, http);
	return timeout;
}

static void
sleep_until_something_happens(void)
{
	WaitEvent	events[3];
	long		timeout = time_to_sleep();
	int			n;

	report(timeout > 0);
	if (timeout > 0 && stats_unsent)
	{
		/* nobody will send them while we sleep */
		pgstat_report_stat_now();
		stats_unsent = false;
	}
	n = WaitEventSetWait(wait_set, timeout, events, lengthof(events), wait_event);
	for (int i = 0; i < n; i++)
	{
		if (events[i].events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			me.woken = true;
		}
	}
}

static void
work_on(void)
{
	for (;;)
	{
		handle_signals();
		http_work();
		take_ended_calls();
		if (cycle_is_due(&me, GetCurrentTimestamp()))
		{
			run_cycle(&me);
			pgstat_report_stat(false);
			stats_unsent = true;
		}
		sleep_until_something_happens();
	}
}

/*
 * Main function of a worker; its argument is its slot.
 */
void
payflow_worker_main(Datum arg)
{
	WorkerStart start;

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();

	/* before the database is entered: see worker_slot_attach() */
	if (!worker_slot_attach(DatumGetInt32(arg), start.generation))
		proc_exit(0);
	BackgroundWorkerInitializeConnectionByOid(start.database, InvalidOid, 0);
	force_settings();
	start_worker(DatumGetInt32(arg));
	work_on();
}
