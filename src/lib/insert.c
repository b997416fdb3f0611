/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  Rows inserted without a statement.
 *
 *	  It does with one row what the server's ModifyTable node does, in the same
 *	  order.  Only tables of which all that happens at an INSERT is known are
 *	  written so; with anything unusual the caller falls back to a statement.
 *
 * IDENTIFICATION
 *	  src/lib/insert.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
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
#include "lib/insert.h"
#include "lib/relations.h"

/* what is kept of an attribute */
typedef struct InsertColumn
{
	int			given;			/* which of the values, -1: none */
	ExprState  *default_expr;	/* of a column without a value; NULL: none */
	Oid			domain;			/* whose constraints are to be checked, or invalid */
	void	   *domain_state;
} InsertColumn;

/*
 * What an executor would set up for each statement, in a context of its own.
 * Relations are open only from insert_open() to insert_close().
 */
typedef struct InsertPlan
{
	MemoryContext context;
	Oid			relid;
	uint64		known_at;
	bool		usual;			/* false: a statement is needed */
	EState	   *estate;
	ResultRelInfo *result;
	TupleTableSlot *slot;
	Oid		   *indexes;
	List	   *arbiters;
	InsertColumn *columns;		/* one an attribute */
} InsertPlan;

static bool
triggers_are_ours(const TriggerDesc *triggers)
{
	Oid			extension = get_extension_oid("payflow", true);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (!TRIGGER_FOR_INSERT(trigger->tgtype) || trigger->tgisinternal)
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
table_is_usual(Relation relation, const ResultRelInfo *result)
{
	const FormData_pg_class *class = relation->rd_rel;

	/* the copy of the triggers: the relation cache may drop its own while catalogs are read */
	return class->relkind == RELKIND_RELATION && !class->relispartition && !class->relforcerowsecurity &&
		relation->rd_rules == NULL &&
		triggers_are_ours(result->ri_TrigDesc) && indexes_are_usual(result);
}

static void
plan_column(InsertColumn *column, const InsertTarget *target, Relation relation, int i)
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
plan_columns(InsertPlan *plan, const InsertTarget *target, Relation relation)
{
	int			natts = RelationGetNumberOfAttributes(relation);
	int			given = 0;

	plan->columns = palloc0_array(InsertColumn, natts);
	for (int i = 0; i < natts; i++)
	{
		plan_column(&plan->columns[i], target, relation, i);
		if (plan->columns[i].given >= 0)
			given++;
	}
	if (given != target->ncolumns)
		elog(ERROR, "a column of %s is missing", target->table);
}

/*
 * The functions are looked up here, for the executor would do so in whatever
 * context the first call has.
 */
static void
find_trigger_functions(ResultRelInfo *result)
{
	const TriggerDesc *triggers = result->ri_TrigDesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		if (TRIGGER_FOR_INSERT(triggers->triggers[i].tgtype))
			fmgr_info(triggers->triggers[i].tgfoid, &result->ri_TrigFunctions[i]);
	}
}

/*
 * Makes the plan; its indexes are then open.
 */
static InsertPlan *
make_plan(const InsertTarget *target, Relation relation)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "payflow insert", ALLOCSET_SMALL_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	InsertPlan *plan = palloc0_object(InsertPlan);
	ResultRelInfo *result = makeNode(ResultRelInfo);

	plan->context = context;
	plan->relid = RelationGetRelid(relation);
	plan->known_at = watch_relation(plan->relid);
	plan->estate = CreateExecutorState();
	plan->result = result;
	MemoryContextSwitchTo(plan->estate->es_query_cxt);

	InitResultRelInfo(result, relation, 0, NULL, 0);
	ExecOpenIndices(result, target->unless_in != NULL);
	plan->usual = table_is_usual(relation, result);
	plan->indexes = palloc_array(Oid, result->ri_NumIndices + 1);
	for (int i = 0; i < result->ri_NumIndices; i++)
		plan->indexes[i] = RelationGetRelid(result->ri_IndexRelationDescs[i]);
	if (target->unless_in != NULL)
		plan->arbiters = list_make1_oid(payflow_relation(target->unless_in));
	find_trigger_functions(result);
	plan_columns(plan, target, relation);

	/* a copy of the descriptor, for the slot outlives the transaction */
	plan->slot = MakeSingleTupleTableSlot(CreateTupleDescCopyConstr(RelationGetDescr(relation)),
										  table_slot_callbacks(relation));
	plan->slot->tts_tableOid = plan->relid;

	MemoryContextSwitchTo(old_context);
	MemoryContextSetParent(context, TopMemoryContext);
	return plan;
}

bool
insert_open(InsertTarget *target)
{
	Oid			relid = payflow_relation(target->table);
	Relation	relation = table_open(relid, RowExclusiveLock);
	InsertPlan *plan = target->plan;

	if (plan == NULL || plan->relid != relid || plan->known_at != relation_changes())
	{
		target->plan = NULL;
		if (plan != NULL)
			MemoryContextDelete(plan->context);
		plan = target->plan = make_plan(target, relation);
	}
	else
	{
		plan->result->ri_RelationDesc = relation;
		for (int i = 0; i < plan->result->ri_NumIndices; i++)
			plan->result->ri_IndexRelationDescs[i] = index_open(plan->indexes[i], RowExclusiveLock);
	}
	if (!plan->usual)
		insert_close(target);
	return plan->usual;
}

void
insert_close(InsertTarget *target)
{
	ResultRelInfo *result = target->plan->result;

	ExecClearTuple(target->plan->slot);
	for (int i = 0; i < result->ri_NumIndices; i++)
		index_close(result->ri_IndexRelationDescs[i], NoLock);
	table_close(result->ri_RelationDesc, NoLock);
}

void
insert_begin(void)
{
	AfterTriggerBeginQuery();
}

void
insert_end(void)
{
	EState	   *estate = CreateExecutorState();

	AfterTriggerEndQuery(estate);
	ExecCloseResultRelations(estate);
	ExecResetTupleTable(estate->es_tupleTable, false);
	FreeExecutorState(estate);
	CommandCounterIncrement();
}

static void
fill_slot(InsertPlan *plan, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = plan->slot;
	ExprContext *econtext = GetPerTupleExprContext(plan->estate);

	ExecClearTuple(slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		InsertColumn *column = &plan->columns[i];

		slot->tts_values[i] = (Datum) 0;
		slot->tts_isnull[i] = true;
		if (column->default_expr != NULL)
			slot->tts_values[i] = ExecEvalExprSwitchContext(column->default_expr, econtext, &slot->tts_isnull[i]);
		else if (column->given >= 0 && !nulls[column->given])
		{
			slot->tts_values[i] = values[column->given];
			slot->tts_isnull[i] = false;
		}
		if (OidIsValid(column->domain))
			domain_check(slot->tts_values[i], slot->tts_isnull[i], column->domain,
						 &column->domain_state, plan->context);
	}
	ExecStoreVirtualTuple(slot);
}

static void
insert_always(InsertPlan *plan)
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
insert_unless_there(InsertPlan *plan)
{
	Relation	relation = plan->result->ri_RelationDesc;
	TransactionId xid = GetCurrentTransactionId();
	ItemPointerData there;
	bool		conflict;

	do
	{
		uint32		token;

		CHECK_FOR_INTERRUPTS();
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
insert_row(InsertTarget *target, const Datum *values, const bool *nulls)
{
	InsertPlan *plan = target->plan;
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
