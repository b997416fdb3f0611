/*-------------------------------------------------------------------------
 *
 * returns.c
 *	  Money that goes back: refunds, disputes, captures that fail after all.
 *
 *	  What the provider reports is always booked; limits bind our commands
 *	  only.  Totals are compared with the books, never added; what is named is
 *	  booked once by its name, and uses up what a total has shown before.
 *
 * IDENTIFICATION
 *	  src/session/returns.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "lib/compat.h"
#include "lib/uuid.h"
#include "session/decision.h"
#include "session/session.h"

#define STEP(what, value) psprintf("%s:" INT64_FORMAT, what, (int64) (value))
/* a total may come to the same value again */
#define TOTAL_STEP(d, what, value) \
	psprintf("%s:" INT64_FORMAT ":%d", what, (int64) (value), list_length((d)->books->facts))

/* What the provider's own id of the payment is, for facts about it as a whole. */
static const char *
payment_ref(const Decision *d)
{
	char		id[UUID_TEXT_SIZE];

	if (d->payment->provider_payment_id != NULL)
		return d->payment->provider_payment_id;
	return pstrdup(uuid_to_text(&d->payment->session_id, id));
}

/* ---- our refunds ---- */

/* Money in suspense waits for a decision again, unless facts have taken it meanwhile. */
void
reopen_discrepancy(Decision *d, OperationRow *refund)
{
	if (refund->from_suspense && refund->discrepancy_id != 0 && booked_suspense(d->books, refund->currency) > 0)
		d->effects->reopened = lappend(d->effects->reopened, refund);
}

static void
more_went_back(Decision *d)
{
	open_finding(d, "returned_exceeds_captured");
	alert_session(d, "critical", "returned_exceeds_captured", "more money has gone back than was captured");
}

void
refund_succeeded(Decision *d, OperationRow *refund, int64 amount)
{
	PaymentRow *p = d->payment;
	const char *source = refund->from_suspense ? "suspense" : receipt_account(d);
	int64		there = amount;

	/* facts may have taken the money in suspense meanwhile */
	if (refund->from_suspense)
		there = Min(amount, Max(booked_suspense(d->books, refund->currency), 0));
	post(d, "refund_sent", source, "provider", there, refund->currency, refund, NULL, NULL);
	post(d, "refund_sent", "losses", "provider", amount - there, refund->currency, refund, NULL, NULL);
	if (amount > there)
		more_went_back(d);
	if (refund->from_suspense)
		sync_suspense(d, refund->currency);
	else
		p->refunded_amount += amount;
	settle_operation(d, refund, OPERATION_SUCCEEDED, NULL);
	if (amount != refund->amount)
	{
		int64		left = Min(refund->amount - amount, free_suspense(d->books, refund->currency));

		/* the rest in suspense waits for a decision again */
		if (refund->from_suspense && left > 0)
			suspense_finding(d, "refund_amount", left, refund->currency);
		else
			open_finding(d, "refund_amount");
		alert_operation(d, refund, "critical", "refund_amount", "the provider refunded another amount than was asked for");
	}
}

void
refund_failed(Decision *d, OperationRow *refund, const char *failure_code, const char *message)
{
	settle_operation(d, refund, OPERATION_FAILED, failure_code);
	refund->failure_message = message ? pstrdup(message) : NULL;
	reopen_discrepancy(d, refund);
	alert_operation(d, refund, "critical", "refund_failed", "the refund has failed, the money is still here");
}

/* A refund that had succeeded has failed after all: the money is back. */
static void
refund_came_back(Decision *d, OperationRow *refund, const ProviderRefund *told)
{
	const Origin origin = {"refund_sent", "refund_reversed", refund, NULL};
	Taken		given = give_back_money(d, &origin, told->amount, refund->currency, NULL);

	d->payment->refunded_amount -= Min(given.receipt, d->payment->refunded_amount);
	refund_failed(d, refund, "failed_at_provider", told->failure_message);
}

OperationRow *
our_refund(const Decision *d, const ProviderRefund *told)
{
	pg_uuid_t	id;
	ListCell   *cell;

	if (told->reference != NULL && uuid_from_text(told->reference, &id))
	{
		OperationRow *operation = books_operation(d->books, &id);

		if (operation != NULL && operation->kind == OPERATION_REFUND)
			return operation;
	}
	foreach(cell, d->books->operations)
	{
		OperationRow *operation = lfirst(cell);

		if (operation->kind == OPERATION_REFUND && operation->provider_ref != NULL &&
			strcmp(operation->provider_ref, told->id) == 0)
			return operation;
	}
	return NULL;
}

