/*-------------------------------------------------------------------------
 *
 * running.c
 *	  Reads the running session of an order, for create()'s first look.
 *
 *	  Not by a statement: this is all that a replay does, and the look of each
 *	  create() that finds nothing.
 *
 * IDENTIFICATION
 *	  src/api/running.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/api.h"
#include "lib/compat.h"
#include "lib/lookup.h"

/* how the field of a PaymentRow is made from a column */
typedef enum FieldKind
{
	FIELD_TEXT,
	FIELD_INT64,
	FIELD_BOOL,
	FIELD_TIME
} FieldKind;

/* what is copied as it is: a column's name is that of the field */
#define COPIED_FIELDS(FIELD) \
	FIELD(FIELD_INT64, amount) \
	FIELD(FIELD_TEXT, currency) \
	FIELD(FIELD_TEXT, provider) \
	FIELD(FIELD_TIME, next_action_at) \
	FIELD(FIELD_TIME, expires_at) \
	FIELD(FIELD_TIME, created_at) \
	FIELD(FIELD_TIME, updated_at) \
	FIELD(FIELD_INT64, authorized_amount) \
	FIELD(FIELD_INT64, captured_amount) \
	FIELD(FIELD_INT64, refunded_amount) \
	FIELD(FIELD_INT64, disputed_amount) \
	FIELD(FIELD_INT64, reversed_amount) \
	FIELD(FIELD_INT64, suspense_amount) \
	FIELD(FIELD_INT64, refundable_amount) \
	FIELD(FIELD_BOOL, cancel_lost) \
	FIELD(FIELD_TEXT, provider_payment_id) \
	FIELD(FIELD_TEXT, redirect_url) \
	FIELD(FIELD_TEXT, failure_code) \
	FIELD(FIELD_TEXT, failure_message)
#define KIND_AND_PLACE(kind, name) {kind, offsetof(PaymentRow, name)},
#define COLUMN_NAME(kind, name) #name,

static const struct
{
	FieldKind	kind;
	size_t		offset;
}			copied_fields[] = {COPIED_FIELDS(KIND_AND_PLACE)};

enum
{
	SESSION_ID = lengthof(copied_fields),
	SESSION_CAPTURE,
	SESSION_STATUS,
	SESSION_STAGE,
	SESSION_NCOLUMNS
};

/* the index holds live sessions only */
static Lookup session_of_order = {
	.table = "payment_sessions",
	.index = "ux_payment_active_order",
	.nkeys = 2,
	.ncolumns = SESSION_NCOLUMNS,
	.columns = {COPIED_FIELDS(COLUMN_NAME) "session_id", "capture", "status", "stage"}
};

enum
{
	ORDER_STATUS,
	ORDER_PAID_SESSION_ID
};

static Lookup order_by_id = {
	.table = "orders",
	.index = "orders_pkey",
	.nkeys = 2,
	.ncolumns = 2,
	.columns = {"status", "paid_session_id"}
};

static void
copy_field(PaymentRow *row, int i)
{
	char	   *field = (char *) row + copied_fields[i].offset;
	bool		isnull;
	Datum		value;

	if (copied_fields[i].kind == FIELD_TEXT)
	{
		*(char **) field = lookup_text(&session_of_order, i);
		return;
	}
	value = lookup_datum(&session_of_order, i, &isnull);
	if (copied_fields[i].kind == FIELD_INT64)
		*(int64 *) field = isnull ? 0 : DatumGetInt64(value);
	else if (copied_fields[i].kind == FIELD_BOOL)
		*(bool *) field = isnull ? false : DatumGetBool(value);
	else
		*(TimestampTz *) field = isnull ? 0 : DatumGetTimestampTz(value);
}

static void
read_session(PaymentRow *row)
{
	bool		isnull;

	for (size_t i = 0; i < lengthof(copied_fields); i++)
		copy_field(row, i);
	row->session_id = *DatumGetUUIDP(lookup_datum(&session_of_order, SESSION_ID, &isnull));
	row->manual_capture = strcmp(lookup_text(&session_of_order, SESSION_CAPTURE), "manual") == 0;
	row->status = status_from_name(lookup_text(&session_of_order, SESSION_STATUS));
	row->stage = stage_from_name(lookup_text(&session_of_order, SESSION_STAGE));
}

static void
read_order(PaymentRow *row)
{
	bool		isnull;
	Datum		paid_session = lookup_datum(&order_by_id, ORDER_PAID_SESSION_ID, &isnull);

	row->order_status = order_status_from_name(lookup_text(&order_by_id, ORDER_STATUS));
	row->order_receipt_is_ours = !isnull &&
		memcmp(DatumGetUUIDP(paid_session), &row->session_id, UUID_LEN) == 0;
}

PaymentRow *
running_session(const char *merchant, const char *order_id, Snapshot snapshot)
{
	PaymentRow *row = palloc0_object(PaymentRow);
	Datum		keys[2];
	bool		found;

	keys[0] = CStringGetTextDatum(merchant);
	keys[1] = CStringGetTextDatum(order_id);
	found = lookup_begin(&session_of_order, keys, snapshot);
	if (found)
		read_session(row);
	lookup_end(&session_of_order);
	if (!found || status_is_final(row->status))
		return NULL;

	row->merchant = pstrdup(merchant);
	row->order_id = pstrdup(order_id);
	found = lookup_begin(&order_by_id, keys, snapshot);
	if (found)
		read_order(row);
	lookup_end(&order_by_id);
	return found ? row : NULL;
}
