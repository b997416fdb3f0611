/*-------------------------------------------------------------------------
 *
 * event.c
 *	  Events about payments: those that changes cause, and those that a test
 *	  asks for.
 *
 * test/sandbox/event.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "webhook.h"

#define AUTOMATIC_TRIES	3
#define MAX_TIMES		1000
#define MAX_DELAY		86400000

/* What POST /webhooks asks for */
typedef struct Wanted
{
	Payment    *payment;
	json_t	   *data;			/* instead of the payment, or NULL */
	const char *type;
	int64_t		times;
	int64_t		delay_ms;
	bool		has_id;
	const char *id;				/* NULL: a new one */
	bool		forge;
	int64_t		timestamp;
	const char *created_at;		/* NULL: now, or created_ms */
	int64_t		created_ms;
} Wanted;

static WebhookEvent *
event_new(const Payment *payment, bool has_id, const char *id)
{
	WebhookEvent *event = xcalloc(sizeof(WebhookEvent));
	char		made[40];

	event->generation = store.generation;
	if (payment != NULL)
	{
		event->reference = payment->reference;
		event->order = payment->order;
	}
	if (has_id)
	{
		snprintf(made, sizeof(made), "evt_%08x%08llx", store.boot,
				 (unsigned long long) store.next_event++);
		event->id = xstrdup(id == NULL ? made : id);
	}
	event->url = xstrdup(store.settings.webhook_url);
	if (store.settings.webhook_secret != NULL)
		event->secret = xstrdup(store.settings.webhook_secret);
	event->tries = 1;
	return event;
}

/* Begin the body; what follows is the data and a closing brace. */
static void
body_head(Buf *buf, const char *id, const char *type)
{
	buf_puts(buf, "{");
	if (id != NULL)
	{
		buf_puts(buf, "\"id\":");
		buf_json(buf, id);
		buf_puts(buf, ",");
	}
	buf_puts(buf, "\"type\":");
	buf_json(buf, type);
	buf_puts(buf, ",\"created_at\":");
}

/* A payment has changed: tell the merchant, if he wants to be told. */
void
webhook_event(Payment *payment, const char *type)
{
	WebhookEvent *event;
	Buf			buf = {0};

	if (!store.settings.webhooks || store.settings.webhook_url == NULL)
		return;
	event = event_new(payment, store.settings.event_ids, NULL);
	event->tries = AUTOMATIC_TRIES;
	body_head(&buf, event->id, type);
	buf_json_time(&buf, now_ms());
	buf_puts(&buf, ",\"data\":");
	payment_json(&buf, payment);
	buf_puts(&buf, "}");
	event->body = buf_take(&buf, &event->body_len);
	webhook_send(event, 1, 0);
}

static bool
read_number(json_t *what, const char *name, int64_t least, int64_t most, int64_t *number)
{
	json_t	   *value = json_object_get(what, name);

	if (value == NULL)
		return true;
	*number = json_integer_value(value);
	return json_is_integer(value) && *number >= least && *number <= most;
}

static bool
read_created_at(json_t *what, Wanted *wanted)
{
	json_t	   *value = json_object_get(what, "created_at");

	wanted->created_ms = now_ms();
	wanted->created_at = json_string_value(value);
	if (!json_is_integer(value))
		return value == NULL || json_is_string(value);
	wanted->created_ms = json_integer_value(value) * 1000;
	return json_integer_value(value) > 0 &&
		json_integer_value(value) < INT64_C(100000000000);
}

static bool
known_field(const char *name)
{
	static const char *const fields[] = {
		"payment", "type", "times", "delay_ms", "event_id", "forge", "created_at",
		"timestamp"
	};

	for (size_t i = 0; i < lengthof(fields); i++)
	{
		if (strcmp(name, fields[i]) == 0)
			return true;
	}
	return false;
}

