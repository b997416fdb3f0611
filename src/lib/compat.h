/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  The one place that knows differences between server versions 14 to 18.
 *
 * Include after postgres.h.  Code elsewhere has no PG_VERSION_NUM.
 *
 * IDENTIFICATION
 *	  src/lib/compat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_COMPAT_H
#define PAYFLOW_COMPAT_H

#include "access/tableam.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "parser/parse_relation.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 140000
#error "payflow needs PostgreSQL 14 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif

/* 15 moved the reservation of a prefix and the request for shared memory */
#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix) EmitWarningsOnPlaceholders(prefix)
#else
#define HAVE_SHMEM_REQUEST_HOOK
#endif

/* 16 replaced the family of pg_*_aclcheck functions by one */
#if PG_VERSION_NUM >= 160000
#define foreign_server_aclcheck(oid, role, mode) \
	object_aclcheck(ForeignServerRelationId, (oid), (role), (mode))
#define foreign_server_ownercheck(oid, role) \
	object_ownercheck(ForeignServerRelationId, (oid), (role))
#define database_ownercheck(oid, role) \
	object_ownercheck(DatabaseRelationId, (oid), (role))
#define extension_ownercheck(oid, role) \
	object_ownercheck(ExtensionRelationId, (oid), (role))
#else
#define foreign_server_aclcheck(oid, role, mode) \
	pg_foreign_server_aclcheck((oid), (role), (mode))
#define foreign_server_ownercheck(oid, role) \
	pg_foreign_server_ownercheck((oid), (role))
#define database_ownercheck(oid, role) \
	pg_database_ownercheck((oid), (role))
#define extension_ownercheck(oid, role) \
	pg_extension_ownercheck((oid), (role))
#endif

/* 17: a wait event set belongs to a resource owner, not to a memory context */
#if PG_VERSION_NUM >= 170000
#define CreateWaitEventSetForever(n) CreateWaitEventSet(NULL, (n))
#else
#define CreateWaitEventSetForever(n) CreateWaitEventSet(TopMemoryContext, (n))
#endif

/* 17: a PGPROC's place is read by a macro, and wait events have names */
#if PG_VERSION_NUM >= 170000
#define MyProcNumberCompat MyProcNumber
#define NewWaitEvent(name) WaitEventExtensionNew(name)
#else
#define MyProcNumberCompat (MyProc->pgprocno)
#define NewWaitEvent(name) PG_WAIT_EXTENSION
#endif

/* 17: one name for resetting a context with its children */
#if PG_VERSION_NUM < 170000
#define MemoryContextResetCompat(cxt) MemoryContextResetAndDeleteChildren(cxt)
#else
#define MemoryContextResetCompat(cxt) MemoryContextReset(cxt)
#endif

/*
 * InitMaterializedSet(fcinfo): begins the result of a set-returning function
 * that fills a tuplestore.  The server has such a function since 15.
 */
#if PG_VERSION_NUM >= 150000
#define InitMaterializedSet(fcinfo) InitMaterializedSRF((fcinfo), 0)
#else
static inline void
InitMaterializedSet(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old;
	TupleDesc	tupdesc;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo) || (rsinfo->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	old = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	rsinfo->returnMode = SFRM_Materialize;
	rsinfo->setResult = tuplestore_begin_heap((rsinfo->allowedModes & SFRM_Materialize_Random) != 0,
											  false, work_mem);
	rsinfo->setDesc = tupdesc;
	MemoryContextSwitchTo(old);
}
#endif

/* 18: an index scan can count for EXPLAIN */
#if PG_VERSION_NUM >= 180000
#define index_beginscan_compat(heap, index, snapshot, nkeys, norderbys) \
	index_beginscan((heap), (index), (snapshot), NULL, (nkeys), (norderbys))
#else
#define index_beginscan_compat(heap, index, snapshot, nkeys, norderbys) \
	index_beginscan((heap), (index), (snapshot), (nkeys), (norderbys))
#endif

/* 16 and 18: inserting into indexes, and looking whether that would conflict, take another argument each */
#if PG_VERSION_NUM >= 160000
#define ExecInsertIndexTuplesCompat(result, slot, estate, no_error, conflict, arbiters) \
	ExecInsertIndexTuples((result), (slot), (estate), false, (no_error), (conflict), (arbiters), false)
