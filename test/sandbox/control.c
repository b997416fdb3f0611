/*-------------------------------------------------------------------------
 *
 * control.c
 *	  The control face: settings, rules, acts, webhooks, statistics.
 *
 * Every POST and DELETE takes effect before its answer.
 *
 * test/sandbox/control.c
 *
 *-------------------------------------------------------------------------
 */
#include "control.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "rules.h"
#include "timer.h"
#include "webhook.h"

static void
not_found(Call *call)
{
	answer_error(call, 404, "not_found", "there is no %s %s", call->method, call->path);
}

static void
handle_settings(Call *call)
{
	const char *wrong = NULL;
	Buf			buf = {0};

	if (call_is(call, "POST"))
		wrong = settings_change(&store.settings, call->json);
	if (wrong != NULL)
	{
		answer_error(call, 400, "invalid_setting", "%s is unknown or not valid", wrong);
		return;
	}
	settings_json(&buf, &store.settings);
	answer_json(call, 200, &buf);
}

static void
handle_new_rule(Call *call)
{
	const char *wrong;
	Rule	   *rule = rule_create(call->json, &wrong);
	Buf			buf = {0};

	if (rule == NULL)
	{
		answer_error(call, 400, "invalid_rule", "%s is unknown, missing or not valid", wrong);
		return;
	}
	rule_json(&buf, rule);
	answer_json(call, 200, &buf);
}

/* /rules/{id} and /rules/{id}/release */
static void
handle_rule(Call *call, const char *rest, Call **resume)
{
	char	   *id = xstrdup(rest);
	const char *suffix = rest + strcspn(rest, "/");
	Rule	   *rule;
	Buf			buf = {0};

	id[strcspn(rest, "/")] = '\0';
	rule = rule_by_id(id);
	free(id);
	if (rule != NULL && call_is(call, "GET") && *suffix == '\0')
	{
		rule_json(&buf, rule);
		answer_json(call, 200, &buf);
	}
	else if (rule != NULL && call_is(call, "POST") && strcmp(suffix, "/release") == 0)
	{
		int64_t		released = rule_release(rule, resume);

		buf_printf(&buf, "{\"id\":%u,\"released\":%lld,\"hits\":%lld,\"held\":%lld}",
				   rule->id, (long long) released, (long long) rule->hits,
				   (long long) rule->held);
		answer_json(call, 200, &buf);
	}
	else
		not_found(call);
}

static void
answer_done(Call *call)
{
	Buf			buf = {0};

	buf_puts(&buf, "{}");
	answer_json(call, 200, &buf);
}

/*
 * The subject that the query names.  Returns false if it names none; an
 * unknown one is NULL.
 */
static bool
query_subject(const Call *call, Subject **subject, bool *by_order)
{
	const char *reference = call_query(call, "reference");
	const char *order = call_query(call, "order");

	*by_order = reference == NULL;
	*subject = NULL;
	if (reference != NULL)
		*subject = subject_find(&store.references, reference);
	else if (order != NULL)
		*subject = subject_find(&store.orders, order);
	return reference != NULL || order != NULL;
}

static void
list_payment(Buf *buf, Payment *payment)
{
	payment_refresh(payment);
	if (buf->len > 1)
		buf_puts(buf, ",");
	payment_json_control(buf, payment);
}

/* GET /payments, of a reference or order, or all; oldest first */
static void
handle_payments(Call *call)
{
	Subject    *subject;
	bool		by_order;
	bool		some = query_subject(call, &subject, &by_order);
	Buf			buf = {0};

	buf_puts(&buf, "[");
	for (Payment *payment = payment_first(subject, by_order); payment != NULL;
		 payment = payment_next(subject, by_order, payment))
		list_payment(&buf, payment);
	for (uint32_t i = 0; !some && i < store.payment_count; i++)
		list_payment(&buf, store.payments[i]);
	buf_puts(&buf, "]");
	answer_json(call, 200, &buf);
}

/* /payments/{id or reference} and /payments/{id or reference}/{act} */
static void
handle_payment(Call *call, const char *rest)
{
	char	   *name = xstrdup(rest);
	char	   *slash = strrchr(name, '/');
	Payment    *payment;
	Buf			buf = {0};

	/* a reference may have slashes, an act has none */
	if (call_is(call, "POST") && slash != NULL)
	{
		*slash = '\0';
		act_handle(call, name, slash + 1, call->json);
	}
	else if (call_is(call, "GET") && (payment = payment_by_name(name)) != NULL)
	{
		payment_refresh(payment);
		payment_json_control(&buf, payment);
		answer_json(call, 200, &buf);
	}
	else
		not_found(call);
	free(name);
}

