/*-------------------------------------------------------------------------
 *
 * slots.c
 *	  The workers' slots: who works for which database.
 *
 *	  The launcher reserves slots and frees them; a worker attaches to the one
 *	  that was reserved for it and marks it ended when it exits.  A slot's
 *	  generation tells its present worker from an earlier one, so a worker
 *	  that the launcher has given up can never attach.
 *
 * IDENTIFICATION
 *	  src/shared/slots.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "shared/slots.h"

Slots	   *slots;

static int	my_slot = -1;

Size
slots_size(void)
{
	return sizeof(Slots);
}

void
slots_setup(void *memory, bool found)
{
	slots = memory;
	if (found)
		return;
	memset(slots, 0, sizeof(Slots));
	ConditionVariableInit(&slots->changed);
	for (int i = 0; i < MAX_WORKERS; i++)
		slots->slots[i].info.slot = i;
}

bool
is_stopped(Oid database)
{
	for (int i = 0; i < MAX_STOPS; i++)
	{
		if (slots->stops[i].pid != 0 && slots->stops[i].database == database)
			return true;
	}
	return false;
}

/* The slot if it still is of that generation.  Caller must hold the lock. */
static WorkerSlot *
find_slot(int slot, uint64 generation)
{
	if (slot < 0 || slot >= MAX_WORKERS || slots->slots[slot].info.generation != generation)
		return NULL;
	return &slots->slots[slot];
}

/* The lowest number that no worker of the database has.  Caller must hold the lock. */
static int
free_number(Oid database)
{
	for (int number = 1;; number++)
	{
		int			i;

		for (i = 0; i < MAX_WORKERS; i++)
		{
			WorkerInfo *info = &slots->slots[i].info;

			if (info->state != WORKER_FREE && info->database == database && info->number == number)
				break;
		}
		if (i == MAX_WORKERS)
			return number;
	}
}

int
worker_slot_reserve(Oid database, const char *datname, uint64 *generation, int *number)
{
	int			result = SLOT_NONE;

	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	if (is_stopped(database))
		result = SLOT_STOPPED;
	for (int i = 0; i < MAX_WORKERS && result == SLOT_NONE; i++)
	{
		WorkerInfo *info = &slots->slots[i].info;
		uint64		next = info->generation + 1;

		if (info->state != WORKER_FREE)
			continue;
		*number = free_number(database);
		memset(&slots->slots[i], 0, sizeof(WorkerSlot));
		info->slot = i;
		info->generation = next;
		info->number = *number;
		info->state = WORKER_STARTING;
		info->database = database;
		namestrcpy(&info->datname, datname);
		info->started_at = GetCurrentTimestamp();
		*generation = next;
		result = i;
	}
	LWLockRelease(shared_lock(0));
	return result;
}

void
worker_slot_free(int slot, uint64 generation)
{
	WorkerSlot *found;

	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	found = find_slot(slot, generation);
	if (found != NULL && found->info.pid == 0)
		found->info.state = WORKER_FREE;
	LWLockRelease(shared_lock(0));
}

void
worker_slot_terminate(int slot, uint64 generation)
{
	WorkerSlot *found;

	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	found = find_slot(slot, generation);
	if (found != NULL)
	{
		found->asked_to_end = true;
		/* a pid in a slot is that of a living process: it takes the lock to leave */
		if (found->info.pid != 0)
			kill(found->info.pid, SIGTERM);
		else if (found->info.state == WORKER_STARTING)
			found->info.state = WORKER_FREE;
	}
	LWLockRelease(shared_lock(0));
}

/*
 * Exit callback of a worker.  It runs after the process has left its database
 * (it was registered before that was entered), so whoever waits for the slot
 * to end can go on at once.
 */
static void
leave_slot(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	WorkerSlot *slot = &slots->slots[my_slot];

	/* only the process itself writes its pid there */
	if (slot->info.pid != MyProcPid)
		return;
	limits_forget_self();
	ask_forget_worker(my_slot);

	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	if (slot->info.state == WORKER_NO_EXTENSION)
		slot->info.end = END_NO_EXTENSION;
	else
		slot->info.end = slot->asked_to_end ? END_ASKED : END_BY_ITSELF;
	slot->info.state = WORKER_ENDED;
	slot->info.pid = 0;
	LWLockRelease(shared_lock(0));
	ConditionVariableBroadcast(&slots->changed);
	wake_launcher();
}

bool
worker_slot_attach(int slot, uint64 generation)
{
	WorkerSlot *found;
	bool		attached = false;

	Assert(my_slot < 0);
	if (slot < 0 || slot >= MAX_WORKERS)
		return false;
	my_slot = slot;
	on_shmem_exit(leave_slot, (Datum) 0);

	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	found = find_slot(slot, generation);
	if (found != NULL && found->info.state == WORKER_STARTING && found->info.pid == 0 &&
		!is_stopped(found->info.database))
	{
		found->info.pid = MyProcPid;
		found->info.started_at = GetCurrentTimestamp();
		found->info.last_loop = found->info.started_at;
		found->procno = MyProcNumberCompat;
		attached = true;
	}
	LWLockRelease(shared_lock(0));
	return attached;
}

int
my_worker_slot(void)
{
	return my_slot;
}

void
worker_slot_report(WorkerState state, const char *queues, const int *in_flight, int64 calls)
{
	WorkerInfo *info = &slots->slots[my_slot].info;

	Assert(my_slot >= 0);
	LWLockAcquire(shared_lock(0), LW_EXCLUSIVE);
	info->state = state;
	strlcpy(info->queues, queues, sizeof(info->queues));
	memcpy(info->in_flight, in_flight, sizeof(info->in_flight));
	info->calls = calls;
	info->last_loop = GetCurrentTimestamp();
	LWLockRelease(shared_lock(0));
}

int
worker_slots_read(WorkerInfo *infos)
{
	int			n = 0;

	LWLockAcquire(shared_lock(0), LW_SHARED);
	for (int i = 0; i < MAX_WORKERS; i++)
	{
		if (slots->slots[i].info.state != WORKER_FREE)
			infos[n++] = slots->slots[i].info;
	}
	LWLockRelease(shared_lock(0));
	return n;
}

void
wake_workers(Oid database)
{
	LWLockAcquire(shared_lock(0), LW_SHARED);
	for (int i = 0; i < MAX_WORKERS; i++)
	{
		WorkerSlot *slot = &slots->slots[i];

		if (slot->info.pid != 0 && slot->info.database == database && i != my_slot)
			SetLatch(&GetPGProcByNumber(slot->procno)->procLatch);
	}
	LWLockRelease(shared_lock(0));
}
