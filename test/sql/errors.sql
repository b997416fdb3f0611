-- The calls' errors: SQLSTATE, DETAIL word, message, hint of each.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default';
CREATE EXTENSION IF NOT EXISTS plpgsql;
RESET client_min_messages;
CREATE FOREIGN DATA WRAPPER errors_other;
CREATE SERVER errors_other FOREIGN DATA WRAPPER errors_other;
INSERT INTO payflow.merchants (id) VALUES ('errors_none');
INSERT INTO payflow.merchants (id, default_provider) VALUES ('errors_gone', 'no_such_server');
INSERT INTO payflow.merchants (id, default_provider, enabled) VALUES ('errors_off', 'sandbox', false);

CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
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
-- the same in one line, for values that differ only in how they are wrong
CREATE FUNCTION pg_temp.short(statement text) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(': ', split_part(t, E'\n', 1), NULLIF(split_part(t, E'\n', 2), '')) FROM pg_temp.try(statement) t;
$$;
CREATE FUNCTION pg_temp.create_with(arguments text) RETURNS text LANGUAGE sql AS $$
	SELECT pg_temp.short(format('SELECT payflow.create(''errors-1'', 100, ''EUR'', %s)', arguments));
$$;
\pset format unaligned
\t

-- order_id
SELECT pg_temp.try($$ SELECT payflow.create(NULL::text, 100, 'EUR') $$);
SELECT pg_temp.try($$ SELECT payflow.create(NULL::bigint, 100, 'EUR') $$);
SELECT pg_temp.try($$ SELECT payflow.create(NULL::uuid, 100, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create('', 100, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create(repeat('x', 201), 100, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create(repeat('é', 101), 100, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create(E'a\nb', 100, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create(E'a\x7f', 100, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.find('') $$);
SELECT pg_temp.short($$ SELECT payflow.find(NULL::bigint) $$);
SELECT pg_temp.short($$ SELECT payflow.lock_order(E'\t') $$);

-- amount
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', NULL, 'EUR') $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 0, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', -1, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 1000000000000001, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 9223372036854775807, 'EUR') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', -9223372036854775808, 'EUR') $$);

-- currency
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, NULL) $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'eur') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, '') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EURO') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'ZZZ') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, repeat(E'€\n', 1000)) $$);

-- merchant
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', merchant => 'no_such_shop') $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', merchant => NULL) $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', merchant => 'errors_off') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', merchant => '') $$);
SELECT pg_temp.short($$ SELECT payflow.find('errors-1', 'no_such_shop') $$);
SELECT pg_temp.short($$ SELECT payflow.find('errors-1', NULL) $$);
SELECT pg_temp.short($$ SELECT payflow.lock_order('errors-1', 'no_such_shop') $$);

-- provider
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', merchant => 'errors_none') $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', merchant => 'errors_gone') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', 'no_such_server') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', 'errors_other') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', '') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', 'SANDBOX') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', repeat('x', 100000)) $$);

-- capture
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', capture => 'later') $$);
SELECT pg_temp.create_with($$capture => NULL$$);
SELECT pg_temp.create_with($$capture => ''$$);
SELECT pg_temp.create_with($$capture => 'Manual'$$);

-- return_url
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', return_url => '/paid') $$);
SELECT u || ' -> ' || pg_temp.create_with(format('return_url => %L', u)) FROM unnest(ARRAY[
	'', 'shop.example', 'ftp://shop.example/', 'javascript:alert(1)', 'https:/shop.example', 'http://', 'https:///paid',
	'https://?x', 'https://:443/', 'https://user@/', 'https://shop.example:port/', 'https://[::1/', 'https://[::1]x/', 'https://[::1]:x/', 'https://shop.example/a b',
	E'https://shop.example/\tx', ' https://shop.example/']) u;
SELECT pg_temp.create_with(format('return_url => %L', 'https://shop.example/' || repeat('x', 1980)));
-- these are fine: each ends in the error that stands at the end of all checks
SELECT u || ' -> ' || pg_temp.short(format('SELECT payflow.create(''errors-1'', 100, ''EUR'', ''no_such_server'', return_url => %L)', u))
	FROM unnest(ARRAY['http://shop.example', 'HTTPS://shop.example:8443/paid?s={SESSION_ID}#top', 'https://[2001:db8::1]:8443/',
		'https://[::1]', 'https://user:secret@shop.example:80/', 'https://bücher.example/ж']) u;
SELECT pg_temp.short(format('SELECT payflow.create(''errors-1'', 100, ''EUR'', ''no_such_server'', return_url => %L)',
	'https://shop.example/' || repeat('x', 1979)));

-- description
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', description => repeat('x', 1001)) $$);

