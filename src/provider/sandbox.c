/*-------------------------------------------------------------------------
 *
 * sandbox.c
 *	  The driver of the test provider.
 *
 *	  JSON over HTTP, bearer authentication, idempotency keys on every POST,
 *	  amounts in minor units.  An answer counts only if it is the provider's
 *	  own: a page that some proxy made says nothing of a payment, whatever its
 *	  status code.
 *
 * IDENTIFICATION
 *	  src/provider/sandbox.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "catalog/pg_foreign_server.h"
#include "fmgr.h"

#include "lib/json.h"
#include "lib/money.h"
#include "lib/uuid.h"
#include "lib/wire.h"
#include "provider/options.h"
#include "provider/provider.h"

#define ID_MAX 255
#define STATUS_MAX 60
#define MESSAGE_MAX 500

/* sums of a few such totals still fit */
#define TOTAL_MAX INT64CONST(1000000000000000000)

PG_FUNCTION_INFO_V1(payflow_sandbox_validator);

static const OptionChoice lookups[] = {
	{"none", LOOKUP_NONE},
	{"lagging", LOOKUP_LAGGING},
	{"exact", LOOKUP_EXACT},
	{.word = NULL}
};

static const ProviderOption sandbox_options[] = {
	{"lookup", ForeignServerRelationId, OPTION_CHOICE,
	.place = offsetof(Provider, terms.lookup), .choices = lookups},
	{.name = NULL}
};

Datum
payflow_sandbox_validator(PG_FUNCTION_ARGS)
{
	check_options(untransformRelOptions(PG_GETARG_DATUM(0)), PG_GETARG_OID(1), sandbox_options);
	PG_RETURN_VOID();
}

static bool
sandbox_supports_currency(const char *currency)
{
	return currency_exponent(currency) >= 0;
}

/* ---- requests ---- */

/* The application's return URL with the session's id where it wants it. */
static char *
return_url(const PaymentRow *payment, const char *session_id)
{
	static const char placeholder[] = "{SESSION_ID}";
	const char *at = payment->return_url;
	const char *hit;
	StringInfoData url;

	if (at == NULL)
		return NULL;
	initStringInfo(&url);
	while ((hit = strstr(at, placeholder)) != NULL)
	{
		appendBinaryStringInfo(&url, at, hit - at);
		appendStringInfoString(&url, session_id);
		at = hit + strlen(placeholder);
	}
	appendStringInfoString(&url, at);
	return url.data;
}

static char *
register_body(const PaymentRow *payment, const char *session_id)
{
	StringInfoData body;

	initStringInfo(&body);
	json_open_object(&body);
	json_put_string(&body, "reference", session_id);
	json_put_string(&body, "order", payment->order_id);
	json_put_int64(&body, "amount", payment->amount);
	json_put_string(&body, "currency", payment->currency);
	json_put_string(&body, "capture", payment->manual_capture ? "manual" : "automatic");
	json_put_string(&body, "return_url", return_url(payment, session_id));
	json_put_raw(&body, "receipt", payment->receipt);
	json_close_object(&body);
	return body.data;
}

static void
add_header(ProviderRequest *request, const char *name, const char *value)
{
	request->headers = lappend(request->headers, psprintf("%s: %s", name, value));
}

/* A POST with its idempotency key, which is the same at every repeat. */
static void
set_post(ProviderRequest *request, const char *body, const char *key)
{
	request->method = "POST";
	request->mutating = true;
	request->body = unconstify(char *, utf8_from_server(body));
	request->body_length = strlen(request->body);
	add_header(request, "Content-Type", "application/json");
	add_header(request, "Idempotency-Key", key);
}

