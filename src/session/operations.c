/*-------------------------------------------------------------------------
 *
 * operations.c
 *	  Writes operations, and what the provider reports that it did.
 *
 * IDENTIFICATION
 *	  src/session/operations.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/rowset.h"
#include "lib/spi.h"
#include "session/decide.h"

static Statement add_operations = {
	.sql = "INSERT INTO payflow.operations (operation_id, session_id, merchant, order_id, provider, kind, amount, "
	"currency, source, idempotency_key, next_action_at, ask_due, reason, receipt, discrepancy_id, created_at, updated_at) "
	"SELECT o.operation_id, o.session_id, o.merchant, o.order_id, o.provider, o.kind, o.amount, o.currency, o.source, "
	"o.idempotency_key, o.next_action_at, o.ask_due, o.reason, o.receipt::pg_catalog.jsonb, o.discrepancy_id, $16, $16 "
	"FROM ROWS FROM (" UNNEST_15 ") AS o(operation_id, session_id, merchant, order_id, provider, kind, amount, "
	"currency, source, idempotency_key, next_action_at, ask_due, reason, receipt, discrepancy_id)",
	.nargs = 16,
	.argtypes = {UUIDARRAYOID, UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID,
		TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, BOOLARRAYOID, TEXTARRAYOID, TEXTARRAYOID,
	INT8ARRAYOID, TIMESTAMPTZOID},
};

static const Oid add_types[] = {
	UUIDOID, UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, BOOLOID,
	TEXTOID, TEXTOID, INT8OID
};

static Statement change_operations = {
	.sql = "UPDATE payflow.operations op SET status = u.status, idempotency_key = u.idempotency_key, "
	"next_action_at = u.next_action_at, lease_until = u.lease_until, lease_token = u.lease_token, "
	"attempts = u.attempts, first_sent_at = u.first_sent_at, ask_due = u.ask_due, "
	"unresolved_since = u.unresolved_since, provider_ref = u.provider_ref, total_before = u.total_before, "
	"failure_code = u.failure_code, failure_message = u.failure_message, updated_at = u.updated_at, "
	"settled_by = COALESCE(u.settled_by, op.settled_by), note = COALESCE(u.note, op.note) "
	"FROM ROWS FROM (" UNNEST_17 ") AS u(operation_id, status, idempotency_key, next_action_at, lease_until, "
	"lease_token, attempts, first_sent_at, ask_due, unresolved_since, provider_ref, total_before, failure_code, "
	"failure_message, updated_at, settled_by, note) "
	"WHERE op.operation_id OPERATOR(pg_catalog.=) u.operation_id",
	.nargs = 17,
	.argtypes = {UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID,
		INT4ARRAYOID, TIMESTAMPTZARRAYOID, BOOLARRAYOID, TIMESTAMPTZARRAYOID, TEXTARRAYOID, INT8ARRAYOID, TEXTARRAYOID,
	TEXTARRAYOID, TIMESTAMPTZARRAYOID, TEXTARRAYOID, TEXTARRAYOID},
};

static const Oid change_types[] = {
	UUIDOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT4OID, TIMESTAMPTZOID, BOOLOID,
	TIMESTAMPTZOID, TEXTOID, INT8OID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TEXTOID, TEXTOID
};

static Statement add_facts = {
	.sql = "INSERT INTO payflow.provider_operations (provider_operation_id, provider, kind, ref, step, session_id, "
	"amount, absorbed_amount, currency, event_at) "
	"SELECT * FROM ROWS FROM (" UNNEST_10 ")",
	.nargs = 10,
	.argtypes = {UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, UUIDARRAYOID, INT8ARRAYOID,
	INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID},
};

static const Oid fact_types[] = {
	UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, UUIDOID, INT8OID, INT8OID, TEXTOID, TIMESTAMPTZOID
};

static void
put_int64_or_null(RowSet *rows, int64 value, bool isnull)
{
	if (isnull)
		put_null(rows);
	else
		put_int64(rows, value);
}

static void
put_new(RowSet *rows, const OperationRow *operation, const PaymentRow *payment)
{
	const char *source = NULL;

	Assert(operation->status == OPERATION_PENDING);
	if (operation->kind == OPERATION_REFUND)
		source = operation->from_suspense ? "suspense" : "receipt";
	put_uuid(rows, &operation->operation_id);
	put_uuid(rows, &operation->session_id);
	put_text(rows, payment->merchant);
	put_text(rows, payment->order_id);
	put_text(rows, payment->provider);
	put_text(rows, operation_kind_name(operation->kind));
	put_int64_or_null(rows, operation->amount, operation->amount == 0);
	put_text(rows, operation->currency);
	put_text(rows, source);
	put_text(rows, operation->idempotency_key);
	put_time(rows, operation->next_action_at);
	put_bool(rows, operation->ask_due);
	put_text(rows, operation->reason);
	put_text(rows, operation->receipt);
	put_int64_or_null(rows, operation->discrepancy_id, operation->discrepancy_id == 0);
}

static void
put_changed(RowSet *rows, const OperationRow *operation, const Outcome *outcome)
{
	/* only the operation that he spoke of was settled by a person */
	bool		by_person = operation->settled_by_person && outcome->kind == OUTCOME_REFUND_DECIDED;

	put_uuid(rows, &operation->operation_id);
	put_text(rows, operation_status_name(operation->status));
	put_text(rows, operation->idempotency_key);
	put_time(rows, operation->next_action_at);
	put_time(rows, operation->lease_until);
	put_int64_or_null(rows, operation->lease_token, operation->lease_token == 0);
	put_int32(rows, operation->attempts);
	put_time(rows, operation->first_sent_at);
	put_bool(rows, operation->ask_due);
	put_time(rows, operation->unresolved_since);
	put_text(rows, operation->provider_ref);
	put_int64_or_null(rows, operation->total_before, operation->total_before < 0);
	put_text(rows, operation->failure_code);
	put_text(rows, operation->failure_message);
	put_time(rows, operation->updated_at);
	put_text(rows, by_person ? GetUserNameFromId(GetSessionUserId(), true) : NULL);
	put_text(rows, by_person ? outcome->reason : NULL);
}

