/*-------------------------------------------------------------------------
 *
 * sweep.h
 *	  Finding and taking due work: the work sources, the claim, the lease.
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

/* a payment that this worker has taken, with what is to be done about it */
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
} ClaimRequest;

/*
 * Takes up to `max` due payments of one provider in one queue (payments,
 * status, money), but not the first `passed` ones.  Appends Claim * to the list and returns it; allocated in
 * the current memory context.  *next_due: the earliest alarm still to ring of
 * that provider and queue, lowered only (pass TIMESTAMP_INFINITY-like start
 * value DT_NOEND).
 */
extern List *claim_due(Queue queue, const ClaimRequest *request, int max, int passed, List *claims,
					   TimestampTz *next_due);

/*
 * Takes named payments, due or not, final or not, unless they are leased or
 * held elsewhere.  Used for asks.
 */
extern List *claim_asked(const ClaimRequest *request, const pg_uuid_t *session_ids, int n, List *claims);

/* The provider of each session that exists; NULL where it does not.  No locks. */
extern void providers_of_sessions(const pg_uuid_t *session_ids, int n, char **providers);

/*
 * Providers named by live sessions of this database, by a loose index scan
 * (cost: one index probe a provider).  List of char *.
 */
extern List *providers_with_live_sessions(void);

/* Gives leases back of payments that were claimed but not called. */
extern void release_claims(const pg_uuid_t *session_ids, const int64 *tokens, int n);

/*
 * Puts off the alarms of due payments of a provider that cannot be called
 * (no such server) by a growing pause, so that they do not ring in each loop.
 */
extern void postpone_due(const char *provider, const Interval *pause, int max);

/*
 * Compares the server's timeline with the noted one.  If they differ, marks
 * all payments that count as never sent as possibly sent and notes the new
 * one; returns whether "never sent" can be believed now: not while somebody
 * holds one of them, then this is to be tried again.
 */
extern bool reconcile_timeline(void);

#endif							/* PAYFLOW_SWEEP_H */
