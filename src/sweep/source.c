/*-------------------------------------------------------------------------
 *
 * source.c
 *	  The work sources: where due work is found.
 *
 *	  Each has a partial index over live rows that leads with the provider.
 *	  The status lists are literal: a list in a parameter could not use it.
 *
 * IDENTIFICATION
 *	  src/sweep/source.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "sweep/source.h"

#define DUE_AND_FREE(row) \
	row ".provider OPERATOR(pg_catalog.=) $1 AND " row ".next_action_at OPERATOR(pg_catalog.<=) $2 " \
	"AND (" row ".lease_until IS NULL OR " row ".lease_until OPERATOR(pg_catalog.<=) $2) "

/* ---- putting off ---- */

#define POSTPONE(rows, id, row, condition) { \
	.sql = "UPDATE " rows " SET next_action_at = $2 OPERATOR(pg_catalog.+) $4, " \
	"unresolved_since = COALESCE(unresolved_since, $2) " \
	"WHERE " id " OPERATOR(pg_catalog.=) ANY (ARRAY(" \
	"SELECT " row "." id " FROM " rows " " row " WHERE " condition " AND " DUE_AND_FREE(row) \
	"ORDER BY " row ".next_action_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED))", \
	.nargs = 4, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID, INT8OID, INTERVALOID}, \
}

/* no alarm: it has come to its end meanwhile */
#define POSTPONE_ONE(rows, id) { \
	.sql = "UPDATE " rows " SET next_action_at = $2 OPERATOR(pg_catalog.+) $3, " \
	"unresolved_since = COALESCE(unresolved_since, $2) " \
	"WHERE " id " OPERATOR(pg_catalog.=) ANY (ARRAY(" \
	"SELECT r." id " FROM " rows " r WHERE r." id " OPERATOR(pg_catalog.=) $1 " \
	"AND r.next_action_at OPERATOR(pg_catalog.<=) $2 FOR NO KEY UPDATE SKIP LOCKED))", \
	.nargs = 3, \
	.argtypes = {UUIDOID, TIMESTAMPTZOID, INTERVALOID}, \
}

/* ---- sessions ---- */

#define TO_REGISTER	"s.status = 'registering'"
#define TO_ASK		"s.status IN ('registered', 'unknown', 'authorized', 'canceling') AND NOT s.expiring"
#define TO_EXPIRE	"s.expiring"

#define SESSIONS_DUE(condition) { \
	.sql = "SELECT " SESSION_ROW_COLUMNS " FROM " SESSION_ROW_FROM " " \
	"WHERE " condition " AND " DUE_AND_FREE("s") "AND s.next_action_at OPERATOR(pg_catalog.>=) $5 " \
	"ORDER BY s.next_action_at LIMIT $3 OFFSET $4 FOR NO KEY UPDATE OF s SKIP LOCKED", \
	.nargs = 5, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID, TIMESTAMPTZOID}, \
}

#define SESSIONS_FIRST(condition) { \
	.sql = "SELECT s.next_action_at FROM payflow.payment_sessions s " \
	"WHERE s.provider OPERATOR(pg_catalog.=) $1 AND " condition " " \
	"AND s.next_action_at OPERATOR(pg_catalog.>=) $2 ORDER BY s.next_action_at LIMIT 1", \
	.nargs = 2, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID}, \
}

#define SESSIONS_NEXT(condition) { \
	.sql = "SELECT s.next_action_at FROM payflow.payment_sessions s " \
	"WHERE s.provider OPERATOR(pg_catalog.=) $1 AND " condition " " \
	"AND s.next_action_at OPERATOR(pg_catalog.>) $2 " \
	"ORDER BY s.next_action_at LIMIT 1", \
	.nargs = 2, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID}, \
}

#define SESSIONS(condition) SESSIONS_FIRST(condition), SESSIONS_DUE(condition), SESSIONS_NEXT(condition), \
	POSTPONE("payflow.payment_sessions", "session_id", "s", condition), \
	POSTPONE_ONE("payflow.payment_sessions", "session_id")

/* ---- operations ---- */

#define UNSETTLED(row) row ".status IN ('pending', 'sent', 'unknown')"

/*
 * Another refund of the session goes first.  Where a refund can be proven only
 * by the payment's total, one at a time may be under way, and the others wait
 * in pending for their turn, in the order of their ids.
 */
#define REFUND_GOES_FIRST \
	"(op.status = 'pending' AND b.status <> 'pending' " \
	"OR b.operation_id OPERATOR(pg_catalog.<) op.operation_id AND (op.status = 'pending' OR b.status <> 'pending'))"

/*
 * What has to be settled first: a capture before it is reversed, a Reverse
 * before money is given back, which it may have been given back by.  OFFSET 0
 * keeps this a probe of the session's few operations.
 */
#define WAITS_FOR_ANOTHER \
	"EXISTS (SELECT 1 FROM payflow.operations b " \
	"WHERE b.session_id OPERATOR(pg_catalog.=) op.session_id " \
	"AND b.operation_id OPERATOR(pg_catalog.<>) op.operation_id AND " UNSETTLED("b") " " \
	"AND CASE op.kind WHEN 'reverse' THEN b.kind = 'capture' " \
	"WHEN 'refund' THEN b.kind = 'reverse' OR b.kind = 'refund' AND NOT $6 AND " REFUND_GOES_FIRST " " \
	"ELSE false END OFFSET 0)"

