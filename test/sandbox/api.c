/*-------------------------------------------------------------------------
 *
 * api.c
 *	  The way of a call through the provider's API: read, counted, met by a
 *	  rule, checked, its key claimed, perhaps made to wait, worked, answered.
 *
 * test/sandbox/api.c
 *
 *-------------------------------------------------------------------------
 */
#include "api.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rules.h"

/* Bytes that are neither JSON nor UTF-8, with a NUL among them */
static const char garbage[] =
	"\xff\xfe{\"id\":\x00\xc3\x28 <html>502\x80\x9f</html>\r\n\x1b[0m\xf8";

/* What may follow /v1/payments/{id} */
static const struct
{
	const char *suffix;
	const char *method;
	Operation	operation;
}			payment_routes[] =
{
	{"", "GET", OP_GET},
	{"/capture", "POST", OP_CAPTURE},
	{"/cancel", "POST", OP_CANCEL},
	{"/expire", "POST", OP_EXPIRE},
	{"/refunds", "POST", OP_REFUND}
};

static char *
copy_query(const Call *call, const char *name)
{
	const char *value = call_query(call, name);

	return value == NULL ? NULL : xstrdup(value);
}

/* A call of a payment or refund: /v1/<things>/{id}<suffix> */
static int
route_payment(Call *call, const char *rest)
{
	const char *slash = strchr(rest, '/');
	const char *suffix = slash == NULL ? "" : slash;

	for (size_t i = 0; i < lengthof(payment_routes); i++)
	{
		if (strcmp(payment_routes[i].suffix, suffix) != 0)
			continue;
		if (!call_is(call, payment_routes[i].method))
			return 405;
		call->operation = payment_routes[i].operation;
		call->id = xstrdup(rest);
		call->id[strcspn(rest, "/")] = '\0';
		return 0;
	}
	return 404;
}

/* Find out which operation this is.  Returns 0, or an HTTP status. */
static int
route(Call *call)
{
	const char *rest;

	if (strcmp(call->path, "/v1/payments") == 0)
	{
		if (call_is(call, "POST"))
			call->operation = OP_REGISTER;
		else if (call_is(call, "GET"))
		{
			call->operation = OP_FIND;
			call->query[0] = copy_query(call, "reference");
		}
		return call->operation == OP_NONE ? 405 : 0;
	}
	if ((rest = after_prefix(call->path, "/v1/payments/")) != NULL)
		return route_payment(call, rest);
	if ((rest = after_prefix(call->path, "/v1/refunds/")) != NULL)
	{
		call->operation = OP_GET;
		call->about_refund = true;
		call->id = xstrdup(rest);
		return call_is(call, "GET") ? 0 : 405;
	}
	if (strcmp(call->path, "/v1/report") == 0)
	{
		call->operation = OP_REPORT;
		call->query[0] = copy_query(call, "day");
		call->query[1] = copy_query(call, "cursor");
		return call_is(call, "GET") ? 0 : 405;
	}
	return 404;
}

/* SHA-256; only called in the one thread of this face. */
static void
digest_body(Call *call)
{
	static EVP_MD *sha256;
	static EVP_MD_CTX *context;

	if (context == NULL)
	{
		sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
		context = EVP_MD_CTX_new();
	}
	EVP_DigestInit_ex(context, sha256, NULL);
	EVP_DigestUpdate(context, call->body.data, call->body.len);
	EVP_DigestFinal_ex(context, call->digest, NULL);
}

/* What needs no lock: digest, JSON, key. */
static void
read_request(Call *call)
{
	const char *key = call_header(call, "Idempotency-Key");

	digest_body(call);
	if (!call_is(call, "POST"))
		return;
	if (key != NULL)
		call->key_name = xstrdup(key);
	if (call->body.len == 0)
		call->json = json_object();
	else
		call->json = json_loadb(call->body.data, call->body.len, 0, NULL);
	if (call->json != NULL && !json_is_object(call->json))
	{
		json_decref(call->json);
		call->json = NULL;
	}
}

static Subject *
body_subject(Table *table, json_t *json, const char *field)
{
	json_t	   *value = json_object_get(json, field);

	if (!json_is_string(value) || json_string_length(value) == 0 ||
		json_string_length(value) > MAX_NAME)
		return NULL;
	return subject_get(table, json_string_value(value));
}

