-- settle_refund(), retry_now(), resolve_discrepancy(), acknowledge_alert().
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
RESET client_min_messages;
INSERT INTO payflow.merchants (id, default_provider) VALUES ('decisions_shop', 'sandbox');

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
		'([0-9a-f]{8}-[0-9a-f-]{27}|(?<=discrepancy )[1-9][0-9]*)', '<id>');
END
$$;
-- 100 were taken and booked, as a worker would leave it
CREATE FUNCTION pg_temp.paid(order_id text, amount bigint DEFAULT 100) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
	id uuid := (payflow.create(order_id, amount, 'EUR', merchant => 'decisions_shop')).session_id;
	provider bigint; held bigint;
BEGIN
	UPDATE payflow.payment_sessions s SET first_sent_at = now(), endpoint = 'http://127.0.0.1:1', status = 'completed',
		stage = 'none', next_action_at = NULL, provider_payment_id = 'pay_' || $1, authorized_amount = s.amount,
		captured_amount = s.amount WHERE session_id = id;
	UPDATE payflow.orders SET status = 'paid', paid_session_id = id, active_session_id = NULL WHERE active_session_id = id;
	INSERT INTO payflow.provider_refs (provider, kind, ref, session_id) VALUES ('sandbox', 'payment', 'pay_' || order_id, id);
	INSERT INTO payflow.accounts (merchant, kind, currency, provider)
		VALUES ('decisions_shop', 'provider', 'EUR', 'sandbox'), ('decisions_shop', 'held', 'EUR', '') ON CONFLICT DO NOTHING;
	UPDATE payflow.accounts SET balance = balance + $2 WHERE merchant = 'decisions_shop' AND currency = 'EUR' AND kind IN ('provider', 'held');
	SELECT account_id FROM payflow.accounts WHERE merchant = 'decisions_shop' AND currency = 'EUR' AND kind = 'provider' INTO provider;
	SELECT account_id FROM payflow.accounts WHERE merchant = 'decisions_shop' AND currency = 'EUR' AND kind = 'held' INTO held;
	INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, debit_account, credit_account, amount, currency, event_at)
		VALUES ('payment_received', id, 'decisions_shop', $1, provider, held, $2, 'EUR', now());
	RETURN id;
END
$$;
-- what a worker makes of a refund
CREATE FUNCTION pg_temp.settle(id uuid, to_status text, why text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
	UPDATE payflow.operations SET status = to_status, failure_code = why, updated_at = clock_timestamp(),
		first_sent_at = CASE WHEN to_status = 'pending' THEN NULL ELSE now() END,
		next_action_at = CASE WHEN to_status IN ('succeeded', 'failed') THEN NULL ELSE now() + '1 day' END WHERE operation_id = id;
$$;
CREATE FUNCTION pg_temp.entries(id uuid) RETURNS TABLE (entry_type text, debit text, credit text, amount bigint, note text) LANGUAGE sql AS $$
	SELECT e.entry_type, d.kind, c.kind, e.amount, e.note FROM payflow.accounting_entries e
	JOIN payflow.accounts d ON d.account_id = e.debit_account JOIN payflow.accounts c ON c.account_id = e.credit_account
	WHERE e.session_id = id ORDER BY e.entry_id;
$$;
-- money of a session that had ended: in suspense, with its discrepancy
CREATE FUNCTION pg_temp.late(order_id text, amount bigint, currency text DEFAULT 'EUR', OUT session_id uuid, OUT discrepancy_id bigint)
LANGUAGE plpgsql AS $$
DECLARE
	provider_account bigint; suspense_account bigint; fact uuid := gen_random_uuid();
BEGIN
	SELECT c.session_id FROM payflow.create(order_id, 100, 'EUR', merchant => 'decisions_shop') c INTO session_id;
	UPDATE payflow.payment_sessions s SET first_sent_at = now(), endpoint = 'http://127.0.0.1:1', status = 'failed', failure_code = 'expired',
		stage = 'none', next_action_at = NULL, provider_payment_id = 'pay_' || $1,
		suspense_amount = CASE WHEN $3 = s.currency THEN $2 ELSE 0 END WHERE s.session_id = late.session_id;
	UPDATE payflow.orders o SET active_session_id = NULL WHERE o.active_session_id = late.session_id;
	INSERT INTO payflow.provider_refs (provider, kind, ref, session_id) VALUES ('sandbox', 'payment', 'pay_' || order_id, session_id);
	INSERT INTO payflow.accounts (merchant, kind, currency, provider)
		VALUES ('decisions_shop', 'provider', $3, 'sandbox'), ('decisions_shop', 'suspense', $3, 'sandbox') ON CONFLICT DO NOTHING;
	UPDATE payflow.accounts a SET balance = balance + $2
		WHERE a.merchant = 'decisions_shop' AND a.kind IN ('provider', 'suspense') AND a.currency = $3;
	SELECT a.account_id FROM payflow.accounts a WHERE a.merchant = 'decisions_shop' AND a.kind = 'provider' AND a.currency = $3 INTO provider_account;
	SELECT a.account_id FROM payflow.accounts a WHERE a.merchant = 'decisions_shop' AND a.kind = 'suspense' AND a.currency = $3 INTO suspense_account;
	INSERT INTO payflow.provider_operations (provider_operation_id, provider, kind, ref, step, session_id, amount, currency, event_at)
		VALUES (fact, 'sandbox', 'payment', 'pay_' || order_id, 'captured', session_id, amount, currency, now());
	INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, debit_account, credit_account, amount, currency, event_at, provider_operation_id)
		VALUES ('unexpected_received', session_id, 'decisions_shop', order_id, provider_account, suspense_account, amount, currency, now(), fact);
	INSERT INTO payflow.discrepancies (kind, session_id, provider, amount, currency)
		VALUES ('unexpected_money', session_id, 'sandbox', amount, currency) RETURNING id INTO discrepancy_id;
