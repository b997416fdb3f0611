/*-------------------------------------------------------------------------
 *
 * create.c
 *	  create(): claims an order for a payment session, or returns the one that
 *	  runs.
 *
 *	  A replay is one look that locks nothing and writes nothing.  Only on a
 *	  miss the order is locked and looked at again: the advisory lock lets
 *	  those who create for one order queue up, the lock of the order's row
 *	  shuts out the workers, and the unique index of live sessions stands
 *	  behind both for those who insert around this function.
 *
 *	  A snapshot that is older than somebody's commit never gives a second
 *	  session: whatever ends or makes a session also updates its order's row,
 *	  so above READ COMMITTED the server raises 40001.
 *
 * IDENTIFICATION
 *	  src/api/create.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_foreign_server.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "api/api.h"
#include "api/args.h"
#include "api/claim.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "lib/lookup.h"
#include "lib/spi.h"
#include "provider/provider.h"
#include "session/session.h"

/* the live session of an order, and what is known beside it */
typedef struct Look
{
	PaymentRow *running;		/* NULL: none */
	bool		merchant_enabled;
	char	   *default_provider;
	bool		order_open;
	bool		money_in_suspense;
} Look;

static Lookup merchant_by_id = {
	.table = "merchants",
	.index = "merchants_pkey",
	.nkeys = 1,
	.ncolumns = 2,
	.columns = {"enabled", "default_provider"}
};

static Statement lock_orders_row = {
	.sql = "SELECT FROM payflow.orders o"
	" WHERE o.merchant OPERATOR(pg_catalog.=) $1 AND o.order_id OPERATOR(pg_catalog.=) $2"
	" FOR NO KEY UPDATE",
	.nargs = 2,
	.argtypes = {TEXTOID, TEXTOID}
};

/*
 * Money in suspense waits for a decision unless a refund moves it; what
 * came in another currency is known by its open discrepancy.
 */
static Statement look_again = {
	.sql = "SELECT " PAYMENT_ROW_COLUMNS ", o.status::pg_catalog.text OPERATOR(pg_catalog.=) 'open', EXISTS ("
	"SELECT FROM payflow.payment_sessions x"
	" WHERE x.merchant OPERATOR(pg_catalog.=) o.merchant AND x.order_id OPERATOR(pg_catalog.=) o.order_id"
	" AND (x.suspense_amount OPERATOR(pg_catalog.>) COALESCE((SELECT pg_catalog.sum(p.amount)"
	" FROM payflow.operations p WHERE p.session_id OPERATOR(pg_catalog.=) x.session_id"
	" AND p.currency OPERATOR(pg_catalog.=) x.currency AND p.source OPERATOR(pg_catalog.=) 'suspense'"
	" AND p.status IN ('pending', 'sent', 'unknown')), 0)"
	" OR EXISTS (SELECT FROM payflow.discrepancies d"
	" WHERE d.session_id OPERATOR(pg_catalog.=) x.session_id AND d.status OPERATOR(pg_catalog.=) 'open'"
	" AND d.amount IS NOT NULL)))"
	" FROM payflow.orders o"
	" JOIN payflow.merchants m ON m.id OPERATOR(pg_catalog.=) o.merchant"
	" LEFT JOIN payflow.payment_sessions s ON s.merchant OPERATOR(pg_catalog.=) o.merchant"
	" AND s.order_id OPERATOR(pg_catalog.=) o.order_id AND " IS_LIVE("s.")
	" WHERE o.merchant OPERATOR(pg_catalog.=) $1 AND o.order_id OPERATOR(pg_catalog.=) $2",
	.nargs = 2,
	.argtypes = {TEXTOID, TEXTOID}
};

PG_FUNCTION_INFO_V1(payflow_create_text);
PG_FUNCTION_INFO_V1(payflow_create_int8);
PG_FUNCTION_INFO_V1(payflow_create_uuid);

