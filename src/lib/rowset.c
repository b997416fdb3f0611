/*-------------------------------------------------------------------------
 *
 * rowset.c
 *	  Many rows as arguments of one statement.
 *
 * IDENTIFICATION
 *	  src/lib/rowset.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/rowset.h"

typedef struct Column
{
	Oid			type;
	Datum	   *values;
	bool	   *nulls;
} Column;

struct RowSet
{
	int			ncolumns;
	int			max_rows;
	int			row;			/* the row at hand */
	int			column;			/* its next column */
	Column	   *columns;
};

RowSet *
rowset_make(const Oid *types, int ncolumns, int max_rows)
{
	RowSet	   *rows = palloc0_object(RowSet);

	rows->ncolumns = ncolumns;
	rows->max_rows = max_rows;
	rows->columns = palloc_array(Column, ncolumns);
	for (int i = 0; i < ncolumns; i++)
	{
		rows->columns[i].type = types[i];
		rows->columns[i].values = palloc_array(Datum, max_rows);
		rows->columns[i].nulls = palloc_array(bool, max_rows);
	}
	return rows;
}

static void
put(RowSet *rows, Oid type pg_attribute_unused(), Datum value, bool isnull)
{
	Column	   *column = &rows->columns[rows->column];

	Assert(rows->row < rows->max_rows);
	Assert(isnull || column->type == type);
	column->values[rows->row] = value;
	column->nulls[rows->row] = isnull;
	if (++rows->column == rows->ncolumns)
	{
		rows->column = 0;
		rows->row++;
	}
}

void
put_text(RowSet *rows, const char *value)
{
	put(rows, TEXTOID, value ? CStringGetTextDatum(value) : (Datum) 0, value == NULL);
}

void
put_time(RowSet *rows, TimestampTz value)
{
	put(rows, TIMESTAMPTZOID, TimestampTzGetDatum(value), value == 0);
}

void
put_int64(RowSet *rows, int64 value)
{
	put(rows, INT8OID, Int64GetDatum(value), false);
}

void
put_int32(RowSet *rows, int32 value)
{
	put(rows, INT4OID, Int32GetDatum(value), false);
}

void
put_bool(RowSet *rows, bool value)
{
	put(rows, BOOLOID, BoolGetDatum(value), false);
}

void
put_uuid(RowSet *rows, const pg_uuid_t *value)
{
	put(rows, UUIDOID, value ? UUIDPGetDatum(value) : (Datum) 0, value == NULL);
}

void
put_jsonb(RowSet *rows, const char *value)
{
	put(rows, JSONBOID, value ? DirectFunctionCall1(jsonb_in, CStringGetDatum(value)) : (Datum) 0, value == NULL);
}

void
put_microseconds(RowSet *rows, int64 value)
{
	Interval   *interval = palloc0_object(Interval);

	interval->time = value;
	put(rows, INTERVALOID, IntervalPGetDatum(interval), value < 0);
}

void
put_null(RowSet *rows)
{
	put(rows, InvalidOid, (Datum) 0, true);
}

int
rowset_count(const RowSet *rows)
{
	return rows->row;
}

void
rowset_row(const RowSet *rows, int i, Datum *values, bool *nulls)
{
	for (int j = 0; j < rows->ncolumns; j++)
	{
		values[j] = rows->columns[j].values[i];
		nulls[j] = rows->columns[j].nulls[i];
	}
}

void
rowset_arrays(const RowSet *rows, Datum *values)
{
	int			n = rows->row;
	int			lower_bound = 1;

	Assert(rows->column == 0);
	for (int i = 0; i < rows->ncolumns; i++)
	{
		const Column *column = &rows->columns[i];
		int16		length;
		bool		by_value;
		char		align;

		get_typlenbyvalalign(column->type, &length, &by_value, &align);
		values[i] = PointerGetDatum(construct_md_array(column->values, column->nulls, 1, &n, &lower_bound,
													   column->type, length, by_value, align));
	}
}
