/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  Shared memory: the workers' slots, the ring of asks, the variables on
 *	  which callers wait, and the limits and figures of each provider.
 *
 *	  Nothing in it is a pointer, a file descriptor or a handle.  One LWLock
 *	  tranche "payflow"; each part says which lock guards it.
 *
 * IDENTIFICATION
 *	  src/shared/shared.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SHARED_H
#define PAYFLOW_SHARED_H

#include "datatype/timestamp.h"
#include "storage/lwlock.h"
#include "utils/uuid.h"

#include "lib/vocabulary.h"

/* ---- memory.c: the segment itself ---- */

/* From _PG_init while libraries are preloaded: hooks that reserve and lay it out. */
extern void shared_memory_init(void);

/* False when payflow is not in shared_preload_libraries. */
extern bool shared_memory_ready(void);

/* ---- slots.c: workers ---- */

#define MAX_WORKERS 64

typedef enum WorkerState
{
	WORKER_FREE,				/* slot not in use */
	WORKER_STARTING,			/* reserved by the launcher, not yet connected */
	WORKER_IDLE,
	WORKER_WORKING,
	WORKER_PAUSED,				/* after an error */
	WORKER_NO_EXTENSION,		/* the database has no extension payflow: about to exit */
	WORKER_ENDED,				/* the process is gone; the launcher has not seen it yet */
} WorkerState;

/* why a worker has ended */
typedef enum WorkerEnd
{
	END_BY_ITSELF,				/* an error, or somebody ended it */
	END_ASKED,					/* by the launcher, or for a statement that needs the database for itself */
	END_NO_EXTENSION,
} WorkerEnd;

typedef struct WorkerInfo		/* a copy, for readers */
{
	int			slot;
	uint64		generation;		/* of the slot: another one is another worker */
	int			number;			/* among the workers of its database, from 1 */
	WorkerState state;
	WorkerEnd	end;			/* with WORKER_ENDED */
	int			pid;			/* 0: not attached */
	Oid			database;
	NameData	datname;
	char		queues[64];
	int			in_flight[QUEUE_COUNT];
	int64		calls;
	TimestampTz started_at;
	TimestampTz last_loop;
} WorkerInfo;

/*
 * The launcher reserves a slot for a worker that it is about to register, and
 * frees it when that worker cannot be started or has ended.
 */
#define SLOT_NONE		(-1)	/* none is free */
#define SLOT_STOPPED	(-2)	/* a statement needs the database for itself */

extern int	worker_slot_reserve(Oid database, const char *datname, uint64 *generation, int *number);

/* Frees a slot unless a living worker has it. */
extern void worker_slot_free(int slot, uint64 generation);

/* Ends the slot's worker: one that has not attached yet can no longer do so. */
extern void worker_slot_terminate(int slot, uint64 generation);

/*
 * The worker takes its slot at start, before it connects to its database:
 * registers the exit callback first, then writes the slot.  False when the
 * slot is no longer reserved for it: the worker must exit.
 */
extern bool worker_slot_attach(int slot, uint64 generation);
extern int	my_worker_slot(void);	/* -1: this process is no worker */
extern void worker_slot_report(WorkerState state, const char *queues, const int *in_flight, int64 calls);

/* All slots in use; MAX_WORKERS places; returns how many. */
extern int	worker_slots_read(WorkerInfo *infos);

/* Sets the latch of every worker of the database but this process. */
extern void wake_workers(Oid database);

/* ---- launcher.c: its latch, and what it is told ---- */

extern void launcher_attach(void);
extern void wake_launcher(void);

/* Tells the launcher that an extension was made or dropped: pauses are over. */
extern void reset_launcher_pauses(void);
extern bool launcher_pauses_reset(void);	/* for the launcher: was it told since it last asked? */

/*
 * Ends the workers of a database and keeps new ones from starting, until
 * workers_resume() or the end of this transaction or process; returns when
 * they are gone.  One database at a time: the newest.
 */
extern void workers_stop(Oid database);
extern void workers_resume(void);
extern bool workers_stopped(Oid database);

/* ---- commit.c: what is to be told when the transaction commits ---- */

/* Registers the transaction-end callback, which also resumes workers; once a process, from _PG_init. */
extern void commit_callback_init(void);

/*
 * Marks that the workers of this database are to be woken when the current
 * transaction commits, or that waiters on the session are to be told, or the
 * launcher.  Cheap; may be called any number of times; neither allocates nor
 * raises.  A rollback forgets it.
 */
extern void wake_workers_at_commit(void);
extern void tell_waiters_at_commit(const pg_uuid_t *session_id);
extern void reset_launcher_pauses_at_commit(void);

