/*-------------------------------------------------------------------------
 *
 * http.c
 *	  The two listeners: reading calls, sending answers whole or broken.
 *
 * test/sandbox/http.c
 *
 *-------------------------------------------------------------------------
 */
#include "http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rules.h"

#define LISTEN_BACKLOG	4096
#define STREAM_BLOCK	(32 * 1024)

const char *api_url = "";

/*
 * Answers
 */
void
answer_buf(Call *call, int status, const char *type, Buf *buf)
{
	free(call->answer.body);
	call->answer.status = status;
	call->answer.type = type;
	call->answer.body = buf_take(buf, &call->answer.len);
}

void
answer_json(Call *call, int status, Buf *buf)
{
	answer_buf(call, status, "application/json", buf);
}

void
answer_error(Call *call, int status, const char *code, const char *fmt,...)
{
	char		message[512];
	Buf			buf = {0};
	va_list		args;

	va_start(args, fmt);
	vsnprintf(message, sizeof(message), fmt, args);
	va_end(args);

	buf_puts(&buf, "{\"error\":{\"code\":");
	buf_json(&buf, code);
	buf_puts(&buf, ",\"message\":");
	buf_json(&buf, message);
	buf_puts(&buf, "}}");
	answer_json(call, status, &buf);
}

/*
 * Calls
 */
const char *
call_header(const Call *call, const char *name)
{
	return MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, name);
}

const char *
call_query(const Call *call, const char *name)
{
	return MHD_lookup_connection_value(call->connection, MHD_GET_ARGUMENT_KIND, name);
}

bool
call_is(const Call *call, const char *method)
{
	return strcmp(call->method, method) == 0;
}

/*
 * Must be called in the call's own thread, and under the store's lock if
 * others can know the call already, so that nobody resumes it too early.
 */
void
call_suspend(Call *call)
{
	MHD_suspend_connection(call->connection);
}

/* Let finished calls go on.  Not under the lock: a call may be freed at once. */
void
calls_resume(Call *list)
{
	while (list != NULL)
	{
		Call	   *next = list->next;

		list->next = NULL;
		MHD_resume_connection(list->connection);
		list = next;
	}
}

static Call *
call_new(const Face *face, struct MHD_Connection *connection,
		 const char *method, const char *path)
{
	Call	   *call = xcalloc(sizeof(Call));

	call->face = face;
	call->connection = connection;
	call->method = xstrdup(method);
	call->path = xstrdup(path);
	call->operation = OP_NONE;
	return call;
}

static void
call_free(Call *call)
{
	free(call->method);
	free(call->path);
	free(call->id);
	free(call->query[0]);
	free(call->query[1]);
	free(call->key_name);
	free(call->answer.body);
	free(call->answer.location);
	free(call->answer.retry_after);
	buf_free(&call->body);
	json_decref(call->json);
	free(call);
}

/*
 * Sending
 */

/*
 * Break the connection with a reset.  Disconnecting the socket sends it at
 * once; the linger option is for kernels that do not.
 */
