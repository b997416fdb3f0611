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
#include "lib/tuple_reader.h"
#include "lib/write.h"
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
	.sql = "SELECT o.merchant, o.order_id, o.status::pg_catalog.text, o.active_session_id, o.paid_session_id, "
	"o.amount::pg_catalog.int8, o.currency::pg_catalog.text, o.ctid "
	"FROM ROWS FROM (" UNNEST_2 ") AS k(merchant, order_id) "
	"CROSS JOIN LATERAL (SELECT r.merchant, r.order_id, r.status, r.active_session_id, r.paid_session_id, r.amount, "
	"  r.currency, r.ctid FROM payflow.orders r "
	"  WHERE r.merchant OPERATOR(pg_catalog.=) k.merchant AND r.order_id OPERATOR(pg_catalog.=) k.order_id "
	"  FOR NO KEY UPDATE SKIP LOCKED) o",
	.nargs = 2,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID},
};

/* as the keys' columns are sorted: by their bytes */
static int
compare_orders(const void *a, const void *b)
{
	return order_key_compare((const LockedOrder *) a, ((const LockedOrder *) b)->merchant,
							 ((const LockedOrder *) b)->order_id);
}

int
order_key_compare(const LockedOrder *order, const char *merchant, const char *order_id)
{
	int			result = strcmp(order->merchant, merchant);

	return result != 0 ? result : strcmp(order->order_id, order_id);
}

int
lock_orders_of(Outcome **outcomes, int n, LockedOrder *orders)
{
	static const Oid types[] = {TEXTOID, TEXTOID};
	RowSet	   *rows = rowset_make(types, lengthof(types), n);
	Datum		values[lengthof(types)];
	uint64		found;

	for (int i = 0; i < n; i++)
	{
		orders[i].merchant = unconstify(char *, outcomes[i]->merchant);
		orders[i].order_id = unconstify(char *, outcomes[i]->order_id);
	}
	qsort(orders, n, sizeof(LockedOrder), compare_orders);
	for (int i = 0; i < n; i++)
	{
		if (i > 0 && compare_orders(&orders[i], &orders[i - 1]) == 0)
			continue;
		put_text(rows, orders[i].merchant);
		put_text(rows, orders[i].order_id);
	}
	rowset_arrays(rows, values);
	found = run(&lock_orders, values, NULL);
	Assert(found <= (uint64) n);
	for (uint64 i = 0; i < found; i++)
	{
		TupleReader reader = read_tuple(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 0);
		LockedOrder *order = &orders[i];

		order->merchant = next_text(&reader);
		order->order_id = next_text(&reader);
		order->status = order_status_from_name(next_text(&reader));
		order->has_active = next_uuid(&reader, &order->active_session_id);
		order->has_paid = next_uuid(&reader, &order->paid_session_id);
		order->amount = next_int64(&reader);
		order->currency = next_text(&reader);
		next_tid(&reader, &order->tid);
		order->in_use = false;
	}
	return (int) found;
}

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

static Statement write_orders = {
	.sql = "UPDATE payflow.orders o SET status = u.status, active_session_id = u.active_session_id, "
	"paid_session_id = u.paid_session_id, updated_at = u.updated_at "
	"FROM ROWS FROM (" UNNEST_6 ") "
	"AS u(merchant, order_id, status, active_session_id, paid_session_id, updated_at) "
	"WHERE o.merchant OPERATOR(pg_catalog.=) u.merchant AND o.order_id OPERATOR(pg_catalog.=) u.order_id",
	.nargs = 6,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, UUIDARRAYOID, UUIDARRAYOID, TIMESTAMPTZARRAYOID},
};

static const Oid order_types[] = {TEXTOID, TEXTOID, TEXTOID, UUIDOID, UUIDOID, TIMESTAMPTZOID};

/* The same without a statement; the key is not written. */
#define ORDER_KEY_COLUMNS 2

static WriteTarget written_order = {
	.table = "orders",
	.ncolumns = lengthof(order_types) - ORDER_KEY_COLUMNS,
	.columns = {"status", "active_session_id", "paid_session_id", "updated_at"}
};

/*
 * Also where nothing of the order changes: a caller whose snapshot is older
 * than a status change, or than money in suspense, must get 40001 when it
 * locks the order.
 */
static bool
order_is_touched(const PaymentRow *payment, const Effects *effects)
{
	return effects->from != payment->status || effects->receipt || effects->accepted ||
		effects->order_follows || effects->findings != NIL;
}

static void
end_active(LockedOrder *order, const PaymentRow *payment)
{
	if (order->has_active && status_is_final(payment->status) &&
		memcmp(&order->active_session_id, &payment->session_id, UUID_LEN) == 0)
		order->has_active = false;
}

static void
put_order(RowSet *rows, const LockedOrder *order, TimestampTz now)
{
	put_text(rows, order->merchant);
	put_text(rows, order->order_id);
	put_text(rows, order_status_name(order->status));
	put_uuid(rows, order->has_active ? &order->active_session_id : NULL);
	put_uuid(rows, order->has_paid ? &order->paid_session_id : NULL);
	put_time(rows, now);
}

static void
write_orders_touched(LockedOrder **touched, int n)
{
	RowSet	   *rows = rowset_make(order_types, lengthof(order_types), n);
	Datum		values[lengthof(order_types)];
	bool		nulls[lengthof(order_types)];
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < n; i++)
		put_order(rows, touched[i], now);
	if (n == 0)
		return;
	if (!update_open(&written_order))
	{
		rowset_arrays(rows, values);
		if (run(&write_orders, values, NULL) != (uint64) n)
			elog(ERROR, "a locked order could not be updated");
		return;
	}
	write_begin();
	for (int i = 0; i < n; i++)
	{
		rowset_row(rows, i, values, nulls);
		update_row(&written_order, &touched[i]->tid, values + ORDER_KEY_COLUMNS, nulls + ORDER_KEY_COLUMNS);
	}
	write_end();
	write_close(&written_order);
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
orders_follow(PaymentRow **payments, LockedOrder **orders, const Effects *effects, int n)
{
	LockedOrder **touched = palloc_array(LockedOrder *, n);
	int			n_touched = 0;

	for (int i = 0; i < n; i++)
	{
		if (!order_is_touched(payments[i], &effects[i]))
			continue;
		end_active(orders[i], payments[i]);
		touched[n_touched++] = orders[i];
	}
	write_orders_touched(touched, n_touched);
	ring_accepts(payments, effects, n);
	derive(payments, effects, n);
}
