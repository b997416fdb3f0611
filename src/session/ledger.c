/*-------------------------------------------------------------------------
 *
 * ledger.c
 *	  Double entry: accounts and entries.
 *
 *	  All accounts of a batch are locked in id order and moved once, by the
 *	  sum of its entries.
 *
 * IDENTIFICATION
 *	  src/session/ledger.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/rowset.h"
#include "lib/spi.h"
#include "lib/write.h"
#include "session/decide.h"
#include "session/session.h"

/* an account by its key, later with its id and what a batch moves on it */
typedef struct Account
{
	const char *merchant;
	const char *kind;
	const char *currency;
	const char *provider;
	int64		id;				/* 0: not known yet */
	int64		delta;			/* in the account's own direction */
} Account;

typedef struct Entry
{
	const LedgerEntry *entry;
	const PaymentRow *payment;
	int			debit;			/* places in the batch's accounts */
	int			credit;
} Entry;

typedef struct Batch
{
	Account    *accounts;
	int			n_accounts;
	Entry	   *entries;
	int			n_entries;
} Batch;

static Statement find_accounts = {
	.sql = "SELECT k.place, a.account_id "
	"FROM ROWS FROM (" UNNEST_4 ") WITH ORDINALITY "
	"AS k(merchant, kind, currency, provider, place) "
	"JOIN payflow.accounts a ON a.merchant OPERATOR(pg_catalog.=) k.merchant "
	"AND a.kind OPERATOR(pg_catalog.=) k.kind AND a.currency OPERATOR(pg_catalog.=) k.currency "
	"AND a.provider OPERATOR(pg_catalog.=) k.provider",
	.nargs = 4,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID},
};

/*
 * A new account refers to its merchant, whose row an application may hold: to
 * wait for him would hold up all others.
 */
static Statement lock_merchants = {
	.sql = "SELECT FROM payflow.merchants WHERE id OPERATOR(pg_catalog.=) ANY ($1) FOR KEY SHARE NOWAIT",
	.nargs = 1,
	.argtypes = {TEXTARRAYOID},
};

static Statement open_accounts = {
	.sql = "INSERT INTO payflow.accounts (merchant, kind, currency, provider) "
	"SELECT k.merchant, k.kind, k.currency, k.provider "
	"FROM ROWS FROM (" UNNEST_4 ") AS k(merchant, kind, currency, provider) "
	"ORDER BY 1, 2, 3, 4 "
	"ON CONFLICT (merchant, kind, currency, provider) DO NOTHING",
	.nargs = 4,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID},
};

static Statement lock_accounts = {
	.sql = "SELECT account_id FROM payflow.accounts "
	"WHERE account_id OPERATOR(pg_catalog.=) ANY ($1) ORDER BY account_id FOR NO KEY UPDATE",
	.nargs = 1,
	.argtypes = {INT8ARRAYOID},
};

static Statement move_balances = {
	.sql = "UPDATE payflow.accounts a SET balance = a.balance OPERATOR(pg_catalog.+) d.delta "
	"FROM ROWS FROM (" UNNEST_2 ") AS d(account_id, delta) "
	"WHERE a.account_id OPERATOR(pg_catalog.=) d.account_id",
	.nargs = 2,
	.argtypes = {INT8ARRAYOID, INT8ARRAYOID},
};

static Statement add_entries = {
	.sql = "INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, "
	"debit_account, credit_account, amount, currency, event_at, operation_id, provider_operation_id, note, booked_at) "
	"SELECT e.entry_type, e.session_id, e.merchant, e.order_id, e.debit, e.credit, e.amount, e.currency, "
	"e.event_at, e.operation_id, e.provider_operation_id, e.note, e.booked_at "
	"FROM ROWS FROM (" UNNEST_13 ") "
	"AS e(entry_type, session_id, merchant, order_id, debit, credit, amount, currency, event_at, operation_id, "
	"provider_operation_id, note, booked_at)",
	.nargs = 13,
	.argtypes = {TEXTARRAYOID, UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID,
		INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, UUIDARRAYOID, UUIDARRAYOID, TEXTARRAYOID,
	TIMESTAMPTZARRAYOID},
};

static const Oid entry_types[] = {
	TEXTOID, UUIDOID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT8OID, TEXTOID, TIMESTAMPTZOID, UUIDOID, UUIDOID,
	TEXTOID, TIMESTAMPTZOID
};

/* The same without a statement. */
static WriteTarget new_entry = {
	.table = "accounting_entries",
	.ncolumns = lengthof(entry_types),
	.columns = {
		"entry_type", "session_id", "merchant", "order_id", "debit_account", "credit_account", "amount", "currency",
		"event_at", "operation_id", "provider_operation_id", "note", "booked_at"
	}
};

static bool
account_is_asset(const Account *account)
{
	return strcmp(account->kind, "provider") == 0 || strcmp(account->kind, "losses") == 0;
}

/*
 * The place of an account in the batch; adds it when it is not there.
 */