static void
reset_connection(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info;
	struct linger linger = {.l_onoff = 1,.l_linger = 0};
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (info == NULL)
		return;
	setsockopt(info->connect_fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	(void) connect(info->connect_fd, &none, sizeof(none));
}

/* Reader of bodies that are padded, cut off or stalled. */
static ssize_t
read_body(void *arg, uint64_t pos, char *out, size_t max)
{
	Call	   *call = arg;
	const Answer *answer = &call->answer;
	uint64_t	end = answer->padding + answer->len;
	size_t		n;

	if (answer->delivery == DELIVER_HALF || answer->delivery == DELIVER_STALL)
	{
		uint64_t	half = answer->len / 2;

		if (pos < half)
			end = half;
		else if (answer->delivery == DELIVER_HALF)
			return MHD_CONTENT_READER_END_WITH_ERROR;
		else if (rule_stall(call))
			return 0;
	}
	if (pos >= end)
		return MHD_CONTENT_READER_END_OF_STREAM;

	if (pos < answer->padding)
	{
		n = answer->padding - pos < max ? (size_t) (answer->padding - pos) : max;
		memset(out, ' ', n);
		return (ssize_t) n;
	}
	n = end - pos < max ? (size_t) (end - pos) : max;
	memcpy(out, answer->body + (pos - answer->padding), n);
	return (ssize_t) n;
}

static struct MHD_Response *
make_response(Call *call)
{
	Answer	   *answer = &call->answer;
	struct MHD_Response *response;
	char	   *body;

	if (answer->padding > 0 || answer->delivery != DELIVER_PLAIN)
		return MHD_create_response_from_callback(answer->padding + answer->len,
												 STREAM_BLOCK, read_body, call, NULL);
	/* the response takes the body over */
	body = answer->body;
	answer->body = NULL;
	response = MHD_create_response_from_buffer(answer->len, body, MHD_RESPMEM_MUST_FREE);
	if (response == NULL)
		free(body);
	return response;
}

static enum MHD_Result
send_answer(Call *call)
{
	Answer	   *answer = &call->answer;
	struct MHD_Response *response;
	enum MHD_Result result;

	if (answer->delivery == DELIVER_RESET)
		reset_connection(call->connection);
	if (answer->delivery == DELIVER_RESET || answer->delivery == DELIVER_DROP)
		return MHD_NO;			/* closes the connection */

	response = make_response(call);
	if (response == NULL)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", answer->type);
	MHD_add_response_header(response, "Cache-Control", "no-store");
	if (answer->replayed)
		MHD_add_response_header(response, "Idempotent-Replayed", "true");
	if (answer->retry_after != NULL)
		MHD_add_response_header(response, "Retry-After", answer->retry_after);
	if (answer->location != NULL)
		MHD_add_response_header(response, "Location", answer->location);
	result = MHD_queue_response(call->connection, (unsigned int) answer->status, response);
	MHD_destroy_response(response);
	return result;
}

/*
 * Called by libmicrohttpd once with the headers, then for each piece of the
 * body, then with no data: now, and again after a resume.
 */
static enum MHD_Result
on_request(void *arg, struct MHD_Connection *connection, const char *url,
		   const char *method, const char *version, const char *upload,
		   size_t *upload_size, void **state)
{
	const Face *face = arg;
	Call	   *call = *state;

	(void) version;
	if (call == NULL)
	{
		*state = call_new(face, connection, method, url);
		return MHD_YES;
	}
	if (*upload_size > 0)
	{
		if (call->body.len + *upload_size > face->max_body)
			call->too_big = true;
		else
			buf_append(&call->body, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}

	if (call->answer.status == 0 && call->answer.delivery == DELIVER_PLAIN)
	{
		if (call->too_big)
			answer_error(call, 413, "too_large", "the body is over %zu bytes",
						 face->max_body);
		else if (face->handle(call))
			return MHD_YES;		/* not ours any more, until it is resumed */
	}
	return send_answer(call);
}

static void
on_completed(void *arg, struct MHD_Connection *connection, void **state,
			 enum MHD_RequestTerminationCode code)
{
	(void) arg;
	(void) connection;
	(void) code;
	if (*state != NULL)
		call_free(*state);
	*state = NULL;
}

/*
 * Listening
 */
static int
listen_on(int port, int *chosen)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t) port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	socklen_t	len = sizeof(address);
	int			on = 1;
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 ||
		listen(fd, LISTEN_BACKLOG) < 0 ||
		getsockname(fd, (struct sockaddr *) &address, &len) < 0)
	{
		close(fd);
		return -1;
	}
	*chosen = ntohs(address.sin_port);
	return fd;
}

/* As many connections as there can be files, less some for webhooks. */
static unsigned int
connection_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < 2048)
		return 900;
	return limit.rlim_cur > 100000 ? 100000 : (unsigned int) limit.rlim_cur - 1024;
}

/* Take a port of the loopback address; 0 chooses one. */
bool
face_listen(Face *face, int port)
{
	face->socket = listen_on(port, &face->port);
	if (face->socket < 0)
		fprintf(stderr, "sandbox: cannot listen on port %d: %m\n", port);
	return face->socket >= 0;
}

/*
 * Begin to take calls.  cert and key (PEM text, or NULL) make the face speak
 * TLS.
 */
bool
face_start(Face *face, const char *cert, const char *key)
{
	unsigned int flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *) cert},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, (void *) key},
		{MHD_OPTION_END, 0, NULL}
	};
	struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};

	if (cert != NULL)
		flags |= MHD_USE_TLS;
	face->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, face,
									MHD_OPTION_LISTEN_SOCKET, face->socket,
									MHD_OPTION_CONNECTION_LIMIT, connection_limit(),
									MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
									MHD_OPTION_ARRAY, cert != NULL ? tls : none,
									MHD_OPTION_END);
	if (face->daemon == NULL)
		fprintf(stderr, "sandbox: cannot start the server%s\n",
				cert != NULL ? " (are the certificate and key in order?)" : "");
	return face->daemon != NULL;
}