static void
sandbox_build(CallKind call, const PaymentRow *payment, const Provider *provider,
			  ProviderRequest *request)
{
	char		session_id[UUID_TEXT_SIZE];
	StringInfoData url;

	Assert(payment->provider_payment_id != NULL || call == CALL_REGISTER || call == CALL_FIND);
	uuid_to_text(&payment->session_id, session_id);
	memset(request, 0, sizeof(*request));
	request->method = "GET";
	add_header(request, "Accept", "application/json");
	if (provider->api_key != NULL)
		add_header(request, "Authorization", psprintf("Bearer %s", provider->api_key));

	initStringInfo(&url);
	appendStringInfo(&url, "%s/v1/payments",
					 payment->endpoint != NULL ? payment->endpoint : provider->endpoint);
	switch (call)
	{
		case CALL_REGISTER:
			set_post(request, register_body(payment, session_id), session_id);
			break;
		case CALL_FIND:
			appendStringInfo(&url, "?reference=%s", session_id);
			break;
		case CALL_GET:
			appendStringInfoChar(&url, '/');
			append_percent_encoded(&url, payment->provider_payment_id);
			break;
		case CALL_EXPIRE:
			appendStringInfoChar(&url, '/');
			append_percent_encoded(&url, payment->provider_payment_id);
			appendStringInfoString(&url, "/expire");
			set_post(request, "{}", psprintf("%s:expire", session_id));
			break;
		default:
			elog(ERROR, "unrecognized call: %d", (int) call);
	}
	request->url = url.data;
}

/* ---- answers ---- */

/* Nothing is told of the payment. */
static void
clear_payment(Outcome *outcome)
{
	outcome->provider_payment_id = NULL;
	outcome->amount = 0;
	outcome->currency[0] = '\0';
	outcome->authorized = -1;
	outcome->captured = -1;
	outcome->refunded = -1;
	outcome->disputed = -1;
}

static void
set_lost(Outcome *outcome, const char *error)
{
	clear_payment(outcome);
	outcome->kind = OUTCOME_LOST;
	outcome->error = error;
}

/* Our word for the provider's code of a decline. */
static const char *
failure_code(const char *decline_code)
{
	if (decline_code != NULL &&
		(strcmp(decline_code, "insufficient_funds") == 0 ||
		 strcmp(decline_code, "authentication_failed") == 0))
		return decline_code;
	return "declined";
}

/*
 * A total that may be missing (-1).  False when it is no number that a total
 * can be.
 */
static bool
read_total(const Json *payment, const char *key, int64 *total)
{
	*total = -1;
	switch (json_get_int64(payment, key, total))
	{
		case JSON_ABSENT:
			return true;
		case JSON_FOUND:
			return *total >= 0 && *total <= TOTAL_MAX;
		default:
			return false;
	}
}