END
$$;

-- settle_refund(): only what cannot be learned
SELECT pg_temp.paid('decisions-1') AS id \gset
SELECT refund_id FROM payflow.refund(:'id', 30) \gset
\pset format unaligned
\t
SELECT pg_temp.try(format('SELECT payflow.settle_refund(%L, ''succeeded'', ''seen'')', :'refund_id'));
SELECT pg_temp.settle(:'refund_id', 'sent');
SELECT pg_temp.try(format('SELECT payflow.settle_refund(%L, ''succeeded'', ''seen'')', :'refund_id'));
SELECT pg_temp.settle(:'refund_id', 'unknown');
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.settle_refund(%L, %s)', :'refund_id', a)) FROM unnest(ARRAY[
	'''done'', ''seen''', 'NULL, ''seen''', '''unknown'', ''seen''', '''failed'', NULL', '''failed'', ''''', '''failed'', '' ''', '''failed'', repeat(''x'', 501)']) a;
\t
\pset format aligned
SELECT status, replayed, http_status FROM payflow.settle_refund(refund_id => :'refund_id', outcome => 'succeeded', note => 'on the bank statement');
SELECT status, settled_by = session_user AS by_me, note, next_action_at FROM payflow.refunds WHERE refund_id = :'refund_id';
SELECT refunded_amount, refundable_amount, order_status, paid FROM payflow.get(:'id');
SELECT * FROM pg_temp.entries(:'id');
SELECT event, detail - 'operations' AS detail FROM payflow.timeline(:'id') WHERE event <> 'create';
-- again: the same, and not otherwise
SELECT status, replayed, http_status FROM payflow.settle_refund(:'refund_id', 'succeeded', 'still there');
SELECT note FROM payflow.refunds WHERE refund_id = :'refund_id';
\pset format unaligned
\t
SELECT pg_temp.try(format('SELECT payflow.settle_refund(%L, ''failed'', ''no'')', :'refund_id'));
-- failed: the amount is free again
SELECT refund_id FROM payflow.refund(:'id', 70) \gset
SELECT pg_temp.settle(:'refund_id', 'unknown');
SELECT status, failure_code, replayed, http_status FROM payflow.settle_refund(:'refund_id', 'failed', 'never came');
SELECT refunded_amount, refundable_amount, order_status FROM payflow.get(:'id');
-- one that the provider has settled
SELECT refund_id FROM payflow.refund(:'id', 70) \gset
SELECT pg_temp.settle(:'refund_id', 'failed', 'refused');
SELECT pg_temp.try(format('SELECT payflow.settle_refund(%L, ''failed'', ''no'')', :'refund_id'));
SELECT pg_temp.try($$ SELECT payflow.settle_refund('01900000-0000-7000-8000-000000000000', 'failed', 'no') $$);
SELECT pg_temp.try($$ SELECT payflow.settle_refund(NULL, 'failed', 'no') $$);

-- retry_now(): what was refused, under a key of its own, within the limits of now
SELECT pg_temp.try(format('SELECT payflow.retry_now(''refund'', %L, NULL)', :'refund_id'));
SELECT idempotency_key FROM payflow.operations WHERE operation_id = :'refund_id' \gset
SELECT payflow.retry_now(what => 'refund', id => :'refund_id', reason => 'the bank is back');
SELECT status, failure_code, first_sent_at, idempotency_key = :'idempotency_key' AS same_key, next_action_at <= clock_timestamp() AS due
	FROM payflow.operations WHERE operation_id = :'refund_id';
