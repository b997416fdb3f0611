/*-------------------------------------------------------------------------
 *
 * hash.h
 *	  SHA-256, by the server's own implementation.
 *
 * IDENTIFICATION
 *	  src/lib/hash.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_HASH_H
#define PAYFLOW_HASH_H

#define SHA256_SIZE 32

/* Of the bytes of a, followed by those of b. */
extern void sha256_of_two(const void *a, size_t a_length, const void *b, size_t b_length,
						  uint8 digest[SHA256_SIZE]);

/* In a time that does not tell where they differ. */
extern bool same_digest(const uint8 a[SHA256_SIZE], const uint8 b[SHA256_SIZE]);

#endif							/* PAYFLOW_HASH_H */
