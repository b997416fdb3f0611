-- Privileges: EXECUTE decides who may call, USAGE of the caller who may create
-- with a provider; the tables are nobody's but the owner's.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default';
RESET client_min_messages;
CREATE SERVER "Free one" FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
CREATE ROLE regress_payflow_app;
CREATE ROLE regress_payflow_none;
CREATE SCHEMA privileges;
GRANT USAGE ON SCHEMA privileges TO PUBLIC;

CREATE FUNCTION privileges.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
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
\pset format unaligned
\t

SELECT session_id FROM payflow.create('privileges-1', 100, 'EUR') \gset

-- nothing is PUBLIC's
SET ROLE regress_payflow_none;
SELECT privileges.try($$ SELECT payflow.create('privileges-2', 100, 'EUR') $$);
RESET ROLE;
GRANT USAGE ON SCHEMA payflow TO regress_payflow_none, regress_payflow_app;
SET ROLE regress_payflow_none;
SELECT privileges.try($$ SELECT payflow.create('privileges-2', 100, 'EUR') $$);
SELECT privileges.try($$ SELECT payflow.create(2, 100, 'EUR') $$);
SELECT privileges.try($$ SELECT payflow.create('0b5c6a4e-51f9-4c41-a7c2-70a8c8d1c005'::uuid, 100, 'EUR') $$);
SELECT privileges.try(format('SELECT payflow.get(%L)', :'session_id'));
SELECT privileges.try($$ SELECT payflow.find('privileges-1') $$);
SELECT privileges.try(format('SELECT payflow.wait(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.check(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.payer_redirected(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.payer_returned(%L)', :'session_id'));
SELECT privileges.try($$ SELECT payflow.lock_order('privileges-1') $$);
SELECT privileges.try(format('SELECT payflow.capture(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.issue_cancel_code(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.cancel(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.refund(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.get_refund(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.wait_refund(%L)', :'session_id'));
SELECT privileges.try(format('SELECT payflow.force_check(%L, ''x'')', :'session_id'));
SELECT privileges.try(format('SELECT payflow.settle_refund(%L, ''failed'', ''x'')', :'session_id'));
SELECT privileges.try(format('SELECT payflow.retry_now(''refund'', %L, ''x'')', :'session_id'));
SELECT privileges.try($$ SELECT payflow.resolve_discrepancy(1, 'refund', 'x') $$);
SELECT privileges.try($$ SELECT payflow.acknowledge_alert(1, 'x') $$);
SELECT privileges.try($$ SELECT FROM payflow.payment_sessions $$);
SELECT privileges.try($$ SELECT FROM payflow.cancel_codes $$);
SELECT privileges.try($$ SELECT FROM payflow.refunds $$);
RESET ROLE;

-- EXECUTE is enough for what exists; the tables stay closed
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA payflow TO regress_payflow_app;
SET ROLE regress_payflow_app;
SELECT order_id, status, http_status FROM payflow.get(:'session_id');
SELECT order_id, status FROM payflow.find('privileges-1');
SELECT order_id, status FROM payflow.wait(:'session_id', '0');
SELECT order_id, status FROM payflow.check(:'session_id');
SELECT order_id, status FROM payflow.payer_redirected(:'session_id');
SELECT order_id, status FROM payflow.payer_returned(:'session_id');
SELECT payflow.lock_order('privileges-1');
SELECT order_id, replayed, http_status FROM payflow.create('privileges-1', 100, 'EUR');
SELECT privileges.try($$ SELECT FROM payflow.payment_sessions $$);
SELECT privileges.try($$ INSERT INTO payflow.orders (merchant, order_id, amount, currency) VALUES ('default', 'x', 1, 'EUR') $$);

