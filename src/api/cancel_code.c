/*-------------------------------------------------------------------------
 *
 * cancel_code.c
 *	  One-time codes for cancel(): issue_cancel_code(), and their use.
 *
 *	  A code leaves this file only as the result of the call that makes it:
 *	  what goes to SQL is its hash with a salt.  Its row is locked after the
 *	  order and the session, and what counts is decided by guarded UPDATEs.
 *
 * IDENTIFICATION
 *	  src/api/cancel_code.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/api.h"
#include "api/args.h"
#include "api/cancel_code.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "lib/hash.h"
#include "lib/json.h"
#include "lib/spi.h"
#include "lib/uuid.h"
#include "session/session.h"

#define MIN_DIGITS 4
#define MAX_DIGITS 12
#define MAX_TTL_MS ((double) SECS_PER_DAY * 1000)
#define SALT_SIZE 16

/* A new one takes the place of the older, whatever has become of that. */
static Statement store_code = {
	.sql = "INSERT INTO payflow.cancel_codes AS c (session_id, salt, code_hash, issued_at, expires_at)"
	" VALUES ($1, $2, $3, $4, $5) ON CONFLICT (session_id) DO UPDATE SET salt = EXCLUDED.salt,"
	" code_hash = EXCLUDED.code_hash, failures = 0, issued_at = EXCLUDED.issued_at,"
	" expires_at = EXCLUDED.expires_at, used_at = NULL",
	.nargs = 5,
	.argtypes = {UUIDOID, BYTEAOID, BYTEAOID, TIMESTAMPTZOID, TIMESTAMPTZOID}
};

static Statement lock_code = {
	.sql = "SELECT c.salt, c.code_hash FROM payflow.cancel_codes c"
	" WHERE c.session_id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE",
	.nargs = 1,
	.argtypes = {UUIDOID}
};

#define CODE_IS_ALIVE "session_id OPERATOR(pg_catalog.=) $1 AND used_at IS NULL" \
	" AND failures OPERATOR(pg_catalog.<) 5 AND expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()"

static Statement use_code = {
	.sql = "UPDATE payflow.cancel_codes SET used_at = pg_catalog.clock_timestamp() WHERE " CODE_IS_ALIVE
	" RETURNING session_id",
	.nargs = 1,
	.argtypes = {UUIDOID}
};

static Statement count_failure = {
	.sql = "UPDATE payflow.cancel_codes SET failures = failures OPERATOR(pg_catalog.+) 1 WHERE " CODE_IS_ALIVE
	" RETURNING failures::pg_catalog.int8",
	.nargs = 1,
	.argtypes = {UUIDOID}
};

PG_FUNCTION_INFO_V1(payflow_issue_cancel_code);

static Interval *
arg_ttl(FunctionCallInfo fcinfo, int n)
{
	Interval   *ttl = PG_ARGISNULL(n) ? NULL : PG_GETARG_INTERVAL_P(n);

	if (ttl == NULL || interval_ms(ttl) <= 0 || interval_ms(ttl) > MAX_TTL_MS)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_argument"),
				 errmsg("ttl is %s", ttl == NULL ? "null" : interval_ms(ttl) <= 0 ? "not positive" : "longer than a day"),
				 errhint("Pass how long the code is good for, up to 1 day.")));
	return ttl;
}

static int
arg_digits(FunctionCallInfo fcinfo, int n)
{
	int			digits = PG_ARGISNULL(n) ? 0 : PG_GETARG_INT32(n);

	if (digits < MIN_DIGITS || digits > MAX_DIGITS)
		ereport(ERROR,
				(payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_argument"),
				 PG_ARGISNULL(n) ? errmsg("digits is null") : errmsg("digits is %d", digits),
				 errhint("A code has %d to %d digits.", MIN_DIGITS, MAX_DIGITS)));
	return digits;
}

static void
random_bytes(void *bytes, size_t length)
{
	if (!pg_strong_random(bytes, length))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
}

/*
 * Random digits, each equally likely: bytes from 250 on would favour the lower
 * ones and are drawn again.
 */
