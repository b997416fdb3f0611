/*-------------------------------------------------------------------------
 *
 * sockets.h
 *	  Private to http.c: which of libcurl's sockets are ready.
 *
 * IDENTIFICATION
 *	  src/worker/sockets.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SOCKETS_H
#define PAYFLOW_SOCKETS_H

#include <curl/curl.h>

typedef struct ReadySocket
{
	curl_socket_t socket;
	int			what;			/* CURL_CSELECT_... */
} ReadySocket;

/* Makes the epoll set; raises an error when there is no descriptor left for it. */
extern void sockets_init(void);

/* Is readable when a socket is ready. */
extern int	sockets_fd(void);

/* What is ready now, without waiting. */
extern int	sockets_ready(ReadySocket *ready, int max);

/*
 * libcurl's callbacks: CURLMOPT_SOCKETFUNCTION, CURLOPT_SOCKOPTFUNCTION,
 * CURLOPT_CLOSESOCKETFUNCTION.  No errors, no palloc.
 */
extern int	sockets_on_change(CURL *easy, curl_socket_t s, int what, void *arg, void *socket_arg);
extern int	sockets_on_open(void *arg, curl_socket_t s, curlsocktype purpose);
extern int	sockets_on_close(void *arg, curl_socket_t s);

#endif							/* PAYFLOW_SOCKETS_H */
