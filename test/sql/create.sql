-- create(): A1, A4 to A7, A9 within one connection.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default';
RESET client_min_messages;
CREATE SERVER other FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:2');
INSERT INTO payflow.merchants (id, default_provider) VALUES ('create_shop', 'other');

-- runs a statement and tells how it failed
CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; word text; message text; hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, word = PG_EXCEPTION_DETAIL,
		message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(E'\n', concat_ws(' ', state, NULLIF(word, '')), message, NULLIF(hint, ''));
END
$$;
-- ends the order's live session as a worker would that learns that it failed
CREATE FUNCTION pg_temp.fail(id uuid, status text, suspense bigint DEFAULT 0) RETURNS void LANGUAGE sql AS $$
	UPDATE payflow.payment_sessions SET status = $2, stage = 'none', next_action_at = NULL, expires_at = NULL,
		failure_code = 'declined', suspense_amount = $3 WHERE session_id = $1;
	UPDATE payflow.orders SET active_session_id = NULL, updated_at = clock_timestamp() WHERE active_session_id = $1;
$$;
\pset null '(null)'

-- a new payment: claimed, and nothing more
SELECT merchant, order_id, amount, currency, provider, status, stage, paid, order_status, replayed, http_status
	FROM payflow.create('create-1', 1000, 'EUR');
\x
SELECT s.session_id = (SELECT session_id FROM payflow.create('create-1', 1000, 'EUR')) AS same, p.*
	FROM payflow.payment_sessions s, LATERAL (SELECT redirect_url, provider_payment_id,
		authorized_amount, captured_amount, refunded_amount, disputed_amount, suspense_amount, refundable_amount,
		failure_code, failure_message, next_action_at <= clock_timestamp() AS due, expires_at,
		created_at = s.created_at AS created_at, updated_at = s.updated_at AS updated_at
		FROM payflow.get(s.session_id)) p
	WHERE s.order_id = 'create-1';
\x
SELECT amount, currency, status, active_session_id = (SELECT session_id FROM payflow.find('create-1')) AS active, paid_session_id
	FROM payflow.orders WHERE order_id = 'create-1';

-- the id is a version 7 UUID
SELECT session_id::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' AS version_7
	FROM payflow.find('create-1');

-- what the calls return is what they would find
SELECT c.session_id, c.created_at, c.updated_at, c.next_action_at FROM payflow.create('create-2', 5, 'USD') c \gset made_
SELECT session_id = :'made_session_id' AS session_id, created_at = :'made_created_at' AS created_at,
	updated_at = :'made_updated_at' AS updated_at, next_action_at = :'made_next_action_at' AS next_action_at
	FROM payflow.get(:'made_session_id');

-- A4: the same again is the running one
SELECT session_id = :'made_session_id' AS same, replayed, http_status FROM payflow.create('create-2', 5, 'USD');
SELECT session_id = :'made_session_id' AS same, replayed, http_status
	FROM payflow.create('create-2', 5, 'USD', provider => 'sandbox');
SELECT session_id = :'made_session_id' AS same, replayed, http_status
	FROM payflow.create(order_id => 'create-2', amount => 5, currency => 'USD', provider => NULL, idempotency_key => NULL,
		merchant => 'default', capture => 'automatic', return_url => 'https://shop.example/', description => 'two',
		customer => '{"id": "7"}', metadata => '{}', receipt => '{}');
SELECT count(*) FROM payflow.payment_sessions WHERE order_id = 'create-2';

-- A5: other parameters meanwhile
\pset format unaligned
\t
SELECT pg_temp.try($$ SELECT payflow.create('create-2', 6, 'USD') $$);
SELECT pg_temp.try($$ SELECT payflow.create('create-2', 5, 'EUR') $$);
SELECT pg_temp.try($$ SELECT payflow.create('create-2', 5, 'USD', 'other') $$);
SELECT pg_temp.try($$ SELECT payflow.create('create-2', 5, 'USD', 'no_such_provider') $$);
SELECT pg_temp.try($$ SELECT payflow.create('create-2', 5, 'USD', capture => 'manual') $$);
SELECT pg_temp.try($$ SELECT payflow.create('create-2', 6, 'JPY', 'other', capture => 'manual') $$);
\t
\pset format aligned

