/* The calls. Each takes its arguments by name as well; what they do is in their comments. */

CREATE FUNCTION payflow.create(order_id text, amount bigint, currency text, provider text DEFAULT NULL,
	idempotency_key text DEFAULT NULL, merchant text DEFAULT 'default', capture text DEFAULT 'automatic',
	return_url text DEFAULT NULL, description text DEFAULT NULL, customer jsonb DEFAULT NULL,
	metadata jsonb DEFAULT NULL, receipt jsonb DEFAULT NULL) RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_create_text';
COMMENT ON FUNCTION payflow.create(text, bigint, text, text, text, text, text, text, text, jsonb, jsonb, jsonb) IS
	'starts the payment of an order, or returns the one that runs; the provider is called after COMMIT; idempotency_key must be null (unused in this version)';

CREATE FUNCTION payflow.create(order_id bigint, amount bigint, currency text, provider text DEFAULT NULL,
	idempotency_key text DEFAULT NULL, merchant text DEFAULT 'default', capture text DEFAULT 'automatic',
	return_url text DEFAULT NULL, description text DEFAULT NULL, customer jsonb DEFAULT NULL,
	metadata jsonb DEFAULT NULL, receipt jsonb DEFAULT NULL) RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_create_int8';
COMMENT ON FUNCTION payflow.create(bigint, bigint, text, text, text, text, text, text, text, jsonb, jsonb, jsonb) IS
	'starts the payment of an order, or returns the one that runs; the provider is called after COMMIT; idempotency_key must be null (unused in this version)';

CREATE FUNCTION payflow.create(order_id uuid, amount bigint, currency text, provider text DEFAULT NULL,
	idempotency_key text DEFAULT NULL, merchant text DEFAULT 'default', capture text DEFAULT 'automatic',
	return_url text DEFAULT NULL, description text DEFAULT NULL, customer jsonb DEFAULT NULL,
	metadata jsonb DEFAULT NULL, receipt jsonb DEFAULT NULL) RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_create_uuid';
COMMENT ON FUNCTION payflow.create(uuid, bigint, text, text, text, text, text, text, text, jsonb, jsonb, jsonb) IS
	'starts the payment of an order, or returns the one that runs; the provider is called after COMMIT; idempotency_key must be null (unused in this version)';

CREATE FUNCTION payflow.get(session_id uuid) RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_get';
COMMENT ON FUNCTION payflow.get(uuid) IS 'the current state of a payment session';

CREATE FUNCTION payflow.find(order_id text, merchant text DEFAULT 'default') RETURNS SETOF payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 5 AS 'MODULE_PATHNAME', 'payflow_find_text';
COMMENT ON FUNCTION payflow.find(text, text) IS 'all payment sessions of an order, newest first';
CREATE FUNCTION payflow.find(order_id bigint, merchant text DEFAULT 'default') RETURNS SETOF payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 5 AS 'MODULE_PATHNAME', 'payflow_find_int8';
COMMENT ON FUNCTION payflow.find(bigint, text) IS 'all payment sessions of an order, newest first';
CREATE FUNCTION payflow.find(order_id uuid, merchant text DEFAULT 'default') RETURNS SETOF payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 5 AS 'MODULE_PATHNAME', 'payflow_find_uuid';
COMMENT ON FUNCTION payflow.find(uuid, text) IS 'all payment sessions of an order, newest first';

CREATE FUNCTION payflow.wait(session_id uuid, timeout interval DEFAULT '10 seconds', until text DEFAULT 'settled')
RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_wait';
COMMENT ON FUNCTION payflow.wait(uuid, interval, text) IS
	'returns as soon as nothing of the session is in progress, also no capture (settled), it has changed since the call began (changed) or is final (final), or at the timeout (0 to 60 s)';

CREATE FUNCTION payflow.check(session_id uuid, wait interval DEFAULT '0') RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_check';
COMMENT ON FUNCTION payflow.check(uuid, interval) IS
	'has the provider asked now, in any status; with wait, returns the answer to a question sent after the call began, if it comes in time, else http_status 202';

CREATE FUNCTION payflow.payer_redirected(session_id uuid) RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_payer_redirected';
COMMENT ON FUNCTION payflow.payer_redirected(uuid) IS 'the application sends the payer to the payment page: starts the return timer';

CREATE FUNCTION payflow.payer_returned(session_id uuid, params jsonb DEFAULT NULL, wait interval DEFAULT '0')
RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_payer_returned';
COMMENT ON FUNCTION payflow.payer_returned(uuid, jsonb, interval) IS
	'the payer is back: ends the return timer and has the provider asked now';