/* The provider has it, and has not decided about it. */
static void
refund_is_pending(Decision *d, OperationRow *refund, const ProviderRefund *told)
{
	if (refund->first_sent_at == 0)
		refund->first_sent_at = d->now;
	if (refund->status == OPERATION_PENDING)
		refund->status = OPERATION_SENT;
	if (refund->provider_ref == NULL)
	{
		refund->provider_ref = pstrdup(told->id);
		refund->attempts = 1;
	}
	refund->ask_due = false;
	refund->unresolved_since = 0;
	set_operation_alarm(d, refund, poll_at(d->now, d->terms, refund->attempts));
}

static void
settle_our_refund(Decision *d, OperationRow *refund, const ProviderRefund *told)
{
	if (refund->provider_ref == NULL && told->status != MOVEMENT_PENDING)
		refund->provider_ref = pstrdup(told->id);
	switch (told->status)
	{
		case MOVEMENT_PENDING:
			refund_is_pending(d, refund, told);
			break;
		case MOVEMENT_SUCCEEDED:
			refund_succeeded(d, refund, told->amount);
			break;
		case MOVEMENT_FAILED:
			refund_failed(d, refund, "failed_at_provider", told->failure_message);
			break;
	}
}

/* ---- refunds that nobody here has asked for ---- */

static void
refund_reported(Decision *d, const ProviderRefund *told)
{
	const char *currency = told_currency(d);
	int64		absorbed = Min(unattributed(d->books, "refund_total", "refund", currency), told->amount);
	const ProviderFact *fact = add_fact(d, "refund", told->id, "succeeded", told->amount, absorbed, currency);
	int64		receipt = currency_is_ours(d) && d->payment->captured_amount > 0 ? told->amount : 0;

	d->effects->changed = true;
	if (told->amount > absorbed)
		d->payment->refunded_amount +=
			take_money(d, "refund_reported", told->amount - absorbed, receipt, currency, fact).receipt;
	d->effects->order_follows = true;
	alert_session(d, "warning", "refund_elsewhere", "the provider reports a refund that was not asked for here");
}

static void
reported_refund_failed(Decision *d, const ProviderRefund *told)
{
	const char *currency = told_currency(d);
	const Origin origin = {"refund_reported", "refund_reversed", NULL, told->id};
	const ProviderFact *fact = add_fact(d, "refund", told->id, "failed", told->amount, 0, currency);
	Taken		given = give_back_money(d, &origin, told->amount, currency, fact);

	d->payment->refunded_amount -= Min(given.receipt, d->payment->refunded_amount);
	d->effects->order_follows = true;
	alert_session(d, "warning", "refund_elsewhere", "a refund that the provider had reported has failed");
}

static void
compare_named_refund(Decision *d, const ProviderRefund *told)
{
	OperationRow *refund = our_refund(d, told);
	bool		booked;

	if (refund != NULL && !operation_is_settled(refund->status))
	{
		settle_our_refund(d, refund, told);
		return;
	}
	if (is_outdated(d))
		return;
	if (refund != NULL && refund->status == OPERATION_SUCCEEDED)
	{
		if (told->status == MOVEMENT_FAILED)
			refund_came_back(d, refund, told);
		return;
	}
	/* not ours, or given up by us: by refusal, or by a person */
	booked = has_fact(d, "refund", told->id, "succeeded");
	if (told->status == MOVEMENT_SUCCEEDED && !booked)
		refund_reported(d, told);
	else if (told->status == MOVEMENT_FAILED && booked && !has_fact(d, "refund", told->id, "failed"))
		reported_refund_failed(d, told);
}

/* One of ours was settled after the question was sent: its answer need not show it. */
static bool
refunded_since_asked(const Decision *d)
{
	ListCell   *cell;

	foreach(cell, d->books->operations)
	{
		const OperationRow *operation = lfirst(cell);

		if (operation->kind == OPERATION_REFUND && operation_is_settled(operation->status) &&
			d->outcome->sent_at != 0 && operation->updated_at > d->outcome->sent_at)
			return true;
	}
	return false;
}

/*
 * Whether it says how things stand now.  The answer to a command that was sent
 * before may be a copy of its first one: what it shows was so, what it lacks
 * need not be lacking.
 */
