/*-------------------------------------------------------------------------
 *
 * decide.c
 *	  What an outcome does to a payment: the outcome table, as a function of
 *	  the row, the order and the outcome.  Touches nothing outside them.
 *
 *	  Facts move a payment forward from whatever state, and are compared with
 *	  what is booked, so that they may come twice, late or out of order.
 *	  Absences count only with the row's lease.
 *
 * IDENTIFICATION
 *	  src/session/decide.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "lib/uuid.h"
#include "session/decision.h"
#include "session/session.h"

/*
 * An answer that was fetched after the session's time was over says that it
 * still waits: have the provider expire it, or end it where the provider's
 * own lifetime is over.  True when the session was dealt with.
 */
static bool
deadline_passed(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	TimestampTz lifetime_end = payment_lifetime_end(p, d->terms);

	if (p->stage == STAGE_BANK)
		return false;
	if (time_plus(lifetime_end, &d->terms->grace) <= o->sent_at)
	{
		end_session_unproven(d, STATUS_FAILED, "expired");
		return true;
	}
	if ((p->expires_at == 0 || p->expires_at > o->sent_at) && lifetime_end > o->sent_at)
		return false;
	if (!d->terms->can_expire || p->provider_payment_id == NULL || o->call == CALL_EXPIRE)
		return false;
	p->expiring = true;
	set_alarm(d, d->now);
	return true;
}

static void
decide_pending(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	TimestampTz next;

	if (status_is_final(p->status))
		return;
	if (p->status == STATUS_CANCELING)
	{
		decide_canceling(d);
		return;
	}
	if (o->kind == OUTCOME_ATTEMPT_DECLINED)
	{
		p->failure_code = pstrdup(o->failure_code ? o->failure_code : "declined");
		p->failure_message = o->failure_message ? pstrdup(o->failure_message) : NULL;
		d->effects->changed = true;
	}
	if (!o->unknown_word &&
		(p->status == STATUS_REGISTERING || p->status == STATUS_UNKNOWN || p->status == STATUS_REGISTERED))
		enter_stage(d, o->stage);
	if (p->status == STATUS_REGISTERED && p->stage == STAGE_FORM && p->redirect_url == NULL)
		alert_session(d, "warning", "no_payment_page", "the provider gave no usable address of the payment page");

	/* after a refused or unsuccessful expire the question comes first again */
	if (o->call == CALL_EXPIRE)
		p->expiring = false;
	if (p->status == STATUS_REGISTERED && o->sent_at != 0 && deadline_passed(d))
		return;
	next = poll_at(d->now, d->terms, p->attempts);
	/* its time may have run out since it was asked about */
	if (p->expires_at > (o->sent_at != 0 ? o->sent_at : d->now) && p->expires_at < next)
		next = Max(p->expires_at, d->now);
	set_alarm(d, next);
}

/*
 * The provider says that there is no such payment.
 */
static void
decide_not_found(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	TimestampTz asked_at = o->sent_at != 0 ? o->sent_at : d->now;
	bool		proven = d->terms->lookup == LOOKUP_EXACT || p->provider_payment_id != NULL;
	TimestampTz provable_until;

	if (status_is_final(p->status))
	{
		if (p->status == STATUS_COMPLETED)
			alert_session(d, "critical", "contradiction", "the provider does not know a payment that is completed");
		return;
	}
	set_alarm(d, backoff_until(d->now, p->attempts));
	if (p->status == STATUS_AUTHORIZED)
	{
		alert_session(d, "critical", "contradiction", "the provider does not know a payment that is authorized");
		return;
	}
	if (p->status == STATUS_REGISTERED)
	{
		TimestampTz deadline = p->expires_at != 0 ? p->expires_at : payment_lifetime_end(p, d->terms);

		if (deadline <= asked_at)
			end_session(d, STATUS_FAILED, "not_found");
		else if (deadline < p->next_action_at)
			set_alarm(d, Max(deadline, d->now));
		return;
	}

	/* registering, unknown, canceling: was Register lost on the way? */
	if (p->status != STATUS_CANCELING && register_key_is_valid(p, d->terms, d->now))
	{
		if (proven && p->status == STATUS_UNKNOWN)
			enter_status(d, STATUS_REGISTERING, STAGE_REGISTER);
		else
			p->repeat_due = true;
		return;
	}
	provable_until = time_plus(time_plus(time_plus(p->first_sent_at != 0 ? p->first_sent_at : p->created_at,
												   &d->terms->key_validity),
										 &d->terms->session_ttl),
							   &d->terms->grace);
	if (p->status == STATUS_CANCELING)
	{
		if (provable_until <= asked_at)
			end_session_unproven(d, STATUS_CANCELED, NULL);
	}
	else if (proven && o->call != CALL_NONE)
		end_session(d, STATUS_FAILED, "not_found");
	else if (provable_until <= asked_at)
		end_session_unproven(d, STATUS_FAILED, "not_found");
}

