/*-------------------------------------------------------------------------
 *
 * commit.c
 *	  Who is to be told when the transaction has committed, and the end of a
 *	  stop of workers.
 *
 *	  One callback for the life of the process and a few marks: nothing is
 *	  allocated, and nothing here raises, for the transaction is committed.
 *	  Marks made in a subtransaction that rolled back stay and wake somebody
 *	  for nothing.  PREPARE TRANSACTION forgets them: workers look by
 *	  themselves now and then, and so do waiters.
 *
 * IDENTIFICATION
 *	  src/shared/commit.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "port/pg_bitutils.h"

#include "lib/compat.h"
#include "shared/shared.h"

StaticAssertDecl(WAIT_VARIABLES <= 64, "the variables must fit into a word");

static bool workers_marked;
static bool pauses_marked;
static uint64 variables_marked; /* a bit each */

static void
tell_marked(void)
{
	while (variables_marked != 0)
	{
		int			variable = pg_rightmost_one_pos64(variables_marked);

		variables_marked &= variables_marked - 1;
		wait_variable_broadcast(variable);
	}
	if (workers_marked)
		wake_workers(MyDatabaseId);
	if (pauses_marked)
		reset_launcher_pauses();
}

static void
at_transaction_end(XactEvent event, void *arg pg_attribute_unused())
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			tell_marked();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			break;
		default:
			return;
	}
	variables_marked = 0;
	workers_marked = false;
	pauses_marked = false;
	workers_resume();
}

void
commit_callback_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
}

void
wake_workers_at_commit(void)
{
	workers_marked = shared_memory_ready();
}

void
tell_waiters_at_commit(const pg_uuid_t *session_id)
{
	if (shared_memory_ready())
		variables_marked |= UINT64CONST(1) << wait_variable_of(MyDatabaseId, session_id);
}

void
reset_launcher_pauses_at_commit(void)
{
	pauses_marked = shared_memory_ready();
}
