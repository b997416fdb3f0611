/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  The shared memory segment: reserved and laid out at server start.
 *
 *	  Not inherited pointers but the startup hook sets what each process uses,
 *	  so that it also works where processes are not forked.
 *
 * IDENTIFICATION
 *	  src/shared/memory.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "lib/compat.h"
#include "shared/shared.h"

#define TRANCHE "payflow"

/* each part begins on a cache line of its own */
static const struct
{
	Size		(*size) (void);
	void		(*setup) (void *memory, bool found);
}			parts[] = {
	{slots_size, slots_setup},
	{waiters_size, waiters_setup},
	{asks_size, asks_setup},
	{limits_size, limits_setup},
};

#define LOCK_COUNT 3

static LWLockPadded *locks;
static shmem_startup_hook_type previous_startup_hook;
#ifdef HAVE_SHMEM_REQUEST_HOOK
static shmem_request_hook_type previous_request_hook;
#endif

static Size
segment_size(void)
{
	Size		size = 0;

	for (size_t i = 0; i < lengthof(parts); i++)
		size = add_size(size, CACHELINEALIGN(parts[i].size()));
	return size;
}

static void
request_memory(void)
{
#ifdef HAVE_SHMEM_REQUEST_HOOK
	if (previous_request_hook)
		previous_request_hook();
#endif
	RequestAddinShmemSpace(segment_size());
	RequestNamedLWLockTranche(TRANCHE, LOCK_COUNT);
}

static void
lay_out_memory(void)
{
	bool		found;
	char	   *at;

	if (previous_startup_hook)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	locks = GetNamedLWLockTranche(TRANCHE);
	at = ShmemInitStruct("payflow", segment_size(), &found);
	for (size_t i = 0; i < lengthof(parts); i++)
	{
		parts[i].setup(at, found);
		at += CACHELINEALIGN(parts[i].size());
	}
	LWLockRelease(AddinShmemInitLock);
}

void
shared_memory_init(void)
{
#ifdef HAVE_SHMEM_REQUEST_HOOK
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
#else
	request_memory();
#endif
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = lay_out_memory;
}

bool
shared_memory_ready(void)
{
	return locks != NULL;
}

LWLock *
shared_lock(int part)
{
	Assert(part >= 0 && part < LOCK_COUNT);
	return &locks[part].lock;
}
