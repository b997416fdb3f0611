/*-------------------------------------------------------------------------
 *
 * api.h
 *	  What the SQL-callable functions share: privileges, the composite that
 *	  they return, reading a session.
 *
 * IDENTIFICATION
 *	  src/api/api.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_API_H
#define PAYFLOW_API_H

#include "fmgr.h"
#include "utils/snapshot.h"

#include "lib/compat.h"
#include "lib/outcome.h"
#include "lib/payment_row.h"

/* ---- enter.c ---- */

/* a call of one of our functions, while its SQL runs as the owner */
typedef struct ApiCall
{
	Oid			caller;			/* whose privileges count */
	int			caller_security;
	int			settings_level;
	MemoryContext result_context;	/* outlives the call's SPI connection */
} ApiCall;

/*
 * Raises 55000 unless the server has loaded payflow at start.  The first thing
 * that each function does.
 */
extern void require_loaded(void);

/*
 * Becomes the owner of payflow's tables, with an SPI connection; and back.
 * After an error nothing is to be undone: the end of the (sub)transaction does
 * it.
 */
extern void api_enter(ApiCall *call);
extern void api_leave(ApiCall *call);

/*
 * A search_path of our own, around all that writes: triggers run by then, and
 * those that others have made may look up names.  Our statements are qualified
 * and do not need it; reading goes without, which makes replays quicker.
 * The same statement is always run with it or always without: a kept plan is
 * good for one search_path.
 */
extern void api_pin_search_path(ApiCall *call);
extern void api_unpin_search_path(ApiCall *call);

/* ---- payment.c ---- */

/*
 * The composite payflow.payment that the SQL function is declared to return,
 * allocated in the call's result context.
 */
extern Datum payment_datum(FunctionCallInfo fcinfo, const ApiCall *call, const PaymentRow *row,
						   bool replayed, int http_status);

/* The same as a tuple in the current memory context, for functions that return a set. */
extern HeapTuple payment_tuple(FunctionCallInfo fcinfo, const PaymentRow *row,
							   bool replayed, int http_status);

/*
 * What an HTTP handler should answer: 202 while the session, or a capture of
 * it, is in progress, else 200.  Needs api_enter(); runs SQL.
 */
extern int	http_status_of(const PaymentRow *row);

/* ---- refund.c ---- */

/* The status of a refund in the words of payflow.refund. */
extern const char *refund_status(const OperationRow *refund);

/* ---- capture.c ---- */

/* Whether a capture of the session is not settled.  Needs api_enter(). */
extern bool capture_is_running(const pg_uuid_t *session_id);

/* ---- get.c ---- */

/* The session, as the transaction sees it now; raises session_not_found.  Needs api_enter(). */
extern PaymentRow *read_payment(const pg_uuid_t *session_id);

/* Raises session_not_found. */
pg_noreturn extern void session_not_found(const pg_uuid_t *session_id);

/* Raises merchant_not_found unless there is such a merchant.  Needs api_enter(). */
extern void require_merchant(const char *merchant);

/* Raises merchant_not_found. */
pg_noreturn extern void merchant_not_found(const char *merchant);

/* ---- refund.c ---- */

/* The same for a refund: raises refund_not_found, also for operations that are none. */
extern OperationRow *read_refund(const pg_uuid_t *refund_id);

/* Raises refund_not_found. */
pg_noreturn extern void refund_not_found(const pg_uuid_t *refund_id);

/* The composite payflow.refund, in the call's result context. */
extern Datum refund_datum(FunctionCallInfo fcinfo, const ApiCall *call, const OperationRow *refund,
						  bool replayed);

/* ---- wish.c ---- */

/* Locks order and session, waiting; raises session_not_found.  Needs the search_path pinned. */
extern PaymentRow *lock_payment(const pg_uuid_t *session_id);

/*
 * A wish of the caller's about a payment that he has locked.  event: the
 * journal's word for it.  The wish points to *terms.
 */
extern void wish_init(Outcome *wish, ProviderTerms *terms, OutcomeKind kind, const char *event,
					  const PaymentRow *payment);

/* A fresh id for an operation of the payment. */
extern void new_operation_id(const PaymentRow *payment, pg_uuid_t *operation_id);

/* ---- keys.c ---- */

/*
 * The caller's idempotency key for a call about a session.  True: the key is
 * new, and from now on stands for *operation_id, which this transaction is to
 * make.  False: it was used before, and *operation_id is what that made.
 * amount: 0 for null.  Waits for one who has used it and not committed; so
 * before the order is locked.  Raises idempotency_key_reused.
 */
extern bool claim_key(const PaymentRow *payment, const char *call, const char *key, int64 amount,
					  pg_uuid_t *operation_id);

/* ---- running.c ---- */

/*
 * The live session of an order, NULL if the snapshot shows none.  Of the row,
 * what payflow.payment shows is filled, and manual_capture.
 */
extern PaymentRow *running_session(const char *merchant, const char *order_id, Snapshot snapshot);

/* ---- latest.c ---- */

/* what of a session tells a waiter whether to go on waiting */
typedef struct LatestState
{
	SessionStatus status;
	SessionStage stage;
	TimestampTz updated_at;
	bool		written_here;	/* by the current transaction */
} LatestState;

/* and what of a refund does */
typedef struct LatestRefund
{
	pg_uuid_t	session_id;
	OperationStatus status;
	bool		written_here;
} LatestRefund;

/*
 * Reads what is committed now, whatever snapshot the transaction has, and
 * keeps no lock.  Raises session_not_found, refund_not_found.
 */
extern LatestState read_latest(const pg_uuid_t *session_id);
extern LatestRefund read_latest_refund(const pg_uuid_t *refund_id);

/*
 * Reads the latest state for a call that is about to wait; raises 25001 above
 * READ COMMITTED, where the caller could not see what it waits for, and 55000
 * when its own transaction wrote the session or refund, so that nobody else
 * can change it until it ends.
 */
extern void require_can_wait(const char *function);
extern LatestState read_latest_to_wait(const pg_uuid_t *session_id, const char *function);
extern LatestRefund read_latest_refund_to_wait(const pg_uuid_t *refund_id, const char *function);

/* On a standby nobody tells those who wait: how long a sleep lasts there. */
#define STANDBY_NAP_MS 250

#endif							/* PAYFLOW_API_H */
