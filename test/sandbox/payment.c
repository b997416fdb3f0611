/*-------------------------------------------------------------------------
 *
 * payment.c
 *	  The life of a payment at the provider.
 *
 * The API checks what a merchant may do before it calls in here; the control
 * face does not, because it plays the payer, his bank and the calendar, and
 * those may act from any state.  Two rules keep the figures honest whatever
 * happens: money that was captured only moves by a refund, a dispute or a
 * failed capture, never by a mere change of status; and an end without money
 * releases the authorization.
 *
 * test/sandbox/payment.c
 *
 *-------------------------------------------------------------------------
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timer.h"
#include "webhook.h"

/* What of a payment an event tells about; compared to see if one is due */
typedef struct Snapshot
{
	uint8_t		status;
	uint8_t		stage;
	int64_t		captured;
	int64_t		authorized;
} Snapshot;

static Snapshot
snapshot(const Payment *payment)
{
	Snapshot	shot = {payment->status, payment->stage, payment->captured,
	payment->authorized};

	return shot;
}

static void
tell_change(Payment *payment, Snapshot before)
{
	char		type[64];

	if (before.status != payment->status ||
		before.captured != payment->captured ||
		before.authorized != payment->authorized)
	{
		snprintf(type, sizeof(type), "payment.%s",
				 payment_status_names[payment->status]);
		webhook_event(payment, type);
	}
	else if (before.stage != payment->stage)
		webhook_event(payment, "payment.updated");
}

bool
payment_is_open(const Payment *payment)
{
	return payment->status == PAYMENT_PENDING ||
		payment->status == PAYMENT_REQUIRES_ACTION;
}

static const char *
keep_text(const char *text)
{
	return text == NULL ? NULL : arena_copy(&store.arena, text, strlen(text));
}

static void
payment_link(Payment *payment)
{
	Subject    *reference = payment->reference;
	Subject    *order = payment->order;

	payment->next_reference = payment;
	if (reference->last != NULL)
	{
		payment->next_reference = reference->last->next_reference;
		reference->last->next_reference = payment;
	}
	reference->last = payment;
	reference->payments++;

	if (order != NULL)
	{
		payment->next_order = payment;
		if (order->last != NULL)
		{
			payment->next_order = order->last->next_order;
			order->last->next_order = payment;
		}
		order->last = payment;
		order->payments++;
	}
	store.all->payments++;
}

/* The payment lapses after so many seconds, if it is still open then. */
static void
set_lapse(Payment *payment, int64_t from_ms, int64_t seconds)
{
	payment->expires_ms = from_ms + seconds * 1000;
	/* a little later, because the two clocks round differently */
	timer_add(TIMER_EXPIRE, seconds * 1000 + 5, payment);
}

Payment *
payment_register(const Registration *what)
{
	Payment    *payment = arena_alloc(&store.arena, sizeof(Payment));
	int64_t		life = what->expires_in > 0 ? what->expires_in :
		store.settings.expires_in;

	memset(payment, 0, sizeof(*payment));
	payment->number = store.first_payment + store.payment_count;
	payment->reference = subject_get(&store.references, what->reference);
	if (what->order != NULL)
		payment->order = subject_get(&store.orders, what->order);
	payment->amount = what->amount;
	payment->manual = what->manual;
	memcpy(payment->currency, what->currency, 4);
	memcpy(payment->born_currency, what->currency, 4);
	payment->return_url = keep_text(what->return_url);
	payment->metadata = keep_text(what->metadata);
	payment->receipt = keep_text(what->receipt);
	payment->created_ms = now_ms();
	payment->expires_ms = payment->born_expires_ms = payment->created_ms + life * 1000;
	if (what->declined)
	{
		payment->born_declined = true;
		payment->status = PAYMENT_DECLINED;
		payment->decline_code = "card_declined";
	}

	/* the array grows at powers of two */
	if ((store.payment_count & (store.payment_count - 1)) == 0)
		store.payments = xrealloc(store.payments,
								  sizeof(Payment *) *
								  (store.payment_count == 0 ? 1 :
								   (size_t) store.payment_count * 2));
	store.payments[store.payment_count++] = payment;
	payment_link(payment);

	if (payment_is_open(payment))
	{
		set_lapse(payment, payment->created_ms, life);
		payment->auto_act = (uint8_t) store.settings.auto_act;
		if (payment->auto_act != AUTO_NONE && store.settings.auto_delay_ms > 0)
			timer_add(TIMER_AUTO, store.settings.auto_delay_ms, payment);
		/* without a delay the caller does it, once the answer is written */
	}
	return payment;
}

