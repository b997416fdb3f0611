/*-------------------------------------------------------------------------
 *
 * operation_guard.c
 *	  The trigger on operations: binds commands to what they may move, and
 *	  keeps the session's reserved amount.
 *
 *	  Whoever inserts a command around the API meets the same limits.  A
 *	  restored row brings its limit with it and is taken as it is.
 *
 * IDENTIFICATION
 *	  src/session/operation_guard.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/spi.h"
#include "session/session.h"
#include "shared/shared.h"

/* what commands may still move, with the session locked */
static Statement session_limits = {
	.sql = "SELECT s.authorized_amount, s.refundable_amount, "
	"COALESCE((SELECT pg_catalog.sum(CASE WHEN a.kind OPERATOR(pg_catalog.=) 'suspense' THEN e.amount "
	"ELSE OPERATOR(pg_catalog.-) e.amount END) "
	"FROM payflow.accounting_entries e "
	"JOIN payflow.accounts a ON a.account_id OPERATOR(pg_catalog.=) e.credit_account "
	"JOIN payflow.accounts b ON b.account_id OPERATOR(pg_catalog.=) e.debit_account "
	"WHERE e.session_id OPERATOR(pg_catalog.=) s.session_id AND e.currency::pg_catalog.text OPERATOR(pg_catalog.=) $2 "
	"AND (a.kind OPERATOR(pg_catalog.=) 'suspense' OR b.kind OPERATOR(pg_catalog.=) 'suspense')), 0)::pg_catalog.int8 "
	"OPERATOR(pg_catalog.-) "
	"COALESCE((SELECT pg_catalog.sum(o.amount) FROM payflow.operations o "
	"WHERE o.session_id OPERATOR(pg_catalog.=) s.session_id AND o.kind OPERATOR(pg_catalog.=) 'refund' "
	"AND o.source OPERATOR(pg_catalog.=) 'suspense' AND o.currency::pg_catalog.text OPERATOR(pg_catalog.=) $2 "
	"AND o.status IN ('pending', 'sent', 'unknown')), 0)::pg_catalog.int8 "
	"FROM payflow.payment_sessions s WHERE s.session_id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE OF s",
	.nargs = 2,
	.argtypes = {UUIDOID, TEXTOID},
};

static Statement reserve = {
	.sql = "UPDATE payflow.payment_sessions s SET reserved_amount = s.reserved_amount OPERATOR(pg_catalog.+) $2 "
	"WHERE s.session_id OPERATOR(pg_catalog.=) $1",
	.nargs = 2,
	.argtypes = {UUIDOID, INT8OID},
};

PG_FUNCTION_INFO_V1(payflow_operation_guard);

static const char *const fixed_columns[] = {
	"operation_id", "session_id", "merchant", "order_id", "provider", "kind", "amount", "currency", "source",
	"created_xid", "created_at"
};

static Datum
column(HeapTuple tuple, TupleDesc tupdesc, const char *name, bool *isnull)
{
	return SPI_getbinval(tuple, tupdesc, SPI_fnumber(tupdesc, name), isnull);
}

