/*-------------------------------------------------------------------------
 *
 * state.c
 *	  The transition table, and the triggers that hold raw statements to it.
 *
 * IDENTIFICATION
 *	  src/session/state.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/spi.h"
#include "session/session.h"
#include "shared/shared.h"

#define TO(status) (1 << STATUS_##status)

/*
 * The moves between statuses; a live status may also stay as it is.  The view
 * state_machine and the trigger below are drawn from this table.
 */
static const uint16 transitions[STATUS_COUNT] = {
	[STATUS_REGISTERING] = TO(REGISTERED) | TO(UNKNOWN) | TO(AUTHORIZED) | TO(COMPLETED) |
	TO(CANCELING) | TO(FAILED) | TO(CANCELED),
	[STATUS_UNKNOWN] = TO(REGISTERING) | TO(REGISTERED) | TO(AUTHORIZED) | TO(COMPLETED) |
	TO(CANCELING) | TO(FAILED) | TO(CANCELED),
	[STATUS_REGISTERED] = TO(AUTHORIZED) | TO(COMPLETED) | TO(CANCELING) | TO(FAILED) | TO(CANCELED),
	[STATUS_AUTHORIZED] = TO(COMPLETED) | TO(CANCELING) | TO(FAILED) | TO(CANCELED),
	[STATUS_CANCELING] = TO(CANCELED) | TO(COMPLETED) | TO(FAILED),
};

bool
transition_allowed(SessionStatus from, SessionStatus to)
{
	if (from == to)
		return true;
	return (transitions[from] & (1 << to)) != 0;
}

PG_FUNCTION_INFO_V1(payflow_state_machine_rows);
PG_FUNCTION_INFO_V1(payflow_session_guard);
PG_FUNCTION_INFO_V1(payflow_orders_guard);
PG_FUNCTION_INFO_V1(payflow_refuse_change);

/*
 * SRF behind the view state_machine: the moves, and the live statuses that may
 * stay, one row a pair.
 */
Datum
payflow_state_machine_rows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSet(fcinfo);
	for (int from = 0; from < STATUS_COUNT; from++)
	{
		for (int to = 0; to < STATUS_COUNT; to++)
		{
			Datum		values[2];
			bool		nulls[2] = {false, false};

			if (from == to ? status_is_final(from) : !transition_allowed(from, to))
				continue;
			values[0] = CStringGetTextDatum(status_name(from));
			values[1] = CStringGetTextDatum(status_name(to));
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}

/* the two versions of a row that a trigger sees */
typedef struct RowPair
{
	TupleDesc	tupdesc;
	HeapTuple	old;
	HeapTuple	new;
} RowPair;

static Datum
column(RowPair *rows, HeapTuple tuple, const char *name, bool *isnull)
{
	int			attnum = SPI_fnumber(rows->tupdesc, name);

	if (attnum <= 0)
		elog(ERROR, "column \"%s\" does not exist", name);
	return heap_getattr(tuple, attnum, rows->tupdesc, isnull);
}

static bool
column_changed(RowPair *rows, const char *name)
{
	int			attnum = SPI_fnumber(rows->tupdesc, name);
	bool		old_null;
	bool		new_null;
	Datum		old_value;
	Datum		new_value;
	Form_pg_attribute attribute;

	if (attnum <= 0)
		elog(ERROR, "column \"%s\" does not exist", name);
	attribute = TupleDescAttr(rows->tupdesc, attnum - 1);
	old_value = heap_getattr(rows->old, attnum, rows->tupdesc, &old_null);
	new_value = heap_getattr(rows->new, attnum, rows->tupdesc, &new_null);
	if (old_null || new_null)
		return old_null != new_null;
	return !datum_image_eq(old_value, new_value, attribute->attbyval, attribute->attlen);
}

static void
refuse_changed_columns(RowPair *rows, const char *const *names, int n, const char *why)
{
	for (int i = 0; i < n; i++)
	{
		if (column_changed(rows, names[i]))
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("column \"%s\" must not be changed", names[i]),
					 errdetail("%s", why)));
	}
}