static int
account_place(Batch *batch, const char *merchant, const char *kind, const char *currency, const char *provider)
{
	Account    *account;

	for (int i = 0; i < batch->n_accounts; i++)
	{
		account = &batch->accounts[i];
		if (strcmp(account->merchant, merchant) == 0 && strcmp(account->kind, kind) == 0 &&
			strcmp(account->currency, currency) == 0 && strcmp(account->provider, provider) == 0)
			return i;
	}
	account = &batch->accounts[batch->n_accounts];
	account->merchant = merchant;
	account->kind = kind;
	account->currency = currency;
	account->provider = provider;
	account->id = 0;
	account->delta = 0;
	return batch->n_accounts++;
}

static void
move(Account *account, int64 amount, bool debit)
{
	int64		delta = debit == account_is_asset(account) ? amount : -amount;

	if (pg_add_s64_overflow(account->delta, delta, &account->delta))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("sum of ledger entries is out of range")));
}

/* Claims on a provider, and money that came by it in suspense, are kept for each provider. */
static int
place_of_kind(Batch *batch, const PaymentRow *payment, const char *kind, const char *currency)
{
	bool		by_provider = strcmp(kind, "suspense") == 0 || strcmp(kind, "provider") == 0;

	return account_place(batch, payment->merchant, kind, currency, by_provider ? payment->provider : "");
}

static void
add_entry(Batch *batch, const PaymentRow *payment, const LedgerEntry *entry)
{
	Entry	   *added = &batch->entries[batch->n_entries++];

	added->entry = entry;
	added->payment = payment;
	added->debit = place_of_kind(batch, payment, entry->debit, entry->currency);
	added->credit = place_of_kind(batch, payment, entry->credit, entry->currency);
	move(&batch->accounts[added->debit], entry->amount, true);
	move(&batch->accounts[added->credit], entry->amount, false);
}

/*
 * Fills in the ids; returns whether all accounts exist.
 */
static bool
look_up_accounts(Batch *batch, Datum *keys)
{
	uint64		found = run(&find_accounts, keys, NULL);

	for (uint64 i = 0; i < found; i++)
		batch->accounts[result_int64(i, 1) - 1].id = result_int64(i, 2);
	return found == (uint64) batch->n_accounts;
}

static void
resolve_accounts(Batch *batch)
{
	static const Oid types[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID};
	RowSet	   *rows = rowset_make(types, lengthof(types), batch->n_accounts);
	Datum		keys[lengthof(types)];

	for (int i = 0; i < batch->n_accounts; i++)
	{
		put_text(rows, batch->accounts[i].merchant);
		put_text(rows, batch->accounts[i].kind);
		put_text(rows, batch->accounts[i].currency);
		put_text(rows, batch->accounts[i].provider);
	}
	rowset_arrays(rows, keys);
	if (look_up_accounts(batch, keys))
		return;
	(void) run(&lock_merchants, keys, NULL);
	(void) run(&open_accounts, keys, NULL);
	if (!look_up_accounts(batch, keys))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not open ledger accounts due to concurrent update")));
}

static void
write_balances(const Batch *batch)
{
	static const Oid types[] = {INT8OID, INT8OID};
	RowSet	   *rows = rowset_make(types, lengthof(types), batch->n_accounts);
	Datum		values[lengthof(types)];

	for (int i = 0; i < batch->n_accounts; i++)
	{
		put_int64(rows, batch->accounts[i].id);
		put_int64(rows, batch->accounts[i].delta);
	}
	rowset_arrays(rows, values);
	(void) run(&lock_accounts, values, NULL);
	(void) run(&move_balances, values, NULL);
}

static void
write_entries(const Batch *batch, TimestampTz now)
{
	RowSet	   *rows = rowset_make(entry_types, lengthof(entry_types), batch->n_entries);
	Datum		values[lengthof(entry_types)];
	int			inserted;

	for (int i = 0; i < batch->n_entries; i++)
	{
		const Entry *added = &batch->entries[i];
		const LedgerEntry *entry = added->entry;

		put_text(rows, entry->type);
		put_uuid(rows, &added->payment->session_id);
		put_text(rows, added->payment->merchant);
		put_text(rows, added->payment->order_id);
		put_int64(rows, batch->accounts[added->debit].id);
		put_int64(rows, batch->accounts[added->credit].id);
		put_int64(rows, entry->amount);
		put_text(rows, entry->currency);
		put_time(rows, entry->event_at);
		put_uuid(rows, entry->has_operation ? &entry->operation_id : NULL);
		put_uuid(rows, entry->has_fact ? &entry->fact_id : NULL);
		put_text(rows, entry->note);
		put_time(rows, now);
	}
	if (insert_rows(&new_entry, rows, &inserted))
		return;
	rowset_arrays(rows, values);
	(void) run(&add_entries, values, NULL);
}

void
ledger_book(PaymentRow **payments, const Effects *effects, int n, TimestampTz now)
{
	Batch		batch = {.n_entries = 0};
	int			total = 0;

	for (int i = 0; i < n; i++)
		total += list_length(effects[i].entries);
	if (total == 0)
		return;
	batch.entries = palloc_array(Entry, total);
	batch.accounts = palloc_array(Account, 2 * total);
	for (int i = 0; i < n; i++)
	{
		ListCell   *cell;

		foreach(cell, effects[i].entries)
			add_entry(&batch, payments[i], lfirst(cell));
	}
	resolve_accounts(&batch);
	write_balances(&batch);
	write_entries(&batch, now);
}
