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

/*
 * What the caller has in his search_path must not be found by our statements,
 * nor by a type's or a trigger's code that they run; and plans that are kept
 * stay valid only while the path is always the same.
 */
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
	call->settings_level = NewGUCNestLevel();
	SetUserIdAndSecContext(owner, call->caller_security | SECURITY_LOCAL_USERID_CHANGE);
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);

	/* a plan that is made while a table is small must not scan it when it is large */
	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
}

void
api_leave(ApiCall *call)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "could not disconnect from SPI");

	AtEOXact_GUC(true, call->settings_level);
	SetUserIdAndSecContext(call->caller, call->caller_security);
}
