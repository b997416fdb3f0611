/*-------------------------------------------------------------------------
 *
 * store.c
 *	  The memory of the test provider, and how things are found in it.
 *
 * Ids carry a number that is the place in an array, so looking one up needs
 * no hash.  References, orders and keys have hash tables.
 *
 * test/sandbox/store.c
 *
 *-------------------------------------------------------------------------
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

Store		store = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *const operation_names[OP_COUNT] = {
	"register", "get", "find", "capture", "cancel", "expire", "refund", "report"
};

const char *const payment_status_names[] = {
	"pending", "requires_action", "authorized", "paid", "declined", "expired",
	"canceled"
};

const char *const stage_names[] = {
	"form", "redirected", "authentication", "processing"
};

const char *const refund_status_names[] = {"pending", "succeeded", "failed"};

static void
store_begin(void)
{
	store.all = arena_alloc(&store.arena, sizeof(Subject) + 1);
	memset(store.all, 0, sizeof(Subject) + 1);
	settings_reset(&store.settings);
}

void
store_init(void)
{
	/* without it, ids of two runs could meet in one database */
	if (getrandom(&store.boot, sizeof(store.boot), 0) != sizeof(store.boot))
		store.boot = (uint32_t) now_ms();
	store_begin();
}

void
store_lock(void)
{
	pthread_mutex_lock(&store.lock);
}

void
store_unlock(void)
{
	pthread_mutex_unlock(&store.lock);
}

/*
 * Forget everything but the numbers, which go on, so that an id of before
 * never means something else.
 */
void
store_forget(void)
{
	store.generation++;
	store.first_payment += store.payment_count;
	store.first_refund += store.refund_count;
	store.payment_count = 0;
	store.refund_count = 0;
	store.money_count = 0;
	free(store.payments);
	free(store.refunds);
	free(store.money);
	free(store.seen);
	store.payments = NULL;
	store.refunds = NULL;
	store.money = NULL;
	store.seen = NULL;
	store.seen_size = 0;
	store.seen_used = 0;
	memset(&store.sums, 0, sizeof(store.sums));
	table_free(&store.references);
	table_free(&store.orders);
	table_free(&store.keys);
	arena_free(&store.arena);
	store_begin();
}

Subject *
subject_find(Table *table, const char *name)
{
	uint64_t	hash = hash_bytes(name, strlen(name));

	for (Link *link = table_first(table, hash); link != NULL; link = link->next)
	{
		Subject    *subject = (Subject *) link;

		if (link->hash == hash && strcmp(subject->name, name) == 0)
			return subject;
	}
	return NULL;
}

Subject *
subject_get(Table *table, const char *name)
{
	Subject    *subject = subject_find(table, name);
	size_t		len = strlen(name);

	if (subject != NULL)
		return subject;
	subject = arena_alloc(&store.arena, sizeof(Subject) + len + 1);
	memset(subject, 0, sizeof(Subject));
	memcpy(subject->name, name, len + 1);
	table_insert(table, &subject->link, hash_bytes(name, len));
	return subject;
}

/*
 * The number in an id like pay_<boot><number>, both 8 hex digits.  Ids of
 * other processes are strangers.
 */
static bool
id_number(const char *id, const char *prefix, uint32_t *number)
{
	const char *digits = after_prefix(id, prefix);
	uint64_t	value = 0;

	if (digits == NULL || strlen(digits) != 16)
		return false;
	for (; *digits != '\0'; digits++)
	{
		const char *hex = "0123456789abcdef";
		const char *place = strchr(hex, *digits);

		if (place == NULL)
			return false;
		value = value << 4 | (uint64_t) (place - hex);
	}
	*number = (uint32_t) value;
	return (uint32_t) (value >> 32) == store.boot;
}

Payment *
payment_by_id(const char *id)
{
	uint32_t	number;

	if (!id_number(id, "pay_", &number) ||
		number - store.first_payment >= store.payment_count)
		return NULL;
	return store.payments[number - store.first_payment];
}

/* By the provider's id, or else the newest of our reference. */
Payment *
payment_by_name(const char *name)
{
	Payment    *payment = payment_by_id(name);
	Subject    *subject;

	if (payment != NULL)
		return payment;
	subject = subject_find(&store.references, name);
	return subject == NULL ? NULL : subject->last;
}

Refund *
refund_by_id(const char *id)
{
	uint32_t	number;

	if (!id_number(id, "re_", &number) ||
		number - store.first_refund >= store.refund_count)
		return NULL;
	return store.refunds[number - store.first_refund];
}

/* The payments of a reference or order, oldest first. */
Payment *
payment_first(const Subject *subject, bool by_order)
{
	if (subject == NULL || subject->last == NULL)
		return NULL;
	return by_order ? subject->last->next_order : subject->last->next_reference;
}

Payment *
payment_next(const Subject *subject, bool by_order, const Payment *payment)
{
	if (payment == subject->last)
		return NULL;
	return by_order ? payment->next_order : payment->next_reference;
}

static bool
seen_put(uint64_t *slots, size_t size, uint64_t print)
{
	size_t		i = print & (size - 1);

	while (slots[i] != 0)
	{
		if (slots[i] == print)
			return true;
		i = (i + 1) & (size - 1);
	}
	slots[i] = print;
	return false;
}

/*
 * Has this key been seen with this subject before?  It has been from now on.
 * Only fingerprints are kept, because keys themselves can be forgotten.
 */
bool
seen_before(const char *key, const Subject *subject)
{
	uint64_t	parts[2] = {hash_bytes(key, strlen(key)), (uint64_t) (uintptr_t) subject};
	uint64_t	print = hash_bytes(parts, sizeof(parts)) | 1;

	if (store.seen_used * 4 >= store.seen_size * 3)
	{
		size_t		size = store.seen_size == 0 ? 1024 : store.seen_size * 2;
		uint64_t   *slots = xcalloc(size * sizeof(uint64_t));

		for (size_t i = 0; i < store.seen_size; i++)
		{
			if (store.seen[i] != 0)
				seen_put(slots, size, store.seen[i]);
		}
		free(store.seen);
		store.seen = slots;
		store.seen_size = size;
	}
	if (seen_put(store.seen, store.seen_size, print))
		return true;
	store.seen_used++;
	return false;
}
