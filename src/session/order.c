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

static Statement lock_orders = {
	.sql = "SELECT o.merchant, o.order_id, o.status::pg_catalog.text, o.active_session_id "
	"FROM payflow.orders o "
	"WHERE (o.merchant, o.order_id) OPERATOR(pg_catalog.=) ANY ("
	"  SELECT s.merchant, s.order_id FROM payflow.payment_sessions s "
	"  WHERE s.session_id OPERATOR(pg_catalog.=) ANY ($1)) "
	"ORDER BY o.merchant, o.order_id FOR NO KEY UPDATE OF o SKIP LOCKED",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

int
lock_orders_of(const pg_uuid_t *session_ids, int n, LockedOrder *orders)
{
	Datum		values[1];
	uint64		found;

	values[0] = uuid_array(session_ids, NULL, n);
	found = run(&lock_orders, values, NULL);
	Assert(found <= (uint64) n);
	for (uint64 i = 0; i < found; i++)
	{
		orders[i].merchant = result_text(i, 1);
		orders[i].order_id = result_text(i, 2);
		orders[i].status = order_status_from_name(result_text(i, 3));
		orders[i].has_active = result_uuid(i, 4, &orders[i].active_session_id);
	}
	return (int) found;
}

/* the receipt is booked by this statement or by none: see its WHERE */
static Statement take_receipt = {
	.sql = "UPDATE payflow.orders SET status = 'paid', paid_session_id = $3, active_session_id = NULL, "
	"updated_at = pg_catalog.clock_timestamp() "
	"WHERE merchant OPERATOR(pg_catalog.=) $1 AND order_id OPERATOR(pg_catalog.=) $2 "
	"AND status OPERATOR(pg_catalog.=) 'open'::pg_catalog.text "
	"AND active_session_id OPERATOR(pg_catalog.=) $3",
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, UUIDOID},
};

/*
 * Also where nothing of the order changes: a caller whose snapshot is older
 * than a status change must get 40001 when it locks the order.
 */
static Statement follow_status = {
	.sql = "UPDATE payflow.orders SET updated_at = pg_catalog.clock_timestamp(), "
	"active_session_id = CASE WHEN $4 AND active_session_id OPERATOR(pg_catalog.=) $3 "
	"THEN NULL ELSE active_session_id END "
	"WHERE merchant OPERATOR(pg_catalog.=) $1 AND order_id OPERATOR(pg_catalog.=) $2",
	.nargs = 4,
	.argtypes = {TEXTOID, TEXTOID, UUIDOID, BOOLOID},
};

void
order_follow(const PaymentRow *payment, const Effects *effects)
{
	Datum		values[4];

	values[0] = CStringGetTextDatum(payment->merchant);
	values[1] = CStringGetTextDatum(payment->order_id);
	values[2] = UUIDPGetDatum(&payment->session_id);
	values[3] = BoolGetDatum(status_is_final(payment->status));

	if (effects->receipt)
	{
		if (run(&take_receipt, values, NULL) != 1)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("order \"%s\" of merchant \"%s\" changed while it was locked",
							payment->order_id, payment->merchant)));
	}
	else if (effects->from != payment->status)
		(void) run(&follow_status, values, NULL);
}
