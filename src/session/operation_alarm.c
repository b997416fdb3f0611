/*-------------------------------------------------------------------------
 *
 * operation_alarm.c
 *	  When an operation may be sent, and which call is due for it.
 *
 * IDENTIFICATION
 *	  src/session/operation_alarm.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "lib/compat.h"
#include "session/session.h"

bool
operation_key_is_valid(const OperationRow *operation, const ProviderTerms *terms, TimestampTz now)
{
	if (operation->first_sent_at == 0)
		return true;
	return key_is_remembered(operation->first_sent_at, terms, now);
}

/* How the provider is asked about the payment. */
static CallKind
question(const PaymentRow *payment, const ProviderTerms *terms, OutcomeKind *local)
{
	if (payment->provider_payment_id != NULL)
		return CALL_GET;
	if (terms->lookup != LOOKUP_NONE)
		return CALL_FIND;
	*local = OUTCOME_DUE;		/* nothing to ask with: only time ends it */
	return CALL_NONE;
}

/*
 * Once the session has got where the command wanted it, or where it cannot
 * lead any more, it is only asked about.
 */
static bool
is_still_wanted(const PaymentRow *payment)
{
	switch (payment->operation->kind)
	{
		case OPERATION_CAPTURE:
			return payment->status == STATUS_AUTHORIZED;
		case OPERATION_REVERSE:
			return payment->status == STATUS_CANCELING;
		case OPERATION_VOID:
			return status_is_final(payment->status);
		case OPERATION_REFUND:
			/* one that the provider has accepted is waited for */
			return payment->operation->provider_ref == NULL;
		default:
			return false;
	}
}

CallKind
operation_next_call(const PaymentRow *payment, const ProviderTerms *terms, TimestampTz now, OutcomeKind *local)
{
	const OperationRow *operation = payment->operation;

	*local = OUTCOME_DUE;
	if (operation->kind == OPERATION_ACCEPT)
		return CALL_NONE;
	if (operation->ask_due || operation->status == OPERATION_UNKNOWN || payment->provider_payment_id == NULL ||
		!is_still_wanted(payment) || !operation_key_is_valid(operation, terms, now))
		return question(payment, terms, local);
	switch (operation->kind)
	{
		case OPERATION_CAPTURE:
			return CALL_CAPTURE;
		case OPERATION_REFUND:
			return CALL_REFUND;
		default:
			return CALL_CANCEL;
	}
}
