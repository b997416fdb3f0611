/*-------------------------------------------------------------------------
 *
 * update.c
 *	  Locked rows updated without a statement.
 *
 *	  It does with one row what the server's ModifyTable node does, in the same
 *	  order.  The row is found by its place: nobody else can have moved it.
 *
 * IDENTIFICATION
 *	  src/lib/update.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "lib/compat.h"
#include "lib/write_plan.h"

bool
update_open(WriteTarget *target)
{
	return write_open(target, CMD_UPDATE);
}

/*
 * The row as it will be: points into the old one, which stays pinned.
 */
static void
fill_slot(WritePlan *plan, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = plan->slot;

	ExecClearTuple(slot);
	slot_getallattrs(plan->old_slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		int			given = plan->columns[i].given;
		bool		isnull = given >= 0 ? nulls[given] : plan->old_slot->tts_isnull[i];

		if (TupleDescAttr(slot->tts_tupleDescriptor, i)->attisdropped)
			isnull = true;
		slot->tts_isnull[i] = isnull;
		slot->tts_values[i] = (Datum) 0;
		if (!isnull)
			slot->tts_values[i] = given >= 0 ? values[given] : plan->old_slot->tts_values[i];
		write_check_domain(plan, i);
	}
	ExecStoreVirtualTuple(slot);
}

static bool
update_tuple(WritePlan *plan, ItemPointer tid)
{
	ResultRelInfo *result = plan->result;
	TM_FailureData failure;
	LockTupleMode mode;
	UpdatedIndexes indexes;

	if (table_tuple_update(result->ri_RelationDesc, tid, plan->slot, plan->estate->es_output_cid,
						   plan->estate->es_snapshot, InvalidSnapshot, true, &failure, &mode, &indexes) != TM_Ok)
		return false;
	if (result->ri_NumIndices > 0 && indexes_are_updated(indexes))
		(void) ExecInsertIndexTuplesAtUpdate(result, plan->slot, plan->estate, indexes);
	return true;
}

void
update_row(WriteTarget *target, const ItemPointerData *tid, const Datum *values, const bool *nulls)
{
	WritePlan  *plan = target->plan;
	ResultRelInfo *result = plan->result;
	EState	   *estate = plan->estate;
	const TupleConstr *constraints = RelationGetDescr(result->ri_RelationDesc)->constr;
	ItemPointerData place = *tid;

	ResetPerTupleExprContext(estate);
	estate->es_snapshot = GetActiveSnapshot();
	estate->es_output_cid = GetCurrentCommandId(true);
	if (!table_tuple_fetch_row_version(result->ri_RelationDesc, &place, SnapshotAny, plan->old_slot))
		elog(ERROR, "a locked row of %s is not there", target->table);
	fill_slot(plan, values, nulls);

	if (result->ri_TrigDesc != NULL && result->ri_TrigDesc->trig_update_before_row &&
		!ExecBRUpdateTriggersCompat(estate, &plan->epq, result, &place, plan->slot))
		elog(ERROR, "a trigger has kept a row of %s from being updated", target->table);
	if (constraints != NULL && constraints->has_generated_stored)
		ExecComputeStoredGenerated(result, estate, plan->slot, CMD_UPDATE);
	if (constraints != NULL)
		ExecConstraints(result, plan->slot, estate);
	if (!update_tuple(plan, &place))
		elog(ERROR, "a locked row of %s could not be updated", target->table);
	ExecARUpdateTriggersCompat(estate, result, &place, plan->slot);
	estate->es_snapshot = NULL;
}
