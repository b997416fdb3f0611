/*-------------------------------------------------------------------------
 *
 * render.c
 *	  How payments and refunds look in JSON.
 *
 * test/sandbox/render.c
 *
 *-------------------------------------------------------------------------
 */
#include "store.h"

#include <stdio.h>
#include <string.h>

#include "http.h"

static void
make_id(char id[24], const char *prefix, uint32_t number)
{
	snprintf(id, 24, "%s_%08x%08x", prefix, store.boot, number);
}

void
payment_id(char id[24], const Payment *payment)
{
	make_id(id, "pay", payment->number);
}

void
refund_id(char id[24], const Refund *refund)
{
	make_id(id, "re", refund->number);
}

void
dispute_id(char id[24], const Dispute *dispute)
{
	make_id(id, "dp", dispute->number);
}

const char *
dispute_status(const Dispute *dispute)
{
	if (dispute->won == 0)
		return "open";
	return dispute->won < dispute->amount ? "partly_won" : "won";
}

static void
field_text(Buf *buf, const char *name, const char *value)
{
	buf_append(buf, ",\"", 2);
	buf_puts(buf, name);
	buf_append(buf, "\":", 2);
	buf_json(buf, value);
}

static void
field_int(Buf *buf, const char *name, int64_t value)
{
	buf_append(buf, ",\"", 2);
	buf_puts(buf, name);
	buf_append(buf, "\":", 2);
	buf_int(buf, value);
}

static void
field_time(Buf *buf, const char *name, int64_t ms)
{
	buf_append(buf, ",\"", 2);
	buf_puts(buf, name);
	buf_append(buf, "\":", 2);
	buf_json_time(buf, ms);
}

/* JSON text that was kept as it came. */
static void
field_raw(Buf *buf, const char *name, const char *value)
{
	buf_append(buf, ",\"", 2);
	buf_puts(buf, name);
	buf_append(buf, "\":", 2);
	buf_puts(buf, value == NULL ? "null" : value);
}

/* The page for the payer. */
void
payment_url(Buf *buf, const Payment *payment)
{
	char		id[24];

	payment_id(id, payment);
	buf_puts(buf, api_url);
	buf_append(buf, "/pay/", 5);
	buf_puts(buf, id);
}

static void
refund_body(Buf *buf, const Refund *refund, bool whole)
{
	char		id[24];

	refund_id(id, refund);
	buf_append(buf, "{\"id\":\"", 7);
	buf_puts(buf, id);
	buf_append(buf, "\"", 1);
	if (whole)
	{
		payment_id(id, refund->payment);
		field_text(buf, "payment", id);
	}
	field_text(buf, "reference", refund->reference);
	field_int(buf, "amount", refund->amount);
	field_text(buf, "status", refund_status_names[refund->status]);
	buf_append(buf, "}", 1);
}

void
refund_json(Buf *buf, const Refund *refund)
{
	refund_body(buf, refund, true);
}

static void
lists(Buf *buf, const Payment *payment)
{
	char		id[24];

	buf_puts(buf, ",\"refunds\":[");
	for (const Refund *refund = payment->refunds; refund != NULL; refund = refund->next)
	{
		if (refund != payment->refunds)
			buf_append(buf, ",", 1);
		refund_body(buf, refund, false);
	}
	buf_puts(buf, "],\"disputes\":[");
	for (const Dispute *dispute = payment->disputes; dispute != NULL; dispute = dispute->next)
	{
		dispute_id(id, dispute);
		buf_printf(buf, "%s{\"id\":\"%s\"", dispute == payment->disputes ? "" : ",", id);
		field_int(buf, "amount", dispute->amount);
		field_text(buf, "status", dispute_status(dispute));
		field_int(buf, "won", dispute->won);
		buf_append(buf, "}", 1);
	}
	buf_append(buf, "]", 1);
}

static void
head(Buf *buf, const Payment *payment, PaymentStatus status, Stage stage,
	 const char *currency)
{
	bool		open = status == PAYMENT_PENDING || status == PAYMENT_REQUIRES_ACTION;
	char		id[24];

	payment_id(id, payment);
	buf_append(buf, "{\"id\":\"", 7);
	buf_puts(buf, id);
	buf_append(buf, "\"", 1);
	field_text(buf, "reference", payment->reference->name);
	field_text(buf, "order", payment->order == NULL ? NULL : payment->order->name);
	field_text(buf, "status", payment_status_names[status]);
	field_text(buf, "stage", open ? stage_names[stage] : NULL);
	field_int(buf, "amount", payment->amount);
	field_text(buf, "currency", currency);
}

static void
tail(Buf *buf, const Payment *payment, const char *decline_code, int64_t expires_ms)
{
	buf_puts(buf, ",\"redirect_url\":\"");
	payment_url(buf, payment);
	buf_append(buf, "\"", 1);
	field_text(buf, "decline_code", decline_code);
	field_time(buf, "created_at", payment->created_ms);
	field_time(buf, "expires_at", expires_ms);
	field_raw(buf, "metadata", payment->metadata);
}

static void
current(Buf *buf, const Payment *payment)
{
	head(buf, payment, payment->status, payment->stage, payment->currency);
	field_int(buf, "authorized", payment->authorized);
	field_int(buf, "captured", payment->captured);
	field_int(buf, "refunded", payment->refunded);
	field_int(buf, "disputed", payment->disputed);
	lists(buf, payment);
	tail(buf, payment, payment->decline_code, payment->expires_ms);
}

/* A payment as it is. */
void
payment_json(Buf *buf, const Payment *payment)
{
	current(buf, payment);
	buf_append(buf, "}", 1);
}

/*
 * A payment as the register call answered it.  Drawn anew for replays, so
 * that no answer has to be kept for each payment.
 */
void
payment_json_born(Buf *buf, const Payment *payment)
{
	head(buf, payment, payment->born_declined ? PAYMENT_DECLINED : PAYMENT_PENDING,
		 STAGE_FORM, payment->born_currency);
	buf_puts(buf, ",\"authorized\":0,\"captured\":0,\"refunded\":0,\"disputed\":0"
			 ",\"refunds\":[],\"disputes\":[]");
	tail(buf, payment, payment->born_declined ? "card_declined" : NULL,
		 payment->born_expires_ms);
	buf_append(buf, "}", 1);
}

/* A payment for the control face, with what was sent at register. */
void
payment_json_control(Buf *buf, const Payment *payment)
{
	current(buf, payment);
	field_text(buf, "capture", payment->manual ? "manual" : "automatic");
	field_text(buf, "return_url", payment->return_url);
	field_raw(buf, "receipt", payment->receipt);
	buf_append(buf, "}", 1);
}
