/*-------------------------------------------------------------------------
 *
 * json.c
 *	  JSON texts: building them, and reading what others have sent.
 *
 * IDENTIFICATION
 *	  src/lib/json.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "common/int.h"
#include "mb/pg_wchar.h"
#include "utils/json.h"
#include "utils/memutils.h"

#include "lib/json.h"
#include "lib/wire.h"

/* values beyond which a document counts as not readable */
#define MAX_VALUES 100000

#define REPLACEMENT_CHARACTER 0xfffd

typedef struct Reader
{
	const char *at;
	const char *end;
	int			values;
} Reader;

static bool read_value(Reader *reader, int depth, Json *value);

/* ---- building ---- */

void
json_open_object(StringInfo buf)
{
	appendStringInfoChar(buf, '{');
}

void
json_close_object(StringInfo buf)
{
	appendStringInfoChar(buf, '}');
}

static void
put_key(StringInfo buf, const char *key)
{
	/* a brace can only be the one that opened the object: strings end in quotes */
	if (buf->data[buf->len - 1] != '{')
		appendStringInfoChar(buf, ',');
	escape_json(buf, key);
	appendStringInfoChar(buf, ':');
}

void
json_put_string(StringInfo buf, const char *key, const char *value)
{
	if (value == NULL)
		return;
	put_key(buf, key);
	escape_json(buf, value);
}

void
json_put_int64(StringInfo buf, const char *key, int64 value)
{
	put_key(buf, key);
	appendStringInfo(buf, INT64_FORMAT, value);
}

void
json_put_bool(StringInfo buf, const char *key, bool value)
{
	put_key(buf, key);
	appendStringInfoString(buf, value ? "true" : "false");
}

void
json_put_raw(StringInfo buf, const char *key, const char *value)
{
	if (value == NULL)
		return;
	put_key(buf, key);
	appendStringInfoString(buf, value);
}

/* ---- reading ---- */

