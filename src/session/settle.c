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

/* the last part of an authorization's life in which an alert calls for the capture */
#define LAPSES_SOON_PART 10

/* ---- money ---- */

static bool
was_taken_back(const Books *books)
{
	ListCell   *cell;

	foreach(cell, books->entries)
	{
		const LedgerEntry *entry = lfirst(cell);

		if (strcmp(entry->type, "payment_reversed") == 0 || strcmp(entry->type, "correction") == 0)
			return true;
	}
	return false;
}

/*
 * The provider reports captured money on a session that has ended, or more
 * than is booked: what exceeds the books is unexpected.
 */
void
compare_captured(Decision *d)
{
	const char *currency = told_currency(d);
	int64		excess = d->outcome->captured - booked_received(d->books, currency);

	/* an older answer may show what has been taken back since */
	if (is_outdated(d) && was_taken_back(d->books))
		return;
	if (d->outcome->captured > 0 && excess > 0)
		unexpected_money(d, excess, currency, "unexpected_money");
}

/* Is it the amount that somebody has asked to be captured? */
static bool
is_our_capture(const Decision *d, int64 captured)
{
	ListCell   *cell;

	foreach(cell, d->books->operations)
	{
		const OperationRow *operation = lfirst(cell);

		if (operation->kind == OPERATION_CAPTURE && operation->amount == captured)
			return true;
	}
	return captured == d->payment->amount;
}

/*
 * Paid, although it was to be canceled: the money is booked, and goes back.
 */
static void
lose_cancel(Decision *d)
{
	d->payment->cancel_lost = true;
	d->effects->returns_changed = true;
	d->effects->cancel_loses = true;
	alert_session(d, "warning", "cancel_lost", "it was paid while it was being canceled; the money goes back");
}

/*
 * Once all else of the answer is booked: what has not gone back yet.
 */
void
refund_lost_cancel(Decision *d)
{
	const PaymentRow *p = d->payment;
	int64		left = p->captured_amount - p->refunded_amount - p->disputed_amount;

	if (d->effects->cancel_loses && left > 0)
		(void) add_operation(d, OPERATION_REFUND, left, p->currency);
}

/*
 * Not what was agreed: no receipt, the money waits for a decision.
 */
static void
refuse_payment(Decision *d, const char *kind, const char *failure_code)
{
	bool		canceling = d->payment->status == STATUS_CANCELING;

	if (d->outcome->captured > 0)
		unexpected_money(d, d->outcome->captured, told_currency(d), kind);
	else
		alert_session(d, "critical", kind, "the provider says paid but names no amount");
	if (canceling)
		end_session(d, STATUS_CANCELED, NULL);
	else
		end_session(d, STATUS_FAILED, failure_code);
}

/*
 * Paid, on a live session: the one place where a session completes.
 */
static void
complete(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	bool		canceling = p->status == STATUS_CANCELING;
	int64		receipt = p->manual_capture ? Min(o->captured, p->amount) : o->captured;
	bool		amount_fits = p->manual_capture ? o->captured > 0 : o->captured == p->amount;

	if (!currency_is_ours(d) || !amount_fits)
	{
		refuse_payment(d, "amount_mismatch", "amount_mismatch");
		return;
	}
	if (!fits_order_of(d))
	{
		refuse_payment(d, "unexpected_money", "provider_error");
		return;
	}
	if (p->manual_capture && !is_our_capture(d, receipt))
	{
		open_finding(d, "captured_amount");
		alert_session(d, "warning", "captured_amount", "the provider captured another amount than was asked for");
	}
	p->captured_amount = receipt;
	p->authorized_amount = p->manual_capture ? Max(p->authorized_amount, receipt) : receipt;
	d->effects->receipt = true;
	post(d, "payment_received", "provider", "held", receipt, p->currency, NULL, NULL, NULL);
	order_takes_receipt(d);
	end_session(d, STATUS_COMPLETED, NULL);
	if (canceling)
		lose_cancel(d);
	compare_captured(d);		/* more than was authorized is unexpected */
}

void
decide_paid(Decision *d)
{
	if (!status_is_final(d->payment->status))
		complete(d);
}

/* ---- authorizations ---- */

/*
 * Money is held for a session that has ended: it is given up, once a fresh
 * answer says that it is still held.
 */
static void
void_authorization(Decision *d)
{
	OperationRow *voiding;

	if (books_unsettled(d->books, OPERATION_VOID) != NULL)
		return;
	voiding = add_operation(d, OPERATION_VOID, 0, d->payment->currency);
	voiding->ask_due = true;
}

