/*-------------------------------------------------------------------------
 *
 * decision.h
 *	  Private to src/session: a decision in the making, shared by the files
 *	  that decide: decide.c, settle.c, operate.c, returns.c, suspense.c,
 *	  wishes.c, moves.c, post.c.
 *
 * IDENTIFICATION
 *	  src/session/decision.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_DECISION_H
#define PAYFLOW_DECISION_H

#include "session/decide.h"

/* everything that a decision looks at and writes to */
typedef struct Decision
{
	PaymentRow *payment;
	LockedOrder *order;
	Books	   *books;
	const Outcome *outcome;
	const ProviderTerms *terms; /* NULL: a wish, and the provider is gone */
	TimestampTz now;
	OperationRow *operation;	/* that the outcome is about, or NULL */
	bool		has_lease;		/* the outcome comes with the lease of session or operation */
	Effects    *effects;
} Decision;

/* ---- moves.c: changes of rows, noted in the effects ---- */

/* The key is `about` and what it is about; the message names it too. */
extern void alert_session(Decision *d, const char *severity, const char *about, const char *message);
extern void alert_provider(Decision *d, const char *severity, const char *about, const char *message);
extern void alert_operation(Decision *d, const OperationRow *operation, const char *severity, const char *about,
							const char *message);
extern Finding *open_finding(Decision *d, const char *kind);
extern void set_alarm(Decision *d, TimestampTz at);
extern void enter_status(Decision *d, SessionStatus status, SessionStage stage);

/*
 * Final: no alarm, no timer; its open operations are settled by it.
 * failure_code: NULL for completed, may be NULL for canceled.
 */
extern void end_session(Decision *d, SessionStatus status, const char *failure_code);
/* The same, but the provider has not said so: asking goes on for a while. */
extern void end_session_unproven(Decision *d, SessionStatus status, const char *failure_code);

/*
 * The provider knows the payment and nothing is decided: registered, at the
 * stage that it reports, never back to an earlier one.
 */
extern void enter_stage(Decision *d, SessionStage stage);

/* The answer was asked for before another one that was applied already. */
extern bool is_outdated(const Decision *d);
/* The currency of the outcome's totals. */
extern const char *told_currency(const Decision *d);
extern bool currency_is_ours(const Decision *d);
extern bool fits_order_of(const Decision *d);
extern void order_takes_receipt(Decision *d);

/* ---- operations ---- */

/* A new operation of the session; amount 0: it has none.  Its alarm rings now. */
extern OperationRow *add_operation(Decision *d, OperationKind kind, int64 amount, const char *currency);
/* To be written. */
extern void touch_operation(Decision *d, OperationRow *operation);
extern void set_operation_alarm(Decision *d, OperationRow *operation, TimestampTz at);
extern void settle_operation(Decision *d, OperationRow *operation, OperationStatus status, const char *failure_code);
/* May the provider still be working on it? */
extern bool operation_in_flight(const OperationRow *operation, TimestampTz now);

/* ---- settle.c: outcomes that say where the money is ---- */

extern void decide_paid(Decision *d);
extern void decide_authorized(Decision *d);
/* declined, expired, canceled */
extern void decide_ended(Decision *d);
extern void decide_capture_failed(Decision *d);
/* The page lives on, or the authorization, although it is to be canceled: to reverse it is due. */
extern void decide_canceling(Decision *d);
/* What a cancel that has lost gives back. */
extern void refund_lost_cancel(Decision *d);

/* ---- operate.c: what the answer means for the operation whose call it was ---- */

extern void decide_operation(Decision *d);
/* The answer was about another payment: none at all. */
extern void decide_foreign_answer(Decision *d);
/* A capture was refused, or the bank did not carry it out. */
extern void note_failed_capture(Decision *d, OperationRow *capture, const char *code, const char *message);
extern bool outcome_is_about_operation_only(const Decision *d);

/* What the provider has captured beyond the books is unexpected money. */
extern void compare_captured(Decision *d);

/* ---- returns.c: totals and named movements, compared with the books ---- */

extern void compare_with_books(Decision *d);
/* The refund of ours that the provider names; NULL: it is none. */
extern OperationRow *our_refund(const Decision *d, const ProviderRefund *told);
/* A refund of ours has succeeded: books it. */
extern void refund_succeeded(Decision *d, OperationRow *refund, int64 amount);
extern void reopen_discrepancy(Decision *d, OperationRow *refund);
/* A refund of ours will not be: its amount is free again. */
extern void refund_failed(Decision *d, OperationRow *refund, const char *failure_code, const char *message);

/* ---- suspense.c: money that nobody expected ---- */

extern void unexpected_money(Decision *d, int64 amount, const char *currency, const char *kind);
/* Money in suspense waits for a decision: a discrepancy. */
extern void suspense_finding(Decision *d, const char *kind, int64 amount, const char *currency);
/* An operation accept whose alarm has rung. */
extern void decide_accept(Decision *d, OperationRow *accept);
extern void decide_discrepancy(Decision *d);
/* What the merchant wants done with the money that has just come. */
extern void decide_policies(Decision *d);
/* Suspense has changed in the entries: so does the row; where nothing is left, nothing waits for a decision. */
extern void sync_suspense(Decision *d, const char *currency);

/* ---- wishes.c ---- */

extern void decide_wish(Decision *d);

/* ---- post.c: entries ---- */

extern ProviderFact *add_fact(Decision *d, const char *kind, const char *ref, const char *step, int64 amount,
							  int64 absorbed, const char *currency);
extern bool has_fact(const Decision *d, const char *kind, const char *ref, const char *step);

/* An entry of an operation, of a fact, or of neither (both NULL). */
extern void post(Decision *d, const char *type, const char *debit, const char *credit, int64 amount,
				 const char *currency, const OperationRow *operation, const ProviderFact *fact, const char *note);

/* where money that goes back is taken from */
typedef struct Taken
{
	int64		suspense;
	int64		receipt;
	int64		losses;
} Taken;

/* Books money that the provider has given back or had taken: suspense first, then the receipt, then losses. */
extern Taken take_money(Decision *d, const char *type, int64 amount, int64 receipt_limit, const char *currency,
						const ProviderFact *fact);
/* what is reversed: entries of a type, of one operation, or of one thing that the provider names */
typedef struct Origin
{
	const char *type;
	const char *reverse_type;
	const OperationRow *operation;	/* NULL: any */
	const char *fact_ref;		/* NULL: any */
} Origin;

/*
 * Books money that has come back, to the accounts that such entries had
 * debited: suspense and receipt first, losses last.
 */
extern Taken give_back_money(Decision *d, const Origin *origin, int64 amount, const char *currency,
							 const ProviderFact *fact);

/* Where the receipt's money of this session is. */
extern const char *receipt_account(const Decision *d);

#endif							/* PAYFLOW_DECISION_H */
