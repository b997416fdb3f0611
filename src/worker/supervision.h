/*-------------------------------------------------------------------------
 *
 * supervision.h
 *	  The processes of payflow and the hooks that stop them in time.
 *
 * IDENTIFICATION
 *	  src/worker/supervision.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SUPERVISION_H
#define PAYFLOW_SUPERVISION_H

/* what the launcher hands to a worker in bgw_extra */
typedef struct WorkerStart
{
	uint64		generation;		/* of its slot */
	Oid			database;
} WorkerStart;

/* Main functions of the processes. */
extern PGDLLEXPORT void payflow_launcher_main(Datum arg);
extern PGDLLEXPORT void payflow_worker_main(Datum arg);

/* Registers the launcher; while libraries are preloaded. */
extern void register_launcher(void);

/* Installs the hooks on statements that concern the extension or whole databases. */
extern void ddl_hooks_init(void);

#endif							/* PAYFLOW_SUPERVISION_H */
