/*-------------------------------------------------------------------------
 *
 * operate.c
 *	  What an answer means for the operation whose call it was: capture,
 *	  reverse, void, refund, accept, after_look.
 *
 *	  A call whose answer was lost is asked about before it is sent again, with
 *	  the same key; past the key's validity it is only asked about.
 *
 * IDENTIFICATION
 *	  src/session/operate.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "session/decision.h"
#include "session/session.h"

/*
 * Absences with an operation's lease say nothing of the session: its own alarm
 * goes on as it is.
 */
bool
outcome_is_about_operation_only(const Decision *d)
{
	return d->outcome->has_operation && !outcome_is_fact(d->outcome->kind);
}

/* ---- alarms ---- */

static void
try_later(Decision *d, OperationRow *operation)
{
	const Outcome *o = d->outcome;
	TimestampTz at = backoff_until(d->now, operation->attempts);

	set_operation_alarm(d, operation, o->retry_after >= 0 ? Max(d->now + o->retry_after, at) : at);
}

/*
 * Its result could not be learned: calls a person when that lasts.  What may
 * never be sent again becomes unknown, and goes on being asked about.
 */
static void
note_unresolved(Decision *d, OperationRow *operation)
{
	if (operation->unresolved_since == 0)
		operation->unresolved_since = d->now;
	touch_operation(d, operation);
	if (d->now - operation->unresolved_since < (int64) setting_unresolved_alert_after * USECS_PER_SEC)
		return;
	alert_operation(d, operation, "critical", "operation_unresolved", "its result cannot be learned");
	if (operation->status == OPERATION_SENT && !operation_key_is_valid(operation, d->terms, d->now))
	{
		operation->status = OPERATION_UNKNOWN;
		operation->updated_at = d->now;
		d->effects->visible = d->effects->changed = true;
	}
}

/*
 * The answer proves that the provider has not done it: it is sent (again), as
 * long as its key is surely valid.
 */
static void
send_again(Decision *d, OperationRow *operation)
{
	operation->ask_due = false;
	if (operation_key_is_valid(operation, d->terms, d->now))
	{
		operation->unresolved_since = 0;
		set_operation_alarm(d, operation, d->now);
		return;
	}
	try_later(d, operation);
	note_unresolved(d, operation);
}

/* The answer proves nothing yet: ask again. */
static void
ask_again(Decision *d, OperationRow *operation)
{
	operation->ask_due = true;
	set_operation_alarm(d, operation, poll_at(d->now, d->terms, operation->attempts));
}

/* An answer to a question, not to the command itself. */
static bool
was_asked(const Decision *d)
{
	return d->outcome->call == CALL_GET || d->outcome->call == CALL_FIND;
}

/* ---- by kind of operation ---- */

/* While another capture may follow, the row says why the newest one was none. */
void
note_failed_capture(Decision *d, OperationRow *capture, const char *code, const char *message)
{
	PaymentRow *p = d->payment;

	settle_operation(d, capture, OPERATION_FAILED, code);
	capture->failure_message = message ? pstrdup(message) : NULL;
	if (p->status != STATUS_AUTHORIZED)
		return;
	p->failure_code = pstrdup("declined");
	p->failure_message = capture->failure_message;
}

static void
after_capture(Decision *d, OperationRow *capture)
{
	if (d->outcome->kind == OUTCOME_CAPTURE_FAILED)
	{
		note_failed_capture(d, capture, "failed_at_provider", d->outcome->failure_message);
		alert_operation(d, capture, "critical", "capture_failed", "the bank did not carry it out");
	}
	else if (!was_asked(d))
		ask_again(d, capture);
	else if (d->payment->status == STATUS_CANCELING)
		settle_operation(d, capture, OPERATION_FAILED, "not_needed");
	else if (d->outcome->kind == OUTCOME_AUTHORIZED)
		send_again(d, capture);
	else
		ask_again(d, capture);
}

/*
 * The payment was faster than the reverse, which has given the money back all
 * the same: that was the refund that waited for it.  Where the provider gives
 * it a name, the refund bears it from now on.
 */
