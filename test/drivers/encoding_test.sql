-- The driver in databases of other encodings than UTF8: LATIN1 and SQL_ASCII.
-- This file is ASCII; texts beyond it are made of bytes.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
SET client_encoding = sql_ascii;
SELECT * FROM no_plan();

SELECT getdatabaseencoding() = 'LATIN1' AS latin1 \gset

CREATE FUNCTION pg_temp.answer(message bytea, status text DEFAULT 'paid') RETURNS bytea LANGUAGE sql AS $$
	SELECT bytes('{"id":"pay_1","captured":1999,"status":"') || bytes($2) || bytes('","decline_code":"') || $1
		|| bytes('","redirect_url":"https://pay.example/') || $1 || bytes('"}')
$$;
-- u umlaut, euro sign, a Cyrillic letter: LATIN1 has the first
CREATE FUNCTION pg_temp.parsed(answer bytea, OUT kind text, OUT status bytea, OUT url bytea, OUT captured text)
LANGUAGE sql AS $$
	SELECT r ->> 'kind', convert_to(r ->> 'status', getdatabaseencoding()), convert_to(r ->> 'url', getdatabaseencoding()), r ->> 'captured'
	FROM (SELECT driver_parse('get', 200, $1)::jsonb) x(r)
$$;
CREATE TEMP TABLE texts (name text, raw bytea, escaped bytea, in_latin1 bytea, message bytea);
INSERT INTO texts VALUES
	('a letter of LATIN1', '\xc3bc', bytes('\u00fc'), '\xfc', '\xfc'),
	('a euro sign', '\xe282ac', bytes('\u20AC'), NULL, bytes('?')),
	('Cyrillic before ASCII', '\xd0966162', bytes('\u0416ab'), NULL, bytes('?ab')),
	('an emoji', '\xf09f9880', bytes('\ud83d\ude00'), NULL, bytes('?'));

SELECT is(p.kind || p.captured, 'paid1999', 'money is learned beside ' || name)
FROM texts, unnest(ARRAY[raw, escaped]) form, pg_temp.parsed(pg_temp.answer(form)) p;
SELECT is(p.url, bytes('https://pay.example/') || CASE WHEN :'latin1' THEN in_latin1 ELSE raw END, 'a URL is used only as it is: ' || name)
FROM texts, unnest(ARRAY[raw, escaped]) form, pg_temp.parsed(pg_temp.answer(form)) p;
SELECT is(convert_to(json_message(bytes('{"s":"') || form || bytes('"}'), 100), getdatabaseencoding()),
	CASE WHEN :'latin1' THEN message ELSE raw END, 'a message has ? where it must: ' || name)
FROM texts, unnest(ARRAY[raw, escaped]) form;
SELECT is(json_string(bytes('{"s":"') || form || bytes('"}')) = 'unusable', :'latin1' AND in_latin1 IS NULL,
	'text that does not fit is unusable: ' || name)
FROM texts, unnest(ARRAY[raw, escaped]) form;
SELECT is(driver_parse('get', 200, pg_temp.answer('x', 'neu'))::jsonb ->> 'unknown_word', 'true', 'a status that nobody knows');

-- requests are UTF-8
SELECT is(position(bytes('"order":"') || want || bytes('",')
		IN driver_build('register', order_id => convert_from(bytes, getdatabaseencoding()))) > 0,
	true, 'an order id in the request: ' || name)
FROM (VALUES
	('a letter', CASE WHEN :'latin1' THEN '\xfc' ELSE '\xc3bc' END::bytea, '\xc3bc'::bytea),
	('a letter in ASCII', CASE WHEN :'latin1' THEN '\x61fc62' ELSE '\x61c3bc62' END::bytea, '\x61c3bc62'::bytea),
	('bytes that are no UTF-8', CASE WHEN :'latin1' THEN '\x3f623f' ELSE '\xff62c3' END::bytea, bytes('?b?'))) v(name, bytes, want);

SELECT * FROM finish();
