/*-------------------------------------------------------------------------
 *
 * suspense.c
 *	  Money that nobody expected: late, a second time, too much, another
 *	  amount or currency.  It goes to suspense, and the merchant's policy or a
 *	  person decides what becomes of it.
 *
 * IDENTIFICATION
 *	  src/session/suspense.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/uuid.h"
#include "session/decision.h"
#include "session/session.h"

void
sync_suspense(Decision *d, const char *currency)
{
	int64		left = Max(booked_suspense(d->books, currency), 0);

	if (strcmp(currency, d->payment->currency) == 0)
		d->payment->suspense_amount = left;
	d->effects->changed = true;
	d->effects->visible = true;
	if (left == 0)
		d->effects->suspense_gone = pstrdup(currency);
}

/* ---- what may become of it ---- */

static OperationRow *
refund_suspense(Decision *d, int64 amount, const char *currency)
{
	OperationRow *refund = add_operation(d, OPERATION_REFUND, amount, currency);

	refund->from_suspense = true;
	return refund;
}

/*
 * It becomes the order's receipt; the session's status stays.
 */
static void
accept_money(Decision *d, int64 amount)
{
	PaymentRow *p = d->payment;

	post(d, "unexpected_accepted", "suspense", "held", amount, p->currency, NULL, NULL, NULL);
	sync_suspense(d, p->currency);
	p->captured_amount += amount;
	p->authorized_amount = Max(p->authorized_amount, p->captured_amount);
	order_takes_receipt(d);
	d->effects->accepted = true;
	d->effects->order_follows = true;
}

static bool
is_money_of_order(const Decision *d, int64 amount, const char *currency)
{
	return amount == d->order->amount && strcmp(currency, d->order->currency) == 0 &&
		strcmp(currency, d->payment->currency) == 0;
}

/* Another session of the order is live: it must end before this one's money can be the receipt. */
static bool
another_is_live(const Decision *d)
{
	return d->order->has_active &&
		memcmp(&d->order->active_session_id, &d->payment->session_id, UUID_LEN) != 0;
}

/* ---- the merchant's policy ---- */

static void
follow_policy(Decision *d, Finding *finding)
{
	const char *policy = d->books->late_payment;
	int64		left = free_suspense(d->books, finding->currency);

	/* whoever was told that it is canceled gets his money back */
	if (books_has_operation(d->books, OPERATION_REVERSE))
		policy = "refund";
	/* what has gone back already, or is on its way, is nobody's to decide about */
	if (policy == NULL || strcmp(policy, "hold") == 0 || left <= 0)
		return;
	if (strcmp(policy, "accept") == 0 && d->order->status != ORDER_OPEN)
		policy = "refund";
	if (strcmp(policy, "refund") == 0)
	{
		finding->resolution = "refund";
		finding->operation = refund_suspense(d, Min(finding->amount, left), finding->currency);
		return;
	}
	if (left < finding->amount || !is_money_of_order(d, finding->amount, finding->currency))
		return;
	finding->resolution = "accept";
	if (another_is_live(d))
		finding->operation = add_operation(d, OPERATION_ACCEPT, finding->amount, finding->currency);
	else
		accept_money(d, finding->amount);
}

void
suspense_finding(Decision *d, const char *kind, int64 amount, const char *currency)
{
	Finding    *finding = open_finding(d, kind);

	finding->amount = amount;
	strlcpy(finding->currency, currency, CURRENCY_SIZE);
}

void
unexpected_money(Decision *d, int64 amount, const char *currency, const char *kind)
{
	const char *ref = d->payment->provider_payment_id;
	char		id[UUID_TEXT_SIZE];
	const ProviderFact *fact;

	uuid_to_text(&d->payment->session_id, id);
	fact = add_fact(d, "payment", ref != NULL ? ref : id,
					psprintf("captured:%s:" INT64_FORMAT ":%d", currency, amount, list_length(d->books->facts)),
					amount, 0, currency);
	post(d, "unexpected_received", "provider", "suspense", amount, currency, NULL, fact, NULL);
	if (strcmp(currency, d->payment->currency) == 0)
		d->payment->suspense_amount = booked_suspense(d->books, currency);
	alert_session(d, "critical", kind, "the provider reports money that was not expected; it was booked to suspense");
	suspense_finding(d, kind, amount, currency);
}

/*
 * Once the outcome has done all else: the session may have ended by it.
 */
void
decide_policies(Decision *d)
{
	ListCell   *cell;

	foreach(cell, d->effects->findings)
	{
		Finding    *finding = lfirst(cell);

		if (finding->amount > 0 && finding->resolution == NULL)
			follow_policy(d, finding);
	}
}

void
decide_accept(Decision *d, OperationRow *accept)
{
	int64		left = free_suspense(d->books, accept->currency);

	if (left < accept->amount)
	{
		settle_operation(d, accept, OPERATION_FAILED, "not_needed");
		/* what is left of it is for a person */
		if (left > 0)
			d->effects->reopened = lappend(d->effects->reopened, accept);
		else
			d->effects->refunded_instead = lappend(d->effects->refunded_instead, accept);
	}
	else if (d->order->status != ORDER_OPEN)
	{
		OperationRow *refund;

		settle_operation(d, accept, OPERATION_FAILED, "order_already_paid");
		refund = refund_suspense(d, accept->amount, accept->currency);
		refund->discrepancy_id = accept->discrepancy_id;
		d->effects->refunded_instead = lappend(d->effects->refunded_instead, accept);
	}
	else if (another_is_live(d))
		set_operation_alarm(d, accept, backoff_until(d->now, accept->attempts));
	else
	{
		accept_money(d, accept->amount);
		settle_operation(d, accept, OPERATION_SUCCEEDED, NULL);
	}
}

/* ---- a person's decision ---- */

void
decide_discrepancy(Decision *d)
{
	const Discrepancy *discrepancy = d->books->discrepancy;
	const char *resolution = d->outcome->resolution;
	const char *note = d->outcome->reason;
	int64		amount;

	if (discrepancy == NULL || discrepancy->amount == 0)
		return;
	amount = Min(discrepancy->amount, free_suspense(d->books, discrepancy->currency));
	if (amount <= 0)
		return;
	if (strcmp(resolution, "accept") == 0)
		accept_money(d, amount);
	else if (strcmp(resolution, "refund") == 0)
		refund_suspense(d, amount, discrepancy->currency)->discrepancy_id = discrepancy->id;
	else
	{
		const char *to = strcmp(resolution, "write_off") == 0 ? "losses" : "provider";

		post(d, "correction", "suspense", to, amount, discrepancy->currency, NULL, NULL, note);
		sync_suspense(d, discrepancy->currency);
	}
}
