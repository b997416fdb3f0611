/*-------------------------------------------------------------------------
 *
 * timer.c
 *	  Things that happen later: a heap of what is due when, under the store's
 *	  lock, and the thread that does it.
 *
 * test/sandbox/timer.c
 *
 *-------------------------------------------------------------------------
 */
#include "timer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http.h"
#include "rules.h"
#include "webhook.h"

#define TIMER_BATCH	200			/* how many are done in one hold of the lock */

typedef struct Timer
{
	int64_t		due;			/* tick_ms() */
	void	   *what;
	TimerKind	kind;
} Timer;

static Timer *heap;
static size_t heap_len;
static size_t heap_size;
static pthread_cond_t heap_changed;

static void
heap_put(Timer timer)
{
	size_t		i = heap_len++;

	if (heap_len > heap_size)
	{
		heap_size = heap_size == 0 ? 256 : heap_size * 2;
		heap = xrealloc(heap, heap_size * sizeof(Timer));
	}
	while (i > 0 && heap[(i - 1) / 2].due > timer.due)
	{
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = timer;
}

static Timer
heap_take(void)
{
	Timer		first = heap[0];
	Timer		last = heap[--heap_len];
	size_t		i = 0;

	for (;;)
	{
		size_t		child = 2 * i + 1;

		if (child >= heap_len)
			break;
		if (child + 1 < heap_len && heap[child + 1].due < heap[child].due)
			child++;
		if (heap[child].due >= last.due)
			break;
		heap[i] = heap[child];
		i = child;
	}
	if (heap_len > 0)
		heap[i] = last;
	return first;
}

/* Caller holds the store's lock. */
void
timer_add(TimerKind kind, int64_t delay_ms, void *what)
{
	Timer		timer = {.due = tick_ms() + delay_ms,.what = what,.kind = kind};

	heap_put(timer);
	if (heap[0].what == what)
		pthread_cond_signal(&heap_changed);
}

/*
 * Drop all timers.  Caller holds the store's lock, and has let all delayed
 * calls go.
 */
void
timers_forget(void)
{
	for (size_t i = 0; i < heap_len; i++)
	{
		if (heap[i].kind == TIMER_CALL)
			free(heap[i].what);
		else if (heap[i].kind == TIMER_WEBHOOK)
			webhook_job_cancel(heap[i].what);
	}
	free(heap);
	heap = NULL;
	heap_len = 0;
	heap_size = 0;
}

static void
ring(Timer timer, Call **resume)
{
	Ticket	   *ticket;

	switch (timer.kind)
	{
		case TIMER_CALL:
			ticket = timer.what;
			if (ticket->call != NULL)
				rule_let_go(ticket->call, resume);
			free(ticket);
			break;
		case TIMER_EXPIRE:
			payment_refresh(timer.what);
			break;
		case TIMER_AUTO:
			payment_auto(timer.what);
			break;
		case TIMER_WEBHOOK:
			webhook_job_queue(timer.what);
			break;
	}
}

static void
wait_until(int64_t due)
{
	struct timespec ts = {.tv_sec = due / 1000,.tv_nsec = due % 1000 * 1000000};

	pthread_cond_timedwait(&heap_changed, &store.lock, &ts);
}

static void *
timer_main(void *arg)
{
	(void) arg;
	for (;;)
	{
		Call	   *resume = NULL;
		int64_t		now = tick_ms();

		store_lock();
		for (int n = 0; n < TIMER_BATCH && heap_len > 0 && heap[0].due <= now; n++)
			ring(heap_take(), &resume);
		if (resume == NULL)
		{
			if (heap_len == 0)
				pthread_cond_wait(&heap_changed, &store.lock);
			else if (heap[0].due > tick_ms())
				wait_until(heap[0].due);
		}
		store_unlock();
		calls_resume(resume);
	}
	return NULL;
}

void
timer_start(void)
{
	pthread_condattr_t attr;
	pthread_t	thread;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&heap_changed, &attr);
	if (pthread_create(&thread, NULL, timer_main, NULL) != 0)
		abort();
	pthread_detach(thread);
}
