/*-------------------------------------------------------------------------
 *
 * lock_batch.c
 *	  For workers: locks the orders and sessions of a batch, without waiting.
 *
 *	  All orders first, then all sessions.  What somebody else holds is left
 *	  out.
 *
 * IDENTIFICATION
 *	  src/session/lock_batch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "lib/compat.h"
#include "lib/rowset.h"
#include "lib/spi.h"
#include "lib/tuple_reader.h"
#include "session/decide.h"

static Statement lock_sessions = {
	.sql = "SELECT " SESSION_ROW_COLUMNS " FROM " SESSION_ROW_FROM " "
	"WHERE s.session_id OPERATOR(pg_catalog.=) ANY ($1) "
	"ORDER BY s.session_id FOR NO KEY UPDATE OF s SKIP LOCKED",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

static Statement sessions_exist = {
	.sql = "SELECT session_id FROM payflow.payment_sessions WHERE session_id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

static Statement read_timeouts = {
	.sql = "SELECT m.id, m.form_timeout, m.return_timeout, m.authentication_timeout "
	"FROM payflow.merchants m WHERE m.id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 1,
	.argtypes = {TEXTARRAYOID},
};

/* ---- merchants ---- */

/*
 * Gives the payments of one merchant, which the row is of, its timeouts.
 */
static void
give_timeouts(uint64 row, LockedPair *pairs, int n)
{
	TupleReader reader = read_tuple(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 0);
	const char *merchant = next_text(&reader);
	Interval   *form = next_interval(&reader);
	Interval   *payer_return = next_interval(&reader);
	Interval   *authentication = next_interval(&reader);

	for (int i = 0; i < n; i++)
	{
		PaymentRow *payment = pairs[i].payment;

		if (payment == NULL || strcmp(payment->merchant, merchant) != 0)
			continue;
		payment->form_timeout = form;
		payment->return_timeout = payer_return;
		payment->authentication_timeout = authentication;
	}
}

/*
 * The orders are in the order of their merchants, so each is named once.
 */
static void
read_merchants(const LockedOrder *orders, int n_orders, LockedPair *pairs, int n)
{
	static const Oid types[] = {TEXTOID};
	RowSet	   *rows = rowset_make(types, lengthof(types), n_orders);
	Datum		values[lengthof(types)];
	uint64		found;

	for (int i = 0; i < n_orders; i++)
	{
		if (i == 0 || strcmp(orders[i].merchant, orders[i - 1].merchant) != 0)
			put_text(rows, orders[i].merchant);
	}
	if (rowset_count(rows) == 0)
		return;
	rowset_arrays(rows, values);
	found = run(&read_timeouts, values, NULL);
	for (uint64 row = 0; row < found; row++)
		give_timeouts(row, pairs, n);
}

/* ---- sessions ---- */

static int
compare_pairs(const void *a, const void *b)
{
	const LockedPair *x = a;
	const LockedPair *y = b;
	int			result = memcmp(&x->session_id, &y->session_id, UUID_LEN);

	/* of several about one session the first comes first */
	return result != 0 ? result : x->outcome - y->outcome;
}

/* for bsearch: a payment, an order */
static int
compare_to_order(const void *key, const void *element)
{
	const PaymentRow *payment = key;

	return -order_key_compare(element, payment->merchant, payment->order_id);
}

/*
 * Reads what the statement before has locked; both it and the pairs are in the
 * order of session ids.
 */
static void
read_sessions(uint64 found, LockedOrder *orders, int n_orders, LockedPair *pairs, int n)
{
	int			at = 0;

	for (uint64 row = 0; row < found; row++)
	{
		PaymentRow *payment = payment_row_read(SPI_tuptable->vals[row], SPI_tuptable->tupdesc);
		LockedOrder *order = bsearch(payment, orders, n_orders, sizeof(LockedOrder), compare_to_order);

		while (at < n && memcmp(&pairs[at].session_id, &payment->session_id, UUID_LEN) < 0)
			at++;
		for (; at < n && memcmp(&pairs[at].session_id, &payment->session_id, UUID_LEN) == 0; at++)
		{
			pairs[at].payment = payment;
			pairs[at].order = order;
		}
	}
}

static bool
session_exists(const pg_uuid_t *session_id)
{
	Datum		values[1] = {uuid_array(session_id, 1)};

	return run(&sessions_exist, values, NULL) > 0;
}

void
lock_pairs(Outcome **outcomes, int n, LockedPair *pairs)
{
	LockedOrder *orders = palloc_array(LockedOrder, n);
	pg_uuid_t  *ids = palloc_array(pg_uuid_t, n);
	Datum		values[1];
	int			n_orders;

	memset(pairs, 0, sizeof(LockedPair) * n);
	for (int i = 0; i < n; i++)
	{
		pairs[i].session_id = ids[i] = outcomes[i]->session_id;
		pairs[i].outcome = i;
	}
	qsort(pairs, n, sizeof(LockedPair), compare_pairs);

	n_orders = lock_orders_of(outcomes, n, orders);
	values[0] = uuid_array(ids, n);
	read_sessions(run(&lock_sessions, values, NULL), orders, n_orders, pairs, n);
	read_merchants(orders, n_orders, pairs, n);

	for (int i = 0; i < n; i++)
	{
		if (pairs[i].payment == NULL)
			pairs[i].gone = !session_exists(&pairs[i].session_id);
	}
}
