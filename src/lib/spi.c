/*-------------------------------------------------------------------------
 *
 * spi.c
 *	  Statements as prepared plans, readers of results, builders of arrays.
 *
 * IDENTIFICATION
 *	  src/lib/spi.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/spi.h"

static void
prepare(Statement *statement)
{
	SPIPlanPtr	plan;

	/* one plan for all values: planning again would cost more than it could win */
	plan = SPI_prepare_cursor(statement->sql, statement->nargs, statement->argtypes, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "could not prepare statement: %s", SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "could not keep statement");
	statement->plan = plan;
}

/*
 * Runs it for the first time, or for the first time since something has made
 * its plan stale.  A plan that is made while a table is small must not scan it
 * when it is large.
 */
static int
plan_and_execute(Statement *statement, Datum *values, const char *nulls, bool read_only)
{
	int			settings_level = NewGUCNestLevel();
	int			result;

	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	/* a scan that cannot be avoided seems dear by that, and would be compiled each time */
	(void) set_config_option("jit", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (statement->plan == NULL)
		prepare(statement);
	result = SPI_execute_plan(statement->plan, values, nulls, read_only, 0);
	AtEOXact_GUC(true, settings_level);
	return result;
}

static uint64
execute(Statement *statement, Datum *values, const char *nulls, bool read_only)
{
	int			result;

	if (statement->plan == NULL || !SPI_plan_is_valid(statement->plan))
		result = plan_and_execute(statement, values, nulls, read_only);
	else
		result = SPI_execute_plan(statement->plan, values, nulls, read_only, 0);
	if (result < 0)
		elog(ERROR, "could not execute statement: %s", SPI_result_code_string(result));
	return SPI_processed;
}

uint64
run(Statement *statement, Datum *values, const char *nulls)
{
	return execute(statement, values, nulls, false);
}

uint64
run_with_snapshot(Statement *statement, Datum *values, const char *nulls)
{
	return execute(statement, values, nulls, true);
}

/* of payment_sessions, below which its size makes no difference */
#define SMALL_TABLE_BLOCKS 4

void
forget_outgrown_plans(void)
{
	static BlockNumber blocks_planned = 0;
	Oid			schema = get_namespace_oid("payflow", true);
	Oid			relid = OidIsValid(schema) ? get_relname_relid("payment_sessions", schema) : InvalidOid;
	Relation	relation;
	BlockNumber blocks;

	if (!OidIsValid(relid))
		return;
	relation = table_open(relid, AccessShareLock);
	blocks = RelationGetNumberOfBlocks(relation);
	table_close(relation, AccessShareLock);

	if (blocks <= SMALL_TABLE_BLOCKS || blocks / 2 < blocks_planned)
		return;
	blocks_planned = blocks;
	ResetPlanCache();
}

Datum
result_datum(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

char *
result_text(uint64 row, int column)
{
	bool		isnull;
	Datum		value = result_datum(row, column, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

int64
result_int64(uint64 row, int column)
{
	bool		isnull;
	Datum		value = result_datum(row, column, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

bool
result_bool(uint64 row, int column)
{
	bool		isnull;
	Datum		value = result_datum(row, column, &isnull);

	return isnull ? false : DatumGetBool(value);
}

TimestampTz
result_time(uint64 row, int column)
{
	bool		isnull;
	Datum		value = result_datum(row, column, &isnull);

	return isnull ? 0 : DatumGetTimestampTz(value);
}

bool
result_uuid(uint64 row, int column, pg_uuid_t *uuid)
{
	bool		isnull;
	Datum		value = result_datum(row, column, &isnull);

	if (!isnull)
		*uuid = *DatumGetUUIDP(value);
	return !isnull;
}

Datum
uuid_array(const pg_uuid_t *elements, int n)
{
	Datum	   *values = palloc_array(Datum, n);

	for (int i = 0; i < n; i++)
		values[i] = UUIDPGetDatum(&elements[i]);
	return PointerGetDatum(construct_array(values, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
}

Oid
payflow_owner(void)
{
	Oid			schema = get_namespace_oid("payflow", true);
	Oid			relation;
	HeapTuple	tuple;
	Oid			owner = InvalidOid;

	if (!OidIsValid(schema))
		return InvalidOid;
	relation = get_relname_relid("payment_sessions", schema);
	if (!OidIsValid(relation))
		return InvalidOid;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}
