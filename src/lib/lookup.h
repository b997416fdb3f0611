/*-------------------------------------------------------------------------
 *
 * lookup.h
 *	  One row of a table by a unique index, without a statement.
 *
 *	  What a statement costs before it reads anything is many times what the
 *	  reading costs.  For calls that do nothing else, and very often.
 *
 *	  static Lookup order = {
 *		  .table = "orders", .index = "orders_pkey", .nkeys = 2,
 *		  .columns = {"status"}, .ncolumns = 1,
 *	  };
 *	  if (lookup_begin(&order, keys, snapshot))
 *		  status = lookup_text(&order, 0);
 *	  lookup_end(&order);
 *
 * IDENTIFICATION
 *	  src/lib/lookup.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_LOOKUP_H
#define PAYFLOW_LOOKUP_H

#include "access/genam.h"
#include "executor/tuptable.h"
#include "utils/snapshot.h"

#define LOOKUP_MAX_COLUMNS 32

typedef struct Lookup
{
	const char *table;			/* of schema payflow */
	const char *index;			/* its unique index, also a partial one */
	int			nkeys;			/* the index's columns, all of them text */
	int			ncolumns;
	const char *columns[LOOKUP_MAX_COLUMNS];
	/* where the columns are, kept until the table is changed */
	Oid			relid;
	uint64		known_at;
	AttrNumber	attnums[LOOKUP_MAX_COLUMNS];
	/* from begin to end */
	Relation	relation;
	Relation	index_relation;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} Lookup;

/*
 * Finds the row that the snapshot shows.  The transaction keeps a lock on the
 * table as after a SELECT.
 */
extern bool lookup_begin(Lookup *lookup, const Datum *keys, Snapshot snapshot);
extern void lookup_end(Lookup *lookup);

/* A column of the row found, counted from 0.  What is not by value is good until the end. */
extern Datum lookup_datum(Lookup *lookup, int column, bool *isnull);
extern char *lookup_text(Lookup *lookup, int column);	/* NULL for null; palloc'd */

#endif							/* PAYFLOW_LOOKUP_H */
