/*-------------------------------------------------------------------------
 *
 * limits.c
 *	  How many calls each provider may get, and how they went.
 *
 *	  The limits count for all workers of a database together: calls in
 *	  flight, calls a second (a token bucket), the breaker, Retry-After.
 *
 *	  The breaker opens after a number of failures in a row; when its pause is
 *	  over, one call tries; its success closes the breaker, any failure
 *	  meanwhile opens it anew.
 *
 *	  All guarded by shared_lock(2).
 *
 * IDENTIFICATION
 *	  src/shared/limits.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "shared/shared.h"

/* latencies from 1 microsecond to more than an hour, four buckets a factor of two */
#define BUCKETS_PER_OCTAVE 4
#define BUCKETS (33 * BUCKETS_PER_OCTAVE)

/* a provider with so many places keeps a part of them from each queue */
#define PLACES_TO_SHARE 100
#define PART_KEPT 10

/* the bucket holds what is allowed in this part of a second, at least one call */
#define BURST_PART 0.1

typedef struct Limits
{
	Oid			database;		/* InvalidOid: not in use */
	Oid			serverid;
	int			in_flight[QUEUE_COUNT];
	int			consecutive_failures;
	bool		open;			/* the breaker */
	int			trial_pid;		/* the worker whose call is the trial; 0: none */
	bool		starved;		/* somebody was refused who only a call's end can help */
	TimestampTz blocked_until;
	TimestampTz used_at;
	double		tokens;
	TimestampTz tokens_at;		/* 0: the bucket was never used */
	int64		calls;
	int64		errors;
	TimestampTz last_error_at;
	char		last_error[64];
	uint64		latencies[BUCKETS];
} Limits;

static Limits *all_limits;

/* places that this process has taken, by index in all_limits */
static int	mine[MAX_PROVIDERS][QUEUE_COUNT];

Size
limits_size(void)
{
	return mul_size(MAX_PROVIDERS, sizeof(Limits));
}

void
limits_setup(void *memory, bool found)
{
	all_limits = memory;
	if (!found)
		memset(all_limits, 0, limits_size());
}

static int
calls_of(const Limits *limits)
{
	int			n = 0;

	for (int queue = 0; queue < QUEUE_COUNT; queue++)
		n += limits->in_flight[queue];
	return n;
}

/* Caller must hold the lock. */
static Limits *
find_limits(Oid serverid)
{
	for (int i = 0; i < MAX_PROVIDERS; i++)
	{
		if (all_limits[i].serverid == serverid && all_limits[i].database == MyDatabaseId)
			return &all_limits[i];
	}
	return NULL;
}

/*
 * Finds the entry or makes one, at the cost of the one unused for longest.
 * NULL when all have calls in flight.  Caller must hold the lock exclusively.
 */
static Limits *
get_limits(Oid serverid, TimestampTz now)
{
	Limits	   *limits = find_limits(serverid);

	for (int i = 0; i < MAX_PROVIDERS && limits == NULL; i++)
	{
		if (!OidIsValid(all_limits[i].database))
			limits = &all_limits[i];
	}
	if (limits == NULL)
	{
		for (int i = 0; i < MAX_PROVIDERS; i++)
		{
			Limits	   *other = &all_limits[i];

			if (calls_of(other) == 0 && (limits == NULL || other->used_at < limits->used_at))
				limits = other;
		}
		if (limits == NULL)
			return NULL;
		limits->database = InvalidOid;
	}
	if (!OidIsValid(limits->database))
	{
		memset(limits, 0, sizeof(Limits));
		limits->database = MyDatabaseId;
		limits->serverid = serverid;
	}
	limits->used_at = now;
	return limits;
}

/*
 * Fills the bucket up to now and returns how many whole calls are in it.  Each
 * worker's now is a little old; only a great step back is the clock's.
 */
