-- The sandbox driver and what drivers are made of: requests, answers, JSON,
-- URLs, times, ids.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
SET timezone = 'UTC';
SELECT * FROM no_plan();

-- ---- requests ----

SELECT is(convert_from(driver_build('register'), 'UTF8'),
'POST https://api.example/x/v1/payments once
Accept: application/json
Authorization: Bearer sk_1
Content-Type: application/json
Idempotency-Key: 01937a5e-0000-7abc-8000-000000000001
{"reference":"01937a5e-0000-7abc-8000-000000000001","order":"A-1","amount":1999,"currency":"EUR","capture":"automatic"}',
	'register: the whole request, at the frozen endpoint');
SELECT is(convert_from(driver_build('register', manual => true, receipt => '{"items": [1, "two"]}',
		return_url => 'https://shop.example/back?s={SESSION_ID}&again={SESSION_ID}'), 'UTF8'),
'POST https://api.example/x/v1/payments once
Accept: application/json
Authorization: Bearer sk_1
Content-Type: application/json
Idempotency-Key: 01937a5e-0000-7abc-8000-000000000001
{"reference":"01937a5e-0000-7abc-8000-000000000001","order":"A-1","amount":1999,"currency":"EUR","capture":"manual",'
'"return_url":"https://shop.example/back?s=01937a5e-0000-7abc-8000-000000000001&again=01937a5e-0000-7abc-8000-000000000001",'
'"receipt":{"items": [1, "two"]}}',
	'register: manual capture, return URL with the session id, receipt as it is');
SELECT is(driver_build('register', order_id => E'a"\\b\n\u00fc\U0001f600', api_key => NULL),
	convert_to('POST https://api.example/x/v1/payments once
Accept: application/json
Content-Type: application/json
Idempotency-Key: 01937a5e-0000-7abc-8000-000000000001
{"reference":"01937a5e-0000-7abc-8000-000000000001","order":"a\"\\b\n' || U&'\00fc\+01f600' || '","amount":1999,"currency":"EUR","capture":"automatic"}', 'UTF8'),
	'register: an order id that needs escapes, as UTF-8; no header without a key');
SELECT is(driver_build('register', api_key => 'sk_1', endpoint => 'https://api.example/x'),
	driver_build('register'), 'register: the same bytes again');
SELECT is(split_part(convert_from(driver_build('register', endpoint => NULL), 'UTF8'), E'\n', 1),
	'POST https://other.example/v1/payments once', 'the provider''s endpoint where none is frozen');
SELECT is(convert_from(driver_build('get', payment_id => 'a/b?c#d%e f'), 'UTF8'),
'GET https://api.example/x/v1/payments/a%2Fb%3Fc%23d%25e%20f
Accept: application/json
Authorization: Bearer sk_1
', 'get: the id cannot leave its place in the path');
SELECT is(convert_from(driver_build('find'), 'UTF8'),
'GET https://api.example/x/v1/payments?reference=01937a5e-0000-7abc-8000-000000000001
Accept: application/json
Authorization: Bearer sk_1
', 'find');
SELECT is(convert_from(driver_build('expire'), 'UTF8'),
'POST https://api.example/x/v1/payments/pay_1/expire once
Accept: application/json
Authorization: Bearer sk_1
Content-Type: application/json
Idempotency-Key: 01937a5e-0000-7abc-8000-000000000001:expire
{}', 'expire has a key of its own');

-- ---- answers ----

CREATE TEMP TABLE answers (n serial, call text, http_status integer, body text, want jsonb, name text);

-- a payment as the provider writes it, with some members changed, or without some
CREATE FUNCTION pg_temp.payment(changes jsonb DEFAULT '{}', without text[] DEFAULT '{}') RETURNS text
LANGUAGE sql AS $$
	SELECT ((jsonb '{"id": "pay_1", "reference": "01937a5e-0000-7abc-8000-000000000001", "order": "A-1",
		"status": "pending", "stage": "form", "amount": 1999, "currency": "EUR", "authorized": 0, "captured": 0,
		"refunded": 0, "disputed": 0, "refunds": [], "disputes": [], "redirect_url": "https://pay.example/p/1",
		"decline_code": null, "created_at": "2026-11-30T10:00:00Z", "expires_at": "2026-12-01T10:00:00.5+02:00",
		"metadata": null}' || $1) - $2)::text
$$;
-- what is learned from it, with some things otherwise
CREATE FUNCTION pg_temp.learned(changes jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb '{"kind": "pending", "stage": "form", "id": "pay_1", "status": "pending",
		"url": "https://pay.example/p/1", "amount": 1999, "currency": "EUR", "authorized": 0, "captured": 0,
		"refunded": 0, "disputed": 0, "expires_at": "2026-12-01 08:00:00.5+00"}' || $1
$$;
-- what is learned where no stage is told
CREATE FUNCTION pg_temp.ended(changes jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT pg_temp.learned($1) - 'stage'
$$;

-- each status
INSERT INTO answers (call, http_status, body, want, name) VALUES
	('register', 200, pg_temp.payment(), pg_temp.learned('{}'), 'pending'),
	('register', 201, pg_temp.payment(), pg_temp.learned('{}'), 'pending, 201'),
	('get', 200, pg_temp.payment('{"stage": "redirected"}'), pg_temp.learned('{"stage": "return"}'), 'redirected'),
	('get', 200, pg_temp.payment('{"stage": "processing"}'), pg_temp.learned('{"stage": "bank"}'), 'processing'),
	('get', 200, pg_temp.payment('{"status": "requires_action", "stage": "authentication"}'),
		pg_temp.learned('{"status": "requires_action", "stage": "authentication"}'), 'authentication'),
	('get', 200, pg_temp.payment('{"status": "requires_action"}', '{stage}'),
		pg_temp.learned('{"status": "requires_action", "stage": "authentication"}'), 'requires_action without a stage'),
	('get', 200, pg_temp.payment('{"status": "requires_action", "stage": "redirected"}'),
		pg_temp.learned('{"status": "requires_action", "stage": "return"}'), 'requires_action with another stage'),
	('get', 200, pg_temp.payment('{"stage": "dancing"}'), pg_temp.learned('{}'), 'a stage that nobody knows'),
	('get', 200, pg_temp.payment('{"decline_code": "insufficient_funds"}'),
		pg_temp.learned('{"kind": "attempt_declined", "code": "insufficient_funds", "message": "insufficient_funds"}'),
		'declined, but open for another card'),
	('get', 200, pg_temp.payment('{"decline_code": ""}'), pg_temp.learned('{}'), 'an empty decline code is none'),
	('get', 200, pg_temp.payment('{"status": "authorized", "authorized": 1999, "stage": null}'),
		pg_temp.ended('{"kind": "authorized", "status": "authorized", "authorized": 1999}'), 'authorized'),
	('get', 200, pg_temp.payment('{"status": "paid", "authorized": 1999, "captured": 1999, "refunded": 500, "disputed": 7}'),
		pg_temp.ended('{"kind": "paid", "status": "paid", "authorized": 1999, "captured": 1999, "refunded": 500, "disputed": 7}'),
		'paid, with all totals'),
	('register', 200, pg_temp.payment('{"status": "declined", "decline_code": "card_declined"}'),
		pg_temp.ended('{"kind": "declined", "status": "declined", "code": "declined", "message": "card_declined"}'), 'declined'),
	('get', 200, pg_temp.payment('{"status": "declined", "decline_code": "authentication_failed"}'),
		pg_temp.ended('{"kind": "declined", "status": "declined", "code": "authentication_failed", "message": "authentication_failed"}'),
		'authentication failed'),
	('get', 200, pg_temp.payment('{"status": "declined"}'),
		pg_temp.ended('{"kind": "declined", "status": "declined", "code": "declined"}'), 'declined without a code'),
	('expire', 200, pg_temp.payment('{"status": "expired"}'), pg_temp.ended('{"kind": "expired", "status": "expired"}'), 'expired'),
	('get', 200, pg_temp.payment('{"status": "canceled"}'), pg_temp.ended('{"kind": "canceled", "status": "canceled"}'), 'canceled'),
	('get', 200, pg_temp.payment('{"status": "frozen"}'),
		pg_temp.ended('{"kind": "pending", "status": "frozen", "unknown_word": true}'), 'a status that nobody knows'),
	('get', 200, pg_temp.payment('{"status": "Paid"}'),
		pg_temp.ended('{"kind": "pending", "status": "Paid", "unknown_word": true}'), 'words are not folded'),
	('get', 200, pg_temp.payment(jsonb_build_object('status', repeat('ü', 40))),
		pg_temp.ended(jsonb_build_object('kind', 'pending', 'status', repeat('ü', 30), 'unknown_word', true)),
		'a long status is cut off between characters'),
	('get', 200, '  ' || pg_temp.payment() || E'\r\n', pg_temp.learned('{}'), 'white space around it'),
	('get', 200, U&'\feff' || pg_temp.payment(), pg_temp.learned('{}'), 'a byte order mark');

-- members that are missing, of no use, or absurd
INSERT INTO answers (call, http_status, body, want, name)
	SELECT 'get', 200, pg_temp.payment(changes::jsonb, without::text[]), jsonb '{"kind": "lost", "error": "unusable answer"}', name
	FROM (VALUES
		('{}', '{id}', 'no id'),
		('{"id": 7}', '{}', 'an id that is a number'),
		('{"id": ""}', '{}', 'an empty id'),
		('{"id": "a b"}', '{}', 'an id with a space'),
		('{"id": "a\r\nX: y"}', '{}', 'an id with a line break'),
		('{"id": "\u00fc"}', '{}', 'an id beyond ASCII'),
		(format('{"id": "%s"}', repeat('x', 256)), '{}', 'an id that is too long'),
		('{}', '{status}', 'no status'),
		('{"status": null}', '{}', 'null for the status'),
		('{"status": {"a": 1}}', '{}', 'an object for the status'),
		('{"captured": -1}', '{}', 'a negative total'),
		('{"captured": "1999"}', '{}', 'text for a total'),
		('{"captured": 19.99}', '{}', 'decimals in a total'),
		('{"captured": 1000000000000000001}', '{}', 'an absurd total'),
		('{"authorized": 99999999999999999999999}', '{}', 'a total beyond 64 bits'),
		('{"refunded": []}', '{}', 'an array for a total'),
		('{"disputed": true}', '{}', 'true for a total'),
		('{"amount": -5}', '{}', 'a negative amount'),
		('{"currency": "eur"}', '{}', 'a currency in lower case'),
		('{"currency": "EURO"}', '{}', 'a currency of four letters'),
		('{"currency": 978}', '{}', 'a number for the currency')) v(changes, without, name);
INSERT INTO answers (call, http_status, body, want, name) VALUES
	('get', 200, pg_temp.payment('{}', '{amount,currency,authorized,captured,refunded,disputed,expires_at,redirect_url,reference}'),
		'{"kind": "pending", "stage": "form", "id": "pay_1", "status": "pending"}', 'a bare payment'),
	('get', 200, pg_temp.payment('{"status": "paid", "captured": 1000000000000000000}'),
		pg_temp.ended('{"kind": "paid", "status": "paid", "captured": 1000000000000000000}'), 'more than we would ask for is a fact'),
	('get', 200, pg_temp.payment('{"captured": 0.00}'), pg_temp.learned('{}'), 'decimals that are zeros'),
	('get', 200, pg_temp.payment(jsonb_build_object('id', repeat('x', 255))),
		pg_temp.learned(jsonb_build_object('id', repeat('x', 255))), 'the longest id'),
	('get', 200, pg_temp.payment('{"reference": "01937a5e-0000-7abc-8000-000000000002"}'),
		pg_temp.learned('{"foreign": true}'), 'another reference than ours'),
	('get', 200, pg_temp.payment('{"reference": 7}'), pg_temp.learned('{"foreign": true}'), 'a reference that is none'),
	('get', 200, pg_temp.payment('{"redirect_url": "javascript:alert(1)"}'), pg_temp.learned('{}') - 'url', 'a redirect URL of another kind'),
	('get', 200, pg_temp.payment('{"redirect_url": "https://pay.example/\nx"}'), pg_temp.learned('{}') - 'url', 'a redirect URL with a line break'),
	('get', 200, pg_temp.payment(jsonb_build_object('redirect_url', 'https://pay.example/' || repeat('x', 2048))),
		pg_temp.learned('{}') - 'url', 'a redirect URL that is too long'),
	('get', 200, pg_temp.payment('{"expires_at": "tomorrow"}'), pg_temp.learned('{}') - 'expires_at', 'a time that is none');

-- answers that are no payment
INSERT INTO answers (call, http_status, body, want, name) VALUES
	('get', 200, '[]', '{"kind": "lost", "error": "unusable answer"}', 'an array'),
	('get', 200, '"pay_1"', '{"kind": "lost", "error": "unusable answer"}', 'text'),
	('get', 200, 'null', '{"kind": "lost", "error": "unusable answer"}', 'null'),
	('register', 200, '{"error":{"code":"x","message":"y"}}', '{"kind": "lost", "error": "unusable answer"}', 'an error with 200'),
	('get', 200, '', '{"kind": "lost", "error": "not readable JSON"}', 'nothing'),
	('get', 200, '<html>502</html>', '{"kind": "lost", "error": "not readable JSON"}', 'a page'),
	('get', 200, left(pg_temp.payment(), 100), '{"kind": "lost", "error": "not readable JSON"}', 'half a payment'),
	('get', 200, pg_temp.payment() || 'x', '{"kind": "lost", "error": "not readable JSON"}', 'something behind the payment'),
	('get', 202, pg_temp.payment(), '{"kind": "lost", "error": "HTTP 202"}', 'HTTP 202'),
	('get', 204, '', '{"kind": "lost", "error": "HTTP 204"}', 'HTTP 204');

-- look-ups
INSERT INTO answers (call, http_status, body, want, name) VALUES
	('find', 200, '[]', '{"kind": "not_found"}', 'found: nothing'),
	('find', 200, format('[%s]', pg_temp.payment()), pg_temp.learned('{}'), 'found: ours'),
	('find', 200, format('[%s,%s,%s]', pg_temp.payment('{"reference": "other"}'), pg_temp.payment(), pg_temp.payment('{"id": "pay_3"}')),
		pg_temp.learned('{}'), 'found: the first that is ours'),
	('find', 200, format('[7,null,%s]', pg_temp.payment()), pg_temp.learned('{}'), 'found: ours among what is no payment'),
	('find', 200, format('[%s]', pg_temp.payment('{"reference": "other"}')),
		'{"kind": "lost", "error": "answer has other payments only"}', 'found: others only'),
	('find', 200, format('[%s]', pg_temp.payment('{}', '{reference}')),
		'{"kind": "lost", "error": "answer has other payments only"}', 'found: without a reference'),
	('find', 200, pg_temp.payment(), '{"kind": "lost", "error": "unusable answer"}', 'found: no array');

-- errors
CREATE FUNCTION pg_temp.error(code text) RETURNS text LANGUAGE sql AS $$
	SELECT jsonb_build_object('error', jsonb_build_object('code', $1, 'message', 'Some text'))::text
$$;
INSERT INTO answers (call, http_status, body, want, name)
	SELECT call, http_status, pg_temp.error('some_code'),
		CASE WHEN refused AND call = 'register' THEN jsonb '{"kind": "refused", "error": "HTTP :n some_code", "message": "Some text"}'
			WHEN refused AND call = 'expire' THEN '{"kind": "refused", "error": "HTTP :n some_code", "message": "Some text"}'
			WHEN refused AND call = 'find' THEN '{"kind": "not_found", "error": "HTTP :n some_code"}'
			WHEN refused THEN '{"kind": "lost", "error": "HTTP :n some_code"}'
			ELSE '{"kind": "lost", "error": "HTTP :n"}' END,
		'HTTP ' || http_status
	FROM unnest(ARRAY['register', 'find', 'get', 'expire']) call,
		(VALUES (400, true), (405, true), (409, true), (410, true), (422, true),
			(100, false), (301, false), (302, false), (307, false), (406, false), (408, false), (413, false), (418, false),
			(425, false), (451, false), (500, false), (502, false), (503, false), (504, false), (599, false)) v(http_status, refused);
INSERT INTO answers (call, http_status, body, want, name) VALUES
	('register', 404, pg_temp.error('not_found'), '{"kind": "refused", "error": "HTTP :n not_found", "message": "Some text"}', 'HTTP 404'),
	('get', 404, pg_temp.error('not_found'), '{"kind": "not_found", "error": "HTTP :n not_found"}', 'HTTP 404'),
	('find', 404, pg_temp.error('not_found'), '{"kind": "not_found", "error": "HTTP :n not_found"}', 'HTTP 404'),
	('expire', 404, pg_temp.error('not_found'), '{"kind": "not_found", "error": "HTTP :n not_found"}', 'HTTP 404'),
	('find', 501, pg_temp.error('not_supported'), '{"kind": "not_found", "error": "HTTP :n not_supported"}', 'look-ups switched off'),
	('get', 501, pg_temp.error('not_supported'), '{"kind": "lost", "error": "HTTP :n"}', 'HTTP 501'),
	('register', 402, pg_temp.error('card_declined'),
		'{"kind": "declined", "error": "HTTP :n card_declined", "code": "declined", "message": "Some text"}', 'HTTP 402 is a decline'),
	('register', 402, pg_temp.error('insufficient_funds'),
		'{"kind": "declined", "error": "HTTP :n insufficient_funds", "code": "insufficient_funds", "message": "Some text"}', 'HTTP 402, its code'),
	('expire', 402, pg_temp.error('x'), '{"kind": "refused", "error": "HTTP :n x", "message": "Some text"}', 'HTTP 402'),
	('register', 409, pg_temp.error('key_in_use'), '{"kind": "lost", "error": "HTTP :n key_in_use"}', 'the key is in use'),
	('register', 422, pg_temp.error('key_reused'), '{"kind": "lost", "error": "HTTP :n key_reused"}', 'the key came with another body'),
	('expire', 422, pg_temp.error('key_reused'), '{"kind": "lost", "error": "HTTP :n key_reused"}', 'the key came with another body'),
	('register', 409, pg_temp.error('duplicate_reference'), '{"kind": "lost", "error": "HTTP :n duplicate_reference"}', 'our reference is there already'),
	('register', 400, '{"error": {"message": "Tab\there"}}', '{"kind": "refused", "error": "HTTP :n ", "message": "Tab here"}', 'an error without a code'),
	('register', 400, '{"error": {"code": "x", "message": 7}}', '{"kind": "refused", "error": "HTTP :n x"}', 'an error with another kind of message'),
	('register', 400, jsonb_build_object('error', jsonb_build_object('code', 'x', 'message', repeat('€', 400)))::text,
		jsonb_build_object('kind', 'refused', 'error', 'HTTP :n x', 'message', repeat('€', 166)), 'a long message is cut off'),
	('register', 400, '{"error": "no"}', '{"kind": "lost", "error": "HTTP :n, not the provider''s answer"}', 'an error of another form'),
	('get', 404, '{}', '{"kind": "lost", "error": "HTTP :n, not the provider''s answer"}', 'a 404 that is not the provider''s'),
	('get', 404, '<html>no</html>', '{"kind": "lost", "error": "not readable JSON"}', 'a 404 of something in between'),
	('find', 404, '<html>no</html>', '{"kind": "lost", "error": "not readable JSON"}', 'a 404 of something in between'),
	('register', 400, '', '{"kind": "lost", "error": "not readable JSON"}', 'a 400 without a body'),
	('register', 401, '', '{"kind": "unauthorized", "error": "HTTP :n"}', 'HTTP 401'),
	('get', 403, '<html>', '{"kind": "unauthorized", "error": "HTTP :n"}', 'HTTP 403'),
	('find', 429, '', '{"kind": "throttled", "error": "HTTP :n"}', 'HTTP 429');

SELECT is(driver_parse(call, http_status, bytes(body))::jsonb,
	replace(want::text, ':n', http_status::text)::jsonb, format('%s: %s', call, name))
FROM answers ORDER BY n;

SELECT is(driver_parse('find', 501, bytes(pg_temp.error('x')), exact => true)::jsonb ->> 'kind', 'lost',
	'look-ups that should be exact and are switched off prove nothing');
SELECT is(driver_parse('find', 200, '[]', exact => true)::jsonb ->> 'kind', 'not_found', 'exact: found nothing');
SELECT is(driver_parse('get', 200, bytes(pg_temp.payment()), truncated => true)::jsonb,
	'{"kind": "lost", "error": "answer is too long"}', 'an answer that was cut off is not read');
SELECT is(driver_parse('get', 429, '', retry_after => 1500000)::jsonb,
	'{"kind": "throttled", "error": "HTTP 429", "retry_after": 1500000}', 'Retry-After is handed on');

-- bytes that are no text
SELECT is(driver_parse('register', 200, body)::jsonb, '{"kind": "lost", "error": "not readable JSON"}', name)
FROM (VALUES
	('\xff'::bytea, 'invalid UTF-8'),
	(bytes('{"id":"') || '\xc3' || bytes('"}'), 'half a character'),
	(bytes('{"id":"') || '\xeda080' || bytes('"}'), 'a surrogate in UTF-8'),
	(bytes('{"id":"') || '\xc080' || bytes('"}'), 'an overlong NUL'),
	(bytes(pg_temp.payment()) || '\x00', 'a NUL at the end'),
	('\x00' || bytes(pg_temp.payment()), 'a NUL at the beginning'),
	('\xfffe7b00', 'UTF-16'),
	(bytes('{"id":"a\u0000b"}'), 'an escaped NUL'),
	(bytes(repeat('[', 10000)), '10000 levels'),
	(bytes(repeat('[', 10000) || repeat(']', 10000)), '10000 levels, closed'),
	(bytes(repeat('{"a":', 1000000)), 'a million levels'),
	(bytes('[' || repeat('0,', 200000) || '0]'), 'too many values')) v(body, name);
-- every beginning of a payment
SELECT is(count(*) FILTER (WHERE driver_parse('get', 200, substr(bytes(pg_temp.payment()), 1, n))::jsonb ->> 'kind' <> 'lost'),
	0::bigint, 'no part of a payment is a payment')
FROM generate_series(0, octet_length(pg_temp.payment()) - 1) n;

-- any byte changed: never an error, and never money that is not there
SELECT ok(bool_and(driver_parse('get', 200, set_byte(bytes(pg_temp.payment()), place, value))::jsonb ->> 'kind'
		IN ('pending', 'lost', 'attempt_declined')), 'a changed byte does no harm')
FROM generate_series(0, octet_length(pg_temp.payment()) - 1) place,
	unnest(ARRAY[0, 10, 34, 44, 45, 48, 57, 91, 92, 93, 101, 117, 123, 125, 128, 195, 255]) value;

-- ---- JSON ----

SELECT is(json_text(bytes(doc))::jsonb, doc::jsonb, 'JSON: ' || left(doc, 40))
FROM unnest(ARRAY['{}', '[]', ' [ ] ', '{"a":{}}', '[1,2,[3,{"b":null}]]', '"\"\\\/\b\f\n\r\t"', '"\u00e4\u20AC\ud83d\ude00"',
	'0', '-0', '-12.5e+3', '1E-2', '1e400', 'true', 'false', 'null', '{"":1}', '{"a":1,"a":2}', '"ü€"',
	repeat('[', 64) || repeat(']', 64)]) doc;
SELECT is(json_text(bytes(doc)), NULL, format('no JSON: %s', to_json(left(doc, 40))))
FROM unnest(ARRAY['', ' ', '{', '}', '[1,]', '[,1]', '{"a"}', '{"a":}', '{"a":1,}', '{a:1}', '{1:1}', '''a''', '"a', '"\"', '"\x"',
	'"\u12"', '"\u12g4"', '"\', E'"\n"', E'"\t"', '01', '-', '+1', '.5', '1.', '1e', '1e+', '0x10', 'NaN', 'Infinity', 'True',
	'nul', 'nullx', '1 2', '{} {}', '[1]]', '"a" "b"', '"\u0000"', '{"\u0000":1}', '/**/1',
	repeat('[', 65) || repeat(']', 65)]) doc;
SELECT is(json_text(bytes('"\ud83d|\ude00|\ud83d\ud83d\ude00|\ud83dx"')), U&'"\fffd|\fffd|\fffd\+01f600|\fffdx"',
	'half a surrogate pair does not spoil the document');
SELECT is(json_int(bytes(format('{"n":%s}', number))), want, 'number: ' || left(number, 40))
FROM (VALUES ('0', '0'), ('-0', '0'), ('9223372036854775807', '9223372036854775807'),
	('-9223372036854775808', '-9223372036854775808'), ('9223372036854775808', 'unusable'),
	('-9223372036854775809', 'unusable'), ('1' || repeat('0', 1000), 'unusable'), ('12.00', '12'), ('12.01', 'unusable'),
	('1e3', 'unusable'), ('"5"', 'unusable'), ('true', 'unusable'), ('null', 'absent'), ('1,"n":2', '2')) v(number, want);
SELECT is(json_int(bytes('[1]')), 'absent', 'an array has no members');
SELECT is(json_message(bytes('{"s":"a\u001b[31m\u009bb\u007fc"}'), 100), 'a [31m  b c', 'messages have no control characters');
SELECT is(json_message(bytes('{"s":"äöü"}'), 5), 'äö', 'messages are cut off between characters');
SELECT is(json_message(bytes('{"s":7}'), 5), NULL, 'a number is no message');

-- ---- URLs and times ----

SELECT is(url_kind(url), want, format('URL %s', to_json(left(url, 40))))
FROM (VALUES
	('https://api.example', 'usable'), ('HTTPS://API.EXAMPLE/', 'usable'), ('http://a:8080/b?c#d', 'usable'),
	('http://xn--bcher-kva.example/', 'usable'), ('http://[2001:db8::1]:80/', 'usable'),
	('http://127.0.0.1', 'loopback'), ('http://127.9.8.7:1/x', 'loopback'), ('http://localhost:1', 'loopback'),
	('http://LOCALHOST/', 'loopback'), ('http://[::1]/', 'loopback'),
	('http://127.0.0.1.evil.example/', 'usable'), ('http://127.1/', 'usable'), ('http://localhost.evil.example', 'usable'),
	('', 'unusable'), ('http://', 'unusable'), ('http:///x', 'unusable'), ('http:x', 'unusable'), ('//x', 'unusable'),
	('ftp://x', 'unusable'), ('file:///etc/passwd', 'unusable'), ('javascript:x', 'unusable'), ('httpsx://x', 'unusable'),
	('http://user@x/', 'unusable'), ('http://user:secret@x/', 'unusable'), ('http://127.0.0.1@x/', 'unusable'),
	('http://x:0/', 'unusable'), ('http://x:65536/', 'unusable'), ('http://x:/', 'unusable'), ('http://x:1a/', 'unusable'),
	('http://[::1/', 'unusable'), ('http://[::1]x/', 'unusable'), ('http://a b/', 'unusable'), (E'http://a/\r\nX: y', 'unusable'),
	(E'http://a/\t', 'unusable'), ('http://a\@b/', 'unusable'), ('https://a/' || repeat('x', 2038), 'usable'),
	('https://a/' || repeat('x', 2039), 'unusable')) v(url, want);
SELECT is(percent_encoded('aZ09-._~ /?#%&=+ü'), 'aZ09-._~%20%2F%3F%23%25%26%3D%2B%C3%BC', 'percent-encoding');
SELECT is(wire_time(text), want::timestamptz, 'time ' || text)
FROM (VALUES
	('2026-11-30T10:00:00Z', '2026-11-30 10:00:00+00'), ('2026-11-30t10:00:00z', '2026-11-30 10:00:00+00'),
	('2026-11-30 10:00:00+00:00', '2026-11-30 10:00:00+00'), ('2026-11-30T10:00:00.123456789-01:30', '2026-11-30 11:30:00.123456+00'),
	('2024-02-29T23:59:60Z', '2024-03-01 00:00:00+00'), ('0001-01-01T00:00:00Z', '0001-01-01 00:00:00+00'),
	('9999-12-31T23:59:59.999Z', '9999-12-31 23:59:59.999+00'),
	('2026-02-29T00:00:00Z', NULL), ('2026-13-01T00:00:00Z', NULL), ('2026-00-01T00:00:00Z', NULL), ('2026-01-00T00:00:00Z', NULL),
	('0000-01-01T00:00:00Z', NULL), ('2026-11-30', NULL), ('2026-11-30T10:00:00', NULL), ('2026-11-30T24:00:00Z', NULL),
	('2026-11-30T10:60:00Z', NULL), ('2026-11-30T10:00:61Z', NULL), ('2026-11-30T10:00:00+24:00', NULL),
	('2026-11-30T10:00:00+0100', NULL), ('2026-11-30T10:00:00Zx', NULL), ('26-11-30T10:00:00Z', NULL), ('', NULL), ('now', NULL),
	('infinity', NULL), ('2026-', NULL), ('2026-11-30T10', NULL)) v(text, want);

-- ---- ids ----

SELECT is(slot_of(merchant, order_id),
	(get_byte(digest, 30) & 15) << 8 | get_byte(digest, 31), format('slot of order %s', order_id))
FROM (VALUES ('default', 'A-1'), ('default', ''), ('m', 'ü')) v(merchant, order_id),
	LATERAL sha256(bytes(merchant) || '\x00' || bytes(order_id)) digest;
SELECT is((SELECT count(DISTINCT id) FROM (SELECT new_uuid(7) FROM generate_series(1, 10000)) v(id)), 10000::bigint, 'ids are unique');
SELECT ok(bool_and(id::text ~ ('^[0-9a-f]{8}-[0-9a-f]{4}-7' || lpad(to_hex(slot), 3, '0') || '-[89ab][0-9a-f]{3}-[0-9a-f]{12}$')
		AND abs(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint - extract(epoch FROM clock_timestamp()) * 1000) < 600000),
	'ids are of version 7 and bear time and slot')
FROM (SELECT slot, new_uuid(slot) FROM generate_series(0, 4095) slot) v(slot, id);

SELECT * FROM finish();