static char *
text_column(HeapTuple tuple, TupleDesc tupdesc, const char *name)
{
	bool		isnull;
	Datum		value = column(tuple, tupdesc, name, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

static int64
int64_column(HeapTuple tuple, TupleDesc tupdesc, const char *name)
{
	bool		isnull;
	Datum		value = column(tuple, tupdesc, name, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

static Datum
session_of(HeapTuple tuple, TupleDesc tupdesc)
{
	bool		isnull;

	return column(tuple, tupdesc, "session_id", &isnull);
}

static bool
is_refund_of_receipt(HeapTuple tuple, TupleDesc tupdesc)
{
	char	   *source = text_column(tuple, tupdesc, "source");

	return source != NULL && strcmp(source, "receipt") == 0;
}

static OperationStatus
status_of(HeapTuple tuple, TupleDesc tupdesc)
{
	return operation_status_from_name(text_column(tuple, tupdesc, "status"));
}

static void
add_to_reserved(HeapTuple tuple, TupleDesc tupdesc, int64 amount)
{
	Datum		values[2] = {session_of(tuple, tupdesc), Int64GetDatum(amount)};

	(void) run(&reserve, values, NULL);
}

/*
 * What the command may move at most.  False: it has no limit.
 */
static bool
limit_of(HeapTuple tuple, TupleDesc tupdesc, int64 *limit)
{
	char	   *kind = text_column(tuple, tupdesc, "kind");
	char	   *currency = text_column(tuple, tupdesc, "currency");
	Datum		values[2];

	if (kind == NULL || currency == NULL || (strcmp(kind, "capture") != 0 && strcmp(kind, "refund") != 0))
		return false;
	values[0] = session_of(tuple, tupdesc);
	values[1] = CStringGetTextDatum(currency);
	if (run(&session_limits, values, NULL) == 0)
		return false;			/* the foreign key says so better */
	if (strcmp(kind, "capture") == 0)
		*limit = result_int64(0, 1);
	else
		*limit = Max(result_int64(0, is_refund_of_receipt(tuple, tupdesc) ? 2 : 3), 0);
	return true;
}

/*
 * Binds a new command, or a refund that is given once more, to its limit.
 */
static HeapTuple
bind_command(HeapTuple tuple, TupleDesc tupdesc)
{
	int			column_number = SPI_fnumber(tupdesc, "limit_amount");
	int64		limit;
	Datum		value;
	bool		isnull = false;

	if (!limit_of(tuple, tupdesc, &limit))
		return tuple;
	value = Int64GetDatum(limit);
	tuple = heap_modify_tuple_by_cols(tuple, tupdesc, 1, &column_number, &value, &isnull);
	if (is_refund_of_receipt(tuple, tupdesc) && int64_column(tuple, tupdesc, "amount") <= limit)
		add_to_reserved(tuple, tupdesc, int64_column(tuple, tupdesc, "amount"));
	return tuple;
}

static void
refuse_changes(HeapTuple old, HeapTuple new, TupleDesc tupdesc)
{
	for (size_t i = 0; i < lengthof(fixed_columns); i++)
	{
		bool		old_isnull;
		bool		new_isnull;
		Datum		old_value = column(old, tupdesc, fixed_columns[i], &old_isnull);
		Datum		new_value = column(new, tupdesc, fixed_columns[i], &new_isnull);
		Form_pg_attribute attribute = TupleDescAttr(tupdesc, SPI_fnumber(tupdesc, fixed_columns[i]) - 1);

		if (old_isnull == new_isnull &&
			(old_isnull || datum_image_eq(old_value, new_value, attribute->attbyval, attribute->attlen)))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("column \"%s\" must not be changed", fixed_columns[i]),
				 errdetail("It is fixed when the operation is created.")));
	}
}

/*
 * Succeeded money can come back (failed); what has failed can only be given
 * once more, as new.
 */
static void
refuse_moves(OperationStatus from, OperationStatus to)
{
	bool		allowed = true;

	if (from == OPERATION_SUCCEEDED)
		allowed = to == OPERATION_SUCCEEDED || to == OPERATION_FAILED;
	else if (from == OPERATION_FAILED)
		allowed = to == OPERATION_FAILED || to == OPERATION_PENDING;
	if (!allowed)
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("operation cannot go from \"%s\" to \"%s\"",
						operation_status_name(from), operation_status_name(to))));
}

static HeapTuple
guard_update(HeapTuple old, HeapTuple new, TupleDesc tupdesc)
{
	OperationStatus from = status_of(old, tupdesc);
	OperationStatus to = status_of(new, tupdesc);

	refuse_changes(old, new, tupdesc);
	refuse_moves(from, to);
	if (operation_is_settled(from) && !operation_is_settled(to))
		return bind_command(new, tupdesc);
	if (!operation_is_settled(from) && operation_is_settled(to) && is_refund_of_receipt(new, tupdesc))
		add_to_reserved(new, tupdesc, -int64_column(new, tupdesc, "amount"));
	return new;
}

/*
 * BEFORE INSERT OR UPDATE on operations.
 */
Datum
payflow_operation_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	TupleDesc	tupdesc;
	HeapTuple	tuple;
	bool		isnull;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function can only be called as a trigger")));
	tupdesc = RelationGetDescr(trigger->tg_relation);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
	{
		tuple = trigger->tg_trigtuple;
		(void) column(tuple, tupdesc, "limit_amount", &isnull);
		if (isnull)
			tuple = bind_command(tuple, tupdesc);
		wake_workers_at_commit();
	}
	else
	{
		tuple = guard_update(trigger->tg_trigtuple, trigger->tg_newtuple, tupdesc);
		if (my_worker_slot() < 0)
			wake_workers_at_commit();
	}
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event) ||
		status_of(trigger->tg_trigtuple, tupdesc) != status_of(tuple, tupdesc))
		tell_waiters_at_commit(DatumGetUUIDP(session_of(tuple, tupdesc)));
	if (tuple != trigger->tg_trigtuple && tuple != trigger->tg_newtuple)
		tuple = SPI_copytuple(tuple);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "could not disconnect from SPI");
	return PointerGetDatum(tuple);
}
