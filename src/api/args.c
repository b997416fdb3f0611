/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Reads and checks the arguments of the SQL-callable functions.
 *
 *	  Messages quote short values only; never a customer's or an application's
 *	  own data.
 *
 * IDENTIFICATION
 *	  src/api/args.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "datatype/timestamp.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "api/api.h"
#include "api/args.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "lib/money.h"
#include "lib/uuid.h"
#include "shared/shared.h"

#define MAX_ORDER_ID 200
#define MAX_URL 2000
#define MAX_DESCRIPTION 1000
#define MAX_CUSTOMER_VALUE 500
#define MAX_JSON (64 * 1024)
#define MAX_RETURN_PARAMS 1000
#define MAX_KEY 255
#define MAX_REASON 500
#define MAX_BRIEF 60

StaticAssertDecl(MAX_RETURN_PARAMS <= ASK_PARAMS_MAX, "params must fit into the ring of asks");

#define bad_argument(...) \
	ereport(ERROR, (payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_argument"), __VA_ARGS__))

static bool
is_control(char c)
{
	return (unsigned char) c < 0x20 || c == 0x7f;
}

static bool
has_control(const char *text)
{
	for (; *text != '\0'; text++)
	{
		if (is_control(*text))
			return true;
	}
	return false;
}

char *
brief(const char *value)
{
	int			length = strlen(value);
	int			kept = pg_mbcliplen(value, length, MAX_BRIEF);
	char	   *text = psprintf("%.*s%s", kept, value, kept < length ? "..." : "");

	for (char *c = text; *c != '\0'; c++)
	{
		if (is_control(*c))
			*c = '?';
	}
	return text;
}

char *
arg_text(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

char *
arg_order_id(FunctionCallInfo fcinfo, int n, Oid type)
{
	const char *wrong = NULL;
	char	   *order_id = NULL;

	if (PG_ARGISNULL(n))
		wrong = "is null";
	else if (type == INT8OID)
		return psprintf(INT64_FORMAT, PG_GETARG_INT64(n));
	else if (type == UUIDOID)
		return uuid_to_text(PG_GETARG_UUID_P(n), palloc(UUID_TEXT_SIZE));
	else
	{
		order_id = arg_text(fcinfo, n);
		if (order_id[0] == '\0')
			wrong = "is empty";
		else if (strlen(order_id) > MAX_ORDER_ID)
			wrong = "is longer than 200 bytes";
		else if (has_control(order_id))
			wrong = "contains a control character";
	}

	if (wrong != NULL)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_order_id"),
				 errmsg("order_id %s", wrong),
				 errhint("An order id is a text of 1 to 200 bytes without control characters, a bigint or a uuid.")));
	return order_id;
}

char *
arg_merchant(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_NOT_FOUND, "merchant_not_found"),
				 errmsg("merchant is null"),
				 errhint("Leave the argument out for the merchant \"default\".")));
	return arg_text(fcinfo, n);
}

const pg_uuid_t *
arg_session_id(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_NOT_FOUND, "session_not_found"),
				 errmsg("session_id is null"),
				 errhint("Pass the session_id that payflow.create() returned.")));
	return PG_GETARG_UUID_P(n);
}

const pg_uuid_t *
arg_refund_id(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_NOT_FOUND, "refund_not_found"),
				 errmsg("refund_id is null"),
				 errhint("Pass the refund_id that payflow.refund() returned.")));
	return PG_GETARG_UUID_P(n);
}

/*
 * As a double: an interval's months and days may be more than 64 bits of
 * microseconds can hold.
 */
double
interval_ms(const Interval *interval)
{
	return interval->time / 1000.0 +
		(interval->day + (double) interval->month * DAYS_PER_MONTH) * SECS_PER_DAY * 1000.0;
}

long
arg_wait(FunctionCallInfo fcinfo, int n, const char *name)
{
	double		ms;

	if (PG_ARGISNULL(n))
		bad_argument(errmsg("%s is null", name),
					 errhint("Pass an interval of 0 to 60 seconds."));

	ms = interval_ms(PG_GETARG_INTERVAL_P(n));
	if (ms <= 0)
		return 0;
	return ms < MAX_WAIT_MS ? (long) ceil(ms) : MAX_WAIT_MS;
}

