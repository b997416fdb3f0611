/*-------------------------------------------------------------------------
 *
 * session.h
 *	  The rules of a payment session: the one door for money.
 *
 *	  All functions here run SQL: inside a transaction, an SPI connection and
 *	  as the owner of payflow's tables (or a superuser).
 *
 *	  Locks, always in this order: advisory (order), orders row,
 *	  payment_sessions row, accounts rows in id order.
 *
 * IDENTIFICATION
 *	  src/session/session.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SESSION_H
#define PAYFLOW_SESSION_H

#include "nodes/pg_list.h"

#include "lib/outcome.h"
#include "lib/payment_row.h"

/* ---- state.c ---- */

/* True when the transition table lists from -> to (a live status may stay). */
extern bool transition_allowed(SessionStatus from, SessionStatus to);

/* ---- apply.c ---- */

typedef enum ApplyResult
{
	APPLY_DONE,					/* applied, or found to change nothing; journaled */
	APPLY_BUSY,					/* somebody holds its order or session: come back */
	APPLY_GONE,					/* no such session */
} ApplyResult;

/*
 * Applies outcomes in one go: locks all orders, then all sessions (never
 * waiting: a row held elsewhere gives APPLY_BUSY), decides each, writes.
 * results[i] belongs to outcomes[i].  Of several outcomes of one order in
 * one call only the first is applied, the others are APPLY_BUSY.  An error
 * leaves the transaction to be aborted: then apply one by one to find the
 * culprit.
 */
extern void session_apply(Outcome **outcomes, int n, ApplyResult *results);

/*
 * Applies the wish or decision of a person, in his transaction, which has
 * locked the order and the session (session_lock()).  Waits for a worker that is
 * just taking an operation of the session.
 */
extern void session_apply_wish(Outcome *wish);

/* An outcome about that payment's session, of which nothing is told.  Points into the payment. */
extern void outcome_init(Outcome *outcome, const PaymentRow *payment, const ProviderTerms *terms,
						 const char *source);

/* ---- lock.c ---- */

/*
 * Locks the session's order, then the session, waiting.  NULL when there is no
 * such session.  Above READ COMMITTED raises 40001 when either has changed.
 */
extern PaymentRow *session_lock(const pg_uuid_t *session_id);

/* An operation as it is; NULL when there is none. */
extern OperationRow *operation_by_id(const pg_uuid_t *operation_id);
/* All operations of a session, oldest first; List of OperationRow *. */
extern List *operations_of_session(const pg_uuid_t *session_id);

/* ---- operation_alarm.c ---- */

/*
 * What a worker has to do now about an operation whose alarm has rung (of
 * payment->operation): the call to make, or CALL_NONE with *local set to the
 * outcome to apply instead.
 */
extern CallKind operation_next_call(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now,
									OutcomeKind *local);

/*
 * Whether it may be sent (again) with its key: it was never sent, or the key is
 * surely still remembered at the provider.
 */
extern bool operation_key_is_valid(const OperationRow *operation, const ProviderTerms *terms, TimestampTz now);

/* ---- alarm.c ---- */

/*
 * What a worker has to do now about a payment whose alarm has rung (or that
 * was asked for): the call to make, or CALL_NONE with *local set to the
 * outcome that is to be applied instead (a lapse that needs no call).
 * never_sent_is_believed: false while the server's timeline is not the noted
 * one.  asked: a caller wants the provider asked now.
 */
extern CallKind session_next_call(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now,
								  bool never_sent_is_believed, bool asked, OutcomeKind *local);

/*
 * Whether Register may be sent again with its key: it was never sent, or the
 * key is surely still remembered at the provider.
 */
extern bool register_key_is_valid(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now);

/* Whether a key that was first sent then is surely still remembered when it is sent once more now. */
extern bool key_is_remembered(TimestampTz first_sent_at, const ProviderTerms *terms, TimestampTz now);

/* now + interval, and interval / 2^n style pauses: see alarm.c */
extern TimestampTz time_plus(TimestampTz t, const Interval *interval);
extern TimestampTz backoff_until(TimestampTz now, int attempt);
extern TimestampTz poll_at(TimestampTz now, const ProviderTerms *terms, int attempt);

/* ---- order.c ---- */

/*
 * Takes the transaction's advisory lock on an order, in a lock class of
 * payflow's own: never collides with pg_advisory_lock().  Waits.
 */
extern void lock_order_advisory(const char *merchant, const char *order_id);

/* ---- payer.c ---- */

/*
 * The application sends the payer away: stage form -> return, starts the
 * return timer.  Locks order, then session, waiting.  False when there is no
 * such session.
 */
extern bool session_payer_redirected(const pg_uuid_t *session_id, const ProviderTerms *terms);

/* ---- journal.c ---- */

/*
 * Raises an alert, or counts up the open one of that key.  severity: info,
 * warning, critical.
 */
extern void raise_alert(const char *key, const char *severity, const char *message);

/* Writes one line of the journal, by the caller.  detail: JSON text or NULL. */
extern void journal_event(const pg_uuid_t *session_id, const char *source, const char *event,
						  SessionStatus from, SessionStatus to, const char *detail);

#endif							/* PAYFLOW_SESSION_H */
