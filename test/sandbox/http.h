/*-------------------------------------------------------------------------
 *
 * http.h
 *	  A call that came in over HTTP, and the answer that goes back.
 *
 * Each face has one thread, that of libmicrohttpd, which reads calls and
 * sends answers.  A call that must wait is suspended: it costs its connection
 * and nothing else.  Another thread then finishes it, under the store's lock,
 * and resumes it without the lock; from the suspending to the resuming the
 * call belongs to whoever finishes it.
 *
 * test/sandbox/http.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_HTTP_H
#define SANDBOX_HTTP_H

#include "store.h"

struct MHD_Connection;
struct MHD_Daemon;
struct Rule;
struct Ticket;

typedef enum Delivery
{
	DELIVER_PLAIN,
	DELIVER_DROP,				/* close without an answer */
	DELIVER_RESET,				/* break the connection */
	DELIVER_HALF,				/* half the body, then close */
	DELIVER_STALL				/* half the body, then silence until released */
} Delivery;

typedef struct Answer
{
	int			status;
	const char *type;			/* Content-Type */
	char	   *body;			/* allocated */
	size_t		len;
	uint64_t	padding;		/* so many blanks before the body */
	Delivery	delivery;
	bool		replayed;		/* Idempotent-Replayed: true */
	char	   *retry_after;	/* or NULL; allocated */
	char	   *location;		/* or NULL; allocated */
} Answer;

typedef struct Call
{
	/* what was read */
	struct MHD_Connection *connection;
	const struct Face *face;
	char	   *method;
	char	   *path;			/* decoded, without the query */
	Buf			body;
	bool		too_big;

	Answer		answer;

	/* the rest is for calls of the provider's API */
	Operation	operation;
	char	   *id;				/* of the payment or refund, from the path */
	bool		about_refund;
	char	   *query[2];		/* reference; or day and cursor */
	json_t	   *json;			/* the body, NULL if it is no JSON object */
	unsigned char digest[32];	/* SHA-256 of the body */
	char	   *key_name;		/* Idempotency-Key or NULL */
	uint64_t	record;			/* its place in the record of requests */

	/* pointers into the store: good while the generation is the same */
	uint32_t	generation;
	Subject    *reference;
	Subject    *order;
	Payment    *payment;
	Refund	   *refund;
	Key		   *key;			/* claimed or replayed, else NULL */
	KeyClaim	claim;
	struct Rule *rule;			/* the fault it met, or NULL */
	int			kill_target;	/* of a kill that runs */

	/* while it waits */
	struct Call *next;			/* in the rule's list, or in one to resume */
	struct Call *prev;
	struct Ticket *ticket;		/* its timer, if it is delayed */
	bool		stalled;		/* has sent its headers and first bytes */
	bool		stall_over;
} Call;

/* One of the two listeners */
typedef struct Face
{
	/* returns true if the call was suspended, and not to be touched any more */
	bool		(*handle) (Call *call);
	size_t		max_body;
	struct MHD_Daemon *daemon;
	int			socket;
	int			port;
} Face;

extern const char *api_url;		/* of the API face, without a slash at the end */

extern bool face_listen(Face *face, int port);
extern bool face_start(Face *face, const char *cert, const char *key);

/* For handlers, in their face's thread */
extern const char *call_header(const Call *call, const char *name);
extern const char *call_query(const Call *call, const char *name);
extern bool call_is(const Call *call, const char *method);

/* Answers; a second one replaces the first */
extern void answer_buf(Call *call, int status, const char *type, Buf *buf);
extern void answer_json(Call *call, int status, Buf *buf);
extern void answer_error(Call *call, int status, const char *code,
						 const char *fmt,...)
			__attribute__((format(printf, 4, 5)));

/* Waiting; both are safe in any thread */
extern void call_suspend(Call *call);
extern void calls_resume(Call *list);

#endif							/* SANDBOX_HTTP_H */