static void
read_wish(FunctionCallInfo fcinfo, Oid id_type, Wish *wish)
{
	if (!PG_ARGISNULL(4))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("idempotency keys are not supported yet"),
				 errhint("Leave idempotency_key out: the same call for the same order returns the running session.")));

	wish->order_id = arg_order_id(fcinfo, 0, id_type);
	wish->amount = arg_amount(fcinfo, 1);
	wish->currency = arg_currency(fcinfo, 2);
	wish->provider = arg_text(fcinfo, 3);
	wish->merchant = arg_merchant(fcinfo, 5);
	wish->manual_capture = arg_manual_capture(fcinfo, 6);
	wish->return_url = arg_return_url(fcinfo, 7);
	wish->description = arg_description(fcinfo, 8);
	wish->customer = arg_customer(fcinfo, 9);
	wish->metadata = arg_json_object(fcinfo, 10, "metadata");
	wish->receipt = arg_json_object(fcinfo, 11, "receipt");
}

static void
look_at_merchant(const Wish *wish, Look *look, Snapshot snapshot)
{
	Datum		key = CStringGetTextDatum(wish->merchant);
	bool		isnull;

	if (!lookup_begin(&merchant_by_id, &key, snapshot))
		merchant_not_found(wish->merchant);
	look->merchant_enabled = DatumGetBool(lookup_datum(&merchant_by_id, 0, &isnull));
	look->default_provider = lookup_text(&merchant_by_id, 1);
	lookup_end(&merchant_by_id);
}

/*
 * Sees what a statement of a volatile function would see.  A session that runs
 * has a merchant: nobody deletes one.
 */
static void
first_look(const Wish *wish, Look *look)
{
	Snapshot	snapshot;

	CommandCounterIncrement();
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	look->running = running_session(wish->merchant, wish->order_id, snapshot);
	if (look->running == NULL)
		look_at_merchant(wish, look, snapshot);
	UnregisterSnapshot(snapshot);
}

/*
 * Locks the order's row, then looks with a snapshot taken afterwards: one
 * statement for both would see a session as it was before the wait.
 */
static bool
locked_look(const Wish *wish, Look *look)
{
	Datum		values[2];
	bool		isnull;

	values[0] = CStringGetTextDatum(wish->merchant);
	values[1] = CStringGetTextDatum(wish->order_id);
	if (run(&lock_orders_row, values, NULL) == 0 ||
		run(&look_again, values, NULL) == 0)
		return false;
	(void) result_datum(0, 1, &isnull);
	look->running = isnull ? NULL : payment_row_read(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
	look->order_open = result_bool(0, PAYMENT_ROW_NCOLUMNS + 1);
	look->money_in_suspense = result_bool(0, PAYMENT_ROW_NCOLUMNS + 2);
	return true;
}

pg_noreturn static void
must_retry(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to a concurrent payment of the same order"),
			 errhint("The transaction might succeed if retried.")));
}

/*
 * Above READ COMMITTED the snapshot may show a session as running that has
 * ended since: to return it would hide what has become of the order.
 */
static void
require_still_running(const PaymentRow *running)
{
	if (IsolationUsesXactSnapshot() && status_is_final(read_latest(&running->session_id).status))
		must_retry();
}

/*
 * Raises parameters_differ unless the running session is what the caller
 * wishes.
 */
static void
require_same(const Wish *wish, const PaymentRow *running)
{
	const struct
	{
		const char *name;
		bool		differs;
	}			parameters[] = {
		{"amount", wish->amount != running->amount},
		{"currency", strcmp(wish->currency, running->currency) != 0},
		{"provider", wish->provider != NULL && strcmp(wish->provider, running->provider) != 0},
		{"capture", wish->manual_capture != running->manual_capture},
	};
	StringInfoData names;

	initStringInfo(&names);
	for (size_t i = 0; i < lengthof(parameters); i++)
	{
		if (parameters[i].differs)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", parameters[i].name);
	}
	if (names.len == 0)
		return;

	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "parameters_differ"),
			 errmsg("the running payment of order \"%s\" has another %s", brief(wish->order_id), names.data),
			 errhint("Pass the running payment's own parameters to get it back, or wait until it has ended.")));
}

/*
 * The name of the provider that a new session goes to, after all that may
 * speak against it.
 */
