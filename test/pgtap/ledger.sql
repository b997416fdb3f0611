-- The ledger and the limits of commands, as the database itself holds them (F1, B2, C7, C61, C63, C68, C70, A10).
-- What is booked on which path is compared entry by entry in test/t/430, 440 and 450.
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT plan(118);

-- a session of 100 EUR in some status, and its order
CREATE FUNCTION pg_temp.add(o text, s text DEFAULT 'completed', capture text DEFAULT 'automatic', authorized bigint DEFAULT 100,
	captured bigint DEFAULT 100, refunded bigint DEFAULT 0, disputed bigint DEFAULT 0) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
	id uuid := gen_random_uuid();
BEGIN
	INSERT INTO payflow.orders (merchant, order_id, amount, currency) VALUES ('default', o, 100, 'EUR') ON CONFLICT DO NOTHING;
	INSERT INTO payflow.payment_sessions (session_id, merchant, order_id, amount, currency, provider, capture, status, stage,
			next_action_at, first_sent_at, failure_code, authorized_amount, captured_amount, refunded_amount, disputed_amount)
		VALUES (id, 'default', o, 100, 'EUR', 'sandbox', capture, s, CASE s WHEN 'authorized' THEN 'capture' ELSE 'none' END,
			CASE s WHEN 'authorized' THEN now() + '1 day'::interval END, now(), CASE s WHEN 'failed' THEN 'declined' END,
			authorized, captured, refunded, disputed);
	RETURN id;
END
$$;
CREATE FUNCTION pg_temp.s(o text) RETURNS uuid LANGUAGE sql AS
	$$SELECT session_id FROM payflow.payment_sessions WHERE order_id = o ORDER BY created_at, session_id LIMIT 1$$;

INSERT INTO payflow.accounts (account_id, merchant, kind, currency, provider)
	VALUES (-1, 'default', 'provider', 'EUR', 'sandbox'), (-2, 'default', 'held', 'EUR', ''), (-3, 'default', 'available', 'EUR', ''),
		(-4, 'default', 'suspense', 'EUR', 'sandbox'), (-5, 'default', 'fees', 'EUR', ''), (-6, 'default', 'losses', 'EUR', '');
CREATE FUNCTION pg_temp.account(kind text) RETURNS bigint LANGUAGE sql AS
	$$SELECT account_id FROM payflow.accounts a WHERE a.account_id BETWEEN -6 AND -1 AND a.kind = $1$$;

CREATE FUNCTION pg_temp.book(o text, t text, debit text, credit text, m bigint DEFAULT 1, op uuid DEFAULT NULL, fact uuid DEFAULT NULL,
	note text DEFAULT NULL) RETURNS void
LANGUAGE sql AS $$
	INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, debit_account, credit_account, amount,
			currency, event_at, operation_id, provider_operation_id, note)
		VALUES (t, pg_temp.s(o), 'default', o, pg_temp.account(debit), pg_temp.account(credit), m, 'EUR', now(), op, fact, note);
$$;
CREATE FUNCTION pg_temp.fact(o text, kind text DEFAULT 'refund', ref text DEFAULT 'r1', step text DEFAULT 'succeeded', m bigint DEFAULT 10)
RETURNS uuid LANGUAGE sql AS $$
	INSERT INTO payflow.provider_operations (provider_operation_id, provider, kind, ref, step, session_id, amount, currency, event_at)
		VALUES (gen_random_uuid(), 'sandbox', kind, ref, step, pg_temp.s(o), m, 'EUR', now()) RETURNING provider_operation_id;
$$;
-- a command, inserted around the API
CREATE FUNCTION pg_temp.op(o text, kind text DEFAULT 'refund', m bigint DEFAULT 10, source text DEFAULT 'receipt',
	alarm timestamptz DEFAULT now() + '1 day'::interval, st text DEFAULT 'pending', key text DEFAULT 'k') RETURNS uuid
