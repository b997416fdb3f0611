-- refund(), get_refund(), wait_refund(): C7, C60, C61, C67, and refund()'s idempotency keys.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
RESET client_min_messages;
INSERT INTO payflow.merchants (id, default_provider) VALUES ('refund_shop', 'sandbox');

CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; word text; message text; hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, word = PG_EXCEPTION_DETAIL,
		message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN regexp_replace(concat_ws(E'\n', concat_ws(' ', state, NULLIF(word, '')), message, NULLIF(hint, '')),
		'[0-9a-f]{8}-[0-9a-f-]{27}', '<id>');
END
$$;
-- 100 were taken and booked, as a worker would leave it
CREATE FUNCTION pg_temp.paid(order_id text, amount bigint DEFAULT 100) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
	id uuid := (payflow.create(order_id, amount, 'EUR', merchant => 'refund_shop')).session_id;
	provider bigint; held bigint;
BEGIN
	UPDATE payflow.payment_sessions s SET first_sent_at = now(), endpoint = 'http://127.0.0.1:1', status = 'completed',
		stage = 'none', next_action_at = NULL, provider_payment_id = 'pay_' || $1, authorized_amount = s.amount,
		captured_amount = s.amount WHERE session_id = id;
	UPDATE payflow.orders SET status = 'paid', paid_session_id = id, active_session_id = NULL WHERE active_session_id = id;
	INSERT INTO payflow.provider_refs (provider, kind, ref, session_id) VALUES ('sandbox', 'payment', 'pay_' || order_id, id);
	INSERT INTO payflow.accounts (merchant, kind, currency, provider)
		VALUES ('refund_shop', 'provider', 'EUR', 'sandbox'), ('refund_shop', 'held', 'EUR', '') ON CONFLICT DO NOTHING;
	UPDATE payflow.accounts SET balance = balance + $2 WHERE merchant = 'refund_shop' AND currency = 'EUR' AND kind IN ('provider', 'held');
	SELECT account_id FROM payflow.accounts WHERE merchant = 'refund_shop' AND currency = 'EUR' AND kind = 'provider' INTO provider;
	SELECT account_id FROM payflow.accounts WHERE merchant = 'refund_shop' AND currency = 'EUR' AND kind = 'held' INTO held;
	INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, debit_account, credit_account, amount, currency, event_at)
		VALUES ('payment_received', id, 'refund_shop', $1, provider, held, $2, 'EUR', now());
	RETURN id;
END
$$;
CREATE FUNCTION pg_temp.short(statement text) RETURNS text LANGUAGE sql AS $$
	SELECT split_part(pg_temp.try(statement), E'\n', 1);
$$;
-- what a worker makes of a refund
CREATE FUNCTION pg_temp.settle(id uuid, to_status text, why text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
	UPDATE payflow.operations SET status = to_status, failure_code = why, updated_at = clock_timestamp(),
		first_sent_at = CASE WHEN to_status = 'pending' THEN NULL ELSE now() END,
		next_action_at = CASE WHEN to_status IN ('succeeded', 'failed') THEN NULL ELSE now() + '1 day' END WHERE operation_id = id;
$$;

-- a part of it
SELECT pg_temp.paid('refund-1') AS id \gset
SELECT paid, order_status, refundable_amount FROM payflow.get(:'id');
SELECT refund_id, session_id = :'id' AS same_session, amount, currency, status, provider_refund_id, failure_code, replayed, http_status,
	created_at = updated_at AS new FROM payflow.refund(session_id => :'id', amount => 30, reason => 'one book was torn',
	receipt => '{"items": []}', idempotency_key => NULL) \gset r_
\echo :r_same_session :r_amount :r_currency :r_status :r_replayed :r_http_status :r_new
SELECT kind, status, source, amount, currency, limit_amount, reason, receipt, idempotency_key = operation_id::text AS own_key,
	next_action_at <= clock_timestamp() AS due FROM payflow.operations WHERE operation_id = :'r_refund_id';
SELECT substr(:'r_refund_id', 16, 3) = substr(:'id', 16, 3) AS same_slot;
SELECT status, paid, order_status, captured_amount, refunded_amount, refundable_amount FROM payflow.get(:'id');
SELECT event, from_status, to_status FROM payflow.timeline(:'id');

-- its states
SELECT status, http_status FROM payflow.get_refund(:'r_refund_id');
SELECT pg_temp.settle(:'r_refund_id', 'sent');
SELECT status, replayed, http_status FROM payflow.get_refund(refund_id => :'r_refund_id');
SELECT status, http_status FROM payflow.wait_refund(:'r_refund_id', '10 milliseconds');
SELECT status, http_status FROM payflow.wait_refund(:'r_refund_id', '-1 day');
SELECT pg_temp.settle(:'r_refund_id', 'unknown');
SELECT status, http_status FROM payflow.get_refund(:'r_refund_id');
SELECT status, replayed, http_status, clock_timestamp() - statement_timestamp() < '50 seconds' AS at_once
	FROM payflow.wait_refund(refund_id => :'r_refund_id', timeout => '1 year');
SELECT refundable_amount FROM payflow.get(:'id');
SELECT pg_temp.settle(:'r_refund_id', 'failed', 'refused');
SELECT status, failure_code, http_status FROM payflow.wait_refund(:'r_refund_id', '1 minute');
SELECT paid, refundable_amount FROM payflow.get(:'id');

-- C60: never more than what is left
SELECT amount, status, replayed FROM payflow.refund(:'id', 60);
\pset format unaligned
\t
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.refund(%L, %s)', :'id', a)) FROM unnest(ARRAY[
	'60', '41', '1000000000000000', '1000000000000001', '0', '-1', '-9223372036854775808']) a;
