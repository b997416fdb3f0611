/*-------------------------------------------------------------------------
 *
 * acts.c
 *	  What payers, banks and the calendar do to a payment when a test says so,
 *	  from whatever state it is in.
 *
 * test/sandbox/acts.c
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "control.h"

typedef struct ActArgs
{
	int64_t		amount;			/* 0: none was given */
	const char *currency;
	const char *decline_code;
	const char *refund;			/* its id, or our reference of it */
	const char *reference;
	const char *dispute;		/* its id */
} ActArgs;

/* Each returns NULL, or why there is nothing to act on. */
typedef const char *(*ActFunction) (Payment *payment, const ActArgs *args);

static const char *
act_pay(Payment *payment, const ActArgs *args)
{
	payment_pay(payment, args->amount, args->currency);
	return NULL;
}

static const char *
act_authorize(Payment *payment, const ActArgs *args)
{
	payment_authorize(payment, args->amount, args->currency);
	return NULL;
}

static const char *
act_decline(Payment *payment, const ActArgs *args)
{
	payment_decline(payment, args->decline_code);
	return NULL;
}

static const char *
act_authenticate(Payment *payment, const ActArgs *args)
{
	(void) args;
	payment_wait(payment, PAYMENT_REQUIRES_ACTION, STAGE_AUTHENTICATION);
	return NULL;
}

static const char *
act_redirect(Payment *payment, const ActArgs *args)
{
	(void) args;
	payment_wait(payment, PAYMENT_PENDING, STAGE_REDIRECTED);
	return NULL;
}

static const char *
act_process(Payment *payment, const ActArgs *args)
{
	(void) args;
	payment_wait(payment, PAYMENT_PENDING, STAGE_PROCESSING);
	return NULL;
}

static const char *
act_expire(Payment *payment, const ActArgs *args)
{
	(void) args;
	payment_close(payment, PAYMENT_EXPIRED);
	return NULL;
}

static const char *
act_cancel(Payment *payment, const ActArgs *args)
{
	(void) args;
	payment_close(payment, PAYMENT_CANCELED);
	return NULL;
}

static const char *
act_capture_fail(Payment *payment, const ActArgs *args)
{
	(void) args;
	payment_capture_fail(payment);
	return NULL;
}

static const char *
act_dispute(Payment *payment, const ActArgs *args)
{
	int64_t		rest = payment->captured - payment->refunded - payment->disputed;

	if (args->amount == 0 && rest <= 0)
		return "there is no money to dispute: give an amount";
	payment_dispute(payment, args->amount > 0 ? args->amount : rest);
	return NULL;
}

static const char *
act_win_dispute(Payment *payment, const ActArgs *args)
{
	Dispute    *found = NULL;
	char		id[24];

	/* the named one, else the newest that is not won */
	for (Dispute *dispute = payment->disputes; dispute != NULL; dispute = dispute->next)
	{
		dispute_id(id, dispute);
		if (args->dispute != NULL ? strcmp(id, args->dispute) == 0 :
			dispute->won < dispute->amount)
			found = dispute;
	}
	if (found == NULL || args->amount > found->amount - found->won ||
		found->won == found->amount)
		return "there is no dispute of that amount to win";
	payment_win_dispute(payment, found,
						args->amount > 0 ? args->amount : found->amount - found->won);
	return NULL;
}

/* The named refund, else the newest in one of these states. */
static Refund *
find_refund(Payment *payment, const char *name, RefundStatus one, RefundStatus other)
{
	Refund	   *found = NULL;
	char		id[24];

	for (Refund *refund = payment->refunds; refund != NULL; refund = refund->next)
	{
		bool		fits = refund->status == one || refund->status == other;

		refund_id(id, refund);
		if (name != NULL)
			fits = strcmp(id, name) == 0 ||
				(refund->reference != NULL && strcmp(refund->reference, name) == 0);
		if (fits)
			found = refund;
	}
	return found;
}