/* Whom the call is about. */
static void
identify(Call *call)
{
	switch (call->operation)
	{
		case OP_REGISTER:
			call->reference = body_subject(&store.references, call->json, "reference");
			call->order = body_subject(&store.orders, call->json, "order");
			if (call->reference != NULL && call->reference->order == NULL)
				call->reference->order = call->order;
			return;
		case OP_FIND:
			if (call->query[0] == NULL || call->query[0][0] == '\0' ||
				strlen(call->query[0]) > MAX_NAME)
				return;
			call->reference = subject_get(&store.references, call->query[0]);
			call->order = call->reference->order;
			return;
		case OP_REPORT:
			return;
		default:
			if (call->about_refund)
				call->refund = refund_by_id(call->id);
			if (call->refund != NULL)
				call->payment = call->refund->payment;
			else if (!call->about_refund)
				call->payment = payment_by_id(call->id);
			if (call->payment == NULL)
				return;
			payment_refresh(call->payment);
			call->reference = call->payment->reference;
			call->order = call->payment->order;
	}
}

static void
count(const Call *call)
{
	Subject    *subjects[] = {store.all, call->reference, call->order};

	for (size_t i = 0; i < lengthof(subjects); i++)
	{
		if (subjects[i] == NULL)
			continue;
		subjects[i]->calls[call->operation]++;
		if (call->operation == OP_REGISTER && call->key_name != NULL &&
			!seen_before(call->key_name, subjects[i]))
			subjects[i]->distinct_keys++;
	}
}

static void
count_replay(const Call *call)
{
	store.all->replays++;
	if (call->reference != NULL)
		call->reference->replays++;
	if (call->order != NULL)
		call->order->replays++;
}

static bool
authorized(const Call *call)
{
	const char *header = call_header(call, "Authorization");

	if (header == NULL || strncasecmp(header, "Bearer ", 7) != 0)
		return false;
	header += 7;
	return *header != '\0' && settings_accept_key(&store.settings, header);
}

/*
 * Rules that answer instead of the provider: the call gets no further.
 */
static bool
answered_by_rule(Call *call)
{
	const Rule *rule = call->rule;
	Buf			buf = {0};

	switch (rule->action)
	{
		case ACTION_DROP_BEFORE:
			call->answer.delivery = DELIVER_DROP;
			return true;
		case ACTION_RESET:
			call->answer.delivery = DELIVER_RESET;
			return true;
		case ACTION_NOTFOUND:
			answer_error(call, 404, "not_found", "a rule of the test says so");
			return true;
		case ACTION_DECLINE:
			if (call->operation == OP_REGISTER)
				return false;	/* answered as a declined payment */
			answer_error(call, 402, "declined", "a rule of the test says so");
			return true;
		case ACTION_STATUS:
			answer_error(call, rule->status, rule->code, "a rule of the test says so");
			if (rule->retry_after != NULL && call->answer.retry_after == NULL)
				call->answer.retry_after = xstrdup(rule->retry_after);
			return !rule->done;
		case ACTION_ANSWER:
			buf_puts(&buf, rule->body);
			answer_json(call, rule->status, &buf);
			return !rule->done;
		default:
			return false;
	}
}

/* Validate and claim the key.  False: the call is answered. */
static bool
accept_post(Call *call)
{
	const char *wrong;
	uint64_t	target;

	if (call->key_name == NULL || call->key_name[0] == '\0')
	{
		answer_error(call, 400, "key_required", "POST needs an Idempotency-Key");
		return false;
	}
	if (strlen(call->key_name) > MAX_KEY)
	{
		answer_error(call, 400, "invalid_key", "the Idempotency-Key is over %d bytes",
					 MAX_KEY);
		return false;
	}
	wrong = call->json == NULL ? "json" : operation_check(call);
	if (wrong != NULL)
	{
		char		code[64];

		snprintf(code, sizeof(code), "invalid_%s", wrong);
		answer_error(call, 400, code, "%s is missing or not valid", wrong);
		return false;
	}

	target = hash_bytes(call->path, strlen(call->path));
	call->claim = key_claim(call->key_name, target, call->digest, &call->key);
	if (call->claim == KEY_REUSED)
		answer_error(call, 422, "key_reused", "this key came with another call before");
	else if (call->claim == KEY_IN_USE)
		answer_error(call, 409, "key_in_use", "a call with this key is being worked");
	return call->claim == KEY_CLAIMED || call->claim == KEY_REPLAY;
}

