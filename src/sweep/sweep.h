/*-------------------------------------------------------------------------
 *
 * sweep.h
 *	  Finding and taking due work: the work sources, the claim, the lease.
 *
 *	  Due are live sessions, and operations beside them: each row is its own
 *	  job, with an alarm and a lease of its own.
 *
 *	  Rows are taken with FOR NO KEY UPDATE SKIP LOCKED in a short transaction,
 *	  which the worker commits before it calls anybody.  All functions run SQL:
 *	  inside a transaction and an SPI connection.
 *
 * IDENTIFICATION
 *	  src/sweep/sweep.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SWEEP_H
#define PAYFLOW_SWEEP_H

#include "lib/outcome.h"
#include "lib/payment_row.h"

/* kinds of due rows, each in one queue */
typedef enum WorkSourceId
{
	SOURCE_REGISTER,			/* sessions to register */
	SOURCE_ASK,					/* sessions to ask about */
	SOURCE_EXPIRE,				/* sessions to expire at the provider */
	SOURCE_OPERATIONS,			/* operations to send or to ask about */
	WORK_SOURCES
} WorkSourceId;

/*
 * A payment, or an operation of it (payment->operation), that this worker has
 * taken, with what is to be done about it.
 */
typedef struct Claim
{
	PaymentRow *payment;		/* as it stands after the claim (lease, attempts, marks) */
	CallKind	call;			/* CALL_NONE: apply `local` instead, no call */
	OutcomeKind local;
	bool		mark_set;		/* this claim set first_sent_at */
} Claim;

typedef struct ClaimRequest
{
	const char *provider;
	const char *endpoint;		/* frozen with the payment at first sending */
	const char *account;		/* NULL: none */
	const ProviderTerms *terms;
	int64		lease;			/* microseconds */
	bool		never_sent_is_believed;
	TimestampTz from;			/* look only at alarms from here on; DT_NOBEGIN: at all */

	/* set by claim_due(), before anything of it can fail: the first row that it takes */
	bool		has_taken;
	pg_uuid_t	taken_id;

	/* set by claim_due(): the first alarm that it saw, DT_NOEND for none, and how long it took to see it */
	TimestampTz first_alarm;
	int64		look_time;		/* microseconds */
} ClaimRequest;

/* In which queue a source is worked. */
extern Queue work_source_queue(WorkSourceId source);

/*
 * Takes up to `max` due rows of one provider from one source, but not the
 * first `passed` ones.  Appends Claim * to the list and returns it; allocated
 * in the current memory context.  *next_due: the earliest alarm still to ring
 * of that provider and source, lowered only (pass TIMESTAMP_INFINITY-like
 * start value DT_NOEND).
 *
 * Left out are operations that wait for another one of their session, and,
 * while "never sent" is not believed, those that count as never sent.
 */
extern List *claim_due(WorkSourceId source, ClaimRequest *request, int max, int passed, List *claims,
					   TimestampTz *next_due);

/*
 * Takes named payments, due or not, final or not, unless they are leased or
 * held elsewhere.  Used for asks.
 */
extern List *claim_asked(const ClaimRequest *request, const pg_uuid_t *session_ids, int n, List *claims);

/* The provider of each session that exists; NULL where it does not.  No locks. */
extern void providers_of_sessions(const pg_uuid_t *session_ids, int n, char **providers);

/*
 * Providers named by live sessions or unsettled operations of this database,
 * by loose index scans (cost: one index probe a provider).  List of char *.
 */
extern List *providers_with_live_work(void);

/*
 * Gives the lease back of what was claimed but not called; of an operation also
 * the mark, if this claim has set it.
 */
extern void release_claim(const Claim *claim);

/*
 * Puts off the alarms of due rows of a provider that cannot be called (no such
 * server), or of one that cannot be claimed, so that they do not ring in each
 * loop.  What somebody holds stays as it is.
 */
extern void postpone_due(WorkSourceId source, const char *provider, const Interval *pause, int max);
extern void postpone_one(WorkSourceId source, const pg_uuid_t *id, const Interval *pause);

/*
 * Compares the server's timeline with the noted one.  If they differ, marks
 * all payments and operations that count as never sent as possibly sent and
 * notes the new one; returns whether "never sent" can be believed now: not
 * while somebody holds one of them, then this is to be tried again.
 */
extern bool reconcile_timeline(void);

/* Whether "never sent" can be believed, for calls of applications: only compares. */
extern bool timeline_is_noted(void);

#endif							/* PAYFLOW_SWEEP_H */
