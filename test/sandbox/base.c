/*-------------------------------------------------------------------------
 *
 * base.c
 *	  Memory, text buffers, clocks, hashes, arenas and hash tables.
 *
 * test/sandbox/base.c
 *
 *-------------------------------------------------------------------------
 */
#include "base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ARENA_CHUNK	(1024 * 1024)

typedef struct ArenaChunk
{
	struct ArenaChunk *next;
} ArenaChunk;

/*
 * Memory
 */
static void *
checked(void *memory)
{
	if (memory == NULL)
	{
		fputs("sandbox: out of memory\n", stderr);
		abort();
	}
	return memory;
}

void *
xmalloc(size_t size)
{
	return checked(malloc(size));
}

void *
xcalloc(size_t size)
{
	return checked(calloc(1, size));
}

void *
xrealloc(void *old, size_t size)
{
	return checked(realloc(old, size));
}

char *
xstrdup(const char *s)
{
	return checked(strdup(s));
}

/*
 * Text buffers
 */
static void
buf_reserve(Buf *buf, size_t more)
{
	size_t		need = buf->len + more;

	if (need <= buf->size)
		return;
	if (buf->size == 0)
		buf->size = 512;
	while (buf->size < need)
		buf->size *= 2;
	buf->data = xrealloc(buf->data, buf->size);
}

void
buf_append(Buf *buf, const void *data, size_t len)
{
	if (len == 0)
		return;
	buf_reserve(buf, len);
	memcpy(buf->data + buf->len, data, len);
	buf->len += len;
}

void
buf_puts(Buf *buf, const char *s)
{
	buf_append(buf, s, strlen(s));
}

void
buf_printf(Buf *buf, const char *fmt,...)
{
	va_list		args;
	int			len;

	buf_reserve(buf, 128);
	va_start(args, fmt);
	len = vsnprintf(buf->data + buf->len, buf->size - buf->len, fmt, args);
	va_end(args);

	if ((size_t) len >= buf->size - buf->len)
	{
		/* the terminator needs room too, although it is not kept */
		buf_reserve(buf, (size_t) len + 1);
		va_start(args, fmt);
		vsnprintf(buf->data + buf->len, buf->size - buf->len, fmt, args);
		va_end(args);
	}
	buf->len += (size_t) len;
}

/* Faster than printf, and numbers are most of what is written. */
void
buf_int(Buf *buf, int64_t value)
{
	char		digits[24];
	char	   *p = digits + sizeof(digits);
	uint64_t	rest = value < 0 ? -(uint64_t) value : (uint64_t) value;

	do
	{
		*--p = (char) ('0' + rest % 10);
		rest /= 10;
	} while (rest != 0);
	if (value < 0)
		*--p = '-';
	buf_append(buf, p, (size_t) (digits + sizeof(digits) - p));
}

/* A JSON string, or null. */
void
buf_json(Buf *buf, const char *s)
{
	const char *start = s;

	if (s == NULL)
	{
		buf_puts(buf, "null");
		return;
	}

	buf_append(buf, "\"", 1);
	for (; *s != '\0'; s++)
	{
		unsigned char c = (unsigned char) *s;

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		buf_append(buf, start, (size_t) (s - start));
		if (c < 0x20)
			buf_printf(buf, "\\u%04x", c);
		else
		{
			buf_append(buf, "\\", 1);
			buf_append(buf, s, 1);
		}
		start = s + 1;
	}
	buf_append(buf, start, (size_t) (s - start));
	buf_append(buf, "\"", 1);
}

/* A moment as a JSON string in RFC 3339 form, or null for 0. */
void
buf_json_time(Buf *buf, int64_t ms)
{
	time_t		seconds = (time_t) (ms / 1000);
	struct tm	tm;

	if (ms == 0)
	{
		buf_puts(buf, "null");
		return;
	}
	gmtime_r(&seconds, &tm);
	buf_printf(buf, "\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"",
			   tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
			   tm.tm_hour, tm.tm_min, tm.tm_sec, (int) (ms % 1000));
}

/* Text for a place in HTML, also inside a quoted attribute. */
void
buf_html(Buf *buf, const char *s)
{
	for (; *s != '\0'; s++)
	{
		switch (*s)
		{
			case '&':
				buf_puts(buf, "&amp;");
				break;
			case '<':
				buf_puts(buf, "&lt;");
				break;
			case '>':
				buf_puts(buf, "&gt;");
				break;
			case '"':
				buf_puts(buf, "&quot;");
				break;
			case '\'':
				buf_puts(buf, "&#39;");
				break;
			default:
				buf_append(buf, s, 1);
		}
	}
}

