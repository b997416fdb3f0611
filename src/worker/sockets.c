/*-------------------------------------------------------------------------
 *
 * sockets.c
 *	  libcurl's sockets in an epoll set.
 *
 *	  The set's own descriptor goes into the worker's wait event set, which is
 *	  made once, although sockets come and go.  A kept connection stays in the
 *	  epoll set between two calls: each change of the set is a system call.
 *
 * IDENTIFICATION
 *	  src/worker/sockets.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "worker/sockets.h"

#define EVENTS_MAX 128

/* what the epoll set has of a descriptor, by its number */
typedef struct Watched
{
	bool		is_connection;	/* we hear of its end */
	uint32		set;			/* events it is in the set with; 0: it is not in the set */
	uint32		wanted;			/* events libcurl wants; 0: none */
} Watched;

static int	epoll_fd = -1;
static Watched *watched;
static int	nwatched;

void
sockets_init(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create epoll descriptor: %m")));
}

int
sockets_fd(void)
{
	return epoll_fd;
}

/* NULL: no memory */
static Watched *
watched_of(curl_socket_t s)
{
	if (s >= nwatched)
	{
		int			n = Max(s + 1, nwatched * 2);
		Watched    *grown = realloc(watched, sizeof(Watched) * n);

		if (grown == NULL)
			return NULL;
		memset(grown + nwatched, 0, sizeof(Watched) * (n - nwatched));
		watched = grown;
		nwatched = n;
	}
	return &watched[s];
}

static void
watch(curl_socket_t s, Watched *w)
{
	struct epoll_event event = {.events = w->wanted, .data.fd = s};

	if (w->wanted == w->set)
		return;
	if (w->wanted == 0)
		(void) epoll_ctl(epoll_fd, EPOLL_CTL_DEL, s, NULL);
	/* a descriptor that was closed has left the set by itself */
	else if (epoll_ctl(epoll_fd, w->set != 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s, &event) < 0)
		(void) epoll_ctl(epoll_fd, w->set != 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, s, &event);
	w->set = w->wanted;
}

int
sockets_on_change(CURL *easy pg_attribute_unused(), curl_socket_t s, int what,
				  void *arg pg_attribute_unused(), void *socket_arg pg_attribute_unused())
{
	Watched    *w = watched_of(s);

	/* a failure here would end all calls; this one will time out */
	if (w == NULL)
		return 0;
	w->wanted = 0;
	if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
		w->wanted |= EPOLLIN;
	if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
		w->wanted |= EPOLLOUT;
	/* the next call on the connection will want the same */
	if (what != CURL_POLL_REMOVE || !w->is_connection)
		watch(s, w);
	return 0;
}

/* A new connection is about to be made. */
int
sockets_on_open(void *arg pg_attribute_unused(), curl_socket_t s, curlsocktype purpose pg_attribute_unused())
{
	Watched    *w = watched_of(s);

	if (w != NULL)
		*w = (Watched) {.is_connection = true};
	return CURL_SOCKOPT_OK;
}

int
sockets_on_close(void *arg pg_attribute_unused(), curl_socket_t s)
{
	if (s < nwatched)
		watched[s] = (Watched) {0};
	return close(s);
}

int
sockets_ready(ReadySocket *ready, int max)
{
	struct epoll_event events[EVENTS_MAX];
	int			n = epoll_wait(epoll_fd, events, Min(max, EVENTS_MAX), 0);
	int			count = 0;

	for (int i = 0; i < n; i++)
	{
		int			fd = events[i].data.fd;
		int			what = 0;

		/* a kept connection that nobody uses: libcurl finds out when it wants it again */
		if (watched[fd].wanted == 0)
		{
			watch(fd, &watched[fd]);
			continue;
		}
		if (events[i].events & EPOLLIN)
			what |= CURL_CSELECT_IN;
		if (events[i].events & EPOLLOUT)
			what |= CURL_CSELECT_OUT;
		if (events[i].events & (EPOLLERR | EPOLLHUP))
			what |= CURL_CSELECT_ERR;
		ready[count++] = (ReadySocket) {.socket = fd, .what = what};
	}
	return count;
}
