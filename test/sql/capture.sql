-- capture(): C20, C63, C70, and its idempotency keys.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
RESET client_min_messages;
INSERT INTO payflow.merchants (id, default_provider) VALUES ('capture_shop', 'sandbox'), ('capture_other', 'sandbox');

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
-- 100 are held, as a worker would leave it
CREATE FUNCTION pg_temp.authorized(order_id text, merchant text DEFAULT 'capture_shop', capture text DEFAULT 'manual') RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
	id uuid := (payflow.create(order_id, 100, 'EUR', merchant => merchant, capture => capture)).session_id;
BEGIN
	UPDATE payflow.payment_sessions s SET first_sent_at = now(), endpoint = 'http://127.0.0.1:1', status = 'authorized',
		stage = 'capture', next_action_at = now() + '1 day', provider_payment_id = 'pay_' || $1, authorized_amount = 100
		WHERE session_id = id;
	INSERT INTO payflow.provider_refs (provider, kind, ref, session_id) VALUES ('sandbox', 'payment', 'pay_' || order_id, id);
	RETURN id;
END
$$;

-- C63: within what is held
SELECT pg_temp.authorized('capture-1') AS id \gset
\pset format unaligned
\t
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.capture(%L, %s)', :'id', a)) FROM unnest(ARRAY[
	'101', '1000000000000000', '1000000000000001', '0', '-1', '-9223372036854775808']) a;
\t
\pset format aligned
SELECT count(*) FROM payflow.operations WHERE session_id = :'id';
SELECT status, stage, authorized_amount, captured_amount, replayed, http_status
	FROM payflow.capture(session_id => :'id', amount => 40, idempotency_key => 'k', receipt => '{"items": [{"name": "book"}]}');
SELECT kind, status, amount, currency, limit_amount, receipt, idempotency_key = operation_id::text AS own_key,
	next_action_at <= clock_timestamp() AS due FROM payflow.operations WHERE session_id = :'id';
-- the id carries the order's routing slot, as the session's does
SELECT substr(operation_id::text, 16, 3) = substr(session_id::text, 16, 3) AS same_slot, substr(operation_id::text, 15, 1) AS version
	FROM payflow.operations WHERE session_id = :'id';

-- C20: the same key gives it back, whatever else is asked for is refused
SELECT status, replayed, http_status FROM payflow.capture(:'id', 40, 'k');
SELECT status, replayed, http_status FROM payflow.capture(:'id', 40, 'k', '{"items": []}');
\pset format unaligned
\t
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.capture(%L, %s)', :'id', a)) FROM unnest(ARRAY[
	'40', 'NULL', '60', '40, ''k2''', '41, ''k''', 'NULL, ''k''']) a;
\t
\pset format aligned
-- also while its result is unknown
UPDATE payflow.operations SET status = 'sent', first_sent_at = now() WHERE session_id = :'id';
SELECT status, replayed, http_status FROM payflow.capture(:'id', 40, 'k');
UPDATE payflow.operations SET status = 'unknown' WHERE session_id = :'id';
SELECT status, replayed, http_status FROM payflow.capture(:'id', 40, 'k');
SELECT split_part(pg_temp.try(format('SELECT payflow.capture(%L, 40, ''k2'')', :'id')), E'\n', 1);
SELECT count(*) FROM payflow.operations WHERE session_id = :'id';
SELECT call, key, octet_length(request_hash), session_id = :'id' AS same_session,
	operation_id = (SELECT operation_id FROM payflow.operations WHERE session_id = :'id') AS same_operation
	FROM payflow.idempotency_keys WHERE merchant = 'capture_shop';

-- failed: another one may be asked for; the key still stands for the first
UPDATE payflow.operations SET status = 'failed', next_action_at = NULL, failure_code = 'refused' WHERE session_id = :'id';
SELECT status, replayed, http_status FROM payflow.capture(:'id', 40, 'k');
SELECT status, replayed, http_status FROM payflow.capture(:'id', NULL, 'k3');
SELECT status, amount FROM payflow.operations WHERE session_id = :'id' ORDER BY created_at;
SELECT status, replayed, http_status FROM payflow.capture(:'id', NULL, 'k3');

-- null is all
SELECT pg_temp.authorized('capture-2') AS id \gset
SELECT status, replayed, http_status FROM payflow.capture(:'id');
SELECT amount FROM payflow.operations WHERE session_id = :'id';

-- keys: the merchant's and the call's own, gone with what has raised or was rolled back
SELECT pg_temp.authorized('capture-3') AS id \gset
\pset format unaligned
\t
SELECT pg_temp.try(format('SELECT payflow.capture(%L, 40, ''k'')', :'id'));
SELECT pg_temp.try(format('SELECT payflow.capture(%L, 40, '''')', :'id'));
SELECT pg_temp.try(format('SELECT payflow.capture(%L, 40, repeat(''x'', 256))', :'id'));
SELECT pg_temp.try(format('SELECT payflow.capture(%L, 101, ''k4'')', :'id'));
\t
\pset format aligned
BEGIN;
SELECT replayed FROM payflow.capture(:'id', 40, 'k4');
SELECT replayed FROM payflow.capture(:'id', 40, 'k4');
ROLLBACK;
SELECT replayed FROM payflow.capture(:'id', 50, 'k4');
SELECT pg_temp.authorized('capture-4', 'capture_other') AS id \gset
SELECT replayed FROM payflow.capture(:'id', 40, 'k');
SELECT pg_temp.authorized('capture-5') AS id \gset
SELECT replayed FROM payflow.capture(:'id', 40, repeat('é', 127) || 'e');

-- C70: not in other states
\pset format unaligned
\t
SELECT pg_temp.authorized('capture-6') AS id \gset
SELECT status FROM payflow.cancel(:'id');
SELECT pg_temp.try(format('SELECT payflow.capture(%L)', :'id'));
-- a cancel after the capture was asked for
SELECT pg_temp.authorized('capture-7') AS id \gset
SELECT http_status FROM payflow.capture(:'id', 40, 'k7');
SELECT status, http_status FROM payflow.cancel(:'id');
SELECT pg_temp.try(format('SELECT payflow.capture(%L)', :'id'));
SELECT replayed, status, http_status FROM payflow.capture(:'id', 40, 'k7');
SELECT session_id AS id FROM payflow.create('capture-8', 100, 'EUR', merchant => 'capture_shop', capture => 'manual') \gset
SELECT pg_temp.try(format('SELECT payflow.capture(%L)', :'id'));
SELECT pg_temp.authorized('capture-9', capture => 'automatic') AS id \gset
SELECT pg_temp.try(format('SELECT payflow.capture(%L)', :'id'));
UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', next_action_at = NULL, failure_code = 'expired' WHERE session_id = :'id';
UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = :'id';
SELECT pg_temp.try(format('SELECT payflow.capture(%L)', :'id'));
SELECT pg_temp.try($$ SELECT payflow.capture('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.try('SELECT payflow.capture(NULL)');
SELECT pg_temp.try(format('SELECT payflow.capture(%L, receipt => ''[]'')', :'id'));
\t
\pset format aligned
BEGIN READ ONLY;
SELECT payflow.capture(:'id');
ROLLBACK;
SELECT * FROM payflow.check_invariants();
