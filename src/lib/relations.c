/*-------------------------------------------------------------------------
 *
 * relations.c
 *	  payflow's relations in this database, and whether what was learned of
 *	  them still holds.
 *
 * IDENTIFICATION
 *	  src/lib/relations.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "lib/compat.h"
#include "lib/relations.h"

#define MAX_WATCHED 8
#define MAX_DOMAINS 16

static uint64 changes = 1;
static Oid	watched[MAX_WATCHED];
static int	nwatched = 0;
static uint32 domains[MAX_DOMAINS]; /* hash values in the cache of types */
static int	ndomains = 0;

Oid
payflow_relation(const char *name)
{
	Oid			schema = get_namespace_oid("payflow", true);
	Oid			relid = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"payflow.%s\" does not exist", name)));
	return relid;
}

/* of all relations: invalid */
static void
note_relation_change(Datum arg pg_attribute_unused(), Oid relid)
{
	for (int i = 0; i < nwatched; i++)
	{
		if (relid == watched[i] || !OidIsValid(relid))
		{
			changes++;
			return;
		}
	}
}

static void
note_function_change(Datum arg pg_attribute_unused(), int cache_id pg_attribute_unused(),
					 uint32 hash_value pg_attribute_unused())
{
	changes++;
}

/* of all types: 0.  Each temporary table is a new type, which is nothing to us. */
static void
note_type_change(Datum arg pg_attribute_unused(), int cache_id pg_attribute_unused(), uint32 hash_value)
{
	for (int i = 0; i < ndomains; i++)
	{
		if (hash_value == domains[i] || hash_value == 0)
		{
			changes++;
			return;
		}
	}
}

uint64
relation_changes(void)
{
	return changes;
}

uint64
watch_relation(Oid relid)
{
	static bool listening = false;

	if (!listening)
	{
		CacheRegisterRelcacheCallback(note_relation_change, (Datum) 0);
		CacheRegisterSyscacheCallback(PROCOID, note_function_change, (Datum) 0);
		CacheRegisterSyscacheCallback(TYPEOID, note_type_change, (Datum) 0);
		listening = true;
	}
	for (int i = 0; i < nwatched; i++)
	{
		if (watched[i] == relid)
			return changes;
	}
	/* full: the extension was dropped and made again, and those that are live come back */
	if (nwatched == MAX_WATCHED)
		nwatched = 0;
	watched[nwatched++] = relid;
	return ++changes;
}

void
watch_domain(Oid type)
{
	uint32		hash_value = GetSysCacheHashValue1(TYPEOID, ObjectIdGetDatum(type));

	for (int i = 0; i < ndomains; i++)
	{
		if (domains[i] == hash_value)
			return;
	}
	if (ndomains == MAX_DOMAINS)
	{
		ndomains = 0;
		changes++;
	}
	domains[ndomains++] = hash_value;
}
