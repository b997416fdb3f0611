/*-------------------------------------------------------------------------
 *
 * write_plan.c
 *	  What is kept for rows that are written without a statement.
 *
 *	  Only tables of which all that happens at an INSERT or UPDATE is known are
 *	  written so; with anything unusual the caller falls back to a statement.
 *
 * IDENTIFICATION
 *	  src/lib/write_plan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc_d.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type_d.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "lib/compat.h"
#include "lib/relations.h"
#include "lib/write_plan.h"

static bool
is_fired(const Trigger *trigger, CmdType command)
{
	return command == CMD_INSERT ? TRIGGER_FOR_INSERT(trigger->tgtype) : TRIGGER_FOR_UPDATE(trigger->tgtype);
}

static bool
triggers_are_ours(const TriggerDesc *triggers, CmdType command)
{
	Oid			extension = get_extension_oid("payflow", true);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (!is_fired(trigger, command) || trigger->tgisinternal)
			continue;
		if (!TRIGGER_FOR_ROW(trigger->tgtype) ||
			getExtensionOfObject(ProcedureRelationId, trigger->tgfoid) != extension)
			return false;
	}
	return true;
}

static bool
indexes_are_usual(const ResultRelInfo *result)
{
	for (int i = 0; i < result->ri_NumIndices; i++)
	{
		Relation	index = result->ri_IndexRelationDescs[i];

		if (index->rd_rel->relam != BTREE_AM_OID || !index->rd_index->indimmediate)
			return false;
	}
	return true;
}

static bool
table_is_usual(Relation relation, const ResultRelInfo *result, CmdType command)
{
	const FormData_pg_class *class = relation->rd_rel;

	/* the copy of the triggers: the relation cache may drop its own while catalogs are read */
	return class->relkind == RELKIND_RELATION && !class->relispartition && !class->relforcerowsecurity &&
		relation->rd_rules == NULL &&
		triggers_are_ours(result->ri_TrigDesc, command) && indexes_are_usual(result);
}

static void
plan_column(WriteColumn *column, const WriteTarget *target, Relation relation, int i, CmdType command)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(relation), i);
	Node	   *default_expr;

	column->given = -1;
	if (attribute->attisdropped || attribute->attgenerated != '\0')
		return;
	for (int j = 0; j < target->ncolumns; j++)
	{
		if (strcmp(target->columns[j], NameStr(attribute->attname)) == 0)
			column->given = j;
	}
	if (column->given < 0 && command == CMD_UPDATE)
		return;
	if (get_typtype(attribute->atttypid) == TYPTYPE_DOMAIN)
	{
		watch_domain(attribute->atttypid);
		column->domain = attribute->atttypid;
	}
	if (column->given < 0)
	{
		/* this checks a domain's constraints too */
		default_expr = build_column_default(relation, i + 1);
		if (default_expr != NULL)
		{
			column->default_expr = ExecInitExpr(expression_planner((Expr *) default_expr), NULL);
			column->domain = InvalidOid;
		}
	}
}

static void
plan_columns(WritePlan *plan, const WriteTarget *target, Relation relation, CmdType command)
{
	int			natts = RelationGetNumberOfAttributes(relation);
	int			given = 0;

	plan->columns = palloc0_array(WriteColumn, natts);
	for (int i = 0; i < natts; i++)
	{
		plan_column(&plan->columns[i], target, relation, i, command);
		if (plan->columns[i].given >= 0)
			given++;
	}
	if (given != target->ncolumns)
		elog(ERROR, "a column of %s is missing", target->table);
}

/*
 * Which columns an UPDATE writes decides about triggers and index entries.
 */
static void
tell_updated_columns(WritePlan *plan, Relation relation)
{
	RangeTblEntry *entry = makeNode(RangeTblEntry);
	Bitmapset  *columns = NULL;

	for (int i = 0; i < RelationGetNumberOfAttributes(relation); i++)
	{
		if (plan->columns[i].given >= 0)
			columns = bms_add_member(columns, i + 1 - FirstLowInvalidHeapAttributeNumber);
	}
	entry->rtekind = RTE_RELATION;
	entry->relid = plan->relid;
	entry->relkind = RELKIND_RELATION;
	entry->rellockmode = RowExclusiveLock;
	tell_updated_columns_compat(plan->estate, entry, columns);
	plan->estate->es_range_table = list_make1(entry);
	plan->estate->es_range_table_size = 1;
	plan->result->ri_RangeTableIndex = 1;
}

/*
 * The functions are looked up here, for the executor would do so in whatever
 * context the first call has.
 */
static void
find_trigger_functions(ResultRelInfo *result, CmdType command)
{
	const TriggerDesc *triggers = result->ri_TrigDesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		if (is_fired(&triggers->triggers[i], command))
			fmgr_info(triggers->triggers[i].tgfoid, &result->ri_TrigFunctions[i]);
	}
}

