/*-------------------------------------------------------------------------
 *
 * http_alone.c
 *	  What a worker does to call a provider, without the database: the same
 *	  call over and over, many at a time.
 *
 *	  The HTTP loop is payflow's own, linked in, and is waited for in a
 *	  backend as the worker waits for it: one wait event set, with the latch
 *	  and the postmaster's death.  As a task does, each call has a memory
 *	  context with its request.
 *
 * IDENTIFICATION
 *	  test/bench/http_alone.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "worker/http.h"

#define CONNECT_TIMEOUT_MS 10000L
#define TIMEOUT_MS 30000L
#define LONGEST_WAIT_MS 1000L

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(http_alone);

static WaitEventSet *wait_set;
static uint32 wait_event;

static void
init(int concurrency)
{
	if (wait_set != NULL)
		elog(ERROR, "only once a session: calls are left in flight");
	wait_event = NewWaitEvent("PayflowHttpAlone");
	wait_set = CreateWaitEventSetForever(3);
	http_init(concurrency);
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, http_fd(), NULL, NULL);
}

static void
start(const char *url, const char *header)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "call", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	HttpCall   *call = palloc0_object(HttpCall);

	call->method = "GET";
	call->url = pstrdup(url);
	call->headers = palloc_array(const char *, 2);
	call->headers[call->nheaders++] = "Accept: application/json";
	call->headers[call->nheaders++] = pstrdup(header);
	call->connect_timeout_ms = CONNECT_TIMEOUT_MS;
	call->timeout_ms = TIMEOUT_MS;
	call->start_before = DT_NOEND;
	call->owner = context;
	MemoryContextSwitchTo(old);
	http_start(call);
}

/* Starts anew what has ended; returns how many that were. */
static int64
restart_ended(const char *url, const char *header)
{
	HttpCall   *call;
	int64		ended = 0;

	while ((call = http_next_ended()) != NULL)
	{
		if (call->result != HTTP_ANSWERED || call->status != 200 || call->response_length == 0)
			elog(ERROR, "a call has failed: status %d, %s", call->status, call->error ? call->error : "no error");
		http_release(call);
		MemoryContextDelete(call->owner);
		start(url, header);
		ended++;
	}
	return ended;
}

static void
wait_for_something(void)
{
	WaitEvent	events[3];
	long		timeout = http_timeout();
	int			n;

	timeout = timeout < 0 ? LONGEST_WAIT_MS : Min(timeout, LONGEST_WAIT_MS);
	n = WaitEventSetWait(wait_set, timeout, events, lengthof(events), wait_event);
	for (int i = 0; i < n; i++)
	{
		if (events[i].events & WL_LATCH_SET)
			ResetLatch(MyLatch);
	}
}

/*
 * http_alone(concurrency, seconds, header, url): the calls per second.
 */
Datum
http_alone(PG_FUNCTION_ARGS)
{
	int			concurrency = PG_GETARG_INT32(0);
	double		seconds = PG_GETARG_FLOAT8(1);
	char	   *header = text_to_cstring(PG_GETARG_TEXT_PP(2));
	char	   *url = text_to_cstring(PG_GETARG_TEXT_PP(3));
	TimestampTz begin;
	TimestampTz now;
	int64		calls = 0;

	init(concurrency);
	for (int i = 0; i < concurrency; i++)
		start(url, header);

	begin = GetCurrentTimestamp();
	do
	{
		CHECK_FOR_INTERRUPTS();
		http_work();
		calls += restart_ended(url, header);
		wait_for_something();
		now = GetCurrentTimestamp();
	} while (now - begin < seconds * USECS_PER_SEC);
	PG_RETURN_FLOAT8((double) calls * USECS_PER_SEC / (now - begin));
}
