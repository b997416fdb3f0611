/*-------------------------------------------------------------------------
 *
 * enter.c
 *	  Whose privileges a call runs with.
 *
 *	  The functions are SECURITY INVOKER: who may call them is decided by
 *	  EXECUTE, who may create payments with a provider by USAGE of the
 *	  caller.  Their SQL then runs as the owner of the tables, on which
 *	  applications need no privileges.
 *
 * IDENTIFICATION
 *	  src/api/enter.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "api/api.h"
#include "lib/compat.h"
#include "lib/spi.h"
#include "shared/shared.h"

void
require_loaded(void)
{
	if (!shared_memory_ready())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("payflow is not loaded by the server"),
				 errhint("Add payflow to shared_preload_libraries and restart the server.")));
}

void
api_enter(ApiCall *call)
{
	Oid			owner = payflow_owner();

	if (!OidIsValid(owner))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"payflow\" is not in this database"),
				 errhint("Run CREATE EXTENSION payflow.")));

	call->result_context = CurrentMemoryContext;
	GetUserIdAndSecContext(&call->caller, &call->caller_security);
	SetUserIdAndSecContext(owner, call->caller_security | SECURITY_LOCAL_USERID_CHANGE);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
}

void
api_leave(ApiCall *call)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "could not disconnect from SPI");

	SetUserIdAndSecContext(call->caller, call->caller_security);
}

void
api_pin_search_path(ApiCall *call)
{
	call->settings_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

void
api_unpin_search_path(ApiCall *call)
{
	AtEOXact_GUC(true, call->settings_level);
}
