/*-------------------------------------------------------------------------
 *
 * json.h
 *	  JSON texts: building them, and reading what others have sent.
 *
 *	  The reader is not the server's.  That one raises errors for documents
 *	  that are well-formed: for characters which the database encoding lacks
 *	  (a provider may send all its messages as \u escapes), for deep nesting,
 *	  for numbers beyond numeric's range.  This one raises none, keeps strings
 *	  in UTF-8 and converts only those that somebody asks for.
 *
 * IDENTIFICATION
 *	  src/lib/json.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_JSON_H
#define PAYFLOW_JSON_H

#include "lib/stringinfo.h"

/* ---- building, in the database encoding ---- */

/*
 * Members appear in the order of the calls.  A NULL string leaves the member
 * out.  json_put_raw() takes a value that is JSON text already.
 *
 * json_open_object(&buf);
 * json_put_string(&buf, "order", order_id);
 * json_close_object(&buf);
 */
extern void json_open_object(StringInfo buf);
extern void json_close_object(StringInfo buf);
extern void json_put_string(StringInfo buf, const char *key, const char *value);
extern void json_put_int64(StringInfo buf, const char *key, int64 value);
extern void json_put_bool(StringInfo buf, const char *key, bool value);
extern void json_put_raw(StringInfo buf, const char *key, const char *value);

/* ---- reading ---- */

/* nesting beyond which a document counts as not readable */
#define JSON_MAX_DEPTH 64

typedef enum JsonKind
{
	JSON_KIND_NULL,
	JSON_KIND_BOOL,
	JSON_KIND_NUMBER,
	JSON_KIND_STRING,
	JSON_KIND_ARRAY,
	JSON_KIND_OBJECT,
} JsonKind;

/* a value; the children of an array or object are a list in document order */
typedef struct Json
{
	JsonKind	kind;
	bool		boolean;
	const char *key;			/* of an object's member, UTF-8; else NULL */
	const char *text;			/* string: unescaped, UTF-8; number: as written */
	struct Json *child;			/* the first one */
	struct Json *next;			/* sibling */
} Json;

/* what was found under a key; null counts as absent */
typedef enum JsonFound
{
	JSON_ABSENT,
	JSON_FOUND,
	JSON_UNUSABLE,				/* another type, out of range, or not convertible */
} JsonFound;

/*
 * Reads a whole document from bytes, into the current memory context.  NULL
 * when it is not readable: no JSON, no valid UTF-8, with a NUL byte or its
 * escape in it, nested too deep or of too many values.
 */
extern const Json *json_read(const char *bytes, size_t length);

/*
 * The member of that name, the last one of several; NULL when there is none
 * or `object` is NULL or no object.
 */
extern const Json *json_member(const Json *object, const char *key);

/*
 * Typed members.  *value is set only with JSON_FOUND.  Strings come in the
 * database encoding.  An int64 is exact: a number with an exponent or with
 * decimals other than zeros is unusable.
 */
extern JsonFound json_get_string(const Json *object, const char *key, const char **value);
extern JsonFound json_get_int64(const Json *object, const char *key, int64 *value);

/*
 * Text for people: control characters become spaces, characters that the
 * database encoding lacks become '?', and what is longer than max_bytes is cut
 * off between characters.  NULL when there is no such string.
 */
extern const char *json_get_message(const Json *object, const char *key, int max_bytes);

#endif							/* PAYFLOW_JSON_H */