static char *
choose_provider(const Wish *wish, const Look *look, Oid caller)
{
	const char *name = wish->provider != NULL ? wish->provider : look->default_provider;
	const Provider *provider;
	Oid			serverid;
	bool		currency_supported;
	char	   *result;

	if (name == NULL)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_NOT_FOUND, "provider_not_found"),
				 errmsg("no provider was given, and merchant \"%s\" has no default_provider",
						brief(wish->merchant)),
				 errhint("Pass the name of a foreign server as provider, or set the merchant's default_provider.")));

	provider = provider_by_name(name);
	if (provider == NULL)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_NOT_FOUND, "provider_not_found"),
				 errmsg("provider \"%s\" does not exist", brief(name)),
				 errhint("A provider is a foreign server of one of payflow's wrappers: see \\des, and CREATE SERVER.")));

	/* nothing of the cached provider is used after this */
	result = pstrdup(provider->name);
	serverid = provider->serverid;
	currency_supported = provider->driver->supports_currency(wish->currency);

	if (foreign_server_aclcheck(serverid, caller, ACL_USAGE) != ACLCHECK_OK)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_FORBIDDEN, "provider_not_allowed"),
				 errmsg("role \"%s\" may not create payments with provider \"%s\"",
						GetUserNameFromId(caller, false), result),
				 errhint("Run GRANT USAGE ON FOREIGN SERVER %s TO %s.",
						 quote_identifier(result), quote_identifier(GetUserNameFromId(caller, false)))));
	if (!currency_supported)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "currency_not_supported"),
				 errmsg("provider \"%s\" does not take payments in %s", result, wish->currency),
				 errhint("Choose another currency or another provider.")));
	return result;
}

static void
require_payable(const Wish *wish, const Look *look)
{
	if (!look->order_open)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "order_already_paid"),
				 errmsg("order \"%s\" has been paid already", brief(wish->order_id)),
				 errhint("An order is paid once, also if it was refunded: use a new order id.")));
	if (look->money_in_suspense)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "money_in_suspense"),
				 errmsg("unexpected money for order \"%s\" waits for a decision", brief(wish->order_id)),
				 errhint("Until somebody has decided about it, only a new order id can be paid: see payflow.discrepancies.")));
}

/*
 * No running session was seen: locks the order and makes one, unless there is
 * one by now (*replayed).
 */
static PaymentRow *
create_session(const Wish *wish, const char *provider, bool *replayed)
{
	PaymentRow *row;
	Look		look;

	*replayed = false;
	lock_order_advisory(wish->merchant, wish->order_id);
	row = claim_new_order(wish, provider);
	if (row != NULL)
		return row;

	if (locked_look(wish, &look))
	{
		if (look.running == NULL)
		{
			require_payable(wish, &look);
			row = claim_known_order(wish, provider);
			if (row != NULL)
				return row;
			/* somebody has inserted one around this function meanwhile */
			(void) locked_look(wish, &look);
		}
		if (look.running != NULL)
		{
			require_same(wish, look.running);
			*replayed = true;
			return look.running;
		}
	}

	must_retry();
}

static Datum
create_payment(FunctionCallInfo fcinfo, Oid id_type)
{
	Wish		wish;
	Look		look;
	ApiCall		call;
	PaymentRow *row;
	bool		replayed = true;
	Datum		result;

	require_loaded();
	read_wish(fcinfo, id_type, &wish);

	api_enter(&call);
	first_look(&wish, &look);
	row = look.running;
	if (row != NULL)
	{
		require_still_running(row);
		require_same(&wish, row);
	}
	else
	{
		PreventCommandIfReadOnly("payflow.create()");
		if (!look.merchant_enabled)
			ereport(ERROR,
					(payflow_error(ERRCODE_PAYFLOW_FORBIDDEN, "merchant_disabled"),
					 errmsg("merchant \"%s\" is disabled", brief(wish.merchant)),
					 errhint("No new payments are taken until payflow.merchants.enabled is true again.")));
		api_pin_search_path(&call);
		row = create_session(&wish, choose_provider(&wish, &look, call.caller), &replayed);
		api_unpin_search_path(&call);
	}
	result = payment_datum(fcinfo, &call, row, replayed, http_status_of(row));
	api_leave(&call);
	return result;
}

Datum
payflow_create_text(PG_FUNCTION_ARGS)
{
	return create_payment(fcinfo, TEXTOID);
}

Datum
payflow_create_int8(PG_FUNCTION_ARGS)
{
	return create_payment(fcinfo, INT8OID);
}

Datum
payflow_create_uuid(PG_FUNCTION_ARGS)
{
	return create_payment(fcinfo, UUIDOID);
}
