/*-------------------------------------------------------------------------
 *
 * timeline.c
 *	  Whether "never sent" can be believed.
 *
 *	  The mark that a call may have been sent is durable before the call.  A
 *	  standby that is promoted may lack the marks of the last moments; a new
 *	  timeline tells.  Then everything that counts as never sent is marked as
 *	  possibly sent before anybody relies on it.
 *
 * IDENTIFICATION
 *	  src/sweep/timeline.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/compat.h"
#include "lib/spi.h"
#include "sweep/sweep.h"

static Statement compare_timelines = {
	.sql = "SELECT t.timeline OPERATOR(pg_catalog.=) c.timeline_id, c.timeline_id "
	"FROM (SELECT ('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name("
	"pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::pg_catalog.bit(32)::pg_catalog.int4 AS timeline_id) c "
	"LEFT JOIN payflow.server_timeline t ON true",
	.nargs = 0,
};

static Statement note_timeline = {
	.sql = "INSERT INTO payflow.server_timeline (timeline) VALUES ($1) "
	"ON CONFLICT (singleton) DO UPDATE SET timeline = EXCLUDED.timeline, noted_at = pg_catalog.now()",
	.nargs = 1,
	.argtypes = {INT4OID},
};

#define SERVER_OPTION(name) \
	"(SELECT o.option_value FROM pg_catalog.pg_foreign_server f, pg_catalog.pg_options_to_table(f.srvoptions) o " \
	"WHERE f.srvname OPERATOR(pg_catalog.=) s.provider AND o.option_name OPERATOR(pg_catalog.=) '" name "')"

/*
 * What a call depends on is fixed with the mark, as always.  Counts those that
 * somebody holds: nobody waits for him.
 */
static Statement mark_sessions_possibly_sent = {
	.sql = "WITH unsent AS (SELECT session_id FROM payflow.payment_sessions "
	"WHERE status = 'registering' AND first_sent_at IS NULL FOR NO KEY UPDATE SKIP LOCKED), "
	"marked AS (UPDATE payflow.payment_sessions s SET first_sent_at = s.created_at, "
	"endpoint = pg_catalog.rtrim(" SERVER_OPTION("endpoint") ", '/'), account = " SERVER_OPTION("account") " "
	"FROM unsent u WHERE s.session_id OPERATOR(pg_catalog.=) u.session_id RETURNING 1) "
	"SELECT (SELECT pg_catalog.count(*) FROM payflow.payment_sessions "
	"WHERE status = 'registering' AND first_sent_at IS NULL) "
	"OPERATOR(pg_catalog.-) (SELECT pg_catalog.count(*) FROM marked)",
	.nargs = 0,
};

/*
 * The provider is asked before such an operation is sent again.  What is never
 * sent needs no mark.
 */
static Statement mark_operations_possibly_sent = {
	.sql = "WITH unsent AS (SELECT operation_id FROM payflow.operations "
	"WHERE status = 'pending' AND kind IN ('capture', 'reverse', 'void', 'refund') FOR NO KEY UPDATE SKIP LOCKED), "
	"marked AS (UPDATE payflow.operations op SET status = 'sent', first_sent_at = op.created_at, ask_due = true "
	"FROM unsent u WHERE op.operation_id OPERATOR(pg_catalog.=) u.operation_id RETURNING 1) "
	"SELECT (SELECT pg_catalog.count(*) FROM payflow.operations "
	"WHERE status = 'pending' AND kind IN ('capture', 'reverse', 'void', 'refund')) "
	"OPERATOR(pg_catalog.-) (SELECT pg_catalog.count(*) FROM marked)",
	.nargs = 0,
};

/*
 * Whether the server's timeline is the noted one; *timeline: the server's.
 */
static bool
is_noted(Datum *timeline)
{
	bool		isnull;
	bool		same;

	(void) run(&compare_timelines, NULL, NULL);
	same = DatumGetBool(result_datum(0, 1, &isnull));
	if (isnull)					/* none was noted yet */
		same = false;
	*timeline = result_datum(0, 2, &isnull);
	return same;
}

bool
timeline_is_noted(void)
{
	Datum		timeline;

	return is_noted(&timeline);
}

/*
 * Returns how many rows are held and so could not be marked.
 */
static int64
mark_all(Statement *mark)
{
	(void) run(mark, NULL, NULL);
	return result_int64(0, 1);
}

bool
reconcile_timeline(void)
{
	Datum		timeline;

	if (is_noted(&timeline))
		return true;

	/*
	 * No row yet: the first worker of a new database.  Marks may only be
	 * missing where sessions were made on another timeline.
	 */
	if (mark_all(&mark_sessions_possibly_sent) + mark_all(&mark_operations_possibly_sent) > 0)
		return false;
	(void) run(&note_timeline, &timeline, NULL);
	return true;
}