/*
 * Only the operation is locked: what its session says is looked at again when
 * the answer is applied.  Accept and after_look are never sent: they have no
 * mark that could be missing.
 */
#define OPERATIONS_DUE { \
	.sql = "SELECT p.*, " OPERATION_ROW_COLUMNS " FROM payflow.operations op " \
	"CROSS JOIN LATERAL (SELECT " SESSION_ROW_COLUMNS " FROM " SESSION_ROW_FROM " " \
	"WHERE s.session_id OPERATOR(pg_catalog.=) op.session_id OFFSET 0) p " \
	"WHERE " UNSETTLED("op") " AND " DUE_AND_FREE("op") \
	"AND op.next_action_at OPERATOR(pg_catalog.>=) $5 " \
	"AND ($7 OR op.status <> 'pending' OR op.kind IN ('accept', 'after_look')) " \
	"AND NOT " WAITS_FOR_ANOTHER " " \
	"ORDER BY op.next_action_at LIMIT $3 OFFSET $4 FOR NO KEY UPDATE OF op SKIP LOCKED", \
	.nargs = 7, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID, TIMESTAMPTZOID, BOOLOID, BOOLOID}, \
}

#define OPERATIONS_FIRST { \
	.sql = "SELECT op.next_action_at FROM payflow.operations op " \
	"WHERE op.provider OPERATOR(pg_catalog.=) $1 AND " UNSETTLED("op") " " \
	"AND op.next_action_at OPERATOR(pg_catalog.>=) $2 ORDER BY op.next_action_at LIMIT 1", \
	.nargs = 2, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID}, \
}

#define OPERATIONS_NEXT { \
	.sql = "SELECT op.next_action_at FROM payflow.operations op " \
	"WHERE op.provider OPERATOR(pg_catalog.=) $1 AND " UNSETTLED("op") " " \
	"AND op.next_action_at OPERATOR(pg_catalog.>) $2 " \
	"ORDER BY op.next_action_at LIMIT 1", \
	.nargs = 2, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID}, \
}

WorkSource	work_sources[WORK_SOURCES] = {
	[SOURCE_REGISTER] = {QUEUE_PAYMENTS, SESSIONS(TO_REGISTER)},
	[SOURCE_ASK] = {QUEUE_STATUS, SESSIONS(TO_ASK)},
	[SOURCE_EXPIRE] = {QUEUE_MONEY, SESSIONS(TO_EXPIRE)},
	[SOURCE_OPERATIONS] = {QUEUE_MONEY, OPERATIONS_FIRST, OPERATIONS_DUE, OPERATIONS_NEXT,
		POSTPONE("payflow.operations", "operation_id", "op", UNSETTLED("op")),
	POSTPONE_ONE("payflow.operations", "operation_id")},
};

Queue
work_source_queue(WorkSourceId source)
{
	return work_sources[source].queue;
}

/* ---- providers ---- */

/* one probe of the index a provider, however many rows each has */
#define PROVIDERS_OF(name, rows, row, condition) \
	name "(provider) AS (" \
	"(SELECT " row ".provider FROM " rows " " row " WHERE " condition " ORDER BY " row ".provider LIMIT 1) " \
	"UNION ALL SELECT (SELECT " row ".provider FROM " rows " " row " WHERE " condition " " \
	"AND " row ".provider OPERATOR(pg_catalog.>) " name ".provider ORDER BY " row ".provider LIMIT 1) " \
	"FROM " name " WHERE " name ".provider IS NOT NULL)"

static Statement live_providers = {
	.sql = "WITH RECURSIVE "
	PROVIDERS_OF("a", "payflow.payment_sessions", "s", TO_REGISTER) ", "
	PROVIDERS_OF("b", "payflow.payment_sessions", "s", TO_ASK) ", "
	PROVIDERS_OF("c", "payflow.payment_sessions", "s", TO_EXPIRE) ", "
	PROVIDERS_OF("d", "payflow.operations", "op", UNSETTLED("op")) " "
	"SELECT provider FROM a WHERE provider IS NOT NULL "
	"UNION SELECT provider FROM b WHERE provider IS NOT NULL "
	"UNION SELECT provider FROM c WHERE provider IS NOT NULL "
	"UNION SELECT provider FROM d WHERE provider IS NOT NULL",
	.nargs = 0,
};

List *
providers_with_live_work(void)
{
	List	   *names = NIL;
	uint64		found = run(&live_providers, NULL, NULL);

	for (uint64 i = 0; i < found; i++)
		names = lappend(names, result_text(i, 1));
	return names;
}

void
postpone_due(WorkSourceId source, const char *provider, const Interval *pause, int max)
{
	Datum		values[4];

	values[0] = CStringGetTextDatum(provider);
	values[1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[2] = Int64GetDatum(max);
	values[3] = IntervalPGetDatum(pause);
	(void) run(&work_sources[source].postpone, values, NULL);
}

void
postpone_one(WorkSourceId source, const pg_uuid_t *id, const Interval *pause)
{
	Datum		values[3];

	values[0] = UUIDPGetDatum(id);
	values[1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[2] = IntervalPGetDatum(pause);
	(void) run(&work_sources[source].postpone_one, values, NULL);
}