int64
arg_amount(FunctionCallInfo fcinfo, int n)
{
	int64		amount = PG_ARGISNULL(n) ? 0 : PG_GETARG_INT64(n);

	if (amount <= 0 || amount > MAX_AMOUNT)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_amount"),
				 PG_ARGISNULL(n) ? errmsg("amount is null") :
				 errmsg("amount %lld is not between 1 and 1000000000000000", (long long) amount),
				 errhint("Amounts are in minor units of the currency: 12.50 EUR is 1250.")));
	return amount;
}

int64
arg_part_amount(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? 0 : arg_amount(fcinfo, n);
}

char *
arg_currency(FunctionCallInfo fcinfo, int n)
{
	char	   *currency = arg_text(fcinfo, n);

	if (currency == NULL || currency_exponent(currency) < 0)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_currency"),
				 currency == NULL ? errmsg("currency is null") :
				 errmsg("\"%s\" is not a currency", brief(currency)),
				 errhint("Pass an ISO 4217 code in upper case, as EUR.")));
	return currency;
}

bool
arg_manual_capture(FunctionCallInfo fcinfo, int n)
{
	char	   *capture = arg_text(fcinfo, n);

	if (capture != NULL && strcmp(capture, "automatic") == 0)
		return false;
	if (capture != NULL && strcmp(capture, "manual") == 0)
		return true;
	if (capture == NULL)
		bad_argument(errmsg("capture is null"),
					 errhint("Pass automatic or manual."));
	bad_argument(errmsg("capture \"%s\" is not known", brief(capture)),
				 errhint("Pass automatic or manual."));
}

/*
 * How long the address becomes when the session's id is put into it.
 */
static size_t
expanded_length(const char *url)
{
	static const char place[] = "{SESSION_ID}";
	size_t		length = strlen(url);

	for (const char *c = strstr(url, place); c != NULL; c = strstr(c + strlen(place), place))
		length += UUID_TEXT_SIZE - 1 - strlen(place);
	return length;
}

/*
 * What is wrong with an absolute http or https URL; NULL: nothing.  Only what
 * would break a redirect is checked, the rest is the provider's business.
 */
static const char *
url_problem(const char *url)
{
	const char *host;
	const char *end;
	const char *port;

	if (expanded_length(url) > MAX_URL)
		return "is longer than 2000 bytes";
	for (const char *c = url; *c != '\0'; c++)
	{
		if (is_control(*c) || *c == ' ')
			return "contains a space or a control character";
	}

	if (pg_strncasecmp(url, "https://", 8) == 0)
		host = url + 8;
	else if (pg_strncasecmp(url, "http://", 7) == 0)
		host = url + 7;
	else
		return "does not begin with https:// or http://";

	end = host + strcspn(host, "/?#\\");
	for (const char *c = host; c < end; c++)
	{
		if (*c == '@')
			host = c + 1;
	}
	if (*host == '[')			/* an IPv6 address has colons of its own */
	{
		port = memchr(host, ']', end - host);
		if (port == NULL || (port + 1 != end && port[1] != ':'))
			return "has no host";
		port++;
	}
	else
	{
		port = memchr(host, ':', end - host);
		if (port == NULL)
			port = end;
	}
	if (port == host)
		return "has no host";
	if (port != end && (size_t) (end - port - 1) != strspn(port + 1, "0123456789"))
		return "has a port that is no number";
	return NULL;
}

char *
arg_return_url(FunctionCallInfo fcinfo, int n)
{
	char	   *url = arg_text(fcinfo, n);
	const char *problem = url == NULL ? NULL : url_problem(url);

	if (problem != NULL)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_url"),
				 errmsg("return_url %s", problem),
				 errhint("Pass an absolute URL, as https://shop.example/paid?session={SESSION_ID}.")));
	return url;
}

char *
arg_description(FunctionCallInfo fcinfo, int n)
{
	char	   *description = arg_text(fcinfo, n);

	if (description != NULL && strlen(description) > MAX_DESCRIPTION)
		bad_argument(errmsg("description is longer than %d bytes", MAX_DESCRIPTION),
					 errhint("Pass a few words that tell the payer what he pays for."));
	return description;
}

Datum
arg_json_object(FunctionCallInfo fcinfo, int n, const char *name)
{
	Jsonb	   *jsonb;

	if (PG_ARGISNULL(n))
		return (Datum) 0;
	jsonb = PG_GETARG_JSONB_P(n);
	if (!JB_ROOT_IS_OBJECT(jsonb))
		bad_argument(errmsg("%s is not a JSON object", name),
					 errhint("Pass a JSON object, or null."));
	if (VARSIZE(jsonb) > MAX_JSON)
		bad_argument(errmsg("%s is larger than 64 kB", name),
					 errhint("Keep large data in a table of your own."));
	return JsonbPGetDatum(jsonb);
}

