/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  Private to src/worker: the worker, its tasks and its cycles.
 *
 *	  README.md beside this file tells how they play together.
 *
 * IDENTIFICATION
 *	  src/worker/worker.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_WORKER_H
#define PAYFLOW_WORKER_H

#include "lib/ilist.h"
#include "utils/elog.h"
#include "utils/hsearch.h"

#include "lib/outcome.h"
#include "lib/payment_row.h"
#include "provider/provider.h"
#include "session/session.h"
#include "shared/shared.h"
#include "sweep/sweep.h"
#include "worker/http.h"

#define MILLISECONDS(n) ((int64) (n) * 1000)
#define SECONDS(n) ((int64) (n) * USECS_PER_SEC)

/*
 * A payment, or an operation of it, that this worker has taken: first with a
 * call to make or in flight, then with an outcome to apply.
 */
typedef struct Task
{
	dlist_node	node;			/* in one of the lists below */
	MemoryContext context;		/* owns the task and all that it points to */
	PaymentRow *payment;		/* as it stood after the claim; with its operation, if it is about one */
	CallKind	call;
	bool		mark_set;		/* the claim set first_sent_at */
	Queue		queue;			/* in which it is counted */

	/* of the provider, as it was at the claim */
	Oid			serverid;
	const Driver *driver;
	ProviderTerms terms;
	int			breaker_failures;
	int64		breaker_pause;

	bool		has_place;		/* in the provider's shared limits */
	bool		counted;		/* in worker->in_flight */
	bool		has_call;		/* http is in use */
	HttpCall	http;
	bool		outcome_known;
	Outcome		outcome;

	/* questions of callers that it answers */
	AskTicket  *asks;
	int			nasks;

	/* applying the outcome did not work yet */
	int			busy;			/* times that somebody held its rows */
	int			failures;		/* times that it failed */
	TimestampTz not_before;
} Task;

/* one work source of one provider */
typedef struct Source
{
	TimestampTz look_at;		/* look for due work not later than this */
	TimestampTz next_due;		/* the next alarm that is known; DT_NOEND: none */
	TimestampTz not_before;		/* after an error: but not earlier than this */
	TimestampTz look_from;		/* leave out earlier alarms, of which only dead rows are left ... */
	TimestampTz look_from_until;	/* ... as long as this has not come */
	bool		wants_room;		/* more may be due: look again when a call has ended */
	int			one_by_one;		/* claim this many singly: one of them cannot be claimed */
	int			passed;			/* leave out so many that are due first: they cannot even be put off */
	TimestampTz passed_until;	/* then try them again */
} Source;

typedef struct ProviderState
{
	Oid			serverid;		/* hash key */
	uint64		cycle;			/* the last one that saw it */
	int			in_flight[QUEUE_COUNT]; /* of this worker's calls */
	Source		sources[WORK_SOURCES];
} ProviderState;

typedef struct Worker
{
	int			slot;
	MemoryContext context;		/* lives as long as the worker */
	MemoryContext loop_context; /* reset after each cycle */
	Oid			extension;		/* InvalidOid before the first cycle */
	int			capacity;		/* calls in flight at most, by the file descriptors */
	uint64		cycle;			/* counts them */
	bool		never_sent_is_believed;

	int			in_flight[QUEUE_COUNT];
	int64		calls;			/* started so far */
	HTAB	   *called;			/* ids of the sessions and operations with a call in flight: claim_id() */
	HTAB	   *providers;		/* of ProviderState */

	dlist_head	answers;		/* tasks to apply now */
	dlist_head	later;			/* tasks to apply at their time */
	int			nlater;
	TimestampTz later_at;		/* the earliest of these times */

	bool		woken;			/* there may be new work */
	bool		room_made;		/* a call has ended */
	TimestampTz look_at;		/* look everywhere not later than this */
	int			asks_refused;	/* asks that could not be served last time */
	int			refusals;		/* cycles in a row where that was so */
	TimestampTz asks_at;		/* when to try these again, if no call ends before */
	TimestampTz check_providers_at; /* whether all that are named exist */
	int			checks_missing; /* checks in a row that missed one */

	TimestampTz paused_until;	/* after an error; 0: not paused */
	int			pauses;			/* in a row */
	bool		pause_is_quiet; /* somebody holds a lock, no more than that */
} Worker;

/* where a cycle is: tells whose fault an error is */
typedef enum CyclePhase
{
	CYCLE_BEGIN,
	CYCLE_APPLY,
	CYCLE_ASKS,
	CYCLE_CLAIM,
	CYCLE_CHECK,
	CYCLE_COMMIT,
} CyclePhase;

