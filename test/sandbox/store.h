/*-------------------------------------------------------------------------
 *
 * store.h
 *	  What the test provider remembers: payments with their refunds and
 *	  disputes, idempotency keys, counters and settings.
 *
 * One lock guards all of it, and the rules and timers too.  It is held for
 * microseconds and never during I/O.  Unless a function says otherwise, its
 * caller holds the lock.
 *
 * test/sandbox/store.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_STORE_H
#define SANDBOX_STORE_H

#include <jansson.h>
#include <pthread.h>

#include "base.h"

#define MAX_AMOUNT	INT64_C(1000000000000000)
#define MAX_NAME	200			/* bytes of a reference or order */
#define MAX_KEY		255			/* bytes of an idempotency key */

typedef enum Operation
{
	OP_REGISTER,
	OP_GET,
	OP_FIND,
	OP_CAPTURE,
	OP_CANCEL,
	OP_EXPIRE,
	OP_REFUND,
	OP_REPORT,
	OP_COUNT,
	OP_NONE = OP_COUNT			/* not a call of the provider's API */
} Operation;

extern const char *const operation_names[OP_COUNT];

typedef enum PaymentStatus
{
	PAYMENT_PENDING,
	PAYMENT_REQUIRES_ACTION,
	PAYMENT_AUTHORIZED,
	PAYMENT_PAID,
	PAYMENT_DECLINED,
	PAYMENT_EXPIRED,
	PAYMENT_CANCELED
} PaymentStatus;

/* What an open payment waits for */
typedef enum Stage
{
	STAGE_FORM,
	STAGE_REDIRECTED,
	STAGE_AUTHENTICATION,
	STAGE_PROCESSING
} Stage;

typedef enum RefundStatus
{
	REFUND_PENDING,
	REFUND_SUCCEEDED,
	REFUND_FAILED
} RefundStatus;

typedef enum AutoAct
{
	AUTO_NONE,
	AUTO_PAY,
	AUTO_AUTHORIZE,
	AUTO_DECLINE
} AutoAct;

extern const char *const payment_status_names[];
extern const char *const stage_names[];
extern const char *const refund_status_names[];

/*
 * A reference or an order: something that calls and payments are counted by.
 * It exists from the first call that names it, whether or not that call was
 * let through.
 */
typedef struct Subject
{
	Link		link;
	struct Subject *order;		/* of a reference: the order it came with */
	struct Payment *last;		/* newest payment; a ring through next_* */
	uint32_t	payments;
	uint32_t	calls[OP_COUNT];
	uint32_t	distinct_keys;
	uint32_t	replays;
	uint32_t	webhooks;
	char		name[];
} Subject;

typedef struct Refund
{
	struct Refund *next;
	struct Payment *payment;
	const char *reference;		/* NULL if made at the provider */
	int64_t		amount;
	uint32_t	number;
	uint16_t	lines;			/* in the report */
	uint8_t		status;
} Refund;

typedef struct Dispute
{
	struct Dispute *next;
	int64_t		amount;
	int64_t		won;			/* how much of it came back */
	uint32_t	number;
	uint16_t	lines;			/* in the report */
} Dispute;

typedef struct Payment
{
	Subject    *reference;
	Subject    *order;			/* or NULL */
	struct Payment *next_reference; /* rings: see Subject.last */
	struct Payment *next_order;
	Refund	   *refunds;		/* oldest first */
	Dispute    *disputes;		/* oldest first */
	const char *return_url;		/* this and the next may be NULL */
	const char *decline_code;
	const char *metadata;		/* JSON text, or NULL */
	const char *receipt;		/* JSON text, or NULL */
	int64_t		amount;
	int64_t		authorized;
	int64_t		captured;
	int64_t		refunded;
	int64_t		disputed;
	int64_t		created_ms;
	int64_t		expires_ms;
	int64_t		born_expires_ms;	/* before it was opened again */
	uint32_t	number;
	uint16_t	lines;			/* in the report */
	uint8_t		status;
	uint8_t		stage;
	uint8_t		auto_act;		/* what the payer does when his timer rings */
	bool		manual;			/* capture: manual */
	bool		born_declined;
	char		currency[4];
	char		born_currency[4];	/* before a pay in another currency */
} Payment;

/* What a register call asks for */
typedef struct Registration
{
	const char *reference;
	const char *order;
	int64_t		amount;
	const char *currency;
	bool		manual;
	const char *return_url;
	int64_t		expires_in;		/* seconds, 0: the setting */
	char	   *metadata;
	char	   *receipt;
	bool		declined;
} Registration;

/* A movement of money, for the report */
typedef enum MoneyType
{
	MONEY_PAYMENT,
	MONEY_PAYMENT_REVERSED,
	MONEY_REFUND,
	MONEY_REFUND_REVERSED,
	MONEY_DISPUTE,
	MONEY_DISPUTE_REVERSED
} MoneyType;

typedef struct MoneyRow
{
	int64_t		at_ms;
	int64_t		amount;
	Payment    *payment;
	void	   *object;			/* Refund or Dispute, by type */
	uint16_t	line;
	uint8_t		type;
	char		currency[4];
} MoneyRow;

