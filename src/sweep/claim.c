/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Taking due work: lock what nobody holds, decide the call, write the lease
 *	  and, for a Register that is sent for the first time, the mark.
 *
 * IDENTIFICATION
 *	  src/sweep/claim.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/rowset.h"
#include "lib/spi.h"
#include "session/session.h"
#include "sweep/source.h"
#include "sweep/sweep.h"

static Statement lock_asked = {
	.sql = "SELECT " PAYMENT_ROW_COLUMNS " FROM " PAYMENT_ROW_FROM " "
	"WHERE s.session_id OPERATOR(pg_catalog.=) ANY ($1) "
	"AND (s.lease_until IS NULL OR s.lease_until OPERATOR(pg_catalog.<=) $2) "
	"ORDER BY s.session_id FOR NO KEY UPDATE OF s SKIP LOCKED",
	.nargs = 2,
	.argtypes = {UUIDARRAYOID, TIMESTAMPTZOID},
};

/*
 * The lease.  Writes only columns that no index holds.  Where the provider
 * knows the payment, and is asked about it now and then, what callers ask in
 * between does not count: the pauses must not grow by it.
 */
static Statement write_leases = {
	.sql = "UPDATE payflow.payment_sessions SET lease_until = $2, lease_token = $3, "
	"attempts = attempts OPERATOR(pg_catalog.+) CASE WHEN $4 AND status IN ('registered', 'authorized') THEN 0 ELSE 1 END "
	"WHERE session_id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 4,
	.argtypes = {UUIDARRAYOID, TIMESTAMPTZOID, INT8OID, BOOLOID},
};

/*
 * The lease and the mark that Register may be sent from now on; what the call
 * depends on is frozen with it.
 */
static Statement write_leases_and_marks = {
	.sql = "UPDATE payflow.payment_sessions SET lease_until = $2, lease_token = $3, "
	"attempts = attempts OPERATOR(pg_catalog.+) 1, first_sent_at = $4, endpoint = $5, account = $6 "
	"WHERE session_id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 6,
	.argtypes = {UUIDARRAYOID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID},
};

static Statement give_back = {
	.sql = "UPDATE payflow.payment_sessions s SET lease_until = NULL, lease_token = NULL, "
	"attempts = GREATEST(s.attempts OPERATOR(pg_catalog.-) 1, 0) "
	"FROM ROWS FROM (" UNNEST_2 ") AS r(session_id, token) "
	"WHERE s.session_id OPERATOR(pg_catalog.=) r.session_id AND s.lease_token OPERATOR(pg_catalog.=) r.token",
	.nargs = 2,
	.argtypes = {UUIDARRAYOID, INT8ARRAYOID},
};

