/*-------------------------------------------------------------------------
 *
 * lookup.c
 *	  One row of a table by a unique index, without a statement.
 *
 * IDENTIFICATION
 *	  src/lib/lookup.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/skey.h"
#include "access/table.h"
#include "access/tableam.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "lib/compat.h"
#include "lib/lookup.h"
#include "lib/relations.h"

/*
 * Columns are found by their names: an upgrade may have added some in another
 * order.
 */
static void
find_columns(Lookup *lookup, Oid relid)
{
	lookup->relid = InvalidOid;
	lookup->known_at = watch_relation(relid);
	for (int i = 0; i < lookup->ncolumns; i++)
	{
		lookup->attnums[i] = get_attnum(relid, lookup->columns[i]);
		if (lookup->attnums[i] == InvalidAttrNumber)
			elog(ERROR, "column %s of %s is missing", lookup->columns[i], lookup->table);
	}
	lookup->relid = relid;
}

bool
lookup_begin(Lookup *lookup, const Datum *keys, Snapshot snapshot)
{
	ScanKeyData scan_keys[INDEX_MAX_KEYS];
	Oid			relid = payflow_relation(lookup->table);

	lookup->relation = table_open(relid, AccessShareLock);
	lookup->index_relation = index_open(payflow_relation(lookup->index), AccessShareLock);
	if (lookup->relid != relid || lookup->known_at != relation_changes())
		find_columns(lookup, relid);

	for (int i = 0; i < lookup->nkeys; i++)
		ScanKeyInit(&scan_keys[i], i + 1, BTEqualStrategyNumber, F_TEXTEQ, keys[i]);
	lookup->slot = table_slot_create(lookup->relation, NULL);
	lookup->scan = index_beginscan_compat(lookup->relation, lookup->index_relation, snapshot, lookup->nkeys, 0);
	index_rescan(lookup->scan, scan_keys, lookup->nkeys, NULL, 0);
	return index_getnext_slot(lookup->scan, ForwardScanDirection, lookup->slot);
}

void
lookup_end(Lookup *lookup)
{
	index_endscan(lookup->scan);
	ExecDropSingleTupleTableSlot(lookup->slot);
	index_close(lookup->index_relation, NoLock);
	table_close(lookup->relation, NoLock);
}

Datum
lookup_datum(Lookup *lookup, int column, bool *isnull)
{
	return slot_getattr(lookup->slot, lookup->attnums[column], isnull);
}

char *
lookup_text(Lookup *lookup, int column)
{
	bool		isnull;
	Datum		value = lookup_datum(lookup, column, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}