CREATE FUNCTION payflow.lock_order(order_id text, merchant text DEFAULT 'default') RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_lock_order_text';
COMMENT ON FUNCTION payflow.lock_order(text, text) IS 'takes the lock that create takes on the order, until the end of the transaction';
CREATE FUNCTION payflow.lock_order(order_id bigint, merchant text DEFAULT 'default') RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_lock_order_int8';
COMMENT ON FUNCTION payflow.lock_order(bigint, text) IS 'takes the lock that create takes on the order, until the end of the transaction';
CREATE FUNCTION payflow.lock_order(order_id uuid, merchant text DEFAULT 'default') RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_lock_order_uuid';
COMMENT ON FUNCTION payflow.lock_order(uuid, text) IS 'takes the lock that create takes on the order, until the end of the transaction';

CREATE FUNCTION payflow.format_amount(amount bigint, currency text) RETURNS text
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'payflow_format_amount';
COMMENT ON FUNCTION payflow.format_amount(bigint, text) IS 'exact decimal text of an amount in minor units: 12345 KWD is 12.345, 80 JPY is 80';
CREATE FUNCTION payflow.parse_amount(value text, currency text) RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'payflow_parse_amount';
COMMENT ON FUNCTION payflow.parse_amount(text, text) IS 'minor units of an exact decimal text; too many digits are an error';

CREATE FUNCTION payflow.timeline(session_id uuid)
RETURNS TABLE(at timestamptz, event text, from_status text, to_status text, attempt int, http_status int,
	duration interval, detail jsonb)
LANGUAGE sql STABLE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
	SELECT t.at, t.event, t.from_status, t.to_status, t.attempt, t.http_status, t.duration, t.detail
	FROM (
		SELECT s.created_at AS at, 'create' AS event, NULL::text AS from_status, 'registering' AS to_status,
			NULL::int AS attempt, NULL::int AS http_status, NULL::interval AS duration,
			jsonb_build_object('amount', s.amount::bigint, 'currency', s.currency::text, 'provider', s.provider,
				'capture', s.capture) AS detail,
			0::bigint AS seq
		FROM payflow.payment_sessions s WHERE s.session_id = $1
		UNION ALL
		SELECT j.at, j.event, j.from_status, j.to_status, j.attempt, j.http_status, j.duration,
			CASE WHEN j.outcome IS NULL THEN j.detail
				ELSE jsonb_build_object('outcome', j.outcome) || COALESCE(j.detail, '{}') END,
			j.journal_id
		FROM payflow.journal j WHERE j.session_id = $1) t
	ORDER BY t.seq;
$$;
COMMENT ON FUNCTION payflow.timeline(uuid) IS 'the journal of one session, in order';

CREATE FUNCTION payflow.verify_ledger()
RETURNS TABLE(account text, currency text, expected numeric, actual numeric)
LANGUAGE sql STABLE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
	WITH moves AS (
		SELECT e.debit_account AS account_id, sum(e.amount) AS debits, 0::numeric AS credits
		FROM payflow.accounting_entries e GROUP BY e.debit_account
		UNION ALL
		SELECT e.credit_account, 0::numeric, sum(e.amount)
		FROM payflow.accounting_entries e GROUP BY e.credit_account),
	sums AS (
		SELECT m.account_id, sum(m.debits) AS debits, sum(m.credits) AS credits FROM moves m GROUP BY m.account_id)
	SELECT concat_ws('/', a.merchant, a.kind, NULLIF(a.provider, '')), a.currency::text, x.expected, a.balance
	FROM payflow.accounts a
	LEFT JOIN sums s ON s.account_id = a.account_id
	CROSS JOIN LATERAL (SELECT CASE WHEN a.kind IN ('provider', 'losses')
			THEN COALESCE(s.debits - s.credits, 0) ELSE COALESCE(s.credits - s.debits, 0) END AS expected) x
	WHERE x.expected <> a.balance
	ORDER BY a.account_id;
$$;
COMMENT ON FUNCTION payflow.verify_ledger() IS 'accounts whose balance is not the sum of their entries: none, unless something is wrong';

