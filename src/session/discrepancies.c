/*-------------------------------------------------------------------------
 *
 * discrepancies.c
 *	  Opens discrepancies, and closes them by a policy, a person or a fact.
 *
 * IDENTIFICATION
 *	  src/session/discrepancies.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "lib/compat.h"
#include "lib/json.h"
#include "lib/spi.h"
#include "session/decide.h"

#define BY_POLICY "the merchant's late_payment policy"

/* the same finding again is the same discrepancy, unless it is about new money */
static Statement add_discrepancy = {
	.sql = "INSERT INTO payflow.discrepancies (kind, session_id, provider, expected, actual, amount, currency, "
	"status, resolution, resolved_at, resolved_by, note) "
	"SELECT $1, $2, $3, $4::pg_catalog.jsonb, $5::pg_catalog.jsonb, $6, $7, "
	"CASE WHEN $8 IS NULL THEN 'open' ELSE 'resolved' END, $8, "
	"CASE WHEN $8 IS NOT NULL THEN pg_catalog.clock_timestamp() END, "
	"CASE WHEN $8 IS NOT NULL THEN 'payflow' END, CASE WHEN $8 IS NOT NULL THEN $9 END "
	"WHERE $6 IS NOT NULL OR NOT EXISTS (SELECT FROM payflow.discrepancies d "
	"WHERE d.kind OPERATOR(pg_catalog.=) $1 AND d.session_id OPERATOR(pg_catalog.=) $2 "
	"AND d.actual OPERATOR(pg_catalog.=) $5::pg_catalog.jsonb) "
	"RETURNING id",
	.nargs = 9,
	.argtypes = {TEXTOID, UUIDOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, TEXTOID, TEXTOID, TEXTOID},
};

static Statement decide_one = {
	.sql = "UPDATE payflow.discrepancies SET status = 'resolved', resolution = $2, "
	"resolved_at = pg_catalog.clock_timestamp(), resolved_by = $3, note = $4 "
	"WHERE id OPERATOR(pg_catalog.=) $1 AND status OPERATOR(pg_catalog.=) 'open'",
	.nargs = 4,
	.argtypes = {INT8OID, TEXTOID, TEXTOID, TEXTOID},
};

static Statement close_gone = {
	.sql = "UPDATE payflow.discrepancies SET status = 'resolved', resolution = 'refund', "
	"resolved_at = pg_catalog.clock_timestamp(), resolved_by = 'payflow', "
	"note = 'the provider has taken or given back the money' "
	"WHERE session_id OPERATOR(pg_catalog.=) $1 AND status OPERATOR(pg_catalog.=) 'open' "
	"AND currency::pg_catalog.text OPERATOR(pg_catalog.=) $2",
	.nargs = 2,
	.argtypes = {UUIDOID, TEXTOID},
};

static Statement reopen = {
	.sql = "UPDATE payflow.discrepancies SET status = 'open', resolution = NULL, resolved_at = NULL, "
	"resolved_by = NULL WHERE id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {INT8OID},
};

static Statement refund_instead = {
	.sql = "UPDATE payflow.discrepancies SET resolution = 'refund' WHERE id OPERATOR(pg_catalog.=) $1 "
	"AND status OPERATOR(pg_catalog.=) 'resolved'",
	.nargs = 1,
	.argtypes = {INT8OID},
};

/*
 * As it was agreed, and what is booked where that is what does not fit.
 */
static char *
expected_json(const PaymentRow *payment, const char *kind)
{
	StringInfoData buf;

	initStringInfo(&buf);
	json_open_object(&buf);
	json_put_int64(&buf, "amount", payment->amount);
	json_put_string(&buf, "currency", payment->currency);
	if (payment->captured_amount > 0)
		json_put_int64(&buf, "captured", payment->captured_amount);
	if (strcmp(kind, "refund_missing") == 0)
		json_put_int64(&buf, "refunded", payment->refunded_amount);
	json_close_object(&buf);
	return buf.data;
}

static char *
actual_json(const Outcome *outcome)
{
	StringInfoData buf;

	initStringInfo(&buf);
	json_open_object(&buf);
	if (outcome->captured >= 0)
		json_put_int64(&buf, "captured", outcome->captured);
	if (outcome->authorized >= 0)
		json_put_int64(&buf, "authorized", outcome->authorized);
	if (outcome->refunded > 0)
		json_put_int64(&buf, "refunded", outcome->refunded);
	if (outcome->disputed > 0)
		json_put_int64(&buf, "disputed", outcome->disputed);
	json_put_string(&buf, "currency", outcome->currency[0] != '\0' ? outcome->currency : NULL);
	json_put_string(&buf, "provider_payment_id", outcome->provider_payment_id);
	json_close_object(&buf);
	return buf.data;
}

static void
write_finding(const PaymentRow *payment, const Outcome *outcome, Finding *finding)
{
	Datum		values[9];
	char		nulls[10] = "         ";

	values[0] = CStringGetTextDatum(finding->kind);
	values[1] = UUIDPGetDatum(&payment->session_id);
	values[2] = CStringGetTextDatum(payment->provider);
	values[3] = CStringGetTextDatum(expected_json(payment, finding->kind));
	values[4] = CStringGetTextDatum(actual_json(outcome));
	values[5] = Int64GetDatum(finding->amount);
	values[6] = CStringGetTextDatum(finding->currency);
	values[7] = finding->resolution ? CStringGetTextDatum(finding->resolution) : (Datum) 0;
	values[8] = CStringGetTextDatum(BY_POLICY);
	if (finding->amount == 0)
		nulls[5] = nulls[6] = 'n';
	if (finding->resolution == NULL)
		nulls[7] = 'n';
	if (run(&add_discrepancy, values, nulls) == 1 && finding->operation != NULL)
		finding->operation->discrepancy_id = result_int64(0, 1);
}

void
write_findings(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n)
{
	for (int i = 0; i < n; i++)
	{
		ListCell   *cell;

		foreach(cell, effects[i].findings)
			write_finding(payments[i], outcomes[i], lfirst(cell));
	}
}

static void
decide_by_person(const Outcome *outcome)
{
	Datum		values[4];

	values[0] = Int64GetDatum(outcome->discrepancy_id);
	values[1] = CStringGetTextDatum(outcome->resolution);
	values[2] = CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), true));
	values[3] = CStringGetTextDatum(outcome->reason);
	(void) run(&decide_one, values, NULL);
}

/* For the discrepancy of each of these operations. */
static void
run_for_each(Statement *statement, List *operations)
{
	ListCell   *cell;

	foreach(cell, operations)
	{
		Datum		values[1] = {Int64GetDatum(((const OperationRow *) lfirst(cell))->discrepancy_id)};

		(void) run(statement, values, NULL);
	}
}

void
settle_findings(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n)
{
	for (int i = 0; i < n; i++)
	{
		Datum		values[2];

		if (outcomes[i]->kind == OUTCOME_DISCREPANCY_DECIDED)
			decide_by_person(outcomes[i]);
		if (effects[i].suspense_gone != NULL)
		{
			values[0] = UUIDPGetDatum(&payments[i]->session_id);
			values[1] = CStringGetTextDatum(effects[i].suspense_gone);
			(void) run(&close_gone, values, NULL);
		}
		run_for_each(&reopen, effects[i].reopened);
		run_for_each(&refund_instead, effects[i].refunded_instead);
	}
}
