/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  What a claim writes: the lease and, where something is sent for the first
 *	  time, the mark that it may have been sent from now on.
 *
 *	  A lease writes only columns that no index holds (HOT); a mark that is set
 *	  by a claim reaches the disk before the call, see the worker's cycle.
 *
 * IDENTIFICATION
 *	  src/sweep/lease.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "lib/write.h"
#include "sweep/source.h"

/*
 * Where the provider knows the payment, and is asked about it now and then,
 * what callers ask in between does not count: the pauses must not grow by it.
 */
static Statement lease_plain_sessions = {
	.sql = "UPDATE payflow.payment_sessions SET lease_until = $2, lease_token = $3, "
	"attempts = attempts OPERATOR(pg_catalog.+) CASE WHEN $4 AND status IN ('registered', 'authorized') THEN 0 ELSE 1 END "
	"WHERE session_id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 4,
	.argtypes = {UUIDARRAYOID, TIMESTAMPTZOID, INT8OID, BOOLOID},
};

/* What Register depends on is frozen with its mark. */
static Statement mark_sessions = {
	.sql = "UPDATE payflow.payment_sessions SET lease_until = $2, lease_token = $3, "
	"attempts = attempts OPERATOR(pg_catalog.+) 1, first_sent_at = $4, endpoint = $5, account = $6 "
	"WHERE session_id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 6,
	.argtypes = {UUIDARRAYOID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, TEXTOID, TEXTOID},
};

/* Both without a statement, by the places at which the claim has locked the rows. */
static WriteTarget leased_session = {
	.table = "payment_sessions",
	.ncolumns = 3,
	.columns = {"lease_until", "lease_token", "attempts"}
};

static WriteTarget marked_session = {
	.table = "payment_sessions",
	.ncolumns = 6,
	.columns = {"lease_until", "lease_token", "attempts", "first_sent_at", "endpoint", "account"}
};

static Statement lease_plain_operations = {
	.sql = "UPDATE payflow.operations SET lease_until = $2, lease_token = $3, "
	"attempts = attempts OPERATOR(pg_catalog.+) 1 "
	"WHERE operation_id OPERATOR(pg_catalog.=) ANY ($1)",
	.nargs = 3,
	.argtypes = {UUIDARRAYOID, TIMESTAMPTZOID, INT8OID},
};

/*
 * The total that was refunded before, unless the provider was asked for it: it
 * is read here and not with the claim, when the operation was not locked yet.
 * From then on nobody books anything of its session.
 */
static Statement mark_operations = {
	.sql = "UPDATE payflow.operations op SET lease_until = $2, lease_token = $3, "
	"attempts = op.attempts OPERATOR(pg_catalog.+) 1, status = 'sent', first_sent_at = $4, "
	"total_before = COALESCE(op.total_before, CASE op.kind WHEN 'refund' THEN (SELECT s.refunded_amount "
	"FROM payflow.payment_sessions s WHERE s.session_id OPERATOR(pg_catalog.=) op.session_id) END) "
	"FROM pg_catalog.unnest($1) WITH ORDINALITY AS k(operation_id, place) "
	"WHERE op.operation_id OPERATOR(pg_catalog.=) k.operation_id RETURNING k.place, op.total_before",
	.nargs = 4,
	.argtypes = {UUIDARRAYOID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID},
};

static Statement release_session = {
	.sql = "UPDATE payflow.payment_sessions SET lease_until = NULL, lease_token = NULL, "
	"attempts = GREATEST(attempts OPERATOR(pg_catalog.-) 1, 0) "
	"WHERE session_id OPERATOR(pg_catalog.=) $1 AND lease_token OPERATOR(pg_catalog.=) $2",
	.nargs = 2,
	.argtypes = {UUIDOID, INT8OID},
};

static Statement release_operation = {
	.sql = "UPDATE payflow.operations SET lease_until = NULL, lease_token = NULL, "
	"attempts = GREATEST(attempts OPERATOR(pg_catalog.-) 1, 0) "
	"WHERE operation_id OPERATOR(pg_catalog.=) $1 AND lease_token OPERATOR(pg_catalog.=) $2",
	.nargs = 2,
	.argtypes = {UUIDOID, INT8OID},
};