/* Returns the name of what is wrong, else NULL. */
static const char *
read_wanted(json_t *what, Wanted *wanted)
{
	json_t	   *payment = json_object_get(what, "payment");
	json_t	   *id = json_object_get(what, "event_id");
	json_t	   *type = json_object_get(what, "type");
	const char *name;
	json_t	   *ignored;

	json_object_foreach(what, name, ignored)
	{
		if (!known_field(name))
			return name;
	}
	memset(wanted, 0, sizeof(*wanted));
	wanted->times = 1;
	wanted->has_id = id == NULL ? store.settings.event_ids : !json_is_null(id);
	wanted->id = json_string_value(id);
	if (id != NULL && !json_is_null(id) &&
		(wanted->id == NULL || strpbrk(wanted->id, "\r\n") != NULL))
		return "event_id";
	wanted->forge = json_is_true(json_object_get(what, "forge"));
	if (type != NULL && !json_is_string(type))
		return "type";
	wanted->type = json_string_value(type);
	if (!read_number(what, "times", 1, MAX_TIMES, &wanted->times))
		return "times";
	if (!read_number(what, "delay_ms", 0, MAX_DELAY, &wanted->delay_ms))
		return "delay_ms";
	if (!read_number(what, "timestamp", 1, INT64_C(100000000000), &wanted->timestamp))
		return "timestamp";
	if (!read_created_at(what, wanted))
		return "created_at";

	if (json_is_object(payment))
		wanted->data = payment;
	else if (json_is_string(payment))
		wanted->payment = payment_by_name(json_string_value(payment));
	if (payment == NULL || (wanted->data != NULL && wanted->type == NULL))
		return payment == NULL ? "payment" : "type";
	return NULL;
}

static WebhookEvent *
make_wanted(const Wanted *wanted)
{
	WebhookEvent *event = event_new(wanted->payment, wanted->has_id, wanted->id);
	char		type[64];
	Buf			buf = {0};

	event->forge = wanted->forge;
	event->timestamp = wanted->timestamp;
	if (wanted->type == NULL)
		snprintf(type, sizeof(type), "payment.%s",
				 payment_status_names[wanted->payment->status]);
	body_head(&buf, event->id, wanted->type == NULL ? type : wanted->type);
	if (wanted->created_at != NULL)
		buf_json(&buf, wanted->created_at);
	else
		buf_json_time(&buf, wanted->created_ms);
	buf_puts(&buf, ",\"data\":");
	if (wanted->data != NULL)
	{
		char	   *text = json_dumps(wanted->data, JSON_COMPACT);

		buf_puts(&buf, text);
		free(text);
	}
	else
		payment_json(&buf, wanted->payment);
	buf_puts(&buf, "}");
	event->body = buf_take(&buf, &event->body_len);
	return event;
}

/*
 * POST /webhooks: send one now, and answer once it is delivered; if it is
 * delayed, answer at once.  Returns true if the call waits.
 */
bool
webhook_handle(Call *call, json_t *what)
{
	Wanted		wanted;
	const char *wrong = read_wanted(what, &wanted);
	WebhookEvent *event;
	Buf			buf = {0};

	if (wrong != NULL)
	{
		answer_error(call, 400, "invalid_field", "%s is unknown, missing or not valid", wrong);
		return false;
	}
	if (wanted.payment == NULL && wanted.data == NULL)
	{
		answer_error(call, 404, "not_found", "there is no such payment");
		return false;
	}
	if (store.settings.webhook_url == NULL)
	{
		answer_error(call, 409, "no_webhook_url", "the setting webhook_url is not set");
		return false;
	}

	event = make_wanted(&wanted);
	if (wanted.delay_ms > 0)
	{
		buf_puts(&buf, "{\"event_id\":");
		buf_json(&buf, event->id);
		buf_puts(&buf, ",\"statuses\":[]}");
		answer_json(call, 200, &buf);
	}
	else
	{
		event->reply = xcalloc(sizeof(WebhookReply) + sizeof(int) * (size_t) wanted.times);
		event->reply->call = call;
		event->reply->left = event->reply->count = (int) wanted.times;
		call_suspend(call);
	}
	webhook_send(event, (int) wanted.times, wanted.delay_ms);
	return wanted.delay_ms == 0;
}

/* All is delivered: let the call that waits for it go on. */
void
webhook_reply(WebhookEvent *event)
{
	WebhookReply *reply = event->reply;
	Buf			buf = {0};

	buf_puts(&buf, "{\"event_id\":");
	buf_json(&buf, event->id);
	buf_puts(&buf, ",\"statuses\":[");
	for (int i = 0; i < reply->count; i++)
	{
		if (i > 0)
			buf_puts(&buf, ",");
		buf_int(&buf, reply->statuses[i]);
	}
	buf_puts(&buf, "]}");
	answer_json(reply->call, 200, &buf);
	reply->call->next = NULL;
	calls_resume(reply->call);
	free(reply);
	event->reply = NULL;
}
