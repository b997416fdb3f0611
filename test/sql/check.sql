-- check() and payer_returned() where nobody answers.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default';
RESET client_min_messages;

SELECT session_id FROM payflow.create('check-1', 1000, 'EUR') \gset
SELECT xmin AS version FROM payflow.payment_sessions WHERE session_id = :'session_id' \gset

-- the row as it is, at once or at the end of the time
SELECT order_id, status, replayed, http_status FROM payflow.check(:'session_id');
SELECT order_id, status, replayed, http_status FROM payflow.check(session_id => :'session_id', wait => '0');
SELECT order_id, status, replayed, http_status FROM payflow.check(:'session_id', '20 milliseconds');
SELECT order_id, status, replayed, http_status FROM payflow.check(:'session_id', '-1 day');
SELECT order_id, status, replayed, http_status FROM payflow.payer_returned(:'session_id');
SELECT order_id, status, replayed, http_status FROM payflow.payer_returned(:'session_id', '{"token": "t"}');
SELECT order_id, status, replayed, http_status
	FROM payflow.payer_returned(session_id => :'session_id', params => '{}', wait => '20 milliseconds');

-- nothing was written
SELECT xmin = :'version' AS unchanged, returned_at, return_params FROM payflow.payment_sessions WHERE session_id = :'session_id';
BEGIN READ ONLY;
SELECT status, http_status FROM payflow.check(:'session_id');
SELECT status, http_status FROM payflow.payer_returned(:'session_id');
COMMIT;

-- in any status, also a final one
UPDATE payflow.payment_sessions SET status = 'registered', stage = 'form' WHERE session_id = :'session_id';
SELECT status, http_status FROM payflow.check(:'session_id');
SELECT status, http_status FROM payflow.check(:'session_id', '10 milliseconds');
UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', next_action_at = NULL, failure_code = 'expired'
	WHERE session_id = :'session_id';
UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = :'session_id';
SELECT status, http_status FROM payflow.check(:'session_id');
SELECT status, http_status FROM payflow.payer_returned(:'session_id', NULL, '10 milliseconds');

-- in the transaction that created it only without waiting
BEGIN;
SELECT session_id FROM payflow.create('check-2', 1000, 'EUR') \gset
SELECT status, http_status FROM payflow.check(:'session_id');
SELECT status, http_status FROM payflow.payer_returned(:'session_id');
SAVEPOINT s;
SELECT payflow.check(:'session_id', '1 second');
ROLLBACK TO s;
SELECT payflow.payer_returned(:'session_id', wait => '1 second');
ROLLBACK TO s;
COMMIT;

-- above READ COMMITTED the same
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT status, http_status FROM payflow.check(:'session_id');
SAVEPOINT s;
SELECT payflow.check(:'session_id', '1 second');
ROLLBACK TO s;
SELECT payflow.payer_returned(:'session_id', '{}', '1 second');
ROLLBACK;

-- a wait that is canceled leaves no sleep behind
SET statement_timeout = '50ms';
SELECT payflow.check(:'session_id', '1 year');
RESET statement_timeout;
SELECT status, http_status FROM payflow.check(:'session_id', '10 milliseconds');