/*
 * Makes the plan; its indexes are then open.
 */
static WritePlan *
make_plan(const WriteTarget *target, Relation relation, CmdType command)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "payflow write", ALLOCSET_SMALL_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	WritePlan *plan = palloc0_object(WritePlan);
	ResultRelInfo *result = makeNode(ResultRelInfo);
	TupleDesc	tupdesc;

	plan->context = context;
	plan->relid = RelationGetRelid(relation);
	plan->known_at = watch_relation(plan->relid);
	plan->estate = CreateExecutorState();
	plan->result = result;
	MemoryContextSwitchTo(plan->estate->es_query_cxt);

	InitResultRelInfo(result, relation, 0, NULL, 0);
	ExecOpenIndices(result, target->unless_in != NULL);
	plan->usual = table_is_usual(relation, result, command);
	plan->indexes = palloc_array(Oid, result->ri_NumIndices + 1);
	for (int i = 0; i < result->ri_NumIndices; i++)
		plan->indexes[i] = RelationGetRelid(result->ri_IndexRelationDescs[i]);
	if (target->unless_in != NULL)
		plan->arbiters = list_make1_oid(payflow_relation(target->unless_in));
	find_trigger_functions(result, command);
	plan_columns(plan, target, relation, command);

	/* a copy of the descriptor, for the slots outlive the transaction */
	tupdesc = CreateTupleDescCopyConstr(RelationGetDescr(relation));
	plan->slot = MakeSingleTupleTableSlot(tupdesc, table_slot_callbacks(relation));
	plan->slot->tts_tableOid = plan->relid;
	if (command == CMD_UPDATE)
	{
		plan->old_slot = MakeSingleTupleTableSlot(tupdesc, table_slot_callbacks(relation));
		result->ri_TrigOldSlot = MakeSingleTupleTableSlot(tupdesc, table_slot_callbacks(relation));
		tell_updated_columns(plan, relation);
		EvalPlanQualInitCompat(&plan->epq, plan->estate);
	}

	MemoryContextSwitchTo(old_context);
	MemoryContextSetParent(context, TopMemoryContext);
	return plan;
}

/*
 * A default, CHECK or domain of somebody else's has called a function of ours
 * while a row of the target is written: that call needs a statement.
 */
static bool
is_in_use(const WritePlan *plan)
{
	return plan != NULL && plan->open && plan->opened_by == GetTopTransactionIdIfAny() &&
		SubTransactionIsActive(plan->opened_in);
}

bool
write_open(WriteTarget *target, CmdType command)
{
	Oid			relid = payflow_relation(target->table);
	Relation	relation = table_open(relid, RowExclusiveLock);
	WritePlan  *plan = target->plan;

	if (is_in_use(plan))
	{
		table_close(relation, NoLock);
		return false;
	}
	/* still open: an error came between, and what its slots hold was let go already */
	if (plan == NULL || plan->open || plan->relid != relid || plan->known_at != relation_changes())
	{
		target->plan = NULL;
		if (plan != NULL)
			MemoryContextDelete(plan->context);
		plan = target->plan = make_plan(target, relation, command);
	}
	else
	{
		plan->result->ri_RelationDesc = relation;
		for (int i = 0; i < plan->result->ri_NumIndices; i++)
			plan->result->ri_IndexRelationDescs[i] = index_open(plan->indexes[i], RowExclusiveLock);
	}
	plan->open = true;
	plan->opened_by = GetTopTransactionId();
	plan->opened_in = GetCurrentSubTransactionId();
	if (!plan->usual)
		write_close(target);
	return plan->usual;
}

void
write_close(WriteTarget *target)
{
	WritePlan  *plan = target->plan;
	ResultRelInfo *result = plan->result;

	ExecClearTuple(plan->slot);
	if (plan->old_slot != NULL)
	{
		ExecClearTuple(plan->old_slot);
		ExecClearTuple(result->ri_TrigOldSlot);
	}
	for (int i = 0; i < result->ri_NumIndices; i++)
		index_close(result->ri_IndexRelationDescs[i], NoLock);
	table_close(result->ri_RelationDesc, NoLock);
	plan->open = false;
}

void
write_begin(void)
{
	AfterTriggerBeginQuery();
}

void
write_end(void)
{
	EState	   *estate = CreateExecutorState();

	AfterTriggerEndQuery(estate);
	ExecCloseResultRelations(estate);
	ExecResetTupleTable(estate->es_tupleTable, false);
	FreeExecutorState(estate);
	CommandCounterIncrement();
}

void
write_check_domain(WritePlan *plan, int i)
{
	WriteColumn *column = &plan->columns[i];

	if (OidIsValid(column->domain))
		domain_check(plan->slot->tts_values[i], plan->slot->tts_isnull[i], column->domain,
					 &column->domain_state, plan->context);
}
