/*-------------------------------------------------------------------------
 *
 * hash.c
 *	  SHA-256, by the server's own implementation.
 *
 * IDENTIFICATION
 *	  src/lib/hash.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"

#include "lib/hash.h"

StaticAssertDecl(SHA256_SIZE == PG_SHA256_DIGEST_LENGTH, "a SHA-256 hash has 32 bytes");

void
sha256_of_two(const void *a, size_t a_length, const void *b, size_t b_length, uint8 digest[SHA256_SIZE])
{
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);
	bool		done;

	done = hash != NULL &&
		pg_cryptohash_init(hash) >= 0 &&
		pg_cryptohash_update(hash, a, a_length) >= 0 &&
		pg_cryptohash_update(hash, b, b_length) >= 0 &&
		pg_cryptohash_final(hash, digest, SHA256_SIZE) >= 0;
	pg_cryptohash_free(hash);
	if (!done)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute a SHA-256 hash")));
}

bool
same_digest(const uint8 a[SHA256_SIZE], const uint8 b[SHA256_SIZE])
{
	volatile uint8 difference = 0;

	for (int i = 0; i < SHA256_SIZE; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}
