/*-------------------------------------------------------------------------
 *
 * payer.c
 *	  The payer's way: sent away by the application.
 *
 * IDENTIFICATION
 *	  src/session/payer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/spi.h"
#include "session/decide.h"
#include "session/session.h"

static Statement mark_redirected = {
	.sql = "UPDATE payflow.payment_sessions SET stage = 'return', redirected_at = $2, expires_at = $3, "
	"next_action_at = CASE WHEN $3 OPERATOR(pg_catalog.<) next_action_at THEN $3 ELSE next_action_at END, "
	"updated_at = $2 WHERE session_id OPERATOR(pg_catalog.=) $1",
	.nargs = 3,
	.argtypes = {UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID},
};

bool
session_payer_redirected(const pg_uuid_t *session_id, const ProviderTerms *terms)
{
	Datum		values[3];
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz deadline;
	PaymentRow *payment;

	payment = session_lock(session_id);
	if (payment == NULL)
		return false;
	if (payment->status != STATUS_REGISTERED || payment->stage != STAGE_FORM || payment->returned_at != 0)
		return true;

	payment->stage = STAGE_RETURN;
	deadline = terms != NULL || payment->return_timeout != NULL ? stage_deadline(payment, terms, now) : 0;
	values[0] = UUIDPGetDatum(session_id);
	values[1] = TimestampTzGetDatum(now);
	values[2] = TimestampTzGetDatum(deadline != 0 ? deadline : payment->expires_at);
	(void) run(&mark_redirected, values, payment->expires_at == 0 && deadline == 0 ? "  n" : NULL);
	journal_event(session_id, "api", "payer_redirected", STATUS_REGISTERED, STATUS_REGISTERED, NULL);
	return true;
}
