/*-------------------------------------------------------------------------
 *
 * rule_json.c
 *	  Rules as they are written to and read from the control face.
 *
 * test/sandbox/rule_json.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "rules.h"

#define DEFAULT_HUGE	(16 * 1024 * 1024)

static const char *const action_names[ACTION_COUNT] = {
	"delay", "hold", "drop_before", "drop_after", "status", "answer", "garbage",
	"half_body", "huge_body", "stall_body", "reset", "decline", "notfound", "kill"
};

/* The error words of HTTP statuses, where the rule gives none. */
static const struct
{
	int			status;
	const char *code;
}			status_codes[] =
{
	{400, "bad_request"},
	{401, "unauthorized"},
	{402, "declined"},
	{403, "forbidden"},
	{404, "not_found"},
	{409, "conflict"},
	{422, "unprocessable"},
	{429, "rate_limited"},
	{500, "internal_error"},
	{502, "bad_gateway"},
	{503, "unavailable"},
	{504, "timeout"}
};

static const char *
keep(const char *text)
{
	return arena_copy(&store.arena, text, strlen(text));
}

/* A name of a rule: absent or '*' means any. */
static bool
read_name(json_t *what, const char *field, const char **name)
{
	json_t	   *value = json_object_get(what, field);

	*name = NULL;
	if (value == NULL || json_is_null(value))
		return true;
	if (!json_is_string(value))
		return false;
	if (strcmp(json_string_value(value), "*") != 0)
		*name = keep(json_string_value(value));
	return true;
}

static bool
read_operation(Rule *rule, json_t *what)
{
	if (!read_name(what, "operation", &rule->operation))
		return false;
	if (rule->operation == NULL)
	{
		rule->operation = "*";
		rule->operations = (1U << OP_COUNT) - 1;
		return true;
	}
	for (int op = 0; op < OP_COUNT; op++)
	{
		if (strcmp(rule->operation, operation_names[op]) == 0)
			rule->operations = 1U << op;
	}
	return rule->operations != 0;
}

static bool
read_action(Rule *rule, json_t *what)
{
	const char *name = json_string_value(json_object_get(what, "action"));

	for (int action = 0; name != NULL && action < ACTION_COUNT; action++)
	{
		if (strcmp(name, action_names[action]) == 0)
		{
			rule->action = (Action) action;
			return true;
		}
	}
	return false;
}

/* An integer within limits; absent leaves the default. */
static bool
read_number(json_t *value, int64_t *number, int64_t least, int64_t most)
{
	if (value == NULL || json_is_null(value))
		return true;
	if (!json_is_integer(value) || json_integer_value(value) < least ||
		json_integer_value(value) > most)
		return false;
	*number = json_integer_value(value);
	return true;
}

static const char *
read_status(Rule *rule, json_t *what)
{
	json_t	   *retry = json_object_get(what, "retry_after");
	json_t	   *code = json_object_get(what, "code");
	int64_t		status = 0;
	int64_t		seconds = -1;

	if (!read_number(json_object_get(what, "value"), &status, 200, 599) || status == 0)
		return "value";
	rule->status = (int) status;
	rule->code = "error";
	for (size_t i = 0; i < lengthof(status_codes); i++)
	{
		if (status_codes[i].status == rule->status)
			rule->code = status_codes[i].code;
	}
	if (json_is_string(code))
		rule->code = keep(json_string_value(code));

	/* seconds, or as text also a date */
	if (json_is_string(retry) && json_string_length(retry) < 64 &&
		strpbrk(json_string_value(retry), "\r\n") == NULL)
		rule->retry_after = keep(json_string_value(retry));
	else if (!read_number(retry, &seconds, 0, 1000000000))
		return "retry_after";
	else if (seconds >= 0)
	{
		Buf			buf = {0};

		buf_int(&buf, seconds);
		rule->retry_after = arena_copy(&store.arena, buf.data, buf.len);
		buf_free(&buf);
	}
	return NULL;
}

