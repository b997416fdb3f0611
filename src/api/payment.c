/*-------------------------------------------------------------------------
 *
 * payment.c
 *	  Forms the composite payflow.payment.
 *
 *	  It is filled by the names of its attributes: while the library and the
 *	  extension's version in a database differ, an attribute that this library
 *	  does not know is null.
 *
 * IDENTIFICATION
 *	  src/api/payment.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/api.h"
#include "lib/compat.h"

#define MAX_FIELDS 32

typedef struct Field
{
	const char *name;
	Datum		value;
	bool		isnull;
} Field;

typedef struct FieldList
{
	int			n;
	Field		fields[MAX_FIELDS];
} FieldList;

/* kept in fn_extra: which field goes to which attribute, -1: none */
typedef struct Shape
{
	TupleDesc	tupdesc;
	int		   *fields;
} Shape;

static void
put(FieldList *list, const char *name, Datum value, bool isnull)
{
	Field	   *field = &list->fields[list->n++];

	Assert(list->n <= MAX_FIELDS);
	field->name = name;
	field->value = value;
	field->isnull = isnull;
}

static void
put_text(FieldList *list, const char *name, const char *value)
{
	put(list, name, value == NULL ? (Datum) 0 : CStringGetTextDatum(value), value == NULL);
}

static void
put_int64(FieldList *list, const char *name, int64 value)
{
	put(list, name, Int64GetDatum(value), false);
}

static void
put_bool(FieldList *list, const char *name, bool value)
{
	put(list, name, BoolGetDatum(value), false);
}

static void
put_time(FieldList *list, const char *name, TimestampTz value)
{
	put(list, name, TimestampTzGetDatum(value), value == 0);
}

/*
 * The order's receipt is this session's money, and not all of it has gone
 * back.  The totals are the provider's, so their sum might overflow.
 */
static bool
is_paid(const PaymentRow *row)
{
	return row->order_receipt_is_ours &&
		row->captured_amount - row->refunded_amount > row->disputed_amount;
}

static void
list_fields(FieldList *list, const PaymentRow *row, bool replayed, int http_status)
{
	list->n = 0;
	put(list, "session_id", UUIDPGetDatum(&row->session_id), false);
	put_text(list, "merchant", row->merchant);
	put_text(list, "order_id", row->order_id);
	put_int64(list, "amount", row->amount);
	put_text(list, "currency", row->currency);
	put_text(list, "provider", row->provider);
	put_text(list, "status", status_name(row->status));
	put_text(list, "stage", stage_name(row->stage));
	put_bool(list, "paid", is_paid(row));
	put_text(list, "redirect_url", row->redirect_url);
	put_text(list, "provider_payment_id", row->provider_payment_id);
	put_int64(list, "authorized_amount", row->authorized_amount);
	put_int64(list, "captured_amount", row->captured_amount);
	put_int64(list, "refunded_amount", row->refunded_amount);
	put_int64(list, "disputed_amount", row->disputed_amount);
	put_int64(list, "suspense_amount", row->suspense_amount);
	put_int64(list, "refundable_amount", row->refundable_amount);
	put_text(list, "order_status", order_status_name(row->order_status));
	put_text(list, "failure_code", row->failure_code);
	put_text(list, "failure_message", row->failure_message);
	put_time(list, "next_action_at", row->next_action_at);
	put_time(list, "expires_at", row->expires_at);
	put_time(list, "created_at", row->created_at);
	put_time(list, "updated_at", row->updated_at);
	put_bool(list, "replayed", replayed);
	put(list, "http_status", Int32GetDatum(http_status), false);
}

/*
 * Finds the place of each field in the function's result type, once for all
 * calls of an expression.
 */
static const Shape *
get_shape(FunctionCallInfo fcinfo, const FieldList *list)
{
	Shape	   *shape = fcinfo->flinfo->fn_extra;
	MemoryContext old_context;

	if (shape != NULL)
		return shape;

	old_context = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	shape = palloc_object(Shape);
	if (get_call_result_type(fcinfo, NULL, &shape->tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "function is not declared to return a composite type");
	shape->fields = palloc_array(int, shape->tupdesc->natts);
	for (int i = 0; i < shape->tupdesc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(shape->tupdesc, i);
		int			field = -1;

		for (int j = 0; j < list->n && !attribute->attisdropped; j++)
		{
			/* most often the fields are in the attributes' order */
			int			candidate = (i + j) % list->n;

			if (strcmp(list->fields[candidate].name, NameStr(attribute->attname)) == 0)
			{
				field = candidate;
				break;
			}
		}
		shape->fields[i] = field;
	}
	MemoryContextSwitchTo(old_context);

	fcinfo->flinfo->fn_extra = shape;
	return shape;
}

HeapTuple
payment_tuple(FunctionCallInfo fcinfo, const PaymentRow *row, bool replayed, int http_status)
{
	FieldList	list;
	const Shape *shape;
	Datum	   *values;
	bool	   *nulls;

	list_fields(&list, row, replayed, http_status);
	shape = get_shape(fcinfo, &list);
	values = palloc0_array(Datum, shape->tupdesc->natts);
	nulls = palloc_array(bool, shape->tupdesc->natts);
	for (int i = 0; i < shape->tupdesc->natts; i++)
	{
		int			field = shape->fields[i];

		nulls[i] = field < 0 || list.fields[field].isnull;
		if (!nulls[i])
			values[i] = list.fields[field].value;
	}
	return heap_form_tuple(shape->tupdesc, values, nulls);
}

Datum
payment_datum(FunctionCallInfo fcinfo, const ApiCall *call, const PaymentRow *row,
			  bool replayed, int http_status)
{
	MemoryContext old_context = MemoryContextSwitchTo(call->result_context);
	Datum		result = HeapTupleGetDatum(payment_tuple(fcinfo, row, replayed, http_status));

	MemoryContextSwitchTo(old_context);
	return result;
}

int
http_status_of(const PaymentRow *row)
{
	return status_in_progress(row->status) ? 202 : 200;
}