/*
 * Give the text, terminated, to the caller, who frees it.  The buffer is
 * empty afterwards.
 */
char *
buf_take(Buf *buf, size_t *len)
{
	char	   *data;

	buf_append(buf, "", 1);
	data = buf->data;
	if (len != NULL)
		*len = buf->len - 1;
	memset(buf, 0, sizeof(*buf));
	return data;
}

void
buf_free(Buf *buf)
{
	free(buf->data);
	memset(buf, 0, sizeof(*buf));
}

/*
 * Time
 */
static int64_t
clock_ms(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t
now_ms(void)
{
	return clock_ms(CLOCK_REALTIME);
}

int64_t
tick_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC);
}

/* The first millisecond of a day written as YYYY-MM-DD, in UTC. */
bool
parse_day(const char *text, int64_t *ms)
{
	struct tm	tm = {0};
	struct tm	back;
	time_t		seconds;
	int			used = 0;

	if (strlen(text) != 10 ||
		sscanf(text, "%4d-%2d-%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &used) != 3 ||
		used != 10)
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	back = tm;
	seconds = timegm(&back);
	/* timegm turns 31 February into a day in March: refuse it */
	if (back.tm_mday != tm.tm_mday || back.tm_mon != tm.tm_mon)
		return false;
	*ms = (int64_t) seconds * 1000;
	return true;
}

/*
 * Text
 */
uint64_t
hash_bytes(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t	hash = UINT64_C(0xcbf29ce484222325);

	for (; len > 0; len--)
		hash = (hash ^ *p++) * UINT64_C(0x100000001b3);
	/* spread the entropy into the low bits, which tables use */
	hash ^= hash >> 32;
	hash *= UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ (hash >> 29);
}

bool
parse_int(const char *text, int64_t *value)
{
	char	   *end;

	if (!(*text >= '0' && *text <= '9'))
		return false;
	errno = 0;
	*value = strtoll(text, &end, 10);
	return errno == 0 && *end == '\0';
}

/* What follows the prefix, or NULL if the text does not begin with it. */
const char *
after_prefix(const char *text, const char *prefix)
{
	size_t		len = strlen(prefix);

	return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

/*
 * Arenas
 */
void *
arena_alloc(Arena *arena, size_t size)
{
	void	   *result;

	size = (size + 7) & ~(size_t) 7;
	if (size > arena->left)
	{
		size_t		room = size > ARENA_CHUNK / 4 ? size : ARENA_CHUNK;
		ArenaChunk *chunk = xmalloc(sizeof(ArenaChunk) + room);

		chunk->next = arena->chunks;
		arena->chunks = chunk;
		if (room == size)
			return chunk + 1;	/* a big one: keep what is left elsewhere */
		arena->next = (char *) (chunk + 1);
		arena->left = room;
	}
	result = arena->next;
	arena->next += size;
	arena->left -= size;
	return result;
}

char *
arena_copy(Arena *arena, const char *s, size_t len)
{
	char	   *copy = arena_alloc(arena, len + 1);

	memcpy(copy, s, len);
	copy[len] = '\0';
	return copy;
}

void
arena_free(Arena *arena)
{
	while (arena->chunks != NULL)
	{
		ArenaChunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
	memset(arena, 0, sizeof(*arena));
}

/*
 * Hash tables
 */

/* The chain that an object with this hash would be in. */
Link *
table_first(const Table *table, uint64_t hash)
{
	return table->size == 0 ? NULL : table->slots[hash & (table->size - 1)];
}

static void
table_grow(Table *table)
{
	size_t		size = table->size == 0 ? 1024 : table->size * 2;
	Link	  **slots = xcalloc(size * sizeof(Link *));

	for (size_t i = 0; i < table->size; i++)
	{
		Link	   *next;

		for (Link *link = table->slots[i]; link != NULL; link = next)
		{
			next = link->next;
			link->next = slots[link->hash & (size - 1)];
			slots[link->hash & (size - 1)] = link;
		}
	}
	free(table->slots);
	table->slots = slots;
	table->size = size;
}

void
table_insert(Table *table, Link *link, uint64_t hash)
{
	Link	  **slot;

	if (table->used >= table->size)
		table_grow(table);
	slot = &table->slots[hash & (table->size - 1)];
	link->hash = hash;
	link->next = *slot;
	*slot = link;
	table->used++;
}

void
table_free(Table *table)
{
	free(table->slots);
	memset(table, 0, sizeof(*table));
}
