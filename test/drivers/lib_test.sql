-- What drivers are made of: JSON, URLs, times, ids.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
SET timezone = 'UTC';
SELECT * FROM no_plan();

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
