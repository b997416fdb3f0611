/*-------------------------------------------------------------------------
 *
 * server.c
 *	  Providers out of the catalogs: foreign servers, their owners' user
 *	  mappings and the drivers of their wrappers.
 *
 *	  Each backend keeps the providers it has met.  Any change of a server, a
 *	  mapping or a wrapper throws all of them away at the next look-up: such
 *	  changes are rare, and providers are few.
 *
 * IDENTIFICATION
 *	  src/provider/server.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "foreign/foreign.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "lib/compat.h"
#include "provider/options.h"
#include "provider/provider.h"

static const Driver *const drivers[] = {
	&sandbox_driver,
};

static List *cached_providers = NIL;	/* of Provider *, all in cache_context */
static MemoryContext cache_context = NULL;
static bool cache_valid = false;

const Driver *
driver_by_wrapper(const char *wrapper)
{
	for (size_t i = 0; i < lengthof(drivers); i++)
	{
		if (strcmp(drivers[i]->wrapper, wrapper) == 0)
			return drivers[i];
	}
	return NULL;
}

static void
invalidate_cache(Datum arg pg_attribute_unused(), int cacheid pg_attribute_unused(),
				 uint32 hashvalue pg_attribute_unused())
{
	cache_valid = false;
}

void
provider_cache_init(void)
{
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, invalidate_cache, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, invalidate_cache, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, invalidate_cache, (Datum) 0);
}

/*
 * Empties the cache if anything has changed.  Only at the beginning of a
 * look-up: reading the catalogs for one provider can bring the news that
 * others have changed, while pointers to them are in use.
 */
static void
refresh_cache(void)
{
	if (cache_valid)
		return;
	if (cache_context == NULL)
		cache_context = AllocSetContextCreate(CacheMemoryContext, "payflow providers",
											  ALLOCSET_SMALL_SIZES);
	cached_providers = NIL;
	MemoryContextReset(cache_context);
	cache_valid = true;
}

/*
 * The options of the mapping of a role, which may be InvalidOid for PUBLIC.
 * False when there is no such mapping.
 */
static bool
mapping_options(Oid role, Oid serverid, List **options)
{
	HeapTuple	tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(role),
										ObjectIdGetDatum(serverid));
	Datum		value;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return false;
	value = SysCacheGetAttr(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions, &isnull);
	*options = isnull ? NIL : untransformRelOptions(value);
	ReleaseSysCache(tuple);
	return true;
}

static void
set_interval(Interval *interval, int64 microseconds)
{
	memset(interval, 0, sizeof(*interval));
	interval->time = microseconds;
}

/*
 * Reads a provider from the catalogs; NULL when there is no such server, or it
 * is none of ours.
 */
static Provider *
build_provider(Oid serverid)
{
	ForeignServer *server = GetForeignServerExtended(serverid, FSV_MISSING_OK);
	ForeignDataWrapper *wrapper;
	const Driver *driver;
	Provider   *provider;
	List	   *options;

	if (server == NULL)
		return NULL;
	wrapper = GetForeignDataWrapperExtended(server->fdwid, FDW_MISSING_OK);
	driver = wrapper == NULL ? NULL : driver_by_wrapper(wrapper->fdwname);
	if (driver == NULL)
		return NULL;

	provider = palloc0_object(Provider);
	provider->serverid = serverid;
	provider->name = server->servername;
	provider->driver = driver;
	provider->connect_timeout = 5 * USECS_PER_SEC;
	provider->timeout = 30 * USECS_PER_SEC;
	provider->max_in_flight = 500;
	provider->breaker_failures = 10;
	provider->breaker_pause = 30 * USECS_PER_SEC;
	provider->terms = driver->default_terms;

	read_options(server->options, ForeignServerRelationId, provider);
	if (mapping_options(server->owner, serverid, &options) ||
		mapping_options(InvalidOid, serverid, &options))
		read_options(options, UserMappingRelationId, provider);

	set_interval(&provider->terms.connect_timeout, provider->connect_timeout);
	set_interval(&provider->terms.timeout, provider->timeout);
	return provider;
}

/*
 * One that was made without a validator may have no endpoint.  It is kept in
 * the cache nevertheless: what is wrong with it is logged once and not at each
 * look.
 */
static const Provider *
if_usable(const Provider *provider)
{
	return provider == NULL || provider->endpoint == NULL ? NULL : provider;
}

/* From the cache, or into it. */
static const Provider *
find_provider(Oid serverid)
{
	MemoryContext caller;
	MemoryContext scratch;
	Provider   *provider;
	ListCell   *cell;

	foreach(cell, cached_providers)
	{
		provider = lfirst(cell);
		if (provider->serverid == serverid)
			return if_usable(provider);
	}

	scratch = AllocSetContextCreate(CurrentMemoryContext, "payflow provider", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(scratch);
	provider = build_provider(serverid);
	if (provider != NULL)
	{
		MemoryContextSwitchTo(cache_context);
		provider = provider_copy(provider);
		cached_providers = lappend(cached_providers, provider);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	return if_usable(provider);
}

const Provider *
provider_by_oid(Oid serverid)
{
	refresh_cache();
	return find_provider(serverid);
}

const Provider *
provider_by_name(const char *name)
{
	Oid			serverid = get_foreign_server_oid(name, true);

	return OidIsValid(serverid) ? provider_by_oid(serverid) : NULL;
}

List *
all_providers(void)
{
	Relation	catalog = table_open(ForeignServerRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	List	   *serverids = NIL;
	List	   *result = NIL;
	HeapTuple	tuple;
	ListCell   *cell;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		serverids = lappend_oid(serverids, ((Form_pg_foreign_server) GETSTRUCT(tuple))->oid);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);

	refresh_cache();
	foreach(cell, serverids)
	{
		const Provider *provider = find_provider(lfirst_oid(cell));

		if (provider != NULL)
			result = lappend(result, (void *) provider);
	}
	list_free(serverids);
	return result;
}

bool
providers_are_current(void)
{
	AcceptInvalidationMessages();
	return cache_valid;
}

static char *
copy_string(const char *string)
{
	return string == NULL ? NULL : pstrdup(string);
}

Provider *
provider_copy(const Provider *provider)
{
	Provider   *copy = palloc_object(Provider);

	*copy = *provider;
	copy->name = pstrdup(provider->name);
	copy->endpoint = copy_string(provider->endpoint);
	copy->account = copy_string(provider->account);
	copy->api_key = copy_string(provider->api_key);
	copy->ca_file = copy_string(provider->ca_file);
	return copy;
}
