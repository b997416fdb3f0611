/*-------------------------------------------------------------------------
 *
 * outcome.h
 *	  The outcome: the one small struct in which everything that is learned
 *	  about a payment comes to session_apply(), whoever learned it; and the
 *	  terms of a provider, by which the rules decide.
 *
 * IDENTIFICATION
 *	  src/lib/outcome.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_OUTCOME_H
#define PAYFLOW_OUTCOME_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

#include "lib/vocabulary.h"

typedef enum OutcomeKind
{
	/* facts: may come twice, late, out of order, from a stale worker */
	OUTCOME_ATTEMPT_DECLINED,	/* a card was declined, the page is open for another */
	OUTCOME_AUTHORIZED,
	OUTCOME_PAID,
	OUTCOME_DECLINED,
	OUTCOME_EXPIRED,
	OUTCOME_CANCELED,
	OUTCOME_CAPTURE_FAILED,		/* the bank took a capture back: authorized again, or nothing */
	OUTCOME_TOLD,				/* says nothing of the payment's status: only what its refunds and disputes say */
	/* absences: count only with the lease token of the row */
	OUTCOME_PENDING,
	OUTCOME_NOT_FOUND,
	OUTCOME_REFUSED,			/* the provider will not do it as asked */
	OUTCOME_UNSENT,				/* surely never left this machine */
	OUTCOME_LOST,				/* sent, no usable answer */
	OUTCOME_THROTTLED,
	OUTCOME_UNAUTHORIZED,
	/* decided here, without a call */
	OUTCOME_NEVER_SENT_LAPSED,	/* session_ttl is over and Register was never sent */
	OUTCOME_UNREACHABLE_SETTING,	/* server dropped, secret missing, account or endpoint changed */
	OUTCOME_DUE,				/* the alarm of an operation that needs no call */
	/* wishes and decisions of people, in their transaction, which has locked order and session */
	OUTCOME_CANCEL_ASKED,
	OUTCOME_CAPTURE_ASKED,
	OUTCOME_REFUND_ASKED,
	OUTCOME_REFUND_DECIDED,		/* settle_refund() */
	OUTCOME_DISCREPANCY_DECIDED,	/* resolve_discrepancy() */
	OUTCOME_KIND_COUNT
} OutcomeKind;

#define outcome_is_fact(kind) ((kind) <= OUTCOME_TOLD)
#define outcome_is_wish(kind) ((kind) >= OUTCOME_CANCEL_ASKED)

/* a call that brought no usable answer: what counts as a provider's failure */
#define outcome_is_failure(kind) \
	((kind) == OUTCOME_UNSENT || (kind) == OUTCOME_LOST)

/* what is safe after a lost answer to Register */
typedef enum LostPolicy
{
	LOST_REPEAT,				/* same key, same bytes, while the key is surely valid */
	LOST_ASK,					/* by our reference */
	LOST_AWAIT,					/* the result comes by webhook only */
} LostPolicy;

typedef enum LookupKind
{
	LOOKUP_NONE,				/* cannot be asked by our reference */
	LOOKUP_LAGGING,				/* an empty answer proves nothing */
	LOOKUP_EXACT,				/* an empty answer proves that it is not there */
} LookupKind;

#define MAX_POLL_INTERVALS 16

/*
 * What the rules need to know of a provider: the driver's capabilities merged
 * with the server's options.  Intervals, because their text forms may hold
 * months.
 */
typedef struct ProviderTerms
{
	LostPolicy	after_lost;
	LookupKind	lookup;
	bool		has_keys;		/* Register takes an idempotency key */
	bool		can_expire;		/* the provider can be told to expire a payment */
	bool		names_refunds;	/* a payment lists its refunds by our reference */
	Interval	key_validity;	/* how long a key is surely remembered */
	Interval	session_ttl;	/* lifetime of a payment that nobody pays */
	Interval	grace;
	Interval	form_timeout;
	Interval	return_timeout;
	Interval	authentication_timeout;
	Interval	authorization_ttl;
	Interval	connect_timeout;
	Interval	timeout;
	int			n_poll_intervals;	/* at least 1 */
	Interval	poll_intervals[MAX_POLL_INTERVALS];
} ProviderTerms;

typedef enum MovementStatus
{
	MOVEMENT_PENDING,
	MOVEMENT_SUCCEEDED,
	MOVEMENT_FAILED,
} MovementStatus;

/* a refund as the provider names it */
typedef struct ProviderRefund
{
	const char *id;				/* the provider's */
	const char *reference;		/* ours: an operation's id; NULL: none */
	int64		amount;
	MovementStatus status;
	const char *failure_message;	/* NULL: not told */
} ProviderRefund;

/* a dispute as the provider names it */
typedef struct ProviderDispute
{
	const char *id;
	int64		amount;			/* taken from us */
	int64		won;			/* of it given back */
} ProviderDispute;

/*
 * Strings belong to the caller's memory context and are valid UTF-8 turned
 * into the database encoding (drivers see to it); NULL where unknown.
 */
typedef struct Outcome
{
	OutcomeKind kind;
	pg_uuid_t	session_id;
	const char *merchant;		/* of the session's order */
	const char *order_id;
	const char *source;			/* worker, api, ... : the journal's source */
	const ProviderTerms *terms;

	/* the attempt that learned it */
	CallKind	call;
	int64		lease_token;	/* 0: none */
	bool		mark_set;		/* this attempt set first_sent_at */
	int			attempt;
	int			http_status;	/* 0: no answer */
	int64		duration;		/* microseconds */
	TimestampTz sent_at;		/* when the question was sent; 0: no call */
	const char *error;			/* a failure in a few words, never a body, never a secret */

	/* what the provider says */
	SessionStage stage;			/* with pending: form, return, authentication, bank */
	const char *provider_payment_id;
	const char *provider_status;	/* its own word */
	bool		unknown_word;	/* that word is none that the driver knows */
	bool		foreign_reference;	/* the answer bears another reference than ours */
	const char *redirect_url;
	const char *failure_code;	/* from our list */
	const char *failure_message;
	int64		amount;			/* of the payment as the provider has it; 0: not told */
	char		currency[4];	/* empty: not told */
	int64		authorized;		/* totals, never steps; -1: not told */
	int64		captured;
	int64		refunded;
	int64		disputed;
	TimestampTz event_at;		/* the provider's time of it; 0: not told */
	TimestampTz provider_expires_at;	/* 0: not told */
	int64		retry_after;	/* microseconds to wait as told; -1: not told */
	ProviderRefund *refunds;
	int			n_refunds;
	bool		refunds_complete;	/* the list has all refunds of the payment */
	ProviderDispute *disputes;
	int			n_disputes;
	bool		disputes_complete;

	/* the operation whose call it was, or that a person speaks of */
	bool		has_operation;
	pg_uuid_t	operation_id;

	/* wishes and decisions of people */
	const char *event;			/* the journal's word for it; NULL: the call's */
	bool		never_sent_is_believed;	/* with CANCEL_ASKED */
	int64		wished_amount;	/* capture, refund */
	const char *reason;
	const char *wished_receipt; /* JSON text or NULL */
	bool		decided_success;	/* REFUND_DECIDED: it succeeded */
	int64		discrepancy_id;
	const char *resolution;		/* accept, refund, write_off, no_money */

	/* an ask that was served by it */
	bool		payer_returned;
	const char *return_params;	/* JSON text or NULL */
} Outcome;

extern const char *outcome_name(OutcomeKind kind);

#endif							/* PAYFLOW_OUTCOME_H */
