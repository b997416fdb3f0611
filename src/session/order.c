/*-------------------------------------------------------------------------
 *
 * order.c
 *	  Orders: their advisory lock, their row lock, their status.
 *
 * IDENTIFICATION
 *	  src/session/order.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/rowset.h"
#include "lib/spi.h"
#include "session/decide.h"
#include "session/session.h"

/*
 * The server uses lock classes 1 and 2 for pg_advisory_lock(bigint) and
 * (int, int); this one is ours.
 */
#define ORDER_LOCK_CLASS 7

void
lock_order_advisory(const char *merchant, const char *order_id)
{
	LOCKTAG		tag;
	uint64		hash;

	/* two orders of one hash only wait for each other needlessly */
	hash = hash_bytes_extended((const unsigned char *) merchant, strlen(merchant), 0);
	hash = hash_bytes_extended((const unsigned char *) order_id, strlen(order_id), hash);
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash, ORDER_LOCK_CLASS);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* one look-up of the key after the other, in the order of the keys */
static Statement lock_orders = {
	.sql = "SELECT o.merchant, o.order_id, o.status::pg_catalog.text, o.active_session_id, o.amount::pg_catalog.int8, "
	"o.currency::pg_catalog.text "
	"FROM (SELECT DISTINCT s.merchant, s.order_id FROM payflow.payment_sessions s "
	"  WHERE s.session_id OPERATOR(pg_catalog.=) ANY ($1) ORDER BY 1, 2) k "
	"CROSS JOIN LATERAL (SELECT r.merchant, r.order_id, r.status, r.active_session_id, r.amount, r.currency "
	"  FROM payflow.orders r "
	"  WHERE r.merchant OPERATOR(pg_catalog.=) k.merchant AND r.order_id OPERATOR(pg_catalog.=) k.order_id "
	"  FOR NO KEY UPDATE SKIP LOCKED) o",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

int
lock_orders_of(const pg_uuid_t *session_ids, int n, LockedOrder *orders)
{
	Datum		values[1];
	uint64		found;

	values[0] = uuid_array(session_ids, n);
	found = run(&lock_orders, values, NULL);
	Assert(found <= (uint64) n);
	for (uint64 i = 0; i < found; i++)
	{
		orders[i].merchant = result_text(i, 1);
		orders[i].order_id = result_text(i, 2);
		orders[i].status = order_status_from_name(result_text(i, 3));
		orders[i].has_active = result_uuid(i, 4, &orders[i].active_session_id);
		orders[i].amount = result_int64(i, 5);
		orders[i].currency = result_text(i, 6);
		orders[i].in_use = false;
	}
	return (int) found;
}

/* the receipt is booked by this statement or by none: see its WHERE */
static Statement take_receipts = {
	.sql = "UPDATE payflow.orders o SET status = 'paid', paid_session_id = u.session_id, active_session_id = NULL, "
	"updated_at = pg_catalog.clock_timestamp() "
	"FROM ROWS FROM (" UNNEST_4 ") AS u(merchant, order_id, session_id, ended) "
	"WHERE o.merchant OPERATOR(pg_catalog.=) u.merchant AND o.order_id OPERATOR(pg_catalog.=) u.order_id "
	"AND o.status OPERATOR(pg_catalog.=) 'open'::pg_catalog.text "
	"AND o.active_session_id OPERATOR(pg_catalog.=) u.session_id",
	.nargs = 4,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, UUIDARRAYOID, BOOLARRAYOID},
};

/* late money: the order is open, and no session of it is live any more */
static Statement accept_receipts = {
	.sql = "UPDATE payflow.orders o SET status = 'paid', paid_session_id = u.session_id, active_session_id = NULL, "
	"updated_at = pg_catalog.clock_timestamp() "
	"FROM ROWS FROM (" UNNEST_4 ") AS u(merchant, order_id, session_id, ended) "
	"WHERE o.merchant OPERATOR(pg_catalog.=) u.merchant AND o.order_id OPERATOR(pg_catalog.=) u.order_id "
	"AND o.status OPERATOR(pg_catalog.=) 'open'::pg_catalog.text "
	"AND (o.active_session_id IS NULL OR u.ended AND o.active_session_id OPERATOR(pg_catalog.=) u.session_id)",
	.nargs = 4,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, UUIDARRAYOID, BOOLARRAYOID},
};

