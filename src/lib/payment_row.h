/*-------------------------------------------------------------------------
 *
 * payment_row.h
 *	  A row of payment_sessions in C, with what its order says of it.
 *
 * IDENTIFICATION
 *	  src/lib/payment_row.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_PAYMENT_ROW_H
#define PAYFLOW_PAYMENT_ROW_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "utils/uuid.h"

#include "lib/operation_row.h"
#include "lib/vocabulary.h"

/* 0 stands for a null time, NULL for a null string */
typedef struct PaymentRow
{
	pg_uuid_t	session_id;
	char	   *merchant;
	char	   *order_id;
	int64		amount;
	char	   *currency;
	char	   *provider;
	bool		manual_capture;
	SessionStatus status;
	SessionStage stage;
	TimestampTz next_action_at;
	TimestampTz lease_until;
	int64		lease_token;	/* 0: no lease */
	int			attempts;
	bool		expiring;
	bool		repeat_due;
	TimestampTz expires_at;
	TimestampTz provider_expires_at;
	TimestampTz first_sent_at;
	TimestampTz answered_at;
	TimestampTz unresolved_since;
	TimestampTz redirected_at;
	TimestampTz returned_at;
	TimestampTz created_at;
	TimestampTz updated_at;
	int64		authorized_amount;
	int64		captured_amount;
	int64		refunded_amount;
	int64		disputed_amount;
	int64		reversed_amount;
	int64		suspense_amount;
	int64		reserved_amount;
	int64		refundable_amount;
	bool		cancel_lost;
	char	   *provider_payment_id;
	char	   *provider_status;
	char	   *redirect_url;
	char	   *failure_code;
	char	   *failure_message;
	char	   *endpoint;
	char	   *account;
	char	   *return_url;
	char	   *description;
	char	   *customer;		/* JSON text */
	char	   *receipt;		/* JSON text */
	char	   *return_params;	/* JSON text */
	/* of the order, where it was read */
	OrderStatus order_status;
	bool		order_receipt_is_ours;	/* orders.paid_session_id is this session */
	/* of the merchant, where it was read; NULL: not set */
	Interval   *form_timeout;
	Interval   *return_timeout;
	Interval   *authentication_timeout;

	ItemPointerData tid;		/* the place of the row as it was read */

	/*
	 * A call about an operation of the session: then lease and attempts above
	 * are the operation's.  NULL: about the session itself.
	 */
	OperationRow *operation;
} PaymentRow;

/*
 * The select list that payment_row_read() reads: the session is s, then comes
 * what its order and its merchant say.
 */
#define PAYMENT_ROW_COLUMNS_WITH(of_order, of_merchant) \
	"s.session_id, s.merchant, s.order_id, s.amount::pg_catalog.int8, s.currency::pg_catalog.text, s.provider, " \
	"s.capture, s.status::pg_catalog.text, s.stage::pg_catalog.text, s.next_action_at, s.lease_until, s.lease_token, " \
	"s.attempts, s.expiring, s.repeat_due, s.expires_at, s.provider_expires_at, s.first_sent_at, s.answered_at, " \
	"s.unresolved_since, s.redirected_at, s.returned_at, s.created_at, s.updated_at, s.authorized_amount, " \
	"s.captured_amount, s.refunded_amount, s.disputed_amount, s.reversed_amount, s.suspense_amount, " \
	"s.reserved_amount, s.refundable_amount, s.cancel_lost, s.provider_payment_id, s.provider_status, s.redirect_url, " \
	"s.failure_code, s.failure_message, s.endpoint, s.account, s.return_url, s.description, " \
	"s.customer::pg_catalog.text, s.receipt::pg_catalog.text, s.return_params::pg_catalog.text, " \
	of_order ", " of_merchant ", s.ctid"

/* The whole row, and the FROM clause it goes with: the order is o, the merchant m. */
#define PAYMENT_ROW_COLUMNS \
	PAYMENT_ROW_COLUMNS_WITH("o.status::pg_catalog.text, o.paid_session_id", \
							 "m.form_timeout, m.return_timeout, m.authentication_timeout")

/* OFFSET 0 keeps the planner from joining in another order, which is quick only while tables are small. */
#define PAYMENT_ROW_FROM \
	"payflow.payment_sessions s " \
	"CROSS JOIN LATERAL (SELECT r.status, r.paid_session_id FROM payflow.orders r " \
	"WHERE r.merchant OPERATOR(pg_catalog.=) s.merchant AND r.order_id OPERATOR(pg_catalog.=) s.order_id OFFSET 0) o " \
	"CROSS JOIN LATERAL (SELECT r.form_timeout, r.return_timeout, r.authentication_timeout " \
	"FROM payflow.merchants r WHERE r.id OPERATOR(pg_catalog.=) s.merchant OFFSET 0) m"

/* The session alone, for the worker's batches: each join of a row costs as much as the row. */
#define SESSION_ROW_COLUMNS \
	PAYMENT_ROW_COLUMNS_WITH("NULL::pg_catalog.text, NULL::pg_catalog.uuid", \
							 "NULL::pg_catalog.interval, NULL::pg_catalog.interval, NULL::pg_catalog.interval")
#define SESSION_ROW_FROM "payflow.payment_sessions s"

/*
 * Reads a tuple whose first columns are PAYMENT_ROW_COLUMNS or
 * SESSION_ROW_COLUMNS.  Strings are allocated in the current memory context.
 */
extern PaymentRow *payment_row_read(HeapTuple tuple, TupleDesc tupdesc);

/* How many columns that is: what a statement adds to them comes after. */
#define PAYMENT_ROW_NCOLUMNS 51

#endif							/* PAYFLOW_PAYMENT_ROW_H */