/* After the work: what the rule does to the answer. */
static void
spoil_answer(Call *call)
{
	Answer	   *answer = &call->answer;
	Buf			buf = {0};

	switch (call->rule->action)
	{
		case ACTION_DROP_AFTER:
			answer->delivery = DELIVER_DROP;
			break;
		case ACTION_GARBAGE:
			buf_append(&buf, garbage, sizeof(garbage) - 1);
			answer_json(call, 200, &buf);
			break;
		case ACTION_HALF_BODY:
			answer->delivery = DELIVER_HALF;
			break;
		case ACTION_STALL_BODY:
			answer->delivery = DELIVER_STALL;
			break;
		case ACTION_HUGE_BODY:
			if ((uint64_t) call->rule->value > answer->len)
				answer->padding = (uint64_t) call->rule->value - answer->len;
			break;
		default:
			break;
	}
}

/* Was the call's work of the kind that a repeat must not do again? */
static bool
worth_keeping(int status)
{
	return status != 400 && status != 404;
}

static void
keep_answer(Call *call, bool by_rule)
{
	const Answer *answer = &call->answer;

	if (!worth_keeping(answer->status) && !by_rule)
		key_free(call->key);
	else if (call->operation == OP_REGISTER && !by_rule)
		key_keep_registered(call->key, answer->status, call->payment);
	else
		key_keep(call->key, answer->status, answer->body, answer->len);
}

/*
 * Do a call's work and make its answer.  Called in any thread, under the lock,
 * once all waiting is over.
 */
void
api_finish(Call *call)
{
	bool		by_rule = call->rule != NULL && call->rule->done;
	Buf			buf = {0};

	if (call->key != NULL && call->claim == KEY_REPLAY)
	{
		int			status = key_answer(call->key, &buf);

		answer_json(call, status, &buf);
		call->answer.replayed = true;
		count_replay(call);
	}
	else
		operation_do(call);

	if (by_rule)
	{
		answered_by_rule(call);
		call->answer.replayed = false;
	}
	if (call->key != NULL && call->claim == KEY_CLAIMED)
		keep_answer(call, by_rule);
	if (call->rule != NULL)
		spoil_answer(call);
	request_answered(call);
}

/* Close a call whose key is claimed, but whose work shall not be done. */
void
api_abandon(Call *call)
{
	if (call->key != NULL && call->claim == KEY_CLAIMED)
		key_free(call->key);
	call->answer.delivery = DELIVER_DROP;
	request_answered(call);
}

/* Returns true if the call waits now. */
static bool
begin(Call *call)
{
	Rule	   *rule;

	if (!authorized(call))
	{
		answer_error(call, 401, "unauthorized", "no acceptable API key was given");
		return false;
	}
	rule = call->rule = rule_match(call);
	if (rule != NULL && !rule->done && answered_by_rule(call))
		return false;
	if (call_is(call, "POST") && !accept_post(call))
		return false;

	if (rule != NULL && (rule->action == ACTION_HOLD || rule->action == ACTION_DELAY))
	{
		rule_park(rule, call);
		return true;
	}
	if (rule != NULL && rule->action == ACTION_KILL)
	{
		if (rule->after)
			api_finish(call);
		kill_start(call);
		return true;
	}
	api_finish(call);
	return false;
}

/* A call has been read. */
bool
api_handle(Call *call)
{
	const char *page = after_prefix(call->path, "/pay/");
	bool		waits;
	int			status;

	if (page != NULL)
		return page_handle(call, page);
	status = route(call);
	if (status != 0)
	{
		answer_error(call, status, status == 405 ? "method_not_allowed" : "not_found",
					 "there is no %s %s", call->method, call->path);
		return false;
	}
	read_request(call);

	store_lock();
	call->generation = store.generation;
	identify(call);
	count(call);
	call->record = request_note(call);
	waits = begin(call);
	if (!waits)
		request_answered(call);
	store_unlock();
	return waits;
}