-- the three types of order ids, and untyped literals
SELECT order_id, replayed FROM payflow.create(5001::bigint, 10, 'EUR');
SELECT order_id, replayed FROM payflow.create('5001'::text, 10, 'EUR');
SELECT order_id, replayed FROM payflow.create(5001, 10, 'EUR');
SELECT order_id, replayed FROM payflow.create('5001', 10, 'EUR');
SELECT order_id, replayed FROM payflow.create((-5001)::bigint, 10, 'EUR');
SELECT order_id, replayed FROM payflow.create('0B5C6A4E-51F9-4C41-A7C2-70A8C8D1C001'::uuid, 10, 'EUR');
SELECT order_id, replayed FROM payflow.create('0b5c6a4e-51f9-4c41-a7c2-70a8c8d1c001', 10, 'EUR');
SELECT order_id, replayed FROM payflow.create('0B5C6A4E-51F9-4C41-A7C2-70A8C8D1C001', 10, 'EUR');
SELECT order_id, replayed FROM payflow.create('Straße 5, čtvrtý, 注文', 10, 'EUR');
SELECT length(order_id), replayed FROM payflow.create(repeat('x', 200), 10, 'EUR');
SELECT order_id, replayed FROM payflow.create(' x ', 10, 'EUR');
PREPARE untyped AS SELECT order_id, amount, replayed FROM payflow.create($1, $2, $3);
EXECUTE untyped('create-3', 1000000000000000, 'EUR');
EXECUTE untyped('create-3', '1000000000000000', 'EUR');
DEALLOCATE untyped;

-- an order is one of its merchant
SELECT merchant, provider, replayed FROM payflow.create('create-2', 77, 'EUR', merchant => 'create_shop');
SELECT merchant, provider, replayed FROM payflow.create('create-2', 77, 'EUR', merchant => 'create_shop');
SELECT merchant, provider, replayed FROM payflow.create('create-2', 5, 'USD');

-- everything that is given is kept
SELECT session_id FROM payflow.create('create-4', 1, 'KWD', 'other', capture => 'manual',
	return_url => 'https://shop.example/paid?s={SESSION_ID}', description => 'Three boxes',
	customer => '{"id": "u1", "email": "a@example.com", "phone": "+1", "ip": "::1", "locale": null}',
	metadata => '{"cart": [1, 2]}', receipt => '{"items": []}') \gset
\x
SELECT amount, currency, provider, capture, return_url, description, customer, metadata, receipt, endpoint, first_sent_at
	FROM payflow.payment_sessions WHERE session_id = :'session_id';
\x

-- replays by status: 202 only while in progress
BEGIN;
UPDATE payflow.payment_sessions SET status = 'unknown', first_sent_at = now() WHERE session_id = :'session_id';
SELECT status, replayed, http_status FROM payflow.create('create-4', 1, 'KWD', capture => 'manual');
UPDATE payflow.payment_sessions SET status = 'registered', stage = 'form' WHERE session_id = :'session_id';
SELECT status, replayed, http_status FROM payflow.create('create-4', 1, 'KWD', capture => 'manual');
UPDATE payflow.payment_sessions SET status = 'authorized', stage = 'capture' WHERE session_id = :'session_id';
SELECT status, replayed, http_status FROM payflow.create('create-4', 1, 'KWD', capture => 'manual');
UPDATE payflow.payment_sessions SET status = 'canceling', stage = 'reverse' WHERE session_id = :'session_id';
SELECT status, replayed, http_status FROM payflow.create('create-4', 1, 'KWD', capture => 'manual');
ROLLBACK;