\t
\pset format aligned
SELECT amount, status, replayed FROM payflow.refund(:'id', 40);
SELECT refundable_amount, order_status FROM payflow.get(:'id');
\pset format unaligned
\t
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.refund(%L, %s)', :'id', a)) FROM unnest(ARRAY['1', 'NULL']) a;
\t
\pset format aligned
SELECT amount, status, source, limit_amount FROM payflow.operations WHERE session_id = :'id' ORDER BY created_at;

-- null is all that is left
SELECT pg_temp.paid('refund-2') AS id \gset
SELECT amount, replayed FROM payflow.refund(:'id', 1);
SELECT amount, replayed FROM payflow.refund(:'id');

-- the same again in one transaction is the same refund, later it is another
SELECT pg_temp.paid('refund-3') AS id \gset
BEGIN;
SELECT refund_id AS first FROM payflow.refund(:'id', 10) \gset
SELECT refund_id = :'first' AS same, amount, replayed, http_status FROM payflow.refund(:'id', 10, reason => 'again');
SELECT refund_id = :'first' AS same, amount, replayed FROM payflow.refund(:'id', 20);
SELECT refund_id = :'first' AS same, amount, replayed FROM payflow.refund(:'id', 10);
-- not that of a key, and a key's is its own
SELECT refund_id = :'first' AS same, amount, replayed FROM payflow.refund(:'id', 10, 'refund-3');
SELECT amount, replayed FROM payflow.refund(:'id', 15, 'refund-3-15');
SELECT amount, replayed FROM payflow.refund(:'id', 15);
SAVEPOINT s;
SELECT amount, replayed FROM payflow.refund(:'id', 5);
ROLLBACK TO s;
SELECT amount, replayed FROM payflow.refund(:'id', 5);
COMMIT;
SELECT amount, replayed FROM payflow.refund(:'id', 10);
SELECT amount FROM payflow.refunds WHERE session_id = :'id' ORDER BY amount;
-- all that is left, twice
SELECT pg_temp.paid('refund-4') AS id \gset
BEGIN;
SELECT amount, replayed FROM payflow.refund(:'id', 60);
SELECT amount, replayed FROM payflow.refund(:'id');
SELECT amount, replayed FROM payflow.refund(:'id');
SELECT amount, replayed FROM payflow.refund(:'id', 40);
SELECT amount, replayed FROM payflow.refund(:'id', 60);
COMMIT;
SELECT pg_temp.short(format('SELECT payflow.refund(%L)', :'id'));
SELECT count(*), sum(amount) FROM payflow.refunds WHERE session_id = :'id';

