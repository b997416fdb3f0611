/*-------------------------------------------------------------------------
 *
 * rowset.h
 *	  Many rows as arguments of one statement: an array a column, unnested
 *	  there again.
 *
 *	  One statement for a batch, because every execution reads the table's
 *	  CHECK constraints anew: that costs more than the row itself.
 *
 *	  rows = rowset_make(types, lengthof(types), n);
 *	  for each row: put_uuid(rows, &id); put_text(rows, name); ...
 *	  rowset_arrays(rows, values);
 *	  run(&statement, values, NULL);
 *
 * IDENTIFICATION
 *	  src/lib/rowset.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_ROWSET_H
#define PAYFLOW_ROWSET_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* inside "... ROWS FROM (" UNNEST(1) ", " UNNEST(2) ") AS r(a, b)": arrays side by side as rows */
#define UNNEST(n) "pg_catalog.unnest($" #n ")"
#define UNNEST_2 UNNEST(1) ", " UNNEST(2)
#define UNNEST_3 UNNEST_2 ", " UNNEST(3)
#define UNNEST_4 UNNEST_3 ", " UNNEST(4)
#define UNNEST_5 UNNEST_4 ", " UNNEST(5)
#define UNNEST_6 UNNEST_5 ", " UNNEST(6)
#define UNNEST_9 UNNEST_6 ", " UNNEST(7) ", " UNNEST(8) ", " UNNEST(9)
#define UNNEST_10 UNNEST_9 ", " UNNEST(10)
#define UNNEST_11 UNNEST_10 ", " UNNEST(11)
#define UNNEST_12 UNNEST_11 ", " UNNEST(12)
#define UNNEST_13 UNNEST_12 ", " UNNEST(13)
#define UNNEST_15 UNNEST_13 ", " UNNEST(14) ", " UNNEST(15)
#define UNNEST_17 UNNEST_15 ", " UNNEST(16) ", " UNNEST(17)
#define UNNEST_28 UNNEST_17 ", " UNNEST(18) ", " UNNEST(19) ", " UNNEST(20) ", " UNNEST(21) ", " UNNEST(22) ", " \
	UNNEST(23) ", " UNNEST(24) ", " UNNEST(25) ", " UNNEST(26) ", " UNNEST(27) ", " UNNEST(28)

typedef struct RowSet RowSet;

/* Room for max_rows rows of columns of these element types, in the current memory context. */
extern RowSet *rowset_make(const Oid *types, int ncolumns, int max_rows);

/*
 * The next column of the row at hand; after the last one the next row begins.
 * Null are: a NULL text, uuid or jsonb, a time of 0.
 */
extern void put_text(RowSet *rows, const char *value);
extern void put_time(RowSet *rows, TimestampTz value);
extern void put_int64(RowSet *rows, int64 value);
extern void put_int32(RowSet *rows, int32 value);
extern void put_bool(RowSet *rows, bool value);
extern void put_uuid(RowSet *rows, const pg_uuid_t *value);	/* keeps the pointer */
extern void put_jsonb(RowSet *rows, const char *value); /* of its text */
extern void put_microseconds(RowSet *rows, int64 value);	/* an interval; null below 0 */
extern void put_null(RowSet *rows);

/* How many rows are complete. */
extern int	rowset_count(const RowSet *rows);

/* Writes the columns of the i-th row to values and nulls. */
extern void rowset_row(const RowSet *rows, int i, Datum *values, bool *nulls);

/* Writes one array a column to values. */
extern void rowset_arrays(const RowSet *rows, Datum *values);

#endif							/* PAYFLOW_ROWSET_H */
