/*-------------------------------------------------------------------------
 *
 * webhook.c
 *	  The thread that posts webhooks, many at a time, so that a slow receiver
 *	  holds up neither the API nor other receivers.
 *
 * test/sandbox/webhook.c
 *
 *-------------------------------------------------------------------------
 */
#include "webhook.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timer.h"

#define MAX_SENDING		256		/* at a time */
#define SEND_TIMEOUT_MS	30000L

/* One delivery of an event */
struct WebhookJob
{
	WebhookEvent *event;
	int			number;			/* which of the event's */
	int			tries;			/* so far */
	WebhookJob *next;			/* in the queue, or among those being sent */
	CURL	   *easy;
	struct curl_slist *headers;
};

/* Pause before the second and the third try */
static const int64_t retry_pauses[] = {500, 2000};

/* The queue, with a lock of its own: it may be taken under the store's */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_forgotten = PTHREAD_COND_INITIALIZER;
static WebhookJob *queue;
static WebhookJob **queue_tail = &queue;
static bool forget_wanted;

/* Of the thread alone */
static CURLM *multi;
static WebhookJob *sending;
static int	sending_count;

/* Ready to be sent. */
void
webhook_job_queue(WebhookJob *job)
{
	job->next = NULL;
	pthread_mutex_lock(&queue_lock);
	*queue_tail = job;
	queue_tail = &job->next;
	pthread_mutex_unlock(&queue_lock);
	curl_multi_wakeup(multi);
}

/* Its timer is gone; as everything is being forgotten, the thread ends it. */
void
webhook_job_cancel(WebhookJob *job)
{
	webhook_job_queue(job);
}

/* Send an event so many times, all at once.  Takes the event over. */
void
webhook_send(WebhookEvent *event, int times, int64_t delay_ms)
{
	event->jobs = times;
	for (int i = 0; i < times; i++)
	{
		WebhookJob *job = xcalloc(sizeof(WebhookJob));

		job->event = event;
		job->number = i;
		if (delay_ms > 0)
			timer_add(TIMER_WEBHOOK, delay_ms, job);
		else
			webhook_job_queue(job);
	}
}

static void
event_release(WebhookEvent *event)
{
	if (--event->jobs > 0)
		return;
	free(event->id);
	free(event->body);
	free(event->url);
	free(event->secret);
	free(event);
}

/* The job is over; status is the HTTP status, or 0. */
static void
job_end(WebhookJob *job, int status)
{
	WebhookEvent *event = job->event;

	if (event->reply != NULL)
	{
		event->reply->statuses[job->number] = status;
		if (--event->reply->left == 0)
			webhook_reply(event);
	}
	event_release(event);
	free(job);
}

static void
job_finished(WebhookJob *job, int status)
{
	bool		again = false;

	if (status / 100 != 2 && job->tries < job->event->tries)
	{
		store_lock();
		again = job->event->generation == store.generation;
		if (again)
			timer_add(TIMER_WEBHOOK, retry_pauses[job->tries - 1], job);
		store_unlock();
	}
	if (!again)
		job_end(job, status);
}

/* Count the attempt.  False: the event belongs to what is forgotten. */
static bool
job_count(const WebhookJob *job)
{
	const WebhookEvent *event = job->event;
	bool		current;

	store_lock();
	current = event->generation == store.generation;
	if (current)
	{
		store.all->webhooks++;
		if (event->reference != NULL)
			event->reference->webhooks++;
		if (event->order != NULL)
			event->order->webhooks++;
	}
	store_unlock();
	return current;
}

static void
add_header(WebhookJob *job, const char *name, const char *value)
{
	Buf			buf = {0};
	char	   *line;

	buf_printf(&buf, "%s: %s", name, value);
	line = buf_take(&buf, NULL);
	job->headers = curl_slist_append(job->headers, line);
	free(line);
}

static void
make_headers(WebhookJob *job)
{
	const WebhookEvent *event = job->event;
	int64_t		timestamp = event->timestamp > 0 ? event->timestamp : now_ms() / 1000;
	char		text[64];

	add_header(job, "Content-Type", "application/json");
	job->headers = curl_slist_append(job->headers, "Expect:");
	if (event->id != NULL)
		add_header(job, "webhook-id", event->id);
	snprintf(text, sizeof(text), "%lld", (long long) timestamp);
	add_header(job, "webhook-timestamp", text);
	if (event->secret != NULL)
	{
		webhook_sign(text, event, timestamp);
		add_header(job, "webhook-signature", text);
	}
}