static bool
tells_the_present(const Decision *d)
{
	switch (d->outcome->call)
	{
		case CALL_GET:
		case CALL_FIND:
		case CALL_NONE:
			return true;
		default:
			return false;
	}
}

/*
 * The total, where nothing of ours may still be in it.
 */
static void
compare_refunded_total(Decision *d)
{
	const Outcome *o = d->outcome;
	const char *currency = told_currency(d);
	int64		booked = booked_refunded(d->books, currency);
	int64		excess = o->refunded - booked;

	if (o->refunded < 0 || is_outdated(d) ||
		books_unsettled(d->books, OPERATION_REFUND) != NULL || books_unsettled(d->books, OPERATION_REVERSE) != NULL)
		return;
	if (excess > 0)
	{
		const ProviderFact *fact = add_fact(d, "refund_total", payment_ref(d), TOTAL_STEP(d, "total", o->refunded), excess, 0,
											currency);
		int64		receipt = currency_is_ours(d) && d->payment->captured_amount > 0 ? excess : 0;

		d->payment->refunded_amount += take_money(d, "refund_reported", excess, receipt, currency, fact).receipt;
		d->effects->order_follows = true;
		alert_session(d, "warning", "refund_elsewhere", "the provider has refunded more than was asked for here");
	}
	else if (excess < 0 && tells_the_present(d) && !refunded_since_asked(d))
	{
		open_finding(d, "refund_missing");
		alert_session(d, "critical", "refund_missing", "the provider has refunded less than is booked");
	}
}

/* ---- disputes ---- */

/* What is booked of a dispute: taken by it, or given back of it. */
static int64
booked_of_dispute(const Decision *d, const char *id, const char *step)
{
	int64		sum = 0;
	ListCell   *cell;

	foreach(cell, d->books->facts)
	{
		const ProviderFact *fact = lfirst(cell);

		if (strcmp(fact->kind, "dispute") == 0 && strcmp(fact->ref, id) == 0 &&
			strncmp(fact->step, step, strlen(step)) == 0)
			sum += fact->amount;
	}
	return sum;
}

static void
book_chargeback(Decision *d, int64 amount, const ProviderFact *fact)
{
	PaymentRow *p = d->payment;
	const char *currency = told_currency(d);
	int64		limit = currency_is_ours(d) ? p->captured_amount - p->disputed_amount : 0;
	Taken		taken = take_money(d, "chargeback", amount, limit, currency, fact);

	if (currency_is_ours(d))
		p->disputed_amount += taken.receipt + taken.losses;
	if (taken.losses > 0)
	{
		open_finding(d, "dispute_exceeds_captured");
		alert_session(d, "critical", "dispute_exceeds_captured",
					  "a dispute takes more than was captured: the excess is a loss");
	}
}

static void
book_won(Decision *d, const char *id, int64 amount, const ProviderFact *fact)
{
	const Origin origin = {"chargeback", "chargeback_reversed", NULL, id};
	Taken		given = give_back_money(d, &origin, amount, told_currency(d), fact);

	if (currency_is_ours(d))
		d->payment->disputed_amount -= Min(given.receipt + given.losses, d->payment->disputed_amount);
}

static void
compare_named_dispute(Decision *d, const ProviderDispute *told)
{
	const char *currency = told_currency(d);
	int64		taken = booked_of_dispute(d, told->id, "taken:");
	int64		won = booked_of_dispute(d, told->id, "won:");

	/* a dispute that has become smaller has been won in part */
	int64		told_won = told->won + Max(taken - told->amount, 0);

	if (told->amount > taken)
	{
		int64		more = told->amount - taken;
		int64		absorbed = Min(unattributed(d->books, "dispute_total", "dispute", currency), more);
		const ProviderFact *fact = add_fact(d, "dispute", told->id, STEP("taken", told->amount), more, absorbed,
											currency);

		d->effects->changed = true;
		if (more > absorbed)
			book_chargeback(d, more - absorbed, fact);
		alert_session(d, "warning", "dispute", "the payer disputes the payment");
	}
	if (told_won > won)
	{
		const ProviderFact *fact = add_fact(d, "dispute", told->id, STEP("won", told_won), told_won - won, 0, currency);

		book_won(d, told->id, told_won - won, fact);
		alert_session(d, "info", "dispute_won", "a dispute was won");
	}
}

