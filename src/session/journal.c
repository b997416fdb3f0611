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

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/json.h"
#include "lib/rowset.h"
#include "lib/settings.h"
#include "lib/spi.h"
#include "lib/uuid.h"
#include "lib/write.h"
#include "session/decide.h"
#include "session/session.h"

static Statement add_attempts = {
	.sql = "INSERT INTO payflow.journal (at, session_id, source, event, from_status, to_status, attempt, "
	"http_status, duration, outcome, actor, detail) "
	"SELECT j.at, j.session_id, j.source, j.event, j.from_status, j.to_status, j.attempt, j.http_status, "
	"j.duration, j.outcome, j.actor, j.detail "
	"FROM ROWS FROM (" UNNEST_12 ") AS j(at, session_id, source, event, from_status, to_status, attempt, "
	"http_status, duration, outcome, actor, detail)",
	.nargs = 12,
	.argtypes = {TIMESTAMPTZARRAYOID, UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID,
	INT4ARRAYOID, INT4ARRAYOID, INTERVALARRAYOID, TEXTARRAYOID, TEXTARRAYOID, JSONBARRAYOID},
};

static const Oid attempt_types[] = {
	TIMESTAMPTZOID, UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, INT4OID, INTERVALOID, TEXTOID, TEXTOID,
	JSONBOID
};

/* The same without a statement. */
static WriteTarget new_attempt = {
	.table = "journal",
	.ncolumns = lengthof(attempt_types),
	.columns = {
		"at", "session_id", "source", "event", "from_status", "to_status", "attempt", "http_status", "duration",
		"outcome", "actor", "detail"
	}
};

static Statement add_event = {
	.sql = "INSERT INTO payflow.journal (session_id, source, event, from_status, to_status, actor, detail) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb)",
	.nargs = 7,
	.argtypes = {UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID},
};

/*
 * One that somebody holds is open, or is just being closed: nobody waits for
 * him, the next time counts.
 */
static Statement count_alert = {
	.sql = "WITH present AS MATERIALIZED (SELECT a.id FROM payflow.alerts a "
	"WHERE a.key OPERATOR(pg_catalog.=) $1 AND a.closed_at IS NULL), "
	"mine AS MATERIALIZED (SELECT a.id FROM payflow.alerts a "
	"WHERE a.key OPERATOR(pg_catalog.=) $1 AND a.closed_at IS NULL FOR NO KEY UPDATE SKIP LOCKED) "
	"INSERT INTO payflow.alerts (key, severity, message) SELECT $1, $2, $3 "
	"WHERE NOT EXISTS (SELECT FROM present) OR EXISTS (SELECT FROM mine) "
	"ON CONFLICT (key) WHERE closed_at IS NULL DO UPDATE SET "
	"count = alerts.count OPERATOR(pg_catalog.+) 1, last_raised_at = pg_catalog.now(), message = EXCLUDED.message, "
	"severity = CASE WHEN EXCLUDED.severity OPERATOR(pg_catalog.=) 'critical' "
	"OR alerts.severity OPERATOR(pg_catalog.=) 'info' THEN EXCLUDED.severity ELSE alerts.severity END",
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID},
};

/* The entries that it booked, but for the receipt, which its status tells. */
static void
put_booked(StringInfo buf, const Effects *effects)
{
	StringInfoData list;
	ListCell   *cell;

	initStringInfo(&list);
	foreach(cell, effects->entries)
	{
		const LedgerEntry *entry = lfirst(cell);

		if (strcmp(entry->type, "payment_received") == 0)
			continue;
		appendStringInfoChar(&list, list.len == 0 ? '[' : ',');
		json_open_object(&list);
		json_put_string(&list, "entry", entry->type);
		json_put_int64(&list, "amount", entry->amount);
		json_put_string(&list, "currency", entry->currency);
		json_put_string(&list, "debit", entry->debit);
		json_put_string(&list, "credit", entry->credit);
		json_close_object(&list);
	}
	if (list.len == 0)
		return;
	appendStringInfoChar(&list, ']');
	json_put_raw(buf, "booked", list.data);
}