/* ---- waiters.c: 64 condition variables by hash of (database, session) ---- */

/*
 * ConditionVariablePrepareToSleep / TimedSleep / CancelSleep on the session's
 * variable.  waiter_sleep returns true at the timeout (milliseconds).
 */
extern void waiter_prepare(const pg_uuid_t *session_id);
extern bool waiter_sleep(const pg_uuid_t *session_id, long timeout_ms);
extern void waiter_done(void);
extern void tell_waiters(Oid database, const pg_uuid_t *session_id);

/* The number of a session's variable, and broadcasting by number. */
#define WAIT_VARIABLES 64
extern int	wait_variable_of(Oid database, const pg_uuid_t *session_id);
extern void wait_variable_broadcast(int variable);

/* ---- asks.c: the ring of asks ---- */

#define ASK_PARAMS_MAX 1024

typedef struct Ask				/* what a worker takes */
{
	int			place;			/* in the ring */
	uint64		generation;
	pg_uuid_t	session_id;
	bool		returned;		/* the payer has come back */
	TimestampTz asked_at;
	char		params[ASK_PARAMS_MAX + 1]; /* JSON text, empty: none */
} Ask;

/* names a question, for one who waits for its answer */
typedef struct AskTicket
{
	int			place;
	uint64		generation;
} AskTicket;

/*
 * Puts a session into the ring of this database and wakes its workers.  A
 * question of the same session that no worker has taken yet is shared (its
 * `returned` and params are merged).  False when the ring is full.
 */
extern bool ask_put(const pg_uuid_t *session_id, bool returned, const char *params, AskTicket *ticket);

/* True when a question sent after ask_put() has been answered (or the ring has forgotten it). */
extern bool ask_answered(const AskTicket *ticket);

/*
 * For workers: takes up to `max` questions of the database that nobody has
 * taken; gives one back that cannot be served now (its row is held or in
 * flight), marks one as answered (and tells its waiters: after commit), or
 * gives back all that a dead worker's slot had taken.
 */
extern int	ask_take(Oid database, int worker_slot, Ask *asks, int max);
extern void ask_give_back(int place, uint64 generation);
extern void ask_done(int place, uint64 generation);
extern void ask_forget_worker(int worker_slot);
extern int	asks_waiting(Oid database); /* how many are there to take? */

/* ---- limits.c: per (database, provider), for all workers together ---- */

#define MAX_PROVIDERS 256

typedef struct ProviderFigures	/* a copy, for readers */
{
	Oid			database;
	Oid			serverid;
	int			in_flight;
	int64		calls;
	int64		errors;
	int			consecutive_failures;
	TimestampTz blocked_until;	/* 0: not */
	bool		open;			/* the breaker: no calls until then */
	bool		trial;			/* one call is trying whether it is back */
	int64		latency_p50;	/* microseconds; -1: no calls yet */
	int64		latency_p95;
	int64		latency_p99;
	char		last_error[64];
	TimestampTz last_error_at;
} ProviderFigures;

/*
 * How many calls of this provider may start now, at most `wanted`: takes them
 * off the shared limits (in flight, rate, breaker, Retry-After) at once.  Of
 * many places, no queue gets the last tenth, so that the others can go on
 * while all of its calls hang.
 *
 * *again_at: when to come back if it is less than wanted for a reason that
 * time cures (0: a running call's end will).  Every place taken is given back
 * by limits_end(), or by limits_release() when no call was made.
 */
extern int	limits_take(Oid serverid, Queue queue, int wanted, int max_in_flight, double max_rps,
						TimestampTz now, TimestampTz *again_at);
extern void limits_release(Oid serverid, Queue queue, int n);

/*
 * A call has ended.  failure: no usable answer (counts for the breaker).
 * retry_after: microseconds, -1: not told.
 */
extern void limits_end(Oid serverid, Queue queue, bool failure, int64 duration, int64 retry_after,
					   const char *error, int breaker_failures, int64 breaker_pause, TimestampTz now);

/* Gives back all places that this process has taken; from its exit callback. */
extern void limits_forget_self(void);
extern bool limits_read(Oid serverid, ProviderFigures *figures);	/* false: never called */

/* ---- lifecycle, called by memory.c ---- */
extern Size slots_size(void);
extern void slots_setup(void *memory, bool found);
extern Size waiters_size(void);
extern void waiters_setup(void *memory, bool found);
extern Size asks_size(void);
extern void asks_setup(void *memory, bool found);
extern Size limits_size(void);
extern void limits_setup(void *memory, bool found);
extern LWLock *shared_lock(int part);	/* 0 slots, 1 asks, 2 limits */

#endif							/* PAYFLOW_SHARED_H */
