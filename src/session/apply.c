/*-------------------------------------------------------------------------
 *
 * apply.c
 *	  The one door for money: outcomes come in, rows, entries and alarms come
 *	  out, in one transaction.
 *
 *	  Nothing else changes a status or writes an entry.  Locks are taken in
 *	  phases: all orders, all sessions, then accounts in id order; a row that
 *	  somebody else holds is left for later, so that no worker ever waits for
 *	  an application.
 *
 * IDENTIFICATION
 *	  src/session/apply.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/json.h"
#include "lib/settings.h"
#include "lib/spi.h"
#include "lib/uuid.h"
#include "session/decide.h"
#include "session/session.h"

/* the outcomes whose order and session could be locked */
typedef struct Work
{
	int			n;
	PaymentRow **payments;
	const Outcome **outcomes;
	const LockedOrder **orders;
	pg_uuid_t **id_taken_by;	/* NULL: the payment id is ours, or not told */
	Effects    *effects;
} Work;

static Statement lock_sessions = {
	.sql = "SELECT " PAYMENT_ROW_COLUMNS " FROM " PAYMENT_ROW_FROM " "
	"WHERE s.session_id OPERATOR(pg_catalog.=) ANY ($1) "
	"ORDER BY s.session_id FOR NO KEY UPDATE OF s SKIP LOCKED",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

static Statement sessions_exist = {
	.sql = "SELECT session_id FROM payflow.payment_sessions WHERE session_id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

/* a payment id belongs to the session that first had it */
static Statement add_payment_ref = {
	.sql = "INSERT INTO payflow.provider_refs (provider, kind, ref, session_id) VALUES ($1, 'payment', $2, $3) "
	"ON CONFLICT (provider, kind, ref) DO NOTHING",
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, UUIDOID},
};

static Statement find_payment_ref = {
	.sql = "SELECT session_id FROM payflow.provider_refs WHERE provider OPERATOR(pg_catalog.=) $1 "
	"AND kind OPERATOR(pg_catalog.=) 'payment' AND ref OPERATOR(pg_catalog.=) $2",
	.nargs = 2,
	.argtypes = {TEXTOID, TEXTOID},
};

#define N_SESSION_COLUMNS 28

static Statement write_session = {
	.sql = "UPDATE payflow.payment_sessions SET status = $2, stage = $3, next_action_at = $4, lease_until = $5, "
	"lease_token = $6, attempts = $7, expiring = $8, repeat_due = $9, expires_at = $10, "
	"provider_expires_at = $11, first_sent_at = $12, answered_at = $13, unresolved_since = $14, "
	"returned_at = $15, updated_at = $16, authorized_amount = $17, captured_amount = $18, "
	"suspense_amount = $19, provider_payment_id = $20, provider_status = $21, redirect_url = $22, "
	"failure_code = $23, failure_message = $24, endpoint = $25, account = $26, return_params = $27::pg_catalog.jsonb, "
	"redirected_at = $28 "
	"WHERE session_id OPERATOR(pg_catalog.=) $1",
	.nargs = N_SESSION_COLUMNS,
	.argtypes = {UUIDOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT4OID, BOOLOID, BOOLOID,
		TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
		TIMESTAMPTZOID, INT8OID, INT8OID, INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
	TEXTOID, TEXTOID, TIMESTAMPTZOID},
};

/* the arguments of write_session, filled one after the other */
typedef struct Arguments
{
	Datum		values[N_SESSION_COLUMNS];
	char		nulls[N_SESSION_COLUMNS];
	int			n;
} Arguments;

static void
put_datum(Arguments *args, Datum value, bool isnull)
{
	args->values[args->n] = value;
	args->nulls[args->n] = isnull ? 'n' : ' ';
	args->n++;
}

static void
put_time(Arguments *args, TimestampTz value)
{
	put_datum(args, TimestampTzGetDatum(value), value == 0);
}

static void
put_text(Arguments *args, const char *value)
{
	put_datum(args, value ? CStringGetTextDatum(value) : (Datum) 0, value == NULL);
}

static void
update_session(const PaymentRow *p)
{
	Arguments	args = {.n = 0};

	put_datum(&args, UUIDPGetDatum(&p->session_id), false);
	put_text(&args, status_name(p->status));
	put_text(&args, stage_name(p->stage));
	put_time(&args, p->next_action_at);
	put_time(&args, p->lease_until);
	put_datum(&args, Int64GetDatum(p->lease_token), p->lease_token == 0);
	put_datum(&args, Int32GetDatum(p->attempts), false);
	put_datum(&args, BoolGetDatum(p->expiring), false);
	put_datum(&args, BoolGetDatum(p->repeat_due), false);
	put_time(&args, p->expires_at);
	put_time(&args, p->provider_expires_at);
	put_time(&args, p->first_sent_at);
	put_time(&args, p->answered_at);
	put_time(&args, p->unresolved_since);
	put_time(&args, p->returned_at);
	put_time(&args, p->updated_at);
	put_datum(&args, Int64GetDatum(p->authorized_amount), false);
	put_datum(&args, Int64GetDatum(p->captured_amount), false);
	put_datum(&args, Int64GetDatum(p->suspense_amount), false);
	put_text(&args, p->provider_payment_id);
	put_text(&args, p->provider_status);
	put_text(&args, p->redirect_url);
	put_text(&args, p->failure_code);
	put_text(&args, p->failure_message);
	put_text(&args, p->endpoint);
	put_text(&args, p->account);
	put_text(&args, p->return_params);
	put_time(&args, p->redirected_at);
	Assert(args.n == N_SESSION_COLUMNS);
	if (run(&write_session, args.values, args.nulls) != 1)
		elog(ERROR, "a locked payment session could not be updated");
}

static bool
same_uuid(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, UUID_LEN) == 0;
}