static Statement providers_of = {
	.sql = "SELECT k.place, s.provider "
	"FROM pg_catalog.unnest($1) WITH ORDINALITY AS k(session_id, place) "
	"JOIN payflow.payment_sessions s ON s.session_id OPERATOR(pg_catalog.=) k.session_id",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

/* one probe of the index a provider, however many sessions each has */
static Statement live_providers = {
	.sql = "WITH RECURSIVE p(provider) AS ("
	"(SELECT s.provider FROM payflow.payment_sessions s WHERE s.status = 'registering' "
	"ORDER BY s.provider LIMIT 1) "
	"UNION ALL SELECT (SELECT s.provider FROM payflow.payment_sessions s WHERE s.status = 'registering' "
	"AND s.provider OPERATOR(pg_catalog.>) p.provider ORDER BY s.provider LIMIT 1) "
	"FROM p WHERE p.provider IS NOT NULL), "
	"q(provider) AS ("
	"(SELECT s.provider FROM payflow.payment_sessions s "
	"WHERE s.status IN ('registered', 'unknown', 'authorized', 'canceling') AND NOT s.expiring "
	"ORDER BY s.provider LIMIT 1) "
	"UNION ALL SELECT (SELECT s.provider FROM payflow.payment_sessions s "
	"WHERE s.status IN ('registered', 'unknown', 'authorized', 'canceling') AND NOT s.expiring "
	"AND s.provider OPERATOR(pg_catalog.>) q.provider ORDER BY s.provider LIMIT 1) "
	"FROM q WHERE q.provider IS NOT NULL) "
	"SELECT provider FROM p WHERE provider IS NOT NULL "
	"UNION SELECT provider FROM q WHERE provider IS NOT NULL "
	"UNION SELECT s.provider FROM payflow.payment_sessions s WHERE s.expiring",
	.nargs = 0,
};

static Statement postpone = {
	.sql = "UPDATE payflow.payment_sessions SET next_action_at = pg_catalog.now() OPERATOR(pg_catalog.+) $2, "
	"unresolved_since = COALESCE(unresolved_since, pg_catalog.now()) "
	"WHERE session_id OPERATOR(pg_catalog.=) ANY (ARRAY("
	"  SELECT s.session_id FROM payflow.payment_sessions s WHERE s.provider OPERATOR(pg_catalog.=) $1 "
	"  AND s.status IN ('registering', 'registered', 'unknown', 'authorized', 'canceling') "
	"  AND s.next_action_at OPERATOR(pg_catalog.<=) pg_catalog.now() "
	"  AND (s.lease_until IS NULL OR s.lease_until OPERATOR(pg_catalog.<=) pg_catalog.now()) "
	"  ORDER BY s.next_action_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED))",
	.nargs = 3,
	.argtypes = {TEXTOID, INTERVALOID, INT8OID},
};

static int64
new_token(void)
{
	int64		token;

	do
	{
		if (!pg_strong_random(&token, sizeof(token)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		token &= PG_INT64_MAX;
	} while (token == 0);
	return token;
}

/*
 * Writes the leases of the rows at hand, in two statements at most, and brings
 * the copies up to date.
 */
static void
lease_all(List *claims, int first, const ClaimRequest *request, bool asked, TimestampTz now)
{
	int			n = list_length(claims) - first;
	pg_uuid_t  *plain = palloc_array(pg_uuid_t, n);
	pg_uuid_t  *marked = palloc_array(pg_uuid_t, n);
	int			n_plain = 0;
	int			n_marked = 0;
	TimestampTz until = now + request->lease;
	int64		token = new_token();
	Datum		values[6];

	for (int i = first; i < list_length(claims); i++)
	{
		Claim	   *claim = list_nth(claims, i);
		PaymentRow *payment = claim->payment;

		payment->lease_until = until;
		payment->lease_token = token;
		payment->attempts++;
		if (claim->call == CALL_REGISTER && payment->first_sent_at == 0)
		{
			claim->mark_set = true;
			payment->first_sent_at = now;
			payment->endpoint = pstrdup(request->endpoint);
			payment->account = request->account ? pstrdup(request->account) : NULL;
			marked[n_marked++] = payment->session_id;
		}
		else
			plain[n_plain++] = payment->session_id;
	}

	values[1] = TimestampTzGetDatum(until);
	values[2] = Int64GetDatum(token);
	if (n_plain > 0)
	{
		values[0] = uuid_array(plain, n_plain);
		values[3] = BoolGetDatum(asked);
		(void) run(&write_leases, values, NULL);
	}
	if (n_marked > 0)
	{
		values[0] = uuid_array(marked, n_marked);
		values[3] = TimestampTzGetDatum(now);
		values[4] = CStringGetTextDatum(request->endpoint);
		values[5] = request->account ? CStringGetTextDatum(request->account) : (Datum) 0;
		(void) run(&write_leases_and_marks, values, request->account ? NULL : "     n");
	}
}

/*
 * Makes claims of the rows that the statement before has locked.
 */
static List *
claim_rows(uint64 found, const ClaimRequest *request, bool asked, TimestampTz now, List *claims)
{
	int			first = list_length(claims);

	if (found == 0)
		return claims;
	for (uint64 i = 0; i < found; i++)
	{
		Claim	   *claim = palloc0_object(Claim);

		claim->payment = payment_row_read(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
		claim->call = session_next_call(claim->payment, request->terms, now,
										request->never_sent_is_believed, asked, &claim->local);
		claims = lappend(claims, claim);
	}
	lease_all(claims, first, request, asked, now);
	return claims;
}

List *
claim_due(Queue queue, const ClaimRequest *request, int max, int passed, List *claims, TimestampTz *next_due)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < n_work_sources && max > 0; i++)
	{
		WorkSource *source = &work_sources[i];
		Datum		values[4];
		uint64		found;

		if (source->queue != queue)
			continue;
		values[0] = CStringGetTextDatum(request->provider);
		values[1] = TimestampTzGetDatum(now);
		values[2] = Int64GetDatum(max);
		values[3] = Int64GetDatum(passed);
		found = run(&source->due, values, NULL);
		claims = claim_rows(found, request, false, now, claims);
		max -= (int) found;
		/* a full batch: there may be more that is due, no need to look further */
		if (max <= 0)
			*next_due = Min(*next_due, now);
		else if (run(&source->next, values, NULL) == 1)
			*next_due = Min(*next_due, result_time(0, 1));
	}
	return claims;
}

List *
claim_asked(const ClaimRequest *request, const pg_uuid_t *session_ids, int n, List *claims)
{
	TimestampTz now = GetCurrentTimestamp();
	Datum		values[2];

	values[0] = uuid_array(session_ids, n);
	values[1] = TimestampTzGetDatum(now);
	return claim_rows(run(&lock_asked, values, NULL), request, true, now, claims);
}

void
providers_of_sessions(const pg_uuid_t *session_ids, int n, char **providers)
{
	Datum		values[1];
	uint64		found;

	memset(providers, 0, sizeof(char *) * n);
	values[0] = uuid_array(session_ids, n);
	found = run(&providers_of, values, NULL);
	for (uint64 i = 0; i < found; i++)
		providers[result_int64(i, 1) - 1] = result_text(i, 2);
}

List *
providers_with_live_sessions(void)
{
	List	   *names = NIL;
	uint64		found = run(&live_providers, NULL, NULL);

	for (uint64 i = 0; i < found; i++)
		names = lappend(names, result_text(i, 1));
	return names;
}

void
release_claims(const pg_uuid_t *session_ids, const int64 *tokens, int n)
{
	static const Oid types[] = {UUIDOID, INT8OID};
	RowSet	   *rows = rowset_make(types, lengthof(types), n);
	Datum		values[lengthof(types)];

	if (n == 0)
		return;
	for (int i = 0; i < n; i++)
	{
		put_uuid(rows, &session_ids[i]);
		put_int64(rows, tokens[i]);
	}
	rowset_arrays(rows, values);
	(void) run(&give_back, values, NULL);
}

void
postpone_due(const char *provider, const Interval *pause, int max)
{
	Datum		values[3];

	values[0] = CStringGetTextDatum(provider);
	values[1] = IntervalPGetDatum(pause);
	values[2] = Int64GetDatum(max);
	(void) run(&postpone, values, NULL);
}