static Statement release_operation_and_mark = {
	.sql = "UPDATE payflow.operations SET lease_until = NULL, lease_token = NULL, "
	"attempts = GREATEST(attempts OPERATOR(pg_catalog.-) 1, 0), "
	"status = 'pending', first_sent_at = NULL "
	"WHERE operation_id OPERATOR(pg_catalog.=) $1 AND lease_token OPERATOR(pg_catalog.=) $2",
	.nargs = 2,
	.argtypes = {UUIDOID, INT8OID},
};

static int64
new_token(void)
{
	int64		token;

	do
	{
		if (!pg_strong_random(&token, sizeof(token)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		token &= PG_INT64_MAX;
	} while (token == 0);
	return token;
}

/* The call is Register, and nothing of it was ever sent. */
static bool
is_first_register(const Claim *claim)
{
	return claim->call == CALL_REGISTER && claim->payment->first_sent_at == 0;
}

static void
write_lease(const PaymentRow *payment, bool asked, TimestampTz until, int64 token)
{
	static const bool nulls[3] = {false};
	bool		counts = !asked || (payment->status != STATUS_REGISTERED && payment->status != STATUS_AUTHORIZED);
	Datum		values[3];

	values[0] = TimestampTzGetDatum(until);
	values[1] = Int64GetDatum(token);
	values[2] = Int32GetDatum(payment->attempts + (counts ? 1 : 0));
	update_row(&leased_session, &payment->tid, values, nulls);
}

static void
write_mark(const PaymentRow *payment, const ClaimRequest *request, TimestampTz now, int64 token)
{
	bool		nulls[6] = {false};
	Datum		values[6];

	values[0] = TimestampTzGetDatum(now + request->lease);
	values[1] = Int64GetDatum(token);
	values[2] = Int32GetDatum(payment->attempts + 1);
	values[3] = TimestampTzGetDatum(now);
	values[4] = CStringGetTextDatum(request->endpoint);
	values[5] = request->account ? CStringGetTextDatum(request->account) : (Datum) 0;
	nulls[5] = request->account == NULL;
	update_row(&marked_session, &payment->tid, values, nulls);
}

/*
 * False: the table has something that only a statement can do justice to.
 */
static bool
lease_session_rows(List *claims, int first, const ClaimRequest *request, bool asked, TimestampTz now, int64 token)
{
	bool		usual = update_open(&leased_session);
	bool		marked_is_usual = update_open(&marked_session);

	if (usual && marked_is_usual)
	{
		write_begin();
		for (int i = first; i < list_length(claims); i++)
		{
			const Claim *claim = list_nth(claims, i);

			if (is_first_register(claim))
				write_mark(claim->payment, request, now, token);
			else
				write_lease(claim->payment, asked, now + request->lease, token);
		}
		write_end();
	}
	if (marked_is_usual)
		write_close(&marked_session);
	if (usual)
		write_close(&leased_session);
	return usual && marked_is_usual;
}

static void
lease_by_statements(List *claims, int first, const ClaimRequest *request, bool asked, TimestampTz now, int64 token)
{
	int			n = list_length(claims) - first;
	pg_uuid_t  *plain = palloc_array(pg_uuid_t, n);
	pg_uuid_t  *marked = palloc_array(pg_uuid_t, n);
	int			n_plain = 0;
	int			n_marked = 0;
	Datum		values[6];

	for (int i = first; i < list_length(claims); i++)
	{
		const Claim *claim = list_nth(claims, i);

		if (is_first_register(claim))
			marked[n_marked++] = claim->payment->session_id;
		else
			plain[n_plain++] = claim->payment->session_id;
	}
	values[1] = TimestampTzGetDatum(now + request->lease);
	values[2] = Int64GetDatum(token);
	if (n_plain > 0)
	{
		values[0] = uuid_array(plain, n_plain);
		values[3] = BoolGetDatum(asked);
		(void) run(&lease_plain_sessions, values, NULL);
	}
	if (n_marked > 0)
	{
		values[0] = uuid_array(marked, n_marked);
		values[3] = TimestampTzGetDatum(now);
		values[4] = CStringGetTextDatum(request->endpoint);
		values[5] = request->account ? CStringGetTextDatum(request->account) : (Datum) 0;
		(void) run(&mark_sessions, values, request->account ? NULL : "     n");
	}
}

void
lease_sessions(List *claims, int first, const ClaimRequest *request, bool asked, TimestampTz now)
{
	int64		token = new_token();

	if (!lease_session_rows(claims, first, request, asked, now, token))
		lease_by_statements(claims, first, request, asked, now, token);

	for (int i = first; i < list_length(claims); i++)
	{
		Claim	   *claim = list_nth(claims, i);
		PaymentRow *payment = claim->payment;

		payment->lease_until = now + request->lease;
		payment->lease_token = token;
		payment->attempts++;
		if (is_first_register(claim))
		{
			claim->mark_set = true;
			payment->first_sent_at = now;
			payment->endpoint = pstrdup(request->endpoint);
			payment->account = request->account ? pstrdup(request->account) : NULL;
		}
	}
}

/* The call is one that moves money, and nothing of it was ever sent. */
static bool
is_first_sending(const Claim *claim)
{
	return (claim->call == CALL_CAPTURE || claim->call == CALL_CANCEL || claim->call == CALL_REFUND) &&
		claim->payment->operation->first_sent_at == 0;
}

static void
mark_as_sent(OperationRow **operations, const pg_uuid_t *ids, int n, TimestampTz until, int64 token, TimestampTz now)
{
	Datum		values[4];
	uint64		written;

	values[0] = uuid_array(ids, n);
	values[1] = TimestampTzGetDatum(until);
	values[2] = Int64GetDatum(token);
	values[3] = TimestampTzGetDatum(now);
	written = run(&mark_operations, values, NULL);
	for (uint64 i = 0; i < written; i++)
	{
		OperationRow *operation = operations[result_int64(i, 1) - 1];

		operation->status = OPERATION_SENT;
		operation->first_sent_at = now;
		if (operation->kind == OPERATION_REFUND)
			operation->total_before = result_int64(i, 2);
	}
}

void
lease_operations(List *claims, int first, const ClaimRequest *request, TimestampTz now)
{
	int			n = list_length(claims) - first;
	pg_uuid_t  *plain = palloc_array(pg_uuid_t, n);
	pg_uuid_t  *marked = palloc_array(pg_uuid_t, n);
	OperationRow **to_mark = palloc_array(OperationRow *, n);
	int			n_plain = 0;
	int			n_marked = 0;
	TimestampTz until = now + request->lease;
	int64		token = new_token();
	Datum		values[3];

	for (int i = first; i < list_length(claims); i++)
	{
		Claim	   *claim = list_nth(claims, i);
		PaymentRow *payment = claim->payment;
		OperationRow *operation = payment->operation;

		operation->lease_until = payment->lease_until = until;
		operation->lease_token = payment->lease_token = token;
		payment->attempts = ++operation->attempts;
		claim->mark_set = is_first_sending(claim);
		if (claim->mark_set)
		{
			to_mark[n_marked] = operation;
			marked[n_marked++] = operation->operation_id;
		}
		else
			plain[n_plain++] = operation->operation_id;
	}

	if (n_plain > 0)
	{
		values[0] = uuid_array(plain, n_plain);
		values[1] = TimestampTzGetDatum(until);
		values[2] = Int64GetDatum(token);
		(void) run(&lease_plain_operations, values, NULL);
	}
	if (n_marked > 0)
		mark_as_sent(to_mark, marked, n_marked, until, token, now);
}

void
release_claim(const Claim *claim)
{
	const PaymentRow *payment = claim->payment;
	Datum		values[2];

	values[1] = Int64GetDatum(payment->lease_token);
	if (payment->operation == NULL)
	{
		values[0] = UUIDPGetDatum(&payment->session_id);
		(void) run(&release_session, values, NULL);
		return;
	}
	values[0] = UUIDPGetDatum(&payment->operation->operation_id);
	(void) run(claim->mark_set ? &release_operation_and_mark : &release_operation, values, NULL);
}