LANGUAGE sql AS $$
	INSERT INTO payflow.operations (operation_id, session_id, merchant, order_id, provider, kind, amount, currency, source,
			idempotency_key, next_action_at, status)
		VALUES (gen_random_uuid(), pg_temp.s(o), 'default', o, 'sandbox', kind, m, 'EUR',
			CASE kind WHEN 'refund' THEN source END, key, alarm, st) RETURNING operation_id;
$$;
CREATE FUNCTION pg_temp.settle(id uuid, st text) RETURNS void LANGUAGE sql AS $$
	UPDATE payflow.operations SET status = st, lease_until = NULL, lease_token = NULL,
		next_action_at = CASE WHEN st IN ('succeeded', 'failed') THEN NULL ELSE now() + '1 day'::interval END,
		first_sent_at = CASE st WHEN 'pending' THEN NULL ELSE now() END WHERE operation_id = id;
$$;
-- what fails leaves nothing behind
CREATE FUNCTION pg_temp.left_to_refund(o text) RETURNS bigint[] LANGUAGE sql AS
	$$SELECT ARRAY[reserved_amount, refundable_amount] FROM payflow.payment_sessions WHERE session_id = pg_temp.s(o)$$;

-- ---- accounts ----

SELECT throws_ok($$INSERT INTO payflow.accounts (merchant, kind, currency) VALUES ('default', 'cash', 'EUR')$$, '23514', NULL, 'F1: six kinds of accounts');
SELECT throws_ok(format($$INSERT INTO payflow.accounts (merchant, kind, currency, provider) VALUES ('default', %L, 'XAF', %L)$$, k, p), '23514', NULL,
	format('F1: an account %s %s provider', k, CASE p WHEN '' THEN 'needs its' ELSE 'has no' END))
	FROM (VALUES ('provider', ''), ('suspense', ''), ('held', 'sandbox'), ('available', 'sandbox'), ('fees', 'sandbox'), ('losses', 'sandbox')) v(k, p);
SELECT throws_ok($$INSERT INTO payflow.accounts (merchant, kind, currency) VALUES ('default', 'held', 'EUR')$$, '23505', NULL, 'F1: an account is there once');
SELECT throws_ok($$DELETE FROM payflow.accounts$$, '55000', NULL, 'F1: accounts are not deleted');

-- ---- the ledger table of rules.md ----

SELECT bag_eq($$SELECT m[1] FROM pg_constraint c, regexp_matches(pg_get_constraintdef(c.oid), '''([a-z_]+)''', 'g') m
		WHERE conname = 'accounting_entries_type_known'$$,
	ARRAY['payment_received', 'unexpected_received', 'unexpected_accepted', 'refund_sent', 'refund_reported', 'refund_reversed',
		'payment_reversed', 'fee_charged', 'fee_returned', 'fee_return_reversed', 'hold_released', 'hold_shortfall', 'chargeback',
		'chargeback_reversed', 'correction'], 'F1: the types of entries are those of the rules');
DO $$BEGIN PERFORM pg_temp.add(o) FROM unnest(ARRAY['e1', 'e2', 'e3', 'e4', 'e5']) o; END$$;
SELECT throws_ok($$SELECT pg_temp.book('e1', 'gift', 'held', 'provider')$$, '23514', NULL, 'no other');

-- payment_received, unexpected_accepted: by merchant and order
SELECT lives_ok($$SELECT pg_temp.book('e1', 'unexpected_accepted', 'suspense', 'held', 100)$$, 'late money becomes the receipt');
SELECT throws_ok($$SELECT pg_temp.book('e1', 'payment_received', 'provider', 'held', 100)$$, '23505',
	'duplicate key value violates unique constraint "ux_order_payment_receipt"', 'B2: then there is no other receipt');
SELECT lives_ok($$SELECT pg_temp.book('e2', 'payment_received', 'provider', 'held', 100)$$, 'another order has its own');