/*
 * The provider will not do what was asked.
 */
static void
decide_refused(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (status_is_final(p->status))
		return;
	set_alarm(d, backoff_until(d->now, p->attempts));
	p->expiring = false;
	if (o->call == CALL_REGISTER)
	{
		/* an earlier attempt may have arrived: then the refusal proves nothing */
		if (o->mark_set && p->status == STATUS_REGISTERING)
		{
			end_session(d, STATUS_FAILED, "rejected");
			return;
		}
		if (o->mark_set && p->status == STATUS_CANCELING && p->stage == STAGE_REGISTER)
		{
			end_session(d, STATUS_CANCELED, NULL);
			return;
		}
		p->repeat_due = false;
		if (p->status == STATUS_REGISTERING)
			enter_status(d, STATUS_UNKNOWN, STAGE_REGISTER);
	}
	else if (o->call != CALL_EXPIRE)
		alert_provider(d, "warning", "question_refused", "it refuses to answer questions about payments");
}

/*
 * No usable answer.
 */
static void
decide_unanswered(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (status_is_final(p->status))
		return;
	/* the pauses grow by failures in a row, not by questions that were answered */
	if (p->unresolved_since == 0)
		p->attempts = Min(p->attempts, 1);
	set_alarm(d, o->retry_after >= 0 ? Max(d->now + o->retry_after, backoff_until(d->now, p->attempts)) :
			  backoff_until(d->now, p->attempts));
	p->expiring = false;

	if ((o->kind == OUTCOME_UNSENT || o->kind == OUTCOME_UNREACHABLE_SETTING) && o->mark_set)
	{
		/* nothing left this machine: nothing is fixed, and what is to be canceled never began */
		if (p->status == STATUS_CANCELING && p->stage == STAGE_REGISTER)
		{
			end_session(d, STATUS_CANCELED, NULL);
			return;
		}
		if (p->status == STATUS_REGISTERING)
		{
			p->first_sent_at = 0;
			p->endpoint = NULL;
			p->account = NULL;
		}
	}
	if (o->kind == OUTCOME_LOST && o->call == CALL_REGISTER)
	{
		p->repeat_due = false;
		if (p->status == STATUS_REGISTERING)
			enter_status(d, STATUS_UNKNOWN, STAGE_REGISTER);
	}
	if (o->kind == OUTCOME_UNAUTHORIZED)
		alert_provider(d, "critical", "unauthorized", "it does not accept the credentials");
	if (o->kind == OUTCOME_UNREACHABLE_SETTING)
		alert_provider(d, "critical", "setting", o->error ? o->error : "it cannot be called as it is set up");
}

/*
 * The answer is about another payment than was asked for: none at all.
 */
static void
decide_foreign(Decision *d)
{
	PaymentRow *p = d->payment;

	alert_provider(d, "critical", "foreign_reference", "it answered about another payment than it was asked for");
	if (status_is_final(p->status) || !d->has_lease)
		return;
	if (p->status == STATUS_REGISTERING && d->outcome->call == CALL_REGISTER)
		enter_status(d, STATUS_UNKNOWN, STAGE_REGISTER);
	p->repeat_due = false;
	p->expiring = false;
	if (p->unresolved_since == 0)
		p->unresolved_since = d->now;
	set_alarm(d, backoff_until(d->now, p->attempts));
}

