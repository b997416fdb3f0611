/*-------------------------------------------------------------------------
 *
 * journal.c
 *	  The journal, alerts and discrepancies: what people read afterwards.
 *
 *	  Never a secret, never a full body: an outcome's own few words only.
 *
 * IDENTIFICATION
 *	  src/session/journal.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/json.h"
#include "lib/rowset.h"
#include "lib/settings.h"
#include "lib/spi.h"
#include "session/decide.h"
#include "session/session.h"

static Statement add_attempts = {
	.sql = "INSERT INTO payflow.journal (at, session_id, source, event, from_status, to_status, attempt, "
	"http_status, duration, outcome, actor, detail) "
	"SELECT $11, j.session_id, j.source, j.event, j.from_status, j.to_status, j.attempt, "
	"NULLIF(j.http_status, 0), "
	"CASE WHEN j.duration OPERATOR(pg_catalog.>=) 0 "
	"THEN pg_catalog.make_interval(secs => j.duration OPERATOR(pg_catalog./) 1000000.0) END, "
	"j.outcome, CURRENT_USER, j.detail::pg_catalog.jsonb "
	"FROM ROWS FROM (" UNNEST_10 ") "
	"AS j(session_id, source, event, from_status, to_status, attempt, http_status, duration, outcome, detail)",
	.nargs = 11,
	.argtypes = {UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, INT4ARRAYOID,
	INT8ARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID},
};

static Statement add_event = {
	.sql = "INSERT INTO payflow.journal (session_id, source, event, from_status, to_status, actor, detail) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb)",
	.nargs = 7,
	.argtypes = {UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID},
};

static Statement count_alert = {
	.sql = "INSERT INTO payflow.alerts (key, severity, message) VALUES ($1, $2, $3) "
	"ON CONFLICT (key) WHERE closed_at IS NULL DO UPDATE SET "
	"count = alerts.count OPERATOR(pg_catalog.+) 1, last_raised_at = pg_catalog.now(), message = EXCLUDED.message, "
	"severity = CASE WHEN EXCLUDED.severity OPERATOR(pg_catalog.=) 'critical' "
	"OR alerts.severity OPERATOR(pg_catalog.=) 'info' THEN EXCLUDED.severity ELSE alerts.severity END",
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID},
};

static Statement add_discrepancy = {
	.sql = "INSERT INTO payflow.discrepancies (kind, session_id, provider, expected, actual) "
	"SELECT $1, $2, $3, $4::pg_catalog.jsonb, $5::pg_catalog.jsonb "
	"WHERE NOT EXISTS (SELECT FROM payflow.discrepancies d WHERE d.kind OPERATOR(pg_catalog.=) $1 "
	"AND d.session_id OPERATOR(pg_catalog.=) $2 AND d.actual OPERATOR(pg_catalog.=) $5::pg_catalog.jsonb)",
	.nargs = 5,
	.argtypes = {TEXTOID, UUIDOID, TEXTOID, TEXTOID, TEXTOID},
};

/*
 * What else is worth knowing of an attempt, as JSON text; NULL: nothing.
 */
static char *
outcome_detail(const Outcome *outcome, const Effects *effects)
{
	StringInfoData buf;

	if (outcome->error == NULL && outcome->provider_status == NULL && outcome->failure_code == NULL &&
		!effects->stale && effects->unexpected == 0 && !outcome->payer_returned && !outcome->foreign_reference)
		return NULL;
	initStringInfo(&buf);
	json_open_object(&buf);
	json_put_string(&buf, "error", outcome->error);
	json_put_string(&buf, "provider_status", outcome->provider_status);
	json_put_string(&buf, "failure_code", outcome->failure_code);
	if (effects->stale)
		json_put_bool(&buf, "stale", true);
	if (effects->unexpected > 0)
	{
		json_put_int64(&buf, "unexpected_amount", effects->unexpected);
		json_put_string(&buf, "unexpected_currency", effects->unexpected_currency);
	}
	if (outcome->foreign_reference)
		json_put_bool(&buf, "about_another_payment", true);
	if (outcome->payer_returned)
		json_put_bool(&buf, "payer_returned", true);
	json_close_object(&buf);
	return buf.data;
}

/*
 * Failures always; successes unless they are switched off; steps of a session
 * always.
 */
static bool
is_journaled(const PaymentRow *payment, const Outcome *outcome, const Effects *effects)
{
	if (setting_journal == JOURNAL_ALL || effects->from != payment->status || effects->stale ||
		effects->unexpected > 0 || outcome->payer_returned)
		return true;
	return !outcome_is_fact(outcome->kind) && outcome->kind != OUTCOME_PENDING;
}

void
journal_outcomes(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n, TimestampTz now)
{
	static const Oid types[] = {
		UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, INT4OID, INT8OID, TEXTOID, TEXTOID
	};
	RowSet	   *rows = rowset_make(types, lengthof(types), n);
	Datum		values[lengthof(types) + 1];

	for (int i = 0; i < n; i++)
	{
		const Outcome *outcome = outcomes[i];

		if (!is_journaled(payments[i], outcome, &effects[i]))
			continue;
		put_uuid(rows, &payments[i]->session_id);
		put_text(rows, outcome->source);
		put_text(rows, outcome->call == CALL_NONE ? "decide" : call_name(outcome->call));
		put_text(rows, status_name(effects[i].from));
		put_text(rows, status_name(payments[i]->status));
		put_int32(rows, outcome->attempt);
		put_int32(rows, outcome->http_status);
		put_int64(rows, outcome->call == CALL_NONE ? -1 : outcome->duration);
		/* an answer about another payment is none */
		put_text(rows, outcome_name(outcome->foreign_reference ? OUTCOME_LOST : outcome->kind));
		put_text(rows, outcome_detail(outcome, &effects[i]));
	}
	if (rowset_count(rows) == 0)
		return;
	rowset_arrays(rows, values);
	values[lengthof(types)] = TimestampTzGetDatum(now);
	(void) run(&add_attempts, values, NULL);
}

void
journal_event(const pg_uuid_t *session_id, const char *source, const char *event,
			  SessionStatus from, SessionStatus to, const char *detail)
{
	Datum		values[7];
	char		nulls[8] = "       ";

	values[0] = UUIDPGetDatum(session_id);
	values[1] = CStringGetTextDatum(source);
	values[2] = CStringGetTextDatum(event);
	values[3] = CStringGetTextDatum(status_name(from));
	values[4] = CStringGetTextDatum(status_name(to));
	/* the caller, not the owner as whom this runs */
	values[5] = CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), true));
	values[6] = detail ? CStringGetTextDatum(detail) : (Datum) 0;
	if (detail == NULL)
		nulls[6] = 'n';
	(void) run(&add_event, values, nulls);
}

void
raise_alert(const char *key, const char *severity, const char *message)
{
	Datum		values[3];

	values[0] = CStringGetTextDatum(key);
	values[1] = CStringGetTextDatum(severity);
	values[2] = CStringGetTextDatum(message);
	(void) run(&count_alert, values, NULL);
}

void
open_discrepancy(const char *kind, const pg_uuid_t *session_id, const char *provider,
				 const char *expected, const char *actual)
{
	Datum		values[5];

	values[0] = CStringGetTextDatum(kind);
	values[1] = UUIDPGetDatum(session_id);
	values[2] = CStringGetTextDatum(provider);
	values[3] = CStringGetTextDatum(expected);
	values[4] = CStringGetTextDatum(actual);
	(void) run(&add_discrepancy, values, NULL);
}
