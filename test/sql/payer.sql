-- payer_redirected(): D4, the return timer.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
RESET client_min_messages;
CREATE SERVER payer FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1', return_timeout '2 hours');
INSERT INTO payflow.merchants (id, default_provider) VALUES ('payer_shop', 'payer');
INSERT INTO payflow.merchants (id, default_provider, return_timeout) VALUES ('payer_quick', 'payer', '5 minutes');

-- not registered yet: nobody can have been sent away
SELECT session_id FROM payflow.create('payer-1', 1000, 'EUR', merchant => 'payer_shop') \gset
SELECT xmin AS version FROM payflow.payment_sessions WHERE session_id = :'session_id' \gset
SELECT status, stage, replayed, http_status FROM payflow.payer_redirected(:'session_id');
SELECT xmin = :'version' AS unchanged, redirected_at FROM payflow.payment_sessions WHERE session_id = :'session_id';

-- registered: the stage is return, its timer runs, by the server's option
UPDATE payflow.payment_sessions SET status = 'registered', stage = 'form', next_action_at = now() + '1 day',
	expires_at = now() + '1 day' WHERE session_id = :'session_id';
BEGIN;
SELECT status, stage, replayed, http_status, expires_at - now() BETWEEN '2 hours' AND '2 hours 1 minute' AS timer,
	next_action_at <= expires_at AS alarm FROM payflow.payer_redirected(session_id => :'session_id');
COMMIT;
SELECT redirected_at = updated_at AS redirected FROM payflow.payment_sessions WHERE session_id = :'session_id';
-- again: the timer that runs
SELECT xmin AS version FROM payflow.payment_sessions WHERE session_id = :'session_id' \gset
SELECT status, stage, replayed, http_status FROM payflow.payer_redirected(:'session_id');
SELECT xmin = :'version' AS unchanged FROM payflow.payment_sessions WHERE session_id = :'session_id';
SELECT event, from_status, to_status FROM payflow.timeline(:'session_id');

-- a merchant's setting comes before the server's
SELECT session_id FROM payflow.create('payer-1', 1000, 'EUR', merchant => 'payer_quick') \gset
UPDATE payflow.payment_sessions SET status = 'registered', stage = 'form', next_action_at = now() + '1 day'
	WHERE session_id = :'session_id';
BEGIN;
SELECT stage, replayed, expires_at - now() BETWEEN '5 minutes' AND '6 minutes' AS timer
	FROM payflow.payer_redirected(:'session_id');
ROLLBACK;

-- the server's being dropped does not hold up the payer
DROP SERVER payer;
SELECT stage, replayed, redirect_url FROM payflow.payer_redirected(:'session_id');
SELECT session_id FROM payflow.find('payer-1', 'payer_shop') \gset
SELECT stage, replayed FROM payflow.payer_redirected(:'session_id');

-- a final session stays as it is
UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', next_action_at = NULL, expires_at = NULL,
	failure_code = 'expired' WHERE session_id = :'session_id';
UPDATE payflow.orders SET active_session_id = NULL WHERE active_session_id = :'session_id';
SELECT status, stage, replayed, http_status FROM payflow.payer_redirected(:'session_id');

BEGIN READ ONLY;
SELECT payflow.payer_redirected(:'session_id');
ROLLBACK;
SELECT * FROM payflow.check_invariants();