static void
compare_disputed_total(Decision *d)
{
	const Outcome *o = d->outcome;
	const char *currency = told_currency(d);
	int64		excess = o->disputed - booked_disputed(d->books, currency);
	const ProviderFact *fact;

	if (o->disputed < 0 || excess == 0 || (excess < 0 && !tells_the_present(d)))
		return;
	if (excess > 0)
	{
		fact = add_fact(d, "dispute_total", payment_ref(d), TOTAL_STEP(d, "total", o->disputed), excess, 0, currency);
		book_chargeback(d, excess, fact);
		alert_session(d, "warning", "dispute", "the payer disputes the payment");
	}
	else
	{
		fact = add_fact(d, "dispute_total", payment_ref(d), TOTAL_STEP(d, "back", o->disputed), -excess, 0, currency);
		book_won(d, NULL, -excess, fact);
		alert_session(d, "info", "dispute_won", "a dispute was won");
	}
}

/* ---- a capture that fails after all ---- */

/*
 * The provider has less than it had: what is missing was never paid.
 */
static void
compare_captured_total(Decision *d)
{
	PaymentRow *p = d->payment;
	const Outcome *o = d->outcome;
	const char *currency = told_currency(d);
	int64		missing = booked_received(d->books, currency) - o->captured;
	const ProviderFact *fact;
	int64		from_suspense;
	int64		from_receipt;

	if (o->captured < 0 || missing <= 0 || !tells_the_present(d))
		return;
	open_finding(d, "payment_reversed");
	alert_session(d, "critical", "payment_reversed", "the provider has taken captured money back");
	fact = add_fact(d, "payment", payment_ref(d), TOTAL_STEP(d, "reversed", o->captured), missing, 0, currency);
	from_suspense = Min(missing, Max(booked_suspense(d->books, currency), 0));
	from_receipt = currency_is_ours(d) ? Min(missing - from_suspense, p->captured_amount) : 0;
	post(d, "payment_reversed", "suspense", "provider", from_suspense, currency, NULL, fact, NULL);
	post(d, "payment_reversed", receipt_account(d), "provider", from_receipt, currency, NULL, fact, NULL);
	post(d, "payment_reversed", "losses", "provider", missing - from_suspense - from_receipt, currency, NULL, fact, NULL);
	p->captured_amount -= from_receipt;
	p->reversed_amount += from_receipt;
	d->effects->order_follows = true;
	if (from_suspense > 0)
		sync_suspense(d, currency);
}

/* ---- all of it ---- */

/*
 * More has gone back than came in: possible, and never by our commands.
 */
static void
compare_sums(Decision *d, int64 refunded_before, int64 disputed_before)
{
	const PaymentRow *p = d->payment;

	if (p->refunded_amount == refunded_before && p->disputed_amount == disputed_before)
		return;
	if (p->captured_amount - p->refunded_amount >= p->disputed_amount)
		return;
	more_went_back(d);
}

/*
 * The provider gave it the id of a movement of another session's money: what
 * it is worth, the total tells.
 */
static bool
is_taken(Decision *d, const char *ref)
{
	ListCell   *cell;

	foreach(cell, d->books->taken_refs)
	{
		if (strcmp(lfirst(cell), ref) != 0)
			continue;
		alert_session(d, "critical", "duplicate_movement_id",
					  "the provider names a refund or dispute of another payment as one of this one");
		return true;
	}
	return false;
}

void
compare_with_books(Decision *d)
{
	const Outcome *o = d->outcome;
	int64		refunded = d->payment->refunded_amount;
	int64		disputed = d->payment->disputed_amount;

	if (status_is_final(d->effects->from))
		compare_captured(d);
	for (int i = 0; i < o->n_refunds; i++)
	{
		OperationRow *ours = our_refund(d, &o->refunds[i]);

		CHECK_FOR_INTERRUPTS();
		/* one that answers a command of ours is ours, whatever its id */
		if ((ours != NULL && !operation_is_settled(ours->status)) || !is_taken(d, o->refunds[i].id))
			compare_named_refund(d, &o->refunds[i]);
	}
	if (!is_outdated(d))
	{
		for (int i = 0; i < o->n_disputes; i++)
		{
			CHECK_FOR_INTERRUPTS();
			if (!is_taken(d, o->disputes[i].id))
				compare_named_dispute(d, &o->disputes[i]);
		}
		compare_captured_total(d);
		compare_disputed_total(d);
		compare_refunded_total(d);
	}
	compare_sums(d, refunded, disputed);
}
