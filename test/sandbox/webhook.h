/*-------------------------------------------------------------------------
 *
 * webhook.h
 *	  Webhooks: events about payments, posted in the Standard Webhooks scheme.
 *
 * test/sandbox/webhook.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_WEBHOOK_H
#define SANDBOX_WEBHOOK_H

#include "http.h"

typedef struct WebhookJob WebhookJob;

/*
 * An event on its way.  Shared by its jobs; only the thread that sends gives
 * it up, so that the count needs no lock.
 */
typedef struct WebhookEvent
{
	int			jobs;			/* how many jobs there still are */
	uint32_t	generation;
	Subject    *reference;		/* to be counted by; good in this generation */
	Subject    *order;
	char	   *id;				/* NULL: an event without an id */
	char	   *body;
	size_t		body_len;
	char	   *url;
	char	   *secret;			/* as it was set, or NULL: not signed */
	bool		forge;			/* sign wrongly */
	int64_t		timestamp;		/* seconds, 0: when it is sent */
	int			tries;			/* how often a job is sent at most */
	struct WebhookReply *reply; /* or NULL */
} WebhookEvent;

/* A call of the control face that waits for deliveries */
typedef struct WebhookReply
{
	Call	   *call;
	int			left;
	int			count;
	int			statuses[];		/* HTTP statuses, 0 where there was none */
} WebhookReply;

/* webhook.c; under the store's lock, except for start and forget */
extern void webhook_start(void);
extern void webhook_forget(void);
extern void webhook_send(WebhookEvent *event, int times, int64_t delay_ms);
extern void webhook_job_queue(WebhookJob *job);
extern void webhook_job_cancel(WebhookJob *job);

/* event.c */
extern void webhook_event(Payment *payment, const char *type);
extern bool webhook_handle(Call *call, json_t *what);
extern void webhook_reply(WebhookEvent *event);

/* signature.c */
extern bool webhook_secret_valid(const char *secret);
extern void webhook_sign(char out[64], const WebhookEvent *event, int64_t timestamp);

#endif							/* SANDBOX_WEBHOOK_H */
