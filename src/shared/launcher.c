/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  What backends tell the launcher, and statements that need a database
 *	  without workers.
 *
 *	  A stop names its backend and is taken back when the statement fails, its
 *	  transaction ends (before, others do not see what it did) or the backend
 *	  exits; a crash clears all shared memory.  While it stands,
 *	  neither can a slot of that database be reserved nor can a worker that
 *	  was reserved earlier attach: what remains are the workers that had
 *	  attached, and they are ended.
 *
 * IDENTIFICATION
 *	  src/shared/launcher.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "storage/ipc.h"
#include "storage/lwlock.h"

#include "lib/compat.h"
#include "shared/slots.h"

static int	my_stop = -1;

static void
detach_launcher(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	if (slots->launcher_pid == MyProcPid)
		slots->launcher_pid = 0;
	LWLockRelease(shared_lock(0));
}

void
launcher_attach(void)
{
	on_shmem_exit(detach_launcher, (Datum) 0);

	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	slots->launcher_pid = MyProcPid;
	slots->launcher_procno = MyProcNumberCompat;
	LWLockRelease(shared_lock(0));
}

void
wake_launcher(void)
{
	LWLockAcquire(shared_lock(0), LW_SHARED);
	if (slots->launcher_pid != 0)
		SetLatch(&GetPGProcByNumber(slots->launcher_procno)->procLatch);
	LWLockRelease(shared_lock(0));
}

void
reset_launcher_pauses(void)
{
	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	slots->pauses_reset = true;
	LWLockRelease(shared_lock(0));
	wake_launcher();
}

bool
launcher_pauses_reset(void)
{
	bool		result;

	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	result = slots->pauses_reset;
	slots->pauses_reset = false;
	LWLockRelease(shared_lock(0));
	return result;
}

static void
lift_my_stop(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	if (my_stop >= 0)
		workers_resume();
}

/*
 * Marks the database as stopped and asks its workers to end.  False when there
 * is no place for another stop.
 */
static bool
place_stop(Oid database)
{
	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	for (int i = 0; i < MAX_STOPS && my_stop < 0; i++)
	{
		if (slots->stops[i].pid != 0)
			continue;
		my_stop = i;
		slots->stops[i].database = database;
		slots->stops[i].pid = MyProcPid;
	}
	for (int i = 0; i < MAX_WORKERS && my_stop >= 0; i++)
	{
		WorkerSlot *slot = &slots->slots[i];

		if (slot->info.pid != 0 && slot->info.database == database)
		{
			slot->asked_to_end = true;
			kill(slot->info.pid, SIGTERM);
		}
	}
	LWLockRelease(shared_lock(0));
	return my_stop >= 0;
}

static bool
any_worker(Oid database)
{
	bool		any = false;

	LWLockAcquire(shared_lock(0), LW_SHARED);
	for (int i = 0; i < MAX_WORKERS; i++)
	{
		if (slots->slots[i].info.pid != 0 && slots->slots[i].info.database == database)
			any = true;
	}
	LWLockRelease(shared_lock(0));
	return any;
}

void
workers_stop(Oid database)
{
	static bool registered = false;

	workers_resume();			/* of an earlier statement of this transaction */
	if (!registered)
		before_shmem_exit(lift_my_stop, (Datum) 0);
	registered = true;

	ConditionVariablePrepareToSleep(&slots->changed);
	while (!place_stop(database))
		ConditionVariableSleep(&slots->changed, PG_WAIT_EXTENSION);
	while (any_worker(database))
		ConditionVariableSleep(&slots->changed, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

void
workers_resume(void)
{
	if (my_stop < 0)
		return;
	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	slots->stops[my_stop].pid = 0;
	my_stop = -1;
	LWLockRelease(shared_lock(0));
	ConditionVariableBroadcast(&slots->changed);
	wake_launcher();
}

bool
workers_stopped(Oid database)
{
	bool		result;

	LWLockAcquire(shared_lock(0), LW_SHARED);
	result = is_stopped(database);
	LWLockRelease(shared_lock(0));
	return result;
}
