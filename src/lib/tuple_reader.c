/*-------------------------------------------------------------------------
 *
 * tuple_reader.c
 *	  Takes the columns of a tuple one after the other.
 *
 * IDENTIFICATION
 *	  src/lib/tuple_reader.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/tuple_reader.h"

TupleReader
read_tuple(HeapTuple tuple, TupleDesc tupdesc, int skip)
{
	TupleReader reader;

	reader.values = palloc_array(Datum, tupdesc->natts);
	reader.nulls = palloc_array(bool, tupdesc->natts);
	reader.next = skip;
	heap_deform_tuple(tuple, tupdesc, reader.values, reader.nulls);
	return reader;
}

char *
next_text(TupleReader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? NULL : TextDatumGetCString(reader->values[i]);
}

int64
next_int64(TupleReader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? 0 : DatumGetInt64(reader->values[i]);
}

int32
next_int32(TupleReader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? 0 : DatumGetInt32(reader->values[i]);
}

bool
next_bool(TupleReader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? false : DatumGetBool(reader->values[i]);
}

TimestampTz
next_time(TupleReader *reader)
{
	int			i = reader->next++;

	return reader->nulls[i] ? 0 : DatumGetTimestampTz(reader->values[i]);
}

Interval *
next_interval(TupleReader *reader)
{
	int			i = reader->next++;
	Interval   *copy;

	if (reader->nulls[i])
		return NULL;
	copy = palloc_object(Interval);
	*copy = *DatumGetIntervalP(reader->values[i]);
	return copy;
}

bool
next_uuid(TupleReader *reader, pg_uuid_t *uuid)
{
	int			i = reader->next++;

	if (!reader->nulls[i])
		*uuid = *DatumGetUUIDP(reader->values[i]);
	return !reader->nulls[i];
}

void
next_tid(TupleReader *reader, ItemPointer tid)
{
	int			i = reader->next++;

	if (reader->nulls[i])
		ItemPointerSetInvalid(tid);
	else
		*tid = *(ItemPointer) DatumGetPointer(reader->values[i]);
}
