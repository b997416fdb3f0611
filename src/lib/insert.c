/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  Rows inserted without a statement.
 *
 *	  It does with one row what the server's ModifyTable node does, in the same
 *	  order.
 *
 * IDENTIFICATION
 *	  src/lib/insert.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "lib/compat.h"
#include "lib/write_plan.h"

bool
insert_open(WriteTarget *target)
{
	return write_open(target, CMD_INSERT);
}

static void
fill_slot(WritePlan *plan, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = plan->slot;
	ExprContext *econtext = GetPerTupleExprContext(plan->estate);

	ExecClearTuple(slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		WriteColumn *column = &plan->columns[i];

		slot->tts_values[i] = (Datum) 0;
		slot->tts_isnull[i] = true;
		if (column->default_expr != NULL)
			slot->tts_values[i] = ExecEvalExprSwitchContext(column->default_expr, econtext, &slot->tts_isnull[i]);
		else if (column->given >= 0 && !nulls[column->given])
		{
			slot->tts_values[i] = values[column->given];
			slot->tts_isnull[i] = false;
		}
		write_check_domain(plan, i);
	}
	ExecStoreVirtualTuple(slot);
}

static void
insert_always(WritePlan *plan)
{
	table_tuple_insert(plan->result->ri_RelationDesc, plan->slot, GetCurrentCommandId(true), 0, NULL);
	if (plan->result->ri_NumIndices > 0)
		(void) ExecInsertIndexTuplesCompat(plan->result, plan->slot, plan->estate, false, NULL, NIL);
}

/*
 * As ON CONFLICT DO NOTHING does: looks, inserts on approval, and begins again
 * when somebody else was quicker.
 */
static bool
insert_unless_there(WritePlan *plan)
{
	Relation	relation = plan->result->ri_RelationDesc;
	TransactionId xid = GetCurrentTransactionId();
	ItemPointerData there;
	bool		conflict;

	do
	{
		uint32		token;

		CHECK_FOR_INTERRUPTS();
		/* an earlier round's place is not this row's */
		ItemPointerSetInvalid(&plan->slot->tts_tid);
		if (!ExecCheckIndexConstraintsCompat(plan->result, plan->slot, plan->estate, &there, plan->arbiters))
			return false;
		conflict = false;
		token = SpeculativeInsertionLockAcquire(xid);
		table_tuple_insert_speculative(relation, plan->slot, GetCurrentCommandId(true), 0, NULL, token);
		(void) ExecInsertIndexTuplesCompat(plan->result, plan->slot, plan->estate, true, &conflict, plan->arbiters);
		table_tuple_complete_speculative(relation, plan->slot, token, !conflict);
		SpeculativeInsertionLockRelease(xid);
	} while (conflict);
	return true;
}

bool
insert_row(WriteTarget *target, const Datum *values, const bool *nulls)
{
	WritePlan *plan = target->plan;
	ResultRelInfo *result = plan->result;
	const TupleConstr *constraints = RelationGetDescr(result->ri_RelationDesc)->constr;

	ResetPerTupleExprContext(plan->estate);
	fill_slot(plan, values, nulls);
	if (result->ri_TrigDesc != NULL && result->ri_TrigDesc->trig_insert_before_row &&
		!ExecBRInsertTriggers(plan->estate, result, plan->slot))
		return false;
	if (constraints != NULL && constraints->has_generated_stored)
		ExecComputeStoredGenerated(result, plan->estate, plan->slot, CMD_INSERT);
	if (constraints != NULL)
		ExecConstraints(result, plan->slot, plan->estate);

	if (plan->arbiters == NIL)
		insert_always(plan);
	else if (!insert_unless_there(plan))
		return false;
	ExecARInsertTriggers(plan->estate, result, plan->slot, NIL, NULL);
	return true;
}

bool
insert_rows(WriteTarget *target, const RowSet *rows, int *inserted)
{
	Datum		values[WRITE_MAX_COLUMNS];
	bool		nulls[WRITE_MAX_COLUMNS];

	*inserted = 0;
	if (!insert_open(target))
		return false;
	write_begin();
	for (int i = 0; i < rowset_count(rows); i++)
	{
		rowset_row(rows, i, values, nulls);
		if (insert_row(target, values, nulls))
			(*inserted)++;
	}
	write_end();
	write_close(target);
	return true;
}
