/*-------------------------------------------------------------------------
 *
 * sandbox.c
 *	  The driver of the test provider: its options and its requests.
 *
 *	  JSON over HTTP, bearer authentication, idempotency keys on every POST,
 *	  amounts in minor units.
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
#include "provider/sandbox.h"

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
	{"refund_names", ForeignServerRelationId, OPTION_FLAG, .place = offsetof(Provider, terms.names_refunds)},
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

/* Of frozen columns of the operation only, so that a repeat has the same bytes. */
static char *
operation_body(CallKind call, const OperationRow *operation)
{
	char		reference[UUID_TEXT_SIZE];
	StringInfoData body;

	initStringInfo(&body);
	json_open_object(&body);
	if (call != CALL_CANCEL)
	{
		/* without an amount the provider would move all there is */
		Assert(operation->amount > 0);
		json_put_int64(&body, "amount", operation->amount);
		if (call == CALL_REFUND)
			json_put_string(&body, "reference", uuid_to_text(&operation->operation_id, reference));
		json_put_raw(&body, "receipt", operation->receipt);
	}
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

/* Where a payment that is there is asked for, or something is done to it. */
static void
append_payment(StringInfo url, const PaymentRow *payment, const char *what)
{
	appendStringInfoChar(url, '/');
	append_percent_encoded(url, payment->provider_payment_id);
	appendStringInfoString(url, what);
}

static void
set_operation(ProviderRequest *request, CallKind call, const OperationRow *operation)
{
	Assert(operation != NULL);
	set_post(request, operation_body(call, operation), operation->idempotency_key);
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
			append_payment(&url, payment, "");
			break;
		case CALL_EXPIRE:
			append_payment(&url, payment, "/expire");
			set_post(request, "{}", psprintf("%s:expire", session_id));
			break;
		case CALL_CAPTURE:
			append_payment(&url, payment, "/capture");
			set_operation(request, call, payment->operation);
			break;
		case CALL_CANCEL:
			append_payment(&url, payment, "/cancel");
			set_operation(request, call, payment->operation);
			break;
		case CALL_REFUND:
			append_payment(&url, payment, "/refunds");
			set_operation(request, call, payment->operation);
			break;
		default:
			elog(ERROR, "unrecognized call: %d", (int) call);
	}
	request->url = url.data;
}

const Driver sandbox_driver = {
	.wrapper = "payflow_sandbox",
	.options = sandbox_options,
	.default_terms = {
		.after_lost = LOST_ASK,
		.lookup = LOOKUP_LAGGING,
		.has_keys = true,
		.can_expire = true,
		.names_refunds = true,
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
