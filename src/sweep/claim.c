/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Taking due work: lock what nobody holds, decide the call, write the lease
 *	  and the mark.
 *
 * IDENTIFICATION
 *	  src/sweep/claim.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "portability/instr_time.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "session/session.h"
#include "sweep/source.h"

static Statement lock_asked = {
	.sql = "SELECT " SESSION_ROW_COLUMNS " FROM " SESSION_ROW_FROM " "
	"WHERE s.session_id OPERATOR(pg_catalog.=) ANY ($1) "
	"AND (s.lease_until IS NULL OR s.lease_until OPERATOR(pg_catalog.<=) $2) "
	"ORDER BY s.session_id FOR NO KEY UPDATE OF s SKIP LOCKED",
	.nargs = 2,
	.argtypes = {UUIDARRAYOID, TIMESTAMPTZOID},
};

static Statement providers_of = {
	.sql = "SELECT k.place, s.provider "
	"FROM pg_catalog.unnest($1) WITH ORDINALITY AS k(session_id, place) "
	"JOIN payflow.payment_sessions s ON s.session_id OPERATOR(pg_catalog.=) k.session_id",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

/*
 * Of sessions with a refund to be sent, those where another one is under way,
 * or is held by somebody who may be about to send it.  What the work source
 * knows of others is as old as its snapshot; from here on they are locked.
 */
static Statement lock_other_refunds = {
	.sql = "WITH locked AS MATERIALIZED (SELECT b.session_id, b.status FROM payflow.operations b "
	"WHERE b.session_id OPERATOR(pg_catalog.=) ANY ($1) AND b.kind = 'refund' "
	"AND b.status IN ('pending', 'sent', 'unknown') FOR NO KEY UPDATE SKIP LOCKED) "
	"SELECT k.place FROM pg_catalog.unnest($1) WITH ORDINALITY AS k(session_id, place) "
	"WHERE (SELECT pg_catalog.count(*) FROM locked l WHERE l.session_id OPERATOR(pg_catalog.=) k.session_id "
	"AND l.status = 'pending') OPERATOR(pg_catalog.<>) "
	"(SELECT pg_catalog.count(*) FROM payflow.operations b WHERE b.session_id OPERATOR(pg_catalog.=) k.session_id "
	"AND b.kind = 'refund' AND b.status IN ('pending', 'sent', 'unknown'))",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

/*
 * Makes claims of the sessions that the statement before has locked.
 */
static List *
claim_sessions(uint64 found, const ClaimRequest *request, bool asked, TimestampTz now, List *claims)
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
	lease_sessions(claims, first, request, asked, now);
	return claims;
}

/*
 * Leaves out, from the first-th claim on, refunds that would be sent beside
 * another one of their session, where a provider does not name refunds.
 */
static List *
without_rivals(List *claims, int first)
{
	int			n = list_length(claims);
	pg_uuid_t  *sessions = palloc_array(pg_uuid_t, n);
	Claim	  **refunds = palloc_array(Claim *, n);
	int			n_refunds = 0;
	Datum		values[1];
	uint64		found;

	for (int i = first; i < n; i++)
	{
		Claim	   *claim = list_nth(claims, i);

		if (claim->call != CALL_REFUND || claim->payment->operation->first_sent_at != 0)
			continue;
		sessions[n_refunds] = claim->payment->session_id;
		refunds[n_refunds++] = claim;
	}
	if (n_refunds == 0)
		return claims;
	values[0] = uuid_array(sessions, n_refunds);
	found = run(&lock_other_refunds, values, NULL);
	for (uint64 i = 0; i < found; i++)
		claims = list_delete_ptr(claims, refunds[result_int64(i, 1) - 1]);
	return claims;
}

/*
 * Makes claims of the operations that were locked, each with its session.
 */
static List *
claim_operations(uint64 found, const ClaimRequest *request, TimestampTz now, List *claims)
{
	int			first = list_length(claims);

	if (found == 0)
		return claims;
	for (uint64 i = 0; i < found; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		Claim	   *claim = palloc0_object(Claim);

		claim->payment = payment_row_read(tuple, SPI_tuptable->tupdesc);
		claim->payment->operation = operation_row_read(tuple, SPI_tuptable->tupdesc, PAYMENT_ROW_NCOLUMNS);
		claim->call = operation_next_call(claim->payment, request->terms, now, &claim->local);
		claims = lappend(claims, claim);
	}
	if (!request->terms->names_refunds)
		claims = without_rivals(claims, first);
	if (list_length(claims) > first)
		lease_operations(claims, first, request, now);
	return claims;
}

static void
look_at_first(WorkSourceId source, ClaimRequest *request)
{
	Datum		values[2];
	instr_time	begin;
	instr_time	end;

	values[0] = CStringGetTextDatum(request->provider);
	values[1] = TimestampTzGetDatum(request->from);
	INSTR_TIME_SET_CURRENT(begin);
	request->first_alarm = run(&work_sources[source].first, values, NULL) == 1 ? result_time(0, 1) : DT_NOEND;
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, begin);
	request->look_time = (int64) INSTR_TIME_GET_MICROSEC(end);
}

List *
claim_due(WorkSourceId source, ClaimRequest *request, int max, int passed, List *claims, TimestampTz *next_due)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		of_operations = source == SOURCE_OPERATIONS;
	Datum		values[7];
	uint64		found;

	request->has_taken = false;
	/* mostly there is nothing: a look at the first alarm costs a tenth of the statement that takes rows */
	look_at_first(source, request);
	if (request->first_alarm > now)
	{
		*next_due = Min(*next_due, request->first_alarm);
		return claims;
	}

	values[0] = CStringGetTextDatum(request->provider);
	values[1] = TimestampTzGetDatum(now);
	values[2] = Int64GetDatum(max);
	values[3] = Int64GetDatum(passed);
	values[4] = TimestampTzGetDatum(request->from);
	values[5] = BoolGetDatum(request->terms->names_refunds);
	values[6] = BoolGetDatum(request->never_sent_is_believed);
	found = run(&work_sources[source].due, values, NULL);
	request->has_taken = found > 0 &&
		result_uuid(0, of_operations ? PAYMENT_ROW_NCOLUMNS + 1 : 1, &request->taken_id);
	if (of_operations)
		claims = claim_operations(found, request, now, claims);
	else
		claims = claim_sessions(found, request, false, now, claims);

	/* a full batch: there may be more that is due, no need to look further */
	if (found >= (uint64) max)
		*next_due = Min(*next_due, now);
	else if (run(&work_sources[source].next, values, NULL) == 1)
		*next_due = Min(*next_due, result_time(0, 1));
	return claims;
}

List *
claim_asked(const ClaimRequest *request, const pg_uuid_t *session_ids, int n, List *claims)
{
	TimestampTz now = GetCurrentTimestamp();
	Datum		values[2];

	values[0] = uuid_array(session_ids, n);
	values[1] = TimestampTzGetDatum(now);
	return claim_sessions(run(&lock_asked, values, NULL), request, true, now, claims);
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
