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
#include "lib/rowset.h"
#include "lib/settings.h"
#include "lib/spi.h"
#include "lib/uuid.h"
#include "lib/write.h"
#include "session/decide.h"
#include "session/session.h"

/* the outcomes whose order and session could be locked */
typedef struct Work
{
	int			n;
	PaymentRow **payments;
	const Outcome **outcomes;
	LockedOrder **orders;
	Books	  **books;
	pg_uuid_t **id_taken_by;	/* NULL: the payment id is ours, or not told */
	Effects    *effects;
} Work;

/* a payment id belongs to the session that first had it */
static Statement add_payment_refs = {
	.sql = "INSERT INTO payflow.provider_refs (provider, kind, ref, session_id) "
	"SELECT r.provider, r.kind, r.ref, r.session_id FROM ROWS FROM (" UNNEST_4 ") AS r(provider, kind, ref, session_id) "
	"ORDER BY 1, 3 ON CONFLICT (provider, kind, ref) DO NOTHING",
	.nargs = 4,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, UUIDARRAYOID},
};

/* The same without a statement. */
static WriteTarget new_ref = {
	.table = "provider_refs",
	.unless_in = "provider_refs_pkey",
	.ncolumns = 4,
	.columns = {"provider", "kind", "ref", "session_id"}
};

static Statement find_payment_refs = {
	.sql = "SELECT f.session_id, r.session_id FROM ROWS FROM (" UNNEST_3 ") AS f(provider, ref, session_id) "
	"JOIN payflow.provider_refs r ON r.provider OPERATOR(pg_catalog.=) f.provider "
	"AND r.kind OPERATOR(pg_catalog.=) 'payment' AND r.ref OPERATOR(pg_catalog.=) f.ref "
	"WHERE r.session_id OPERATOR(pg_catalog.<>) f.session_id",
	.nargs = 3,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, UUIDARRAYOID},
};

static const Oid new_ref_types[] = {TEXTOID, TEXTOID, TEXTOID, UUIDOID};
static const Oid ref_types[] = {TEXTOID, TEXTOID, UUIDOID};

static bool
same_uuid(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, UUID_LEN) == 0;
}

/*
 * Locks what the outcomes are about.  Leaves in `work` those whose order and
 * session are locked; sets the results of all.
 */
static void
lock_all(Outcome **outcomes, int n, ApplyResult *results, Work *work)
{
	LockedPair *pairs = palloc_array(LockedPair, n);

	lock_pairs(outcomes, n, pairs);
	for (int i = 0; i < n; i++)
	{
		const LockedPair *pair = &pairs[i];

		results[pair->outcome] = pair->gone ? APPLY_GONE : APPLY_BUSY;
		/* one outcome an order and call: the next one must see what this one did */
		if (pair->payment == NULL || pair->order == NULL || pair->order->in_use)
			continue;
		pair->order->in_use = true;
		work->payments[work->n] = pair->payment;
		work->outcomes[work->n] = outcomes[pair->outcome];
		work->orders[work->n] = pair->order;
		work->n++;
		results[pair->outcome] = APPLY_DONE;
	}
}

/* Whether the outcome may bring money that nobody expected: then the merchant's policy decides about it. */
static bool
may_be_unexpected(const PaymentRow *payment, const LockedOrder *order, const Outcome *outcome)
{
	return outcome->captured > 0 &&
		(outcome->kind != OUTCOME_PAID || status_is_final(payment->status) || payment->manual_capture ||
		 outcome->captured != payment->amount ||
		 order->status != ORDER_OPEN ||
		 (outcome->currency[0] != '\0' && strcmp(outcome->currency, payment->currency) != 0));
}

/*
 * Reads the books of those sessions that have some, and locks their
 * operations.  What somebody holds an operation of is taken out of the work.
 */
static void
read_books(Work *work, Outcome **outcomes, int n, ApplyResult *results, bool wait)
{
	pg_uuid_t  *ids = palloc_array(pg_uuid_t, work->n);
	Books	  **wanted = palloc_array(Books *, work->n);
	int			n_wanted = 0;
	int			kept = 0;

	for (int i = 0; i < work->n; i++)
	{
		const Outcome *outcome = work->outcomes[i];
		Books	   *books = palloc0_object(Books);

		work->books[i] = books;
		if (books_needed(work->payments[i], outcome))
		{
			ids[n_wanted] = work->payments[i]->session_id;
			wanted[n_wanted++] = books;
		}
	}
	books_read(ids, wanted, n_wanted, wait);

	for (int i = 0; i < work->n; i++)
	{
		if (work->books[i]->held_elsewhere)
		{
			for (int j = 0; j < n; j++)
			{
				if (outcomes[j] == work->outcomes[i])
					results[j] = APPLY_BUSY;
			}
			continue;
		}
		work->payments[kept] = work->payments[i];
		work->outcomes[kept] = work->outcomes[i];
		work->orders[kept] = work->orders[i];
		work->books[kept++] = work->books[i];
	}
	work->n = kept;
	for (int i = 0; i < work->n; i++)
	{
		if (work->outcomes[i]->kind == OUTCOME_DISCREPANCY_DECIDED)
			work->books[i]->discrepancy = read_discrepancy(work->outcomes[i]->discrepancy_id);
		work->books[i]->taken_refs = read_taken_refs(work->payments[i], work->outcomes[i]);
		if (may_be_unexpected(work->payments[i], work->orders[i], work->outcomes[i]))
			work->books[i]->late_payment = read_late_payment(work->payments[i]->merchant);
	}
}

/* what an outcome tells of a session's id at its provider */
typedef struct ToldId
{
	const PaymentRow *payment;
	const char *id;
	bool		ours;			/* an answer about another payment gives this session no id */
} ToldId;

