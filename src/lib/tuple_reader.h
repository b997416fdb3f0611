/*-------------------------------------------------------------------------
 *
 * tuple_reader.h
 *	  Takes the columns of a tuple one after the other: what a select list
 *	  names in an order is read in the same order.
 *
 * IDENTIFICATION
 *	  src/lib/tuple_reader.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_TUPLE_READER_H
#define PAYFLOW_TUPLE_READER_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "utils/uuid.h"

typedef struct TupleReader
{
	Datum	   *values;
	bool	   *nulls;
	int			next;
} TupleReader;

/* Begins after `skip` columns. */
extern TupleReader read_tuple(HeapTuple tuple, TupleDesc tupdesc, int skip);

/* Nulls are NULL, 0 and false; strings and intervals are copies. */
extern char *next_text(TupleReader *reader);
extern int64 next_int64(TupleReader *reader);
extern int32 next_int32(TupleReader *reader);
extern bool next_bool(TupleReader *reader);
extern TimestampTz next_time(TupleReader *reader);
extern Interval *next_interval(TupleReader *reader);
extern bool next_uuid(TupleReader *reader, pg_uuid_t *uuid);	/* false for null */
extern void next_tid(TupleReader *reader, ItemPointer tid);	/* invalid for null */

#endif							/* PAYFLOW_TUPLE_READER_H */