static void
late_authorization(Decision *d)
{
	PaymentRow *p = d->payment;

	if (d->outcome->captured > 0)
		return;					/* money, not only an authorization: the totals tell */
	if (p->status != STATUS_COMPLETED)
	{
		alert_session(d, "warning", "late_authorization", "the provider holds money for a session that has ended");
		/* a newer answer has said something else already */
		if (!is_outdated(d))
			void_authorization(d);
	}
	else if (d->outcome->captured < 0 && !is_outdated(d))
		alert_session(d, "warning", "contradiction", "the provider holds as authorized what is completed");
}

/*
 * An authorization does not live for ever: alarms and alerts before it lapses.
 */
static void
watch_authorization(Decision *d)
{
	PaymentRow *p = d->payment;
	TimestampTz lapses_at = time_plus(d->now, &d->terms->authorization_ttl);
	int64		lifetime = lapses_at - d->now;
	TimestampTz next = poll_at(d->now, d->terms, p->attempts);
	TimestampTz warn_at;

	if (p->expires_at == 0)
		p->expires_at = lapses_at;
	warn_at = p->expires_at - lifetime / LAPSES_SOON_PART;
	if (p->expires_at <= d->now)
		alert_session(d, "critical", "authorization_lapsed",
					  "the authorization should have lapsed, but the provider still holds it");
	else if (warn_at <= d->now)
		alert_session(d, "warning", "authorization_lapses", "the authorization lapses soon and is not captured");
	if (warn_at > d->now)
		next = Min(next, warn_at);
	if (p->expires_at > d->now)
		next = Min(next, p->expires_at);
	set_alarm(d, next);
}

static void
enter_authorized(Decision *d)
{
	PaymentRow *p = d->payment;

	enter_status(d, STATUS_AUTHORIZED, STAGE_CAPTURE);
	p->authorized_amount = p->amount;
	p->attempts = 1;
	p->repeat_due = false;
	p->expiring = false;
	p->expires_at = 0;
}

/*
 * A bank that takes a capture back leaves the authorization, or nothing.
 */
void
decide_capture_failed(Decision *d)
{
	PaymentRow *p = d->payment;
	OperationRow *capture = books_unsettled(d->books, OPERATION_CAPTURE);

	if (p->status == STATUS_COMPLETED)
		return;					/* the totals tell */
	if (capture != NULL && capture->first_sent_at != 0 && capture->lease_until <= d->now)
	{
		note_failed_capture(d, capture, "failed_at_provider", d->outcome->failure_message);
		alert_operation(d, capture, "critical", "capture_failed", "the bank did not carry it out");
	}
	decide_authorized(d);
}

void
decide_authorized(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (status_is_final(p->status))
	{
		late_authorization(d);
		return;
	}
	if (p->status == STATUS_CANCELING)
	{
		decide_canceling(d);
		return;
	}
	if (!currency_is_ours(d) || (o->authorized >= 0 && o->authorized != p->amount))
	{
		open_finding(d, "amount_mismatch");
		alert_session(d, "critical", "amount_mismatch", "the provider authorized another amount or currency");
		end_session(d, STATUS_FAILED, "amount_mismatch");
		void_authorization(d);
		return;
	}
	if (o->captured > 0)
	{
		open_finding(d, "captured_amount");
		alert_session(d, "critical", "captured_amount", "the provider has captured some of it and says that it is authorized");
	}
	if (p->status != STATUS_AUTHORIZED)
		enter_authorized(d);
	watch_authorization(d);
}

/* ---- canceling ---- */

void
decide_canceling(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	OperationRow *reverse = books_unsettled(d->books, OPERATION_REVERSE);

	if (p->stage == STAGE_REGISTER)
	{
		enter_status(d, STATUS_CANCELING, STAGE_REVERSE);
		p->attempts = 1;
		if (reverse != NULL)
			set_operation_alarm(d, reverse, d->now);
	}
	else if (o->sent_at != 0 && o->kind != OUTCOME_AUTHORIZED && o->kind != OUTCOME_CAPTURE_FAILED &&
			 time_plus(payment_lifetime_end(p, d->terms), &d->terms->grace) <= o->sent_at)
	{
		/* not even the provider's own lifetime has brought an end */
		end_session_unproven(d, STATUS_CANCELED, NULL);
		return;
	}
	set_alarm(d, poll_at(d->now, d->terms, Max(p->attempts, 3)));
}

/* ---- endings without money ---- */

void
decide_ended(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (p->status == STATUS_COMPLETED)
	{
		/* where captured money is gone, the totals tell */
		if (o->kind != OUTCOME_EXPIRED && (o->captured != 0 || is_outdated(d)))
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
	}
	if (status_is_final(p->status) && !status_is_final(d->effects->from))
		compare_captured(d);
}