static void
random_code(char *code, int digits)
{
	int			n = 0;

	while (n < digits)
	{
		uint8		byte;

		random_bytes(&byte, 1);
		if (byte < 250)
			code[n++] = '0' + byte % 10;
	}
	code[n] = '\0';
}

static bytea *
new_bytes(size_t length)
{
	bytea	   *bytes = palloc(VARHDRSZ + length);

	SET_VARSIZE(bytes, VARHDRSZ + length);
	return bytes;
}

static void
store(const pg_uuid_t *session_id, const char *code, const Interval *ttl)
{
	Datum		values[5];
	bytea	   *salt = new_bytes(SALT_SIZE);
	bytea	   *hash = new_bytes(SHA256_SIZE);
	TimestampTz now = GetCurrentTimestamp();

	random_bytes(VARDATA(salt), SALT_SIZE);
	sha256_of_two(VARDATA(salt), SALT_SIZE, code, strlen(code), (uint8 *) VARDATA(hash));
	values[0] = UUIDPGetDatum(session_id);
	values[1] = PointerGetDatum(salt);
	values[2] = PointerGetDatum(hash);
	values[3] = TimestampTzGetDatum(now);
	values[4] = TimestampTzGetDatum(time_plus(now, ttl));
	(void) run(&store_code, values, NULL);
}

static void
require_may_be_canceled(const PaymentRow *payment)
{
	char		id[UUID_TEXT_SIZE];

	if (!status_is_final(payment->status) && payment->status != STATUS_CANCELING)
		return;
	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_CONFLICT, "not_cancelable"),
			 errmsg("payment session %s has status \"%s\"", uuid_to_text(&payment->session_id, id),
					status_name(payment->status)),
			 payment->status == STATUS_COMPLETED ?
			 errhint("Give the money back with payflow.refund().") :
			 errhint("A code is only issued while a payment can still be canceled.")));
}

Datum
payflow_issue_cancel_code(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *session_id;
	const Interval *ttl;
	int			digits;
	char		code[MAX_DIGITS + 1];
	ApiCall		call;
	PaymentRow *payment;

	require_loaded();
	session_id = arg_session_id(fcinfo, 0);
	ttl = arg_ttl(fcinfo, 1);
	digits = arg_digits(fcinfo, 2);
	PreventCommandIfReadOnly("payflow.issue_cancel_code()");

	api_enter(&call);
	api_pin_search_path(&call);
	payment = lock_payment(session_id);
	require_may_be_canceled(payment);
	random_code(code, digits);
	store(session_id, code, ttl);
	journal_event(session_id, "api", "cancel_code_issued", payment->status, payment->status, NULL);
	api_unpin_search_path(&call);
	api_leave(&call);
	PG_RETURN_TEXT_P(cstring_to_text(code));
}

/*
 * Tells in the journal that somebody has tried; not for tries that are no
 * longer counted, so that nobody can fill it.
 */
static void
journal_failure(const PaymentRow *payment, int64 failures)
{
	StringInfoData detail;

	initStringInfo(&detail);
	json_open_object(&detail);
	json_put_int64(&detail, "failures", failures);
	json_close_object(&detail);
	journal_event(&payment->session_id, "api", "cancel_code_wrong", payment->status, payment->status, detail.data);
}

bool
use_cancel_code(const PaymentRow *payment, const char *code)
{
	Datum		values[1] = {UUIDPGetDatum(&payment->session_id)};
	bytea	   *salt;
	bytea	   *stored;
	uint8		hash[SHA256_SIZE];
	bool		isnull;

	if (code == NULL || run(&lock_code, values, NULL) == 0)
		return false;
	salt = DatumGetByteaPP(result_datum(0, 1, &isnull));
	stored = DatumGetByteaPP(result_datum(0, 2, &isnull));
	sha256_of_two(VARDATA_ANY(salt), VARSIZE_ANY_EXHDR(salt), code, strlen(code), hash);
	if (same_digest(hash, (const uint8 *) VARDATA_ANY(stored)))
		return run(&use_code, values, NULL) > 0;

	if (run(&count_failure, values, NULL) > 0)
		journal_failure(payment, result_int64(0, 1));
	return false;
}
