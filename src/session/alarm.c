/*-------------------------------------------------------------------------
 *
 * alarm.c
 *	  When the next step of a payment is due, and which one it is.
 *
 *	  A live session has one alarm.  When it rings, (status, stage, deadlines)
 *	  say what to do; there is no other record of work that could get lost.
 *
 * IDENTIFICATION
 *	  src/session/alarm.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "session/decide.h"
#include "session/session.h"

/* pauses after failures: doubled from the first to the last, which repeats */
#define BACKOFF_FIRST	((double) 500000)	/* microseconds */
#define BACKOFF_LAST	((double) INT64CONST(300000000))
#define BACKOFF_JITTER	0.2
#define POLL_JITTER		0.1

TimestampTz
time_plus(TimestampTz t, const Interval *interval)
{
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(t),
												   IntervalPGetDatum(interval)));
}

/*
 * A number between 1 - spread and 1 + spread: thousands of sessions that failed
 * together must not come back together.
 */
static double
jitter(double spread)
{
	uint32		random;

	if (!pg_strong_random(&random, sizeof(random)))
		return 1.0;
	return 1.0 + spread * (2.0 * random / PG_UINT32_MAX - 1.0);
}

/*
 * The end of the pause after the attempt-th attempt (from 1) has failed.
 */
TimestampTz
backoff_until(TimestampTz now, int attempt)
{
	double		pause = BACKOFF_FIRST * pow(2.0, Min(Max(attempt, 1) - 1, 30));

	return now + (int64) (Min(pause, BACKOFF_LAST) * jitter(BACKOFF_JITTER));
}

/*
 * The time of the poll that follows the attempt-th one (from 1).
 */
TimestampTz
poll_at(TimestampTz now, const ProviderTerms *terms, int attempt)
{
	int			index = Min(Max(attempt, 1), terms->n_poll_intervals) - 1;
	TimestampTz at = time_plus(now, &terms->poll_intervals[index]);

	return now + (int64) ((at - now) * jitter(POLL_JITTER));
}

bool
key_is_remembered(TimestampTz first_sent_at, const ProviderTerms *terms, TimestampTz now)
{
	TimestampTz end;

	if (!terms->has_keys)
		return false;
	/* the repeat itself may take its whole time before the provider looks at the key */
	end = time_plus(time_plus(now, &terms->connect_timeout), &terms->timeout);
	return end < time_plus(first_sent_at, &terms->key_validity);
}

bool
register_key_is_valid(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now)
{
	if (payment->first_sent_at == 0)
		return true;
	return key_is_remembered(payment->first_sent_at, terms, now);
}

TimestampTz
payment_lifetime_end(const PaymentRow *payment, const ProviderTerms *terms)
{
	if (payment->provider_expires_at != 0)
		return payment->provider_expires_at;
	return time_plus(payment->first_sent_at != 0 ? payment->first_sent_at : payment->created_at,
					 &terms->session_ttl);
}

TimestampTz
stage_deadline(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now)
{
	const Interval *timeout;

	switch (payment->stage)
	{
		case STAGE_FORM:
			timeout = payment->form_timeout ? payment->form_timeout : &terms->form_timeout;
			break;
		case STAGE_RETURN:
			timeout = payment->return_timeout ? payment->return_timeout : &terms->return_timeout;
			break;
		case STAGE_AUTHENTICATION:
			timeout = payment->authentication_timeout ?
				payment->authentication_timeout : &terms->authentication_timeout;
			break;
		default:
			return 0;
	}
	return time_plus(now, timeout);
}

/*
 * How to learn of a payment whose Register may or may not have arrived.
 */
static CallKind
unknown_call(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now, OutcomeKind *local)
{
	bool		may_repeat = register_key_is_valid(payment, terms, now);

	if (payment->provider_payment_id != NULL)
		return CALL_GET;
	if (may_repeat && (payment->repeat_due || terms->after_lost == LOST_REPEAT))
		return CALL_REGISTER;
	if (terms->lookup != LOOKUP_NONE)
		return CALL_FIND;
	if (may_repeat && terms->after_lost != LOST_AWAIT)
		return CALL_REGISTER;
	*local = OUTCOME_NOT_FOUND; /* nothing to ask with: only time ends it */
	return CALL_NONE;
}

static CallKind
registering_call(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now,
				 bool never_sent_is_believed, OutcomeKind *local)
{
	if (payment->first_sent_at == 0 && never_sent_is_believed)
	{
		if (time_plus(payment->created_at, &terms->session_ttl) > now)
			return CALL_REGISTER;
		*local = OUTCOME_NEVER_SENT_LAPSED;
		return CALL_NONE;
	}
	if (payment->provider_payment_id != NULL)
		return CALL_GET;
	if (payment->first_sent_at != 0 && register_key_is_valid(payment, terms, now))
		return CALL_REGISTER;
	return unknown_call(payment, terms, now, local);
}

CallKind
session_next_call(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now,
				  bool never_sent_is_believed, bool asked, OutcomeKind *local)
{
	*local = OUTCOME_PENDING;
	switch (payment->status)
	{
		case STATUS_REGISTERING:
			return registering_call(payment, terms, now, never_sent_is_believed, local);
		case STATUS_UNKNOWN:
			return unknown_call(payment, terms, now, local);
		case STATUS_REGISTERED:
			if (payment->expiring && !asked && terms->can_expire && payment->provider_payment_id != NULL)
				return CALL_EXPIRE;
			break;
		case STATUS_CANCELING:
			if (payment->stage == STAGE_REGISTER)
				return unknown_call(payment, terms, now, local);
			break;
		default:
			break;
	}
	if (payment->provider_payment_id != NULL)
		return CALL_GET;
	if (payment->first_sent_at != 0 && terms->lookup != LOOKUP_NONE)
		return CALL_FIND;
	return CALL_NONE;
}
