/*-------------------------------------------------------------------------
 *
 * operations.c
 *	  What the calls of the provider's API do.
 *
 * A call is checked when it arrives and worked when its waiting, if any, is
 * over; so the state of the payment counts at the moment of the work.
 *
 * test/sandbox/operations.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "rules.h"

#define MAX_URL			2048
#define MAX_EXPIRES_IN	(10 * 366 * INT64_C(86400))

/* The member, or NULL if it is absent or null. */
static json_t *
member(json_t *json, const char *name)
{
	json_t	   *value = json_object_get(json, name);

	return json_is_null(value) ? NULL : value;
}

/* An amount that may be absent: then 0. */
static bool
read_amount(json_t *json, int64_t *amount)
{
	json_t	   *value = member(json, "amount");

	*amount = 0;
	if (value == NULL)
		return true;
	if (!json_is_integer(value))
		return false;
	*amount = json_integer_value(value);
	return *amount >= 1 && *amount <= MAX_AMOUNT;
}

static bool
read_text(json_t *json, const char *name, size_t most, const char **text)
{
	json_t	   *value = member(json, name);

	*text = json_string_value(value);
	return value == NULL ||
		(*text != NULL && **text != '\0' && strlen(*text) <= most);
}

static bool
valid_url(const char *url)
{
	const char *host = after_prefix(url, "https://");

	if (host == NULL)
		host = after_prefix(url, "http://");
	if (host == NULL || *host == '\0')
		return false;
	for (; *url != '\0'; url++)
	{
		if ((unsigned char) *url <= ' ' || *url == 0x7f)
			return false;
	}
	return true;
}

/*
 * Read the body of a register call.  Returns the name of what is wrong, else
 * NULL; the texts belong to the JSON.
 */
static const char *
read_registration(json_t *json, Registration *what)
{
	json_t	   *value;
	const char *capture;

	memset(what, 0, sizeof(*what));
	if (!read_text(json, "reference", MAX_NAME, &what->reference) ||
		what->reference == NULL)
		return "reference";
	if (!read_text(json, "order", MAX_NAME, &what->order))
		return "order";
	if (!read_amount(json, &what->amount) || what->amount == 0)
		return "amount";
	what->currency = json_string_value(member(json, "currency"));
	if (what->currency == NULL || !currency_valid(what->currency))
		return "currency";

	if (!read_text(json, "capture", 20, &capture))
		return "capture";
	what->manual = capture != NULL && strcmp(capture, "manual") == 0;
	if (capture != NULL && !what->manual && strcmp(capture, "automatic") != 0)
		return "capture";
	if (!read_text(json, "return_url", MAX_URL, &what->return_url) ||
		(what->return_url != NULL && !valid_url(what->return_url)))
		return "return_url";

	value = member(json, "expires_in");
	if (value != NULL)
	{
		what->expires_in = json_integer_value(value);
		if (!json_is_integer(value) || what->expires_in < 1 ||
			what->expires_in > MAX_EXPIRES_IN)
			return "expires_in";
	}
	value = member(json, "metadata");
	if (value != NULL && !json_is_object(value))
		return "metadata";
	return NULL;
}

/*
 * Check the body of a POST.  Returns the name of what is wrong, else NULL.
 */
const char *
operation_check(const Call *call)
{
	Registration what;
	const char *reference;
	int64_t		amount;

	if (call->operation == OP_REGISTER)
		return read_registration(call->json, &what);
	if (!read_amount(call->json, &amount))
		return "amount";
	if (call->operation == OP_REFUND &&
		!read_text(call->json, "reference", MAX_NAME, &reference))
		return "reference";
	return NULL;
}

static void
answer_payment(Call *call)
{
	Buf			buf = {0};

	payment_json(&buf, call->payment);
	answer_json(call, 200, &buf);
}

