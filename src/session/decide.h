/*-------------------------------------------------------------------------
 *
 * decide.h
 *	  Private to src/session: what an outcome does to a payment, decided
 *	  without touching the database, and the parts that write it.
 *
 * IDENTIFICATION
 *	  src/session/decide.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_DECIDE_H
#define PAYFLOW_DECIDE_H

#include "nodes/pg_list.h"
#include "storage/itemptr.h"

#include "lib/outcome.h"
#include "lib/payment_row.h"
#include "session/books.h"

typedef struct Alert
{
	char	   *key;
	const char *severity;
	char	   *message;
} Alert;

/* a discrepancy to open */
typedef struct Finding
{
	const char *kind;
	int64		amount;			/* money in suspense that it is about; 0: none */
	char		currency[CURRENCY_SIZE];
	const char *resolution;		/* what the merchant's policy decides at once; NULL: a person shall */
	OperationRow *operation;	/* that the policy leads to, or NULL */
} Finding;

/* what is to be written besides the session's row */
typedef struct Effects
{
	SessionStatus from;
	bool		changed;		/* the row is to be written */
	bool		visible;		/* and callers can see a difference */
	bool		stale;			/* an absence without the row's lease: nothing was applied */
	bool		returns_changed;	/* the row's totals of money that went back are to be written */
	bool		receipt;		/* completed: captured_amount is the order's receipt */
	bool		cancel_loses;	/* completed although it was to be canceled */
	bool		accepted;		/* late money has become the order's receipt */
	bool		order_follows;	/* the order's status is to be derived anew */
	List	   *operations;		/* of OperationRow *, new or changed */
	List	   *facts;			/* of ProviderFact *, new */
	List	   *entries;		/* of LedgerEntry *, to be booked */
	List	   *findings;		/* of Finding * */
	const char *suspense_gone;	/* nothing of this currency is left in suspense: nothing waits for a decision */
	List	   *reopened;		/* of OperationRow *, whose discrepancies wait for a decision again */
	List	   *refunded_instead;	/* of OperationRow *, accepts whose money goes back after all */
	List	   *alerts;			/* of Alert * */
} Effects;

/* an order's row, which this transaction has locked */
typedef struct LockedOrder
{
	char	   *merchant;
	char	   *order_id;
	int64		amount;
	char	   *currency;
	OrderStatus status;
	bool		has_active;
	pg_uuid_t	active_session_id;
	bool		has_paid;
	pg_uuid_t	paid_session_id;
	ItemPointerData tid;		/* the place of the row as it was locked */
	bool		in_use;			/* an outcome of this call is about it already */
} LockedOrder;

/* what could be locked for an outcome; outcomes of one session share the payment */
typedef struct LockedPair
{
	pg_uuid_t	session_id;
	int			outcome;		/* its place */
	PaymentRow *payment;		/* NULL: somebody holds it */
	LockedOrder *order;			/* NULL: somebody holds it */
	bool		gone;			/* there is no such session */
} LockedPair;

/*
 * lock_batch.c: locks the orders and sessions of the outcomes, skipping those
 * held elsewhere; n pairs, in the order of session ids.
 */
extern void lock_pairs(Outcome **outcomes, int n, LockedPair *pairs);

/*
 * Facts always count, absences only with the lease of the session, or of the
 * operation that they are about: who brings one after another has taken it
 * over is not to change anything.
 */
extern bool outcome_counts(const PaymentRow *payment, const Books *books, const Outcome *outcome);

/*
 * Decides: changes the payment, its books and the order in place and fills the
 * effects.  id_taken_by: the session that already has the provider's payment
 * id, or NULL.
 */
extern void session_decide(PaymentRow *payment, LockedOrder *order, Books *books, const Outcome *outcome,
						   const pg_uuid_t *id_taken_by, TimestampTz now, Effects *effects);

extern void add_alert(Effects *effects, const char *severity, char *key, char *message);

/* alarm.c */
extern TimestampTz payment_lifetime_end(const PaymentRow *payment, const ProviderTerms *terms);
/* The end of the stage's timer if it starts now; 0: the stage has none. */
extern TimestampTz stage_deadline(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now);

/* session_row.c: write what was decided; what has gone back first, which a completed session may depend on */
extern void update_returns(PaymentRow **payments, const Effects *effects, int n);
extern void update_sessions(PaymentRow **payments, const Effects *effects, int n);

/*
 * order.c: locks the orders that the outcomes are about, each once and in the
 * order of their keys, skipping those held elsewhere; n places.
 */
extern int	lock_orders_of(Outcome **outcomes, int n, LockedOrder *orders);
extern int	order_key_compare(const LockedOrder *order, const char *merchant, const char *order_id);
/* Writes what the sessions' steps mean to their orders; after sessions and operations. */
extern void orders_follow(PaymentRow **payments, LockedOrder **orders, const Effects *effects, int n);

/* ledger.c: books what the effects say, accounts locked in id order */
extern void ledger_book(PaymentRow **payments, const Effects *effects, int n, TimestampTz now);

/* journal.c */
extern void journal_outcomes(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n,
							 TimestampTz now);

/* operations.c: writes operations and what the provider reports */
extern void write_operations(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n,
							 TimestampTz now);
extern void write_facts(PaymentRow **payments, const Effects *effects, int n);

/* discrepancies.c */
extern void write_findings(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n);
extern void settle_findings(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n);

#endif							/* PAYFLOW_DECIDE_H */