/* what has become of the receipt's money */
static Statement derive_statuses = {
	.sql = "UPDATE payflow.orders o SET updated_at = pg_catalog.clock_timestamp(), "
	"status = CASE WHEN s.reserved_amount OPERATOR(pg_catalog.>) 0 THEN 'refunding' "
	"WHEN s.refunded_amount OPERATOR(pg_catalog.>=) s.captured_amount THEN 'refunded' "
	"WHEN s.refunded_amount OPERATOR(pg_catalog.>) 0 OR s.reversed_amount OPERATOR(pg_catalog.>) 0 "
	"THEN 'partially_refunded' ELSE 'paid' END "
	"FROM payflow.payment_sessions s WHERE s.session_id OPERATOR(pg_catalog.=) ANY ($1) "
	"AND o.merchant OPERATOR(pg_catalog.=) s.merchant AND o.order_id OPERATOR(pg_catalog.=) s.order_id "
	"AND o.paid_session_id OPERATOR(pg_catalog.=) s.session_id",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

/* the session in whose way it was has ended */
static Statement ring_waiting = {
	.sql = "UPDATE payflow.operations op SET next_action_at = pg_catalog.clock_timestamp() "
	"FROM ROWS FROM (" UNNEST_2 ") AS u(merchant, order_id) "
	"WHERE op.merchant OPERATOR(pg_catalog.=) u.merchant AND op.order_id OPERATOR(pg_catalog.=) u.order_id "
	"AND op.kind = 'accept' AND op.status = 'pending'",
	.nargs = 2,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID},
};

/*
 * Also where nothing of the order changes: a caller whose snapshot is older
 * than a status change, or than money in suspense, must get 40001 when it
 * locks the order.
 */
static Statement follow_statuses = {
	.sql = "UPDATE payflow.orders o SET updated_at = pg_catalog.clock_timestamp(), "
	"active_session_id = CASE WHEN u.ended AND o.active_session_id OPERATOR(pg_catalog.=) u.session_id "
	"THEN NULL ELSE o.active_session_id END "
	"FROM ROWS FROM (" UNNEST_4 ") AS u(merchant, order_id, session_id, ended) "
	"WHERE o.merchant OPERATOR(pg_catalog.=) u.merchant AND o.order_id OPERATOR(pg_catalog.=) u.order_id",
	.nargs = 4,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, UUIDARRAYOID, BOOLARRAYOID},
};

static const Oid follow_types[] = {TEXTOID, TEXTOID, UUIDOID, BOOLOID};

/* what an outcome means to the order */
typedef enum Step
{
	STEP_NONE,
	STEP_RECEIPT,
	STEP_ACCEPTED,
	STEP_FOLLOW,
} Step;

static Step
step_of(const PaymentRow *payment, const Effects *effects)
{
	if (effects->receipt)
		return STEP_RECEIPT;
	if (effects->accepted)
		return STEP_ACCEPTED;
	if (effects->from != payment->status || effects->order_follows || effects->findings != NIL)
		return STEP_FOLLOW;
	return STEP_NONE;
}

/*
 * Runs the statement for the payments whose step it is; every one of them must
 * have been written.
 */
static void
follow(Statement *statement, Step step, PaymentRow **payments, const Effects *effects, int n)
{
	RowSet	   *rows = rowset_make(follow_types, lengthof(follow_types), n);
	Datum		values[lengthof(follow_types)];

	for (int i = 0; i < n; i++)
	{
		if (step_of(payments[i], &effects[i]) != step)
			continue;
		put_text(rows, payments[i]->merchant);
		put_text(rows, payments[i]->order_id);
		put_uuid(rows, &payments[i]->session_id);
		put_bool(rows, status_is_final(payments[i]->status));
	}
	if (rowset_count(rows) == 0)
		return;
	rowset_arrays(rows, values);
	if (run(statement, values, NULL) != (uint64) rowset_count(rows))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("an order changed while it was locked")));
}

/* Money that waits to be the receipt of one of these orders waits no longer. */
static void
ring_accepts(PaymentRow **payments, const Effects *effects, int n)
{
	static const Oid types[] = {TEXTOID, TEXTOID};
	RowSet	   *rows = rowset_make(types, lengthof(types), n);
	Datum		values[lengthof(types)];

	for (int i = 0; i < n; i++)
	{
		if (effects[i].from == payments[i]->status || !status_is_final(payments[i]->status))
			continue;
		if (effects[i].receipt)
			continue;
		put_text(rows, payments[i]->merchant);
		put_text(rows, payments[i]->order_id);
	}
	if (rowset_count(rows) == 0)
		return;
	rowset_arrays(rows, values);
	(void) run(&ring_waiting, values, NULL);
}

static void
derive(PaymentRow **payments, const Effects *effects, int n)
{
	pg_uuid_t  *ids = palloc_array(pg_uuid_t, n);
	int			n_ids = 0;
	Datum		values[1];

	for (int i = 0; i < n; i++)
	{
		if (effects[i].order_follows)
			ids[n_ids++] = payments[i]->session_id;
	}
	if (n_ids == 0)
		return;
	values[0] = uuid_array(ids, n_ids);
	(void) run(&derive_statuses, values, NULL);
}

void
orders_follow(PaymentRow **payments, const Effects *effects, int n)
{
	follow(&take_receipts, STEP_RECEIPT, payments, effects, n);
	follow(&accept_receipts, STEP_ACCEPTED, payments, effects, n);
	follow(&follow_statuses, STEP_FOLLOW, payments, effects, n);
	ring_accepts(payments, effects, n);
	derive(payments, effects, n);
}
