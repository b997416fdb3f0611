/*-------------------------------------------------------------------------
 *
 * lock_order.c
 *	  lock_order(): the lock of create(), for application code that must agree
 *	  with it.
 *
 * IDENTIFICATION
 *	  src/api/lock_order.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"

#include "api/api.h"
#include "api/args.h"
#include "session/session.h"

PG_FUNCTION_INFO_V1(payflow_lock_order_text);
PG_FUNCTION_INFO_V1(payflow_lock_order_int8);
PG_FUNCTION_INFO_V1(payflow_lock_order_uuid);

static Datum
lock_order(FunctionCallInfo fcinfo, Oid type)
{
	char	   *order_id;
	char	   *merchant;
	ApiCall		call;

	require_loaded();
	order_id = arg_order_id(fcinfo, 0, type);
	merchant = arg_merchant(fcinfo, 1);

	api_enter(&call);
	require_merchant(merchant);
	lock_order_advisory(merchant, order_id);
	api_leave(&call);
	PG_RETURN_VOID();
}

Datum
payflow_lock_order_text(PG_FUNCTION_ARGS)
{
	return lock_order(fcinfo, TEXTOID);
}

Datum
payflow_lock_order_int8(PG_FUNCTION_ARGS)
{
	return lock_order(fcinfo, INT8OID);
}

Datum
payflow_lock_order_uuid(PG_FUNCTION_ARGS)
{
	return lock_order(fcinfo, UUIDOID);
}