-- customer, metadata, receipt: their contents are never shown
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', customer => '["secret"]') $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', customer => '{"secret": "x"}') $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', customer => '{"id": 7}') $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', customer => jsonb_build_object('email', repeat('x', 501))) $$);
SELECT c || ' -> ' || pg_temp.create_with(format('customer => %L', c)) FROM unnest(ARRAY[
	'null', '1', '"x"', '{"ID": "x"}', '{"id": {"id": "x"}}', '{"id": []}', '{"ip": true}', '{"": "x"}', '{"locales": "x"}']) c;
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', 'no_such_server',
	customer => jsonb_build_object('id', repeat('x', 500), 'email', NULL, 'phone', '', 'ip', '::1', 'locale', 'de')) $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', metadata => '[]') $$);
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', metadata => jsonb_build_object('a', repeat('x', 70000))) $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', receipt => 'null') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', receipt => jsonb_build_object('a', repeat('x', 70000))) $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', 'no_such_server',
	metadata => jsonb_build_object('a', repeat('x', 65000)), receipt => '{}') $$);

-- idempotency keys are not built yet
SELECT pg_temp.try($$ SELECT payflow.create('errors-1', 100, 'EUR', idempotency_key => 'k') $$);
SELECT pg_temp.short($$ SELECT payflow.create('errors-1', 100, 'EUR', idempotency_key => '') $$);

-- sessions
SELECT pg_temp.try($$ SELECT payflow.get('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.try($$ SELECT payflow.get(NULL) $$);
SELECT pg_temp.short($$ SELECT payflow.wait('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.wait(NULL) $$);
SELECT pg_temp.short($$ SELECT payflow.check('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.check('01900000-0000-7000-8000-000000000000', '1 second') $$);
SELECT pg_temp.short($$ SELECT payflow.check(NULL) $$);
SELECT pg_temp.short($$ SELECT payflow.payer_redirected('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.payer_redirected(NULL) $$);
SELECT pg_temp.short($$ SELECT payflow.payer_returned('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.payer_returned(NULL) $$);
SELECT pg_temp.short($$ SELECT payflow.capture('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.capture('01900000-0000-7000-8000-000000000000', 1, 'key') $$);
SELECT pg_temp.short($$ SELECT payflow.issue_cancel_code('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.cancel('01900000-0000-7000-8000-000000000000', 'x') $$);
SELECT pg_temp.short($$ SELECT payflow.refund('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.refund('01900000-0000-7000-8000-000000000000', 1, 'key') $$);
SELECT pg_temp.short($$ SELECT payflow.force_check('01900000-0000-7000-8000-000000000000', 'x') $$);
SELECT pg_temp.short($$ SELECT payflow.get('x') $$);
-- refunds
SELECT pg_temp.short($$ SELECT payflow.get_refund('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.wait_refund('01900000-0000-7000-8000-000000000000') $$);
SELECT pg_temp.short($$ SELECT payflow.settle_refund('01900000-0000-7000-8000-000000000000', 'failed', 'x') $$);
SELECT pg_temp.short($$ SELECT payflow.retry_now('refund', '01900000-0000-7000-8000-000000000000', 'x') $$);
SELECT pg_temp.short($$ SELECT payflow.refund('x') $$);

-- waiting
SELECT session_id FROM payflow.create('errors-2', 100, 'EUR') \gset
SELECT pg_temp.try(format('SELECT payflow.wait(%L, NULL)', :'session_id'));
SELECT pg_temp.try(format('SELECT payflow.wait(%L, ''0'', ''paid'')', :'session_id'));
SELECT pg_temp.short(format('SELECT payflow.wait(%L, ''0'', NULL)', :'session_id'));
SELECT pg_temp.short(format('SELECT payflow.wait(%L, ''0'', ''Settled'')', :'session_id'));
SELECT pg_temp.short(format('SELECT payflow.check(%L, NULL)', :'session_id'));
SELECT pg_temp.short(format('SELECT payflow.payer_returned(%L, NULL, NULL)', :'session_id'));

-- what came with the payer's return
SELECT pg_temp.try(format('SELECT payflow.payer_returned(%L, ''[]'')', :'session_id'));
SELECT pg_temp.try(format('SELECT payflow.payer_returned(%L, jsonb_build_object(''a'', repeat(''x'', 992)))', :'session_id'));
SELECT pg_temp.try(format('SELECT payflow.payer_returned(%L, jsonb_build_object(''a'', repeat(''x'', 991)))', :'session_id'));
SELECT pg_temp.short(format('SELECT payflow.payer_returned(%L, ''null'')', :'session_id'));

-- nothing came of all that
SELECT count(*) FROM payflow.orders WHERE order_id = 'errors-1';

\t
\pset format aligned
DROP SERVER errors_other;
DROP FOREIGN DATA WRAPPER errors_other;
