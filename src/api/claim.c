/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Makes the session of an order, for create().
 *
 *	  Whoever inserts around create() is met by the unique indexes of orders
 *	  and of live sessions: then nothing is claimed, and create() looks again.
 *
 * IDENTIFICATION
 *	  src/api/claim.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/claim.h"
#include "lib/compat.h"
#include "lib/spi.h"
#include "lib/uuid.h"
#include "lib/write.h"
#include "session/session.h"

/* the arguments of the statements, $1 and so on */
enum
{
	MERCHANT,
	ORDER_ID,
	AMOUNT,
	CURRENCY,
	SESSION_ID,
	PROVIDER,
	CAPTURE,
	NOW,
	RETURN_URL,
	DESCRIPTION,
	CUSTOMER,
	METADATA,
	RECEIPT,
	CLAIM_NARGS
};

#define CLAIM_ARGTYPES \
	{TEXTOID, TEXTOID, INT8OID, TEXTOID, UUIDOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, \
	TEXTOID, TEXTOID, JSONBOID, JSONBOID, JSONBOID}
#define SESSION_COLUMNS \
	"(merchant, order_id, amount, currency, session_id, provider, capture," \
	" next_action_at, created_at, updated_at, return_url, description, customer, metadata, receipt)"
#define SESSION_VALUES "$3, $4, $5, $6, $7, $8, $8, $8, $9, $10, $11, $12, $13"
#define UNLESS_ONE_IS_LIVE "ON CONFLICT (merchant, order_id) WHERE " IS_LIVE("") " DO NOTHING"

/* An order that is new: both rows at once. */
static Statement insert_both = {
	.sql = "WITH o AS ("
	"INSERT INTO payflow.orders (merchant, order_id, amount, currency, active_session_id, created_at, updated_at)"
	" VALUES ($1, $2, $3, $4, $5, $8, $8) ON CONFLICT (merchant, order_id) DO NOTHING"
	" RETURNING merchant, order_id) "
	"INSERT INTO payflow.payment_sessions " SESSION_COLUMNS
	" SELECT o.merchant, o.order_id, " SESSION_VALUES " FROM o " UNLESS_ONE_IS_LIVE,
	.nargs = CLAIM_NARGS,
	.argtypes = CLAIM_ARGTYPES
};

/* The same without a statement. */
static WriteTarget new_order = {
	.table = "orders",
	.unless_in = "orders_pkey",
	.ncolumns = 7,
	.columns = {"merchant", "order_id", "amount", "currency", "active_session_id", "created_at", "updated_at"}
};
static const uint8 order_arguments[] = {MERCHANT, ORDER_ID, AMOUNT, CURRENCY, SESSION_ID, NOW, NOW};

static WriteTarget new_session = {
	.table = "payment_sessions",
	.ncolumns = 15,
	.columns = {
		"merchant", "order_id", "amount", "currency", "session_id", "provider", "capture",
		"next_action_at", "created_at", "updated_at", "return_url", "description", "customer", "metadata", "receipt"
	}
};
static const uint8 session_arguments[] = {
	MERCHANT, ORDER_ID, AMOUNT, CURRENCY, SESSION_ID, PROVIDER, CAPTURE,
	NOW, NOW, NOW, RETURN_URL, DESCRIPTION, CUSTOMER, METADATA, RECEIPT
};

/* An order whose row is locked. */
static Statement insert_session = {
	.sql = "WITH s AS ("
	"INSERT INTO payflow.payment_sessions " SESSION_COLUMNS
	" VALUES ($1, $2, " SESSION_VALUES ") " UNLESS_ONE_IS_LIVE " RETURNING session_id) "
	"UPDATE payflow.orders o"
	" SET amount = $3, currency = $4, active_session_id = s.session_id, updated_at = $8 FROM s"
	" WHERE o.merchant OPERATOR(pg_catalog.=) $1 AND o.order_id OPERATOR(pg_catalog.=) $2",
	.nargs = CLAIM_NARGS,
	.argtypes = CLAIM_ARGTYPES
};

/*
 * The row as it will be.
 */