static bool
read_currency(const Json *payment, char currency[4])
{
	const char *code;

	switch (json_get_string(payment, "currency", &code))
	{
		case JSON_ABSENT:
			return true;
		case JSON_FOUND:
			strlcpy(currency, code, 4);
			return strlen(code) == 3 && strspn(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 3;
		default:
			return false;
	}
}

static bool
read_id(const Json *payment, const char **id)
{
	if (json_get_string(payment, "id", id) != JSON_FOUND || **id == '\0' || strlen(*id) > ID_MAX)
		return false;
	for (const char *at = *id; *at != '\0'; at++)
	{
		if (*at <= ' ' || *at >= 0x7f)
			return false;
	}
	return true;
}

static bool
is_foreign(const Json *payment, const char *session_id)
{
	const char *reference;

	switch (json_get_string(payment, "reference", &reference))
	{
		case JSON_ABSENT:
			return false;
		case JSON_FOUND:
			return strcmp(reference, session_id) != 0;
		default:
			return true;
	}
}

/* What does not decide over money: left out where it is of no use. */
static void
read_details(const Json *payment, Outcome *outcome)
{
	const char *text;

	if (json_get_string(payment, "redirect_url", &text) == JSON_FOUND && url_is_usable(text))
		outcome->redirect_url = text;
	if (json_get_string(payment, "expires_at", &text) == JSON_FOUND)
		(void) timestamp_from_wire(text, &outcome->provider_expires_at);
}

static SessionStage
pending_stage(const Json *payment, const char *status)
{
	static const struct
	{
		const char *word;
		SessionStage stage;
	}			stages[] = {
		{"form", STAGE_FORM},
		{"redirected", STAGE_RETURN},
		{"authentication", STAGE_AUTHENTICATION},
		{"processing", STAGE_BANK},
	};
	const char *word;

	if (json_get_string(payment, "stage", &word) == JSON_FOUND)
	{
		for (size_t i = 0; i < lengthof(stages); i++)
		{
			if (strcmp(stages[i].word, word) == 0)
				return stages[i].stage;
		}
	}
	return strcmp(status, "requires_action") == 0 ? STAGE_AUTHENTICATION : STAGE_FORM;
}

/* What the payment's status and decline code mean. */
static void
read_status(const Json *payment, const char *status, Outcome *outcome)
{
	const char *decline_code = json_get_message(payment, "decline_code", MESSAGE_MAX);

	if (decline_code != NULL && decline_code[0] == '\0')
		decline_code = NULL;

	if (strcmp(status, "pending") == 0 || strcmp(status, "requires_action") == 0)
	{
		outcome->kind = decline_code == NULL ? OUTCOME_PENDING : OUTCOME_ATTEMPT_DECLINED;
		outcome->stage = pending_stage(payment, status);
	}
	else if (strcmp(status, "authorized") == 0)
		outcome->kind = OUTCOME_AUTHORIZED;
	else if (strcmp(status, "paid") == 0)
		outcome->kind = OUTCOME_PAID;
	else if (strcmp(status, "declined") == 0)
		outcome->kind = OUTCOME_DECLINED;
	else if (strcmp(status, "expired") == 0)
		outcome->kind = OUTCOME_EXPIRED;
	else if (strcmp(status, "canceled") == 0)
		outcome->kind = OUTCOME_CANCELED;
	else
	{
		outcome->kind = OUTCOME_PENDING;
		outcome->unknown_word = true;
	}

	if (outcome->kind == OUTCOME_DECLINED || outcome->kind == OUTCOME_ATTEMPT_DECLINED)
	{
		outcome->failure_code = failure_code(decline_code);
		outcome->failure_message = decline_code;
	}
}

static void
read_payment(const Json *payment, const char *session_id, Outcome *outcome)
{
	const char *status = json_get_message(payment, "status", STATUS_MAX);

	if (status == NULL ||
		!read_id(payment, &outcome->provider_payment_id) ||
		!read_total(payment, "amount", &outcome->amount) ||
		!read_total(payment, "authorized", &outcome->authorized) ||
		!read_total(payment, "captured", &outcome->captured) ||
		!read_total(payment, "refunded", &outcome->refunded) ||
		!read_total(payment, "disputed", &outcome->disputed) ||
		!read_currency(payment, outcome->currency))
	{
		set_lost(outcome, "unusable answer");
		return;
	}
	if (outcome->amount < 0)
		outcome->amount = 0;
	outcome->foreign_reference = is_foreign(payment, session_id);
	outcome->provider_status = status;
	read_details(payment, outcome);
	read_status(payment, status, outcome);
}

/* The answer to a look-up: payments, of which one should be ours. */
static void
read_found(const Json *payments, const char *session_id, Outcome *outcome)
{
	if (payments->kind != JSON_KIND_ARRAY)
	{
		set_lost(outcome, "unusable answer");
		return;
	}
	for (const Json *payment = payments->child; payment != NULL; payment = payment->next)
	{
		const char *reference;

		if (json_get_string(payment, "reference", &reference) == JSON_FOUND &&
			strcmp(reference, session_id) == 0)
		{
			read_payment(payment, session_id, outcome);
			return;
		}
	}
	/* others' payments are the answer to another question */
	if (payments->child != NULL)
		set_lost(outcome, "answer has other payments only");
	else
		outcome->kind = OUTCOME_NOT_FOUND;
}

/* An error to a POST that says that the same one came before. */
static bool
is_about_repeat(const char *code)
{
	return strcmp(code, "key_in_use") == 0 || strcmp(code, "key_reused") == 0 ||
		strstr(code, "duplicate") != NULL;
}

/*
 * An error in the provider's own form: what it will not do, or does not have.
 */
static void
read_error(CallKind call, int status, const char *code, Outcome *outcome)
{
	outcome->error = psprintf("HTTP %d %s", status, code);
	if (call == CALL_FIND)
	{
		/*
		 * 501 where it cannot be looked up by reference: no answer to the
		 * question, which must not look like a proof.
		 */
		if (status != 404 && outcome->terms != NULL && outcome->terms->lookup == LOOKUP_EXACT)
			outcome->kind = OUTCOME_LOST;
		else
			outcome->kind = OUTCOME_NOT_FOUND;
	}
	else if (status == 404 && call != CALL_REGISTER)
		outcome->kind = OUTCOME_NOT_FOUND;
	else if (call == CALL_GET || is_about_repeat(code))
		outcome->kind = OUTCOME_LOST;
	else if (status == 402 && call == CALL_REGISTER)
	{
		outcome->kind = OUTCOME_DECLINED;
		outcome->failure_code = failure_code(code);
	}
	else
		outcome->kind = OUTCOME_REFUSED;
}

/* True for statuses with which the provider itself refuses a call. */
static bool
is_refusal(CallKind call, int status)
{
	switch (status)
	{
		case 400:
		case 402:
		case 404:
		case 405:
		case 409:
		case 410:
		case 422:
			return true;
		case 501:
			return call == CALL_FIND;
		default:
			return false;
	}
}

static void
sandbox_parse(CallKind call, const PaymentRow *payment, const ProviderResponse *response,
			  Outcome *outcome)
{
	char		session_id[UUID_TEXT_SIZE];
	int			status = response->http_status;
	const Json *body;
	const Json *error;
	const char *code;

	outcome->http_status = status;
	outcome->retry_after = response->retry_after;
	clear_payment(outcome);

	if (status == 401 || status == 403)
	{
		outcome->kind = OUTCOME_UNAUTHORIZED;
		outcome->error = psprintf("HTTP %d", status);
		return;
	}
	if (status == 429)
	{
		outcome->kind = OUTCOME_THROTTLED;
		outcome->error = "HTTP 429";
		return;
	}
	if (status != 200 && status != 201 && !is_refusal(call, status))
	{
		set_lost(outcome, psprintf("HTTP %d", status));
		return;
	}
	body = response->truncated ? NULL : json_read(response->body, response->body_length);
	if (body == NULL)
	{
		set_lost(outcome, response->truncated ? "answer is too long" : "not readable JSON");
		return;
	}

	if (status == 200 || status == 201)
	{
		uuid_to_text(&payment->session_id, session_id);
		if (call == CALL_FIND)
			read_found(body, session_id, outcome);
		else
			read_payment(body, session_id, outcome);
		return;
	}
	error = json_member(body, "error");
	if (error == NULL || error->kind != JSON_KIND_OBJECT)
	{
		set_lost(outcome, psprintf("HTTP %d, not the provider's answer", status));
		return;
	}
	code = json_get_message(error, "code", STATUS_MAX);
	read_error(call, status, code == NULL ? "" : code, outcome);
	if (outcome->kind == OUTCOME_REFUSED || outcome->kind == OUTCOME_DECLINED)
		outcome->failure_message = json_get_message(error, "message", MESSAGE_MAX);
}

const Driver sandbox_driver = {
	.wrapper = "payflow_sandbox",
	.options = sandbox_options,
	.default_terms = {
		.after_lost = LOST_ASK,
		.lookup = LOOKUP_LAGGING,
		.has_keys = true,
		.can_expire = true,
		/* it remembers keys for a day; an hour less is sure */
		.key_validity = {.time = 23 * USECS_PER_HOUR},
		.session_ttl = {.time = 24 * USECS_PER_HOUR},
		.grace = {.time = USECS_PER_HOUR},
		.form_timeout = {.time = 30 * USECS_PER_MINUTE},
		.return_timeout = {.time = 15 * USECS_PER_MINUTE},
		.authentication_timeout = {.time = 10 * USECS_PER_MINUTE},
		.authorization_ttl = {.day = 7},
		.n_poll_intervals = 12,
		.poll_intervals = {
			{.time = 1 * USECS_PER_SEC},
			{.time = 2 * USECS_PER_SEC},
			{.time = 3 * USECS_PER_SEC},
			{.time = 5 * USECS_PER_SEC},
			{.time = 10 * USECS_PER_SEC},
			{.time = 20 * USECS_PER_SEC},
			{.time = 30 * USECS_PER_SEC},
			{.time = 60 * USECS_PER_SEC},
			{.time = 2 * USECS_PER_MINUTE},
			{.time = 3 * USECS_PER_MINUTE},
			{.time = 5 * USECS_PER_MINUTE},
			{.time = 10 * USECS_PER_MINUTE},
		},
	},
	.supports_currency = sandbox_supports_currency,
	.build = sandbox_build,
	.parse = sandbox_parse,
};