static char *
json_text(json_t *value)
{
	return value == NULL ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

static void
do_register(Call *call)
{
	Registration what;
	Buf			buf = {0};

	read_registration(call->json, &what);
	what.metadata = json_text(member(call->json, "metadata"));
	what.receipt = json_text(member(call->json, "receipt"));
	what.declined = call->rule != NULL && call->rule->action == ACTION_DECLINE;
	call->payment = payment_register(&what);
	free(what.metadata);
	free(what.receipt);

	payment_json_born(&buf, call->payment);
	answer_json(call, 200, &buf);
	if (store.settings.auto_delay_ms == 0)
		payment_auto(call->payment);
}

static void
do_find(Call *call)
{
	Buf			buf = {0};
	int64_t		visible = now_ms() - store.settings.find_lag_ms;
	bool		first = true;

	if (!store.settings.find)
	{
		answer_error(call, 501, "not_supported", "payments cannot be found by reference");
		return;
	}
	if (call->reference == NULL)
	{
		answer_error(call, 400, "invalid_reference", "reference is missing or not valid");
		return;
	}
	buf_puts(&buf, "[");
	for (Payment *payment = payment_first(call->reference, false); payment != NULL;
		 payment = payment_next(call->reference, false, payment))
	{
		if (payment->created_ms > visible)
			continue;
		payment_refresh(payment);
		if (!first)
			buf_puts(&buf, ",");
		payment_json(&buf, payment);
		first = false;
	}
	buf_puts(&buf, "]");
	answer_json(call, 200, &buf);
}

static void
do_report(Call *call)
{
	Buf			buf = {0};

	if (report_json(&buf, call->query[0], call->query[1]))
		answer_json(call, 200, &buf);
	else
		answer_error(call, 400, "invalid_query", "day or cursor is missing or not valid");
}

static void
do_get(Call *call)
{
	Buf			buf = {0};

	if (call->refund == NULL)
	{
		answer_payment(call);
		return;
	}
	refund_json(&buf, call->refund);
	answer_json(call, 200, &buf);
}

static void
do_capture(Call *call)
{
	Payment    *payment = call->payment;
	int64_t		amount;

	read_amount(call->json, &amount);
	if (payment->status != PAYMENT_AUTHORIZED || payment->captured > 0)
		answer_error(call, 409, "not_capturable", "the payment is %s",
					 payment_status_names[payment->status]);
	else if (amount > payment->authorized)
		answer_error(call, 422, "amount_too_large", "only %lld is authorized",
					 (long long) payment->authorized);
	else
	{
		payment_capture(payment, amount > 0 ? amount : payment->authorized);
		answer_payment(call);
	}
}

/* cancel and expire: end a payment that has no money yet */
static void
do_close(Call *call, PaymentStatus status)
{
	Payment    *payment = call->payment;
	bool		may_end = payment_is_open(payment) || payment->status == status ||
		(payment->status == PAYMENT_AUTHORIZED && status == PAYMENT_CANCELED);

	if (!may_end || payment->captured > 0)
	{
		answer_error(call, 409,
					 status == PAYMENT_CANCELED ? "not_cancelable" : "not_expirable",
					 "the payment is %s", payment_status_names[payment->status]);
		return;
	}
	if (payment->status != status)
		payment_close(payment, status);
	answer_payment(call);
}

static void
do_refund(Call *call)
{
	Payment    *payment = call->payment;
	int64_t		refundable = payment_refundable(payment);
	int64_t		amount;
	const char *reference;
	Refund	   *refund;
	Buf			buf = {0};

	read_amount(call->json, &amount);
	read_text(call->json, "reference", MAX_NAME, &reference);
	if (payment->captured == 0)
	{
		answer_error(call, 409, "not_refundable", "the payment is %s",
					 payment_status_names[payment->status]);
		return;
	}
	if (amount > refundable || refundable <= 0)
	{
		answer_error(call, 422, "amount_too_large", "only %lld can be refunded",
					 (long long) (refundable > 0 ? refundable : 0));
		return;
	}
	refund = payment_refund(payment, amount > 0 ? amount : refundable, reference,
							(RefundStatus) store.settings.refunds);
	refund_json(&buf, refund);
	answer_json(call, 200, &buf);
}

/* Do the work of a call.  Caller holds the store's lock. */
void
operation_do(Call *call)
{
	/* all but these are about a payment that exists */
	if (call->operation == OP_REGISTER)
		do_register(call);
	else if (call->operation == OP_FIND)
		do_find(call);
	else if (call->operation == OP_REPORT)
		do_report(call);
	else if (call->payment == NULL)
		answer_error(call, 404, "not_found", "there is no such payment or refund");
	else
	{
		payment_refresh(call->payment);
		if (call->operation == OP_GET)
			do_get(call);
		else if (call->operation == OP_CAPTURE)
			do_capture(call);
		else if (call->operation == OP_CANCEL)
			do_close(call, PAYMENT_CANCELED);
		else if (call->operation == OP_EXPIRE)
			do_close(call, PAYMENT_EXPIRED);
		else
			do_refund(call);
	}
}
