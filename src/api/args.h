/*-------------------------------------------------------------------------
 *
 * args.h
 *	  Arguments of the SQL-callable functions: none is STRICT, so each is
 *	  read and checked here, and what is wrong raises PT400 with its word.
 *
 * IDENTIFICATION
 *	  src/api/args.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_ARGS_H
#define PAYFLOW_ARGS_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/uuid.h"

/* what a caller may wait for at most */
#define MAX_WAIT_MS 60000

/* Any text; NULL for null. */
extern char *arg_text(FunctionCallInfo fcinfo, int n);

/* An order id given as text, bigint or uuid: its text. */
extern char *arg_order_id(FunctionCallInfo fcinfo, int n, Oid type);

/* A merchant's id; null raises merchant_not_found. */
extern char *arg_merchant(FunctionCallInfo fcinfo, int n);

/* A session's id; null raises session_not_found. */
extern const pg_uuid_t *arg_session_id(FunctionCallInfo fcinfo, int n);

/* How long to wait, in milliseconds, clamped to 0 .. MAX_WAIT_MS. */
extern long arg_wait(FunctionCallInfo fcinfo, int n, const char *name);

extern int64 arg_amount(FunctionCallInfo fcinfo, int n);

/* Of a capture or refund: 0 for null, which means all. */
extern int64 arg_part_amount(FunctionCallInfo fcinfo, int n);

/* A refund's id; null raises refund_not_found. */
extern const pg_uuid_t *arg_refund_id(FunctionCallInfo fcinfo, int n);

/* The caller's idempotency key; NULL for null. */
extern char *arg_idempotency_key(FunctionCallInfo fcinfo, int n);

/* Why the caller does it, in his own words; NULL for null. */
extern char *arg_reason(FunctionCallInfo fcinfo, int n, const char *name);

/* The same where it must be said. */
extern char *arg_required_reason(FunctionCallInfo fcinfo, int n, const char *name);

/* One of these words, the last one is NULL; its place among them. */
extern int	arg_word(FunctionCallInfo fcinfo, int n, const char *name, const char *const *words);

/* An interval in milliseconds, as exact as a double is. */
extern double interval_ms(const Interval *interval);
extern char *arg_currency(FunctionCallInfo fcinfo, int n);
extern bool arg_manual_capture(FunctionCallInfo fcinfo, int n);
extern char *arg_return_url(FunctionCallInfo fcinfo, int n);
extern char *arg_description(FunctionCallInfo fcinfo, int n);

/* JSON objects; (Datum) 0 for null. */
extern Datum arg_customer(FunctionCallInfo fcinfo, int n);
extern Datum arg_json_object(FunctionCallInfo fcinfo, int n, const char *name);

/* Fiscal receipt data as JSON text; NULL for null. */
extern char *arg_receipt(FunctionCallInfo fcinfo, int n);

/* What came with the payer's return, as JSON text; NULL for null. */
extern char *arg_return_params(FunctionCallInfo fcinfo, int n);

/* A value for a message: short and without control characters. */
extern char *brief(const char *value);

#endif							/* PAYFLOW_ARGS_H */
