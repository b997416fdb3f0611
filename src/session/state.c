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
 * SRF behind the view state_machine: the moves, one row a pair.
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

			if (from == to || !transition_allowed(from, to))
				continue;
			values[0] = CStringGetTextDatum(status_name(from));
			values[1] = CStringGetTextDatum(status_name(to));
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}

/*
 * The columns that the guards look at.  Their places are looked up by name once
 * a statement: an upgrade may have added columns in another order.
 */
typedef enum GuardedColumn
{
	/* of payment_sessions */
	COL_SESSION_ID,
	COL_MERCHANT,
	COL_ORDER_ID,
	COL_AMOUNT,
	COL_CURRENCY,
	COL_PROVIDER,
	COL_CAPTURE,
	COL_CREATED_AT,
	COL_ENDPOINT,
	COL_ACCOUNT,
	COL_RETURN_URL,
	COL_DESCRIPTION,
	COL_CUSTOMER,
	COL_RECEIPT,
	COL_STATUS,
	COL_FIRST_SENT_AT,
	COL_UPDATED_AT,
	COL_NEXT_ACTION_AT,
	COL_LEASE_UNTIL,
	COL_PROVIDER_PAYMENT_ID,
	/* of orders */
	COL_PAID_SESSION_ID,
	COL_COUNT
} GuardedColumn;

#define FIXED_IN_SESSION_FIRST COL_SESSION_ID
#define FIXED_IN_SESSION_LAST COL_CREATED_AT
#define FIXED_ONCE_SENT_FIRST COL_ENDPOINT
#define FIXED_ONCE_SENT_LAST COL_RECEIPT

static const char *const column_names[COL_COUNT] = {
	"session_id", "merchant", "order_id", "amount", "currency", "provider", "capture", "created_at",
	"endpoint", "account", "return_url", "description", "customer", "receipt",
	"status", "first_sent_at", "updated_at", "next_action_at", "lease_until", "provider_payment_id",
	"paid_session_id"
};

/* kept for one statement's calls of a trigger */
typedef struct GuardState
{
	TupleDesc	tupdesc;
	int			attnums[COL_COUNT]; /* 0: not in this table */
	Datum	   *old_values;
	bool	   *old_nulls;
	Datum	   *new_values;
	bool	   *new_nulls;
} GuardState;

/*
 * Takes both versions of the row apart.
 */
static GuardState *
guard_begin(FunctionCallInfo fcinfo, TriggerData *trigger)
{
	GuardState *state = fcinfo->flinfo->fn_extra;
	TupleDesc	tupdesc = RelationGetDescr(trigger->tg_relation);

	if (state == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		state = palloc0_object(GuardState);
		for (int i = 0; i < COL_COUNT; i++)
			state->attnums[i] = Max(SPI_fnumber(tupdesc, column_names[i]), 0);
		state->old_values = palloc_array(Datum, tupdesc->natts);
		state->old_nulls = palloc_array(bool, tupdesc->natts);
		state->new_values = palloc_array(Datum, tupdesc->natts);
		state->new_nulls = palloc_array(bool, tupdesc->natts);
		fcinfo->flinfo->fn_extra = state;
		MemoryContextSwitchTo(old);
	}
	state->tupdesc = tupdesc;
	heap_deform_tuple(trigger->tg_trigtuple, tupdesc, state->old_values, state->old_nulls);
	heap_deform_tuple(trigger->tg_newtuple, tupdesc, state->new_values, state->new_nulls);
	return state;
}

static int
column_place(const GuardState *state, GuardedColumn column)
{
	if (state->attnums[column] == 0)
		elog(ERROR, "column \"%s\" does not exist", column_names[column]);
	return state->attnums[column] - 1;
}

static bool
column_changed(const GuardState *state, GuardedColumn column)
{
	int			i = column_place(state, column);
	Form_pg_attribute attribute = TupleDescAttr(state->tupdesc, i);

	if (state->old_nulls[i] || state->new_nulls[i])
		return state->old_nulls[i] != state->new_nulls[i];
	return !datum_image_eq(state->old_values[i], state->new_values[i], attribute->attbyval, attribute->attlen);
}

static void
refuse_changed_columns(const GuardState *state, GuardedColumn first, GuardedColumn last, const char *why)
{
	for (int column = first; column <= (int) last; column++)
	{
		if (column_changed(state, column))
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("column \"%s\" must not be changed", column_names[column]),
					 errdetail("%s", why)));
	}
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
guard_session_update(const GuardState *state)
{
	int			status = column_place(state, COL_STATUS);
	int			first_sent = column_place(state, COL_FIRST_SENT_AT);
	SessionStatus from = status_from_name(TextDatumGetCString(state->old_values[status]));
	SessionStatus to = status_from_name(TextDatumGetCString(state->new_values[status]));
	bool		was_sent = !state->old_nulls[first_sent];
	bool		provider_knows = !state->new_nulls[column_place(state, COL_PROVIDER_PAYMENT_ID)];

	refuse_changed_columns(state, FIXED_IN_SESSION_FIRST, FIXED_IN_SESSION_LAST,
						   "It is fixed when the session is created.");
	if (was_sent && !state->new_nulls[first_sent])
		refuse_changed_columns(state, FIXED_ONCE_SENT_FIRST, FIXED_ONCE_SENT_LAST,
							   "It is fixed once Register may have been sent.");

	if (!transition_allowed(from, to) ||
		(from == STATUS_REGISTERING && to == STATUS_CANCELED && was_sent && !provider_knows))
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
	GuardState *state;

	check_trigger_call(fcinfo);
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
	{
		wake_workers_at_commit();
		return PointerGetDatum(trigger->tg_trigtuple);
	}

	state = guard_begin(fcinfo, trigger);
	guard_session_update(state);

	if (column_changed(state, COL_UPDATED_AT) || column_changed(state, COL_STATUS))
		tell_waiters_at_commit(DatumGetUUIDP(state->new_values[column_place(state, COL_SESSION_ID)]));
	if (my_worker_slot() < 0 &&
		(column_changed(state, COL_NEXT_ACTION_AT) || column_changed(state, COL_LEASE_UNTIL)))
		wake_workers_at_commit();
	return PointerGetDatum(trigger->tg_newtuple);
}

/*
 * BEFORE UPDATE on orders: the key never changes, and an order that had its
 * receipt is never open again.
 */
Datum
payflow_orders_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	GuardState *state;

	check_trigger_call(fcinfo);
	state = guard_begin(fcinfo, trigger);
	refuse_changed_columns(state, COL_MERCHANT, COL_ORDER_ID, "It is fixed when the order is first seen.");
	refuse_changed_columns(state, COL_CREATED_AT, COL_CREATED_AT, "It is fixed when the order is first seen.");
	if (!state->old_nulls[column_place(state, COL_PAID_SESSION_ID)] && column_changed(state, COL_PAID_SESSION_ID))
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("the receipt of an order cannot be taken away or replaced")));
	return PointerGetDatum(trigger->tg_newtuple);
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