/* An object's JSON text; NULL for null. */
static char *
arg_json_text(FunctionCallInfo fcinfo, int n, const char *name)
{
	Datum		object = arg_json_object(fcinfo, n, name);

	if (object == (Datum) 0)
		return NULL;
	return JsonbToCString(NULL, &DatumGetJsonbP(object)->root, VARSIZE(DatumGetJsonbP(object)));
}

char *
arg_receipt(FunctionCallInfo fcinfo, int n)
{
	return arg_json_text(fcinfo, n, "receipt");
}

static bool
is_customer_key(const JsonbValue *key)
{
	static const char *const keys[] = {"id", "email", "phone", "ip", "locale"};

	for (size_t i = 0; i < lengthof(keys); i++)
	{
		if (key->val.string.len == (int) strlen(keys[i]) &&
			memcmp(key->val.string.val, keys[i], key->val.string.len) == 0)
			return true;
	}
	return false;
}

Datum
arg_customer(FunctionCallInfo fcinfo, int n)
{
	Datum		customer = arg_json_object(fcinfo, n, "customer");
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	value;

	if (customer == (Datum) 0)
		return customer;

	iterator = JsonbIteratorInit(&DatumGetJsonbP(customer)->root);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY && !is_customer_key(&value))
			bad_argument(errmsg("customer has an unknown key"),
						 errhint("The keys are id, email, phone, ip, locale."));
		if (token == WJB_VALUE && value.type != jbvString && value.type != jbvNull)
			bad_argument(errmsg("a value of customer is not a string"),
						 errhint("The values of id, email, phone, ip and locale are strings or null."));
		if (token == WJB_VALUE && value.type == jbvString && value.val.string.len > MAX_CUSTOMER_VALUE)
			bad_argument(errmsg("a value of customer is longer than %d bytes", MAX_CUSTOMER_VALUE),
						 errhint("Each value may be up to %d bytes long.", MAX_CUSTOMER_VALUE));
	}
	return customer;
}

char *
arg_return_params(FunctionCallInfo fcinfo, int n)
{
	char	   *text = arg_json_text(fcinfo, n, "params");

	if (text != NULL && strlen(text) > MAX_RETURN_PARAMS)
		bad_argument(errmsg("params is longer than %d bytes", MAX_RETURN_PARAMS),
					 errhint("Pass the parameters of the return address, and nothing else."));
	return text;
}

char *
arg_idempotency_key(FunctionCallInfo fcinfo, int n)
{
	char	   *key = arg_text(fcinfo, n);

	if (key != NULL && (key[0] == '\0' || strlen(key) > MAX_KEY))
		bad_argument(errmsg("idempotency_key %s", key[0] == '\0' ? "is empty" : "is longer than 255 bytes"),
					 errhint("A key is a text of 1 to %d bytes that names this one wish, or null.", MAX_KEY));
	return key;
}

char *
arg_reason(FunctionCallInfo fcinfo, int n, const char *name)
{
	char	   *reason = arg_text(fcinfo, n);

	if (reason != NULL && strlen(reason) > MAX_REASON)
		bad_argument(errmsg("%s is longer than %d bytes", name, MAX_REASON),
					 errhint("Say in a few words why."));
	return reason;
}

char *
arg_required_reason(FunctionCallInfo fcinfo, int n, const char *name)
{
	char	   *reason = arg_reason(fcinfo, n, name);

	if (reason == NULL || strspn(reason, " \t\r\n") == strlen(reason))
		bad_argument(errmsg("%s is %s", name, reason == NULL ? "null" : "empty"),
					 errhint("Say in a few words why: it is kept with your name."));
	return reason;
}

int
arg_word(FunctionCallInfo fcinfo, int n, const char *name, const char *const *words)
{
	char	   *word = arg_text(fcinfo, n);
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; words[i] != NULL; i++)
	{
		if (word != NULL && strcmp(word, words[i]) == 0)
			return i;
		appendStringInfo(&list, "%s%s", i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ", words[i]);
	}
	bad_argument(word == NULL ? errmsg("%s is null", name) :
				 errmsg("%s \"%s\" is not known", name, brief(word)),
				 errhint("Pass %s.", list.data));
}
