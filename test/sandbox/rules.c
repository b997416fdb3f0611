/*-------------------------------------------------------------------------
 *
 * rules.c
 *	  Which rule a call meets, and the calls that rules hold.  What a rule
 *	  does to a call is in api.c; how one is read from JSON in rule_json.c.
 *
 * test/sandbox/rules.c
 *
 *-------------------------------------------------------------------------
 */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "timer.h"

static Rule *matching;			/* in order of creation */
static Rule **all_rules;
static uint32_t rule_count;
static uint32_t first_rule = 1;

/* Enter a rule that rule_read() has filled. */
static void
rule_add(Rule *rule)
{
	Rule	  **tail = &matching;

	if ((rule_count & (rule_count - 1)) == 0)
		all_rules = xrealloc(all_rules, sizeof(Rule *) *
							 (rule_count == 0 ? 1 : (size_t) rule_count * 2));
	rule->id = first_rule + rule_count;
	all_rules[rule_count++] = rule;
	while (*tail != NULL)
		tail = &(*tail)->next;
	*tail = rule;
}

/*
 * A rule from its JSON; or NULL, and the name of what is wrong with it.
 */
Rule *
rule_create(json_t *what, const char **wrong)
{
	Rule	   *rule = arena_alloc(&store.arena, sizeof(Rule));

	memset(rule, 0, sizeof(*rule));
	*wrong = rule_read(rule, what);
	if (*wrong != NULL)
		return NULL;
	rule_add(rule);
	return rule;
}

Rule *
rule_by_id(const char *id)
{
	int64_t		number;

	if (!parse_int(id, &number) || number < first_rule ||
		number - first_rule >= rule_count)
		return NULL;
	return all_rules[number - first_rule];
}

void
rules_json(Buf *buf)
{
	buf_puts(buf, "[");
	for (uint32_t i = 0; i < rule_count; i++)
	{
		if (i > 0)
			buf_puts(buf, ",");
		rule_json(buf, all_rules[i]);
	}
	buf_puts(buf, "]");
}

/* The rule matches no more calls. */
static void
rule_end(Rule *rule)
{
	Rule	  **place = &matching;

	rule->ended = true;
	while (*place != NULL && *place != rule)
		place = &(*place)->next;
	if (*place != NULL)
		*place = rule->next;
}

static bool
name_matches(const char *wanted, const Subject *subject)
{
	return wanted == NULL ||
		(subject != NULL && strcmp(wanted, subject->name) == 0);
}

/* The first rule for this call, which is thereby used once; or NULL. */
Rule *
rule_match(Call *call)
{
	for (Rule *rule = matching; rule != NULL; rule = rule->next)
	{
		if ((rule->operations & 1U << call->operation) == 0 ||
			!name_matches(rule->reference, call->reference) ||
			!name_matches(rule->order, call->order))
			continue;
		rule->hits++;
		if (rule->times > 0 && rule->hits >= rule->times)
			rule_end(rule);
		return rule;
	}
	return NULL;
}

static void
keep_waiting(Rule *rule, Call *call)
{
	call->prev = NULL;
	call->next = rule->waiting;
	if (rule->waiting != NULL)
		rule->waiting->prev = call;
	rule->waiting = call;
	rule->held++;
	call_suspend(call);
}

/* Hold or delay a call, which is suspended. */
void
rule_park(Rule *rule, Call *call)
{
	keep_waiting(rule, call);
	if (rule->action == ACTION_DELAY)
	{
		call->ticket = xmalloc(sizeof(Ticket));
		call->ticket->call = call;
		timer_add(TIMER_CALL, rule->value, call->ticket);
	}
}

/*
 * Fall silent in the middle of the body.  False: it was released already, the
 * rest can be sent.
 */
bool
rule_stall(Call *call)
{
	bool		wait;

	store_lock();
	wait = !call->stall_over && call->generation == store.generation &&
		!call->rule->released;
	if (wait)
	{
		call->stalled = true;
		keep_waiting(call->rule, call);
	}
	store_unlock();
	return wait;
}

/* Take a call out of its rule, and put it on a list of calls to resume. */
static void
stop_waiting(Call *call, Call **resume)
{
	Rule	   *rule = call->rule;

	if (call->prev != NULL)
		call->prev->next = call->next;
	else
		rule->waiting = call->next;
	if (call->next != NULL)
		call->next->prev = call->prev;
	rule->held--;

	if (call->ticket != NULL)
	{
		call->ticket->call = NULL;
		call->ticket = NULL;
	}
	call->stall_over = call->stalled;
	call->prev = NULL;
	call->next = *resume;
	*resume = call;
}

/*
 * A waiting call goes on: its work is done now.  The caller resumes the calls
 * on the list once the lock is free.
 */
void
rule_let_go(Call *call, Call **resume)
{
	stop_waiting(call, resume);
	if (!call->stalled)
		api_finish(call);
}

/*
 * Let all calls that a rule holds go, oldest first, and end it, so that later
 * ones pass.  Returns how many there were.
 */
int64_t
rule_release(Rule *rule, Call **resume)
{
	int64_t		released = rule->held;
	Call	   *call = rule->waiting;

	rule_end(rule);
	rule->released = true;
	while (call != NULL && call->next != NULL)
		call = call->next;
	while (call != NULL)
	{
		Call	   *newer = call->prev;

		rule_let_go(call, resume);
		call = newer;
	}
	return released;
}

static void
rules_clear(void)
{
	first_rule += rule_count;
	rule_count = 0;
	free(all_rules);
	all_rules = NULL;
	matching = NULL;
}

/* Release all rules, and know them no more. */
void
rules_release(Call **resume)
{
	for (uint32_t i = 0; i < rule_count; i++)
		rule_release(all_rules[i], resume);
	rules_clear();
}

/*
 * Everything is being forgotten: calls that wait are closed without having
 * their work done, so that nothing of before comes into what is new.
 */
void
rules_forget(Call **resume)
{
	for (uint32_t i = 0; i < rule_count; i++)
	{
		Call	   *call;

		while ((call = all_rules[i]->waiting) != NULL)
		{
			stop_waiting(call, resume);
			if (!call->stalled)
				call->answer.delivery = DELIVER_DROP;
		}
	}
	rules_clear();
}
