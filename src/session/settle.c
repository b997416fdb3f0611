/*-------------------------------------------------------------------------
 *
 * settle.c
 *	  Outcomes that say where the money is: paid, authorized, declined, expired,
 *	  canceled.  What is reported is compared with what is booked, so that it
 *	  may come twice, late or out of order.
 *
 * IDENTIFICATION
 *	  src/session/settle.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "lib/compat.h"
#include "session/decision.h"
#include "session/session.h"

/* ---- money ---- */

static void
unexpected_money(Decision *d, int64 amount, const char *currency, const char *kind)
{
	PaymentRow *p = d->payment;

	d->effects->unexpected = amount;
	strlcpy(d->effects->unexpected_currency, currency, sizeof(d->effects->unexpected_currency));
	d->effects->discrepancy = kind;
	d->effects->changed = true;
	d->effects->visible = true;
	if (strcmp(currency, p->currency) == 0)
		p->suspense_amount += amount;
	alert_session(d, "critical", kind, "the provider reports money that was not expected; it was booked to suspense");
}

/*
 * The provider reports captured money on a session that has ended, or more
 * than is booked: what exceeds the books is unexpected.
 */
static void
compare_captured(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	const char *currency = o->currency[0] != '\0' ? o->currency : p->currency;
	int64		booked;

	if (o->captured <= 0)
		return;
	if (strcmp(currency, p->currency) == 0)
		booked = p->captured_amount + p->suspense_amount;
	else
		booked = d->foreign_suspense;
	if (o->captured > booked)
		unexpected_money(d, o->captured - booked, currency, "unexpected_money");
}

/*
 * An answer to an older question than the newest that was answered: what was
 * so then need not be so now.
 */
static bool
is_outdated(const Decision *d)
{
	return d->outcome->sent_at != 0 && d->outcome->sent_at < d->payment->answered_at;
}

/*
 * Money that was booked has gone back, by the provider's totals.
 */
static void
compare_returned(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (is_outdated(d))
		return;
	if ((o->captured < 0 || o->captured >= p->captured_amount) &&
		o->refunded <= p->refunded_amount && o->disputed <= p->disputed_amount)
		return;
	d->effects->discrepancy = "money_returned";
	alert_session(d, "critical", "money_returned", "the provider reports that booked money has gone back");
}

void
compare_totals(Decision *d)
{
	if (!status_is_final(d->effects->from))
		return;
	compare_captured(d);
	if (d->payment->captured_amount > 0)
		compare_returned(d);
}

static bool
currency_is_ours(const Decision *d)
{
	return d->outcome->currency[0] == '\0' || strcmp(d->outcome->currency, d->payment->currency) == 0;
}

static bool
order_awaits_us(const Decision *d)
{
	return d->order->status == ORDER_OPEN && d->order->has_active &&
		memcmp(&d->order->active_session_id, &d->payment->session_id, UUID_LEN) == 0;
}

/*
 * Paid, on a live session: the one place where a session completes.
 */
static void
complete(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	bool		amount_fits;

	if (p->manual_capture)
		amount_fits = o->captured > 0 && o->captured <= p->amount;
	else
		amount_fits = o->captured == p->amount;

	if (!currency_is_ours(d) || !amount_fits)
	{
		if (o->captured > 0)
			unexpected_money(d, o->captured, currency_is_ours(d) ? p->currency : o->currency, "amount_mismatch");
		else
			alert_session(d, "critical", "amount_mismatch", "the provider says paid but names no amount");
		end_session(d, STATUS_FAILED, "amount_mismatch");
		return;
	}
	if (!order_awaits_us(d))
	{
		unexpected_money(d, o->captured, p->currency, "unexpected_money");
		end_session(d, STATUS_FAILED, "provider_error");
		return;
	}
	if (p->manual_capture && o->captured != p->amount)
	{
		d->effects->discrepancy = "captured_amount";
		alert_session(d, "warning", "captured_amount", "the provider captured another amount than was authorized");
	}
	p->captured_amount = o->captured;
	p->authorized_amount = p->manual_capture ? Max(p->authorized_amount, o->captured) : o->captured;
	d->effects->receipt = true;
	end_session(d, STATUS_COMPLETED, NULL);
}

void
decide_paid(Decision *d)
{
	if (!status_is_final(d->payment->status))
		complete(d);
}

void
decide_authorized(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (status_is_final(p->status))
	{
		if (p->status != STATUS_COMPLETED)
			alert_session(d, "warning", "late_authorization", "the provider holds money for a session that has ended");
		else if (!is_outdated(d))
			alert_session(d, "warning", "contradiction", "the provider holds as authorized what is completed");
		return;
	}
	if (!currency_is_ours(d) || (o->authorized >= 0 && o->authorized != p->amount))
	{
		d->effects->discrepancy = "amount_mismatch";
		alert_session(d, "critical", "amount_mismatch", "the provider authorized another amount or currency");
		end_session(d, STATUS_FAILED, "amount_mismatch");
		return;
	}
	if (p->status != STATUS_CANCELING && p->status != STATUS_AUTHORIZED)
	{
		enter_status(d, STATUS_AUTHORIZED, STAGE_CAPTURE);
		p->authorized_amount = p->amount;
		p->attempts = 1;
		p->repeat_due = false;
		p->expiring = false;
		p->expires_at = 0;
	}
	set_alarm(d, poll_at(d->now, d->terms, p->attempts));
}

/* ---- endings without money ---- */

void
decide_ended(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (p->status == STATUS_COMPLETED)
	{
		if (o->kind != OUTCOME_EXPIRED)
			alert_session(d, "warning", "contradiction",
						  "the provider reports a failure of a payment that is completed");
	}
	else if (p->status == STATUS_CANCELING)
		end_session(d, STATUS_CANCELED, NULL);
	else if (!status_is_final(p->status))
	{
		if (o->kind == OUTCOME_DECLINED)
			end_session(d, STATUS_FAILED, o->failure_code ? o->failure_code : "declined");
		else if (o->kind == OUTCOME_EXPIRED)
			end_session(d, STATUS_FAILED, "expired");
		else
			end_session(d, STATUS_CANCELED, "canceled_by_provider");
		compare_captured(d);
	}
}