-- A7: an order whose session failed or was canceled takes a new attempt, with other parameters too
SELECT session_id FROM payflow.create('create-5', 100, 'EUR') \gset first_
SELECT pg_temp.fail(:'first_session_id', 'failed');
SELECT session_id, amount, currency, replayed FROM payflow.create('create-5', 90, 'USD') \gset second_
SELECT pg_temp.fail(:'second_session_id', 'canceled');
SELECT session_id, amount, currency, replayed FROM payflow.create('create-5', 80, 'JPY', 'other') \gset third_
SELECT :'second_replayed' AS second_replayed, :'third_replayed' AS third_replayed,
	substr(:'first_session_id', 16, 3) = substr(:'second_session_id', 16, 3)
		AND substr(:'first_session_id', 16, 3) = substr(:'third_session_id', 16, 3) AS same_slot;
SELECT amount, currency, provider, status, replayed FROM payflow.find('create-5');
SELECT amount, currency, status, active_session_id = :'third_session_id' AS active FROM payflow.orders WHERE order_id = 'create-5';

-- A6: an order that was paid takes none, whatever has become of the money
BEGIN;
SELECT session_id FROM payflow.create('create-6', 100, 'EUR') \gset
UPDATE payflow.payment_sessions SET status = 'completed', stage = 'none', next_action_at = NULL,
	authorized_amount = 100, captured_amount = 100 WHERE session_id = :'session_id';
UPDATE payflow.orders SET status = 'paid', active_session_id = NULL, paid_session_id = :'session_id' WHERE order_id = 'create-6';
SELECT paid, order_status, http_status FROM payflow.get(:'session_id');
\pset format unaligned
\t
SELECT pg_temp.try($$ SELECT payflow.create('create-6', 100, 'EUR') $$);
SELECT pg_temp.try($$ SELECT payflow.create('create-6', 1, 'USD') $$);
UPDATE payflow.payment_sessions SET refunded_amount = 100, suspense_amount = 5 WHERE session_id = :'session_id';
UPDATE payflow.orders SET status = 'refunded' WHERE order_id = 'create-6';
SELECT pg_temp.try($$ SELECT payflow.create('create-6', 100, 'EUR') $$);
\t
\pset format aligned
SELECT paid, order_status, http_status FROM payflow.get(:'session_id');
ROLLBACK;

-- money that nobody expected must be decided on first; a running session is not in its way
BEGIN;
SELECT session_id FROM payflow.create('create-7', 100, 'EUR') \gset
SELECT pg_temp.fail(:'session_id', 'failed', 100);
\pset format unaligned
\t
SELECT pg_temp.try($$ SELECT payflow.create('create-7', 100, 'EUR') $$);
\t
\pset format aligned
ROLLBACK;
BEGIN;
-- also where it came in another currency, until the discrepancy is resolved
SELECT session_id FROM payflow.create('create-7', 100, 'EUR') \gset
SELECT pg_temp.fail(:'session_id', 'failed');
INSERT INTO payflow.accounts (merchant, kind, currency, provider)
	VALUES ('default', 'provider', 'USD', 'sandbox'), ('default', 'suspense', 'USD', 'sandbox');
INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, debit_account, credit_account,
		amount, currency, event_at)
	SELECT 'unexpected_received', :'session_id', 'default', 'create-7',
		(SELECT account_id FROM payflow.accounts WHERE kind = 'provider' AND currency = 'USD' AND merchant = 'default'),
		(SELECT account_id FROM payflow.accounts WHERE kind = 'suspense' AND currency = 'USD' AND merchant = 'default'),
		100, 'USD', now();
INSERT INTO payflow.discrepancies (kind, session_id, amount, currency) VALUES ('amount_mismatch', :'session_id', 100, 'USD');
SELECT split_part(pg_temp.try($$ SELECT payflow.create('create-7', 100, 'EUR') $$), E'\n', 1);
UPDATE payflow.discrepancies SET status = 'resolved', resolved_at = now(), resolution = 'refund' WHERE session_id = :'session_id';
SELECT replayed, http_status FROM payflow.create('create-7', 100, 'EUR');
ROLLBACK;
BEGIN;
-- a discrepancy without money is in nobody's way
SELECT session_id FROM payflow.create('create-7', 100, 'EUR') \gset
SELECT pg_temp.fail(:'session_id', 'failed');
INSERT INTO payflow.discrepancies (kind, session_id) VALUES ('amount_mismatch', :'session_id');
SELECT replayed, http_status FROM payflow.create('create-7', 100, 'EUR');
ROLLBACK;