/* The operations that it made or moved. */
static void
put_operations(StringInfo buf, const Effects *effects)
{
	StringInfoData list;
	ListCell   *cell;

	initStringInfo(&list);
	foreach(cell, effects->operations)
	{
		const OperationRow *operation = lfirst(cell);
		char		id[UUID_TEXT_SIZE];

		appendStringInfoChar(&list, list.len == 0 ? '[' : ',');
		json_open_object(&list);
		json_put_string(&list, "kind", operation_kind_name(operation->kind));
		json_put_string(&list, "id", uuid_to_text(&operation->operation_id, id));
		json_put_string(&list, "status", operation_status_name(operation->status));
		if (operation->amount > 0)
			json_put_int64(&list, "amount", operation->amount);
		json_close_object(&list);
	}
	if (list.len == 0)
		return;
	appendStringInfoChar(&list, ']');
	json_put_raw(buf, "operations", list.data);
}

/*
 * What else is worth knowing of an attempt, as JSON text; NULL: nothing.
 */
static char *
outcome_detail(const PaymentRow *payment, const Outcome *outcome, const Effects *effects)
{
	StringInfoData buf;
	int64		released = payment->authorized_amount - payment->captured_amount;

	if (outcome->error == NULL && outcome->provider_status == NULL && outcome->failure_code == NULL &&
		!effects->stale && effects->entries == NIL && effects->operations == NIL && outcome->reason == NULL &&
		!outcome->payer_returned && !outcome->foreign_reference)
		return NULL;
	initStringInfo(&buf);
	json_open_object(&buf);
	json_put_string(&buf, "error", outcome->error);
	json_put_string(&buf, "provider_status", outcome->provider_status);
	json_put_string(&buf, "failure_code", outcome->failure_code);
	json_put_string(&buf, "reason", outcome->reason);
	if (effects->stale)
		json_put_bool(&buf, "stale", true);
	put_operations(&buf, effects);
	put_booked(&buf, effects);
	if (effects->receipt && released > 0)
		json_put_int64(&buf, "released", released);
	if (outcome->foreign_reference)
		json_put_bool(&buf, "about_another_payment", true);
	if (outcome->payer_returned)
		json_put_bool(&buf, "payer_returned", true);
	json_close_object(&buf);
	return buf.data;
}

/* The caller of a wish; else the owner, as whom all runs. */
static const char *
actor_of(const Outcome *outcome)
{
	return GetUserNameFromId(outcome_is_wish(outcome->kind) ? GetSessionUserId() : GetUserId(), true);
}

static const char *
event_of(const Outcome *outcome)
{
	if (outcome->event != NULL)
		return outcome->event;
	return outcome->call == CALL_NONE ? "decide" : call_name(outcome->call);
}

/*
 * Failures always; successes unless they are switched off; steps of a session
 * always.
 */
static bool
is_journaled(const PaymentRow *payment, const Outcome *outcome, const Effects *effects)
{
	if (setting_journal == JOURNAL_ALL || effects->from != payment->status || effects->stale ||
		effects->entries != NIL || outcome->payer_returned || outcome_is_wish(outcome->kind))
		return true;
	return !outcome_is_fact(outcome->kind) && outcome->kind != OUTCOME_PENDING;
}

static void
put_attempt(RowSet *rows, const PaymentRow *payment, const Outcome *outcome, const Effects *effects, TimestampTz now)
{
	put_time(rows, now);
	put_uuid(rows, &payment->session_id);
	put_text(rows, outcome->source);
	put_text(rows, event_of(outcome));
	put_text(rows, status_name(effects->from));
	put_text(rows, status_name(payment->status));
	put_int32(rows, outcome->attempt);
	if (outcome->http_status != 0)
		put_int32(rows, outcome->http_status);
	else
		put_null(rows);
	put_microseconds(rows, outcome->call == CALL_NONE ? -1 : outcome->duration);
	/* an answer about another payment is none */
	put_text(rows, outcome_name(outcome->foreign_reference ? OUTCOME_LOST : outcome->kind));
	put_text(rows, actor_of(outcome));
	put_jsonb(rows, outcome_detail(payment, outcome, effects));
}

void
journal_outcomes(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n, TimestampTz now)
{
	RowSet	   *rows = rowset_make(attempt_types, lengthof(attempt_types), n);
	Datum		values[lengthof(attempt_types)];
	int			inserted;

	for (int i = 0; i < n; i++)
	{
		if (is_journaled(payments[i], outcomes[i], &effects[i]))
			put_attempt(rows, payments[i], outcomes[i], &effects[i], now);
	}
	if (rowset_count(rows) == 0 || insert_rows(&new_attempt, rows, &inserted))
		return;
	rowset_arrays(rows, values);
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