static PaymentRow *
new_row(const Wish *wish, const char *provider)
{
	PaymentRow *row = palloc0_object(PaymentRow);

	uuid_v7(&row->session_id, routing_slot(wish->merchant, wish->order_id));
	row->merchant = wish->merchant;
	row->order_id = wish->order_id;
	row->amount = wish->amount;
	row->currency = wish->currency;
	row->provider = pstrdup(provider);
	row->manual_capture = wish->manual_capture;
	row->status = STATUS_REGISTERING;
	row->stage = STAGE_REGISTER;
	row->created_at = GetCurrentTimestamp();
	row->next_action_at = row->created_at;
	row->updated_at = row->created_at;
	row->order_status = ORDER_OPEN;
	return row;
}

static void
set_arguments(const Wish *wish, const PaymentRow *row, Datum *values, char *nulls)
{
	values[MERCHANT] = CStringGetTextDatum(row->merchant);
	values[ORDER_ID] = CStringGetTextDatum(row->order_id);
	values[AMOUNT] = Int64GetDatum(row->amount);
	values[CURRENCY] = CStringGetTextDatum(row->currency);
	values[SESSION_ID] = UUIDPGetDatum(&row->session_id);
	values[PROVIDER] = CStringGetTextDatum(row->provider);
	values[CAPTURE] = CStringGetTextDatum(row->manual_capture ? "manual" : "automatic");
	values[NOW] = TimestampTzGetDatum(row->created_at);
	values[RETURN_URL] = wish->return_url == NULL ? (Datum) 0 : CStringGetTextDatum(wish->return_url);
	values[DESCRIPTION] = wish->description == NULL ? (Datum) 0 : CStringGetTextDatum(wish->description);
	values[CUSTOMER] = wish->customer;
	values[METADATA] = wish->metadata;
	values[RECEIPT] = wish->receipt;
	memset(nulls, ' ', CLAIM_NARGS);
	nulls[CLAIM_NARGS] = '\0';
	for (int i = RETURN_URL; i < CLAIM_NARGS; i++)
	{
		if (values[i] == (Datum) 0)
			nulls[i] = 'n';
	}
}

static bool
insert_arguments(WriteTarget *target, const uint8 *arguments, const Datum *values, const char *nulls)
{
	Datum		row_values[WRITE_MAX_COLUMNS];
	bool		row_nulls[WRITE_MAX_COLUMNS];

	for (int i = 0; i < target->ncolumns; i++)
	{
		row_values[i] = values[arguments[i]];
		row_nulls[i] = nulls[arguments[i]] == 'n';
	}
	return insert_row(target, row_values, row_nulls);
}

/*
 * Does what insert_both does, both tables being open.  It is an error when a
 * live session is there although the order was not: the foreign key does not
 * allow that.
 */
static bool
insert_both_rows(const Datum *values, const char *nulls)
{
	bool		inserted;

	StaticAssertStmt(lengthof(order_arguments) <= WRITE_MAX_COLUMNS &&
					 lengthof(session_arguments) <= WRITE_MAX_COLUMNS, "a row has too many columns");
	Assert(new_order.ncolumns == lengthof(order_arguments));
	Assert(new_session.ncolumns == lengthof(session_arguments));

	write_begin();
	inserted = insert_arguments(&new_order, order_arguments, values, nulls) &&
		insert_arguments(&new_session, session_arguments, values, nulls);
	write_end();
	return inserted;
}

PaymentRow *
claim_new_order(const Wish *wish, const char *provider)
{
	PaymentRow *row = new_row(wish, provider);
	Datum		values[CLAIM_NARGS];
	char		nulls[CLAIM_NARGS + 1];
	bool		order_open;
	bool		session_open;
	bool		claimed;

	set_arguments(wish, row, values, nulls);
	order_open = insert_open(&new_order);
	session_open = insert_open(&new_session);
	if (order_open && session_open)
		claimed = insert_both_rows(values, nulls);
	else
		claimed = run(&insert_both, values, nulls) > 0;
	if (session_open)
		write_close(&new_session);
	if (order_open)
		write_close(&new_order);
	return claimed ? row : NULL;
}

PaymentRow *
claim_known_order(const Wish *wish, const char *provider)
{
	PaymentRow *row = new_row(wish, provider);
	Datum		values[CLAIM_NARGS];
	char		nulls[CLAIM_NARGS + 1];

	set_arguments(wish, row, values, nulls);
	return run(&insert_session, values, nulls) > 0 ? row : NULL;
}
