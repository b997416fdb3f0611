/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  For calls of applications and operators: locks an order and a session,
 *	  waiting, and reads operations.
 *
 * IDENTIFICATION
 *	  src/session/lock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/compat.h"
#include "lib/spi.h"
#include "session/session.h"

/* the order first, then the session: the one order of locks */
static Statement lock_order_row = {
	.sql = "SELECT 1 FROM payflow.orders o "
	"WHERE (o.merchant, o.order_id) OPERATOR(pg_catalog.=) ("
	"  SELECT s.merchant, s.order_id FROM payflow.payment_sessions s "
	"  WHERE s.session_id OPERATOR(pg_catalog.=) $1) "
	"FOR NO KEY UPDATE OF o",
	.nargs = 1,
	.argtypes = {UUIDOID},
};

static Statement lock_session_row = {
	.sql = "SELECT " PAYMENT_ROW_COLUMNS " FROM " PAYMENT_ROW_FROM " "
	"WHERE s.session_id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE OF s",
	.nargs = 1,
	.argtypes = {UUIDOID},
};

static Statement read_operation = {
	.sql = "SELECT " OPERATION_ROW_COLUMNS " FROM payflow.operations op "
	"WHERE op.operation_id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {UUIDOID},
};

static Statement read_operations = {
	.sql = "SELECT " OPERATION_ROW_COLUMNS " FROM payflow.operations op "
	"WHERE op.session_id OPERATOR(pg_catalog.=) $1 ORDER BY op.created_at, op.operation_id",
	.nargs = 1,
	.argtypes = {UUIDOID},
};

PaymentRow *
session_lock(const pg_uuid_t *session_id)
{
	Datum		values[1] = {UUIDPGetDatum(session_id)};

	if (run(&lock_order_row, values, NULL) == 0 || run(&lock_session_row, values, NULL) == 0)
		return NULL;
	return payment_row_read(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
}

OperationRow *
operation_by_id(const pg_uuid_t *operation_id)
{
	Datum		values[1] = {UUIDPGetDatum(operation_id)};

	if (run(&read_operation, values, NULL) == 0)
		return NULL;
	return operation_row_read(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 0);
}

List *
operations_of_session(const pg_uuid_t *session_id)
{
	Datum		values[1] = {UUIDPGetDatum(session_id)};
	uint64		found = run(&read_operations, values, NULL);
	List	   *operations = NIL;

	for (uint64 i = 0; i < found; i++)
		operations = lappend(operations, operation_row_read(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 0));
	return operations;
}