-- so it is for what moves money: codes, cancels, refunds, decisions
SELECT payflow.issue_cancel_code(:'session_id') AS code \gset
SELECT status, http_status FROM payflow.cancel(:'session_id', :'code');
SELECT split_part(privileges.try(format('SELECT payflow.capture(%L)', :'session_id')), E'\n', 1);
SELECT split_part(privileges.try(format('SELECT payflow.refund(%L)', :'session_id')), E'\n', 1);
SELECT split_part(privileges.try(format('SELECT payflow.get_refund(%L)', :'session_id')), E'\n', 1);
SELECT status, http_status FROM payflow.force_check(:'session_id', 'x', '0');
SELECT privileges.try($$ SELECT payflow.resolve_discrepancy(0, 'refund', 'x') $$);
SELECT privileges.try($$ SELECT FROM payflow.cancel_codes $$);
RESET ROLE;
-- the journal names who has called, not as whom it was written
SELECT event, actor = session_user AS by_me FROM payflow.journal WHERE session_id = :'session_id' ORDER BY journal_id;
INSERT INTO payflow.alerts (key, severity, message) VALUES ('privileges', 'info', 'x') RETURNING id AS alert_id \gset
SET ROLE regress_payflow_app;
SELECT payflow.acknowledge_alert(:alert_id, 'x');

-- a new payment takes USAGE on the server
SELECT privileges.try($$ SELECT payflow.create('privileges-2', 100, 'EUR') $$);
SELECT privileges.try($$ SELECT payflow.create('privileges-2', 100, 'EUR', 'Free one') $$);
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER "Free one" TO regress_payflow_app;
SET ROLE regress_payflow_app;
SELECT provider, replayed, http_status FROM payflow.create('privileges-2', 100, 'EUR', 'Free one');
SELECT privileges.try($$ SELECT payflow.create('privileges-3', 100, 'EUR') $$);
RESET ROLE;

-- it is the caller's, of a SECURITY DEFINER function its owner's
CREATE FUNCTION privileges.pay(id text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	AS $$ SELECT replayed FROM payflow.create(id, 100, 'EUR') $$;
CREATE FUNCTION privileges.pay_as_caller(id text) RETURNS boolean LANGUAGE sql
	AS $$ SELECT replayed FROM payflow.create(id, 100, 'EUR') $$;
SET ROLE regress_payflow_app;
SELECT privileges.pay('privileges-3');
SELECT privileges.pay_as_caller('privileges-3');
SELECT split_part(privileges.try($$ SELECT privileges.pay_as_caller('privileges-4') $$), E'\n', 1);
RESET ROLE;

-- whoever calls stays who he is, with the path that he had, also after an error
SET ROLE regress_payflow_app;
SET search_path = privileges, pg_catalog;
BEGIN;
SELECT current_user, current_setting('search_path'), replayed FROM payflow.create('privileges-2', 100, 'EUR', 'Free one');
SELECT current_user, current_setting('search_path');
SELECT split_part(privileges.try($$ SELECT payflow.create('privileges-5', 100, 'EUR') $$), E'\n', 1);
SELECT current_user, current_setting('search_path');
SAVEPOINT s;
SELECT payflow.get('01900000-0000-7000-8000-000000000000');
ROLLBACK TO s;
SELECT current_user, current_setting('search_path');
SELECT replayed FROM payflow.create('privileges-2', 100, 'EUR', 'Free one');
COMMIT;
SELECT current_user, current_setting('search_path');
RESET ROLE;

-- what the caller has in his path is not found by the calls' own statements
CREATE FUNCTION privileges.trap(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
CREATE OPERATOR privileges.= (LEFTARG = text, RIGHTARG = text, FUNCTION = privileges.trap);
CREATE FUNCTION privileges.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
SET search_path = privileges, pg_catalog;
SELECT replayed FROM payflow.create('privileges-6', 100, 'EUR');
SELECT replayed FROM payflow.create('privileges-6', 100, 'EUR');
SELECT order_id FROM payflow.find('privileges-6');
SELECT session_id FROM payflow.find('privileges-6') \gset
SELECT payflow.issue_cancel_code(:'session_id') AS code \gset
SELECT http_status FROM payflow.cancel(:'session_id', 'x');
SELECT http_status FROM payflow.force_check(:'session_id', 'x', '0');
SELECT http_status FROM payflow.cancel(:'session_id', :'code', 'x');
RESET search_path;

\t
\pset format aligned
DROP SERVER "Free one";
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA privileges CASCADE;
DROP OWNED BY regress_payflow_app, regress_payflow_none;
DROP ROLE regress_payflow_app, regress_payflow_none;
