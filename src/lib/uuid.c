/*-------------------------------------------------------------------------
 *
 * uuid.c
 *	  Version 7 UUIDs that carry a routing slot.
 *
 *	  bits 0-47 unix time in ms, 48-51 version, 52-63 slot, 64-65 variant,
 *	  66-127 random
 *
 * IDENTIFICATION
 *	  src/lib/uuid.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "datatype/timestamp.h"
#include "utils/timestamp.h"

#include "lib/uuid.h"

#define SLOT_MASK 0xfff

/* the text form has a hyphen before these bytes */
#define hyphen_before(byte) ((byte) == 4 || (byte) == 6 || (byte) == 8 || (byte) == 10)

int
routing_slot(const char *merchant, const char *order_id)
{
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	bool		done;

	/* the merchant's terminator is the byte 0 between the two */
	done = hash != NULL &&
		pg_cryptohash_init(hash) >= 0 &&
		pg_cryptohash_update(hash, (const uint8 *) merchant, strlen(merchant) + 1) >= 0 &&
		pg_cryptohash_update(hash, (const uint8 *) order_id, strlen(order_id)) >= 0 &&
		pg_cryptohash_final(hash, digest, sizeof(digest)) >= 0;
	pg_cryptohash_free(hash);
	if (!done)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute a SHA-256 hash")));

	return (digest[sizeof(digest) - 2] << 8 | digest[sizeof(digest) - 1]) & SLOT_MASK;
}

void
uuid_v7(pg_uuid_t *uuid, int slot)
{
	const int64 epoch_shift = (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
	uint64		ms = (uint64) ((GetCurrentTimestamp() + epoch_shift) / 1000);

	Assert(slot >= 0 && slot <= SLOT_MASK);
	if (!pg_strong_random(uuid->data + 8, UUID_LEN - 8))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));

	for (int i = 0; i < 6; i++)
		uuid->data[i] = (uint8) (ms >> (40 - 8 * i));
	uuid->data[6] = 0x70 | slot >> 8;
	uuid->data[7] = slot & 0xff;
	uuid->data[8] = 0x80 | (uuid->data[8] & 0x3f);
}

char *
uuid_to_text(const pg_uuid_t *uuid, char buffer[UUID_TEXT_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	char	   *at = buffer;

	for (int i = 0; i < UUID_LEN; i++)
	{
		if (hyphen_before(i))
			*at++ = '-';
		*at++ = digits[uuid->data[i] >> 4];
		*at++ = digits[uuid->data[i] & 0xf];
	}
	*at = '\0';
	return buffer;
}

/* The value of a hex digit; -1: none. */
static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool
uuid_from_text(const char *text, pg_uuid_t *uuid)
{
	if (strlen(text) != UUID_TEXT_SIZE - 1)
		return false;
	for (int i = 0; i < UUID_LEN; i++)
	{
		int			high;
		int			low;

		if (hyphen_before(i) && *text++ != '-')
			return false;
		high = hex_digit(*text++);
		low = hex_digit(*text++);
		if (high < 0 || low < 0)
			return false;
		uuid->data[i] = (unsigned char) (high << 4 | low);
	}
	return true;
}
