/*-------------------------------------------------------------------------
 *
 * http.c
 *	  Many HTTP calls at a time in one process, with libcurl.
 *
 *	  libcurl's sockets live in an epoll set of our own (sockets.c), whose
 *	  descriptor the caller puts into its wait event set.
 *
 *	  libcurl resolves names in threads, which inherit the signal mask: all
 *	  signals are blocked while it runs, or the server's handlers could run in
 *	  such a thread.  Its callbacks must not jump out of it, so they record
 *	  what went wrong and allocate with malloc.  At exit nothing is cleaned
 *	  up: that would wait for the resolver threads.
 *
 * IDENTIFICATION
 *	  src/worker/http.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "utils/timestamp.h"

#include "worker/http.h"
#include "worker/sockets.h"

#if LIBCURL_VERSION_NUM < 0x075700
#error "payflow needs libcurl 7.87 or later"
#endif

#define RESPONSE_MAX (1024 * 1024)
#define HEADERS_MAX (64 * 1024)
/* so many calls become one cycle of the worker, whose cost they share */
#define STARTS_PER_TURN 100
#define EVENTS_PER_TURN 128
#define SPARE_HANDLES 128

/* a name look-up has two, and opens a file or a socket of its own */
#define DESCRIPTORS_OF_CALL 4

/* when a file of CAs is read again: it may have been replaced */
#define CA_CACHE_SECONDS 5L

#define USER_AGENT "payflow/0.1.0"

static CURLM *multi;
static int64 timer_at = -1;		/* monotonic milliseconds; -1: none */
static sigset_t all_signals;
static dlist_head queued = DLIST_STATIC_INIT(queued);
static dlist_head ended = DLIST_STATIC_INIT(ended);

/* handles to be used again: making one is a good part of a short call */
static CURL *spare[SPARE_HANDLES];
static int	nspare;

static int64
monotonic_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- libcurl's callbacks: no errors, no palloc ---- */

static int
on_timer(CURLM *m pg_attribute_unused(), long timeout_ms, void *arg pg_attribute_unused())
{
	timer_at = timeout_ms < 0 ? -1 : monotonic_ms() + timeout_ms;
	return 0;
}

/*
 * The connection stands and the request is about to be written.  libcurl does
 * this a second time when a kept connection turns out to be closed.
 */
static int
on_request(void *arg, char *remote_ip pg_attribute_unused(), char *local_ip pg_attribute_unused(),
		   int remote_port pg_attribute_unused(), int local_port pg_attribute_unused())
{
	HttpCall   *call = arg;

	if (call->once && call->sent_at != 0)
	{
		call->error = "connection lost before the answer";
		return CURL_PREREQFUNC_ABORT;
	}
	call->sent_at = GetCurrentTimestamp();
	return CURL_PREREQFUNC_OK;
}

static int64
read_retry_after(const char *value, size_t length)
{
	char		text[64];
	char	   *end;
	long long	seconds;

	if (length >= sizeof(text))
		return -1;
	memcpy(text, value, length);
	text[length] = '\0';
	errno = 0;
	seconds = strtoll(text, &end, 10);
	if (end == text || (*end != '\0' && strchr(" \t\r\n", *end) == NULL))
	{
		time_t		at = curl_getdate(text, NULL);

		if (at == (time_t) -1)
			return -1;
		seconds = (long long) at - (long long) time(NULL);
	}
	/* some say 0, or a time that has passed: that is an answer too */
	seconds = Max(Min(seconds, INT_MAX), 0);
	return (int64) seconds * USECS_PER_SEC;
}

static size_t
on_header(char *line, size_t size, size_t n, void *arg)
{
	static const char name[] = "retry-after:";
	HttpCall   *call = arg;
	size_t		length = size * n;

	call->header_bytes += length;
	if (call->header_bytes > HEADERS_MAX)
	{
		call->error = "headers too long";
		return 0;
	}
	if (length >= 5 && strncmp(line, "HTTP/", 5) == 0)
		call->retry_after = -1; /* what came before was an interim answer */
	else if (length >= sizeof(name) - 1 && pg_strncasecmp(line, name, sizeof(name) - 1) == 0)
	{
		const char *value = line + sizeof(name) - 1;
		const char *end = line + length;

		while (value < end && (*value == ' ' || *value == '\t'))
			value++;
		call->retry_after = read_retry_after(value, end - value);
	}
	return length;
}

