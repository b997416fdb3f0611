/*-------------------------------------------------------------------------
 *
 * rules.h
 *	  Faults: what goes wrong with which calls.
 *
 * All of it is under the store's lock, unless said otherwise.
 *
 * test/sandbox/rules.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_RULES_H
#define SANDBOX_RULES_H

#include "http.h"
#include "kill.h"

typedef enum Action
{
	ACTION_DELAY,
	ACTION_HOLD,
	ACTION_DROP_BEFORE,
	ACTION_DROP_AFTER,
	ACTION_STATUS,
	ACTION_ANSWER,
	ACTION_GARBAGE,
	ACTION_HALF_BODY,
	ACTION_HUGE_BODY,
	ACTION_STALL_BODY,
	ACTION_RESET,
	ACTION_DECLINE,
	ACTION_NOTFOUND,
	ACTION_KILL,
	ACTION_COUNT
} Action;

/* Rules live in the store's arena: until everything is forgotten. */
typedef struct Rule
{
	struct Rule *next;			/* of those that still match */
	uint32_t	id;
	unsigned	operations;		/* set of 1 << Operation */
	const char *operation;		/* as given */
	const char *reference;		/* NULL: any */
	const char *order;			/* NULL: any */
	int64_t		times;			/* 0: for ever */
	int64_t		hits;
	Action		action;
	int64_t		value;			/* ms of a delay, size of a huge body */
	int			status;			/* of status and answer */
	bool		done;			/* of status and answer: do the work first */
	const char *code;			/* of status: the error's word */
	const char *retry_after;	/* of status, or NULL */
	const char *body;			/* of answer */
	bool		after;			/* of kill */
	KillTarget	target;			/* of kill */
	int			exit_status;	/* of the last kill command; -1: none yet */
	bool		ended;			/* used up or released: matches no more */
	bool		released;
	Call	   *waiting;		/* calls that it holds, newest first */
	int64_t		held;			/* how many */
} Rule;

extern Rule *rule_create(json_t *what, const char **wrong);
extern Rule *rule_by_id(const char *id);
extern void rules_json(Buf *buf);

extern Rule *rule_match(Call *call);
extern void rule_park(Rule *rule, Call *call);
extern void rule_let_go(Call *call, Call **resume);
extern int64_t rule_release(Rule *rule, Call **resume);
extern void rules_release(Call **resume);
extern void rules_forget(Call **resume);

/* rule_json.c */
extern const char *rule_read(Rule *rule, json_t *what);
extern void rule_json(Buf *buf, const Rule *rule);

/* Takes the lock itself; in the call's own thread. */
extern bool rule_stall(Call *call);

#endif							/* SANDBOX_RULES_H */
