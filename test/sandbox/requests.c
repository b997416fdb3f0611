/*-------------------------------------------------------------------------
 *
 * requests.c
 *	  The record of the last calls of the provider's API, by which tests prove
 *	  that a repeat had the same key and the same bytes.
 *
 * test/sandbox/requests.c
 *
 *-------------------------------------------------------------------------
 */
#include "api.h"

#include <stdlib.h>
#include <string.h>

#define RECORDED	10000

typedef struct Request
{
	uint64_t	number;			/* of this call; 0: nothing here */
	int64_t		at_ms;
	Subject    *reference;
	Subject    *order;
	char	   *path;
	char	   *key;
	unsigned char digest[32];
	uint16_t	status;			/* 0: no answer was sent */
	uint8_t		operation;
	bool		answered;
	bool		post;
} Request;

static Request ring[RECORDED];
static uint64_t last_number;

/* Record a call.  Returns its number, for request_answered(). */
uint64_t
request_note(const Call *call)
{
	Request    *request;

	if (!store.settings.record)
		return 0;
	request = &ring[++last_number % RECORDED];
	free(request->path);
	free(request->key);
	request->number = last_number;
	request->at_ms = now_ms();
	request->reference = call->reference;
	request->order = call->order;
	request->path = xstrdup(call->path);
	request->key = call->key_name == NULL ? NULL : xstrdup(call->key_name);
	memcpy(request->digest, call->digest, sizeof(request->digest));
	request->status = 0;
	request->operation = (uint8_t) call->operation;
	request->answered = false;
	request->post = call_is(call, "POST");
	return last_number;
}

/* The call has its answer, or is closed without one. */
void
request_answered(const Call *call)
{
	Request    *request = &ring[call->record % RECORDED];

	if (call->record == 0 || request->number != call->record)
		return;
	request->answered = true;
	if (call->answer.delivery == DELIVER_PLAIN || call->answer.delivery == DELIVER_HALF ||
		call->answer.delivery == DELIVER_STALL)
		request->status = (uint16_t) call->answer.status;
}

void
requests_forget(void)
{
	for (size_t i = 0; i < RECORDED; i++)
	{
		free(ring[i].path);
		free(ring[i].key);
	}
	memset(ring, 0, sizeof(ring));
}

static void
request_json(Buf *buf, const Request *request)
{
	buf_printf(buf, "{\"operation\":\"%s\",\"method\":\"%s\",\"path\":",
			   operation_names[request->operation], request->post ? "POST" : "GET");
	buf_json(buf, request->path);
	buf_puts(buf, ",\"reference\":");
	buf_json(buf, request->reference == NULL ? NULL : request->reference->name);
	buf_puts(buf, ",\"key\":");
	buf_json(buf, request->key);
	buf_puts(buf, ",\"body_sha256\":\"");
	for (size_t i = 0; i < sizeof(request->digest); i++)
		buf_printf(buf, "%02x", request->digest[i]);
	buf_puts(buf, "\",\"at_ms\":");
	buf_int(buf, request->at_ms);
	buf_puts(buf, ",\"status\":");
	if (request->answered)
		buf_int(buf, request->status);
	else
		buf_puts(buf, "null");
	buf_puts(buf, "}");
}

/* The recorded calls of a reference or order, or all, oldest first. */
void
requests_json(Buf *buf, const char *reference, const char *order)
{
	Subject    *by_reference = reference == NULL ? NULL :
		subject_find(&store.references, reference);
	Subject    *by_order = order == NULL ? NULL : subject_find(&store.orders, order);
	bool		first = true;

	buf_puts(buf, "[");
	for (uint64_t i = 1; i <= RECORDED; i++)
	{
		const Request *request = &ring[(last_number + i) % RECORDED];

		if (request->number == 0 ||
			(reference != NULL && (by_reference == NULL || request->reference != by_reference)) ||
			(order != NULL && (by_order == NULL || request->order != by_order)))
			continue;
		if (!first)
			buf_puts(buf, ",");
		request_json(buf, request);
		first = false;
	}
	buf_puts(buf, "]");
}