/* ---- what every outcome brings ---- */

static bool
is_answer(const Outcome *o)
{
	return outcome_is_fact(o->kind) || o->kind == OUTCOME_PENDING || o->kind == OUTCOME_NOT_FOUND;
}

/*
 * Whether the provider's state of the payment could be learned: it counts from
 * the first failure on, and calls a person when it lasts.
 */
static void
note_resolution(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	bool		resolved = is_answer(o) && !(o->kind == OUTCOME_NOT_FOUND && p->status != STATUS_REGISTERED);

	if (status_is_final(p->status))
		return;
	if (resolved)
	{
		p->unresolved_since = 0;
		return;
	}
	if (p->unresolved_since == 0)
		p->unresolved_since = d->now;
	d->effects->changed = true;
	if (d->now - p->unresolved_since >= (int64) setting_unresolved_alert_after * USECS_PER_SEC)
		alert_session(d, "warning", "unresolved", "its state at the provider cannot be learned");
}

/*
 * How things stood last: an answer to an older question than the newest that
 * was answered has nothing to say of that.
 */
static void
note_last_seen(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (o->sent_at != 0 && o->sent_at < p->answered_at)
		return;
	if (o->provider_status != NULL && (p->provider_status == NULL || strcmp(p->provider_status, o->provider_status) != 0))
	{
		p->provider_status = pstrdup(o->provider_status);
		d->effects->changed = true;
	}
	if (o->provider_expires_at != 0 && p->provider_expires_at != o->provider_expires_at)
	{
		p->provider_expires_at = o->provider_expires_at;
		d->effects->changed = true;
	}
	/* a refund's answer says nothing of how the payment stands */
	if (is_answer(o) && o->kind != OUTCOME_TOLD && o->sent_at > p->answered_at)
	{
		p->answered_at = o->sent_at;
		d->effects->changed = true;
	}
}

static void
note_details(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;

	if (p->provider_payment_id == NULL && o->provider_payment_id != NULL)
	{
		p->provider_payment_id = pstrdup(o->provider_payment_id);
		d->effects->changed = d->effects->visible = true;
	}
	else if (o->provider_payment_id != NULL && strcmp(p->provider_payment_id, o->provider_payment_id) != 0)
		alert_session(d, "critical", "second_payment_id", "the provider has a second payment for it");
	if (o->redirect_url != NULL && (p->redirect_url == NULL || strcmp(p->redirect_url, o->redirect_url) != 0))
	{
		p->redirect_url = pstrdup(o->redirect_url);
		d->effects->changed = d->effects->visible = true;
	}
	note_last_seen(d);
}

/*
 * The payer has come back: his return timer has done its work.
 */
static void
note_return(Decision *d)
{
	PaymentRow *p = d->payment;

	if (!d->outcome->payer_returned)
		return;
	p->returned_at = d->now;
	if (d->outcome->return_params != NULL)
		p->return_params = pstrdup(d->outcome->return_params);
	if (p->status == STATUS_REGISTERED && (p->stage == STAGE_FORM || p->stage == STAGE_RETURN))
	{
		p->expires_at = 0;
		p->attempts = 1;		/* the answer is near: ask in short intervals again */
	}
	d->effects->changed = d->effects->visible = true;
}

/*
 * The provider gave this session the id of another one's payment: there is no
 * payment of its own, and nothing that it says is about this one.
 */
static void
refuse_taken_id(Decision *d, const pg_uuid_t *owner)
{
	char		id[UUID_TEXT_SIZE];

	uuid_to_text(owner, id);
	alert_session(d, "critical", "duplicate_payment_id",
				  psprintf("the provider gave it the payment of session %s", id));
	if (!status_is_final(d->payment->status))
		end_session(d, d->payment->status == STATUS_CANCELING ? STATUS_CANCELED : STATUS_FAILED, "provider_error");
}

static void
release_lease(Decision *d)
{
	if (!d->has_lease)
		return;
	if (d->operation != NULL)
	{
		d->operation->lease_until = 0;
		d->operation->lease_token = 0;
		touch_operation(d, d->operation);
		return;
	}
	d->payment->lease_until = 0;
	d->payment->lease_token = 0;
	d->effects->changed = true;
}