static size_t
ignore_body(char *data, size_t size, size_t n, void *arg)
{
	(void) data;
	(void) arg;
	return size * n;
}

static void
job_start(WebhookJob *job)
{
	const WebhookEvent *event = job->event;
	CURL	   *easy;

	if (!job_count(job) || (easy = curl_easy_init()) == NULL)
	{
		job_end(job, 0);
		return;
	}
	job->tries++;
	job->easy = easy;
	make_headers(job);
	curl_easy_setopt(easy, CURLOPT_URL, event->url);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, job->headers);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long) event->body_len);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, event->body);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore_body);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, job);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, SEND_TIMEOUT_MS);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	/* receivers of tests have certificates of their own making */
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	/* on a kept connection libcurl may post twice, and tests count */
	curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
	curl_multi_add_handle(multi, easy);

	job->next = sending;
	sending = job;
	sending_count++;
}

/* The job is not being sent any more. */
static void
job_stop(WebhookJob *job)
{
	WebhookJob **place = &sending;

	while (*place != job)
		place = &(*place)->next;
	*place = job->next;
	sending_count--;
	curl_multi_remove_handle(multi, job->easy);
	curl_easy_cleanup(job->easy);
	curl_slist_free_all(job->headers);
	job->easy = NULL;
	job->headers = NULL;
}

static WebhookJob *
queue_take(void)
{
	WebhookJob *job;

	pthread_mutex_lock(&queue_lock);
	job = queue;
	if (job != NULL)
	{
		queue = job->next;
		if (queue == NULL)
			queue_tail = &queue;
	}
	pthread_mutex_unlock(&queue_lock);
	return job;
}

/* End what is delivered.  Returns true if there was any. */
static bool
read_results(void)
{
	CURLMsg    *message;
	bool		any = false;
	int			left;

	while ((message = curl_multi_info_read(multi, &left)) != NULL)
	{
		WebhookJob *job;
		long		status = 0;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **) &job);
		if (message->data.result == CURLE_OK)
			curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &status);
		job_stop(job);
		job_finished(job, (int) status);
		any = true;
	}
	return any;
}

/*
 * Everything is being forgotten: end all that is sent or waits to be.  What
 * is queued meanwhile is new, and is told by its generation.
 */
static void
forget_jobs(void)
{
	uint32_t	generation;
	WebhookJob *next;

	store_lock();
	generation = store.generation;
	store_unlock();
	for (WebhookJob *job = sending; job != NULL; job = next)
	{
		next = job->next;
		if (job->event->generation == generation)
			continue;
		job_stop(job);
		job_end(job, 0);
	}
	pthread_mutex_lock(&queue_lock);
	forget_wanted = false;
	pthread_cond_broadcast(&queue_forgotten);
	pthread_mutex_unlock(&queue_lock);
}

static void *
webhook_main(void *arg)
{
	(void) arg;
	for (;;)
	{
		WebhookJob *job;
		int			running;
		bool		idle;
		bool		forget;

		while (sending_count < MAX_SENDING && (job = queue_take()) != NULL)
			job_start(job);
		curl_multi_perform(multi, &running);
		idle = !read_results();

		pthread_mutex_lock(&queue_lock);
		forget = forget_wanted;
		pthread_mutex_unlock(&queue_lock);
		if (forget)
			forget_jobs();
		else if (idle)
			curl_multi_poll(multi, NULL, 0, 1000, NULL);
	}
	return NULL;
}

/* Returns when nothing of before is being sent.  Not under the lock. */
void
webhook_forget(void)
{
	pthread_mutex_lock(&queue_lock);
	forget_wanted = true;
	curl_multi_wakeup(multi);
	while (forget_wanted)
		pthread_cond_wait(&queue_forgotten, &queue_lock);
	pthread_mutex_unlock(&queue_lock);
}

void
webhook_start(void)
{
	pthread_t	thread;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	multi = curl_multi_init();
	if (multi == NULL || pthread_create(&thread, NULL, webhook_main, NULL) != 0)
		abort();
	pthread_detach(thread);
}
