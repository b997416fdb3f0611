/*-------------------------------------------------------------------------
 *
 * uuid.h
 *	  Our ids: version 7 UUIDs whose rand_a bits are a routing slot, so that a
 *	  router can place any call by its id alone.
 *
 * IDENTIFICATION
 *	  src/lib/uuid.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_UUID_H
#define PAYFLOW_UUID_H

#include "utils/uuid.h"

/* 36 characters and the terminator */
#define UUID_TEXT_SIZE 37

/*
 * The slot (0 .. 4095) of an order: the low 12 bits of the SHA-256 of the
 * bytes merchant, 0, order_id.
 */
extern int	routing_slot(const char *merchant, const char *order_id);

/* A fresh id of the present millisecond. */
extern void uuid_v7(pg_uuid_t *uuid, int slot);

/* Writes the canonical text into the caller's buffer and returns the buffer. */
extern char *uuid_to_text(const pg_uuid_t *uuid, char buffer[UUID_TEXT_SIZE]);

/* False when the text is not the canonical form (hex digits in any case). */
extern bool uuid_from_text(const char *text, pg_uuid_t *uuid);

#endif							/* PAYFLOW_UUID_H */