-- by operation; an amount that is split over accounts is one entry an account
SELECT lives_ok($$SELECT pg_temp.op('e1')$$, 'an operation');
CREATE FUNCTION pg_temp.o(o text) RETURNS uuid LANGUAGE sql AS $$SELECT operation_id FROM payflow.operations WHERE order_id = o LIMIT 1$$;
SELECT lives_ok($$SELECT pg_temp.book('e1', 'refund_sent', 'held', 'provider', 6, pg_temp.o('e1'))$$, 'refund_sent from held');
SELECT lives_ok($$SELECT pg_temp.book('e1', 'refund_sent', 'suspense', 'provider', 4, pg_temp.o('e1'))$$, 'and its other part from suspense');
SELECT throws_ok($$SELECT pg_temp.book('e1', 'refund_sent', 'held', 'provider', 6, pg_temp.o('e1'))$$, '23505',
	'duplicate key value violates unique constraint "ux_entry_operation"', 'C7: an operation is booked once');
SELECT throws_ok($$SELECT pg_temp.book('e1', 'refund_sent', 'suspense', 'provider', 1, pg_temp.o('e1'))$$, '23505', NULL, 'C7: by whatever amount');
SELECT lives_ok($$SELECT pg_temp.book('e1', 'refund_reversed', 'provider', 'held', 6, pg_temp.o('e1'))$$, 'it comes back');
SELECT throws_ok($$SELECT pg_temp.book('e1', 'refund_reversed', 'provider', 'held', 6, pg_temp.o('e1'))$$, '23505', NULL, 'C7: once');
SELECT throws_ok($$SELECT pg_temp.book('e1', 'refund_sent', 'held', 'provider', 1, gen_random_uuid())$$, '23503', NULL, 'an entry''s operation is there');

-- by provider operation
SELECT lives_ok($$SELECT pg_temp.fact('e1')$$, 'a fact');
SELECT throws_ok($$SELECT pg_temp.fact('e1')$$, '23505',
	'duplicate key value violates unique constraint "provider_operations_key"', 'C8: the same fact is not taken down twice');
SELECT throws_ok($$SELECT pg_temp.fact('e2')$$, '23505', NULL, 'C8: not for another session either');
SELECT lives_ok($$SELECT pg_temp.fact('e1', step => 'failed')$$, 'C8: its next step is another one');
SELECT lives_ok($$SELECT pg_temp.fact('e1', 'dispute', 'r1', 'succeeded')$$, 'C9: so is a dispute of that id');
SELECT lives_ok($$SELECT pg_temp.fact('e1', 'payment', 'p1', 'reversed:0:1')$$, 'C8: so is a capture that failed after all');
SELECT lives_ok($$SELECT pg_temp.fact('e1', 'dispute', 'd1', 'taken:' || n) FROM unnest(ARRAY[30, 70]) n$$, 'C9: a dispute that grows');
SELECT throws_ok($$SELECT pg_temp.fact('e1', 'dispute', 'd1', 'taken:70')$$, '23505', NULL, 'C9: a step of it, once');
SELECT throws_ok($$SELECT pg_temp.fact('e1', 'gift', 'x')$$, '23514', NULL, 'facts have their kinds');
SELECT throws_ok($$SELECT pg_temp.fact('e1', 'refund', 'zero', m => 0)$$, '23514', NULL, 'and move something');
SELECT throws_ok($$UPDATE payflow.provider_operations SET amount = 1$$, '55000', NULL, 'facts are never changed');
SELECT throws_ok($$DELETE FROM payflow.provider_operations$$, '55000', NULL, 'nor deleted');
SELECT throws_ok($$TRUNCATE payflow.provider_operations CASCADE$$, '55000', NULL, 'nor truncated');
CREATE FUNCTION pg_temp.f(kind text, step text) RETURNS uuid LANGUAGE sql AS
	$$SELECT provider_operation_id FROM payflow.provider_operations p WHERE p.kind = $1 AND p.step = $2 LIMIT 1$$;