SELECT refundable_amount FROM payflow.get(:'id');
SELECT event, detail - 'operations' AS detail FROM payflow.timeline(:'id') WHERE event = 'retry';
SELECT pg_temp.try(format('SELECT payflow.retry_now(''refund'', %L, ''again'')', :'refund_id'));
SELECT pg_temp.settle(:'refund_id', 'sent');
SELECT pg_temp.settle(:'refund_id', 'failed', 'refused');
SELECT amount FROM payflow.refund(:'id', 1);
SELECT pg_temp.try(format('SELECT payflow.retry_now(''refund'', %L, ''again'')', :'refund_id'));
SELECT refund_id FROM payflow.refunds WHERE session_id = :'id' AND settled_by IS NOT NULL AND status = 'failed' \gset
SELECT pg_temp.try(format('SELECT payflow.retry_now(''refund'', %L, ''again'')', :'refund_id'));
SELECT pg_temp.try($$ SELECT payflow.retry_now('refund', '01900000-0000-7000-8000-000000000000', 'again') $$);
SELECT pg_temp.try($$ SELECT payflow.retry_now('refund', '7', 'again') $$);
SELECT pg_temp.try($$ SELECT payflow.retry_now('notification', '7', 'again') $$);
SELECT pg_temp.try($$ SELECT payflow.retry_now(NULL, '7', 'again') $$);
SELECT pg_temp.try($$ SELECT payflow.retry_now('refund', NULL, 'again') $$);
\t
\pset format aligned

