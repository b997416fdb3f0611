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
#include "lib/spi.h"
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
	const char *type;
	const PaymentRow *payment;
	int			debit;			/* places in the batch's accounts */
	int			credit;
	int64		amount;
	const char *currency;
	TimestampTz event_at;
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
	"FROM ROWS FROM (" UNNEST(1) ", " UNNEST(2) ", " UNNEST(3) ", " UNNEST(4) ") WITH ORDINALITY AS k(merchant, kind, currency, provider, place) "
	"JOIN payflow.accounts a ON a.merchant OPERATOR(pg_catalog.=) k.merchant "
	"AND a.kind OPERATOR(pg_catalog.=) k.kind AND a.currency OPERATOR(pg_catalog.=) k.currency "
	"AND a.provider OPERATOR(pg_catalog.=) k.provider",
	.nargs = 4,
	.argtypes = {TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID},
};

static Statement open_accounts = {
	.sql = "INSERT INTO payflow.accounts (merchant, kind, currency, provider) "
	"SELECT k.merchant, k.kind, k.currency, k.provider "
	"FROM ROWS FROM (" UNNEST(1) ", " UNNEST(2) ", " UNNEST(3) ", " UNNEST(4) ") AS k(merchant, kind, currency, provider) "
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
	"FROM ROWS FROM (" UNNEST(1) ", " UNNEST(2) ") AS d(account_id, delta) "
	"WHERE a.account_id OPERATOR(pg_catalog.=) d.account_id",
	.nargs = 2,
	.argtypes = {INT8ARRAYOID, INT8ARRAYOID},
};

static Statement add_entries = {
	.sql = "INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, "
	"debit_account, credit_account, amount, currency, event_at, booked_at) "
	"SELECT e.entry_type, e.session_id, e.merchant, e.order_id, e.debit, e.credit, e.amount, e.currency, "
	"e.event_at, $10 "
	"FROM ROWS FROM (" UNNEST(1) ", " UNNEST(2) ", " UNNEST(3) ", " UNNEST(4) ", " UNNEST(5) ", " UNNEST(6) ", "
		UNNEST(7) ", " UNNEST(8) ", " UNNEST(9) ") "
	"AS e(entry_type, session_id, merchant, order_id, debit, credit, amount, currency, event_at)",
	.nargs = 10,
	.argtypes = {TEXTARRAYOID, UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID,
	INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID},
};

