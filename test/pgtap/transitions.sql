-- The transition table: all 64 pairs, by raw UPDATEs around the API (B1, D1).
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT plan(64 + 3);

-- the table of the rules, written out again
CREATE TEMP TABLE allowed (from_status text, to_status text);
INSERT INTO allowed
SELECT f, t FROM (VALUES
	('registering', 'registered,unknown,authorized,completed,canceling,failed,canceled'),
	('unknown', 'registering,registered,authorized,completed,canceling,failed,canceled'),
	('registered', 'authorized,completed,canceling,failed,canceled'),
	('authorized', 'completed,canceling,failed,canceled'),
	('canceling', 'canceled,completed,failed')) v(f, ts), string_to_table(ts, ',') t;

CREATE TEMP TABLE shapes (status text, stage text, final boolean);
INSERT INTO shapes VALUES
	('registering', 'register', false), ('registered', 'form', false), ('unknown', 'register', false),
	('authorized', 'capture', false), ('canceling', 'reverse', false),
	('completed', 'none', true), ('failed', 'none', true), ('canceled', 'none', true);

-- makes a session in a status, then tries to move it
CREATE FUNCTION pg_temp.try_move(a text, b text, sent boolean DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	id uuid := gen_random_uuid();
	was_sent timestamptz := CASE WHEN sent OR (sent IS NULL AND a <> 'registering') THEN now() END;
BEGIN
	INSERT INTO payflow.orders (merchant, order_id, amount, currency) VALUES ('default', id::text, 100, 'EUR');
	INSERT INTO payflow.payment_sessions (session_id, merchant, order_id, amount, currency, provider, status, stage,
			next_action_at, first_sent_at, failure_code, authorized_amount, captured_amount)
		SELECT id, 'default', id::text, 100, 'EUR', 'sandbox', a, s.stage, CASE WHEN NOT s.final THEN now() + '1 day'::interval END,
			was_sent, CASE WHEN a = 'failed' THEN 'declined' END, 100, CASE WHEN a = 'completed' THEN 100 ELSE 0 END
		FROM shapes s WHERE s.status = a;
	UPDATE payflow.payment_sessions p SET status = b, stage = s.stage,
			next_action_at = CASE WHEN NOT s.final THEN now() + '1 day'::interval END,
			first_sent_at = CASE WHEN b = 'unknown' THEN now() ELSE p.first_sent_at END,
			failure_code = CASE WHEN b = 'failed' THEN 'declined' END, captured_amount = CASE WHEN b = 'completed' THEN 100 ELSE 0 END
		FROM shapes s WHERE s.status = b AND p.session_id = id;
	RETURN 'allowed';
EXCEPTION WHEN check_violation THEN
	RETURN CASE WHEN SQLERRM LIKE 'payment session cannot go from%' THEN 'refused' ELSE SQLERRM END;
END
$$;

SELECT is(pg_temp.try_move(a.status, b.status),
	CASE WHEN EXISTS (SELECT FROM allowed w WHERE w.from_status = a.status AND w.to_status = b.status)
			OR a.status = b.status
		THEN 'allowed' ELSE 'refused' END,
	format('%s -> %s', a.status, b.status))
FROM shapes a, shapes b ORDER BY a.status, b.status;

SELECT is(pg_temp.try_move('registering', 'canceled', sent => true), 'refused',
	'registering -> canceled only if Register was never sent');
SELECT set_eq('SELECT from_status, to_status FROM payflow.state_machine', 'SELECT from_status, to_status FROM allowed',
	'the view state_machine is the same table');
SELECT is((SELECT count(*) FROM payflow.state_machine), 7 + 7 + 5 + 4 + 3::bigint, 'and has no more rows');

SELECT * FROM finish();
ROLLBACK;
