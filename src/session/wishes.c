/*-------------------------------------------------------------------------
 *
 * wishes.c
 *	  What people want of a payment: cancel, capture, refund, and their
 *	  decisions.  Whether they may is checked by the call that brings the wish;
 *	  the limits stand in the database besides.
 *
 * IDENTIFICATION
 *	  src/session/wishes.c
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

/* the reverse's answer tells the status: the session itself asks only if that does not come */
#define ASK_AFTER_REVERSE (5 * USECS_PER_SEC)

static char *
copy_text(const char *text)
{
	return text ? pstrdup(text) : NULL;
}

static void
decide_cancel(Decision *d)
{
	PaymentRow *p = d->payment;
	OperationRow *capture = books_unsettled(d->books, OPERATION_CAPTURE);
	OperationRow *reverse;
	bool		known = p->status == STATUS_REGISTERED || p->status == STATUS_AUTHORIZED;

	if (status_is_final(p->status) || p->status == STATUS_CANCELING)
		return;
	if (p->status == STATUS_REGISTERING && p->first_sent_at == 0 && d->outcome->never_sent_is_believed)
	{
		end_session(d, STATUS_CANCELED, NULL);
		return;
	}
	/* the reverse waits for the capture's result, so that is looked for now */
	if (capture != NULL && capture->lease_until <= d->now)
		set_operation_alarm(d, capture, d->now);
	reverse = add_operation(d, OPERATION_REVERSE, 0, p->currency);
	reverse->reason = copy_text(d->outcome->reason);
	p->expires_at = 0;
	p->expiring = false;
	p->repeat_due = false;
	p->attempts = 0;
	if (known)
	{
		enter_status(d, STATUS_CANCELING, STAGE_REVERSE);
		set_alarm(d, d->now + ASK_AFTER_REVERSE);
		return;
	}
	/* what is being canceled must be known first */
	reverse->next_action_at = 0;
	enter_status(d, STATUS_CANCELING, STAGE_REGISTER);
	set_alarm(d, Max(p->lease_until, d->now));
}

static void
decide_capture(Decision *d)
{
	OperationRow *capture = add_operation(d, OPERATION_CAPTURE, d->outcome->wished_amount, d->payment->currency);

	capture->operation_id = d->outcome->operation_id;
	uuid_to_text(&capture->operation_id, capture->idempotency_key);
	capture->reason = copy_text(d->outcome->reason);
	capture->receipt = copy_text(d->outcome->wished_receipt);
	d->payment->failure_code = NULL;
	d->payment->failure_message = NULL;
}

static void
decide_refund(Decision *d)
{
	OperationRow *refund = add_operation(d, OPERATION_REFUND, d->outcome->wished_amount, d->payment->currency);

	refund->operation_id = d->outcome->operation_id;
	uuid_to_text(&refund->operation_id, refund->idempotency_key);
	refund->reason = copy_text(d->outcome->reason);
	refund->receipt = copy_text(d->outcome->wished_receipt);
}

/*
 * A refund that was refused is given once more: a command that the provider
 * has not seen, so under a key of its own.
 */
static void
decide_retry(Decision *d, OperationRow *refund)
{
	pg_uuid_t	key;

	uuid_v7(&key, routing_slot(d->payment->merchant, d->payment->order_id));
	refund->idempotency_key = palloc(UUID_TEXT_SIZE);
	uuid_to_text(&key, refund->idempotency_key);
	refund->status = OPERATION_PENDING;
	refund->first_sent_at = 0;
	refund->provider_ref = NULL;
	refund->failure_code = NULL;
	refund->failure_message = NULL;
	refund->total_before = -1;
	refund->ask_due = d->terms != NULL && !d->terms->names_refunds;
	refund->updated_at = d->now;
	set_operation_alarm(d, refund, d->now);
	d->effects->changed = d->effects->visible = true;
	d->effects->order_follows = true;
}

static void
decide_refund_result(Decision *d, OperationRow *refund)
{
	if (operation_is_settled(refund->status))
		return;
	if (d->outcome->decided_success)
		refund_succeeded(d, refund, refund->amount);
	else
	{
		settle_operation(d, refund, OPERATION_FAILED, "settled");
		reopen_discrepancy(d, refund);
	}
	refund->settled_by_person = true;
}

void
decide_wish(Decision *d)
{
	switch (d->outcome->kind)
	{
		case OUTCOME_CANCEL_ASKED:
			decide_cancel(d);
			break;
		case OUTCOME_CAPTURE_ASKED:
			decide_capture(d);
			break;
		case OUTCOME_REFUND_ASKED:
			if (d->operation != NULL)
				decide_retry(d, d->operation);
			else
				decide_refund(d);
			break;
		case OUTCOME_REFUND_DECIDED:
			if (d->operation != NULL)
				decide_refund_result(d, d->operation);
			break;
		case OUTCOME_DISCREPANCY_DECIDED:
			decide_discrepancy(d);
			break;
		default:
			elog(ERROR, "unrecognized wish: %d", (int) d->outcome->kind);
	}
}
