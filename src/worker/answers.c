/*-------------------------------------------------------------------------
 *
 * answers.c
 *	  Applying what the tasks have learned.
 *
 *	  All answers that have arrived are applied in one transaction.  If that
 *	  fails because of one of them, they are gone through one by one, and only
 *	  the failing one is logged and put off.  One whose rows somebody holds is
 *	  come back to as well.  In the end the lease makes up for what is dropped:
 *	  when it is over, the payment is taken again.
 *
 * IDENTIFICATION
 *	  src/worker/answers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/uuid.h"
#include "worker/worker.h"

#define BATCH_MAX 200
#define LATER_MAX 1000

#define BUSY_PAUSE_FIRST MILLISECONDS(50)
#define BUSY_PAUSE_LAST SECONDS(1)
/* an answer that finds its rows held for so long after its lease is dropped */
#define BUSY_BEYOND_LEASE SECONDS(60)

#define FAILURES_MAX 5

/* so many in a row that meet a lock or an internal error: it is not their fault */
#define IN_A_ROW_MAX 3

/* ---- put off and dropped ---- */

static void
drop(Worker *worker, Task *task)
{
	task_tell(task);
	task_free(worker, task);
}

/*
 * Keeps a task for another time.  When there are too many, the oldest goes.
 */
static void
put_off(Worker *worker, Task *task, int64 pause)
{
	task->not_before = GetCurrentTimestamp() + pause;
	dlist_push_tail(&worker->later, &task->node);
	worker->nlater++;
	worker->later_at = Min(worker->later_at, task->not_before);
	if (worker->nlater > LATER_MAX)
	{
		Task	   *oldest = dlist_container(Task, node, dlist_pop_head_node(&worker->later));

		worker->nlater--;
		drop(worker, oldest);
	}
}

static void
put_off_busy(Worker *worker, Task *task)
{
	int64		pause = BUSY_PAUSE_FIRST << Min(task->busy, 10);

	if (GetCurrentTimestamp() > task->payment->lease_until + BUSY_BEYOND_LEASE)
	{
		drop(worker, task);
		return;
	}
	task->busy++;
	put_off(worker, task, Min(pause, BUSY_PAUSE_LAST));
}

static void
alert_dropped(void *arg)
{
	const Task *task = arg;
	char		id[UUID_TEXT_SIZE];

	uuid_to_text(&task->payment->session_id, id);
	raise_alert(psprintf("answer_dropped:%s", id), "critical",
				psprintf("payment session %s: an answer of provider \"%s\" (%s) could not be applied and was dropped",
						 id, task->payment->provider, outcome_name(task->outcome.kind)));
}

/*
 * Applying this task's outcome failed by its own fault.
 */
static void
put_off_failed(Worker *worker, Task *task, const ErrorData *error)
{
	char		id[UUID_TEXT_SIZE];

	uuid_to_text(&task->payment->session_id, id);
	if (task->failures++ == 0)
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("answer for payment session %s could not be applied: %s", id, error->message)));
	if (task->failures < FAILURES_MAX)
	{
		put_off(worker, task, SECONDS(1) << task->failures);
		return;
	}
	(void) run_apart(worker, alert_dropped, task);
	drop(worker, task);
}

/*
 * What becomes of a task that was applied, after the commit.
 */
static void
settle_applied(Worker *worker, Task *task, ApplyResult result)
{
	if (result == APPLY_BUSY)
	{
		put_off_busy(worker, task);
		return;
	}
	drop(worker, task);
}

/* ---- in one go ---- */

static void
choose(Cycle *cycle, Task *task)
{
	dlist_delete(&task->node);
	cycle->batch[cycle->nbatch++] = task;
}

void
choose_answers(Worker *worker, Cycle *cycle)
{
	cycle->batch = palloc_array(Task *, BATCH_MAX);
	cycle->results = palloc0_array(ApplyResult, BATCH_MAX);

	if (worker->later_at <= cycle->now)
	{
		dlist_mutable_iter iter;

		worker->later_at = DT_NOEND;
		dlist_foreach_modify(iter, &worker->later)
		{
			Task	   *task = dlist_container(Task, node, iter.cur);

			if (task->not_before <= cycle->now && cycle->nbatch < BATCH_MAX)
			{
				worker->nlater--;
				choose(cycle, task);
			}
			else
				worker->later_at = Min(worker->later_at, task->not_before);
		}
	}
	while (!dlist_is_empty(&worker->answers) && cycle->nbatch < BATCH_MAX)
		choose(cycle, dlist_head_element(Task, node, &worker->answers));
}

void
apply_answers(Worker *worker, Cycle *cycle)
{
	Outcome   **outcomes;

	if (cycle->nbatch == 0)
		return;
	outcomes = palloc_array(Outcome *, cycle->nbatch);
	for (int i = 0; i < cycle->nbatch; i++)
	{
		task_read_answer(cycle->batch[i]);
		look_at_provider(worker, cycle->batch[i]->serverid);
		outcomes[i] = &cycle->batch[i]->outcome;
	}
	session_apply(outcomes, cycle->nbatch, cycle->results);
	cycle->durable = true;
}

void
answers_applied(Worker *worker, Cycle *cycle)
{
	for (int i = 0; i < cycle->nbatch; i++)
		settle_applied(worker, cycle->batch[i], cycle->results[i]);
	cycle->nbatch = 0;
}

void
keep_answers(Worker *worker, Cycle *cycle)
{
	while (cycle->nbatch > 0)
		dlist_push_head(&worker->answers, &cycle->batch[--cycle->nbatch]->node);
}

/* ---- one by one ---- */

typedef struct OneApplied
{
	Task	   *task;
	ApplyResult result;
} OneApplied;

static void
apply_one(void *arg)
{
	OneApplied *one = arg;
	Outcome    *outcome = &one->task->outcome;

	task_read_answer(one->task);
	session_apply(&outcome, 1, &one->result);
}

/*
 * An internal error is laid to the one that meets it, as long as others do not.
 */
void
apply_one_by_one(Worker *worker, Cycle *cycle)
{
	int			done = 0;
	int			in_a_row = 0;

	for (; done < cycle->nbatch; done++)
	{
		OneApplied	one = {cycle->batch[done], APPLY_BUSY};
		ErrorData  *error = run_apart(worker, apply_one, &one);
		bool		internal;

		if (error == NULL)
		{
			settle_applied(worker, one.task, one.result);
			in_a_row = 0;
			continue;
		}
		internal = ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INTERNAL_ERROR;
		in_a_row = internal || error_kind(error) == ERROR_TRANSIENT ? in_a_row + 1 : 0;
		if (in_a_row == IN_A_ROW_MAX || (error_kind(error) == ERROR_OF_SERVER && !internal))
		{
			pause_worker(worker, error);
			break;
		}
		if (error_kind(error) == ERROR_TRANSIENT)
			put_off_busy(worker, one.task);
		else
			put_off_failed(worker, one.task, error);
	}
	worker->woken = true;		/* alarms were set */
	cycle->nbatch -= done;
	memmove(cycle->batch, cycle->batch + done, sizeof(Task *) * cycle->nbatch);
	keep_answers(worker, cycle);
}
