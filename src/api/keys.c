/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  Idempotency keys of capture() and refund(): the same key with the same
 *	  parameters stands for the operation that its first call has made.
 *
 *	  The key's row is inserted before anything else is locked.  Who has
 *	  inserted it and not committed is waited for there; if he rolls back, the
 *	  key is ours.  A call that raises takes its key back with it.
 *
 * IDENTIFICATION
 *	  src/api/keys.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bswap.h"
#include "utils/builtins.h"

#include "api/api.h"
#include "api/args.h"
#include "lib/compat.h"
#include "lib/error.h"
#include "lib/hash.h"
#include "lib/spi.h"

#define KEY_IS " WHERE k.merchant OPERATOR(pg_catalog.=) $1 AND k.call OPERATOR(pg_catalog.=) $2" \
	" AND k.key OPERATOR(pg_catalog.=) $3"

/* Where the snapshot does not show the row that is in the way, the server raises 40001. */
static Statement insert_key = {
	.sql = "INSERT INTO payflow.idempotency_keys (merchant, call, key, request_hash, session_id, operation_id)"
	" VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (merchant, call, key) DO NOTHING",
	.nargs = 6,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID, BYTEAOID, UUIDOID, UUIDOID}
};

static Statement read_key = {
	.sql = "SELECT k.request_hash, k.operation_id FROM payflow.idempotency_keys k" KEY_IS,
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID}
};

/*
 * Over the session and the amount: the same on every machine, for the rows
 * move with a dump.
 */
static Datum
request_hash(const pg_uuid_t *session_id, int64 amount)
{
	uint64		amount_bytes = pg_hton64((uint64) amount);
	bytea	   *hash = palloc(VARHDRSZ + SHA256_SIZE);

	SET_VARSIZE(hash, VARHDRSZ + SHA256_SIZE);
	sha256_of_two(session_id->data, UUID_LEN, &amount_bytes, sizeof(amount_bytes), (uint8 *) VARDATA(hash));
	return PointerGetDatum(hash);
}

static bool
is_same_request(Datum stored, Datum hash)
{
	bytea	   *a = DatumGetByteaPP(stored);
	bytea	   *b = DatumGetByteaPP(hash);

	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

pg_noreturn static void
key_was_reused(const char *call, const char *key)
{
	ereport(ERROR,
			(payflow_error(ERRCODE_PAYFLOW_KEY_REUSED, "idempotency_key_reused"),
			 errmsg("idempotency key \"%s\" was used for another %s", brief(key), call),
			 errhint("A key names one wish: pass it with the same session and amount, or take a new one.")));
}

bool
claim_key(const PaymentRow *payment, const char *call, const char *key, int64 amount, pg_uuid_t *operation_id)
{
	Datum		values[6];
	bool		isnull;

	values[0] = CStringGetTextDatum(payment->merchant);
	values[1] = CStringGetTextDatum(call);
	values[2] = CStringGetTextDatum(key);
	values[3] = request_hash(&payment->session_id, amount);
	values[4] = UUIDPGetDatum(&payment->session_id);
	values[5] = UUIDPGetDatum(operation_id);
	if (run(&insert_key, values, NULL) > 0)
		return true;

	/* forgotten by its age since, or a snapshot of before: then once more, from the start */
	if (run(&read_key, values, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to a concurrent use of the idempotency key"),
				 errhint("The transaction might succeed if retried.")));
	if (!is_same_request(result_datum(0, 1, &isnull), values[3]))
		key_was_reused(call, key);
	if (!result_uuid(0, 2, operation_id))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("idempotency key \"%s\" names no operation", brief(key))));
	return false;
}