static const LockedOrder *
order_of(const PaymentRow *payment, const LockedOrder *orders, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(orders[i].merchant, payment->merchant) == 0 &&
			strcmp(orders[i].order_id, payment->order_id) == 0)
			return &orders[i];
	}
	return NULL;
}

/*
 * Locks what the outcomes are about.  Leaves in `work` those whose order and
 * session are locked; sets the results of all.
 */
static void
lock_all(Outcome **outcomes, int n, ApplyResult *results, Work *work)
{
	pg_uuid_t  *ids = palloc_array(pg_uuid_t, n);
	bool	   *matched = palloc0_array(bool, n);
	LockedOrder *orders = palloc_array(LockedOrder, n);
	int			n_orders;
	Datum		values[1];
	uint64		found;

	for (int i = 0; i < n; i++)
	{
		ids[i] = outcomes[i]->session_id;
		results[i] = APPLY_BUSY;
	}
	n_orders = lock_orders_of(ids, n, orders);
	values[0] = uuid_array(ids, NULL, n);
	found = run(&lock_sessions, values, NULL);

	for (uint64 row = 0; row < found; row++)
	{
		PaymentRow *payment = payment_row_read(SPI_tuptable->vals[row], SPI_tuptable->tupdesc);
		const LockedOrder *order = order_of(payment, orders, n_orders);

		for (int i = 0; i < n; i++)
		{
			if (!same_uuid(&outcomes[i]->session_id, &payment->session_id))
				continue;
			matched[i] = true;
			/* one outcome a session and call: the next one must see what this one did */
			if (order != NULL && (work->n == 0 || work->payments[work->n - 1] != payment))
			{
				work->payments[work->n] = payment;
				work->outcomes[work->n] = outcomes[i];
				work->orders[work->n] = order;
				work->n++;
				results[i] = APPLY_DONE;
			}
		}
	}

	for (int i = 0; i < n; i++)
	{
		if (matched[i])
			continue;
		values[0] = uuid_array(&outcomes[i]->session_id, NULL, 1);
		if (run(&sessions_exist, values, NULL) == 0)
			results[i] = APPLY_GONE;
	}
}

/*
 * Claims the provider's ids for their sessions; where another session has one
 * already, notes which.
 */
static void
claim_payment_ids(Work *work)
{
	for (int i = 0; i < work->n; i++)
	{
		const PaymentRow *payment = work->payments[i];
		const char *id = work->outcomes[i]->provider_payment_id;
		Datum		values[3];
		pg_uuid_t	owner;

		if (id == NULL || (payment->provider_payment_id != NULL && strcmp(payment->provider_payment_id, id) == 0))
			continue;
		values[0] = CStringGetTextDatum(payment->provider);
		values[1] = CStringGetTextDatum(id);
		values[2] = UUIDPGetDatum(&payment->session_id);
		if (run(&add_payment_ref, values, NULL) == 1 || run(&find_payment_ref, values, NULL) == 0)
			continue;
		if (result_uuid(0, 1, &owner) && !same_uuid(&owner, &payment->session_id))
		{
			work->id_taken_by[i] = palloc_object(pg_uuid_t);
			*work->id_taken_by[i] = owner;
		}
	}
}