/* GET /stats, of a reference or order, or all */
static void
handle_stats(Call *call)
{
	static const Subject nobody;
	Subject    *subject;
	bool		by_order;
	bool		some = query_subject(call, &subject, &by_order);
	const Subject *counts = some ? subject : store.all;
	Sums		sums = {0};
	Buf			buf = {0};

	if (!some)
		sums = store.sums;
	for (Payment *payment = payment_first(subject, by_order); payment != NULL;
		 payment = payment_next(subject, by_order, payment))
	{
		sums.authorized += payment->authorized;
		sums.captured += payment->captured;
		sums.refunded += payment->refunded;
		sums.disputed += payment->disputed;
	}
	if (counts == NULL)
		counts = &nobody;

	buf_puts(&buf, "{\"calls\":{");
	for (int op = 0; op < OP_COUNT; op++)
		buf_printf(&buf, "%s\"%s\":%u", op == 0 ? "" : ",", operation_names[op],
				   counts->calls[op]);
	buf_printf(&buf, "},\"payments\":%u,\"distinct_keys\":%u,\"replays\":%u",
			   counts->payments, counts->distinct_keys, counts->replays);
	buf_printf(&buf, ",\"authorized\":%lld,\"captured\":%lld,\"refunded\":%lld",
			   (long long) sums.authorized, (long long) sums.captured,
			   (long long) sums.refunded);
	buf_printf(&buf, ",\"disputed\":%lld,\"webhooks\":%u}", (long long) sums.disputed,
			   counts->webhooks);
	answer_json(call, 200, &buf);
}

static void
handle_requests(Call *call)
{
	Buf			buf = {0};

	requests_json(&buf, call_query(call, "reference"), call_query(call, "order"));
	answer_json(call, 200, &buf);
}

/* Read the body, which is a JSON object or empty. */
static bool
read_body(Call *call)
{
	json_error_t error;

	if (call->body.len == 0)
		call->json = json_object();
	else
		call->json = json_loadb(call->body.data, call->body.len, 0, &error);
	if (json_is_object(call->json))
		return true;
	if (call->json == NULL)
		answer_error(call, 400, "invalid_json", "%s", error.text);
	else
		answer_error(call, 400, "invalid_json", "the body is no JSON object");
	return false;
}

/*
 * Do what the call asks for, under the lock.  Returns true if it waits.
 */
static bool
dispatch(Call *call, Call **resume)
{
	const char *path = call->path;
	bool		get = call_is(call, "GET");
	bool		post = call_is(call, "POST");
	bool		delete = call_is(call, "DELETE");
	const char *rest;

	if (delete && strcmp(path, "/") == 0)
	{
		/* in this order: calls hold rules and tickets, timers hold jobs */
		rules_forget(resume);
		timers_forget();
		requests_forget();
		store_forget();
		answer_done(call);
	}
	else if (delete && strcmp(path, "/rules") == 0)
	{
		rules_release(resume);
		answer_done(call);
	}
	else if (get && strcmp(path, "/") == 0)
		answer_done(call);
	else if ((get || post) && strcmp(path, "/settings") == 0)
		handle_settings(call);
	else if (post && strcmp(path, "/rules") == 0)
		handle_new_rule(call);
	else if (get && strcmp(path, "/rules") == 0)
	{
		Buf			buf = {0};

		rules_json(&buf);
		answer_json(call, 200, &buf);
	}
	else if ((rest = after_prefix(path, "/rules/")) != NULL)
		handle_rule(call, rest, resume);
	else if (get && strcmp(path, "/payments") == 0)
		handle_payments(call);
	else if ((rest = after_prefix(path, "/payments/")) != NULL)
		handle_payment(call, rest);
	else if (post && strcmp(path, "/webhooks") == 0)
		return webhook_handle(call, call->json);
	else if (get && strcmp(path, "/stats") == 0)
		handle_stats(call);
	else if (get && strcmp(path, "/requests") == 0)
		handle_requests(call);
	else
		not_found(call);
	return false;
}

bool
control_handle(Call *call)
{
	Call	   *resume = NULL;
	bool		waits;
	bool		forgotten;
	uint32_t	generation;

	if (call_is(call, "POST") && !read_body(call))
		return false;
	store_lock();
	generation = store.generation;
	waits = dispatch(call, &resume);
	forgotten = generation != store.generation;
	store_unlock();
	calls_resume(resume);
	if (forgotten)
	{
		webhook_forget();
		malloc_trim(0);			/* a million payments are worth giving back */
	}
	return waits;
}
