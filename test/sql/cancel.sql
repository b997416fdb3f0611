-- issue_cancel_code() and cancel(): C1, C2, C3, C5, C38, C72.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
RESET client_min_messages;
INSERT INTO payflow.merchants (id, default_provider, cancel_requires_code)
	VALUES ('cancel_free', 'sandbox', false), ('cancel_code', 'sandbox', true);

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
-- a session as a worker would leave it
CREATE FUNCTION pg_temp.session(merchant text, order_id text, to_status text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
	id uuid := (payflow.create(order_id, 1000, 'EUR', merchant => merchant, capture => 'manual')).session_id;
BEGIN
	IF to_status = 'registering' THEN
		RETURN id;
	END IF;
	UPDATE payflow.payment_sessions s SET first_sent_at = now(), endpoint = 'http://127.0.0.1:1', status = to_status,
		provider_payment_id = CASE WHEN to_status IN ('registered', 'authorized', 'completed') THEN 'pay_' || $2 END,
		stage = CASE to_status WHEN 'registered' THEN 'form' WHEN 'authorized' THEN 'capture' WHEN 'unknown' THEN 'register' ELSE 'none' END,
		next_action_at = CASE WHEN to_status IN ('completed', 'failed', 'canceled') THEN NULL ELSE now() + '1 day' END,
		authorized_amount = CASE WHEN to_status IN ('authorized', 'completed') THEN 1000 ELSE 0 END,
		captured_amount = CASE WHEN to_status = 'completed' THEN 1000 ELSE 0 END,
		failure_code = CASE WHEN to_status = 'failed' THEN 'declined' END
		WHERE session_id = id;
	INSERT INTO payflow.provider_refs (provider, kind, ref, session_id) SELECT provider, 'payment', provider_payment_id, session_id
		FROM payflow.payment_sessions WHERE session_id = id AND provider_payment_id IS NOT NULL;
	UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = id AND to_status IN ('completed', 'failed', 'canceled');
	RETURN id;
END
$$;
-- another code than the right one
CREATE FUNCTION pg_temp.wrong(code text, i int DEFAULT 1) RETURNS text LANGUAGE sql AS $$
	SELECT lpad(((code::int + i) % 1000000)::text, 6, '0');
$$;

-- C5: never sent, so it ends here
SELECT pg_temp.session('cancel_free', 'cancel-1', 'registering') AS id \gset
SELECT status, stage, paid, failure_code, next_action_at, replayed, http_status FROM payflow.cancel(:'id', reason => 'changed my mind');
SELECT status, replayed, http_status FROM payflow.cancel(session_id => :'id', code => 'whatever', reason => NULL);
SELECT kind, status FROM payflow.operations WHERE session_id = :'id';
SELECT active_session_id FROM payflow.orders WHERE merchant = 'cancel_free' AND order_id = 'cancel-1';

-- it may be on its way: what is being canceled must be known first
SELECT pg_temp.session('cancel_free', 'cancel-2', 'unknown') AS id \gset
SELECT status, stage, replayed, http_status FROM payflow.cancel(:'id');
SELECT kind, status, next_action_at FROM payflow.operations WHERE session_id = :'id';
SELECT pg_temp.session('cancel_free', 'cancel-3', 'registering') AS id \gset
UPDATE payflow.payment_sessions SET first_sent_at = now() WHERE session_id = :'id';
SELECT status, stage, replayed, http_status FROM payflow.cancel(:'id');

-- known: a reverse is due, one, with the reason
SELECT pg_temp.session('cancel_free', 'cancel-4', 'registered') AS id \gset
SELECT status, stage, replayed, http_status FROM payflow.cancel(:'id', reason => 'double click');
SELECT kind, status, reason, next_action_at <= clock_timestamp() AS due FROM payflow.operations WHERE session_id = :'id';
-- C2: again
SELECT xmin AS version FROM payflow.payment_sessions WHERE session_id = :'id' \gset
SELECT status, stage, replayed, http_status FROM payflow.cancel(:'id');
SELECT count(*) FROM payflow.operations WHERE session_id = :'id';
SELECT xmin = :'version' AS unchanged FROM payflow.payment_sessions WHERE session_id = :'id';
SELECT pg_temp.session('cancel_free', 'cancel-5', 'authorized') AS id \gset
SELECT status, stage, replayed, http_status FROM payflow.cancel(:'id');
SELECT event, from_status, to_status FROM payflow.timeline(:'id');

-- C38: what has ended is not canceled
\pset format unaligned
\t
SELECT pg_temp.session('cancel_free', 'cancel-6', 'failed') AS failed \gset
SELECT pg_temp.try(format('SELECT payflow.cancel(%L)', :'failed'));
SELECT pg_temp.try(format('SELECT payflow.issue_cancel_code(%L)', :'failed'));
BEGIN;
SELECT pg_temp.session('cancel_free', 'cancel-7', 'completed') AS completed \gset
SELECT pg_temp.try(format('SELECT payflow.cancel(%L, ''000000'')', :'completed'));
SELECT pg_temp.try(format('SELECT payflow.issue_cancel_code(%L)', :'completed'));
ROLLBACK;
SELECT pg_temp.try(format('SELECT payflow.issue_cancel_code(%L)', :'id'));
SELECT pg_temp.try($$ SELECT payflow.cancel('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.try($$ SELECT payflow.issue_cancel_code('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.try(format('SELECT payflow.cancel(%L, reason => repeat(''x'', 501))', :'id'));
\t
\pset format aligned

-- C3: the code
SELECT pg_temp.session('cancel_code', 'cancel-10', 'registered') AS id \gset
SELECT status, replayed, http_status FROM payflow.cancel(:'id');
SELECT status, replayed, http_status FROM payflow.cancel(:'id', '123456');
SELECT payflow.issue_cancel_code(:'id') AS code \gset
SELECT :'code' ~ '^[0-9]{6}$' AS six_digits;
SELECT octet_length(salt), octet_length(code_hash), failures, used_at,
	code_hash = sha256(salt || convert_to(:'code', 'UTF8')) AS hashed,
	expires_at - issued_at AS ttl, issued_at <= clock_timestamp() AS issued FROM payflow.cancel_codes WHERE session_id = :'id';
SELECT event, from_status, to_status, detail - 'operations' AS detail FROM payflow.timeline(:'id') WHERE event <> 'create';
-- none is no guess
SELECT status, replayed, http_status FROM payflow.cancel(:'id');
SELECT failures FROM payflow.cancel_codes WHERE session_id = :'id';
-- wrong ones are counted where the caller commits
SELECT status, replayed, http_status FROM payflow.cancel(:'id', pg_temp.wrong(:'code'));
SELECT status, replayed, http_status FROM payflow.cancel(:'id', '');
SELECT status, replayed, http_status FROM payflow.cancel(:'id', :'code' || ' ');
BEGIN;
SELECT status, replayed, http_status FROM payflow.cancel(:'id', pg_temp.wrong(:'code'));
SELECT failures FROM payflow.cancel_codes WHERE session_id = :'id';
ROLLBACK;
SELECT failures FROM payflow.cancel_codes WHERE session_id = :'id';
-- the right one, once
SELECT status, stage, replayed, http_status FROM payflow.cancel(:'id', :'code');
SELECT failures, used_at IS NOT NULL AS used FROM payflow.cancel_codes WHERE session_id = :'id';
SELECT status, replayed, http_status FROM payflow.cancel(:'id', :'code');
SELECT kind, status FROM payflow.operations WHERE session_id = :'id';
SELECT event, from_status, to_status, detail - 'operations' AS detail FROM payflow.timeline(:'id') WHERE event <> 'create';

-- dead after five wrong ones; a new one begins anew, and kills the older
SELECT pg_temp.session('cancel_code', 'cancel-11', 'authorized') AS id \gset
SELECT payflow.issue_cancel_code(:'id', ttl => '1 day', digits => 6) AS code \gset
SELECT http_status FROM generate_series(1, 6) i, payflow.cancel(:'id', pg_temp.wrong(:'code', i));
SELECT failures FROM payflow.cancel_codes WHERE session_id = :'id';
SELECT status, http_status FROM payflow.cancel(:'id', :'code');
SELECT failures, used_at FROM payflow.cancel_codes WHERE session_id = :'id';
SELECT count(*) FROM payflow.timeline(:'id') WHERE event = 'cancel_code_wrong';
SELECT payflow.issue_cancel_code(:'id') AS second \gset
SELECT failures, used_at FROM payflow.cancel_codes WHERE session_id = :'id';
SELECT payflow.issue_cancel_code(:'id', digits => 12) AS third \gset
SELECT http_status FROM payflow.cancel(:'id', :'second');
SELECT status, http_status FROM payflow.cancel(:'id', :'third');

-- expired, used
SELECT pg_temp.session('cancel_code', 'cancel-12', 'registered') AS id \gset
SELECT payflow.issue_cancel_code(:'id') AS code \gset
UPDATE payflow.cancel_codes SET expires_at = now() WHERE session_id = :'id';
SELECT http_status FROM payflow.cancel(:'id', :'code');
SELECT http_status FROM payflow.cancel(:'id', pg_temp.wrong(:'code'));
UPDATE payflow.cancel_codes SET expires_at = now() + '1 day', used_at = now() WHERE session_id = :'id';
SELECT status, http_status FROM payflow.cancel(:'id', :'code');
SELECT failures FROM payflow.cancel_codes WHERE session_id = :'id';

-- what fails after the code was used gives it back
UPDATE payflow.cancel_codes SET used_at = NULL WHERE session_id = :'id';
BEGIN;
SELECT status, http_status FROM payflow.cancel(:'id', :'code');
ROLLBACK;
SELECT used_at FROM payflow.cancel_codes WHERE session_id = :'id';
SELECT status, http_status FROM payflow.cancel(:'id', :'code');

-- where none is required, one that is given must be right all the same
SELECT pg_temp.session('cancel_free', 'cancel-13', 'registered') AS id \gset
SELECT status, http_status FROM payflow.cancel(:'id', '123456');
SELECT payflow.issue_cancel_code(:'id', '1 minute', 4) AS code \gset
SELECT length(:'code');
SELECT status, http_status FROM payflow.cancel(:'id', :'code' || '1');
SELECT status, http_status FROM payflow.cancel(:'id', :'code');

-- codes are spread evenly, leading zeros kept
SELECT pg_temp.session('cancel_free', 'cancel-14', 'registered') AS id \gset
CREATE TEMP TABLE codes AS SELECT payflow.issue_cancel_code(:'id', digits => 12) AS code FROM generate_series(1, 500);
SELECT min(length(code)), max(length(code)), count(DISTINCT code) FROM codes;
SELECT digit, n BETWEEN 450 AND 750 AS even FROM (
	SELECT digit, count(*) AS n FROM codes, regexp_split_to_table(code, '') digit GROUP BY digit) d ORDER BY digit;
SELECT count(*) FROM payflow.cancel_codes WHERE session_id = :'id';
DROP TABLE codes;

\pset format unaligned
\t
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.issue_cancel_code(%L, %s)', :'id', a)) FROM unnest(ARRAY[
	'''0''', '''-1 second''', '''25 hours''', '''1 day 1 microsecond''', '''1 month''', 'NULL', 'digits => 3', 'digits => 13', 'digits => -1', 'digits => NULL']) a;
SELECT pg_temp.try('SELECT payflow.issue_cancel_code(NULL)');
SELECT pg_temp.try('SELECT payflow.cancel(NULL)');
\t
\pset format aligned

BEGIN READ ONLY;
SELECT payflow.issue_cancel_code(:'id');
ROLLBACK;
BEGIN READ ONLY;
SELECT payflow.cancel(:'id');
ROLLBACK;

-- the server's being dropped does not keep anybody from canceling
CREATE SERVER cancel_gone FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
UPDATE payflow.merchants SET default_provider = 'cancel_gone' WHERE id = 'cancel_free';
SELECT pg_temp.session('cancel_free', 'cancel-15', 'registered') AS id \gset
DROP SERVER cancel_gone;
SELECT status, stage, http_status FROM payflow.cancel(:'id');
SELECT * FROM payflow.check_invariants();
