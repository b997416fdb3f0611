/*-------------------------------------------------------------------------
 *
 * money.c
 *	  Money: the sums over all payments, the journal of every movement, and
 *	  the daily report that is read from it.
 *
 * test/sandbox/money.c
 *
 *-------------------------------------------------------------------------
 */
#include "store.h"

#include <string.h>

#define REPORT_PAGE	100
#define DAY_MS		INT64_C(86400000)

static const char *const money_type_names[] = {
	"payment", "payment_reversed", "refund", "refund_reversed", "dispute",
	"dispute_reversed"
};

/* Digits after the point in ISO 4217, where they are not two. */
static const struct
{
	const char *currencies;
	int			digits;
}			currency_table[] =
{
	{"BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF", 0},
	{"BHD IQD JOD KWD LYD OMR TND", 3},
	{"CLF UYW", 4}
};

/* Could this be a currency? */
bool
currency_valid(const char *currency)
{
	return strlen(currency) == 3 &&
		strspn(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 3;
}

int
currency_digits(const char *currency)
{
	for (size_t i = 0; i < lengthof(currency_table); i++)
	{
		if (strstr(currency_table[i].currencies, currency) != NULL)
			return currency_table[i].digits;
	}
	return 2;
}

/* Set a total of a payment, and the sum over all payments with it. */
void
money_set(int64_t *field, int64_t *sum, int64_t value)
{
	*sum += value - *field;
	*field = value;
}

static uint16_t *
line_counter(MoneyType type, Payment *payment, void *object)
{
	switch (type)
	{
		case MONEY_REFUND:
		case MONEY_REFUND_REVERSED:
			return &((Refund *) object)->lines;
		case MONEY_DISPUTE:
		case MONEY_DISPUTE_REVERSED:
			return &((Dispute *) object)->lines;
		default:
			return &payment->lines;
	}
}

void
money_row(MoneyType type, Payment *payment, void *object, int64_t amount)
{
	MoneyRow   *row;

	if ((store.money_count & (store.money_count - 1)) == 0)
		store.money = xrealloc(store.money,
							   sizeof(MoneyRow) *
							   (store.money_count == 0 ? 1 : store.money_count * 2));
	row = &store.money[store.money_count];
	row->at_ms = now_ms();
	/* keep the order of time even if the clock is set back */
	if (store.money_count > 0 && row[-1].at_ms > row->at_ms)
		row->at_ms = row[-1].at_ms;
	row->amount = amount;
	row->payment = payment;
	row->object = object;
	row->line = ++*line_counter(type, payment, object);
	row->type = (uint8_t) type;
	memcpy(row->currency, payment->currency, 4);
	store.money_count++;
}

/* The first row at or after a moment. */
static size_t
money_at(int64_t ms)
{
	size_t		low = 0;
	size_t		high = store.money_count;

	while (low < high)
	{
		size_t		middle = low + (high - low) / 2;

		if (store.money[middle].at_ms < ms)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void
report_row(Buf *buf, const MoneyRow *row)
{
	const Payment *payment = row->payment;
	const char *reference = payment->reference->name;
	const char *status = payment_status_names[payment->status];
	char		id[24];
	char		payment_name[24];

	payment_id(payment_name, payment);
	memcpy(id, payment_name, sizeof(id));
	if (row->type == MONEY_REFUND || row->type == MONEY_REFUND_REVERSED)
	{
		const Refund *refund = row->object;

		refund_id(id, refund);
		status = refund_status_names[refund->status];
		reference = refund->reference;
	}
	else if (row->type == MONEY_DISPUTE || row->type == MONEY_DISPUTE_REVERSED)
	{
		dispute_id(id, row->object);
		status = dispute_status(row->object);
	}

	buf_printf(buf, "{\"id\":\"%s\",\"type\":\"%s\",\"line\":%d,\"payment\":\"%s\",\"reference\":",
			   id, money_type_names[row->type], row->line, payment_name);
	buf_json(buf, reference);
	buf_puts(buf, ",\"amount\":");
	buf_int(buf, row->amount);
	buf_printf(buf, ",\"currency\":\"%s\",\"status\":\"%s\",\"fee\":0,\"refunded_amount\":",
			   row->currency, status);
	buf_int(buf, payment->refunded);
	buf_puts(buf, ",\"occurred_at\":");
	buf_json_time(buf, row->at_ms);
	buf_puts(buf, "}");
}

/*
 * A page of the report of one day, in UTC.  The cursor is the number of the
 * day's row to begin with.  False: one of the two cannot be read.
 */
bool
report_json(Buf *buf, const char *day, const char *cursor)
{
	int64_t		from;
	int64_t		skip = 0;
	size_t		row;
	size_t		end;
	int			n = 0;

	if (day == NULL || !parse_day(day, &from) ||
		(cursor != NULL && !parse_int(cursor, &skip)))
		return false;

	row = money_at(from);
	end = money_at(from + DAY_MS);
	row = skip < (int64_t) (end - row) ? row + (size_t) skip : end;

	buf_puts(buf, "{\"day\":");
	buf_json(buf, day);
	buf_puts(buf, ",\"rows\":[");
	for (; row < end && n < REPORT_PAGE; row++, n++)
	{
		if (n > 0)
			buf_puts(buf, ",");
		report_row(buf, &store.money[row]);
	}
	if (row < end)
		buf_printf(buf, "],\"next_cursor\":\"%lld\"}", (long long) (skip + n));
	else
		buf_puts(buf, "],\"next_cursor\":null}");
	return true;
}
