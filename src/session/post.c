/*-------------------------------------------------------------------------
 *
 * post.c
 *	  Entries that a decision books: which account money comes from, and to
 *	  which it returns.
 *
 * IDENTIFICATION
 *	  src/session/post.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/uuid.h"
#include "session/decision.h"

ProviderFact *
add_fact(Decision *d, const char *kind, const char *ref, const char *step, int64 amount, int64 absorbed,
		 const char *currency)
{
	ProviderFact *fact = palloc0_object(ProviderFact);

	uuid_v7(&fact->id, routing_slot(d->payment->merchant, d->payment->order_id));
	fact->kind = kind;
	fact->ref = pstrdup(ref);
	fact->step = step;
	fact->amount = amount;
	fact->absorbed = absorbed;
	strlcpy(fact->currency, currency, CURRENCY_SIZE);
	fact->event_at = d->outcome->event_at != 0 ? d->outcome->event_at : d->now;
	d->books->facts = lappend(d->books->facts, fact);
	d->effects->facts = lappend(d->effects->facts, fact);
	return fact;
}

bool
has_fact(const Decision *d, const char *kind, const char *ref, const char *step)
{
	ListCell   *cell;

	foreach(cell, d->books->facts)
	{
		const ProviderFact *fact = lfirst(cell);

		if (strcmp(fact->kind, kind) == 0 && strcmp(fact->ref, ref) == 0 && strcmp(fact->step, step) == 0)
			return true;
	}
	return false;
}

void
post(Decision *d, const char *type, const char *debit, const char *credit, int64 amount, const char *currency,
	 const OperationRow *operation, const ProviderFact *fact, const char *note)
{
	LedgerEntry *entry;

	if (amount == 0)
		return;
	entry = palloc0_object(LedgerEntry);
	entry->type = type;
	entry->debit = debit;
	entry->credit = credit;
	entry->amount = amount;
	strlcpy(entry->currency, currency, CURRENCY_SIZE);
	if (operation != NULL)
	{
		entry->has_operation = true;
		entry->operation_id = operation->operation_id;
	}
	if (fact != NULL)
	{
		entry->has_fact = true;
		entry->fact_id = fact->id;
		entry->fact_ref = fact->ref;
	}
	entry->event_at = d->outcome->event_at != 0 ? d->outcome->event_at : d->now;
	entry->note = note;
	d->books->entries = lappend(d->books->entries, entry);
	d->effects->entries = lappend(d->effects->entries, entry);
	d->effects->changed = true;
	d->effects->visible = true;
	/* the receipt itself moves nothing back */
	if (strcmp(type, "payment_received") != 0 && strcmp(type, "unexpected_received") != 0 &&
		strcmp(type, "unexpected_accepted") != 0)
		d->effects->returns_changed = true;
}

/*
 * In `held` until the session's hold is released; nothing releases it yet.
 */
const char *
receipt_account(const Decision *d pg_attribute_unused())
{
	return "held";
}

Taken
take_money(Decision *d, const char *type, int64 amount, int64 receipt_limit, const char *currency,
		   const ProviderFact *fact)
{
	Taken		taken;

	taken.suspense = Min(amount, Max(booked_suspense(d->books, currency), 0));
	taken.receipt = Min(amount - taken.suspense, Max(receipt_limit, 0));
	taken.losses = amount - taken.suspense - taken.receipt;

	post(d, type, "suspense", "provider", taken.suspense, currency, NULL, fact, NULL);
	post(d, type, receipt_account(d), "provider", taken.receipt, currency, NULL, fact, NULL);
	post(d, type, "losses", "provider", taken.losses, currency, NULL, fact, NULL);
	if (taken.suspense > 0)
		sync_suspense(d, currency);
	return taken;
}

/* ---- money that comes back ---- */

static bool
is_of_origin(const LedgerEntry *entry, const Origin *origin)
{
	if (origin->operation != NULL)
		return entry->has_operation &&
			memcmp(&entry->operation_id, &origin->operation->operation_id, UUID_LEN) == 0;
	if (origin->fact_ref == NULL)
		return true;
	return entry->fact_ref != NULL && strcmp(entry->fact_ref, origin->fact_ref) == 0;
}

/* What entries of that origin have taken from an account and not given back. */
static int64
outstanding(const Decision *d, const Origin *origin, const char *account, const char *currency)
{
	int64		sum = 0;
	ListCell   *cell;

	foreach(cell, d->books->entries)
	{
		const LedgerEntry *entry = lfirst(cell);

		if (strcmp(entry->currency, currency) != 0 || !is_of_origin(entry, origin))
			continue;
		if (strcmp(entry->type, origin->type) == 0 && strcmp(entry->debit, account) == 0)
			sum += entry->amount;
		else if (strcmp(entry->type, origin->reverse_type) == 0 && strcmp(entry->credit, account) == 0)
			sum -= entry->amount;
	}
	return Max(sum, 0);
}

/*
 * How much of `amount` goes back to an account; what the named origin does not
 * account for was booked by a total.
 */
static int64
part_of(const Decision *d, const Origin *origin, const char *account, int64 amount, const char *currency)
{
	const Origin any = {.type = origin->type, .reverse_type = origin->reverse_type};
	int64		named = outstanding(d, origin, account, currency);

	if (origin->operation == NULL && origin->fact_ref != NULL && named == 0)
		return Min(amount, outstanding(d, &any, account, currency));
	return Min(amount, named);
}

Taken
give_back_money(Decision *d, const Origin *origin, int64 amount, const char *currency, const ProviderFact *fact)
{
	const char *type = origin->reverse_type;
	Taken		given = {0};
	int64		held;
	int64		available;
	int64		left = amount;

	given.suspense = part_of(d, origin, "suspense", left, currency);
	left -= given.suspense;
	held = part_of(d, origin, "held", left, currency);
	left -= held;
	available = part_of(d, origin, "available", left, currency);
	left -= available;
	given.losses = part_of(d, origin, "losses", left, currency);
	left -= given.losses;

	/* no entry accounts for the rest: it is the receipt's, or nobody's */
	if (currency_is_ours(d) && d->payment->captured_amount > 0)
		held += left;
	else
		given.losses += left;
	given.receipt = held + available;

	post(d, type, "provider", "suspense", given.suspense, currency, origin->operation, fact, NULL);
	post(d, type, "provider", "held", held, currency, origin->operation, fact, NULL);
	post(d, type, "provider", "available", available, currency, origin->operation, fact, NULL);
	post(d, type, "provider", "losses", given.losses, currency, origin->operation, fact, NULL);
	if (given.suspense > 0)
	{
		sync_suspense(d, currency);
		/* a refund of ours opens its own discrepancy again */
		if (origin->operation == NULL)
		{
			suspense_finding(d, "money_returned", given.suspense, currency);
			alert_session(d, "warning", "money_returned", "unexpected money that had gone is back in suspense");
		}
	}
	return given;
}
