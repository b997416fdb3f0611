/*-------------------------------------------------------------------------
 *
 * payflow.c
 *	  Where the server loads payflow.
 *
 *	  Preloaded, it has shared memory, a launcher and workers.  Loaded by a
 *	  session only, it has its settings and hooks, and its calls say what is
 *	  missing.
 *
 * IDENTIFICATION
 *	  src/payflow.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "provider/provider.h"
#include "shared/shared.h"
#include "worker/supervision.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	define_settings();
	provider_cache_init();
	commit_callback_init();
	ddl_hooks_init();
	if (!process_shared_preload_libraries_in_progress)
		return;

	shared_memory_init();
	if (!IsBinaryUpgrade)
		register_launcher();
}