static size_t
on_body(char *data, size_t size, size_t n, void *arg)
{
	HttpCall   *call = arg;
	size_t		length = size * n;
	size_t		room = RESPONSE_MAX - call->response_length;
	size_t		kept = Min(length, room);

	if (call->response_length + kept > call->response_size)
	{
		size_t		wanted = Max(call->response_length + kept, call->response_size * 2);
		char	   *grown = realloc(call->response, Min(wanted, RESPONSE_MAX));

		if (grown == NULL)
		{
			call->error = "out of memory";
			return 0;
		}
		call->response = grown;
		call->response_size = Min(wanted, RESPONSE_MAX);
	}
	if (kept > 0)
		memcpy(call->response + call->response_length, data, kept);
	call->response_length += kept;
	if (kept < length)
	{
		call->truncated = true;
		return 0;
	}
	return length;
}

/* ---- starting ---- */

void
http_init(int connections)
{
	Assert(multi == NULL);
	sigfillset(&all_signals);
	sigdelset(&all_signals, SIGSEGV);
	sigdelset(&all_signals, SIGBUS);
	sigdelset(&all_signals, SIGFPE);
	sigdelset(&all_signals, SIGILL);
	sigdelset(&all_signals, SIGTRAP);
	sigdelset(&all_signals, SIGABRT);

	sockets_init();
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || (multi = curl_multi_init()) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not initialize libcurl")));
	curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, sockets_on_change);
	curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long) connections);
}

int
http_fd(void)
{
	return sockets_fd();
}

long
http_timeout(void)
{
	int64		left;

	if (!dlist_is_empty(&queued) || !dlist_is_empty(&ended))
		return 0;
	if (timer_at < 0)
		return -1;
	left = timer_at - monotonic_ms();
	return (long) Max(Min(left, INT_MAX), 0);
}

static bool
add_header(HttpCall *call, const char *header)
{
	struct curl_slist *list;

	/* a line break would begin another header, or the body */
	if (strpbrk(header, "\r\n") != NULL)
		return false;
	list = curl_slist_append(call->header_list, header);
	if (list == NULL)
		return false;
	call->header_list = list;
	return true;
}

static void
set_request(HttpCall *call)
{
	CURL	   *easy = call->easy;

	curl_easy_setopt(easy, CURLOPT_URL, call->url);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->header_list);
	if (strcmp(call->method, "GET") == 0)
		curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
	else
	{
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body ? call->body : "");
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) (call->body ? call->body_length : 0));
		if (strcmp(call->method, "POST") != 0)
			curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
	}
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, call->connect_timeout_ms);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, call->timeout_ms);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->curl_error);
	curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_request);
	curl_easy_setopt(easy, CURLOPT_PREREQDATA, call);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
}

static void
set_manners(HttpCall *call)
{
	CURL	   *easy = call->easy;

	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* a name look-up that outlives its call must not be waited for */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	/* with a directory of CAs the parsed file is not kept: 25 ms a connection */
	curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
	curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, CA_CACHE_SECONDS);
	if (call->ca_file != NULL)
		curl_easy_setopt(easy, CURLOPT_CAINFO, call->ca_file);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_2TLS);
	curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 0L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, USER_AGENT);
	curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, sockets_on_open);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, sockets_on_close);
}

static void
end_call(HttpCall *call, HttpResult result)
{
	call->result = result;
	dlist_push_tail(&ended, &call->node);
}

static void
end_unstarted(HttpCall *call, const char *error)
{
	call->own_fault = true;
	call->error = error;
	end_call(call, HTTP_UNSENT);
}

void
http_start(HttpCall *call)
{
	call->result = HTTP_RUNNING;
	call->retry_after = -1;
	dlist_push_tail(&queued, &call->node);
}

static void
start(HttpCall *call)
{
	bool		headers_added = true;

	INSTR_TIME_SET_CURRENT(call->started);
	if (GetCurrentTimestamp() > call->start_before)
	{
		end_unstarted(call, "too little time left to call");
		return;
	}
	for (int i = 0; i < call->nheaders; i++)
		headers_added = headers_added && add_header(call, call->headers[i]);
	/* do not wait for the leave to send a body */
	headers_added = headers_added && add_header(call, "Expect:");
	if (!headers_added)
	{
		end_unstarted(call, "headers cannot be sent");
		return;
	}
	call->easy = nspare > 0 ? spare[--nspare] : curl_easy_init();
	if (call->easy == NULL)
	{
		end_unstarted(call, "out of memory");
		return;
	}
	set_manners(call);
	set_request(call);
	if (curl_multi_add_handle(multi, call->easy) != CURLM_OK)
		end_unstarted(call, "could not start the call");
}

/* ---- ending ---- */

/*
 * Whether descriptors have run out, as far as that can be seen afterwards: what
 * the call itself had is free again.
 */