static void
reverse_gave_back(Decision *d)
{
	const Outcome *o = d->outcome;
	OperationRow *refund = books_unsettled(d->books, OPERATION_REFUND);

	if (refund == NULL || refund->first_sent_at != 0 || strcmp(told_currency(d), refund->currency) != 0 ||
		o->refunded < (refund->from_suspense ? refund->amount : d->payment->captured_amount))
		return;
	for (int i = 0; i < o->n_refunds && refund->provider_ref == NULL; i++)
	{
		const ProviderRefund *told = &o->refunds[i];

		if (told->status == MOVEMENT_SUCCEEDED && told->amount == refund->amount && our_refund(d, told) == NULL &&
			!has_fact(d, "refund", told->id, "succeeded"))
			refund->provider_ref = pstrdup(told->id);
	}
	if (o->n_refunds > 0 ? refund->provider_ref != NULL :
		o->refunded - booked_refunded(d->books, refund->currency) >= refund->amount)
		refund_succeeded(d, refund, refund->amount);
	else
		settle_operation(d, refund, OPERATION_FAILED, "not_needed");
}

static void
after_reverse(Decision *d, OperationRow *reverse)
{
	if (d->payment->status != STATUS_CANCELING)
	{
		if (d->payment->cancel_lost || d->payment->status == STATUS_CANCELED)
			reverse_gave_back(d);
		settle_operation(d, reverse, OPERATION_FAILED, "not_needed");
	}
	else if (was_asked(d))
		send_again(d, reverse);
	else
		ask_again(d, reverse);
}

/*
 * Nobody wants the authorization: it is voided only after a fresh answer has
 * said that it is still there.
 */
static void
after_void(Decision *d, OperationRow *voiding)
{
	switch (d->outcome->kind)
	{
		case OUTCOME_AUTHORIZED:
		case OUTCOME_CAPTURE_FAILED:
			if (was_asked(d))
				send_again(d, voiding);
			else
				ask_again(d, voiding);
			break;
		case OUTCOME_CANCELED:
		case OUTCOME_EXPIRED:
		case OUTCOME_DECLINED:
			settle_operation(d, voiding, OPERATION_SUCCEEDED, NULL);
			break;
		case OUTCOME_PAID:
			settle_operation(d, voiding, OPERATION_FAILED, "not_needed");
			break;
		default:
			ask_again(d, voiding);
			break;
	}
}

/* Named in the answer: returns.c has dealt with it. */
static bool
is_listed(const Decision *d, const OperationRow *refund)
{
	for (int i = 0; i < d->outcome->n_refunds; i++)
	{
		if (our_refund(d, &d->outcome->refunds[i]) == refund)
			return true;
	}
	return false;
}

static void
after_refund(Decision *d, OperationRow *refund)
{
	const Outcome *o = d->outcome;
	bool		same_currency = strcmp(told_currency(d), refund->currency) == 0;
	int64		more;

	if (!was_asked(d) || is_outdated(d) || is_listed(d, refund))
		return;
	/* where only the total can prove it, it is noted before */
	if (refund->first_sent_at == 0 && o->refunded >= 0 && same_currency)
		refund->total_before = o->refunded;
	more = o->refunded - Max(refund->total_before, booked_refunded(d->books, refund->currency));
	if (o->refunded >= 0 && !o->refunds_complete && refund->first_sent_at != 0 && more >= refund->amount && same_currency)
		refund_succeeded(d, refund, refund->amount);
	else if (refund->provider_ref != NULL)
	{
		/* accepted there, and now not listed: it may come back */
		ask_again(d, refund);
		note_unresolved(d, refund);
	}
	else if (o->refunds_complete)
		send_again(d, refund);
	else if (o->refunded < 0)
		ask_again(d, refund);
	else
		send_again(d, refund);
}

/* It goes on until lifetime and grace are over twice. */
static bool
look_is_over(const Decision *d, const OperationRow *look)
{
	TimestampTz end = look->created_at;

	for (int i = 0; i < 2; i++)
		end = time_plus(time_plus(end, &d->terms->session_ttl), &d->terms->grace);
	return end <= d->now;
}

static void
after_look(Decision *d, OperationRow *look)
{
	OutcomeKind kind = d->outcome->kind;

	if (outcome_is_fact(kind) && kind != OUTCOME_ATTEMPT_DECLINED && kind != OUTCOME_AUTHORIZED)
	{
		settle_operation(d, look, OPERATION_SUCCEEDED, NULL);
		return;
	}
	if (look_is_over(d, look))
		settle_operation(d, look, OPERATION_SUCCEEDED, NULL);
	else
		try_later(d, look);
}

