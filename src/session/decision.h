/*-------------------------------------------------------------------------
 *
 * decision.h
 *	  Private to src/session: a decision in the making, shared by decide.c,
 *	  settle.c and moves.c.
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
	const LockedOrder *order;
	const Outcome *outcome;
	const ProviderTerms *terms;
	TimestampTz now;
	int64		foreign_suspense;
	bool		has_lease;		/* the outcome comes with the row's lease */
	Effects    *effects;
} Decision;

/* ---- moves.c: changes of the row, noted in the effects ---- */

/* The key is `about` and what it is about; the message names it too. */
extern void alert_session(Decision *d, const char *severity, const char *about, const char *message);
extern void alert_provider(Decision *d, const char *severity, const char *about, const char *message);
extern void set_alarm(Decision *d, TimestampTz at);
extern void enter_status(Decision *d, SessionStatus status, SessionStage stage);
/* Final: no alarm, no timer.  failure_code: NULL for completed, may be NULL for canceled. */
extern void end_session(Decision *d, SessionStatus status, const char *failure_code);

/*
 * The provider knows the payment and nothing is decided: registered, at the
 * stage that it reports, never back to an earlier one.
 */
extern void enter_stage(Decision *d, SessionStage stage);

/* ---- settle.c: outcomes that say where the money is ---- */

extern void decide_paid(Decision *d);
extern void decide_authorized(Decision *d);
/* declined, expired, canceled */
extern void decide_ended(Decision *d);
/* For a session that had ended before: what the totals say beyond the books. */
extern void compare_totals(Decision *d);

#endif							/* PAYFLOW_DECISION_H */