static int
fill_bucket(Limits *limits, double max_rps, TimestampTz now)
{
	double		size = Max(max_rps * BURST_PART, 1.0);

	if (limits->tokens_at == 0)
		limits->tokens = size;
	else if (now > limits->tokens_at)
		limits->tokens += max_rps * (now - limits->tokens_at) / USECS_PER_SEC;
	limits->tokens = Min(limits->tokens, size);
	if (now > limits->tokens_at || now + USECS_PER_SEC < limits->tokens_at)
		limits->tokens_at = now;
	return (int) limits->tokens;
}

/* How many calls the queue may add to those in flight. */
static int
free_places(const Limits *limits, Queue queue, int max_in_flight)
{
	int			kept = max_in_flight >= PLACES_TO_SHARE ? max_in_flight / PART_KEPT : 0;

	return Max(Min(max_in_flight - calls_of(limits), max_in_flight - kept - limits->in_flight[queue]), 0);
}

static int
take(Limits *limits, Queue queue, int wanted, int max_in_flight, double max_rps, TimestampTz now,
	 TimestampTz *again_at)
{
	int			n = wanted;
	int			places = free_places(limits, queue, max_in_flight);

	if (limits->blocked_until > now)
	{
		*again_at = limits->blocked_until;
		return 0;
	}
	if (limits->open)
	{
		if (limits->trial_pid != 0)
		{
			limits->starved = true;
			return 0;
		}
		n = 1;
	}
	if (n > places)
	{
		n = places;
		limits->starved = true;
	}
	if (max_rps > 0 && n > 0)
	{
		int			tokens = fill_bucket(limits, max_rps, now);

		if (n > tokens)
		{
			double		missing = Max(Min((double) n, max_rps * BURST_PART), 1.0) - limits->tokens;

			n = tokens;
			*again_at = now + (int64) ceil(Max(missing, 0.0) * USECS_PER_SEC / max_rps) + 1;
		}
		limits->tokens -= n;
	}
	if (limits->open && n > 0)
		limits->trial_pid = MyProcPid;
	limits->in_flight[queue] += n;
	mine[limits - all_limits][queue] += n;
	return n;
}

int
limits_take(Oid serverid, Queue queue, int wanted, int max_in_flight, double max_rps, TimestampTz now,
			TimestampTz *again_at)
{
	Limits	   *limits;
	int			n = 0;

	*again_at = 0;
	if (wanted <= 0)
		return 0;
	LWLockAcquire(shared_lock(2), LW_EXCLUSIVE);
	limits = get_limits(serverid, now);
	if (limits != NULL)
		n = take(limits, queue, wanted, max_in_flight, max_rps, now, again_at);
	else
		*again_at = now + USECS_PER_SEC;
	LWLockRelease(shared_lock(2));
	return n;
}

/*
 * Gives places back.  True when somebody waits for them.  Caller must hold the
 * lock exclusively.
 */
static bool
give_back(Limits *limits, Queue queue, int n)
{
	bool		starved = limits->starved;

	Assert(mine[limits - all_limits][queue] >= n && limits->in_flight[queue] >= n);
	limits->in_flight[queue] -= n;
	mine[limits - all_limits][queue] -= n;
	limits->starved = false;
	return starved;
}

void
limits_release(Oid serverid, Queue queue, int n)
{
	Limits	   *limits;
	bool		starved = false;

	if (n <= 0)
		return;
	LWLockAcquire(shared_lock(2), LW_EXCLUSIVE);
	limits = find_limits(serverid);
	if (limits != NULL)
	{
		starved = give_back(limits, queue, n);
		if (limits->trial_pid == MyProcPid)
			limits->trial_pid = 0;
		limits->tokens += n;
	}
	LWLockRelease(shared_lock(2));
	if (starved)
		wake_workers(MyDatabaseId);
}

static int
bucket_of(int64 duration)
{
	int			bucket = (int) (log2((double) Max(duration, 1)) * BUCKETS_PER_OCTAVE);

	return Min(bucket, BUCKETS - 1);
}

