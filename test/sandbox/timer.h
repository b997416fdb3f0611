/*-------------------------------------------------------------------------
 *
 * timer.h
 *	  Things that happen later.
 *
 * test/sandbox/timer.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_TIMER_H
#define SANDBOX_TIMER_H

#include <stdint.h>

typedef enum TimerKind
{
	TIMER_CALL,					/* Ticket: a delayed call goes on */
	TIMER_EXPIRE,				/* Payment: it lapses if it is still open */
	TIMER_AUTO,					/* Payment: the payer acts */
	TIMER_WEBHOOK				/* WebhookJob: it is sent */
} TimerKind;

/*
 * Stands between a timer and a call, because a call can be let go, and freed,
 * before its timer rings.
 */
typedef struct Ticket
{
	struct Call *call;			/* NULL once it went on */
} Ticket;

extern void timer_start(void);
extern void timer_add(TimerKind kind, int64_t delay_ms, void *what);
extern void timers_forget(void);

#endif							/* SANDBOX_TIMER_H */