-- A9: no session without the application's commit
BEGIN;
SELECT replayed FROM payflow.create('create-8', 100, 'EUR');
ROLLBACK;
SELECT count(*) FROM payflow.find('create-8');
SELECT count(*) FROM payflow.orders WHERE order_id = 'create-8';
BEGIN;
SAVEPOINT s;
SELECT replayed FROM payflow.create('create-8', 100, 'EUR');
ROLLBACK TO s;
SELECT replayed FROM payflow.create('create-8', 101, 'EUR');
RELEASE s;
SELECT replayed FROM payflow.create('create-8', 101, 'EUR');
COMMIT;
SELECT amount, status, replayed FROM payflow.find('create-8');

-- A1: several in one statement, in one transaction, for a new and for a known order
SELECT array_agg(replayed ORDER BY i) AS replayed, count(DISTINCT session_id)
	FROM generate_series(1, 3) i, LATERAL payflow.create('create-' || (i * 0 + 9)::text, 100, 'EUR');
SELECT pg_temp.fail(session_id, 'failed') FROM payflow.find('create-9');
SELECT array_agg(replayed ORDER BY i) AS replayed, count(DISTINCT session_id)
	FROM generate_series(1, 3) i, LATERAL payflow.create('create-' || (i * 0 + 9)::text, 100, 'EUR');
SELECT (payflow.create('create-10', 100, 'EUR')).replayed, (payflow.create('create-10', 100, 'EUR')).replayed AS again;
DO $$
DECLARE
	first payflow.payment;
	second payflow.payment;
BEGIN
	first := payflow.create('create-11', 100, 'EUR');
	second := payflow.create('create-11', 100, 'EUR');
	RAISE INFO 'same %, replayed % %', first.session_id = second.session_id, first.replayed, second.replayed;
END
$$;

-- above READ COMMITTED, alone
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT replayed FROM payflow.create('create-12', 100, 'EUR');
SELECT replayed FROM payflow.create('create-12', 100, 'EUR');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT replayed FROM payflow.create('create-12', 100, 'EUR');
SELECT replayed FROM payflow.create('create-13', 100, 'EUR');
COMMIT;

-- a transaction that may only read can look
BEGIN READ ONLY;
SELECT replayed, http_status FROM payflow.create('create-13', 100, 'EUR');
SELECT replayed FROM payflow.create('create-14', 100, 'EUR');
ROLLBACK;

-- A2: around the API a second live session cannot be made
\set VERBOSITY terse
INSERT INTO payflow.payment_sessions (session_id, merchant, order_id, amount, currency, provider, next_action_at)
	SELECT gen_random_uuid(), merchant, order_id, amount, currency, 'sandbox', now() FROM payflow.orders WHERE order_id = 'create-13';
\set VERBOSITY default

-- a merchant that was disabled: what runs goes on, nothing new begins
UPDATE payflow.merchants SET enabled = false WHERE id = 'create_shop';
SELECT replayed, http_status FROM payflow.create('create-2', 77, 'EUR', merchant => 'create_shop');
SELECT split_part(pg_temp.try($$ SELECT payflow.create('create-15', 77, 'EUR', merchant => 'create_shop') $$), E'\n', 1);

-- the provider's server may go while payments run
DROP SERVER other;
SELECT provider, replayed, http_status FROM payflow.create('create-2', 77, 'EUR', merchant => 'create_shop');
UPDATE payflow.merchants SET enabled = true WHERE id = 'create_shop';
SELECT split_part(pg_temp.try($$ SELECT payflow.create('create-15', 77, 'EUR', merchant => 'create_shop') $$), E'\n', 1);

SELECT * FROM payflow.check_invariants();
