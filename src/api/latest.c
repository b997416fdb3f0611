/*-------------------------------------------------------------------------
 *
 * latest.c
 *	  Reads what is committed now, for calls that wait for others.
 *
 *	  Not by SPI: that would keep a lock on the table for as long as the
 *	  transaction lasts, in the way of TRUNCATE, ALTER EXTENSION and the like.
 *	  And not with the transaction's snapshot.
 *
 * IDENTIFICATION
 *	  src/api/latest.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "api/api.h"
#include "lib/compat.h"

/*
 * Not by a RangeVar: the look-up would ask for privileges of the caller.
 */
static Relation
open_sessions(Relation *index)
{
	Oid			schema = get_namespace_oid("payflow", false);
	Oid			relid = get_relname_relid("payment_sessions", schema);
	Relation	relation = OidIsValid(relid) ? try_relation_open(relid, AccessShareLock) : NULL;
	Oid			indexid;

	if (relation == NULL)
		return NULL;
	indexid = get_relname_relid("payment_sessions_pkey", schema);
	*index = OidIsValid(indexid) ? try_relation_open(indexid, AccessShareLock) : NULL;
	if (*index == NULL)
	{
		relation_close(relation, AccessShareLock);
		return NULL;
	}
	return relation;
}

static Datum
attribute(TupleTableSlot *slot, Relation relation, const char *name)
{
	AttrNumber	number = get_attnum(RelationGetRelid(relation), name);
	Datum		value;
	bool		isnull;

	if (number == InvalidAttrNumber)
		elog(ERROR, "column %s of payment_sessions is missing", name);
	value = slot_getattr(slot, number, &isnull);
	if (isnull)
		elog(ERROR, "column %s of payment_sessions is null", name);
	return value;
}

static void
fill_state(LatestState *state, TupleTableSlot *slot, Relation relation)
{
	bool		isnull;
	TransactionId writer;

	state->status = status_from_name(TextDatumGetCString(attribute(slot, relation, "status")));
	state->stage = stage_from_name(TextDatumGetCString(attribute(slot, relation, "stage")));
	state->updated_at = DatumGetTimestampTz(attribute(slot, relation, "updated_at"));
	writer = DatumGetTransactionId(slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull));
	state->written_here = TransactionIdIsCurrentTransactionId(writer);
}

LatestState
read_latest(const pg_uuid_t *session_id)
{
	LatestState state;
	Relation	relation;
	Relation	index;
	Snapshot	snapshot;
	TupleTableSlot *slot;
	ScanKeyData key;
	IndexScanDesc scan;
	bool		found;

	relation = open_sessions(&index);
	if (relation == NULL)
		session_not_found(session_id);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	slot = table_slot_create(relation, NULL);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(session_id));
	scan = index_beginscan_compat(relation, index, snapshot, 1, 0);
	index_rescan(scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
		fill_state(&state, slot, relation);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	relation_close(index, AccessShareLock);
	relation_close(relation, AccessShareLock);

	if (!found)
		session_not_found(session_id);
	return state;
}

void
require_can_wait(const char *function)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot wait in a transaction above READ COMMITTED", function),
				 errhint("The transaction would not see the change. Wait in a READ COMMITTED transaction.")));
}

LatestState
read_latest_to_wait(const pg_uuid_t *session_id, const char *function)
{
	LatestState state = read_latest(session_id);

	if (state.written_here)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s cannot wait for a payment session that its own transaction has written", function),
				 errhint("Nothing happens to it before this transaction ends. Commit, then wait.")));
	return state;
}
