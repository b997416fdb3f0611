-- The sandbox driver: requests, options, answers.
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

-- operations
SELECT is(convert_from(driver_build('capture', operation => true), 'UTF8'),
'POST https://api.example/x/v1/payments/pay_1/capture once
Accept: application/json
Authorization: Bearer sk_1
Content-Type: application/json
Idempotency-Key: key-1
{"amount":300}', 'capture');
SELECT is(convert_from(driver_build('capture', operation => true, operation_receipt => '{"items": [1]}'), 'UTF8'),
'POST https://api.example/x/v1/payments/pay_1/capture once
Accept: application/json
Authorization: Bearer sk_1
Content-Type: application/json
Idempotency-Key: key-1
{"amount":300,"receipt":{"items": [1]}}', 'capture with a receipt');
SELECT is(convert_from(driver_build('cancel', operation => true, operation_receipt => '{"items": [1]}'), 'UTF8'),
'POST https://api.example/x/v1/payments/pay_1/cancel once
Accept: application/json
Authorization: Bearer sk_1
Content-Type: application/json
Idempotency-Key: key-1
{}', 'cancel says nothing more');
SELECT is(convert_from(driver_build('refund', operation => true), 'UTF8'),
'POST https://api.example/x/v1/payments/pay_1/refunds once
Accept: application/json
Authorization: Bearer sk_1
Content-Type: application/json
Idempotency-Key: key-1
{"amount":300,"reference":"01937a5e-0000-7abc-8000-000000000009"}', 'refund: the operation is its reference');
SELECT is(driver_build('refund', operation => true, operation_amount => 9223372036854775807, api_key => NULL, key => 'key-2',
		payment_id => 'a/b', operation_receipt => E'{"name": "a\u00fc\U0001f600"}'),
	convert_to('POST https://api.example/x/v1/payments/a%2Fb/refunds once
Accept: application/json
Content-Type: application/json
Idempotency-Key: key-2
{"amount":9223372036854775807,"reference":"01937a5e-0000-7abc-8000-000000000009","receipt":{"name": "a' || U&'\00fc\+01f600' || '"}}', 'UTF8'),
	'refund: amount, key, and the receipt as UTF-8');
SELECT is(driver_build(call, operation => true, order_id => 'B-2', amount => 7, currency => 'USD', manual => true,
		return_url => 'https://shop.example/', receipt => '{"of": "the order"}'),
	driver_build(call, operation => true), call || ': nothing else of the payment goes into it')
FROM unnest(ARRAY['capture', 'cancel', 'refund']) call;
SELECT is(split_part(convert_from(driver_build(call, operation => true, endpoint => NULL), 'UTF8'), '/v1', 1), 'POST https://other.example',
	call || ': the provider''s endpoint where none is frozen')
FROM unnest(ARRAY['capture', 'cancel', 'refund']) call;
SELECT is(driver_build(call, operation => true), driver_build(call), call || ': the same for an operation')
FROM unnest(ARRAY['get', 'find', 'register', 'expire']) call;

-- ---- options ----

SELECT is(names_refunds(NULL), true, 'the provider names refunds by itself');
SELECT is(names_refunds(word), want, 'refund_names ' || word)
FROM (VALUES ('yes', true), ('no', false), ('YES', true), ('No', false)) v(word, want);

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
		"refunded": 0, "disputed": 0, "refunds": [], "disputes": [], "expires_at": "2026-12-01 08:00:00.5+00"}' || $1
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
	('get', 200, pg_temp.payment('{"status": "authorized", "authorized": 1999, "decline_code": "capture_failed"}'),
		pg_temp.ended('{"kind": "capture_failed", "status": "authorized", "authorized": 1999, "message": "capture_failed"}'),
		'a capture that failed'),
	('get', 200, pg_temp.payment('{"status": "authorized", "authorized": 1999, "decline_code": "card_declined"}'),
		pg_temp.ended('{"kind": "authorized", "status": "authorized", "authorized": 1999}'), 'authorized after a decline'),
	('get', 200, pg_temp.payment('{"status": "paid", "captured": 1999, "decline_code": "capture_failed"}'),
		pg_temp.ended('{"kind": "paid", "status": "paid", "captured": 1999}'), 'paid again after a capture that failed'),
	('capture', 200, pg_temp.payment('{"status": "paid", "authorized": 1999, "captured": 300}'),
		pg_temp.ended('{"kind": "paid", "status": "paid", "authorized": 1999, "captured": 300}'), 'a part was captured'),
	('capture', 201, pg_temp.payment('{"status": "authorized", "authorized": 1999, "decline_code": "capture_failed"}'),
		pg_temp.ended('{"kind": "capture_failed", "status": "authorized", "authorized": 1999, "message": "capture_failed"}'),
		'failed at once'),
	('cancel', 200, pg_temp.payment('{"status": "canceled", "stage": null}'),
		pg_temp.ended('{"kind": "canceled", "status": "canceled"}'), 'canceled'),
	('cancel', 200, pg_temp.payment('{"status": "paid", "captured": 1999}'),
		pg_temp.ended('{"kind": "paid", "status": "paid", "captured": 1999}'), 'paid all the same'),
	('capture', 200, pg_temp.payment('{"reference": "01937a5e-0000-7abc-8000-000000000002"}'),
		pg_temp.learned('{"foreign": true}'), 'another reference than ours'),
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
	('get', 200, pg_temp.payment('{}', '{amount,currency,authorized,captured,refunded,disputed,refunds,disputes,expires_at,redirect_url,reference}'),
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

-- refunds and disputes of a payment
INSERT INTO answers (call, http_status, body, want, name) VALUES
	('get', 200, pg_temp.payment('{"refunds": [
			{"id": "re_1", "reference": "01937a5e-0000-7abc-8000-000000000009", "amount": 300, "status": "succeeded"},
			{"id": "re_2", "reference": null, "amount": 1, "status": "pending", "payment": "pay_1"},
			{"id": "re_3", "amount": 1000000000000000000, "status": "failed", "reference": "Order 5"}], "disputes": [
			{"id": "dp_1", "amount": 10, "status": "open", "won": 0},
			{"id": "dp_2", "amount": 10, "status": "partly_won", "won": 4},
			{"id": "re_1", "amount": 10, "status": "won", "won": 10}]}'),
		pg_temp.learned('{"refunds": [
			{"id": "re_1", "reference": "01937a5e-0000-7abc-8000-000000000009", "amount": 300, "status": "succeeded"},
			{"id": "re_2", "amount": 1, "status": "pending"},
			{"id": "re_3", "amount": 1000000000000000000, "status": "failed", "reference": "Order 5"}], "disputes": [
			{"id": "dp_1", "amount": 10, "won": 0},
			{"id": "dp_2", "amount": 10, "won": 4},
			{"id": "re_1", "amount": 10, "won": 10}]}'), 'refunds and disputes, in their order'),
	('get', 200, pg_temp.payment('{}', '{refunds}'), pg_temp.learned('{}') - 'refunds', 'no refunds are told'),
	('get', 200, pg_temp.payment('{"refunds": null}'), pg_temp.learned('{}') - 'refunds', 'null for the refunds'),
	('get', 200, pg_temp.payment('{}', '{disputes}'), pg_temp.learned('{}') - 'disputes', 'no disputes are told'),
	('get', 200, pg_temp.payment('{"disputes": null}'), pg_temp.learned('{}') - 'disputes', 'null for the disputes'),
	('get', 200, pg_temp.payment('{"disputes": [{"id": "a", "amount": 5}, {"id": "b", "amount": 5, "status": "won"},
			{"id": "c", "amount": 5, "status": "won", "won": 2}, {"id": "d", "amount": 5, "status": "open", "won": null},
			{"id": "e", "amount": 5, "status": "lost"}, {"id": "f", "amount": 5, "status": 7}]}'),
		pg_temp.learned('{"disputes": [{"id": "a", "amount": 5, "won": 0}, {"id": "b", "amount": 5, "won": 5},
			{"id": "c", "amount": 5, "won": 2}, {"id": "d", "amount": 5, "won": 0},
			{"id": "e", "amount": 5, "won": 0}, {"id": "f", "amount": 5, "won": 0}]}'), 'what is won, told or not'),
	('get', 200, pg_temp.payment('{"status": "paid", "refunds": [{"id": "a", "amount": 5, "status": "in_transit"},
			{"id": "b", "amount": 5, "status": "failed"}]}'),
		pg_temp.ended('{"kind": "paid", "status": "paid", "unknown_word": true, "refunds": [
			{"id": "a", "amount": 5, "status": "pending"}, {"id": "b", "amount": 5, "status": "failed"}]}'),
		'a refund''s status that nobody knows'),
	('get', 200, pg_temp.payment('{"refunds": [{"id": "a", "amount": 5, "status": "Succeeded"}]}'),
		pg_temp.learned('{"unknown_word": true, "refunds": [{"id": "a", "amount": 5, "status": "pending"}]}'),
		'a refund''s status is not folded');
INSERT INTO answers (call, http_status, body, want, name)
	SELECT 'get', 200, pg_temp.payment(jsonb_build_object('refunds', jsonb_build_array(
			jsonb_build_object('id', 'a', 'amount', 5, 'status', 'failed', 'reference', reference))), '{disputes}'),
		pg_temp.learned(jsonb_build_object('refunds', jsonb_build_array(
			jsonb_build_object('id', 'a', 'amount', 5, 'status', 'failed') ||
			CASE WHEN kept THEN jsonb_build_object('reference', reference) ELSE '{}' END))) - 'disputes', name
	FROM (VALUES
		(to_jsonb(repeat('r', 255)), true, 'the longest reference of a refund'),
		(to_jsonb(repeat('r', 256)), false, 'a refund''s reference that is too long'),
		('""', false, 'a refund''s reference that is empty'),
		('"a\nb"', false, 'a refund''s reference with a line break'),
		('"a\u007f"', false, 'a refund''s reference with a control character'),
		('"\u00fc"', false, 'a refund''s reference beyond ASCII'),
		('7', false, 'a refund''s reference that is a number'),
		('{}', false, 'a refund''s reference that is an object')) v(reference, kept, name);
-- a list of so many
CREATE FUNCTION pg_temp.many(n integer) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_agg(jsonb_build_object('id', 'x' || i, 'amount', i, 'status', 'pending')) FROM generate_series(1, n) i
$$;
INSERT INTO answers (call, http_status, body, want, name)
	SELECT call, 200, pg_temp.payment(changes), jsonb '{"kind": "lost", "error": "unusable answer"}', name
	FROM (
		SELECT 'get', jsonb_build_object(list, value), format('%s: %s', list, name)
		FROM unnest(ARRAY['refunds', 'disputes']) list, (VALUES
			(jsonb '{}', 'an object'), ('"none"', 'text'), ('0', 'a number'), ('false', 'false'),
			('[null]', 'null in it'), ('["re_1"]', 'text in it'), ('[[]]', 'an array in it'), ('[{}]', 'nothing of an entry'),
			('[{"amount": 5, "status": "failed"}]', 'no id'),
			('[{"id": 7, "amount": 5, "status": "failed"}]', 'an id that is a number'),
			('[{"id": "a b", "amount": 5, "status": "failed"}]', 'an id with a space'),
			((SELECT jsonb_agg(entry || jsonb_build_object('id', 'd' || i)) FROM generate_series(1, 3) i,
				LATERAL (VALUES (jsonb '{"amount": 1000000000000000000, "status": "failed"}')) e(entry)), 'a sum that no total can have'),
			('[{"id": "a", "status": "failed"}]', 'no amount'),
			('[{"id": "a", "amount": null, "status": "failed"}]', 'null for the amount'),
			('[{"id": "a", "amount": 0, "status": "failed"}]', 'nothing for the amount'),
			('[{"id": "a", "amount": -5, "status": "failed"}]', 'a negative amount'),
			('[{"id": "a", "amount": "5", "status": "failed"}]', 'text for the amount'),
			('[{"id": "a", "amount": 5.5, "status": "failed"}]', 'decimals in the amount'),
			('[{"id": "a", "amount": 1000000000000000001, "status": "failed"}]', 'an absurd amount'),
			('[{"id": "a", "amount": 5, "status": "pending"}, {"id": "b", "amount": 5, "status": "failed"},
				{"id": "a", "amount": 5, "status": "failed"}]', 'one of them twice'),
			('[{"id": "a", "amount": 5, "status": "failed"}, {"id": "b"}]', 'the last one is bad'),
			(pg_temp.many(1001), 'too many')) v(value, name)
		UNION ALL VALUES
			('get', jsonb '{"refunds": [{"id": "a", "amount": 5}]}', 'refunds: no status'),
			('get', '{"refunds": [{"id": "a", "amount": 5, "status": null}]}', 'refunds: null for the status'),
			('get', '{"refunds": [{"id": "a", "amount": 5, "status": 7}]}', 'refunds: a number for the status'),
			('get', '{"refunds": [{"id": "a", "amount": 5, "status": "odd"}], "disputes": 7}', 'refunds: odd, beside bad disputes'),
			('get', '{"disputes": [{"id": "a", "amount": 5, "won": 6}]}', 'disputes: more is won than was taken'),
			('get', '{"disputes": [{"id": "a", "amount": 5, "won": -1}]}', 'disputes: less than nothing is won'),
			('get', '{"disputes": [{"id": "a", "amount": 5, "won": "5"}]}', 'disputes: text for what is won'),
			('register', '{"refunds": {}}', 'an unusable list'),
			('expire', '{"refunds": {}}', 'an unusable list'),
			('capture', '{"refunds": {}}', 'an unusable list'),
			('cancel', '{"disputes": {}}', 'an unusable list')) v(call, changes, name);
-- the lists come with each payment that is read
INSERT INTO answers (call, http_status, body, want, name)
	SELECT call, 200, CASE call WHEN 'find' THEN format('[%s]', body) ELSE body END,
		pg_temp.learned('{"refunds": [{"id": "a", "amount": 5, "status": "failed"}], "disputes": [{"id": "b", "amount": 7, "won": 3}]}'),
		'a payment''s lists'
	FROM unnest(ARRAY['register', 'find', 'get', 'expire', 'capture', 'cancel']) call,
		pg_temp.payment('{"refunds": [{"id": "a", "amount": 5, "status": "failed"}], "disputes": [{"id": "b", "amount": 7, "won": 3}]}') body;

-- an error as the provider writes it
CREATE FUNCTION pg_temp.error(code text) RETURNS text LANGUAGE sql AS $$
	SELECT jsonb_build_object('error', jsonb_build_object('code', $1, 'message', 'Some text'))::text
$$;

-- the answer to a refund
CREATE FUNCTION pg_temp.refund(changes jsonb DEFAULT '{}', without text[] DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
	SELECT ((jsonb '{"id": "re_1", "payment": "pay_1", "reference": "01937a5e-0000-7abc-8000-000000000009", "amount": 300,
		"status": "succeeded"}' || $1) - $2)::text
$$;
CREATE FUNCTION pg_temp.told(changes jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('kind', 'told', 'id', 'pay_1', 'some_refunds', jsonb_build_array(jsonb '{"id": "re_1",
		"reference": "01937a5e-0000-7abc-8000-000000000009", "amount": 300, "status": "succeeded"}' || $1))
$$;
INSERT INTO answers (call, http_status, body, want, name) VALUES
	('refund', 200, pg_temp.refund(), pg_temp.told(), 'succeeded, and nothing of the payment'),
	('refund', 201, pg_temp.refund('{"status": "pending"}'), pg_temp.told('{"status": "pending"}'), 'pending, 201'),
	('refund', 200, pg_temp.refund('{"status": "failed"}'), pg_temp.told('{"status": "failed"}'), 'failed'),
	('refund', 200, pg_temp.refund('{"status": "odd"}'), pg_temp.told('{"status": "pending"}') || '{"unknown_word": true}',
		'a status that nobody knows'),
	('refund', 200, pg_temp.refund('{}', '{payment}'), pg_temp.told() - 'id', 'it need not name the payment'),
	('refund', 200, pg_temp.refund('{"captured": 1, "refunded": 2, "currency": "USD"}'), pg_temp.told(), 'a refund has no totals');
INSERT INTO answers (call, http_status, body, want, name)
	SELECT 'refund', 200, pg_temp.refund(changes::jsonb, without::text[]),
		jsonb_build_object('kind', 'lost', 'error', CASE WHEN about THEN 'answer is about another refund' ELSE 'unusable answer' END), name
	FROM (VALUES
		('{"payment": "pay_2"}', '{}', true, 'of another payment'),
		('{"payment": "PAY_1"}', '{}', true, 'of another payment, in capitals'),
		('{"payment": 7}', '{}', true, 'of a payment that is a number'),
		('{"payment": ""}', '{}', true, 'of a payment without an id'),
		('{"reference": "01937a5e-0000-7abc-8000-000000000001"}', '{}', true, 'the session''s id for its reference'),
		('{"reference": null}', '{}', true, 'null for its reference'),
		('{"reference": 7}', '{}', true, 'a number for its reference'),
		('{}', '{reference}', true, 'no reference'),
		('{"amount": 301}', '{}', true, 'more than was asked for'),
		('{"amount": 299}', '{}', true, 'less than was asked for'),
		('{"status": "odd", "amount": 299}', '{}', true, 'another one, with an odd status'),
		('{"amount": 0}', '{}', false, 'nothing for the amount'),
		('{"amount": -300}', '{}', false, 'a negative amount'),
		('{"amount": "300"}', '{}', false, 'text for the amount'),
		('{}', '{amount}', false, 'no amount'),
		('{}', '{id}', false, 'no id'),
		('{"id": ""}', '{}', false, 'an empty id'),
		('{}', '{status}', false, 'no status'),
		('{"status": []}', '{}', false, 'an array for the status')) v(changes, without, about, name);
INSERT INTO answers (call, http_status, body, want, name) VALUES
	('refund', 200, pg_temp.payment(), '{"kind": "lost", "error": "answer is about another refund"}', 'answered with a payment'),
	('refund', 200, pg_temp.payment('{"amount": 300, "status": "succeeded"}'),
		'{"kind": "lost", "error": "answer is about another refund"}', 'answered with a payment that looks like one'),
	('refund', 200, '[' || pg_temp.refund() || ']', '{"kind": "lost", "error": "unusable answer"}', 'an array'),
	('refund', 200, pg_temp.error('x'), '{"kind": "lost", "error": "unusable answer"}', 'an error with 200'),
	('capture', 200, pg_temp.refund(), '{"kind": "pending", "id": "re_1", "status": "succeeded", "unknown_word": true, "foreign": true,
		"amount": 300}', 'answered with a refund'),
	('refund', 200, '', '{"kind": "lost", "error": "not readable JSON"}', 'nothing'),
	('refund', 204, '', '{"kind": "lost", "error": "HTTP 204"}', 'HTTP 204');

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
INSERT INTO answers (call, http_status, body, want, name)
	SELECT call, http_status, pg_temp.error('some_code'),
		CASE WHEN refused AND call NOT IN ('find', 'get')
				THEN jsonb '{"kind": "refused", "error": "HTTP :n some_code", "message": "Some text"}'
			WHEN refused AND call = 'find' THEN '{"kind": "not_found", "error": "HTTP :n some_code"}'
			WHEN refused THEN '{"kind": "lost", "error": "HTTP :n some_code"}'
			ELSE '{"kind": "lost", "error": "HTTP :n"}' END,
		'HTTP ' || http_status
	FROM unnest(ARRAY['register', 'find', 'get', 'expire', 'capture', 'cancel', 'refund']) call,
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
	('cancel', 409, pg_temp.error('not_cancelable'), '{"kind": "refused", "error": "HTTP :n not_cancelable", "message": "Some text"}', 'too late'),
	('capture', 409, pg_temp.error('not_capturable'), '{"kind": "refused", "error": "HTTP :n not_capturable", "message": "Some text"}', 'too late'),
	('refund', 422, pg_temp.error('amount_too_large'), '{"kind": "refused", "error": "HTTP :n amount_too_large", "message": "Some text"}', 'too much'),
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

INSERT INTO answers (call, http_status, body, want, name)
	SELECT call, v.* FROM unnest(ARRAY['capture', 'cancel', 'refund']) call, (VALUES
		(402, pg_temp.error('declined'), jsonb '{"kind": "refused", "error": "HTTP :n declined", "message": "Some text"}', 'HTTP 402'),
		(404, pg_temp.error('not_found'), '{"kind": "not_found", "error": "HTTP :n not_found"}', 'HTTP 404'),
		(404, '{}', '{"kind": "lost", "error": "HTTP :n, not the provider''s answer"}', 'a 404 that is not the provider''s'),
		(409, '<html>no</html>', '{"kind": "lost", "error": "not readable JSON"}', 'a 409 of something in between'),
		(422, '{"error": "no"}', '{"kind": "lost", "error": "HTTP :n, not the provider''s answer"}', 'an error of another form'),
		(409, pg_temp.error('key_in_use'), '{"kind": "lost", "error": "HTTP :n key_in_use"}', 'the key is in use'),
		(422, pg_temp.error('key_reused'), '{"kind": "lost", "error": "HTTP :n key_reused"}', 'the key came with another body'),
		(409, pg_temp.error('duplicate_request'), '{"kind": "lost", "error": "HTTP :n duplicate_request"}', 'it is there already'),
		(500, pg_temp.error('internal'), '{"kind": "lost", "error": "HTTP :n"}', 'a 5xx in the provider''s form'),
		(503, pg_temp.payment('{"status": "paid", "captured": 1999}'), '{"kind": "lost", "error": "HTTP :n"}', 'a 5xx with a payment'),
		(501, pg_temp.error('not_supported'), '{"kind": "lost", "error": "HTTP :n"}', 'HTTP 501'),
		(401, pg_temp.error('unauthorized'), '{"kind": "unauthorized", "error": "HTTP :n"}', 'HTTP 401'),
		(403, '', '{"kind": "unauthorized", "error": "HTTP :n"}', 'HTTP 403'),
		(429, pg_temp.error('rate_limited'), '{"kind": "throttled", "error": "HTTP :n"}', 'HTTP 429')) v(http_status, body, want, name);

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

-- lists as long as they may be, and a provider that does not name refunds
SELECT is(driver_parse('get', 200, bytes(pg_temp.payment(jsonb_build_object(list, pg_temp.many(1000)))))::jsonb -> list -> 999,
	want, 'a thousand ' || list)
FROM (VALUES ('refunds', jsonb '{"id": "x1000", "amount": 1000, "status": "pending"}'),
	('disputes', '{"id": "x1000", "amount": 1000, "won": 0}')) v(list, want);
SELECT is(driver_parse(call, 200, bytes(CASE call WHEN 'find' THEN format('[%s]', body) ELSE body END), names => false)::jsonb,
	pg_temp.learned('{"refunded": 300, "disputes": [{"id": "b", "amount": 7, "won": 0}]}') - 'refunds', call || ': totals only')
FROM unnest(ARRAY['register', 'find', 'get', 'expire', 'capture', 'cancel']) call,
	pg_temp.payment('{"refunded": 300, "refunds": [{"id": "a", "amount": 300, "status": "odd"}], "disputes": [{"id": "b", "amount": 7}]}') body;
SELECT is(driver_parse('get', 200, bytes(pg_temp.payment('{"refunds": 7}')), names => false)::jsonb, pg_temp.learned('{}') - 'refunds',
	'totals only: refunds are not looked at');
SELECT is(driver_parse('refund', 200, bytes(pg_temp.refund()), names => false)::jsonb, pg_temp.told(), 'totals only: the answer to a refund names it');
SELECT is(driver_parse('get', 200, bytes(pg_temp.payment('{"refunds": [{"id": "a", "amount": 5, "status": "failed"}]}')), names => NULL)::jsonb,
	pg_temp.learned('{"refunds": [{"id": "a", "amount": 5, "status": "failed"}]}'), 'without terms refunds are named');
SELECT is(driver_parse('refund', 200, bytes(pg_temp.refund()), truncated => true)::jsonb,
	'{"kind": "lost", "error": "answer is too long"}', 'a refund that was cut off is not read');

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
SELECT is(count(*) FILTER (WHERE driver_parse('refund', 200, substr(bytes(pg_temp.refund()), 1, n))::jsonb ->> 'kind' <> 'lost'),
	0::bigint, 'no part of a refund is a refund')
FROM generate_series(0, octet_length(pg_temp.refund()) - 1) n;

-- any byte changed: never an error, and never money that is not there
SELECT ok(bool_and(driver_parse('get', 200, set_byte(bytes(pg_temp.payment()), place, value))::jsonb ->> 'kind'
		IN ('pending', 'lost', 'attempt_declined')), 'a changed byte does no harm')
FROM generate_series(0, octet_length(pg_temp.payment()) - 1) place,
	unnest(ARRAY[0, 10, 34, 44, 45, 48, 57, 91, 92, 93, 101, 117, 123, 125, 128, 195, 255]) value;
-- lists are there as a whole or not at all
SELECT ok(bool_and(CASE WHEN answer ->> 'kind' = 'lost' THEN NOT answer ?| ARRAY['refunds', 'some_refunds', 'disputes', 'some_disputes', 'refunded']
			ELSE answer ->> 'kind' = 'paid' AND NOT answer ?| ARRAY['some_refunds', 'some_disputes']
				AND coalesce(jsonb_array_length(answer -> 'refunds'), 2) = 2
				AND coalesce(answer #>> '{refunds,0,status}', 'succeeded') IN ('succeeded', 'pending')
				AND coalesce(jsonb_array_length(answer -> 'disputes'), 1) = 1 END), 'a changed byte in a list does no harm')
FROM pg_temp.payment('{"status": "paid", "refunds": [{"id": "a", "amount": 300, "status": "succeeded"},
		{"id": "b", "amount": 5, "status": "pending"}], "disputes": [{"id": "c", "amount": 7, "won": 3}]}') body,
	strpos(body, '"refunds"') first, generate_series(first, first + 140) place,
	unnest(ARRAY[0, 10, 34, 44, 45, 48, 57, 91, 92, 93, 101, 117, 123, 125, 128, 195, 255]) value,
	LATERAL CAST(driver_parse('get', 200, set_byte(bytes(body), place, value)) AS jsonb) answer;
SELECT ok(bool_and(CASE answer ->> 'kind' WHEN 'lost' THEN NOT answer ? 'some_refunds'
			WHEN 'told' THEN answer #>> '{some_refunds,0,amount}' = '300'
				AND answer #>> '{some_refunds,0,reference}' = '01937a5e-0000-7abc-8000-000000000009'
				AND coalesce(answer ->> 'id', 'pay_1') = 'pay_1' AND NOT answer ?| ARRAY['captured', 'refunded', 'status']
			ELSE false END), 'a changed byte makes no other refund of it')
FROM pg_temp.refund() body, generate_series(0, octet_length(body) - 1) place,
	unnest(ARRAY[0, 10, 34, 44, 45, 48, 57, 91, 92, 93, 101, 117, 123, 125, 128, 195, 255]) value,
	LATERAL CAST(driver_parse('refund', 200, set_byte(bytes(body), place, value)) AS jsonb) answer;

SELECT * FROM finish();
