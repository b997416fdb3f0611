/*-------------------------------------------------------------------------
 *
 * books.c
 *	  Reads what is booked about sessions, and sums it up.
 *
 * IDENTIFICATION
 *	  src/session/books.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/rowset.h"
#include "lib/spi.h"
#include "lib/tuple_reader.h"
#include "session/books.h"

#define OPERATIONS_OF \
	"SELECT " OPERATION_ROW_COLUMNS " FROM payflow.operations op " \
	"WHERE op.session_id OPERATOR(pg_catalog.=) ANY ($1) " \
	"ORDER BY op.session_id, op.created_at, op.operation_id FOR NO KEY UPDATE"

static Statement lock_operations = {
	.sql = OPERATIONS_OF " SKIP LOCKED",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

static Statement wait_for_operations = {
	.sql = OPERATIONS_OF,
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

static Statement count_operations = {
	.sql = "SELECT op.session_id, pg_catalog.count(*) FROM payflow.operations op "
	"WHERE op.session_id OPERATOR(pg_catalog.=) ANY ($1) GROUP BY op.session_id",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

static Statement facts_of = {
	.sql = "SELECT f.session_id, f.provider_operation_id, f.kind, f.ref, f.step, f.amount, f.absorbed_amount, "
	"f.currency::pg_catalog.text FROM payflow.provider_operations f "
	"WHERE f.session_id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

static Statement entries_of = {
	.sql = "SELECT e.session_id, e.entry_type, "
	"(SELECT a.kind FROM payflow.accounts a WHERE a.account_id OPERATOR(pg_catalog.=) e.debit_account), "
	"(SELECT a.kind FROM payflow.accounts a WHERE a.account_id OPERATOR(pg_catalog.=) e.credit_account), "
	"e.amount, e.currency::pg_catalog.text, e.operation_id, e.provider_operation_id, "
	"(SELECT f.ref FROM payflow.provider_operations f "
	"WHERE f.provider_operation_id OPERATOR(pg_catalog.=) e.provider_operation_id) "
	"FROM payflow.accounting_entries e WHERE e.session_id OPERATOR(pg_catalog.=) ANY ($1) ORDER BY e.entry_id",
	.nargs = 1,
	.argtypes = {UUIDARRAYOID},
};

static Statement discrepancy_by_id = {
	.sql = "SELECT d.id, d.amount, d.currency::pg_catalog.text FROM payflow.discrepancies d "
	"WHERE d.id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {INT8OID},
};

static Statement late_payment_of = {
	.sql = "SELECT m.late_payment FROM payflow.merchants m WHERE m.id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {TEXTOID},
};

static Statement taken_refs = {
	.sql = "SELECT DISTINCT f.ref FROM payflow.provider_operations f "
	"WHERE f.provider OPERATOR(pg_catalog.=) $1 AND f.kind OPERATOR(pg_catalog.=) ANY ($2) "
	"AND f.ref OPERATOR(pg_catalog.=) ANY ($3) AND f.session_id OPERATOR(pg_catalog.<>) $4",
	.nargs = 4,
	.argtypes = {TEXTOID, TEXTARRAYOID, TEXTARRAYOID, UUIDOID},
};

bool
books_needed(const PaymentRow *payment, const Outcome *outcome)
{
	if (outcome->has_operation || outcome_is_wish(outcome->kind))
		return true;
	if (outcome->refunded > 0 || outcome->disputed > 0 || outcome->n_refunds > 0 || outcome->n_disputes > 0)
		return true;
	return status_is_final(payment->status) || payment->status == STATUS_CANCELING ||
		payment->status == STATUS_AUTHORIZED;
}

static int
place_of(const pg_uuid_t *session_id, const pg_uuid_t *session_ids, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (memcmp(session_id, &session_ids[i], UUID_LEN) == 0)
			return i;
	}
	elog(ERROR, "row of a session that was not asked for");
}

static void
read_operations(const pg_uuid_t *session_ids, Books **books, int n, bool wait)
{
	Datum		values[1] = {uuid_array(session_ids, n)};
	uint64		found = run(wait ? &wait_for_operations : &lock_operations, values, NULL);

	for (uint64 i = 0; i < found; i++)
	{
		OperationRow *operation = operation_row_read(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 0);
		Books	   *of = books[place_of(&operation->session_id, session_ids, n)];

		of->operations = lappend(of->operations, operation);
	}
	if (wait)
		return;
	/* one that is missing is being taken by another worker */
	found = run(&count_operations, values, NULL);
	for (uint64 i = 0; i < found; i++)
	{
		pg_uuid_t	session_id;
		Books	   *of;

		(void) result_uuid(i, 1, &session_id);
		of = books[place_of(&session_id, session_ids, n)];
		of->held_elsewhere = result_int64(i, 2) != list_length(of->operations);
	}
}