static void
note_failure(Limits *limits, const char *error, int breaker_failures, int64 breaker_pause, TimestampTz now)
{
	bool		was_trial = limits->trial_pid != 0;

	limits->errors++;
	limits->consecutive_failures++;
	limits->last_error_at = now;
	strlcpy(limits->last_error, error ? error : "", sizeof(limits->last_error));
	if (was_trial || (!limits->open && limits->consecutive_failures >= breaker_failures))
	{
		limits->open = true;
		limits->trial_pid = 0;
		limits->blocked_until = Max(limits->blocked_until, now + breaker_pause);
	}
}

void
limits_end(Oid serverid, Queue queue, bool failure, int64 duration, int64 retry_after,
		   const char *error, int breaker_failures, int64 breaker_pause, TimestampTz now)
{
	Limits	   *limits;
	bool		starved = false;

	LWLockAcquire(shared_lock(2), LW_EXCLUSIVE);
	limits = find_limits(serverid);
	if (limits != NULL)
	{
		starved = give_back(limits, queue, 1);
		limits->calls++;
		limits->latencies[bucket_of(duration)]++;
		if (failure)
			note_failure(limits, error, breaker_failures, breaker_pause, now);
		else
		{
			limits->consecutive_failures = 0;
			limits->open = false;
			limits->trial_pid = 0;
		}
		if (retry_after >= 0)
			limits->blocked_until = Max(limits->blocked_until, now + retry_after);
	}
	LWLockRelease(shared_lock(2));
	if (starved)
		wake_workers(MyDatabaseId);
}

void
limits_forget_self(void)
{
	bool		starved = false;

	LWLockAcquire(shared_lock(2), LW_EXCLUSIVE);
	for (int i = 0; i < MAX_PROVIDERS; i++)
	{
		for (int queue = 0; queue < QUEUE_COUNT; queue++)
		{
			if (mine[i][queue] > 0)
				starved |= give_back(&all_limits[i], queue, mine[i][queue]);
		}
		if (all_limits[i].trial_pid == MyProcPid)
			all_limits[i].trial_pid = 0;
	}
	LWLockRelease(shared_lock(2));
	if (starved)
		wake_workers(MyDatabaseId);
}

/* The duration that so large a part of the calls did not exceed, as a bucket's upper end. */
static int64
percentile(const Limits *limits, uint64 total, double part)
{
	uint64		wanted = (uint64) ceil(total * part);
	uint64		seen = 0;

	for (int i = 0; i < BUCKETS; i++)
	{
		seen += limits->latencies[i];
		if (seen >= wanted && seen > 0)
			return (int64) ceil(exp2((double) (i + 1) / BUCKETS_PER_OCTAVE));
	}
	return -1;
}

bool
limits_read(Oid serverid, ProviderFigures *figures)
{
	Limits	   *limits;
	Limits		copy;
	uint64		total = 0;

	LWLockAcquire(shared_lock(2), LW_SHARED);
	limits = find_limits(serverid);
	if (limits != NULL)
		copy = *limits;
	LWLockRelease(shared_lock(2));
	if (limits == NULL)
		return false;

	for (int i = 0; i < BUCKETS; i++)
		total += copy.latencies[i];
	memset(figures, 0, sizeof(*figures));
	figures->database = copy.database;
	figures->serverid = copy.serverid;
	figures->in_flight = calls_of(&copy);
	figures->calls = copy.calls;
	figures->errors = copy.errors;
	figures->consecutive_failures = copy.consecutive_failures;
	figures->blocked_until = copy.blocked_until;
	figures->open = copy.open;
	figures->trial = copy.trial_pid != 0;
	figures->latency_p50 = percentile(&copy, total, 0.50);
	figures->latency_p95 = percentile(&copy, total, 0.95);
	figures->latency_p99 = percentile(&copy, total, 0.99);
	strlcpy(figures->last_error, copy.last_error, sizeof(figures->last_error));
	figures->last_error_at = copy.last_error_at;
	return true;
}