SELECT unnest(ARRAY[lives_ok(format($$SELECT pg_temp.book('e1', %L, %L, %L, 3, fact => pg_temp.f(%L, %L))$$, t, d, c, k, st), t || ' by its fact'),
	throws_ok(format($$SELECT pg_temp.book('e1', %L, %L, %L, 2, fact => pg_temp.f(%L, %L))$$, t, d, c, k, st), '23505',
		'duplicate key value violates unique constraint "ux_entry_provider_operation"', t || ' by its fact: once'),
	lives_ok(format($$SELECT pg_temp.book('e1', %L, %L, %L, 3, fact => pg_temp.f(%L, %L))$$, t, d2, c2, k, st), t || ': the part of another account')])
	FROM (VALUES ('refund_reported', 'suspense', 'provider', 'held', 'provider', 'refund', 'succeeded'),
		('refund_reversed', 'provider', 'suspense', 'provider', 'held', 'refund', 'failed'),
		('chargeback', 'held', 'provider', 'losses', 'provider', 'dispute', 'taken:70'),
		('payment_reversed', 'suspense', 'provider', 'held', 'provider', 'payment', 'reversed:0:1'),
		('chargeback_reversed', 'provider', 'held', 'provider', 'losses', 'dispute', 'taken:30')) v(t, d, c, d2, c2, k, st);
SELECT throws_ok($$SELECT pg_temp.book('e1', 'chargeback', 'held', 'provider', 1, fact => gen_random_uuid())$$, '23503', NULL, 'an entry''s fact is there');

-- a person
SELECT throws_ok($$SELECT pg_temp.book('e2', 'correction', 'suspense', 'losses')$$, '23514', NULL, 'F1: a correction needs a note');
SELECT lives_ok($$SELECT pg_temp.book('e2', 'correction', 'suspense', 'losses', note => 'as agreed')$$, 'F1: with one it is booked');
SELECT lives_ok($$SELECT pg_temp.book('e2', 'correction', 'suspense', 'losses', note => 'as agreed')$$, 'F1: as often as a person wants');
SELECT throws_ok($$SELECT pg_temp.book('e2', 'refund_reported', 'held', 'provider', -5)$$, '23514', NULL, 'F1: nothing negative');
SELECT throws_ok($$UPDATE payflow.accounting_entries SET note = 'x'$$, '55000', NULL, 'F1: not even the note is changed');

-- balances: assets grow by debits, liabilities by credits
UPDATE payflow.accounts a SET balance = v.expected FROM payflow.verify_ledger() v
	WHERE concat_ws('/', a.merchant, a.kind, NULLIF(a.provider, '')) = v.account AND a.currency::text = v.currency;
SELECT is_empty($$SELECT * FROM payflow.verify_ledger()$$, 'F1: balances are the sums of the entries');
SELECT lives_ok($$SELECT pg_temp.book('e4', 'payment_received', 'provider', 'held', 100)$$, 'an entry without its balances');
SELECT set_eq($$SELECT split_part(account, '/', 2), expected - actual FROM payflow.verify_ledger()$$,
	$$VALUES ('provider', 100::numeric), ('held', 100)$$, 'F1: both accounts grow, the asset by its debit, the liability by its credit');
SELECT lives_ok($$SELECT pg_temp.book('e4', 'correction', 'held', 'losses', 30, note => 'a test')$$, 'and one more');
SELECT set_eq($$SELECT split_part(account, '/', 2), expected - actual FROM payflow.verify_ledger()$$,
	$$VALUES ('provider', 100::numeric), ('held', 70), ('losses', -30)$$, 'F1: a credit lessens an asset, a debit lessens a liability');
SELECT isnt_empty($$SELECT * FROM payflow.check_invariants() WHERE invariant = 4$$, 'F1: check_invariants() sees it');

-- ---- limits of commands, around the API ----

DO $$BEGIN PERFORM pg_temp.add('r'); PERFORM pg_temp.add('c', 'authorized', 'manual', 100, 0); PERFORM pg_temp.add('u', 'failed', captured => 0, authorized => 0);
	PERFORM pg_temp.add('d', disputed => 70); PERFORM pg_temp.add('p', capture => 'manual', captured => 40); PERFORM pg_temp.add('x'); END$$;
