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

#include "lib/compat.h"
#include "lib/payment_row.h"
#include "sweep/source.h"

#define SESSIONS_DUE(condition) { \
	.sql = "SELECT " PAYMENT_ROW_COLUMNS " FROM " PAYMENT_ROW_FROM " " \
	"WHERE s.provider OPERATOR(pg_catalog.=) $1 AND " condition " " \
	"AND s.next_action_at OPERATOR(pg_catalog.<=) $2 " \
	"AND (s.lease_until IS NULL OR s.lease_until OPERATOR(pg_catalog.<=) $2) " \
	"ORDER BY s.next_action_at LIMIT $3 OFFSET $4 FOR NO KEY UPDATE OF s SKIP LOCKED", \
	.nargs = 4, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID}, \
}

#define SESSIONS_NEXT(condition) { \
	.sql = "SELECT s.next_action_at FROM payflow.payment_sessions s " \
	"WHERE s.provider OPERATOR(pg_catalog.=) $1 AND " condition " " \
	"AND s.next_action_at OPERATOR(pg_catalog.>) $2 " \
	"ORDER BY s.next_action_at LIMIT 1", \
	.nargs = 2, \
	.argtypes = {TEXTOID, TIMESTAMPTZOID}, \
}

#define TO_REGISTER	"s.status = 'registering'"
#define TO_ASK		"s.status IN ('registered', 'unknown', 'authorized', 'canceling') AND NOT s.expiring"
#define TO_EXPIRE	"s.expiring"

WorkSource	work_sources[] = {
	{QUEUE_PAYMENTS, SESSIONS_DUE(TO_REGISTER), SESSIONS_NEXT(TO_REGISTER)},
	{QUEUE_STATUS, SESSIONS_DUE(TO_ASK), SESSIONS_NEXT(TO_ASK)},
	{QUEUE_MONEY, SESSIONS_DUE(TO_EXPIRE), SESSIONS_NEXT(TO_EXPIRE)},
};

const int	n_work_sources = lengthof(work_sources);
