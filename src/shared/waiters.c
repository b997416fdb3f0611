/*-------------------------------------------------------------------------
 *
 * waiters.c
 *	  The variables on which callers wait for news of a session.
 *
 *	  A fixed number of them, by hash: a waiter may be woken for nothing and
 *	  looks again.
 *
 * IDENTIFICATION
 *	  src/shared/waiters.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "storage/condition_variable.h"

#include "lib/compat.h"
#include "shared/shared.h"

static ConditionVariableMinimallyPadded *variables;

Size
waiters_size(void)
{
	return mul_size(WAIT_VARIABLES, sizeof(ConditionVariableMinimallyPadded));
}

void
waiters_setup(void *memory, bool found)
{
	variables = memory;
	if (found)
		return;
	for (int i = 0; i < WAIT_VARIABLES; i++)
		ConditionVariableInit(&variables[i].cv);
}

int
wait_variable_of(Oid database, const pg_uuid_t *session_id)
{
	uint32		hash = hash_bytes((const unsigned char *) session_id, sizeof(*session_id));

	return hash_combine(hash, database) % WAIT_VARIABLES;
}

void
wait_variable_broadcast(int variable)
{
	ConditionVariableBroadcast(&variables[variable].cv);
}

void
tell_waiters(Oid database, const pg_uuid_t *session_id)
{
	wait_variable_broadcast(wait_variable_of(database, session_id));
}

void
waiter_prepare(const pg_uuid_t *session_id)
{
	ConditionVariablePrepareToSleep(&variables[wait_variable_of(MyDatabaseId, session_id)].cv);
}

bool
waiter_sleep(const pg_uuid_t *session_id, long timeout_ms)
{
	return ConditionVariableTimedSleep(&variables[wait_variable_of(MyDatabaseId, session_id)].cv,
									   timeout_ms, PG_WAIT_EXTENSION);
}

void
waiter_done(void)
{
	ConditionVariableCancelSleep();
}
