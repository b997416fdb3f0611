/*-------------------------------------------------------------------------
 *
 * composite.c
 *	  Forms the composites that calls return.
 *
 * IDENTIFICATION
 *	  src/api/composite.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/composite.h"
#include "lib/compat.h"

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

void
field_text(FieldList *list, const char *name, const char *value)
{
	put(list, name, value == NULL ? (Datum) 0 : CStringGetTextDatum(value), value == NULL);
}

void
field_int64(FieldList *list, const char *name, int64 value)
{
	put(list, name, Int64GetDatum(value), false);
}

void
field_int32(FieldList *list, const char *name, int32 value)
{
	put(list, name, Int32GetDatum(value), false);
}

void
field_bool(FieldList *list, const char *name, bool value)
{
	put(list, name, BoolGetDatum(value), false);
}

void
field_time(FieldList *list, const char *name, TimestampTz value)
{
	put(list, name, TimestampTzGetDatum(value), value == 0);
}

void
field_uuid(FieldList *list, const char *name, const pg_uuid_t *value)
{
	put(list, name, UUIDPGetDatum(value), false);
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
composite_tuple(FunctionCallInfo fcinfo, const FieldList *list)
{
	const Shape *shape = get_shape(fcinfo, list);
	Datum	   *values = palloc0_array(Datum, shape->tupdesc->natts);
	bool	   *nulls = palloc_array(bool, shape->tupdesc->natts);

	for (int i = 0; i < shape->tupdesc->natts; i++)
	{
		int			field = shape->fields[i];

		nulls[i] = field < 0 || list->fields[field].isnull;
		if (!nulls[i])
			values[i] = list->fields[field].value;
	}
	return heap_form_tuple(shape->tupdesc, values, nulls);
}

Datum
composite_datum(FunctionCallInfo fcinfo, const ApiCall *call, const FieldList *list)
{
	MemoryContext old_context = MemoryContextSwitchTo(call->result_context);
	Datum		result = HeapTupleGetDatum(composite_tuple(fcinfo, list));

	MemoryContextSwitchTo(old_context);
	return result;
}
