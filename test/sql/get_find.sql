-- get() and find().
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default';
RESET client_min_messages;
INSERT INTO payflow.merchants (id, default_provider) VALUES ('get_shop', 'sandbox');
\pset null '(null)'

SELECT session_id FROM payflow.create('get-1', 1000, 'EUR') \gset
SELECT order_id, amount, currency, status, stage, replayed, http_status FROM payflow.get(:'session_id');
SELECT order_id, amount, currency, status, stage, replayed, http_status FROM payflow.get(session_id => :'session_id');
SELECT (payflow.get(:'session_id')).order_id;
SELECT get.order_id FROM payflow.get(:'session_id');

-- all columns of the type, each with the session's value
BEGIN;
UPDATE payflow.payment_sessions SET status = 'registered', stage = 'authentication', redirect_url = 'https://pay.example/1',
	provider_payment_id = 'pp-1', authorized_amount = 11, captured_amount = 12, refunded_amount = 3, disputed_amount = 4,
	suspense_amount = 5, reserved_amount = 1, failure_code = 'declined', failure_message = 'No money',
	next_action_at = '2030-01-01 00:00:00+00', expires_at = '2030-01-02 00:00:00+00', updated_at = '2030-01-03 00:00:00+00',
	redirected_at = now(), first_sent_at = now()
	WHERE session_id = :'session_id';
\x
SET timezone = 'UTC';
SELECT g.session_id = :'session_id' AS session_id, g.merchant, g.order_id, g.amount, g.currency, g.provider, g.status, g.stage,
	g.paid, g.redirect_url, g.provider_payment_id, g.authorized_amount, g.captured_amount, g.refunded_amount,
	g.disputed_amount, g.suspense_amount, g.refundable_amount, g.order_status, g.failure_code, g.failure_message,
	g.next_action_at, g.expires_at, g.created_at = s.created_at AS created_at, g.updated_at, g.replayed, g.http_status
	FROM payflow.payment_sessions s, payflow.get(s.session_id) g WHERE s.session_id = :'session_id';
\x
-- a replay shows the same
SELECT to_jsonb(c) - 'replayed' = to_jsonb(g) - 'replayed' AS same, c.replayed
	FROM payflow.get(:'session_id') g, payflow.create('get-1', 1000, 'EUR') c;
SELECT key FROM payflow.create('get-1', 1000, 'EUR') c, jsonb_each(to_jsonb(c)) WHERE value = 'null';
ROLLBACK;
SELECT pg_typeof(g) FROM payflow.get(:'session_id') g;
SELECT count(*) AS columns FROM pg_attribute WHERE attrelid = 'payflow.payment'::regclass AND attnum > 0;

-- paid: by the order's receipt, while not all of its money has gone back
BEGIN;
UPDATE payflow.payment_sessions SET status = 'completed', stage = 'none', next_action_at = NULL, expires_at = NULL,
	captured_amount = 1000, refunded_amount = 0, disputed_amount = 0 WHERE session_id = :'session_id';
SELECT status, paid, order_status, http_status FROM payflow.get(:'session_id');
UPDATE payflow.orders SET status = 'paid', active_session_id = NULL, paid_session_id = :'session_id' WHERE order_id = 'get-1';
SELECT status, paid, order_status, http_status FROM payflow.get(:'session_id');
UPDATE payflow.payment_sessions SET refunded_amount = 500, disputed_amount = 499 WHERE session_id = :'session_id';
SELECT paid, refundable_amount FROM payflow.get(:'session_id');
UPDATE payflow.payment_sessions SET disputed_amount = 500 WHERE session_id = :'session_id';
SELECT paid, refundable_amount FROM payflow.get(:'session_id');
UPDATE payflow.payment_sessions SET refunded_amount = 9000000000000000000, disputed_amount = 0 WHERE session_id = :'session_id';
SELECT paid FROM payflow.get(:'session_id');
ROLLBACK;

-- a volatile function: it sees what the transaction did before it
BEGIN;
UPDATE payflow.payment_sessions SET status = 'registered', stage = 'bank' WHERE session_id = :'session_id';
SELECT stage FROM payflow.get(:'session_id');
ROLLBACK;
SELECT stage FROM payflow.get(:'session_id');

-- find: newest first
SELECT payflow.find('get-2');
SELECT session_id FROM payflow.create(4711, 1, 'EUR') \gset
UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', next_action_at = NULL, failure_code = 'expired'
	WHERE session_id = :'session_id';
UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = :'session_id';
SELECT session_id FROM payflow.create(4711, 2, 'EUR') \gset
UPDATE payflow.payment_sessions SET status = 'canceled', stage = 'none', next_action_at = NULL
	WHERE session_id = :'session_id';
UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = :'session_id';
SELECT replayed FROM payflow.create(4711, 3, 'EUR');
SELECT order_id, amount, status, failure_code, replayed, http_status FROM payflow.find(4711);
SELECT order_id, amount, status FROM payflow.find('4711');
SELECT order_id, amount, status FROM payflow.find(order_id => '4711'::text, merchant => 'default');
SELECT amount, status FROM payflow.find(4711) LIMIT 1;
SELECT o, amount FROM unnest(ARRAY[4711, 4712]) o LEFT JOIN LATERAL payflow.find(o) ON true;
SELECT replayed FROM payflow.create('0b5c6a4e-51f9-4c41-a7c2-70a8c8d1c002'::uuid, 4, 'EUR');
SELECT order_id, amount FROM payflow.find('0b5c6a4e-51f9-4c41-a7c2-70a8c8d1c002'::uuid);
SELECT order_id, amount FROM payflow.find('0b5c6a4e-51f9-4c41-a7c2-70a8c8d1c002');

-- an order without payments has none, also of a merchant that has no such order
SELECT count(*) FROM payflow.find(4711, 'get_shop');
SELECT count(*) FROM payflow.find('0b5c6a4e-51f9-4c41-a7c2-70a8c8d1c003'::uuid);

SELECT payflow.find('get-1', 'no_such_shop');
SELECT payflow.get('01900000-0000-7000-8000-000000000000');
SELECT * FROM payflow.check_invariants();