#else
#define ExecInsertIndexTuplesCompat(result, slot, estate, no_error, conflict, arbiters) \
	ExecInsertIndexTuples((result), (slot), (estate), false, (no_error), (conflict), (arbiters))
#endif
#if PG_VERSION_NUM >= 180000
#define ExecCheckIndexConstraintsCompat(result, slot, estate, there, arbiters) \
	ExecCheckIndexConstraints((result), (slot), (estate), (there), \
							  &(slot)->tts_tid, (arbiters))
#else
#define ExecCheckIndexConstraintsCompat(result, slot, estate, there, arbiters) \
	ExecCheckIndexConstraints((result), (slot), (estate), (there), (arbiters))
#endif

/* 15, 16 and 18: what triggers of a row that is updated are told, and what EvalPlanQual is told */
#if PG_VERSION_NUM >= 180000
#define ExecBRUpdateTriggersCompat(estate, epqstate, result, tid, slot) \
	ExecBRUpdateTriggers((estate), (epqstate), (result), (tid), NULL, (slot), NULL, NULL, false)
#elif PG_VERSION_NUM >= 160000
#define ExecBRUpdateTriggersCompat(estate, epqstate, result, tid, slot) \
	ExecBRUpdateTriggers((estate), (epqstate), (result), (tid), NULL, (slot), NULL, NULL)
#elif PG_VERSION_NUM >= 150000
#define ExecBRUpdateTriggersCompat(estate, epqstate, result, tid, slot) \
	ExecBRUpdateTriggers((estate), (epqstate), (result), (tid), NULL, (slot), NULL)
#else
#define ExecBRUpdateTriggersCompat(estate, epqstate, result, tid, slot) \
	ExecBRUpdateTriggers((estate), (epqstate), (result), (tid), NULL, (slot))
#endif
#if PG_VERSION_NUM >= 150000
#define ExecARUpdateTriggersCompat(estate, result, tid, slot) \
	ExecARUpdateTriggers((estate), (result), NULL, NULL, (tid), NULL, (slot), NIL, NULL, false)
#else
#define ExecARUpdateTriggersCompat(estate, result, tid, slot) \
	ExecARUpdateTriggers((estate), (result), (tid), NULL, (slot), NIL, NULL)
#endif
#if PG_VERSION_NUM >= 160000
#define EvalPlanQualInitCompat(epqstate, estate) EvalPlanQualInit((epqstate), (estate), NULL, NIL, -1, NIL)
#else
#define EvalPlanQualInitCompat(epqstate, estate) EvalPlanQualInit((epqstate), (estate), NULL, NIL, -1)
#endif

/* 16: the columns that are written stand beside the range table */
#if PG_VERSION_NUM >= 160000
#define tell_updated_columns_compat(estate, entry, columns) \
	(addRTEPermissionInfo(&(estate)->es_rteperminfos, (entry))->updatedCols = (columns))
#else
#define tell_updated_columns_compat(estate, entry, columns) ((entry)->updatedCols = (columns))
#endif

/* 16: of an update that touches no indexed column, summarizing indexes may have to know */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes UpdatedIndexes;
#define indexes_are_updated(indexes) ((indexes) != TU_None)
#define ExecInsertIndexTuplesAtUpdate(result, slot, estate, indexes) \
	ExecInsertIndexTuples((result), (slot), (estate), true, false, NULL, NIL, (indexes) == TU_Summarizing)
#else
typedef bool UpdatedIndexes;
#define indexes_are_updated(indexes) (indexes)
#define ExecInsertIndexTuplesAtUpdate(result, slot, estate, indexes) \
	ExecInsertIndexTuples((result), (slot), (estate), true, false, NULL, NIL)
#endif

/* 15: statistics can be sent at once; before, the argument had another meaning */
#if PG_VERSION_NUM >= 150000
#define pgstat_report_stat_now() ((void) pgstat_report_stat(true))
#else
#define pgstat_report_stat_now() pgstat_report_stat(false)
#endif

/* 18: the mark that a function does not return goes before its declaration */
#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()
#endif

#ifndef palloc_object
#define palloc_object(type) ((type *) palloc(sizeof(type)))
#define palloc0_object(type) ((type *) palloc0(sizeof(type)))
#define palloc_array(type, count) ((type *) palloc(sizeof(type) * (count)))
#define palloc0_array(type, count) ((type *) palloc0(sizeof(type) * (count)))
#endif

#endif							/* PAYFLOW_COMPAT_H */