static void
decide_by_kind(Decision *d)
{
	switch (d->outcome->kind)
	{
		case OUTCOME_PAID:
			decide_paid(d);
			break;
		case OUTCOME_AUTHORIZED:
			decide_authorized(d);
			break;
		case OUTCOME_DECLINED:
		case OUTCOME_EXPIRED:
		case OUTCOME_CANCELED:
			decide_ended(d);
			break;
		case OUTCOME_PENDING:
		case OUTCOME_ATTEMPT_DECLINED:
			decide_pending(d);
			break;
		case OUTCOME_NOT_FOUND:
			decide_not_found(d);
			break;
		case OUTCOME_REFUSED:
			decide_refused(d);
			break;
		case OUTCOME_UNSENT:
		case OUTCOME_LOST:
		case OUTCOME_THROTTLED:
		case OUTCOME_UNAUTHORIZED:
		case OUTCOME_UNREACHABLE_SETTING:
			decide_unanswered(d);
			break;
		case OUTCOME_NEVER_SENT_LAPSED:
			if (d->payment->status == STATUS_REGISTERING)
				end_session(d, STATUS_FAILED, "expired");
			break;
		case OUTCOME_CAPTURE_FAILED:
			decide_capture_failed(d);
			break;
		default:
			break;				/* tells of refunds and disputes only, or of an operation */
	}
}

static void
decide_by_answer(Decision *d)
{
	if (d->outcome->unknown_word)
		alert_provider(d, "warning", "unknown_status", "it reports a status that the driver does not know");
	note_details(d);
	if (!outcome_is_about_operation_only(d))
		decide_by_kind(d);
	compare_with_books(d);
	refund_lost_cancel(d);
	decide_operation(d);
	if (!d->outcome->has_operation)
		note_resolution(d);
}

static void
decide(Decision *d, const pg_uuid_t *id_taken_by)
{
	if (outcome_is_wish(d->outcome->kind))
	{
		decide_wish(d);
		return;
	}
	release_lease(d);
	if (id_taken_by == NULL && !d->outcome->foreign_reference)
	{
		decide_by_answer(d);
		decide_policies(d);
	}
	else if (d->outcome->has_operation)
		decide_foreign_answer(d);
	else if (id_taken_by != NULL && d->payment->provider_payment_id == NULL)
		refuse_taken_id(d, id_taken_by);
	else
		decide_foreign(d);
}

static bool
has_lease(const PaymentRow *payment, const Books *books, const Outcome *outcome)
{
	const OperationRow *operation;

	if (outcome->lease_token == 0)
		return false;
	if (!outcome->has_operation)
		return outcome->lease_token == payment->lease_token;
	operation = books_operation(books, &outcome->operation_id);
	return operation != NULL && operation->lease_token == outcome->lease_token;
}

bool
outcome_counts(const PaymentRow *payment, const Books *books, const Outcome *outcome)
{
	return outcome_is_fact(outcome->kind) || outcome_is_wish(outcome->kind) ||
		has_lease(payment, books, outcome);
}

void
session_decide(PaymentRow *payment, LockedOrder *order, Books *books, const Outcome *outcome,
			   const pg_uuid_t *id_taken_by, TimestampTz now, Effects *effects)
{
	Decision	d = {
		.payment = payment,
		.order = order,
		.books = books,
		.outcome = outcome,
		.terms = outcome->terms,
		.now = now,
		.operation = outcome->has_operation ? books_operation(books, &outcome->operation_id) : NULL,
		.has_lease = has_lease(payment, books, outcome),
		.effects = effects,
	};

	memset(effects, 0, sizeof(*effects));
	effects->from = payment->status;
	effects->stale = !outcome_counts(payment, books, outcome);
	note_return(&d);			/* a fact of its own, whatever the answer is worth */
	if (!effects->stale)
		decide(&d, id_taken_by);
	if (payment->status != effects->from)
		effects->visible = true;
	if (effects->visible)
	{
		payment->updated_at = now;
		effects->changed = true;
	}
}