typedef struct Cycle
{
	CyclePhase	phase;
	TimestampTz now;
	bool		look_everywhere;	/* whatever the sources' look_at */
	bool		room_made;		/* a call has ended since the last cycle */
	bool		durable;		/* its commit must reach the disk */

	/* what is applied */
	Task	  **batch;
	ApplyResult *results;
	int			nbatch;

	/* asks that were taken; served: a task or nothing to do; the others are given back */
	Ask		   *asks;
	bool	   *ask_done;		/* nothing to wait for */
	bool	   *ask_served;		/* a task bears it */
	int			nasks;

	/* what is claimed */
	dlist_head	fresh;			/* of Task */
	Oid			places_of;		/* places taken that no task has yet */
	Queue		places_queue;
	int			places;
	Source	   *source;			/* with CYCLE_CLAIM: what is being claimed */
	WorkSourceId source_id;
	ClaimRequest request;
	int			claim_max;
	List	   *providers;		/* of Provider *, copies */
	bool		never_sent_is_believed;
} Cycle;

/* ---- cycle.c ---- */

/* Is there anything to do in the database now? */
extern bool cycle_is_due(Worker *worker, TimestampTz now);
/* When it will be, if nothing happens before. */
extern TimestampTz next_cycle_at(Worker *worker);
extern void run_cycle(Worker *worker);

/*
 * One transaction with the extension locked, SPI and a snapshot.  Ends the
 * process when the extension is gone; raises ERRCODE_LOCK_NOT_AVAILABLE while
 * it is being changed.
 */
extern void begin_work(Worker *worker);
extern void commit_work(Worker *worker);

/*
 * Runs a function in a transaction of its own.  Returns NULL or the error,
 * after the transaction was aborted.  In the loop context.
 */
extern ErrorData *run_apart(Worker *worker, void (*function) (void *arg), void *arg);
/* In a PG_CATCH block: ends the transaction and returns the error. */
extern ErrorData *catch_error(Worker *worker);

typedef enum ErrorKind
{
	ERROR_OF_ITEM,				/* the one that was worked on cannot be done */
	ERROR_TRANSIENT,			/* a lock, a deadlock: try again */
	ERROR_OF_SERVER,			/* disk, memory, shutdown, bugs: nobody's item */
} ErrorKind;

extern ErrorKind error_kind(const ErrorData *error);
extern void pause_worker(Worker *worker, const ErrorData *error);

/* ---- claims.c ---- */

/* The alarms of a provider's payments may have changed: look at them again. */
extern void look_at_provider(Worker *worker, Oid serverid);

/* the parts of a cycle that take new work, in this order */
extern void read_providers(Cycle *cycle);
extern void take_asks(Worker *worker, Cycle *cycle);
extern void take_due(Worker *worker, Cycle *cycle);
extern void check_providers(Worker *worker, Cycle *cycle);

extern void claims_failed(Worker *worker, Cycle *cycle, const ErrorData *error);

/* ---- answers.c ---- */

/* Chooses what is to be applied in this cycle, and applies it. */
extern void choose_answers(Worker *worker, Cycle *cycle);
extern void apply_answers(Worker *worker, Cycle *cycle);

/* After the commit: what was applied is done with. */
extern void answers_applied(Worker *worker, Cycle *cycle);

/* After an error: keep them for the next cycle, or go through them one by one. */
extern void keep_answers(Worker *worker, Cycle *cycle);
extern void apply_one_by_one(Worker *worker, Cycle *cycle);

/* ---- task.c ---- */

/* The id of what a claim is of: of its operation, else of its session.  One call of each at a time. */
extern const pg_uuid_t *claim_id(const PaymentRow *payment);

/*
 * Makes a task of a claim.  It takes over one of the places that the cycle
 * holds, and is in its list before anything can fail.
 */
extern Task *task_make(Worker *worker, Cycle *cycle, const Claim *claim, const Provider *provider,
					   Queue queue);
/* Builds the request, or settles the outcome where there is nothing to call. */
extern void task_prepare(Task *task, const Claim *claim, const Provider *provider);
extern void task_add_ask(Task *task, const Ask *ask);
extern void task_start(Worker *worker, Task *task);
/* The task's call has ended. */
extern void task_ended(Worker *worker, Task *task);
/* Fills the outcome from the answer, unless it is known; needs a transaction. */
extern void task_read_answer(Task *task);
/* The task's asks are answered as well as they ever will be. */
extern void task_tell(Task *task);
extern void task_free(Worker *worker, Task *task);

extern int	calls_in_flight(const Worker *worker);
/* The sum of such counts over all queues. */
extern int	sum_of_queues(const int *counts);

#endif							/* PAYFLOW_WORKER_H */
