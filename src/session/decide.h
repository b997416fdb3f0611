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

#include "lib/outcome.h"
#include "lib/payment_row.h"

typedef struct Alert
{
	char	   *key;
	const char *severity;
	char	   *message;
} Alert;

/* what is to be written besides the session's row */
typedef struct Effects
{
	SessionStatus from;
	bool		changed;		/* the row is to be written */
	bool		visible;		/* and callers can see a difference */
	bool		stale;			/* an absence without the row's lease: nothing was applied */
	bool		receipt;		/* book captured_amount as the order's receipt */
	int64		unexpected;		/* book this much to suspense; 0: nothing */
	char		unexpected_currency[4];
	const char *discrepancy;	/* kind of the discrepancy to open; NULL: none */
	List	   *alerts;			/* of Alert * */
} Effects;

/* an order's row, which this transaction has locked */
typedef struct LockedOrder
{
	char	   *merchant;
	char	   *order_id;
	OrderStatus status;
	bool		has_active;
	pg_uuid_t	active_session_id;
} LockedOrder;

/*
 * Facts always count, absences only with the row's lease: who brings one after
 * another has taken the payment over is not to change anything.
 */
extern bool outcome_counts(const PaymentRow *payment, const Outcome *outcome);

/*
 * Decides: changes the payment in place and fills the effects.
 * id_taken_by: the session that already has the provider's payment id, or
 * NULL.  foreign_suspense: what is booked to suspense for this session in the
 * outcome's currency where that is not the session's.
 */
extern void session_decide(PaymentRow *payment, const LockedOrder *order, const Outcome *outcome,
						   const pg_uuid_t *id_taken_by, int64 foreign_suspense, TimestampTz now,
						   Effects *effects);

extern void add_alert(Effects *effects, const char *severity, char *key, char *message);

/* alarm.c */
extern TimestampTz payment_lifetime_end(const PaymentRow *payment, const ProviderTerms *terms);
/* The end of the stage's timer if it starts now; 0: the stage has none. */
extern TimestampTz stage_deadline(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now);

/* order.c: locks the orders of these sessions, skipping those held elsewhere; n places */
extern int	lock_orders_of(const pg_uuid_t *session_ids, int n, LockedOrder *orders);
/* Writes what the sessions' steps mean to their orders. */
extern void orders_follow(PaymentRow **payments, const Effects *effects, int n);

/* ledger.c: books what the effects say, accounts locked in id order */
extern void ledger_book(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n,
						TimestampTz now);
/* Booked to suspense for a session in a currency. */
extern int64 ledger_suspense_of(const pg_uuid_t *session_id, const char *currency);

/* journal.c */
extern void journal_outcomes(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n,
							 TimestampTz now);
extern void journal_event(const pg_uuid_t *session_id, const char *source, const char *event,
						  SessionStatus from, SessionStatus to, const char *detail);

#endif							/* PAYFLOW_DECIDE_H */
