/*-------------------------------------------------------------------------
 *
 * moves.c
 *	  What a decision may do to a payment's row and its operations: status,
 *	  stage, alarm, alerts.
 *
 * IDENTIFICATION
 *	  src/session/moves.c
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

/* ---- alerts and findings ---- */

void
add_alert(Effects *effects, const char *severity, char *key, char *message)
{
	Alert	   *alert = palloc_object(Alert);

	alert->key = key;
	alert->severity = severity;
	alert->message = message;
	effects->alerts = lappend(effects->alerts, alert);
}

void
alert_session(Decision *d, const char *severity, const char *about, const char *message)
{
	char		id[UUID_TEXT_SIZE];

	uuid_to_text(&d->payment->session_id, id);
	add_alert(d->effects, severity, psprintf("%s:%s", about, id),
			  psprintf("payment session %s: %s", id, message));
}

void
alert_provider(Decision *d, const char *severity, const char *about, const char *message)
{
	add_alert(d->effects, severity, psprintf("%s:%s", about, d->payment->provider),
			  psprintf("provider \"%s\": %s", d->payment->provider, message));
}

void
alert_operation(Decision *d, const OperationRow *operation, const char *severity, const char *about,
				const char *message)
{
	char		id[UUID_TEXT_SIZE];
	char		session_id[UUID_TEXT_SIZE];

	uuid_to_text(&operation->operation_id, id);
	uuid_to_text(&d->payment->session_id, session_id);
	add_alert(d->effects, severity, psprintf("%s:%s", about, id),
			  psprintf("%s %s of payment session %s: %s", operation_kind_name(operation->kind), id, session_id,
					   message));
}

Finding *
open_finding(Decision *d, const char *kind)
{
	Finding    *finding = palloc0_object(Finding);

	finding->kind = kind;
	d->effects->findings = lappend(d->effects->findings, finding);
	return finding;
}

/* ---- what an answer is worth ---- */

/*
 * An answer to an older question than the newest that was answered: what was
 * so then need not be so now.
 */
bool
is_outdated(const Decision *d)
{
	return d->outcome->sent_at != 0 && d->outcome->sent_at < d->payment->answered_at;
}

const char *
told_currency(const Decision *d)
{
	return d->outcome->currency[0] != '\0' ? d->outcome->currency : d->payment->currency;
}

bool
currency_is_ours(const Decision *d)
{
	return strcmp(told_currency(d), d->payment->currency) == 0;
}

/* The order is that of this session's money: open, and this session is the one that runs. */
bool
fits_order_of(const Decision *d)
{
	return d->order->status == ORDER_OPEN && d->order->has_active &&
		memcmp(&d->order->active_session_id, &d->payment->session_id, UUID_LEN) == 0;
}

/*
 * Whoever decides has made sure of it: the order is open, and no other session
 * of it runs.  Where he has not, nothing is booked.
 */
void
order_takes_receipt(Decision *d)
{
	bool		another_runs = d->order->has_active &&
		memcmp(&d->order->active_session_id, &d->payment->session_id, UUID_LEN) != 0;

	if (d->order->status != ORDER_OPEN || another_runs)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the order of this payment session cannot take its money as a receipt")));
	d->order->status = ORDER_PAID;
	d->order->has_paid = true;
	d->order->paid_session_id = d->payment->session_id;
}

/* ---- operations ---- */

void
touch_operation(Decision *d, OperationRow *operation)
{
	operation->changed = true;
	d->effects->operations = list_append_unique_ptr(d->effects->operations, operation);
}

OperationRow *
add_operation(Decision *d, OperationKind kind, int64 amount, const char *currency)
{
	OperationRow *operation = palloc0_object(OperationRow);
	char		id[UUID_TEXT_SIZE];

	uuid_v7(&operation->operation_id, routing_slot(d->payment->merchant, d->payment->order_id));
	operation->session_id = d->payment->session_id;
	operation->kind = kind;
	operation->status = OPERATION_PENDING;
	operation->amount = amount;
	operation->currency = pstrdup(currency);
	operation->idempotency_key = pstrdup(uuid_to_text(&operation->operation_id, id));
	operation->total_before = -1;
	operation->next_action_at = d->now;
	operation->created_at = d->now;
	operation->updated_at = d->now;
	operation->is_new = true;
	d->books->operations = lappend(d->books->operations, operation);
	touch_operation(d, operation);
	d->effects->visible = true;
	d->effects->changed = true;
	if (kind == OPERATION_REFUND)
	{
		d->effects->order_follows = true;
		operation->ask_due = d->terms != NULL && !d->terms->names_refunds;
	}
	return operation;
}

