/*-------------------------------------------------------------------------
 *
 * curl_loop.c
 *	  Nothing but libcurl: the same call over and over, many at a time.
 *
 *	  usage: curl_loop CONCURRENCY SECONDS HEADER URL
 *
 *	  Prints the calls per second.
 *
 * test/bench/curl_loop.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void
die(const char *what)
{
	fprintf(stderr, "curl_loop: %s\n", what);
	exit(1);
}

static double
seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static size_t
drop_body(char *data, size_t size, size_t n, void *arg)
{
	(void) data;
	(void) arg;
	return size * n;
}

static void
start(CURLM *multi, CURL *easy)
{
	if (curl_multi_add_handle(multi, easy) != CURLM_OK)
		die("a call cannot be started");
}

/* Starts anew what has ended; returns how many that were. */
static long
restart_ended(CURLM *multi)
{
	CURLMsg    *message;
	long		ended = 0;
	int			left;

	while ((message = curl_multi_info_read(multi, &left)) != NULL)
	{
		CURL	   *easy = message->easy_handle;
		long		status = 0;

		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
		if (message->data.result != CURLE_OK || status != 200)
			die("a call has failed");
		curl_multi_remove_handle(multi, easy);
		start(multi, easy);
		ended++;
	}
	return ended;
}

int
main(int argc, char **argv)
{
	struct curl_slist *headers;
	CURLM	   *multi;
	double		begin;
	double		end;
	long		calls = 0;
	int			running;

	if (argc != 5)
		die("usage: curl_loop CONCURRENCY SECONDS HEADER URL");
	curl_global_init(CURL_GLOBAL_DEFAULT);
	multi = curl_multi_init();
	headers = curl_slist_append(NULL, argv[3]);
	if (multi == NULL || headers == NULL)
		die("out of memory");
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long) atoi(argv[1]));
	for (int i = 0; i < atoi(argv[1]); i++)
	{
		CURL	   *easy = curl_easy_init();

		if (easy == NULL)
			die("out of memory");
		curl_easy_setopt(easy, CURLOPT_URL, argv[4]);
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop_body);
		curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
		curl_easy_setopt(easy, CURLOPT_PROXY, "");
		start(multi, easy);
	}

	begin = seconds_now();
	end = begin + atof(argv[2]);
	while (seconds_now() < end)
	{
		if (curl_multi_perform(multi, &running) != CURLM_OK)
			die("the loop has failed");
		calls += restart_ended(multi);
		if (curl_multi_poll(multi, NULL, 0, 1000, NULL) != CURLM_OK)
			die("the loop has failed");
	}
	printf("%.1f\n", (double) calls / (seconds_now() - begin));
	return 0;
}