static int
count_operations(const Effects *effects, int n)
{
	int			total = 0;

	for (int i = 0; i < n; i++)
		total += list_length(effects[i].operations);
	return total;
}

void
write_operations(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n, TimestampTz now)
{
	int			total = count_operations(effects, n);
	RowSet	   *added;
	RowSet	   *changed;
	Datum		values[Max(lengthof(add_types) + 1, lengthof(change_types))];

	if (total == 0)
		return;
	added = rowset_make(add_types, lengthof(add_types), total);
	changed = rowset_make(change_types, lengthof(change_types), total);
	for (int i = 0; i < n; i++)
	{
		ListCell   *cell;

		foreach(cell, effects[i].operations)
		{
			const OperationRow *operation = lfirst(cell);

			if (operation->is_new)
				put_new(added, operation, payments[i]);
			else
				put_changed(changed, operation, outcomes[i]);
		}
	}
	/* what is settled first makes room for what is new */
	if (rowset_count(changed) > 0)
	{
		rowset_arrays(changed, values);
		if (run(&change_operations, values, NULL) != (uint64) rowset_count(changed))
			elog(ERROR, "a locked operation could not be updated");
	}
	if (rowset_count(added) > 0)
	{
		rowset_arrays(added, values);
		values[lengthof(add_types)] = TimestampTzGetDatum(now);
		(void) run(&add_operations, values, NULL);
	}
}

void
write_facts(PaymentRow **payments, const Effects *effects, int n)
{
	int			total = 0;
	RowSet	   *rows;
	Datum		values[lengthof(fact_types)];

	for (int i = 0; i < n; i++)
		total += list_length(effects[i].facts);
	if (total == 0)
		return;
	rows = rowset_make(fact_types, lengthof(fact_types), total);
	for (int i = 0; i < n; i++)
	{
		ListCell   *cell;

		foreach(cell, effects[i].facts)
		{
			const ProviderFact *fact = lfirst(cell);

			put_uuid(rows, &fact->id);
			put_text(rows, payments[i]->provider);
			put_text(rows, fact->kind);
			put_text(rows, fact->ref);
			put_text(rows, fact->step);
			put_uuid(rows, &payments[i]->session_id);
			put_int64(rows, fact->amount);
			put_int64(rows, fact->absorbed);
			put_text(rows, fact->currency);
			put_time(rows, fact->event_at);
		}
	}
	rowset_arrays(rows, values);
	(void) run(&add_facts, values, NULL);
}