static void
read_facts(const pg_uuid_t *session_ids, Books **books, int n)
{
	Datum		values[1] = {uuid_array(session_ids, n)};
	uint64		found = run(&facts_of, values, NULL);

	for (uint64 i = 0; i < found; i++)
	{
		TupleReader reader = read_tuple(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 0);
		ProviderFact *fact = palloc0_object(ProviderFact);
		pg_uuid_t	session_id;
		Books	   *of;

		(void) next_uuid(&reader, &session_id);
		(void) next_uuid(&reader, &fact->id);
		fact->kind = next_text(&reader);
		fact->ref = next_text(&reader);
		fact->step = next_text(&reader);
		fact->amount = next_int64(&reader);
		fact->absorbed = next_int64(&reader);
		strlcpy(fact->currency, next_text(&reader), CURRENCY_SIZE);
		of = books[place_of(&session_id, session_ids, n)];
		of->facts = lappend(of->facts, fact);
	}
}

static void
read_entries(const pg_uuid_t *session_ids, Books **books, int n)
{
	Datum		values[1] = {uuid_array(session_ids, n)};
	uint64		found = run(&entries_of, values, NULL);

	for (uint64 i = 0; i < found; i++)
	{
		TupleReader reader = read_tuple(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 0);
		LedgerEntry *entry = palloc0_object(LedgerEntry);
		pg_uuid_t	session_id;
		Books	   *of;

		(void) next_uuid(&reader, &session_id);
		entry->type = next_text(&reader);
		entry->debit = next_text(&reader);
		entry->credit = next_text(&reader);
		entry->amount = next_int64(&reader);
		strlcpy(entry->currency, next_text(&reader), CURRENCY_SIZE);
		entry->has_operation = next_uuid(&reader, &entry->operation_id);
		entry->has_fact = next_uuid(&reader, &entry->fact_id);
		entry->fact_ref = next_text(&reader);
		of = books[place_of(&session_id, session_ids, n)];
		of->entries = lappend(of->entries, entry);
	}
}

void
books_read(const pg_uuid_t *session_ids, Books **books, int n, bool wait)
{
	if (n == 0)
		return;
	read_operations(session_ids, books, n, wait);
	read_facts(session_ids, books, n);
	read_entries(session_ids, books, n);
}

List *
read_taken_refs(const PaymentRow *payment, const Outcome *outcome)
{
	static const Oid types[] = {TEXTOID, TEXTOID};
	int			n = outcome->n_refunds + outcome->n_disputes;
	RowSet	   *rows = rowset_make(types, lengthof(types), n);
	Datum		values[4];
	uint64		found;
	List	   *refs = NIL;

	if (n == 0)
		return NIL;
	for (int i = 0; i < n; i++)
	{
		bool		is_refund = i < outcome->n_refunds;

		put_text(rows, is_refund ? "refund" : "dispute");
		put_text(rows, is_refund ? outcome->refunds[i].id : outcome->disputes[i - outcome->n_refunds].id);
	}
	rowset_arrays(rows, &values[1]);
	values[0] = CStringGetTextDatum(payment->provider);
	values[3] = UUIDPGetDatum(&payment->session_id);
	found = run(&taken_refs, values, NULL);
	for (uint64 i = 0; i < found; i++)
		refs = lappend(refs, result_text(i, 1));
	return refs;
}

Discrepancy *
read_discrepancy(int64 id)
{
	Datum		values[1] = {Int64GetDatum(id)};
	Discrepancy *discrepancy;
	char	   *currency;

	if (run(&discrepancy_by_id, values, NULL) == 0)
		return NULL;
	discrepancy = palloc0_object(Discrepancy);
	discrepancy->id = id;
	discrepancy->amount = result_int64(0, 2);
	currency = result_text(0, 3);
	if (currency != NULL)
		strlcpy(discrepancy->currency, currency, CURRENCY_SIZE);
	return discrepancy;
}

