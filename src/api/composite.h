/*-------------------------------------------------------------------------
 *
 * composite.h
 *	  Composites that calls return, filled by the names of their attributes.
 *
 *	  While the library and the extension's version in a database differ, an
 *	  attribute that this library does not know is null.
 *
 * IDENTIFICATION
 *	  src/api/composite.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_COMPOSITE_H
#define PAYFLOW_COMPOSITE_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

#include "api/api.h"

#define MAX_FIELDS 32

typedef struct Field
{
	const char *name;
	Datum		value;
	bool		isnull;
} Field;

/* begins empty: {0} */
typedef struct FieldList
{
	int			n;
	Field		fields[MAX_FIELDS];
} FieldList;

/* Null are: a NULL text, a time of 0. */
extern void field_text(FieldList *list, const char *name, const char *value);
extern void field_int64(FieldList *list, const char *name, int64 value);
extern void field_int32(FieldList *list, const char *name, int32 value);
extern void field_bool(FieldList *list, const char *name, bool value);
extern void field_time(FieldList *list, const char *name, TimestampTz value);
extern void field_uuid(FieldList *list, const char *name, const pg_uuid_t *value);	/* keeps the pointer */

/*
 * The composite that the SQL function is declared to return, in the current
 * memory context; and as a value in the call's result context.  One function
 * always lists its fields in the same order.
 */
extern HeapTuple composite_tuple(FunctionCallInfo fcinfo, const FieldList *list);
extern Datum composite_datum(FunctionCallInfo fcinfo, const ApiCall *call, const FieldList *list);

#endif							/* PAYFLOW_COMPOSITE_H */