typedef struct Settings
{
	bool		webhooks;
	char	   *webhook_url;
	char	   *webhook_secret;
	bool		event_ids;
	int			auto_act;
	int64_t		auto_delay_ms;
	int64_t		expires_in;		/* seconds */
	int64_t		key_ttl_s;
	bool		find;
	int64_t		find_lag_ms;
	int			refunds;		/* a RefundStatus */
	json_t	   *api_keys;		/* array of strings; empty: any */
	bool		record;
} Settings;

/* The sums of money that GET /stats shows */
typedef struct Sums
{
	int64_t		authorized;
	int64_t		captured;
	int64_t		refunded;
	int64_t		disputed;
} Sums;

typedef struct Store
{
	pthread_mutex_t lock;
	uint32_t	generation;		/* grows when everything is forgotten */
	uint32_t	boot;			/* random part of all ids of this process */
	Settings	settings;
	Arena		arena;

	Subject    *all;			/* counts everything */
	Sums		sums;
	Table		references;
	Table		orders;
	Table		keys;

	Payment   **payments;		/* by number - first_payment */
	uint32_t	payment_count;
	uint32_t	first_payment;	/* numbers are never used again */
	Refund	  **refunds;		/* by number - first_refund */
	uint32_t	refund_count;
	uint32_t	first_refund;
	uint32_t	next_dispute;
	uint64_t	next_event;

	MoneyRow   *money;			/* in order of time */
	size_t		money_count;

	uint64_t   *seen;			/* fingerprints of (key, subject) */
	size_t		seen_size;
	size_t		seen_used;
} Store;

extern Store store;

/* store.c */
extern void store_init(void);
extern void store_lock(void);
extern void store_unlock(void);
extern void store_forget(void);
extern Subject *subject_find(Table *table, const char *name);
extern Subject *subject_get(Table *table, const char *name);
extern Payment *payment_by_id(const char *id);
extern Payment *payment_by_name(const char *name);
extern Refund *refund_by_id(const char *id);
extern Payment *payment_first(const Subject *subject, bool by_order);
extern Payment *payment_next(const Subject *subject, bool by_order,
							 const Payment *payment);
extern bool seen_before(const char *key, const Subject *subject);

/* settings.c */
extern void settings_reset(Settings *settings);
extern const char *settings_change(Settings *settings, json_t *changes);
extern void settings_json(Buf *buf, const Settings *settings);
extern bool settings_accept_key(const Settings *settings, const char *api_key);

/* payment.c */
extern Payment *payment_register(const Registration *what);
extern void payment_refresh(Payment *payment);
extern void payment_auto(Payment *payment);
extern void payment_pay(Payment *payment, int64_t amount, const char *currency);
extern void payment_authorize(Payment *payment, int64_t amount, const char *currency);
extern void payment_payer_pays(Payment *payment);
extern void payment_decline(Payment *payment, const char *code);
extern void payment_wait(Payment *payment, PaymentStatus status, Stage stage);
extern void payment_close(Payment *payment, PaymentStatus status);
extern void payment_capture(Payment *payment, int64_t amount);
extern void payment_capture_fail(Payment *payment);
extern bool payment_is_open(const Payment *payment);

/* refund.c */
extern int64_t payment_refundable(const Payment *payment);
extern Refund *payment_refund(Payment *payment, int64_t amount,
							  const char *reference, RefundStatus status);
extern void refund_settle(Refund *refund, RefundStatus status);
extern Dispute *payment_dispute(Payment *payment, int64_t amount);
extern void payment_win_dispute(Payment *payment, Dispute *dispute, int64_t amount);

/* money.c */
extern void money_set(int64_t *field, int64_t *sum, int64_t value);
extern void money_row(MoneyType type, Payment *payment, void *object,
					  int64_t amount);
extern bool currency_valid(const char *currency);
extern int	currency_digits(const char *currency);
extern bool report_json(Buf *buf, const char *day, const char *cursor);

/* render.c */
extern void payment_id(char id[24], const Payment *payment);
extern void refund_id(char id[24], const Refund *refund);
extern void dispute_id(char id[24], const Dispute *dispute);
extern void payment_json(Buf *buf, const Payment *payment);
extern void payment_json_born(Buf *buf, const Payment *payment);
extern void payment_json_control(Buf *buf, const Payment *payment);
extern void refund_json(Buf *buf, const Refund *refund);
extern void payment_url(Buf *buf, const Payment *payment);
extern const char *dispute_status(const Dispute *dispute);

/* keys.c */
typedef struct Key Key;

typedef enum KeyClaim
{
	KEY_CLAIMED,				/* do the work, then keep or free the key */
	KEY_REPLAY,					/* answered before */
	KEY_REUSED,					/* seen with another call */
	KEY_IN_USE					/* the same call is being worked */
} KeyClaim;

extern KeyClaim key_claim(const char *name, uint64_t target,
						  const unsigned char *digest, Key **key);
extern void key_keep(Key *key, int status, const char *body, size_t len);
extern void key_keep_registered(Key *key, int status, Payment *payment);
extern void key_free(Key *key);
extern int	key_answer(const Key *key, Buf *buf);

#endif							/* SANDBOX_STORE_H */
