/*-------------------------------------------------------------------------
 *
 * spi.h
 *	  Statements as prepared plans, kept for the backend's life.
 *
 *	  static Statement find_it = {
 *		  .sql = "SELECT a FROM payflow.t WHERE b OPERATOR(pg_catalog.=) $1",
 *		  .nargs = 1,
 *		  .argtypes = {TEXTOID},
 *	  };
 *	  run(&find_it, values, NULL);
 *
 * IDENTIFICATION
 *	  src/lib/spi.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SPI_H
#define PAYFLOW_SPI_H

#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "utils/uuid.h"

#define STATEMENT_MAX_ARGS 48

typedef struct Statement
{
	const char *sql;			/* everything schema-qualified */
	int			nargs;
	Oid			argtypes[STATEMENT_MAX_ARGS];
	SPIPlanPtr	plan;			/* made at first use, then kept */
} Statement;

/*
 * Runs a statement inside an SPI connection and returns the number of rows.
 * nulls as for SPI_execute_plan, or NULL when no argument is null.
 *
 * run() sees what the transaction has done and, in READ COMMITTED, what others
 * have committed (a new snapshot); run_with_snapshot() sees the calling
 * statement's snapshot and may not write.
 */
extern uint64 run(Statement *statement, Datum *values, const char *nulls);
extern uint64 run_with_snapshot(Statement *statement, Datum *values, const char *nulls);

/*
 * Has all plans made anew when payment_sessions has doubled since they were
 * made: what is right for a small table is not for a large one, and nothing
 * else tells before the next ANALYZE.  Cheap; needs a transaction.
 */
extern void forget_outgrown_plans(void);

/* A column of row `row` of SPI_tuptable, counted from 1. */
extern Datum result_datum(uint64 row, int column, bool *isnull);
extern char *result_text(uint64 row, int column);	/* NULL for null; palloc'd */
extern int64 result_int64(uint64 row, int column);	/* 0 for null */
extern bool result_bool(uint64 row, int column);	/* false for null */
extern TimestampTz result_time(uint64 row, int column);	/* 0 for null */
extern bool result_uuid(uint64 row, int column, pg_uuid_t *uuid);	/* false for null */

/* An array argument without nulls; for several columns see rowset.h. */
extern Datum uuid_array(const pg_uuid_t *elements, int n);

/*
 * The owner of payflow's tables, as whom its SQL runs.  InvalidOid when the
 * extension is not in this database.
 */
extern Oid	payflow_owner(void);

#endif							/* PAYFLOW_SPI_H */
