/*-------------------------------------------------------------------------
 *
 * moves.c
 *	  What a decision may do to a payment's row: status, stage, alarm, alerts.
 *
 * IDENTIFICATION
 *	  src/session/moves.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/uuid.h"
#include "session/decision.h"
#include "session/session.h"

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
