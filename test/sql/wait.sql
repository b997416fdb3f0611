-- wait(), as far as one connection can show it: see also the isolation spec wait_change.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default';
RESET client_min_messages;

SELECT session_id FROM payflow.create('wait-1', 1000, 'EUR') \gset

-- in progress: until the timeout, then as it is
SELECT order_id, status, replayed, http_status FROM payflow.wait(:'session_id', '0');
SELECT order_id, status, replayed, http_status FROM payflow.wait(:'session_id', '20 milliseconds');
SELECT order_id, status, replayed, http_status FROM payflow.wait(:'session_id', '20 milliseconds', 'settled');
SELECT order_id, status, replayed, http_status FROM payflow.wait(:'session_id', '20 milliseconds', 'changed');
SELECT order_id, status, replayed, http_status
	FROM payflow.wait(session_id => :'session_id', until => 'final', timeout => '20 milliseconds');
-- below zero is zero
SELECT status FROM payflow.wait(:'session_id', '-1 hour');
SELECT status FROM payflow.wait(:'session_id', '-178000000 years');

-- settled: at once, however long the timeout
UPDATE payflow.payment_sessions SET status = 'registered', stage = 'form' WHERE session_id = :'session_id';
SELECT status, stage, http_status FROM payflow.wait(:'session_id');
SELECT status, stage, http_status FROM payflow.wait(:'session_id', '178000000 years');
SELECT status, stage, http_status FROM payflow.wait(:'session_id', '20 milliseconds', 'final');

-- longer than 60 seconds is 60 seconds; a query that is canceled leaves no sleep behind
SET statement_timeout = '50ms';
SELECT status FROM payflow.wait(:'session_id', '1 year', 'final');
DO $$
BEGIN
	PERFORM payflow.wait((SELECT session_id FROM payflow.find('wait-1')), '1 hour', 'changed');
EXCEPTION WHEN query_canceled THEN
	RAISE INFO 'canceled';
END
$$;
RESET statement_timeout;
SELECT status FROM payflow.wait(:'session_id', '10 milliseconds', 'changed');

-- final: at once
UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', next_action_at = NULL, failure_code = 'expired'
	WHERE session_id = :'session_id';
UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = :'session_id';
SELECT status, stage, http_status FROM payflow.wait(:'session_id', '1 minute', 'final');
SELECT status, stage, http_status FROM payflow.wait(:'session_id', '1 minute', 'settled');

-- nobody can change what the own transaction has written
SELECT payflow.wait(session_id) FROM payflow.create('wait-2', 1000, 'EUR');
SELECT count(*) FROM payflow.find('wait-2');
BEGIN;
SELECT session_id FROM payflow.create('wait-2', 1000, 'EUR') \gset
SAVEPOINT s;
SELECT payflow.wait(:'session_id');
ROLLBACK TO s;
COMMIT;
SELECT status FROM payflow.wait(:'session_id', '0');
BEGIN;
SAVEPOINT s;
UPDATE payflow.payment_sessions SET description = 'x' WHERE session_id = :'session_id';
RELEASE s;
SELECT payflow.wait(:'session_id', '0');
ROLLBACK;
-- what was rolled back does not count, nor does a replay
BEGIN;
SAVEPOINT s;
UPDATE payflow.payment_sessions SET description = 'x' WHERE session_id = :'session_id';
ROLLBACK TO s;
SELECT replayed FROM payflow.create('wait-2', 1000, 'EUR');
SELECT status, http_status FROM payflow.wait(:'session_id', '10 milliseconds');
COMMIT;

-- a snapshot that stands still would never see it
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT payflow.wait(:'session_id', '0');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT payflow.wait(:'session_id', '0');
ROLLBACK;
BEGIN READ ONLY;
SELECT status FROM payflow.wait(:'session_id', '0');
COMMIT;