static const char *
act_refund_succeed(Payment *payment, const ActArgs *args)
{
	Refund	   *refund = find_refund(payment, args->refund, REFUND_PENDING, REFUND_PENDING);

	if (refund == NULL)
		return "there is no such refund";
	refund_settle(refund, REFUND_SUCCEEDED);
	return NULL;
}

static const char *
act_refund_fail(Payment *payment, const ActArgs *args)
{
	Refund	   *refund = find_refund(payment, args->refund, REFUND_PENDING, REFUND_SUCCEEDED);

	if (refund == NULL)
		return "there is no such refund";
	refund_settle(refund, REFUND_FAILED);
	return NULL;
}

/* A refund made at the provider; or, if one is named, that one succeeds. */
static const char *
act_refund(Payment *payment, const ActArgs *args)
{
	int64_t		rest = payment->captured - payment->refunded;

	if (args->refund != NULL)
		return act_refund_succeed(payment, args);
	if (args->amount == 0 && rest <= 0)
		return "there is no money to refund: give an amount";
	payment_refund(payment, args->amount > 0 ? args->amount : rest, args->reference,
				   REFUND_SUCCEEDED);
	return NULL;
}

static const struct
{
	const char *name;
	ActFunction act;
}			act_table[] =
{
	{"pay", act_pay},
	{"decline", act_decline},
	{"authorize", act_authorize},
	{"authenticate", act_authenticate},
	{"redirect", act_redirect},
	{"process", act_process},
	{"expire", act_expire},
	{"cancel", act_cancel},
	{"capture_fail", act_capture_fail},
	{"dispute", act_dispute},
	{"win_dispute", act_win_dispute},
	{"refund", act_refund},
	{"refund_succeed", act_refund_succeed},
	{"refund_fail", act_refund_fail}
};

static const char *
read_args(json_t *what, ActArgs *args)
{
	const char *name;
	json_t	   *value;

	memset(args, 0, sizeof(*args));
	json_object_foreach(what, name, value)
	{
		const char *text = json_string_value(value);

		if (json_is_null(value))
			continue;
		if (strcmp(name, "amount") == 0)
		{
			args->amount = json_integer_value(value);
			if (!json_is_integer(value) || args->amount < 1 || args->amount > MAX_AMOUNT)
				return name;
			continue;
		}
		if (text == NULL || *text == '\0')
			return name;
		if (strcmp(name, "currency") == 0 && currency_valid(text))
			args->currency = text;
		else if (strcmp(name, "decline_code") == 0)
			args->decline_code = text;
		else if (strcmp(name, "refund") == 0)
			args->refund = text;
		else if (strcmp(name, "reference") == 0)
			args->reference = text;
		else if (strcmp(name, "dispute") == 0)
			args->dispute = text;
		else
			return name;
	}
	return NULL;
}

/* POST /payments/{id or reference}/{act} */
void
act_handle(Call *call, const char *name, const char *act, json_t *what)
{
	Payment    *payment = payment_by_name(name);
	ActArgs		args;
	const char *wrong = read_args(what, &args);
	ActFunction function = NULL;
	Buf			buf = {0};

	for (size_t i = 0; i < lengthof(act_table); i++)
	{
		if (strcmp(act_table[i].name, act) == 0)
			function = act_table[i].act;
	}
	if (function == NULL || payment == NULL)
	{
		answer_error(call, 404, "not_found",
					 function == NULL ? "there is no such act" : "there is no such payment");
		return;
	}
	if (wrong != NULL)
	{
		answer_error(call, 400, "invalid_field", "%s is unknown or not valid", wrong);
		return;
	}
	payment_refresh(payment);
	wrong = function(payment, &args);
	if (wrong != NULL)
	{
		answer_error(call, 409, "nothing_to_do", "%s", wrong);
		return;
	}
	payment_json_control(&buf, payment);
	answer_json(call, 200, &buf);
}
