/*-------------------------------------------------------------------------
 *
 * wire.h
 *	  Text as it goes over the wire: UTF-8, URLs, times.
 *
 *	  In a database whose encoding is neither UTF8 nor SQL_ASCII the two
 *	  conversions need a transaction.
 *
 * IDENTIFICATION
 *	  src/lib/wire.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_WIRE_H
#define PAYFLOW_WIRE_H

#include "datatype/timestamp.h"
#include "lib/stringinfo.h"

/* the longest URL that we keep or send anybody to */
#define URL_MAX 2048

/*
 * Valid UTF-8 from text in the database encoding; '?' for what cannot be
 * converted.  In the current memory context, or the argument itself.
 */
extern const char *utf8_from_server(const char *text);

/*
 * Text in the database encoding from valid UTF-8.  Where a character cannot be
 * converted: NULL, or '?' in its place if `replace`.
 */
extern const char *server_from_utf8(const char *text, bool replace);

/*
 * True for an absolute http or https URL with a host, at most URL_MAX bytes,
 * without user name, spaces and control characters.
 */
extern bool url_is_usable(const char *url);

/* Of a usable URL: does it lead to this machine, by its name or number? */
extern bool url_is_loopback(const char *url);

/* Appends text with all but unreserved characters percent-encoded, as UTF-8. */
extern void append_percent_encoded(StringInfo buf, const char *text);

/*
 * A time of RFC 3339, such as 2026-11-30T09:00:00.5Z or with an offset.  False
 * when the text is none.
 */
extern bool timestamp_from_wire(const char *text, TimestampTz *time);

#endif							/* PAYFLOW_WIRE_H */
