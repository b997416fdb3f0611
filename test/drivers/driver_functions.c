/*-------------------------------------------------------------------------
 *
 * driver_functions.c
 *	  The drivers and what they are made of, callable from SQL for tests.
 *
 *	  A driver runs inside a server: it allocates in memory contexts and
 *	  converts to the database's encoding.  So does this module, which the
 *	  objects under test are linked into.
 *
 * IDENTIFICATION
 *	  test/drivers/driver_functions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_foreign_server.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/json.h"
#include "lib/uuid.h"
#include "lib/wire.h"
#include "provider/options.h"

#define SESSION_ID "01937a5e-0000-7abc-8000-000000000001"
#define OPERATION_ID "01937a5e-0000-7abc-8000-000000000009"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(driver_build);
PG_FUNCTION_INFO_V1(driver_parse);
PG_FUNCTION_INFO_V1(names_refunds);
PG_FUNCTION_INFO_V1(json_text);
PG_FUNCTION_INFO_V1(json_int);
PG_FUNCTION_INFO_V1(json_string);
PG_FUNCTION_INFO_V1(json_message);
PG_FUNCTION_INFO_V1(url_kind);
PG_FUNCTION_INFO_V1(percent_encoded);
PG_FUNCTION_INFO_V1(wire_time);
PG_FUNCTION_INFO_V1(slot_of);
PG_FUNCTION_INFO_V1(new_uuid);

static char *
text_arg(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

static CallKind
call_arg(FunctionCallInfo fcinfo, int n)
{
	char	   *name = text_arg(fcinfo, n);

	for (int call = 0; call < CALL_COUNT; call++)
	{
		if (strcmp(call_name(call), name) == 0)
			return call;
	}
	elog(ERROR, "no call \"%s\"", name);
}

static void
test_payment(PaymentRow *payment)
{
	memset(payment, 0, sizeof(*payment));
	if (!uuid_from_text(SESSION_ID, &payment->session_id))
		elog(ERROR, "\"%s\" is no UUID", SESSION_ID);
}

static void
test_operation(OperationRow *operation)
{
	memset(operation, 0, sizeof(*operation));
	if (!uuid_from_text(OPERATION_ID, &operation->operation_id))
		elog(ERROR, "\"%s\" is no UUID", OPERATION_ID);
	operation->amount = 300;
	operation->idempotency_key = "key-1";
}

/*
 * driver_build(call, order_id, amount, currency, manual, return_url, receipt,
 * payment_id, endpoint, api_key, operation, operation_amount,
 * operation_receipt, key)
 */
Datum
driver_build(PG_FUNCTION_ARGS)
{
	PaymentRow	payment;
	OperationRow operation;
	Provider	provider;
	ProviderRequest request;
	StringInfoData result;
	ListCell   *cell;

	test_payment(&payment);
	payment.order_id = text_arg(fcinfo, 1);
	payment.amount = PG_GETARG_INT64(2);
	payment.currency = text_arg(fcinfo, 3);
	payment.manual_capture = PG_GETARG_BOOL(4);
	payment.return_url = text_arg(fcinfo, 5);
	payment.receipt = text_arg(fcinfo, 6);
	payment.provider_payment_id = text_arg(fcinfo, 7);
	payment.endpoint = text_arg(fcinfo, 8);
	memset(&provider, 0, sizeof(provider));
	provider.endpoint = "https://other.example";
	provider.api_key = text_arg(fcinfo, 9);
	if (PG_GETARG_BOOL(10))
	{
		test_operation(&operation);
		operation.amount = PG_GETARG_INT64(11);
		operation.receipt = text_arg(fcinfo, 12);
		operation.idempotency_key = text_arg(fcinfo, 13);
		payment.operation = &operation;
	}

	sandbox_driver.build(call_arg(fcinfo, 0), &payment, &provider, &request);

	initStringInfo(&result);
	appendStringInfo(&result, "%s %s%s\n", request.method, request.url,
					 request.mutating ? " once" : "");
	foreach(cell, request.headers)
		appendStringInfo(&result, "%s\n", (char *) lfirst(cell));
	if (request.body != NULL)
		appendBinaryStringInfo(&result, request.body, request.body_length);
	PG_RETURN_BYTEA_P(cstring_to_text(result.data));
}

static void
put_total(StringInfo buf, const char *key, int64 total)
{
	if (total >= 0)
		json_put_int64(buf, key, total);
}

static void
put_time(StringInfo buf, const char *key, TimestampTz time)
{
	if (time != 0)
		json_put_string(buf, key, timestamptz_to_str(time));
}