-- keys
SELECT pg_temp.paid('refund-5') AS id \gset
SELECT refund_id, amount, replayed, http_status FROM payflow.refund(:'id', 10, 'refund-5') \gset r_
SELECT refund_id = :'r_refund_id' AS same, replayed, status, http_status FROM payflow.refund(:'id', 10, 'refund-5', 'other words');
SELECT amount, replayed FROM payflow.refund(:'id', 10, 'refund-5-2');
SELECT amount, replayed FROM payflow.refund(:'id', NULL, 'refund-5-3');
SELECT amount, replayed FROM payflow.refund(:'id', NULL, 'refund-5-3');
SELECT pg_temp.settle(:'r_refund_id', 'failed', 'refused');
SELECT refund_id = :'r_refund_id' AS same, status, failure_code, replayed, http_status FROM payflow.refund(:'id', 10, 'refund-5');
\pset format unaligned
\t
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.refund(%L, %s)', :'id', a)) FROM unnest(ARRAY[
	'11, ''refund-5''', 'NULL, ''refund-5''', '80, ''refund-5-3''', '1, ''''', '1, repeat(''x'', 256)']) a;
SELECT pg_temp.paid('refund-6') AS id \gset
SELECT pg_temp.try(format('SELECT payflow.refund(%L, 10, ''refund-5'')', :'id'));
\t
\pset format aligned
-- a capture's key is another one
SELECT call, key FROM payflow.idempotency_keys WHERE merchant = 'refund_shop' ORDER BY key;

-- what was refused in a subtransaction leaves no key behind
SELECT pg_temp.short(format('SELECT payflow.refund(%L, 101, ''refund-6'')', :'id'));
SELECT amount, replayed FROM payflow.refund(:'id', 100, 'refund-6');

-- nothing to give back
\pset format unaligned
\t
SELECT session_id AS id FROM payflow.create('refund-7', 100, 'EUR', merchant => 'refund_shop') \gset
SELECT pg_temp.try(format('SELECT payflow.refund(%L)', :'id'));
UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', next_action_at = NULL, failure_code = 'declined' WHERE session_id = :'id';
UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = :'id';
SELECT pg_temp.try(format('SELECT payflow.refund(%L, 1)', :'id'));
-- C67: a dispute counts
SELECT pg_temp.paid('refund-8') AS id \gset
UPDATE payflow.payment_sessions SET disputed_amount = 100 WHERE session_id = :'id';
SELECT paid FROM payflow.get(:'id');
SELECT pg_temp.try(format('SELECT payflow.refund(%L, 1)', :'id'));
UPDATE payflow.payment_sessions SET disputed_amount = 0 WHERE session_id = :'id';
SELECT pg_temp.try(format('SELECT payflow.refund(%L, 1)', :'id'));
-- paid: not when the capture failed after all, nor when a cancel has lost
BEGIN;
UPDATE payflow.payment_sessions SET reversed_amount = 1 WHERE session_id = :'id';
SELECT paid FROM payflow.get(:'id');
UPDATE payflow.payment_sessions SET reversed_amount = 0, cancel_lost = true WHERE session_id = :'id';
SELECT paid FROM payflow.get(:'id');
UPDATE payflow.payment_sessions SET cancel_lost = false, refunded_amount = 99 WHERE session_id = :'id';
SELECT paid FROM payflow.get(:'id');
UPDATE payflow.payment_sessions SET disputed_amount = 9223372036854775807 WHERE session_id = :'id';
SELECT paid FROM payflow.get(:'id');
ROLLBACK;

-- arguments
SELECT pg_temp.try($$ SELECT payflow.refund('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.try('SELECT payflow.refund(NULL)');
SELECT pg_temp.try(format('SELECT payflow.refund(%L, reason => repeat(''x'', 501))', :'id'));
SELECT pg_temp.try(format('SELECT payflow.refund(%L, receipt => ''1'')', :'id'));
SELECT pg_temp.try($$ SELECT payflow.get_refund('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.try('SELECT payflow.get_refund(NULL)');
SELECT pg_temp.try($$ SELECT payflow.wait_refund('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.try('SELECT payflow.wait_refund(NULL)');
SELECT pg_temp.try(format('SELECT payflow.wait_refund(%L, NULL)', :'r_refund_id'));
-- an operation that is no refund, a session
SELECT session_id AS id FROM payflow.create('refund-9', 100, 'EUR', merchant => 'refund_shop') \gset
UPDATE payflow.payment_sessions SET status = 'registered', stage = 'form' WHERE session_id = :'id';
SELECT status FROM payflow.cancel(:'id');
SELECT pg_temp.try(format('SELECT payflow.get_refund(%L)', operation_id)), pg_temp.short(format('SELECT payflow.wait_refund(%L)', operation_id))
	FROM payflow.operations WHERE session_id = :'id';
SELECT pg_temp.short(format('SELECT payflow.get_refund(%L)', :'id'));
\t
\pset format aligned

-- waiting in the transaction that asked for it, or above READ COMMITTED
SELECT pg_temp.paid('refund-10') AS id \gset
BEGIN;
SELECT refund_id FROM payflow.refund(:'id', 10) \gset
SELECT pg_temp.try(format('SELECT payflow.wait_refund(%L)', :'refund_id'));
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.try(format('SELECT payflow.wait_refund(%L)', :'refund_id'));
SELECT status FROM payflow.get_refund(:'refund_id');
ROLLBACK;
SET statement_timeout = '50ms';
SELECT payflow.wait_refund(:'refund_id', '1 minute');
RESET statement_timeout;
SELECT status FROM payflow.wait_refund(:'refund_id', '10 milliseconds');
BEGIN READ ONLY;
SELECT status FROM payflow.get_refund(:'refund_id');
SELECT status FROM payflow.wait_refund(:'refund_id', '0');
SELECT payflow.refund(:'id', 10);
ROLLBACK;

-- the table's own limits, for those who write around the calls
CREATE FUNCTION pg_temp.refund_around(id uuid, amount bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name text;
BEGIN
	INSERT INTO payflow.operations (operation_id, session_id, merchant, order_id, provider, kind, amount, currency, source, idempotency_key,
			next_action_at)
		SELECT gen_random_uuid(), s.session_id, s.merchant, s.order_id, s.provider, 'refund', $2, 'EUR', 'receipt', 'x', now()
		FROM payflow.payment_sessions s WHERE s.session_id = id;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME;
	RETURN SQLSTATE || ' ' || name;
END
$$;
SELECT a, pg_temp.refund_around(:'id', a) FROM unnest(ARRAY[91, 0, -1]) a;
SELECT * FROM payflow.check_invariants();
