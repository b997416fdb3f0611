/*-------------------------------------------------------------------------
 *
 * http.h
 *	  Many HTTP calls at a time in one process.  Knows nothing of payments.
 *
 *	  The caller waits on http_fd() (readable: work to do) for at most
 *	  http_timeout() milliseconds, then calls http_work() and takes what has
 *	  ended from http_next_ended().  Nothing here raises an error or
 *	  allocates from a memory context, except http_init().
 *
 * IDENTIFICATION
 *	  src/worker/http.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_HTTP_H
#define PAYFLOW_HTTP_H

#include <curl/curl.h>

#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "portability/instr_time.h"

typedef enum HttpResult
{
	HTTP_RUNNING,
	HTTP_ANSWERED,				/* status and body are there (the body perhaps cut off) */
	HTTP_UNSENT,				/* surely never left: name, connection, TLS */
	HTTP_LOST,					/* sent, no usable answer */
} HttpResult;

typedef struct HttpCall
{
	/* what to do: set by the caller, stays as it is until the call has ended */
	const char *method;
	const char *url;
	const char **headers;		/* "Name: value" */
	int			nheaders;
	const char *body;			/* NULL: none */
	size_t		body_length;
	bool		once;			/* must not be sent twice */
	const char *ca_file;		/* NULL: the system's */
	long		connect_timeout_ms;
	long		timeout_ms;
	TimestampTz start_before;	/* later than this it is not started any more */
	void	   *owner;			/* the caller's */

	/* what came of it */
	HttpResult	result;
	bool		own_fault;		/* it says nothing about the other side */
	int			status;
	char	   *response;		/* malloc'ed, not terminated */
	size_t		response_length;
	bool		truncated;		/* there was more */
	int64		retry_after;	/* with 429 and 503: microseconds; -1: not told */
	TimestampTz sent_at;		/* 0: never */
	int64		duration;		/* microseconds */
	const char *error;			/* ASCII; lives as long as the call; NULL: none */

	/* http.c's own */
	dlist_node	node;
	CURL	   *easy;
	struct curl_slist *header_list;
	size_t		response_size;
	size_t		header_bytes;
	char		curl_error[CURL_ERROR_SIZE];
	instr_time	started;
} HttpCall;

/* Once a process; connections: how many to keep open at most. */
extern void http_init(int connections);

extern int	http_fd(void);
extern long http_timeout(void); /* -1: none */

/* Queues a call; it always ends, also when it cannot be started. */
extern void http_start(HttpCall *call);

/* Does what is to be done now, but not too much of it. */
extern void http_work(void);

/* The next call that has ended; NULL: none. */
extern HttpCall *http_next_ended(void);

/* Frees what the call holds, but not the call itself.  It is not running. */
extern void http_release(HttpCall *call);

#endif							/* PAYFLOW_HTTP_H */
