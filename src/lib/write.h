/*-------------------------------------------------------------------------
 *
 * write.h
 *	  Rows inserted and updated without a statement, where that is done very
 *	  often.
 *
 *	  All that an INSERT or UPDATE checks is checked, by the server's own
 *	  functions: types, constraints, triggers, unique indexes, foreign keys.
 *	  What is saved is the preparation: each statement reads every CHECK,
 *	  default and predicate of the table from its text, here they are kept until
 *	  the table changes.
 *
 *	  if (insert_open(&target))
 *	  {
 *		  write_begin();
 *		  inserted = insert_row(&target, values, nulls);
 *		  write_end();
 *		  write_close(&target);
 *	  }
 *	  else
 *		  run(&statement, ...);
 *
 * IDENTIFICATION
 *	  src/lib/write.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_WRITE_H
#define PAYFLOW_WRITE_H

#include "storage/itemptr.h"

#include "lib/rowset.h"

#define WRITE_MAX_COLUMNS 28

/* for inserting or for updating, never both */
typedef struct WriteTarget
{
	const char *table;			/* of schema payflow */
	const char *unless_in;		/* a unique index that may have the row already; NULL: that is an error */
	int			ncolumns;
	const char *columns[WRITE_MAX_COLUMNS]; /* those with a value; the others get their default, or stay */
	struct WritePlan *plan;		/* made at first use, then kept */
} WriteTarget;

/*
 * Opens the table and locks it as an INSERT or UPDATE does.  False, and nothing
 * is open, when it has something that only a statement can do justice to:
 * triggers or rules of others, an index that is no btree.
 */
extern bool insert_open(WriteTarget *target);
extern bool update_open(WriteTarget *target);
extern void write_close(WriteTarget *target);

/* Around the rows: foreign keys are checked, and triggers after the rows run, at the end. */
extern void write_begin(void);
extern void write_end(void);

/* False when the row is there already, as with ON CONFLICT DO NOTHING. */
extern bool insert_row(WriteTarget *target, const Datum *values, const bool *nulls);

/*
 * Opens the table, inserts all rows, whose columns are the target's, and closes
 * it.  False when that takes a statement; else `inserted` tells how many were
 * not there yet.
 */
extern bool insert_rows(WriteTarget *target, const RowSet *rows, int *inserted);

/*
 * Updates the row at that place, which the transaction has locked FOR NO KEY
 * UPDATE and not changed since.  No key may be among the columns.
 */
extern void update_row(WriteTarget *target, const ItemPointerData *tid, const Datum *values, const bool *nulls);

#endif							/* PAYFLOW_WRITE_H */
