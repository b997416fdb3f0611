-- force_check(): D13, where nobody answers.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
RESET client_min_messages;
INSERT INTO payflow.merchants (id, default_provider) VALUES ('force_shop', 'sandbox');

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

-- who and why is journaled, whether there is an answer or not
SELECT session_id FROM payflow.create('force-1', 1000, 'EUR', merchant => 'force_shop') \gset
SELECT xmin AS version FROM payflow.payment_sessions WHERE session_id = :'session_id' \gset
SELECT status, replayed, http_status FROM payflow.force_check(:'session_id', 'the payer has called', '0');
SELECT status, replayed, http_status FROM payflow.force_check(session_id => :'session_id', reason => E'a "quoted" one\n', wait => '20 milliseconds');
SELECT source, event, from_status, to_status, actor = session_user AS by_me, detail FROM payflow.journal
	WHERE session_id = :'session_id' ORDER BY journal_id;
SELECT event, detail FROM payflow.timeline(:'session_id') WHERE event = 'force_check';
SELECT xmin = :'version' AS unchanged FROM payflow.payment_sessions WHERE session_id = :'session_id';

-- its own row does not keep it from waiting, also in a longer transaction
BEGIN;
SELECT http_status FROM payflow.force_check(:'session_id', 'first', '10 milliseconds');
SELECT http_status FROM payflow.force_check(:'session_id', 'second', '10 milliseconds');
ROLLBACK;
SELECT count(*) FROM payflow.journal WHERE session_id = :'session_id';

-- also a closed session
UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', next_action_at = NULL, failure_code = 'expired'
	WHERE session_id = :'session_id';
UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = :'session_id';
SELECT status, http_status FROM payflow.force_check(:'session_id', 'was it paid?', '10 milliseconds');

\pset format unaligned
\t
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.force_check(%L, %s)', :'session_id', a)) FROM unnest(ARRAY[
	'NULL', '''''', ''' ''', 'repeat(''x'', 501)', '''x'', NULL']) a;
SELECT pg_temp.try('SELECT payflow.force_check(NULL, ''x'')');
SELECT pg_temp.try($$ SELECT payflow.force_check('01900000-0000-7000-8000-000000000000', 'x') $$);
SELECT pg_temp.try($$ SELECT payflow.force_check('01900000-0000-7000-8000-000000000000', 'x', '0') $$);
\t
\pset format aligned
-- waiting: as check()
BEGIN;
SELECT session_id FROM payflow.create('force-2', 1000, 'EUR', merchant => 'force_shop') \gset
SELECT pg_temp.try(format('SELECT payflow.force_check(%L, ''x'')', :'session_id'));
SELECT http_status FROM payflow.force_check(:'session_id', 'x', '0');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.try(format('SELECT payflow.force_check(%L, ''x'')', :'session_id'));
SELECT http_status FROM payflow.force_check(:'session_id', 'x', '0');
COMMIT;
BEGIN READ ONLY;
SELECT payflow.force_check(:'session_id', 'x', '0');
ROLLBACK;
SELECT count(*) FROM payflow.journal WHERE session_id = :'session_id' AND event = 'force_check';