static bool
descriptors_are_short(void)
{
	int			copies[DESCRIPTORS_OF_CALL];
	int			n = 0;

	while (n < DESCRIPTORS_OF_CALL && (copies[n] = fcntl(sockets_fd(), F_DUPFD_CLOEXEC, 0)) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(copies[i]);
	return n < DESCRIPTORS_OF_CALL;
}

/*
 * Why a call that was not sent is this machine's own affair; NULL: it is not.
 * libcurl tells the error of some socket calls only.
 */
static const char *
own_shortage(HttpCall *call, CURLcode code)
{
	long		error = 0;

	(void) curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &error);
	if (error == EADDRNOTAVAIL)
		return "no local port free";
	if (code == CURLE_OUT_OF_MEMORY || error == ENOMEM || error == ENOBUFS)
		return "out of memory";
	if (error == EMFILE || error == ENFILE || descriptors_are_short())
		return "too many open files";
	return NULL;
}

/*
 * What libcurl says of a failure: its own words for this one where it has any,
 * which may quote what the other side has sent.
 */
static const char *
curl_reason(HttpCall *call, CURLcode code)
{
	if (call->curl_error[0] == '\0')
		return curl_easy_strerror(code);
	for (char *at = call->curl_error; *at != '\0'; at++)
	{
		if (*at < ' ' || *at >= 0x7f)
			*at = '?';
	}
	return call->curl_error;
}

static void
finish(HttpCall *call, CURLcode code)
{
	instr_time	now;
	long		value = 0;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, call->started);
	call->duration = (int64) INSTR_TIME_GET_MICROSEC(now);
	if (curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &value) == CURLE_OK)
		call->status = (int) value;
	/* beside any other status it is about this call, not about all */
	if (call->status != 429 && call->status != 503)
		call->retry_after = -1;

	if (code == CURLE_OK && call->status >= 200)
		end_call(call, HTTP_ANSWERED);
	else if (call->truncated && call->status >= 200)
	{
		call->error = "body too long";
		end_call(call, HTTP_ANSWERED);
	}
	else
	{
		const char *shortage = call->sent_at == 0 ? own_shortage(call, code) : NULL;

		if (shortage != NULL)
		{
			call->own_fault = true;
			call->error = shortage;
		}
		else if (call->error == NULL)
			call->error = code == CURLE_OK ? "no final status" : curl_reason(call, code);
		end_call(call, call->sent_at == 0 ? HTTP_UNSENT : HTTP_LOST);
	}
}

static void
take_finished(void)
{
	CURLMsg    *message;
	int			left;

	while ((message = curl_multi_info_read(multi, &left)) != NULL)
	{
		CURL	   *easy = message->easy_handle;
		CURLcode	code = message->data.result;	/* the message goes with the handle */
		char	   *owner = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(easy, CURLINFO_PRIVATE, &owner);
		curl_multi_remove_handle(multi, easy);
		finish((HttpCall *) owner, code);
	}
}

void
http_work(void)
{
	ReadySocket events[EVENTS_PER_TURN];
	sigset_t	mask;
	int			n;
	int			running;

	pthread_sigmask(SIG_BLOCK, &all_signals, &mask);
	for (int i = 0; i < STARTS_PER_TURN && !dlist_is_empty(&queued); i++)
		start(dlist_container(HttpCall, node, dlist_pop_head_node(&queued)));

	n = sockets_ready(events, EVENTS_PER_TURN);
	for (int i = 0; i < n; i++)
		curl_multi_socket_action(multi, events[i].socket, events[i].what, &running);
	if (timer_at >= 0 && timer_at <= monotonic_ms())
	{
		timer_at = -1;			/* unless libcurl sets it anew */
		curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
	take_finished();
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

HttpCall *
http_next_ended(void)
{
	if (dlist_is_empty(&ended))
		return NULL;
	return dlist_container(HttpCall, node, dlist_pop_head_node(&ended));
}

void
http_release(HttpCall *call)
{
	sigset_t	mask;

	Assert(call->easy == NULL || call->result != HTTP_RUNNING);
	pthread_sigmask(SIG_BLOCK, &all_signals, &mask);
	if (call->easy != NULL && nspare < SPARE_HANDLES)
	{
		curl_easy_reset(call->easy);
		spare[nspare++] = call->easy;
	}
	else if (call->easy != NULL)
		curl_easy_cleanup(call->easy);
	curl_slist_free_all(call->header_list);
	free(call->response);
	call->easy = NULL;
	call->header_list = NULL;
	call->response = NULL;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}
