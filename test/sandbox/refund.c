/*-------------------------------------------------------------------------
 *
 * refund.c
 *	  Money that goes back: refunds and disputes of a payment.
 *
 * test/sandbox/refund.c
 *
 *-------------------------------------------------------------------------
 */
#include "store.h"

#include <stdio.h>
#include <string.h>

#include "webhook.h"

/* What a merchant may still refund. */
int64_t
payment_refundable(const Payment *payment)
{
	int64_t		pending = 0;

	for (const Refund *refund = payment->refunds; refund != NULL; refund = refund->next)
	{
		if (refund->status == REFUND_PENDING)
			pending += refund->amount;
	}
	return payment->captured - payment->refunded - payment->disputed - pending;
}

static void
refund_tell(Refund *refund)
{
	char		type[64];

	snprintf(type, sizeof(type), "refund.%s", refund_status_names[refund->status]);
	webhook_event(refund->payment, type);
}

static void
set_refunded(Refund *refund, int64_t amount, MoneyType type)
{
	Payment    *payment = refund->payment;

	money_set(&payment->refunded, &store.sums.refunded, payment->refunded + amount);
	money_row(type, payment, refund, refund->amount);
}

Refund *
payment_refund(Payment *payment, int64_t amount, const char *reference,
			   RefundStatus status)
{
	Refund	   *refund = arena_alloc(&store.arena, sizeof(Refund));
	Refund	  **tail = &payment->refunds;

	memset(refund, 0, sizeof(*refund));
	refund->number = store.first_refund + store.refund_count;
	refund->payment = payment;
	refund->amount = amount;
	refund->status = (uint8_t) status;
	if (reference != NULL)
		refund->reference = arena_copy(&store.arena, reference, strlen(reference));
	while (*tail != NULL)
		tail = &(*tail)->next;
	*tail = refund;

	if ((store.refund_count & (store.refund_count - 1)) == 0)
		store.refunds = xrealloc(store.refunds,
								 sizeof(Refund *) *
								 (store.refund_count == 0 ? 1 :
								  (size_t) store.refund_count * 2));
	store.refunds[store.refund_count++] = refund;

	if (status == REFUND_SUCCEEDED)
		set_refunded(refund, amount, MONEY_REFUND);
	refund_tell(refund);
	return refund;
}

/* A pending refund ends, or one that succeeded fails after all. */
void
refund_settle(Refund *refund, RefundStatus status)
{
	if (refund->status == status)
		return;
	if (status == REFUND_SUCCEEDED)
		set_refunded(refund, refund->amount, MONEY_REFUND);
	else if (refund->status == REFUND_SUCCEEDED)
		set_refunded(refund, -refund->amount, MONEY_REFUND_REVERSED);
	refund->status = (uint8_t) status;
	refund_tell(refund);
}

Dispute *
payment_dispute(Payment *payment, int64_t amount)
{
	Dispute    *dispute = arena_alloc(&store.arena, sizeof(Dispute));
	Dispute   **tail = &payment->disputes;

	memset(dispute, 0, sizeof(*dispute));
	dispute->number = store.next_dispute++;
	dispute->amount = amount;
	while (*tail != NULL)
		tail = &(*tail)->next;
	*tail = dispute;

	money_set(&payment->disputed, &store.sums.disputed, payment->disputed + amount);
	money_row(MONEY_DISPUTE, payment, dispute, amount);
	webhook_event(payment, "dispute.opened");
	return dispute;
}

void
payment_win_dispute(Payment *payment, Dispute *dispute, int64_t amount)
{
	dispute->won += amount;
	money_set(&payment->disputed, &store.sums.disputed, payment->disputed - amount);
	money_row(MONEY_DISPUTE_REVERSED, payment, dispute, amount);
	webhook_event(payment, "dispute.won");
}