/* A list of `n` that is complete, or has some members only, or is not told. */
static void
put_list(StringInfo buf, const char *key, int n, bool complete, char *(*entry) (const Outcome *, int),
		 const Outcome *outcome)
{
	StringInfoData list;

	if (n == 0 && !complete)
		return;
	initStringInfo(&list);
	for (int i = 0; i < n; i++)
		appendStringInfo(&list, "%c%s", i == 0 ? '[' : ',', entry(outcome, i));
	appendStringInfoString(&list, n == 0 ? "[]" : "]");
	json_put_raw(buf, complete ? key : psprintf("some_%s", key), list.data);
}

static char *
refund_text(const Outcome *outcome, int i)
{
	static const char *const words[] = {
		[MOVEMENT_PENDING] = "pending",
		[MOVEMENT_SUCCEEDED] = "succeeded",
		[MOVEMENT_FAILED] = "failed",
	};
	const ProviderRefund *refund = &outcome->refunds[i];
	StringInfoData buf;

	initStringInfo(&buf);
	json_open_object(&buf);
	json_put_string(&buf, "id", refund->id);
	json_put_string(&buf, "reference", refund->reference);
	json_put_int64(&buf, "amount", refund->amount);
	json_put_string(&buf, "status", words[refund->status]);
	json_put_string(&buf, "message", refund->failure_message);
	json_close_object(&buf);
	return buf.data;
}

static char *
dispute_text(const Outcome *outcome, int i)
{
	const ProviderDispute *dispute = &outcome->disputes[i];
	StringInfoData buf;

	initStringInfo(&buf);
	json_open_object(&buf);
	json_put_string(&buf, "id", dispute->id);
	json_put_int64(&buf, "amount", dispute->amount);
	json_put_int64(&buf, "won", dispute->won);
	json_close_object(&buf);
	return buf.data;
}

/* What an outcome tells, as JSON text. */
static char *
outcome_text(const Outcome *outcome)
{
	StringInfoData buf;

	initStringInfo(&buf);
	json_open_object(&buf);
	json_put_string(&buf, "kind", outcome_name(outcome->kind));
	json_put_string(&buf, "error", outcome->error);
	if (outcome->stage != STAGE_REGISTER)
		json_put_string(&buf, "stage", stage_name(outcome->stage));
	json_put_string(&buf, "id", outcome->provider_payment_id);
	json_put_string(&buf, "status", outcome->provider_status);
	if (outcome->unknown_word)
		json_put_bool(&buf, "unknown_word", true);
	if (outcome->foreign_reference)
		json_put_bool(&buf, "foreign", true);
	json_put_string(&buf, "url", outcome->redirect_url);
	json_put_string(&buf, "code", outcome->failure_code);
	json_put_string(&buf, "message", outcome->failure_message);
	if (outcome->amount != 0)
		json_put_int64(&buf, "amount", outcome->amount);
	if (outcome->currency[0] != '\0')
		json_put_string(&buf, "currency", outcome->currency);
	put_total(&buf, "authorized", outcome->authorized);
	put_total(&buf, "captured", outcome->captured);
	put_total(&buf, "refunded", outcome->refunded);
	put_total(&buf, "disputed", outcome->disputed);
	put_time(&buf, "expires_at", outcome->provider_expires_at);
	put_total(&buf, "retry_after", outcome->retry_after);
	put_list(&buf, "refunds", outcome->n_refunds, outcome->refunds_complete, refund_text, outcome);
	put_list(&buf, "disputes", outcome->n_disputes, outcome->disputes_complete, dispute_text, outcome);
	json_close_object(&buf);
	return buf.data;
}

/*
 * driver_parse(call, http_status, body, exact, truncated, retry_after, names):
 * names is NULL where the driver is not told the terms
 */
Datum
driver_parse(PG_FUNCTION_ARGS)
{
	bytea	   *body = PG_GETARG_BYTEA_PP(2);
	CallKind	call = call_arg(fcinfo, 0);
	PaymentRow	payment;
	OperationRow operation;
	ProviderTerms terms = sandbox_driver.default_terms;
	ProviderResponse response;
	Outcome		outcome;

	test_payment(&payment);
	payment.provider_payment_id = "pay_1";
	if (call >= CALL_CAPTURE)
	{
		test_operation(&operation);
		payment.operation = &operation;
	}
	if (PG_GETARG_BOOL(3))
		terms.lookup = LOOKUP_EXACT;
	memset(&outcome, 0, sizeof(outcome));
	if (!PG_ARGISNULL(6))
	{
		terms.names_refunds = PG_GETARG_BOOL(6);
		outcome.terms = &terms;
	}
	response.http_status = PG_GETARG_INT32(1);
	response.body = VARDATA_ANY(body);
	response.body_length = VARSIZE_ANY_EXHDR(body);
	response.truncated = PG_GETARG_BOOL(4);
	response.retry_after = PG_GETARG_INT64(5);

	sandbox_driver.parse(call, &payment, &response, &outcome);

	if (outcome.http_status != response.http_status)
		elog(ERROR, "the outcome has another HTTP status");
	PG_RETURN_TEXT_P(cstring_to_text(outcome_text(&outcome)));
}