-- resolve_discrepancy(): accept
SELECT session_id AS id, discrepancy_id FROM pg_temp.late('decisions-2', 100) \gset
SELECT status, suspense_amount, order_status FROM payflow.get(:'id');
\pset format unaligned
\t
SELECT a || ' -> ' || pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, %s)', :discrepancy_id, a)) FROM unnest(ARRAY[
	'''keep'', ''x''', 'NULL, ''x''', '''accept'', NULL', '''accept'', ''''']) a;
\t
\pset format aligned
SELECT payflow.resolve_discrepancy(id => :discrepancy_id, resolution => 'accept', note => 'the payer was late');
SELECT status, resolution, note, resolved_by = session_user AS by_me, resolved_at IS NOT NULL AS resolved
	FROM payflow.discrepancies WHERE id = :discrepancy_id;
SELECT status, paid, captured_amount, suspense_amount, refundable_amount, order_status FROM payflow.get(:'id');
SELECT * FROM pg_temp.entries(:'id');
SELECT amount, status FROM payflow.refund(:'id', 10);
-- again, and otherwise
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'accept', 'again');
SELECT note FROM payflow.discrepancies WHERE id = :discrepancy_id;
SELECT pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, ''refund'', ''again'')', :discrepancy_id)) AS error;

-- refund
SELECT session_id AS id, discrepancy_id FROM pg_temp.late('decisions-3', 100) \gset
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'refund', 'sold out');
SELECT status, resolution FROM payflow.discrepancies WHERE id = :discrepancy_id;
SELECT amount, source, status, discrepancy_id = :discrepancy_id AS same FROM payflow.operations WHERE session_id = :'id';
SELECT r.amount, r.status, r.http_status FROM payflow.operations o, payflow.get_refund(o.operation_id) r WHERE o.session_id = :'id';
SELECT suspense_amount, order_status FROM payflow.get(:'id');
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'refund', 'sold out');
SELECT count(*) FROM payflow.operations WHERE session_id = :'id';
-- a refused one is decided about again, not tried again
SELECT operation_id FROM payflow.operations WHERE session_id = :'id' \gset
SELECT pg_temp.settle(:'operation_id', 'failed', 'refused');
SELECT pg_temp.try(format('SELECT payflow.retry_now(''refund'', %L, ''again'')', :'operation_id')) AS error;

-- write_off, no_money
SELECT session_id AS id, discrepancy_id FROM pg_temp.late('decisions-4', 100) \gset
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'write_off', 'nobody knows');
SELECT * FROM pg_temp.entries(:'id');
SELECT status, resolution FROM payflow.discrepancies WHERE id = :discrepancy_id;
SELECT suspense_amount, order_status FROM payflow.get(:'id');
SELECT session_id AS id, discrepancy_id FROM pg_temp.late('decisions-5', 100) \gset
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'no_money', 'the provider was wrong');
SELECT * FROM pg_temp.entries(:'id');

-- not accepted: another amount or currency, beside a live session, on a paid order
\pset format unaligned
\t
SELECT discrepancy_id FROM pg_temp.late('decisions-6', 99) \gset
SELECT pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, ''accept'', ''x'')', :discrepancy_id));
SELECT session_id AS id, discrepancy_id FROM pg_temp.late('decisions-7', 100, 'USD') \gset
SELECT pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, ''accept'', ''x'')', :discrepancy_id));
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'refund', 'wrong currency');
SELECT amount, currency, status FROM payflow.refunds WHERE session_id = :'id';
SELECT session_id AS id, discrepancy_id FROM pg_temp.late('decisions-8', 100) \gset
BEGIN;
UPDATE payflow.payment_sessions SET suspense_amount = 40 WHERE session_id = :'id';
SELECT pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, ''accept'', ''x'')', :discrepancy_id));
ROLLBACK;
BEGIN;
-- around create(), which makes no session beside money in suspense
INSERT INTO payflow.payment_sessions (session_id, merchant, order_id, amount, currency, provider, next_action_at)
	VALUES (gen_random_uuid(), 'decisions_shop', 'decisions-8', 100, 'EUR', 'sandbox', now());
UPDATE payflow.orders o SET active_session_id = s.session_id FROM payflow.payment_sessions s
	WHERE o.order_id = 'decisions-8' AND s.order_id = 'decisions-8' AND s.next_action_at IS NOT NULL;
SELECT pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, ''accept'', ''x'')', :discrepancy_id));
ROLLBACK;
SELECT pg_temp.paid('decisions-9') AS id \gset
INSERT INTO payflow.discrepancies (kind, session_id, provider, amount, currency)
	VALUES ('unexpected_money', :'id', 'sandbox', 100, 'EUR') RETURNING id AS discrepancy_id \gset
SELECT pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, ''accept'', ''x'')', :discrepancy_id));
UPDATE payflow.discrepancies SET amount = NULL, currency = NULL WHERE id = :discrepancy_id;
-- without money it is only closed
SELECT pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, %L, ''x'')', :discrepancy_id, a)) FROM unnest(ARRAY['accept', 'refund']) a;
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'no_money', 'looked at');
SELECT status, resolution, note FROM payflow.discrepancies WHERE id = :discrepancy_id;
SELECT count(*) FROM pg_temp.entries(:'id');
-- and so is one about no session
INSERT INTO payflow.discrepancies (kind, provider) VALUES ('unknown_payment', 'sandbox') RETURNING id AS discrepancy_id \gset
SELECT pg_temp.try(format('SELECT payflow.resolve_discrepancy(%s, ''refund'', ''x'')', :discrepancy_id));
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'write_off', 'not ours');
SELECT payflow.resolve_discrepancy(:discrepancy_id, 'write_off', 'again');
SELECT status, resolution, note, resolved_by = session_user FROM payflow.discrepancies WHERE id = :discrepancy_id;
SELECT pg_temp.try('SELECT payflow.resolve_discrepancy(0, ''no_money'', ''x'')');
SELECT pg_temp.try('SELECT payflow.resolve_discrepancy(NULL, ''no_money'', ''x'')');

-- acknowledge_alert()
INSERT INTO payflow.alerts (key, severity, message) VALUES ('decisions', 'warning', 'look') RETURNING id AS alert_id \gset
SELECT payflow.acknowledge_alert(id => :alert_id, note => 'looked');
SELECT closed_at IS NOT NULL, closed_by = session_user, note FROM payflow.alerts WHERE id = :alert_id;
SELECT payflow.acknowledge_alert(:alert_id, 'again');
SELECT note FROM payflow.alerts WHERE id = :alert_id;
INSERT INTO payflow.alerts (key, severity, message) VALUES ('decisions', 'warning', 'look again') RETURNING id AS alert_id \gset
SELECT payflow.acknowledge_alert(:alert_id, NULL);
SELECT closed_at IS NOT NULL, note IS NULL FROM payflow.alerts WHERE id = :alert_id;
SELECT pg_temp.try('SELECT payflow.acknowledge_alert(0, ''x'')');
SELECT pg_temp.try('SELECT payflow.acknowledge_alert(NULL, ''x'')');
SELECT pg_temp.try(format('SELECT payflow.acknowledge_alert(%s, repeat(''x'', 501))', :alert_id));
\t
\pset format aligned
SELECT * FROM payflow.check_invariants();