SELECT throws_ok($$SELECT pg_temp.op('r', m => 0)$$, '23514', NULL, 'C61: no refund of zero');
SELECT throws_ok($$SELECT pg_temp.op('r', m => -1)$$, '23514', NULL, 'C61: nor of -1');
SELECT throws_ok($$SELECT pg_temp.op('r', m => NULL)$$, '23514', NULL, 'C61: nor of nothing said');
SELECT throws_ok($$SELECT pg_temp.op('r', m => 101)$$, '23514',
	'new row for relation "operations" violates check constraint "operations_within_limit"', 'C7: 101 of 100');
SELECT is(pg_temp.left_to_refund('r'), ARRAY[0, 100]::bigint[], 'C7: nothing came of all that');
SELECT lives_ok($$SELECT pg_temp.op('r', m => 60)$$, 'C60: 60 of 100');
SELECT is(pg_temp.left_to_refund('r'), ARRAY[60, 40]::bigint[], 'C60: are reserved');
SELECT throws_ok($$SELECT pg_temp.op('r', m => 60)$$, '23514', NULL, 'C60: 60 more are refused');
SELECT lives_ok($$SELECT pg_temp.op('r', m => 40)$$, 'C60: 40 more are not');
SELECT throws_ok($$SELECT pg_temp.op('r', m => 1)$$, '23514', NULL, 'C60: and then nothing');
CREATE FUNCTION pg_temp.r(m bigint) RETURNS uuid LANGUAGE sql AS $$SELECT operation_id FROM payflow.operations WHERE order_id = 'r' AND amount = m ORDER BY created_at LIMIT 1$$;
DO $$BEGIN PERFORM pg_temp.settle(pg_temp.r(60), 'sent'); END$$;
SELECT is(pg_temp.left_to_refund('r'), ARRAY[100, 0]::bigint[], 'C7: what is sent counts');
DO $$BEGIN PERFORM pg_temp.settle(pg_temp.r(60), 'unknown'); END$$;
SELECT is(pg_temp.left_to_refund('r'), ARRAY[100, 0]::bigint[], 'C7: what is unknown counts');
DO $$BEGIN PERFORM pg_temp.settle(pg_temp.r(60), 'failed'); END$$;
SELECT is(pg_temp.left_to_refund('r'), ARRAY[40, 60]::bigint[], 'C7: what has failed is free');
SELECT lives_ok($$SELECT pg_temp.op('r', m => 50)$$, 'C7: for another one');
SELECT throws_ok($$SELECT pg_temp.settle(pg_temp.r(60), 'pending')$$, '23514', NULL, 'C7: and given once more it meets the limit anew');
DO $$BEGIN PERFORM pg_temp.settle(pg_temp.r(50), 'failed'); PERFORM pg_temp.settle(pg_temp.r(60), 'pending'); END$$;
SELECT is(pg_temp.left_to_refund('r'), ARRAY[100, 0]::bigint[], 'C7: which it may, where there is room');
SELECT throws_ok(format('SELECT pg_temp.settle(pg_temp.r(50), %L)', st), '23514', NULL, 'a failed operation is not suddenly ' || st)
	FROM unnest(ARRAY['sent', 'unknown', 'succeeded']) st;
DO $$BEGIN PERFORM pg_temp.settle(pg_temp.r(40), 'succeeded'); END$$;
SELECT throws_ok(format('SELECT pg_temp.settle(pg_temp.r(40), %L)', st), '23514', NULL, 'one that succeeded does not become ' || st)
	FROM unnest(ARRAY['pending', 'sent', 'unknown']) st;
SELECT lives_ok($$SELECT pg_temp.settle(pg_temp.r(40), 'failed')$$, 'but its money can come back');

SELECT throws_ok($$SELECT pg_temp.op('d', m => 31)$$, '23514', NULL, 'C67: captured 100, disputed 70, refund 31');
SELECT lives_ok($$SELECT pg_temp.op('d', m => 30)$$, 'C67: 30 is not too much');
SELECT throws_ok($$SELECT pg_temp.op('p', m => 41)$$, '23514', NULL, 'C63: captured 40 of 100: refund 41');
SELECT lives_ok($$SELECT pg_temp.op('p', m => 40)$$, 'C63: 40');