/* names_refunds(refund_names): what that option makes of the driver's terms; NULL: without it */
Datum
names_refunds(PG_FUNCTION_ARGS)
{
	char	   *word = text_arg(fcinfo, 0);
	Provider	provider = {.driver = &sandbox_driver, .terms = sandbox_driver.default_terms};

	if (word != NULL)
		read_options(list_make1(makeDefElem("refund_names", (Node *) makeString(word), -1)),
					 ForeignServerRelationId, &provider);
	PG_RETURN_BOOL(provider.terms.names_refunds);
}

/* A document as the reader has understood it. */
static void
write_json(StringInfo buf, const Json *value)
{
	switch (value->kind)
	{
		case JSON_KIND_NULL:
			appendStringInfoString(buf, "null");
			break;
		case JSON_KIND_BOOL:
			appendStringInfoString(buf, value->boolean ? "true" : "false");
			break;
		case JSON_KIND_NUMBER:
			appendStringInfoString(buf, value->text);
			break;
		case JSON_KIND_STRING:
			escape_json(buf, value->text);
			break;
		case JSON_KIND_ARRAY:
		case JSON_KIND_OBJECT:
			appendStringInfoChar(buf, value->kind == JSON_KIND_ARRAY ? '[' : '{');
			for (const Json *child = value->child; child != NULL; child = child->next)
			{
				if (child->key != NULL)
				{
					escape_json(buf, child->key);
					appendStringInfoChar(buf, ':');
				}
				write_json(buf, child);
				if (child->next != NULL)
					appendStringInfoChar(buf, ',');
			}
			appendStringInfoChar(buf, value->kind == JSON_KIND_ARRAY ? ']' : '}');
			break;
	}
}

static const Json *
json_arg(FunctionCallInfo fcinfo, int n)
{
	bytea	   *bytes = PG_GETARG_BYTEA_PP(n);

	return json_read(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
}

/* json_text(bytea): NULL when it is not readable */
Datum
json_text(PG_FUNCTION_ARGS)
{
	const Json *value = json_arg(fcinfo, 0);
	StringInfoData buf;

	if (value == NULL)
		PG_RETURN_NULL();
	initStringInfo(&buf);
	write_json(&buf, value);
	PG_RETURN_TEXT_P(cstring_to_text(buf.data));
}

static Datum
found_text(JsonFound found, const char *value)
{
	if (found == JSON_ABSENT)
		value = "absent";
	else if (found == JSON_UNUSABLE)
		value = "unusable";
	return PointerGetDatum(cstring_to_text(value));
}

/* json_int(bytea): the member "n" */
Datum
json_int(PG_FUNCTION_ARGS)
{
	int64		value = 0;
	JsonFound	found = json_get_int64(json_arg(fcinfo, 0), "n", &value);

	return found_text(found, psprintf(INT64_FORMAT, value));
}

/* json_string(bytea): the member "s" */
Datum
json_string(PG_FUNCTION_ARGS)
{
	const char *value = NULL;
	JsonFound	found = json_get_string(json_arg(fcinfo, 0), "s", &value);

	return found_text(found, value);
}

/* json_message(bytea, max_bytes): the member "s" */
Datum
json_message(PG_FUNCTION_ARGS)
{
	const char *value = json_get_message(json_arg(fcinfo, 0), "s", PG_GETARG_INT32(1));

	if (value == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(value));
}

Datum
url_kind(PG_FUNCTION_ARGS)
{
	char	   *url = text_arg(fcinfo, 0);

	if (!url_is_usable(url))
		PG_RETURN_TEXT_P(cstring_to_text("unusable"));
	PG_RETURN_TEXT_P(cstring_to_text(url_is_loopback(url) ? "loopback" : "usable"));
}

Datum
percent_encoded(PG_FUNCTION_ARGS)
{
	StringInfoData buf;

	initStringInfo(&buf);
	append_percent_encoded(&buf, text_arg(fcinfo, 0));
	PG_RETURN_TEXT_P(cstring_to_text(buf.data));
}

Datum
wire_time(PG_FUNCTION_ARGS)
{
	TimestampTz time;

	if (!timestamp_from_wire(text_arg(fcinfo, 0), &time))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(time);
}

Datum
slot_of(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(routing_slot(text_arg(fcinfo, 0), text_arg(fcinfo, 1)));
}

/* new_uuid(slot): through its text and back */
Datum
new_uuid(PG_FUNCTION_ARGS)
{
	pg_uuid_t	made;
	pg_uuid_t  *result = palloc_object(pg_uuid_t);
	char		text[UUID_TEXT_SIZE];

	uuid_v7(&made, PG_GETARG_INT32(0));
	if (!uuid_from_text(uuid_to_text(&made, text), result))
		elog(ERROR, "\"%s\" is no UUID", text);
	PG_RETURN_UUID_P(result);
}