static Statement sum_suspense = {
	.sql = "SELECT COALESCE(pg_catalog.sum(amount), 0)::pg_catalog.int8 FROM payflow.accounting_entries "
	"WHERE session_id OPERATOR(pg_catalog.=) $1 AND entry_type OPERATOR(pg_catalog.=) 'unexpected_received' "
	"AND currency OPERATOR(pg_catalog.=) $2",
	.nargs = 2,
	.argtypes = {UUIDOID, TEXTOID},
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

/*
 * Adds an entry from the provider's account to one of the merchant's.
 */
static void
add_received(Batch *batch, const char *type, const PaymentRow *payment, const char *credit_kind,
			 int64 amount, const char *currency, TimestampTz event_at)
{
	Entry	   *entry = &batch->entries[batch->n_entries++];
	bool		by_provider = strcmp(credit_kind, "suspense") == 0;

	entry->type = type;
	entry->payment = payment;
	entry->debit = account_place(batch, payment->merchant, "provider", currency, payment->provider);
	entry->credit = account_place(batch, payment->merchant, credit_kind, currency,
								  by_provider ? payment->provider : "");
	entry->amount = amount;
	entry->currency = currency;
	entry->event_at = event_at;
	move(&batch->accounts[entry->debit], amount, true);
	move(&batch->accounts[entry->credit], amount, false);
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
	const char **texts = palloc_array(const char *, batch->n_accounts);
	Datum		keys[4];

	for (int i = 0; i < batch->n_accounts; i++)
		texts[i] = batch->accounts[i].merchant;
	keys[0] = text_array(texts, batch->n_accounts);
	for (int i = 0; i < batch->n_accounts; i++)
		texts[i] = batch->accounts[i].kind;
	keys[1] = text_array(texts, batch->n_accounts);
	for (int i = 0; i < batch->n_accounts; i++)
		texts[i] = batch->accounts[i].currency;
	keys[2] = text_array(texts, batch->n_accounts);
	for (int i = 0; i < batch->n_accounts; i++)
		texts[i] = batch->accounts[i].provider;
	keys[3] = text_array(texts, batch->n_accounts);

	if (look_up_accounts(batch, keys))
		return;
	(void) run(&open_accounts, keys, NULL);
	if (!look_up_accounts(batch, keys))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not open ledger accounts due to concurrent update")));
}

static void
write_balances(Batch *batch)
{
	int64	   *ids = palloc_array(int64, batch->n_accounts);
	int64	   *deltas = palloc_array(int64, batch->n_accounts);
	Datum		values[2];

	for (int i = 0; i < batch->n_accounts; i++)
	{
		ids[i] = batch->accounts[i].id;
		deltas[i] = batch->accounts[i].delta;
	}
	values[0] = int8_array(ids, batch->n_accounts);
	values[1] = int8_array(deltas, batch->n_accounts);
	(void) run(&lock_accounts, values, NULL);
	(void) run(&move_balances, values, NULL);
}

static void
write_entries(Batch *batch, TimestampTz now)
{
	int			n = batch->n_entries;
	const char **types = palloc_array(const char *, n);
	pg_uuid_t  *sessions = palloc_array(pg_uuid_t, n);
	const char **merchants = palloc_array(const char *, n);
	const char **orders = palloc_array(const char *, n);
	int64	   *debits = palloc_array(int64, n);
	int64	   *credits = palloc_array(int64, n);
	int64	   *amounts = palloc_array(int64, n);
	const char **currencies = palloc_array(const char *, n);
	TimestampTz *times = palloc_array(TimestampTz, n);
	Datum		values[10];

	for (int i = 0; i < n; i++)
	{
		const Entry *entry = &batch->entries[i];

		types[i] = entry->type;
		sessions[i] = entry->payment->session_id;
		merchants[i] = entry->payment->merchant;
		orders[i] = entry->payment->order_id;
		debits[i] = batch->accounts[entry->debit].id;
		credits[i] = batch->accounts[entry->credit].id;
		amounts[i] = entry->amount;
		currencies[i] = entry->currency;
		times[i] = entry->event_at;
	}
	values[0] = text_array(types, n);
	values[1] = uuid_array(sessions, NULL, n);
	values[2] = text_array(merchants, n);
	values[3] = text_array(orders, n);
	values[4] = int8_array(debits, n);
	values[5] = int8_array(credits, n);
	values[6] = int8_array(amounts, n);
	values[7] = text_array(currencies, n);
	values[8] = time_array(times, n);
	values[9] = TimestampTzGetDatum(now);
	(void) run(&add_entries, values, NULL);
}

void
ledger_book(PaymentRow **payments, const Outcome **outcomes, const Effects *effects, int n, TimestampTz now)
{
	Batch		batch;

	/* at most two entries a payment, and two accounts an entry */
	batch.entries = palloc_array(Entry, 2 * n);
	batch.accounts = palloc_array(Account, 4 * n);
	batch.n_entries = 0;
	batch.n_accounts = 0;

	for (int i = 0; i < n; i++)
	{
		TimestampTz event_at = outcomes[i]->event_at != 0 ? outcomes[i]->event_at : now;

		if (effects[i].receipt)
			add_received(&batch, "payment_received", payments[i], "held",
						 payments[i]->captured_amount, payments[i]->currency, event_at);
		if (effects[i].unexpected > 0)
			add_received(&batch, "unexpected_received", payments[i], "suspense",
						 effects[i].unexpected, effects[i].unexpected_currency, event_at);
	}
	if (batch.n_entries == 0)
		return;
	resolve_accounts(&batch);
	write_balances(&batch);
	write_entries(&batch, now);
}

int64
ledger_suspense_of(const pg_uuid_t *session_id, const char *currency)
{
	Datum		values[2];

	values[0] = UUIDPGetDatum(session_id);
	values[1] = CStringGetTextDatum(currency);
	(void) run(&sum_suspense, values, NULL);
	return result_int64(0, 1);
}
