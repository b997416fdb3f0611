-- Constraints behind every rule in code: what raw statements cannot do (A2, B2, D1, F1, C61).
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT plan(33);

CREATE FUNCTION pg_temp.add(o text, s text DEFAULT 'registering', g text DEFAULT 'register',
	alarm timestamptz DEFAULT now() + '1 day'::interval, amount bigint DEFAULT 100, more text DEFAULT '') RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
	id uuid := gen_random_uuid();
BEGIN
	INSERT INTO payflow.orders (merchant, order_id, amount, currency) VALUES ('default', o, 100, 'EUR') ON CONFLICT DO NOTHING;
	INSERT INTO payflow.payment_sessions (session_id, merchant, order_id, amount, currency, provider, status, stage,
			next_action_at, first_sent_at, failure_code)
		VALUES (id, 'default', o, amount, 'EUR', 'sandbox', s, g, alarm, now(), CASE WHEN s = 'failed' THEN 'declined' END);
	RETURN id;
END
$$;

SELECT lives_ok($$SELECT pg_temp.add('a')$$, 'a live session');
SELECT throws_ok($$SELECT pg_temp.add('a')$$, '23505',
	'duplicate key value violates unique constraint "ux_payment_active_order"', 'A2: no second live session of an order');
SELECT throws_ok($$SELECT pg_temp.add('a', 'registered', 'form')$$, '23505', NULL, 'A2: whatever its live status');
SELECT lives_ok($$SELECT pg_temp.add('a', 'failed', 'none', NULL)$$, 'final ones do not count');
SELECT throws_ok($$SELECT pg_temp.add('b', alarm => NULL)$$, '23514', NULL, 'D1: a live session has an alarm');
SELECT throws_ok($$SELECT pg_temp.add('b', alarm => 'infinity')$$, '23514', NULL, 'D1: which rings one day');
SELECT throws_ok($$SELECT pg_temp.add('b', 'failed', 'none')$$, '23514', NULL, 'a final one has none');
SELECT throws_ok($$SELECT pg_temp.add('b', 'registered', 'capture')$$, '23514', NULL, 'the stage fits the status');
SELECT throws_ok($$SELECT pg_temp.add('b', 'paid', 'none')$$, '23514', NULL, 'no other status');
SELECT throws_ok($$SELECT pg_temp.add('b', amount => 0)$$, '23514', NULL, 'C61: no zero');
SELECT throws_ok($$SELECT pg_temp.add('b', amount => -1)$$, '23514', NULL, 'C61: nothing negative');
SELECT throws_ok($$SELECT pg_temp.add('b', amount => 1000000000000001)$$, '23514', NULL, 'nothing above 10^15');
SELECT throws_ok($$UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', next_action_at = NULL WHERE order_id = 'a' AND status = 'registering'$$,
	'23514', NULL, 'failed says why');
SELECT throws_ok($$UPDATE payflow.payment_sessions SET amount = 1 WHERE order_id = 'a'$$, '23514', 'column "amount" must not be changed', 'the amount is fixed');
SELECT throws_ok($$UPDATE payflow.payment_sessions SET provider = 'x' WHERE order_id = 'a'$$, '23514', 'column "provider" must not be changed', 'the provider is fixed');
SELECT throws_ok($$UPDATE payflow.payment_sessions SET return_url = 'http://x/' WHERE order_id = 'a'$$, '23514', 'column "return_url" must not be changed',
	'A10: what was sent is fixed');
SELECT throws_ok($$UPDATE payflow.payment_sessions SET lease_until = now() WHERE order_id = 'a'$$, '23514', NULL, 'a lease has a token');
SELECT throws_ok($$DELETE FROM payflow.payment_sessions$$, '55000', NULL, 'sessions are not deleted');
SELECT throws_ok($$DELETE FROM payflow.orders$$, '55000', NULL, 'orders are not deleted');
SELECT throws_ok($$TRUNCATE payflow.orders CASCADE$$, '55000', NULL, 'nor truncated');
SELECT throws_ok($$DELETE FROM payflow.merchants WHERE id = 'default'$$, '55000', NULL, 'merchants are not deleted');
SELECT throws_ok($$UPDATE payflow.merchants SET id = 'x' WHERE id = 'default'$$, '55000', NULL, 'nor renamed');
SELECT throws_ok($$UPDATE payflow.merchants SET late_payment = 'x' WHERE id = 'default'$$, '23514', NULL, 'settings have their words');
SELECT throws_ok($$UPDATE payflow.orders SET status = 'paid' WHERE order_id = 'a'$$, '23514', NULL, 'no paid order without a receipt');

-- the ledger
INSERT INTO payflow.accounts (account_id, merchant, kind, currency, provider) VALUES (-1, 'default', 'provider', 'EUR', 'sandbox');
INSERT INTO payflow.accounts (account_id, merchant, kind, currency) VALUES (-2, 'default', 'held', 'EUR');
CREATE FUNCTION pg_temp.book(t text DEFAULT 'payment_received', m bigint DEFAULT 100, d bigint DEFAULT -1, c bigint DEFAULT -2) RETURNS void
LANGUAGE sql AS $$
	INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, debit_account, credit_account, amount, currency, event_at)
	SELECT t, s.session_id, 'default', 'a', d, c, m, 'EUR', now() FROM payflow.payment_sessions s WHERE s.order_id = 'a' LIMIT 1;
$$;
SELECT lives_ok($$SELECT pg_temp.book()$$, 'an entry');
SELECT throws_ok($$SELECT pg_temp.book()$$, '23505',
	'duplicate key value violates unique constraint "ux_order_payment_receipt"', 'B2: one receipt an order');
SELECT throws_ok($$SELECT pg_temp.book('unexpected_accepted')$$, '23505', NULL, 'B2: accepted late money is a receipt too');
SELECT throws_ok($$SELECT pg_temp.book('refund_sent', 0)$$, '23514', NULL, 'an entry moves something');
SELECT throws_ok($$SELECT pg_temp.book('refund_sent', 1, -1, -1)$$, '23514', NULL, 'from one account to another');
SELECT throws_ok($$UPDATE payflow.accounting_entries SET amount = 1$$, '55000', NULL, 'F1: entries are never updated');
SELECT throws_ok($$DELETE FROM payflow.accounting_entries$$, '55000', NULL, 'F1: nor deleted');
SELECT throws_ok($$TRUNCATE payflow.accounting_entries$$, '55000', NULL, 'F1: nor truncated');
SELECT isnt_empty($$SELECT * FROM payflow.check_invariants() WHERE invariant IN (1, 2, 4)$$,
	'check_invariants() sees what was forged here');

SELECT * FROM finish();
ROLLBACK;