/* Let an open payment lapse if its time is over. */
void
payment_refresh(Payment *payment)
{
	if (payment_is_open(payment) && payment->expires_ms <= now_ms())
		payment_close(payment, PAYMENT_EXPIRED);
}

/* The payer does by himself what the setting said at register. */
void
payment_auto(Payment *payment)
{
	if (!payment_is_open(payment))
		return;
	if (payment->auto_act == AUTO_PAY)
		payment_payer_pays(payment);
	else if (payment->auto_act == AUTO_AUTHORIZE)
		payment_authorize(payment, 0, NULL);
	else if (payment->auto_act == AUTO_DECLINE)
		payment_decline(payment, NULL);
}

static void
set_authorized(Payment *payment, int64_t amount)
{
	money_set(&payment->authorized, &store.sums.authorized, amount);
}

static void
set_captured(Payment *payment, int64_t amount)
{
	int64_t		before = payment->captured;

	money_set(&payment->captured, &store.sums.captured, amount);
	if (amount > before)
		money_row(MONEY_PAYMENT, payment, NULL, amount - before);
	else if (amount < before)
		money_row(MONEY_PAYMENT_REVERSED, payment, NULL, before - amount);
}

static void
set_status(Payment *payment, PaymentStatus status)
{
	payment->status = (uint8_t) status;
	if (status == PAYMENT_PAID || status == PAYMENT_AUTHORIZED)
		payment->decline_code = NULL;
	/* an end without money gives the hold on the card back */
	if ((status == PAYMENT_DECLINED || status == PAYMENT_EXPIRED ||
		 status == PAYMENT_CANCELED) && payment->captured == 0)
		set_authorized(payment, 0);
}

/*
 * Money is taken.  The amount (0: as authorized, else as registered) becomes
 * the captured total, but never lowers it.
 */
void
payment_pay(Payment *payment, int64_t amount, const char *currency)
{
	Snapshot	before = snapshot(payment);

	if (currency != NULL)
		memcpy(payment->currency, currency, 4);
	if (amount == 0)
		amount = payment->authorized > 0 ? payment->authorized : payment->amount;
	if (amount > payment->captured)
	{
		if (amount > payment->authorized)
			set_authorized(payment, amount);
		set_captured(payment, amount);
	}
	set_status(payment, PAYMENT_PAID);
	tell_change(payment, before);
}

/* Money is held. */
void
payment_authorize(Payment *payment, int64_t amount, const char *currency)
{
	Snapshot	before = snapshot(payment);

	if (currency != NULL)
		memcpy(payment->currency, currency, 4);
	set_authorized(payment, amount > 0 ? amount : payment->amount);
	set_status(payment, PAYMENT_AUTHORIZED);
	tell_change(payment, before);
}

/* What the payer's Pay means depends on what the merchant asked for. */
void
payment_payer_pays(Payment *payment)
{
	if (payment->manual)
		payment_authorize(payment, 0, NULL);
	else
		payment_pay(payment, 0, NULL);
}

void
payment_decline(Payment *payment, const char *code)
{
	Snapshot	before = snapshot(payment);

	payment->decline_code = code == NULL ? "card_declined" : keep_text(code);
	set_status(payment, PAYMENT_DECLINED);
	tell_change(payment, before);
}

/* The payment is open, perhaps again, and waits for something. */
void
payment_wait(Payment *payment, PaymentStatus status, Stage stage)
{
	Snapshot	before = snapshot(payment);

	payment->stage = (uint8_t) stage;
	set_status(payment, status);
	if (payment->expires_ms <= now_ms())
		set_lapse(payment, now_ms(), store.settings.expires_in);
	tell_change(payment, before);
}

/* Expired or canceled. */
void
payment_close(Payment *payment, PaymentStatus status)
{
	Snapshot	before = snapshot(payment);

	set_status(payment, status);
	tell_change(payment, before);
}

void
payment_capture(Payment *payment, int64_t amount)
{
	Snapshot	before = snapshot(payment);

	set_captured(payment, amount);
	set_status(payment, PAYMENT_PAID);
	tell_change(payment, before);
}

/* The capture fails, perhaps after it was reported as done. */
void
payment_capture_fail(Payment *payment)
{
	if (payment->authorized == 0)
		set_authorized(payment, payment->amount);
	set_captured(payment, 0);
	set_status(payment, PAYMENT_AUTHORIZED);
	payment->decline_code = "capture_failed";
	webhook_event(payment, "payment.capture_failed");
}