static void
decide_all(Work *work, TimestampTz now)
{
	for (int i = 0; i < work->n; i++)
	{
		PaymentRow *payment = work->payments[i];
		const Outcome *outcome = work->outcomes[i];
		int64		foreign_suspense = 0;

		if (outcome->captured > 0 && outcome->currency[0] != '\0' &&
			strcmp(outcome->currency, payment->currency) != 0)
			foreign_suspense = ledger_suspense_of(&payment->session_id, outcome->currency);
		session_decide(payment, work->orders[i], outcome, work->id_taken_by[i], foreign_suspense, now,
					   &work->effects[i]);
	}
}

/*
 * What we expected and what the provider says, for the person who decides.
 */
static void
write_discrepancy(const PaymentRow *payment, const Outcome *outcome, const char *kind)
{
	StringInfoData expected;
	StringInfoData actual;

	initStringInfo(&expected);
	json_open_object(&expected);
	json_put_int64(&expected, "amount", payment->amount);
	json_put_string(&expected, "currency", payment->currency);
	json_put_string(&expected, "status", status_name(payment->status));
	json_close_object(&expected);

	initStringInfo(&actual);
	json_open_object(&actual);
	if (outcome->captured >= 0)
		json_put_int64(&actual, "captured", outcome->captured);
	if (outcome->authorized >= 0)
		json_put_int64(&actual, "authorized", outcome->authorized);
	json_put_string(&actual, "currency", outcome->currency[0] != '\0' ? outcome->currency : NULL);
	json_put_string(&actual, "provider_payment_id", outcome->provider_payment_id);
	json_close_object(&actual);

	open_discrepancy(kind, &payment->session_id, payment->provider, expected.data, actual.data);
}

static int
compare_alerts(const ListCell *a, const ListCell *b)
{
	return strcmp(((const Alert *) lfirst(a))->key, ((const Alert *) lfirst(b))->key);
}

/*
 * Many workers raise the same alerts: in the order of their keys, each once, so
 * that they cannot deadlock.
 */
static void
raise_alerts(const Work *work)
{
	List	   *alerts = NIL;
	const char *last_key = NULL;
	ListCell   *cell;

	for (int i = 0; i < work->n; i++)
		alerts = list_concat(alerts, work->effects[i].alerts);
	list_sort(alerts, compare_alerts);
	foreach(cell, alerts)
	{
		const Alert *alert = lfirst(cell);

		if (last_key == NULL || strcmp(last_key, alert->key) != 0)
			raise_alert(alert->key, alert->severity, alert->message);
		last_key = alert->key;
	}
}

static void
write_all(Work *work, TimestampTz now)
{
	for (int i = 0; i < work->n; i++)
	{
		if (work->effects[i].changed)
			update_session(work->payments[i]);
		order_follow(work->payments[i], &work->effects[i]);
	}
	for (int i = 0; i < work->n; i++)
	{
		if (work->effects[i].discrepancy != NULL)
			write_discrepancy(work->payments[i], work->outcomes[i], work->effects[i].discrepancy);
	}
	journal_outcomes(work->payments, work->outcomes, work->effects, work->n, now);
	ledger_book(work->payments, work->outcomes, work->effects, work->n, now);
	raise_alerts(work);
}

/*
 * For those who would rather listen than wait: off by default, because NOTIFY
 * takes a lock that all commits share.
 */
static void
notify_changes(const Work *work)
{
	if (!setting_notify)
		return;
	for (int i = 0; i < work->n; i++)
	{
		StringInfoData payload;
		char		id[UUID_TEXT_SIZE];

		if (work->effects[i].from == work->payments[i]->status)
			continue;
		initStringInfo(&payload);
		json_open_object(&payload);
		json_put_string(&payload, "session_id", uuid_to_text(&work->payments[i]->session_id, id));
		json_put_string(&payload, "status", status_name(work->payments[i]->status));
		json_close_object(&payload);
		Async_Notify("payflow", payload.data);
	}
}

void
session_apply(Outcome **outcomes, int n, ApplyResult *results)
{
	Work		work = {.n = 0};
	TimestampTz now = GetCurrentTimestamp();

	if (n == 0)
		return;
	work.payments = palloc_array(PaymentRow *, n);
	work.outcomes = palloc_array(const Outcome *, n);
	work.orders = palloc_array(const LockedOrder *, n);
	work.id_taken_by = palloc0_array(pg_uuid_t *, n);
	work.effects = palloc0_array(Effects, n);

	lock_all(outcomes, n, results, &work);
	if (work.n == 0)
		return;
	claim_payment_ids(&work);
	decide_all(&work, now);
	write_all(&work, now);
	notify_changes(&work);
}