/* an order that all workers keep: they wait for each other's ids */
static int
compare_told_ids(const void *a, const void *b)
{
	const ToldId *x = a;
	const ToldId *y = b;
	int			result = strcmp(x->payment->provider, y->payment->provider);

	return result != 0 ? result : strcmp(x->id, y->id);
}

/*
 * Claims the ids, and returns how many were free.
 */
static int
add_refs(const ToldId *told, int n)
{
	RowSet	   *rows = rowset_make(new_ref_types, lengthof(new_ref_types), n);
	Datum		values[lengthof(new_ref_types)];
	int			inserted = 0;

	for (int i = 0; i < n; i++)
	{
		if (!told[i].ours)
			continue;
		put_text(rows, told[i].payment->provider);
		put_text(rows, "payment");
		put_text(rows, told[i].id);
		put_uuid(rows, &told[i].payment->session_id);
	}
	if (rowset_count(rows) == 0 || insert_rows(&new_ref, rows, &inserted))
		return inserted;
	rowset_arrays(rows, values);
	return (int) run(&add_payment_refs, values, NULL);
}

/*
 * Claims the provider's ids for their sessions; where another session has one
 * already, notes which.
 */
static void
claim_payment_ids(Work *work)
{
	ToldId	   *told = palloc_array(ToldId, work->n);
	int			n_told = 0;
	RowSet	   *rows;
	Datum		values[lengthof(ref_types)];
	uint64		taken;

	for (int i = 0; i < work->n; i++)
	{
		const PaymentRow *payment = work->payments[i];
		const char *id = work->outcomes[i]->provider_payment_id;

		if (id == NULL || !outcome_counts(payment, work->books[i], work->outcomes[i]))
			continue;
		if (payment->provider_payment_id != NULL && strcmp(payment->provider_payment_id, id) == 0)
			continue;
		told[n_told].payment = payment;
		told[n_told].id = id;
		told[n_told++].ours = !work->outcomes[i]->foreign_reference;
	}
	qsort(told, n_told, sizeof(ToldId), compare_told_ids);
	if (n_told == 0 || add_refs(told, n_told) == n_told)
		return;

	rows = rowset_make(ref_types, lengthof(ref_types), n_told);
	for (int i = 0; i < n_told; i++)
	{
		put_text(rows, told[i].payment->provider);
		put_text(rows, told[i].id);
		put_uuid(rows, &told[i].payment->session_id);
	}
	rowset_arrays(rows, values);
	taken = run(&find_payment_refs, values, NULL);
	for (uint64 row = 0; row < taken; row++)
	{
		pg_uuid_t	session_id;

		(void) result_uuid(row, 1, &session_id);
		for (int i = 0; i < work->n; i++)
		{
			if (!same_uuid(&work->payments[i]->session_id, &session_id))
				continue;
			work->id_taken_by[i] = palloc_object(pg_uuid_t);
			(void) result_uuid(row, 2, work->id_taken_by[i]);
		}
	}
}

static void
decide_all(Work *work, TimestampTz now)
{
	for (int i = 0; i < work->n; i++)
		session_decide(work->payments[i], work->orders[i], work->books[i], work->outcomes[i], work->id_taken_by[i],
					   now, &work->effects[i]);
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
	/* first what has gone back: a completed session has captured money, or had it */
	update_returns(work->payments, work->effects, work->n);
	update_sessions(work->payments, work->effects, work->n);
	write_findings(work->payments, work->outcomes, work->effects, work->n);
	write_facts(work->payments, work->effects, work->n);
	/* before operations: a refund of money in suspense is bound to what is there */
	ledger_book(work->payments, work->effects, work->n, now);
	write_operations(work->payments, work->outcomes, work->effects, work->n, now);
	orders_follow(work->payments, work->orders, work->effects, work->n);
	settle_findings(work->payments, work->outcomes, work->effects, work->n);
	journal_outcomes(work->payments, work->outcomes, work->effects, work->n, now);
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

static void
apply(Outcome **outcomes, int n, ApplyResult *results, bool wait)
{
	Work		work = {.n = 0};
	TimestampTz now = GetCurrentTimestamp();

	if (n == 0)
		return;
	work.payments = palloc_array(PaymentRow *, n);
	work.outcomes = palloc_array(const Outcome *, n);
	work.orders = palloc_array(LockedOrder *, n);
	work.books = palloc_array(Books *, n);
	work.id_taken_by = palloc0_array(pg_uuid_t *, n);
	work.effects = palloc0_array(Effects, n);

	lock_all(outcomes, n, results, &work);
	read_books(&work, outcomes, n, results, wait);
	if (work.n == 0)
		return;
	claim_payment_ids(&work);
	decide_all(&work, now);
	write_all(&work, now);
	notify_changes(&work);
}

void
session_apply(Outcome **outcomes, int n, ApplyResult *results)
{
	apply(outcomes, n, results, false);
}

void
session_apply_wish(Outcome *wish)
{
	ApplyResult result;

	apply(&wish, 1, &result, true);
	if (result != APPLY_DONE)
		elog(ERROR, "a wish for a payment session that is not locked");
}

void
outcome_init(Outcome *outcome, const PaymentRow *payment, const ProviderTerms *terms, const char *source)
{
	memset(outcome, 0, sizeof(*outcome));
	outcome->session_id = payment->session_id;
	outcome->merchant = payment->merchant;
	outcome->order_id = payment->order_id;
	outcome->terms = terms;
	outcome->source = source;
	outcome->authorized = -1;
	outcome->captured = -1;
	outcome->refunded = -1;
	outcome->disputed = -1;
	outcome->retry_after = -1;
}
