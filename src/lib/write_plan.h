/*-------------------------------------------------------------------------
 *
 * write_plan.h
 *	  What insert.c and update.c share.
 *
 * IDENTIFICATION
 *	  src/lib/write_plan.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_WRITE_PLAN_H
#define PAYFLOW_WRITE_PLAN_H

#include "nodes/execnodes.h"
#include "nodes/nodes.h"

#include "lib/write.h"

/* what is kept of an attribute */
typedef struct WriteColumn
{
	int			given;			/* which of the values, -1: none */
	ExprState  *default_expr;	/* of a column without a value; NULL: none */
	Oid			domain;			/* whose constraints are to be checked, or invalid */
	void	   *domain_state;
} WriteColumn;

/*
 * What an executor would set up for each statement, in a context of its own.
 * Relations are open only from write_open() to write_close().
 */
typedef struct WritePlan
{
	MemoryContext context;
	Oid			relid;
	uint64		known_at;
	bool		usual;			/* false: a statement is needed */
	bool		open;
	TransactionId opened_by;	/* while open: the transaction, and the subtransaction */
	SubTransactionId opened_in;
	EState	   *estate;
	ResultRelInfo *result;
	TupleTableSlot *slot;		/* the row as it will be */
	TupleTableSlot *old_slot;	/* as it is; NULL: it is inserted */
	EPQState	epq;
	Oid		   *indexes;
	List	   *arbiters;
	WriteColumn *columns;		/* one an attribute */
} WritePlan;

/* Opens the table for rows that are inserted, or updated. */
extern bool write_open(WriteTarget *target, CmdType command);

/* Checks the value at hand of the i-th attribute against its domain's constraints. */
extern void write_check_domain(WritePlan *plan, int i);

#endif							/* PAYFLOW_WRITE_PLAN_H */