static const char *
read_answer(Rule *rule, json_t *what)
{
	json_t	   *value = json_object_get(what, "value");
	int64_t		status = 200;
	char	   *text;

	if (value == NULL)
		return "value";
	if (!read_number(json_object_get(what, "status"), &status, 200, 599))
		return "status";
	rule->status = (int) status;
	if (json_is_string(value))
		rule->body = keep(json_string_value(value));
	else
	{
		text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
		rule->body = keep(text);
		free(text);
	}
	return NULL;
}

static const char *
read_kill(Rule *rule, json_t *what)
{
	const char *value = json_string_value(json_object_get(what, "value"));
	const char *target = json_string_value(json_object_get(what, "target"));

	if (value == NULL || (strcmp(value, "before") != 0 && strcmp(value, "after") != 0))
		return "value";
	rule->after = strcmp(value, "after") == 0;
	if (target == NULL || strcmp(target, "server") == 0)
		rule->target = KILL_SERVER;
	else if (strcmp(target, "worker") == 0)
		rule->target = KILL_WORKER;
	else
		return "target";
	return kill_possible(rule->target) ? NULL : "target";
}

static bool
known_field(const char *name)
{
	static const char *const fields[] = {
		"operation", "reference", "order", "times", "action", "value", "status",
		"done", "code", "retry_after", "target"
	};

	for (size_t i = 0; i < lengthof(fields); i++)
	{
		if (strcmp(name, fields[i]) == 0)
			return true;
	}
	return false;
}

/*
 * Fill a zeroed rule.  Returns the name of a field that is unknown, missing or
 * wrong, else NULL.  Texts go to the store's arena.
 */
const char *
rule_read(Rule *rule, json_t *what)
{
	json_t	   *value = json_object_get(what, "value");
	const char *name;
	json_t	   *ignored;

	json_object_foreach(what, name, ignored)
	{
		if (!known_field(name))
			return name;
	}
	rule->times = 1;
	rule->exit_status = -1;
	if (!read_operation(rule, what))
		return "operation";
	if (!read_name(what, "reference", &rule->reference))
		return "reference";
	if (!read_name(what, "order", &rule->order))
		return "order";
	if (!read_number(json_object_get(what, "times"), &rule->times, 0, INT64_MAX))
		return "times";
	if (!read_action(rule, what))
		return "action";

	if (rule->action == ACTION_STATUS || rule->action == ACTION_ANSWER)
		rule->done = json_is_true(json_object_get(what, "done"));

	switch (rule->action)
	{
		case ACTION_DELAY:
			rule->value = -1;
			if (!read_number(value, &rule->value, 0, 86400000) || rule->value < 0)
				return "value";
			return NULL;
		case ACTION_HUGE_BODY:
			rule->value = DEFAULT_HUGE;
			return read_number(value, &rule->value, 1, INT64_C(1) << 40) ? NULL : "value";
		case ACTION_STATUS:
			return read_status(rule, what);
		case ACTION_ANSWER:
			return read_answer(rule, what);
		case ACTION_KILL:
			return read_kill(rule, what);
		default:
			return NULL;
	}
}

void
rule_json(Buf *buf, const Rule *rule)
{
	buf_printf(buf, "{\"id\":%u,\"operation\":\"%s\",\"reference\":", rule->id,
			   rule->operation);
	buf_json(buf, rule->reference == NULL ? "*" : rule->reference);
	buf_puts(buf, ",\"order\":");
	buf_json(buf, rule->order == NULL ? "*" : rule->order);
	buf_printf(buf, ",\"times\":%lld,\"action\":\"%s\",\"hits\":%lld,\"held\":%lld,\"ended\":%s",
			   (long long) rule->times, action_names[rule->action],
			   (long long) rule->hits, (long long) rule->held,
			   rule->ended ? "true" : "false");
	if (rule->action == ACTION_KILL)
	{
		buf_puts(buf, ",\"exit_status\":");
		if (rule->exit_status < 0)
			buf_puts(buf, "null");
		else
			buf_int(buf, rule->exit_status);
	}
	buf_puts(buf, "}");
}
