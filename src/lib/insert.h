/*-------------------------------------------------------------------------
 *
 * insert.h
 *	  Rows inserted without a statement, for calls that do so very often.
 *
 *	  All that an INSERT checks is checked, by the server's own functions: types,
 *	  constraints, triggers, unique indexes, foreign keys.  What is saved is
 *	  the preparation: each statement reads every CHECK, default and predicate
 *	  of the table from its text, here they are kept until the table changes.
 *
 *	  if (insert_open(&target))
 *	  {
 *		  insert_begin();
 *		  inserted = insert_row(&target, values, nulls);
 *		  insert_end();
 *		  insert_close(&target);
 *	  }
 *	  else
 *		  run(&statement, ...);
 *
 * IDENTIFICATION
 *	  src/lib/insert.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_INSERT_H
#define PAYFLOW_INSERT_H

#define INSERT_MAX_COLUMNS 24

typedef struct InsertTarget
{
	const char *table;			/* of schema payflow */
	const char *unless_in;		/* a unique index that may have the row already; NULL: that is an error */
	int			ncolumns;
	const char *columns[INSERT_MAX_COLUMNS];	/* those with a value; the others get their default */
	struct InsertPlan *plan;	/* made at first use, then kept */
} InsertTarget;

/*
 * Opens the table and locks it as an INSERT does.  False, and nothing is open,
 * when it has something that only a statement can do justice to: triggers or
 * rules of others, an index that is no btree.
 */
extern bool insert_open(InsertTarget *target);
extern void insert_close(InsertTarget *target);

/* Around the rows: foreign keys are checked, and triggers after the rows run, at the end. */
extern void insert_begin(void);
extern void insert_end(void);

/* False when the row is there already, as with ON CONFLICT DO NOTHING. */
extern bool insert_row(InsertTarget *target, const Datum *values, const bool *nulls);

#endif							/* PAYFLOW_INSERT_H */