void
set_operation_alarm(Decision *d, OperationRow *operation, TimestampTz at)
{
	operation->next_action_at = at;
	touch_operation(d, operation);
}

void
settle_operation(Decision *d, OperationRow *operation, OperationStatus status, const char *failure_code)
{
	operation->status = status;
	operation->next_action_at = 0;
	operation->lease_until = 0;
	operation->lease_token = 0;
	operation->attempts = 0;
	operation->ask_due = false;
	operation->unresolved_since = 0;
	operation->failure_code = failure_code ? pstrdup(failure_code) : NULL;
	if (failure_code == NULL)
		operation->failure_message = NULL;
	operation->updated_at = d->now;
	touch_operation(d, operation);
	d->effects->visible = true;
	d->effects->changed = true;
	if (operation->kind == OPERATION_REFUND)
		d->effects->order_follows = true;
}

bool
operation_in_flight(const OperationRow *operation, TimestampTz now)
{
	return operation->status == OPERATION_SENT || operation->lease_until > now;
}

/* ---- the session ---- */

void
set_alarm(Decision *d, TimestampTz at)
{
	d->payment->next_action_at = at;
	d->effects->changed = true;
}

void
enter_status(Decision *d, SessionStatus status, SessionStage stage)
{
	PaymentRow *p = d->payment;

	if (p->status == status && p->stage == stage)
		return;
	p->status = status;
	p->stage = stage;
	d->effects->changed = true;
	d->effects->visible = true;
}

/*
 * What the session's end means for its open capture and reverse.  A reverse
 * that the provider may still be working on stays open: what it has done must
 * be known before anything is refunded.
 */
static void
settle_commands(Decision *d, SessionStatus status)
{
	OperationRow *capture = books_unsettled(d->books, OPERATION_CAPTURE);
	OperationRow *reverse = books_unsettled(d->books, OPERATION_REVERSE);

	if (capture != NULL)
	{
		if (status == STATUS_COMPLETED)
			settle_operation(d, capture, OPERATION_SUCCEEDED, NULL);
		else
			settle_operation(d, capture, OPERATION_FAILED, "not_needed");
	}
	if (reverse == NULL)
		return;
	if (d->outcome->kind == OUTCOME_CANCELED)
		settle_operation(d, reverse, OPERATION_SUCCEEDED, NULL);
	else if ((status == STATUS_COMPLETED || d->outcome->kind == OUTCOME_PAID) && reverse != d->operation &&
			 operation_in_flight(reverse, d->now))
	{
		reverse->ask_due = true;
		set_operation_alarm(d, reverse, Max(reverse->lease_until, d->now));
	}
	else
		settle_operation(d, reverse, OPERATION_FAILED, "not_needed");
}

void
end_session(Decision *d, SessionStatus status, const char *failure_code)
{
	PaymentRow *p = d->payment;

	enter_status(d, status, STAGE_NONE);
	p->next_action_at = 0;
	p->expires_at = 0;
	p->expiring = false;
	p->repeat_due = false;
	p->unresolved_since = 0;
	p->attempts = 0;
	if (status != STATUS_COMPLETED)
		p->authorized_amount = p->captured_amount;	/* nothing is held any more, or shall be */
	if (status == STATUS_COMPLETED)
	{
		p->failure_code = NULL;
		p->failure_message = NULL;
	}
	else if (failure_code != NULL)
	{
		p->failure_code = pstrdup(failure_code);
		if (d->outcome->failure_message != NULL)
			p->failure_message = pstrdup(d->outcome->failure_message);
	}
	settle_commands(d, status);
}

void
end_session_unproven(Decision *d, SessionStatus status, const char *failure_code)
{
	OperationRow *look;

	end_session(d, status, failure_code);
	look = add_operation(d, OPERATION_AFTER_LOOK, 0, d->payment->currency);
	look->next_action_at = d->terms != NULL ? time_plus(d->now, &d->terms->grace) : d->now;
}

void
enter_stage(Decision *d, SessionStage stage)
{
	PaymentRow *p = d->payment;
	bool		forward = p->status != STATUS_REGISTERED || stage > p->stage;

	if (!forward)
		return;
	enter_status(d, STATUS_REGISTERED, stage);
	p->attempts = 1;			/* the next pause is the first of the poll intervals */
	p->repeat_due = false;
	p->expires_at = stage_deadline(p, d->terms, d->now);
}