-- suspense has a limit of its own
SELECT throws_ok($$SELECT pg_temp.op('u', m => 1)$$, '23514', NULL, 'no receipt, no refund of it');
SELECT throws_ok($$SELECT pg_temp.op('u', m => 1, source => 'suspense')$$, '23514', NULL, 'nothing in suspense, no refund of it');
DO $$BEGIN PERFORM pg_temp.book('u', 'unexpected_received', 'provider', 'suspense', 50); END$$;
SELECT throws_ok($$SELECT pg_temp.op('u', m => 51, source => 'suspense')$$, '23514', NULL, '51 of 50 in suspense');
SELECT lives_ok($$SELECT pg_temp.op('u', m => 30, source => 'suspense')$$, '30 of 50 in suspense');
SELECT throws_ok($$SELECT pg_temp.op('u', m => 21, source => 'suspense')$$, '23514', NULL, 'then not 21 more');
SELECT is(pg_temp.left_to_refund('u'), ARRAY[0, 0]::bigint[], 'suspense money is not counted as the receipt''s');
SELECT throws_ok($$SELECT pg_temp.op('x', source => NULL)$$, '23514', NULL, 'a refund says whose money it is');

-- captures
SELECT throws_ok($$SELECT pg_temp.op('c', 'capture', 101)$$, '23514', NULL, 'C63: capture 101 of 100');
SELECT lives_ok($$SELECT pg_temp.op('c', 'capture', 60)$$, 'C70: capture 60 of 100');
SELECT throws_ok($$SELECT pg_temp.op('c', 'capture', 60)$$, '23505',
	'duplicate key value violates unique constraint "ux_operation_unsettled_capture"', 'C70: not twice');
SELECT throws_ok($$SELECT pg_temp.op('c', 'capture', 40)$$, '23505', NULL, 'C70: not the rest either');
SELECT lives_ok($$SELECT pg_temp.op('c', 'reverse', NULL)$$, 'a reverse');
SELECT throws_ok($$SELECT pg_temp.op('c', 'reverse', NULL)$$, '23505', NULL, 'C2: one a session, ever');
SELECT throws_ok($$SELECT pg_temp.op('c', 'void', 5)$$, '23514', NULL, 'a void is of all of it');

-- ---- what an operation is ----

SELECT throws_ok($$SELECT pg_temp.op('x', alarm => NULL)$$, '23514', NULL, 'D1: an unsettled operation has an alarm');
SELECT throws_ok($$SELECT pg_temp.op('x', alarm => 'infinity')$$, '23514', NULL, 'D1: that rings one day');
SELECT throws_ok($$SELECT pg_temp.op('x', st => 'sent')$$, '23514', NULL, 'A10: what was sent has its mark');
SELECT throws_ok(format($$UPDATE payflow.operations SET %s WHERE order_id = 'd'$$, c), '23514', NULL, 'fixed: ' || c)
	FROM unnest(ARRAY['amount = 1', $$kind = 'void'$$, $$source = 'suspense'$$, $$provider = 'x'$$, $$order_id = 'x'$$,
		'session_id = gen_random_uuid()', 'operation_id = gen_random_uuid()', $$currency = 'USD'$$]) c;
SELECT throws_ok($$UPDATE payflow.operations SET settled_by = 'me' WHERE order_id = 'd'$$, '23514', NULL, 'a person''s decision has a note');
SELECT throws_ok($$DELETE FROM payflow.operations$$, '55000', NULL, 'operations are not deleted');
SELECT throws_ok($$TRUNCATE payflow.operations CASCADE$$, '55000', NULL, 'nor truncated');
DO $$BEGIN PERFORM pg_temp.op('x', 'reverse', NULL, alarm => NULL); END$$;
SELECT isnt_empty($$SELECT * FROM payflow.check_invariants() WHERE invariant = 3 AND session_id = pg_temp.s('x')$$,
	'D1: check_invariants() sees an unfinished operation of a final session that has no alarm');

SELECT * FROM finish();
ROLLBACK;
