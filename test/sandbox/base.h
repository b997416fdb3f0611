/*-------------------------------------------------------------------------
 *
 * base.h
 *	  Small things that every file of the test provider uses: memory that
 *	  cannot fail, a growing text buffer, clocks, hashes, arenas and hash
 *	  tables.
 *
 * test/sandbox/base.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_BASE_H
#define SANDBOX_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

/* Memory: these end the process instead of returning NULL */
extern void *xmalloc(size_t size);
extern void *xcalloc(size_t size);
extern void *xrealloc(void *old, size_t size);
extern char *xstrdup(const char *s);

/* A text that grows; zero-initialised is empty */
typedef struct Buf
{
	char	   *data;			/* not terminated, NULL while empty */
	size_t		len;
	size_t		size;			/* bytes allocated */
} Buf;

extern void buf_append(Buf *buf, const void *data, size_t len);
extern void buf_puts(Buf *buf, const char *s);
extern void buf_printf(Buf *buf, const char *fmt,...)
			__attribute__((format(printf, 2, 3)));
extern void buf_int(Buf *buf, int64_t value);
extern void buf_json(Buf *buf, const char *s);
extern void buf_json_time(Buf *buf, int64_t ms);
extern void buf_html(Buf *buf, const char *s);
extern char *buf_take(Buf *buf, size_t *len);
extern void buf_free(Buf *buf);

/* Time, in milliseconds: of the calendar, and for measuring */
extern int64_t now_ms(void);
extern int64_t tick_ms(void);
extern bool parse_day(const char *text, int64_t *ms);

/* Text */
extern uint64_t hash_bytes(const void *data, size_t len);
extern bool parse_int(const char *text, int64_t *value);
extern const char *after_prefix(const char *text, const char *prefix);

/*
 * An arena: memory that is given back all at once.  What the provider
 * remembers lives in one, so that a million payments carry no per-object
 * overhead and are forgotten quickly.
 */
typedef struct Arena
{
	struct ArenaChunk *chunks;
	char	   *next;
	size_t		left;
} Arena;

extern void *arena_alloc(Arena *arena, size_t size);
extern char *arena_copy(Arena *arena, const char *s, size_t len);
extern void arena_free(Arena *arena);

/* A hash table of objects that begin with a Link */
typedef struct Link
{
	struct Link *next;
	uint64_t	hash;
} Link;

typedef struct Table
{
	Link	  **slots;
	size_t		size;			/* a power of two, or 0 */
	size_t		used;
} Table;

extern Link *table_first(const Table *table, uint64_t hash);
extern void table_insert(Table *table, Link *link, uint64_t hash);
extern void table_free(Table *table);

#endif							/* SANDBOX_BASE_H */
