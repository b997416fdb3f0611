/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  Idempotency keys of the provider's API.
 *
 * A key belongs to one call: method, path and the bytes of the body.  It is
 * claimed before the work and either kept with the answer or, where nothing
 * was done, free again.
 *
 * test/sandbox/keys.c
 *
 *-------------------------------------------------------------------------
 */
#include "store.h"

#include <string.h>

typedef enum KeyState
{
	KEY_FREE,
	KEY_BUSY,
	KEY_KEPT
} KeyState;

struct Key
{
	Link		link;
	int64_t		since;			/* when it was claimed: tick_ms() */
	uint64_t	target;			/* hash of method and path */
	unsigned char digest[16];	/* of the body */
	Payment    *registered;		/* the answer, if it was a register call's */
	const char *answer;			/* else its text */
	uint32_t	answer_len;
	uint16_t	status;
	uint8_t		state;
	char		name[];
};

static Key *
key_get(const char *name)
{
	size_t		len = strlen(name);
	uint64_t	hash = hash_bytes(name, len);
	Key		   *key;

	for (Link *link = table_first(&store.keys, hash); link != NULL; link = link->next)
	{
		key = (Key *) link;
		if (link->hash == hash && strcmp(key->name, name) == 0)
			return key;
	}
	key = arena_alloc(&store.arena, sizeof(Key) + len + 1);
	memset(key, 0, sizeof(Key));
	memcpy(key->name, name, len + 1);
	table_insert(&store.keys, &key->link, hash);
	return key;
}

/*
 * Claim a key for a call.  target tells method and path, digest (32 bytes, of
 * which 16 are compared) the body.
 */
KeyClaim
key_claim(const char *name, uint64_t target, const unsigned char *digest, Key **result)
{
	Key		   *key = key_get(name);
	int64_t		now = tick_ms();

	*result = key;
	if (key->state == KEY_KEPT &&
		now - key->since >= store.settings.key_ttl_s * 1000)
		key->state = KEY_FREE;

	if (key->state == KEY_FREE)
	{
		key->state = KEY_BUSY;
		key->since = now;
		key->target = target;
		memcpy(key->digest, digest, sizeof(key->digest));
		key->registered = NULL;
		key->answer = NULL;
		return KEY_CLAIMED;
	}
	if (key->target != target ||
		memcmp(key->digest, digest, sizeof(key->digest)) != 0)
		return KEY_REUSED;
	return key->state == KEY_BUSY ? KEY_IN_USE : KEY_REPLAY;
}

void
key_keep(Key *key, int status, const char *body, size_t len)
{
	key->answer = arena_copy(&store.arena, body, len);
	key->answer_len = (uint32_t) len;
	key->status = (uint16_t) status;
	key->state = KEY_KEPT;
}

/* As key_keep, for the answer to a register call that made this payment. */
void
key_keep_registered(Key *key, int status, Payment *payment)
{
	key->registered = payment;
	key->status = (uint16_t) status;
	key->state = KEY_KEPT;
}

void
key_free(Key *key)
{
	key->state = KEY_FREE;
}

/* Write the kept answer; returns its HTTP status. */
int
key_answer(const Key *key, Buf *buf)
{
	if (key->registered != NULL)
		payment_json_born(buf, key->registered);
	else
		buf_append(buf, key->answer, key->answer_len);
	return key->status;
}