char *
read_late_payment(const char *merchant)
{
	Datum		values[1] = {CStringGetTextDatum(merchant)};

	(void) run(&late_payment_of, values, NULL);
	return result_text(0, 1);
}

/* ---- looking things up ---- */

OperationRow *
books_operation(const Books *books, const pg_uuid_t *operation_id)
{
	ListCell   *cell;

	foreach(cell, books->operations)
	{
		OperationRow *operation = lfirst(cell);

		if (memcmp(&operation->operation_id, operation_id, UUID_LEN) == 0)
			return operation;
	}
	return NULL;
}

OperationRow *
books_unsettled(const Books *books, OperationKind kind)
{
	ListCell   *cell;

	foreach(cell, books->operations)
	{
		OperationRow *operation = lfirst(cell);

		if (operation->kind == kind && !operation_is_settled(operation->status))
			return operation;
	}
	return NULL;
}

bool
books_has_operation(const Books *books, OperationKind kind)
{
	ListCell   *cell;

	foreach(cell, books->operations)
	{
		if (((const OperationRow *) lfirst(cell))->kind == kind)
			return true;
	}
	return false;
}

/* ---- sums ---- */

static int64
sum_of_type(const Books *books, const char *type, const char *currency)
{
	int64		sum = 0;
	ListCell   *cell;

	foreach(cell, books->entries)
	{
		const LedgerEntry *entry = lfirst(cell);

		if (strcmp(entry->type, type) == 0 && strcmp(entry->currency, currency) == 0)
			sum += entry->amount;
	}
	return sum;
}

/*
 * What the provider has taken for us: a person may have said of some of it
 * that there was no such money.
 */
int64
booked_received(const Books *books, const char *currency)
{
	int64		sum = sum_of_type(books, "payment_received", currency) +
		sum_of_type(books, "unexpected_received", currency) -
		sum_of_type(books, "payment_reversed", currency);
	ListCell   *cell;

	foreach(cell, books->entries)
	{
		const LedgerEntry *entry = lfirst(cell);

		if (strcmp(entry->type, "correction") == 0 && strcmp(entry->credit, "provider") == 0 &&
			strcmp(entry->currency, currency) == 0)
			sum -= entry->amount;
	}
	return sum;
}

int64
booked_refunded(const Books *books, const char *currency)
{
	return sum_of_type(books, "refund_sent", currency) + sum_of_type(books, "refund_reported", currency) -
		sum_of_type(books, "refund_reversed", currency);
}

int64
booked_disputed(const Books *books, const char *currency)
{
	return sum_of_type(books, "chargeback", currency) - sum_of_type(books, "chargeback_reversed", currency);
}

int64
booked_suspense(const Books *books, const char *currency)
{
	int64		sum = 0;
	ListCell   *cell;

	foreach(cell, books->entries)
	{
		const LedgerEntry *entry = lfirst(cell);

		if (strcmp(entry->currency, currency) != 0)
			continue;
		if (strcmp(entry->credit, "suspense") == 0)
			sum += entry->amount;
		if (strcmp(entry->debit, "suspense") == 0)
			sum -= entry->amount;
	}
	return sum;
}

int64
free_suspense(const Books *books, const char *currency)
{
	int64		left = booked_suspense(books, currency);
	ListCell   *cell;

	foreach(cell, books->operations)
	{
		const OperationRow *operation = lfirst(cell);

		if (operation->kind == OPERATION_REFUND && operation->from_suspense &&
			!operation_is_settled(operation->status) && strcmp(operation->currency, currency) == 0)
			left -= operation->amount;
	}
	return left;
}

int64
unattributed(const Books *books, const char *total_kind, const char *named_kind, const char *currency)
{
	int64		sum = 0;
	ListCell   *cell;

	foreach(cell, books->facts)
	{
		const ProviderFact *fact = lfirst(cell);

		if (strcmp(fact->currency, currency) != 0)
			continue;
		if (strcmp(fact->kind, total_kind) == 0)
			sum += strncmp(fact->step, "back:", 5) == 0 ? -fact->amount : fact->amount;
		else if (strcmp(fact->kind, named_kind) == 0)
			sum -= fact->absorbed;
	}
	return Max(sum, 0);
}