static void
skip_space(Reader *reader)
{
	while (reader->at < reader->end &&
		   (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\n' || *reader->at == '\r'))
		reader->at++;
}

/* Takes the character, after white space, if it comes next. */
static bool
take(Reader *reader, char c)
{
	skip_space(reader);
	if (reader->at >= reader->end || *reader->at != c)
		return false;
	reader->at++;
	return true;
}

static bool
take_word(Reader *reader, const char *word)
{
	size_t		length = strlen(word);

	if ((size_t) (reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
		return false;
	reader->at += length;
	return true;
}

/* The four hex digits of a \u escape; false when they are not there. */
static bool
read_code_unit(Reader *reader, pg_wchar *unit)
{
	*unit = 0;
	if (reader->end - reader->at < 4)
		return false;
	for (int i = 0; i < 4; i++)
	{
		char		c = *reader->at++;

		if (!isxdigit((unsigned char) c))
			return false;
		*unit = *unit << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	return true;
}

/*
 * What follows "\u".  Half a surrogate pair, as is left where a sender cuts
 * texts to a length, becomes the replacement character.
 */
static bool
read_unicode_escape(Reader *reader, char **out)
{
	pg_wchar	character;

	if (!read_code_unit(reader, &character) || character == 0)
		return false;
	if (is_utf16_surrogate_first(character))
	{
		Reader		ahead = *reader;
		pg_wchar	second;

		if (take_word(&ahead, "\\u") && read_code_unit(&ahead, &second) &&
			is_utf16_surrogate_second(second))
		{
			character = surrogate_pair_to_codepoint(character, second);
			*reader = ahead;
		}
		else
			character = REPLACEMENT_CHARACTER;
	}
	else if (is_utf16_surrogate_second(character))
		character = REPLACEMENT_CHARACTER;

	unicode_to_utf8(character, (unsigned char *) *out);
	*out += pg_utf_mblen((unsigned char *) *out);
	return true;
}

/* A string, unescaped; NULL when it is none. */
static char *
read_string(Reader *reader)
{
	static const char escapes[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	const char *close;
	char	   *result;
	char	   *out;

	if (!take(reader, '"'))
		return NULL;
	for (close = reader->at; close < reader->end && *close != '"'; close++)
	{
		if (*close == '\\')
			close++;
	}
	if (close >= reader->end)
		return NULL;

	/* no escape is shorter than what it stands for */
	result = out = palloc(close - reader->at + 1);
	while (*reader->at != '"')
	{
		char		c = *reader->at++;
		const char *escape;

		if ((unsigned char) c < ' ')
			return NULL;
		if (c != '\\')
		{
			*out++ = c;
			continue;
		}
		c = *reader->at++;
		if (c == 'u')
		{
			if (!read_unicode_escape(reader, &out))
				return NULL;
		}
		else if (c != '\0' && (escape = strchr(escapes, c)) != NULL)
			*out++ = meanings[escape - escapes];
		else
			return NULL;
	}
	reader->at++;
	*out = '\0';
	return result;
}

static int
skip_digits(Reader *reader)
{
	int			n = 0;

	while (reader->at < reader->end && isdigit((unsigned char) *reader->at))
	{
		reader->at++;
		n++;
	}
	return n;
}

/* A number as it is written; NULL when it is none. */
static char *
read_number(Reader *reader)
{
	const char *start = reader->at;

	take_word(reader, "-");
	if (!take_word(reader, "0") && skip_digits(reader) == 0)
		return NULL;
	if (take_word(reader, ".") && skip_digits(reader) == 0)
		return NULL;
	if (take_word(reader, "e") || take_word(reader, "E"))
	{
		if (!take_word(reader, "+"))
			take_word(reader, "-");
		if (skip_digits(reader) == 0)
			return NULL;
	}
	return pnstrdup(start, reader->at - start);
}

/* What follows the bracket or brace that opens an array or object. */
static bool
read_children(Reader *reader, int depth, Json *parent)
{
	char		closing = parent->kind == JSON_KIND_OBJECT ? '}' : ']';
	Json	  **place = &parent->child;

	if (depth >= JSON_MAX_DEPTH)
		return false;
	if (take(reader, closing))
		return true;
	do
	{
		Json	   *child = palloc0(sizeof(Json));

		if (parent->kind == JSON_KIND_OBJECT)
		{
			child->key = read_string(reader);
			if (child->key == NULL || !take(reader, ':'))
				return false;
		}
		if (!read_value(reader, depth + 1, child))
			return false;
		*place = child;
		place = &child->next;
	} while (take(reader, ','));
	return take(reader, closing);
}

static bool
read_value(Reader *reader, int depth, Json *value)
{
	skip_space(reader);
	if (reader->at >= reader->end || ++reader->values > MAX_VALUES)
		return false;

	switch (*reader->at)
	{
		case '{':
			reader->at++;
			value->kind = JSON_KIND_OBJECT;
			return read_children(reader, depth, value);
		case '[':
			reader->at++;
			value->kind = JSON_KIND_ARRAY;
			return read_children(reader, depth, value);
		case '"':
			value->kind = JSON_KIND_STRING;
			value->text = read_string(reader);
			return value->text != NULL;
		case 't':
			value->kind = JSON_KIND_BOOL;
			value->boolean = true;
			return take_word(reader, "true");
		case 'f':
			value->kind = JSON_KIND_BOOL;
			return take_word(reader, "false");
		case 'n':
			value->kind = JSON_KIND_NULL;
			return take_word(reader, "null");
		default:
			value->kind = JSON_KIND_NUMBER;
			value->text = read_number(reader);
			return value->text != NULL;
	}
}

const Json *
json_read(const char *bytes, size_t length)
{
	Reader		reader;
	Json	   *value;

	/* the server's check finds NUL bytes, too */
	if (length == 0 || length > MaxAllocSize ||
		!pg_verify_mbstr(PG_UTF8, bytes, (int) length, true))
		return NULL;
	reader.at = bytes;
	reader.end = bytes + length;
	reader.values = 0;
	take_word(&reader, "\xef\xbb\xbf"); /* byte order mark */

	value = palloc0(sizeof(Json));
	if (!read_value(&reader, 0, value))
		return NULL;
	skip_space(&reader);
	return reader.at == reader.end ? value : NULL;
}

const Json *
json_member(const Json *object, const char *key)
{
	const Json *found = NULL;

	if (object == NULL || object->kind != JSON_KIND_OBJECT)
		return NULL;
	for (const Json *member = object->child; member != NULL; member = member->next)
	{
		if (strcmp(member->key, key) == 0)
			found = member;
	}
	return found;
}

/* A member that is neither missing nor null; *found says whether its kind fits. */
static const Json *
typed_member(const Json *object, const char *key, JsonKind kind, JsonFound *found)
{
	const Json *member = json_member(object, key);

	if (member == NULL || member->kind == JSON_KIND_NULL)
		*found = JSON_ABSENT;
	else if (member->kind != kind)
		*found = JSON_UNUSABLE;
	else
		*found = JSON_FOUND;
	return member;
}

JsonFound
json_get_string(const Json *object, const char *key, const char **value)
{
	JsonFound	found;
	const Json *member = typed_member(object, key, JSON_KIND_STRING, &found);
	const char *text;

	if (found != JSON_FOUND)
		return found;
	text = server_from_utf8(member->text, false);
	if (text == NULL)
		return JSON_UNUSABLE;
	*value = text;
	return JSON_FOUND;
}

JsonFound
json_get_int64(const Json *object, const char *key, int64 *value)
{
	JsonFound	found;
	const Json *member = typed_member(object, key, JSON_KIND_NUMBER, &found);
	const char *at;
	bool		negative;
	int64		result = 0;

	if (found != JSON_FOUND)
		return found;
	at = member->text;
	negative = *at == '-';
	if (negative)
		at++;
	/* counted downwards, as the smallest number has no positive counterpart */
	for (; isdigit((unsigned char) *at); at++)
	{
		if (pg_mul_s64_overflow(result, 10, &result) ||
			pg_sub_s64_overflow(result, *at - '0', &result))
			return JSON_UNUSABLE;
	}
	if (*at == '.')
		at += 1 + strspn(at + 1, "0");
	if (*at != '\0' || (!negative && result == PG_INT64_MIN))
		return JSON_UNUSABLE;
	*value = negative ? result : -result;
	return JSON_FOUND;
}

const char *
json_get_message(const Json *object, const char *key, int max_bytes)
{
	JsonFound	found;
	const Json *member = typed_member(object, key, JSON_KIND_STRING, &found);
	char	   *text;
	const char *result;

	if (found != JSON_FOUND)
		return NULL;
	text = pstrdup(member->text);
	for (unsigned char *at = (unsigned char *) text; *at != '\0'; at++)
	{
		if (*at < ' ' || *at == 0x7f)
			*at = ' ';
		else if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f)
			at[0] = at[1] = ' ';	/* the control characters beyond ASCII */
	}
	result = server_from_utf8(text, true);
	return pnstrdup(result, pg_mbcliplen(result, strlen(result), max_bytes));
}
