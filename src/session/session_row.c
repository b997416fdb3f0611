/*-------------------------------------------------------------------------
 *
 * session_row.c
 *	  Writes to the rows of sessions what was decided about them.
 *
 * IDENTIFICATION
 *	  src/session/session_row.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/compat.h"
#include "lib/rowset.h"
#include "lib/spi.h"
#include "lib/write.h"
#include "session/decide.h"

static Statement write_sessions = {
	.sql = "UPDATE payflow.payment_sessions s SET status = u.status, stage = u.stage, "
	"next_action_at = u.next_action_at, lease_until = u.lease_until, lease_token = u.lease_token, "
	"attempts = u.attempts, expiring = u.expiring, repeat_due = u.repeat_due, expires_at = u.expires_at, "
	"provider_expires_at = u.provider_expires_at, first_sent_at = u.first_sent_at, "
	"answered_at = u.answered_at, unresolved_since = u.unresolved_since, returned_at = u.returned_at, "
	"updated_at = u.updated_at, authorized_amount = u.authorized_amount, "
	"captured_amount = u.captured_amount, suspense_amount = u.suspense_amount, "
	"provider_payment_id = u.provider_payment_id, provider_status = u.provider_status, "
	"redirect_url = u.redirect_url, failure_code = u.failure_code, failure_message = u.failure_message, "
	"endpoint = u.endpoint, account = u.account, return_params = u.return_params, "
	"redirected_at = u.redirected_at "
	"FROM ROWS FROM (" UNNEST_28 ") AS u(session_id, status, stage, next_action_at, lease_until, lease_token, "
	"attempts, expiring, repeat_due, expires_at, provider_expires_at, first_sent_at, answered_at, "
	"unresolved_since, returned_at, updated_at, authorized_amount, captured_amount, suspense_amount, "
	"provider_payment_id, provider_status, redirect_url, failure_code, failure_message, endpoint, account, "
	"return_params, redirected_at) "
	"WHERE s.session_id OPERATOR(pg_catalog.=) u.session_id",
	.nargs = 28,
	.argtypes = {UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID,
		INT4ARRAYOID, BOOLARRAYOID, BOOLARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID,
		TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID,
		INT8ARRAYOID, INT8ARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID,
	TEXTARRAYOID, TEXTARRAYOID, JSONBARRAYOID, TIMESTAMPTZARRAYOID},
};

static const Oid session_types[] = {
	UUIDOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT4OID, BOOLOID, BOOLOID, TIMESTAMPTZOID,
	TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT8OID,
	INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID, TIMESTAMPTZOID
};

/* The same without a statement; the session's id is not written. */
static WriteTarget written_session = {
	.table = "payment_sessions",
	.ncolumns = lengthof(session_types) - 1,
	.columns = {
		"status", "stage", "next_action_at", "lease_until", "lease_token", "attempts", "expiring", "repeat_due",
		"expires_at", "provider_expires_at", "first_sent_at", "answered_at", "unresolved_since", "returned_at",
		"updated_at", "authorized_amount", "captured_amount", "suspense_amount", "provider_payment_id",
		"provider_status", "redirect_url", "failure_code", "failure_message", "endpoint", "account", "return_params",
		"redirected_at"
	}
};

static void
put_session(RowSet *rows, const PaymentRow *p)
{
	put_uuid(rows, &p->session_id);
	put_text(rows, status_name(p->status));
	put_text(rows, stage_name(p->stage));
	put_time(rows, p->next_action_at);
	put_time(rows, p->lease_until);
	if (p->lease_token != 0)
		put_int64(rows, p->lease_token);
	else
		put_null(rows);
	put_int32(rows, p->attempts);
	put_bool(rows, p->expiring);
	put_bool(rows, p->repeat_due);
	put_time(rows, p->expires_at);
	put_time(rows, p->provider_expires_at);
	put_time(rows, p->first_sent_at);
	put_time(rows, p->answered_at);
	put_time(rows, p->unresolved_since);
	put_time(rows, p->returned_at);
	put_time(rows, p->updated_at);
	put_int64(rows, p->authorized_amount);
	put_int64(rows, p->captured_amount);
	put_int64(rows, p->suspense_amount);
	put_text(rows, p->provider_payment_id);
	put_text(rows, p->provider_status);
	put_text(rows, p->redirect_url);
	put_text(rows, p->failure_code);
	put_text(rows, p->failure_message);
	put_text(rows, p->endpoint);
	put_text(rows, p->account);
	put_jsonb(rows, p->return_params);
	put_time(rows, p->redirected_at);
}

/*
 * Each row by the place at which it was locked.
 */
static void
update_session_rows(PaymentRow **payments, const Effects *effects, int n, const RowSet *rows)
{
	Datum		values[lengthof(session_types)];
	bool		nulls[lengthof(session_types)];
	int			row = 0;

	write_begin();
	for (int i = 0; i < n; i++)
	{
		if (!effects[i].changed)
			continue;
		rowset_row(rows, row++, values, nulls);
		update_row(&written_session, &payments[i]->tid, values + 1, nulls + 1);
	}
	write_end();
}

void
update_sessions(PaymentRow **payments, const Effects *effects, int n)
{
	RowSet	   *rows = rowset_make(session_types, lengthof(session_types), n);
	Datum		values[lengthof(session_types)];
	bool		moved = false;

	for (int i = 0; i < n; i++)
	{
		if (effects[i].changed)
			put_session(rows, payments[i]);
		/* update_returns() has written it already */
		moved = moved || effects[i].returns_changed;
	}
	if (rowset_count(rows) == 0)
		return;
	if (!moved && update_open(&written_session))
	{
		update_session_rows(payments, effects, n, rows);
		write_close(&written_session);
		return;
	}
	rowset_arrays(rows, values);
	if (run(&write_sessions, values, NULL) != (uint64) rowset_count(rows))
		elog(ERROR, "a locked payment session could not be updated");
}

/* what of a session's row changes only when money has gone back */
static Statement write_returns = {
	.sql = "UPDATE payflow.payment_sessions s SET refunded_amount = u.refunded_amount, "
	"disputed_amount = u.disputed_amount, reversed_amount = u.reversed_amount, cancel_lost = u.cancel_lost "
	"FROM ROWS FROM (" UNNEST_5 ") AS u(session_id, refunded_amount, disputed_amount, reversed_amount, cancel_lost) "
	"WHERE s.session_id OPERATOR(pg_catalog.=) u.session_id",
	.nargs = 5,
	.argtypes = {UUIDARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, BOOLARRAYOID},
};

void
update_returns(PaymentRow **payments, const Effects *effects, int n)
{
	static const Oid types[] = {UUIDOID, INT8OID, INT8OID, INT8OID, BOOLOID};
	RowSet	   *rows = rowset_make(types, lengthof(types), n);
	Datum		values[lengthof(types)];

	for (int i = 0; i < n; i++)
	{
		const PaymentRow *p = payments[i];

		if (!effects[i].returns_changed)
			continue;
		put_uuid(rows, &p->session_id);
		put_int64(rows, p->refunded_amount);
		put_int64(rows, p->disputed_amount);
		put_int64(rows, p->reversed_amount);
		put_bool(rows, p->cancel_lost);
	}
	if (rowset_count(rows) == 0)
		return;
	rowset_arrays(rows, values);
	(void) run(&write_returns, values, NULL);
}
