/*-------------------------------------------------------------------------
 *
 * operation_row.c
 *	  Reads a row of operations, in the order of OPERATION_ROW_COLUMNS.
 *
 * IDENTIFICATION
 *	  src/lib/operation_row.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/compat.h"
#include "lib/operation_row.h"
#include "lib/tuple_reader.h"

OperationRow *
operation_row_read(HeapTuple tuple, TupleDesc tupdesc, int skip)
{
	OperationRow *row = palloc0_object(OperationRow);
	TupleReader reader = read_tuple(tuple, tupdesc, skip);
	char	   *source;
	char	   *settled_by;

	(void) next_uuid(&reader, &row->operation_id);
	(void) next_uuid(&reader, &row->session_id);
	row->kind = operation_kind_from_name(next_text(&reader));
	row->status = operation_status_from_name(next_text(&reader));
	row->amount = next_int64(&reader);
	row->currency = next_text(&reader);
	source = next_text(&reader);
	row->from_suspense = source != NULL && strcmp(source, "suspense") == 0;
	row->idempotency_key = next_text(&reader);
	row->next_action_at = next_time(&reader);
	row->lease_until = next_time(&reader);
	row->lease_token = next_int64(&reader);
	row->attempts = next_int32(&reader);
	row->first_sent_at = next_time(&reader);
	row->ask_due = next_bool(&reader);
	row->unresolved_since = next_time(&reader);
	row->provider_ref = next_text(&reader);
	row->total_before = reader.nulls[reader.next] ? (reader.next++, -1) : next_int64(&reader);
	row->failure_code = next_text(&reader);
	row->failure_message = next_text(&reader);
	row->reason = next_text(&reader);
	row->receipt = next_text(&reader);
	settled_by = next_text(&reader);
	row->settled_by_person = settled_by != NULL;
	row->discrepancy_id = next_int64(&reader);
	row->created_at = next_time(&reader);
	row->updated_at = next_time(&reader);
	Assert(reader.next == skip + OPERATION_ROW_NCOLUMNS);
	return row;
}