static void
after_answer(Decision *d, OperationRow *operation)
{
	switch (operation->kind)
	{
		case OPERATION_CAPTURE:
			after_capture(d, operation);
			break;
		case OPERATION_REVERSE:
			after_reverse(d, operation);
			break;
		case OPERATION_VOID:
			after_void(d, operation);
			break;
		case OPERATION_REFUND:
			after_refund(d, operation);
			break;
		case OPERATION_ACCEPT:
			decide_accept(d, operation);
			break;
		case OPERATION_AFTER_LOOK:
			after_look(d, operation);
			break;
		case OPERATION_KIND_COUNT:
			break;
	}
}

/* ---- no answer, or a refusal ---- */

static void
refused(Decision *d, OperationRow *operation)
{
	const char *message = d->outcome->failure_message;

	/* what was sent before may have been done, and this be only its echo: ask, where nobody has */
	if (!d->outcome->mark_set && d->terms->after_lost == LOST_REPEAT && operation->failure_code == NULL)
	{
		operation->failure_code = pstrdup("refused");
		ask_again(d, operation);
		return;
	}
	if (operation->kind == OPERATION_REFUND)
	{
		refund_failed(d, operation, "refused", message);
		return;
	}
	if (operation->kind == OPERATION_CAPTURE)
		note_failed_capture(d, operation, "refused", message);
	else
	{
		settle_operation(d, operation, OPERATION_FAILED, "refused");
		operation->failure_message = message ? pstrdup(message) : NULL;
	}
	alert_operation(d, operation, operation->kind == OPERATION_REVERSE ? "warning" : "critical", "operation_refused",
					"the provider refuses it");
	/* why, its status tells */
	if (!status_is_final(d->payment->status))
		set_alarm(d, d->now);
}

static void
unanswered(Decision *d, OperationRow *operation)
{
	const Outcome *o = d->outcome;
	bool		is_command = !was_asked(d) && o->call != CALL_NONE;

	switch (o->kind)
	{
		case OUTCOME_UNSENT:
		case OUTCOME_UNREACHABLE_SETTING:
			/* nothing left this machine */
			if (o->mark_set && operation->status == OPERATION_SENT)
			{
				operation->status = OPERATION_PENDING;
				operation->first_sent_at = 0;
			}
			if (o->kind == OUTCOME_UNREACHABLE_SETTING)
				alert_provider(d, "critical", "setting", o->error ? o->error : "it cannot be called as it is set up");
			break;
		case OUTCOME_UNAUTHORIZED:
			alert_provider(d, "critical", "unauthorized", "it does not accept the credentials");
			break;
		case OUTCOME_NOT_FOUND:
			alert_session(d, "critical", "contradiction", "the provider does not know the payment that an operation is about");
			operation->ask_due = operation->ask_due || is_command;
			break;
		case OUTCOME_LOST:
			if (is_command)
				operation->ask_due = d->terms->after_lost != LOST_REPEAT;
			break;
		default:
			break;
	}
	if (operation->kind == OPERATION_AFTER_LOOK && look_is_over(d, operation))
	{
		settle_operation(d, operation, OPERATION_SUCCEEDED, NULL);
		return;
	}
	try_later(d, operation);
	note_unresolved(d, operation);
}

void
decide_foreign_answer(Decision *d)
{
	OperationRow *operation = d->operation;

	alert_provider(d, "critical", "foreign_reference", "it answered about another payment than it was asked for");
	if (operation == NULL || operation_is_settled(operation->status) || !d->has_lease)
		return;
	operation->ask_due = operation->ask_due || !was_asked(d);
	try_later(d, operation);
	note_unresolved(d, operation);
}

void
decide_operation(Decision *d)
{
	OperationRow *operation = d->operation;

	/* what facts say of it has been booked; how it goes on is for who has taken it over */
	if (operation == NULL || operation_is_settled(operation->status) || !d->has_lease)
		return;
	switch (d->outcome->kind)
	{
		case OUTCOME_REFUSED:
			if (was_asked(d))
				unanswered(d, operation);
			else
				refused(d, operation);
			break;
		case OUTCOME_NOT_FOUND:
			if (operation->kind == OPERATION_AFTER_LOOK)
				after_look(d, operation);
			else
				unanswered(d, operation);
			break;
		case OUTCOME_UNSENT:
		case OUTCOME_LOST:
		case OUTCOME_THROTTLED:
		case OUTCOME_UNAUTHORIZED:
		case OUTCOME_UNREACHABLE_SETTING:
			unanswered(d, operation);
			break;
		case OUTCOME_DUE:
			if (operation->kind == OPERATION_ACCEPT || operation->kind == OPERATION_AFTER_LOOK)
				after_answer(d, operation);
			else
				unanswered(d, operation);
			break;
		default:
			after_answer(d, operation);
			break;
	}
}
