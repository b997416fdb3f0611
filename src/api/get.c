/*-------------------------------------------------------------------------
 *
 * get.c
 *	  Reading payments: get() and find().
 *
 * IDENTIFICATION
 *	  src/api/get.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "api/api.h"
#include "api/args.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "lib/spi.h"
#include "lib/uuid.h"

static Statement payment_by_id = {
	.sql = "SELECT " PAYMENT_ROW_COLUMNS " FROM " PAYMENT_ROW_FROM
	" WHERE s.session_id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {UUIDOID}
};

static Statement payments_of_order = {
	.sql = "SELECT " PAYMENT_ROW_COLUMNS " FROM " PAYMENT_ROW_FROM
	" WHERE s.merchant OPERATOR(pg_catalog.=) $1 AND s.order_id OPERATOR(pg_catalog.=) $2"
	" ORDER BY s.created_at DESC, s.session_id DESC",
	.nargs = 2,
	.argtypes = {TEXTOID, TEXTOID}
};

static Statement merchant_by_id = {
	.sql = "SELECT FROM payflow.merchants m WHERE m.id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {TEXTOID}
};

PG_FUNCTION_INFO_V1(payflow_get);
PG_FUNCTION_INFO_V1(payflow_find_text);
PG_FUNCTION_INFO_V1(payflow_find_int8);
PG_FUNCTION_INFO_V1(payflow_find_uuid);

void
session_not_found(const pg_uuid_t *session_id)
{
	char		text[UUID_TEXT_SIZE];

	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_NOT_FOUND, "session_not_found"),
			 errmsg("payment session %s does not exist", uuid_to_text(session_id, text)),
			 errhint("Pass the session_id that payflow.create() returned, or look the order up with payflow.find().")));
}

void
merchant_not_found(const char *merchant)
{
	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_NOT_FOUND, "merchant_not_found"),
			 errmsg("merchant \"%s\" does not exist", brief(merchant)),
			 errhint("Merchants are the rows of payflow.merchants.")));
}

PaymentRow *
read_payment(const pg_uuid_t *session_id)
{
	Datum		values[1] = {UUIDPGetDatum(session_id)};

	if (run(&payment_by_id, values, NULL) == 0)
		session_not_found(session_id);
	return payment_row_read(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
}

void
require_merchant(const char *merchant)
{
	Datum		values[1] = {CStringGetTextDatum(merchant)};

	if (run(&merchant_by_id, values, NULL) == 0)
		merchant_not_found(merchant);
}

Datum
payflow_get(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *session_id;
	ApiCall		call;
	PaymentRow *row;
	Datum		result;

	require_loaded();
	session_id = arg_session_id(fcinfo, 0);

	api_enter(&call);
	row = read_payment(session_id);
	result = payment_datum(fcinfo, &call, row, false, http_status_of(row));
	api_leave(&call);
	return result;
}

/*
 * No rows for an order that nobody has asked to have paid; a merchant that
 * does not exist is a mistake of the caller.
 */
static Datum
find(FunctionCallInfo fcinfo, Oid type)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *order_id;
	char	   *merchant;
	ApiCall		call;
	Datum		values[2];
	SPITupleTable *found;
	uint64		n;

	require_loaded();
	order_id = arg_order_id(fcinfo, 0, type);
	merchant = arg_merchant(fcinfo, 1);
	InitMaterializedSet(fcinfo);

	api_enter(&call);
	values[0] = CStringGetTextDatum(merchant);
	values[1] = CStringGetTextDatum(order_id);
	n = run(&payments_of_order, values, NULL);
	found = SPI_tuptable;
	for (uint64 i = 0; i < n; i++)
	{
		PaymentRow *row = payment_row_read(found->vals[i], found->tupdesc);
		HeapTuple	tuple = payment_tuple(fcinfo, row, false, http_status_of(row));

		tuplestore_puttuple(rsinfo->setResult, tuple);
	}
	if (n == 0)
		require_merchant(merchant);
	api_leave(&call);
	return (Datum) 0;
}

Datum
payflow_find_text(PG_FUNCTION_ARGS)
{
	return find(fcinfo, TEXTOID);
}

Datum
payflow_find_int8(PG_FUNCTION_ARGS)
{
	return find(fcinfo, INT8OID);
}

Datum
payflow_find_uuid(PG_FUNCTION_ARGS)
{
	return find(fcinfo, UUIDOID);
}