static SessionStatus
status_of(RowPair *rows, HeapTuple tuple)
{
	bool		isnull;
	Datum		value = column(rows, tuple, "status", &isnull);

	return status_from_name(TextDatumGetCString(value));
}

static void
check_trigger_call(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function can only be called as a trigger")));
}

/*
 * Refuses what the transition table does not list and changes of what is
 * fixed.
 */
static void
guard_session_update(RowPair *rows)
{
	static const char *const fixed[] = {
		"session_id", "merchant", "order_id", "amount", "currency", "provider", "capture", "created_at"
	};
	static const char *const sent[] = {
		"endpoint", "account", "return_url", "description", "customer", "receipt"
	};
	SessionStatus from = status_of(rows, rows->old);
	SessionStatus to = status_of(rows, rows->new);
	bool		was_unsent;
	bool		is_unsent;

	refuse_changed_columns(rows, fixed, lengthof(fixed), "It is fixed when the session is created.");

	column(rows, rows->old, "first_sent_at", &was_unsent);
	column(rows, rows->new, "first_sent_at", &is_unsent);
	if (!was_unsent && !is_unsent)
		refuse_changed_columns(rows, sent, lengthof(sent), "It is fixed once Register may have been sent.");

	if (!transition_allowed(from, to) ||
		(from == STATUS_REGISTERING && to == STATUS_CANCELED && !was_unsent))
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("payment session cannot go from \"%s\" to \"%s\"", status_name(from), status_name(to)),
				 errhint("The view payflow.state_machine lists the moves that are allowed.")));
}

/*
 * BEFORE INSERT OR UPDATE on payment_sessions.  Besides guarding, it notes
 * whom to tell at commit: waiters of the session when callers can see a
 * change, workers when an alarm was set.
 */
Datum
payflow_session_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	RowPair		rows;
	bool		isnull;

	check_trigger_call(fcinfo);
	rows.tupdesc = RelationGetDescr(trigger->tg_relation);
	rows.old = trigger->tg_trigtuple;

	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
	{
		wake_workers_at_commit();
		return PointerGetDatum(trigger->tg_trigtuple);
	}

	rows.new = trigger->tg_newtuple;
	guard_session_update(&rows);

	if (column_changed(&rows, "updated_at") || column_changed(&rows, "status"))
		tell_waiters_at_commit(DatumGetUUIDP(column(&rows, rows.new, "session_id", &isnull)));
	if (my_worker_slot() < 0 &&
		(column_changed(&rows, "next_action_at") || column_changed(&rows, "lease_until")))
		wake_workers_at_commit();
	return PointerGetDatum(rows.new);
}

/*
 * BEFORE UPDATE on orders: the key never changes, and an order that had its
 * receipt is never open again.
 */
Datum
payflow_orders_guard(PG_FUNCTION_ARGS)
{
	static const char *const fixed[] = {"merchant", "order_id", "created_at"};
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	RowPair		rows;
	bool		was_open;

	check_trigger_call(fcinfo);
	rows.tupdesc = RelationGetDescr(trigger->tg_relation);
	rows.old = trigger->tg_trigtuple;
	rows.new = trigger->tg_newtuple;
	refuse_changed_columns(&rows, fixed, lengthof(fixed), "It is fixed when the order is first seen.");
	column(&rows, rows.old, "paid_session_id", &was_open);
	if (!was_open && column_changed(&rows, "paid_session_id"))
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("the receipt of an order cannot be taken away or replaced")));
	return PointerGetDatum(rows.new);
}

/*
 * For what is only ever added to: refuses any statement that reaches it.
 */
Datum
payflow_refuse_change(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	const char *verb;

	check_trigger_call(fcinfo);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		verb = "updated";
	else if (TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		verb = "deleted";
	else
		verb = "truncated";
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("rows of \"%s.%s\" cannot be %s",
					get_namespace_name(RelationGetNamespace(trigger->tg_relation)),
					RelationGetRelationName(trigger->tg_relation), verb),
			 errhint("Money history is only ever added to.")));
	return (Datum) 0;			/* keep compiler quiet */
}
