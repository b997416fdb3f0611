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

/* the newest committed version of a row, or the transaction's own */
typedef struct Newest
{
	Relation	relation;
	Relation	index;
	Snapshot	snapshot;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} Newest;

/*
 * Not by a RangeVar: the look-up would ask for privileges of the caller.
 */
static Relation
open_by_name(const char *name)
{
	Oid			relid = get_relname_relid(name, get_namespace_oid("payflow", false));

	return OidIsValid(relid) ? try_relation_open(relid, AccessShareLock) : NULL;
}

static void
newest_close(Newest *newest)
{
	index_endscan(newest->scan);
	ExecDropSingleTupleTableSlot(newest->slot);
	UnregisterSnapshot(newest->snapshot);
	relation_close(newest->index, AccessShareLock);
	relation_close(newest->relation, AccessShareLock);
}

/*
 * Finds the row by its primary key, a uuid.  False, and nothing to close, when
 * there is none.
 */
static bool
newest_open(Newest *newest, const char *table, const char *primary_key, const pg_uuid_t *id)
{
	ScanKeyData key;

	newest->relation = open_by_name(table);
	if (newest->relation == NULL)
		return false;
	newest->index = open_by_name(primary_key);
	if (newest->index == NULL)
	{
		relation_close(newest->relation, AccessShareLock);
		return false;
	}

	newest->snapshot = RegisterSnapshot(GetLatestSnapshot());
	newest->slot = table_slot_create(newest->relation, NULL);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(id));
	newest->scan = index_beginscan_compat(newest->relation, newest->index, newest->snapshot, 1, 0);
	index_rescan(newest->scan, &key, 1, NULL, 0);
	if (index_getnext_slot(newest->scan, ForwardScanDirection, newest->slot))
		return true;
	newest_close(newest);
	return false;
}

static Datum
attribute(const Newest *newest, const char *name)
{
	AttrNumber	number = get_attnum(RelationGetRelid(newest->relation), name);
	Datum		value;
	bool		isnull;

	if (number == InvalidAttrNumber)
		elog(ERROR, "column %s of %s is missing", name, RelationGetRelationName(newest->relation));
	value = slot_getattr(newest->slot, number, &isnull);
	if (isnull)
		elog(ERROR, "column %s of %s is null", name, RelationGetRelationName(newest->relation));
	return value;
}

static char *
text_attribute(const Newest *newest, const char *name)
{
	return TextDatumGetCString(attribute(newest, name));
}

static bool
is_written_here(const Newest *newest)
{
	bool		isnull;
	Datum		writer = slot_getsysattr(newest->slot, MinTransactionIdAttributeNumber, &isnull);

	return TransactionIdIsCurrentTransactionId(DatumGetTransactionId(writer));
}

LatestState
read_latest(const pg_uuid_t *session_id)
{
	Newest		newest;
	LatestState state;

	if (!newest_open(&newest, "payment_sessions", "payment_sessions_pkey", session_id))
		session_not_found(session_id);
	state.status = status_from_name(text_attribute(&newest, "status"));
	state.stage = stage_from_name(text_attribute(&newest, "stage"));
	state.updated_at = DatumGetTimestampTz(attribute(&newest, "updated_at"));
	state.written_here = is_written_here(&newest);
	newest_close(&newest);
	return state;
}

LatestRefund
read_latest_refund(const pg_uuid_t *refund_id)
{
	Newest		newest;
	LatestRefund refund;
	bool		is_refund;

	if (!newest_open(&newest, "operations", "operations_pkey", refund_id))
		refund_not_found(refund_id);
	is_refund = operation_kind_from_name(text_attribute(&newest, "kind")) == OPERATION_REFUND;
	refund.session_id = *DatumGetUUIDP(attribute(&newest, "session_id"));
	refund.status = operation_status_from_name(text_attribute(&newest, "status"));
	refund.written_here = is_written_here(&newest);
	newest_close(&newest);
	if (!is_refund)
		refund_not_found(refund_id);
	return refund;
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

static void
require_written_elsewhere(bool written_here, const char *function, const char *what)
{
	if (written_here)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s cannot wait for a %s that its own transaction has written", function, what),
				 errhint("Nothing happens to it before this transaction ends. Commit, then wait.")));
}

LatestState
read_latest_to_wait(const pg_uuid_t *session_id, const char *function)
{
	LatestState state = read_latest(session_id);

	require_written_elsewhere(state.written_here, function, "payment session");
	return state;
}

LatestRefund
read_latest_refund_to_wait(const pg_uuid_t *refund_id, const char *function)
{
	LatestRefund refund = read_latest_refund(refund_id);

	require_written_elsewhere(refund.written_here, function, "refund");
	return refund;
}