CREATE FUNCTION payflow.check_invariants()
RETURNS TABLE(invariant int, session_id uuid, detail text)
LANGUAGE sql STABLE SECURITY DEFINER PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
	-- 1: at most one live session and at most one receipt an order
	SELECT 1, min(s.session_id::text)::uuid, format('order %s/%s has %s live sessions', s.merchant, s.order_id, count(*))
	FROM payflow.payment_sessions s
	WHERE s.status IN ('registering', 'registered', 'unknown', 'authorized', 'canceling')
	GROUP BY s.merchant, s.order_id HAVING count(*) > 1
	UNION ALL
	SELECT 1, min(e.session_id::text)::uuid, format('order %s/%s has %s receipts', e.merchant, e.order_id, count(*))
	FROM payflow.accounting_entries e WHERE e.entry_type IN ('payment_received', 'unexpected_accepted')
	GROUP BY e.merchant, e.order_id HAVING count(*) > 1
	UNION ALL
	SELECT 1, o.active_session_id, format('order %s/%s names active session %s, the live one is %s',
		o.merchant, o.order_id, COALESCE(o.active_session_id::text, 'none'), COALESCE(s.session_id::text, 'none'))
	FROM payflow.orders o
	LEFT JOIN payflow.payment_sessions s ON s.merchant = o.merchant AND s.order_id = o.order_id
		AND s.status IN ('registering', 'registered', 'unknown', 'authorized', 'canceling')
	WHERE o.active_session_id IS DISTINCT FROM s.session_id
	UNION ALL
	-- 2: a receipt if and only if the order is not open; entries fit the session's status
	SELECT 2, o.paid_session_id, format('order %s/%s is %s and has %s receipts of session %s',
		o.merchant, o.order_id, o.status, r.n, COALESCE(o.paid_session_id::text, 'none'))
	FROM payflow.orders o
	CROSS JOIN LATERAL (SELECT count(*) AS n, count(*) FILTER (WHERE e.session_id = o.paid_session_id) AS own
		FROM payflow.accounting_entries e
		WHERE e.merchant = o.merchant AND e.order_id = o.order_id
			AND e.entry_type IN ('payment_received', 'unexpected_accepted')) r
	WHERE CASE WHEN o.status = 'open' THEN r.n <> 0 ELSE r.n <> 1 OR r.own <> 1 END
	UNION ALL
	SELECT 2, s.session_id, format('order %s/%s is %s; of its receipt %s are being refunded, %s are refunded, %s reversed',
		o.merchant, o.order_id, o.status, s.reserved_amount, s.refunded_amount, s.reversed_amount)
	FROM payflow.orders o
	JOIN payflow.payment_sessions s ON s.session_id = o.paid_session_id
	WHERE o.status::text <> CASE WHEN s.reserved_amount > 0 THEN 'refunding'
		WHEN s.refunded_amount >= s.captured_amount THEN 'refunded'
		WHEN s.refunded_amount > 0 OR s.reversed_amount > 0 THEN 'partially_refunded' ELSE 'paid' END
	UNION ALL
	SELECT 2, s.session_id, format('session is %s and has %s entries payment_received, %s unexpected_accepted',
		s.status, r.received, r.accepted)
	FROM payflow.payment_sessions s
	CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE e.entry_type = 'payment_received') AS received,
			count(*) FILTER (WHERE e.entry_type = 'unexpected_accepted') AS accepted
		FROM payflow.accounting_entries e WHERE e.session_id = s.session_id) r
	WHERE CASE WHEN s.status = 'completed' THEN r.received <> 1 OR r.accepted <> 0
			WHEN s.status IN ('failed', 'canceled') THEN r.received <> 0 OR r.accepted > 1
			ELSE r.received <> 0 OR r.accepted <> 0 END
	UNION ALL
	-- 3: every live session has an alarm, no final one has
	SELECT 3, s.session_id, format('session is %s and its alarm is %s', s.status, COALESCE(s.next_action_at::text, 'null'))
	FROM payflow.payment_sessions s
	WHERE (s.status IN ('completed', 'failed', 'canceled')) <> (s.next_action_at IS NULL)
		OR NOT isfinite(s.next_action_at)
	UNION ALL
	SELECT 3, o.session_id, format('%s %s is %s and its alarm is null', o.kind, o.operation_id, o.status)
	FROM payflow.operations o
	JOIN payflow.payment_sessions s ON s.session_id = o.session_id
	WHERE o.status IN ('pending', 'sent', 'unknown') AND o.next_action_at IS NULL
		AND s.status IN ('completed', 'failed', 'canceled')
	UNION ALL
	-- 4: balances equal the sum of entries
	SELECT 4, NULL::uuid, format('account %s %s: balance %s, sum of entries %s', v.account, v.currency, v.actual, v.expected)
	FROM payflow.verify_ledger() v
	UNION ALL
	SELECT 4, e.session_id, format('entry %s moves %s between accounts of %s and %s', e.entry_id, e.currency, d.currency, c.currency)
	FROM payflow.accounting_entries e
	JOIN payflow.accounts d ON d.account_id = e.debit_account
	JOIN payflow.accounts c ON c.account_id = e.credit_account
	WHERE d.currency <> e.currency OR c.currency <> e.currency OR d.merchant <> e.merchant OR c.merchant <> e.merchant
	UNION ALL
	-- 5: refunded + disputed <= captured <= authorized, unless a discrepancy says otherwise
	SELECT 5, s.session_id, format('authorized %s, captured %s, refunded %s, disputed %s',
		s.authorized_amount, s.captured_amount, s.refunded_amount, s.disputed_amount)
	FROM payflow.payment_sessions s
	WHERE (s.refunded_amount + s.disputed_amount > s.captured_amount OR s.captured_amount > s.authorized_amount
			OR (s.capture = 'automatic' AND s.status = 'completed' AND s.captured_amount <> s.authorized_amount))
		AND NOT EXISTS (SELECT FROM payflow.discrepancies d WHERE d.session_id = s.session_id)
	UNION ALL
	-- the session's amounts are those of its entries
	SELECT 5, s.session_id, format('captured %s, refunded %s, disputed %s, suspense %s; booked %s, %s, %s, %s',
		s.captured_amount, s.refunded_amount, s.disputed_amount, s.suspense_amount,
		b.captured, b.refunded, b.disputed, b.suspense)
	FROM payflow.payment_sessions s
	CROSS JOIN LATERAL (
		SELECT COALESCE(sum(CASE WHEN e.entry_type IN ('payment_received', 'unexpected_accepted') THEN e.amount
				WHEN e.entry_type = 'payment_reversed' AND d.kind IN ('held', 'available') THEN -e.amount END), 0) AS captured,
			COALESCE(sum(CASE WHEN e.entry_type IN ('refund_sent', 'refund_reported') AND d.kind IN ('held', 'available') THEN e.amount
				WHEN e.entry_type = 'refund_reversed' AND c.kind IN ('held', 'available') THEN -e.amount END), 0) AS refunded,
			COALESCE(sum(CASE WHEN e.entry_type = 'chargeback' AND d.kind <> 'suspense' THEN e.amount
				WHEN e.entry_type = 'chargeback_reversed' AND c.kind <> 'suspense' THEN -e.amount END), 0) AS disputed,
			GREATEST(COALESCE(sum(CASE WHEN c.kind = 'suspense' THEN e.amount WHEN d.kind = 'suspense' THEN -e.amount END), 0), 0) AS suspense
		FROM payflow.accounting_entries e
		JOIN payflow.accounts d ON d.account_id = e.debit_account
		JOIN payflow.accounts c ON c.account_id = e.credit_account
		WHERE e.session_id = s.session_id AND e.currency = s.currency) b
	WHERE (s.captured_amount, s.refunded_amount, s.disputed_amount, s.suspense_amount)
		IS DISTINCT FROM (b.captured, b.refunded, b.disputed, b.suspense)
	UNION ALL
	SELECT 5, s.session_id, format('reserved %s, unsettled refunds of the receipt %s', s.reserved_amount, r.amount)
	FROM payflow.payment_sessions s
	CROSS JOIN LATERAL (SELECT COALESCE(sum(o.amount), 0) AS amount FROM payflow.operations o
		WHERE o.session_id = s.session_id AND o.source = 'receipt' AND o.status IN ('pending', 'sent', 'unknown')) r
	WHERE s.reserved_amount <> r.amount
	UNION ALL
	SELECT 5, o.session_id, format('refund %s of %s is %s and has booked %s', o.operation_id, o.amount, o.status, e.amount)
	FROM payflow.operations o
	CROSS JOIN LATERAL (SELECT COALESCE(sum(CASE x.entry_type WHEN 'refund_sent' THEN x.amount ELSE -x.amount END), 0) AS amount
		FROM payflow.accounting_entries x WHERE x.operation_id = o.operation_id) e
	WHERE o.kind = 'refund' AND CASE WHEN o.status = 'succeeded' THEN e.amount <= 0 ELSE e.amount <> 0 END
	UNION ALL
	-- 7: one payment at the provider a session
	SELECT 7, r.session_id, format('session has %s payment ids at %s', count(*), r.provider)
	FROM payflow.provider_refs r WHERE r.kind = 'payment'
	GROUP BY r.session_id, r.provider HAVING count(*) > 1
	UNION ALL
	SELECT 7, s.session_id, format('payment id %s is that of session %s', s.provider_payment_id,
		COALESCE(r.session_id::text, 'none'))
	FROM payflow.payment_sessions s
	LEFT JOIN payflow.provider_refs r ON r.provider = s.provider AND r.kind = 'payment' AND r.ref = s.provider_payment_id
	WHERE s.provider_payment_id IS NOT NULL AND r.session_id IS DISTINCT FROM s.session_id;
$$;
COMMENT ON FUNCTION payflow.check_invariants() IS 'rows only where a rule of the money is broken: none, unless something is wrong';
