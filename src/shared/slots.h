/*-------------------------------------------------------------------------
 *
 * slots.h
 *	  Private to src/shared: the workers' slots and what the launcher and the
 *	  statements that stop workers share with them.  All guarded by
 *	  shared_lock(0).
 *
 * IDENTIFICATION
 *	  src/shared/slots.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SLOTS_H
#define PAYFLOW_SLOTS_H

#include "storage/condition_variable.h"

#include "shared/shared.h"

/* statements that stop workers, at the same time; more of them wait */
#define MAX_STOPS 32

typedef struct WorkerSlot
{
	WorkerInfo	info;
	int			procno;			/* of the worker's PGPROC, while pid is set */
	bool		asked_to_end;
} WorkerSlot;

typedef struct Stop				/* workers of the database must not run */
{
	Oid			database;
	int			pid;			/* the backend that wants it so; 0: not in use */
} Stop;

typedef struct Slots
{
	int			launcher_pid;	/* 0: none */
	int			launcher_procno;
	bool		pauses_reset;
	ConditionVariable changed;	/* a worker has ended, or a stop */
	Stop		stops[MAX_STOPS];
	WorkerSlot	slots[MAX_WORKERS];
} Slots;

extern Slots *slots;

/* Caller must hold shared_lock(0). */
extern bool is_stopped(Oid database);

#endif							/* PAYFLOW_SLOTS_H */
