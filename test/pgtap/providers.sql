-- The options of foreign servers and user mappings.
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT * FROM no_plan();

-- what a statement's error says; nothing is left of one that has none
CREATE FUNCTION pg_temp.error(statement text, OUT code text, OUT message text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RAISE EXCEPTION USING ERRCODE = 'ZZ000';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END
$$;
CREATE FUNCTION pg_temp.server(options text) RETURNS text LANGUAGE sql AS $$
	SELECT format('CREATE SERVER options_test FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (%s)', $1)
$$;
CREATE FUNCTION pg_temp.option(name text, value text) RETURNS text LANGUAGE sql AS $$
	SELECT pg_temp.server(format('%s%I %L', CASE WHEN name = 'endpoint' THEN '' ELSE 'endpoint ''https://x'', ' END, name, value))
$$;

-- each option's values
CREATE TEMP TABLE good AS SELECT name, value FROM (VALUES
	('endpoint', '{https://api.example,https://api.example/v2/,http://10.0.0.1:8080,http://[::1]:80}'::text[]),
	('account', '{acct_1,"Some shop"}'),
	('connect_timeout', '{1 ms,5,"5 seconds",1 hour,PT5S,00:00:30}'),
	('timeout', '{1 s,60 minutes}'),
	('poll_intervals', '{1 s,"1 s, 2 minutes,1 day","1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"}'),
	('max_in_flight', '{1,10000}'),
	('max_rps', '{0.001,0.5,100,1000000}'),
	('breaker_failures', '{1,1000000}'),
	('breaker_pause', '{1 s,1 day}'),
	('ca_file', '{/etc/ssl/ca.pem}'),
	('key_validity', '{24 hours,1 mon,P1Y2M,100 years}'),
	('session_ttl', '{1 day}'), ('form_timeout', '{10 minutes}'), ('return_timeout', '{10 minutes}'),
	('authentication_timeout', '{10 minutes}'), ('authorization_ttl', '{7 days}'), ('grace', '{1 hour}'),
	('timezone', '{Europe/Berlin,UTC,Etc/GMT-3}'),
	('lookup', '{none,lagging,exact,Exact}'),
	('refund_names', '{yes,no,No}')) v(name, "values"), unnest("values") value;
SELECT is(e.code, 'ZZ000', format('%s can be "%s"', name, left(value, 30)))
FROM good, pg_temp.error(pg_temp.option(name, value)) e;
CREATE TEMP TABLE bad AS SELECT name, value FROM (VALUES
	('endpoint', ARRAY['', 'x', 'ftp://x', 'https://', 'https://u@x', 'https://u:p@x', 'https://x?a=b', 'https://x#a', 'https://x y',
		'https://ü.example', E'https://x\n']),
	('account', ARRAY['', E'a\nb', repeat('x', 256)]),
	('connect_timeout', '{"",soon,0,-1 s,"61 minutes",1 mon,infinity,1 day -1 h}'),
	('timeout', '{0 s,1:00:01}'),
	('poll_intervals', '{"",",","1 s,","1 s,,2 s","1 s; 2 s","0 s","1 s, -1 s","1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"}'),
	('max_in_flight', '{"",0,10001,-1,x,1 kB,99999999999}'),
	('max_rps', '{"",0,-1,nan,inf,1e7,x}'),
	('breaker_failures', '{0,1.5e9}'),
	('breaker_pause', '{0,25 hours}'),
	('ca_file', '{"",ca.pem,./ca.pem}'),
	('key_validity', '{0,-1 day,"1 mon -1 day",101 years,999999999999 years,x}'),
	('session_ttl', '{0}'), ('form_timeout', '{0}'), ('return_timeout', '{0}'), ('authentication_timeout', '{0}'),
	('authorization_ttl', '{0}'), ('grace', '{0}'),
	('timezone', '{"",Mars/Base,Berlin}'),
	('lookup', '{"",maybe}'),
	('refund_names', '{"",maybe,true,y}')) v(name, "values"), unnest("values") value;
SELECT is((e.code, e.message LIKE format('invalid value for option "%s"%%', name), e.hint LIKE 'It must %.')::text, '(22023,t,t)',
	format('%s cannot be %s', name, to_json(left(value, 30))))
FROM bad, pg_temp.error(pg_temp.option(name, value)) e;
SELECT is((SELECT message FROM pg_temp.error(pg_temp.option('endpoint', 'https://user:pass@x'))), 'invalid value for option "endpoint"',
	'a URL that may hold a secret is not shown');

-- names
SELECT is(e.code || ': ' || e.message, 'HV002: option "endpoint" is required', 'an endpoint is required')
FROM pg_temp.error('CREATE SERVER options_test FOREIGN DATA WRAPPER payflow_sandbox') e;
SELECT is(e.code || ': ' || e.message || ' ' || e.hint, 'HV00D: invalid option "host" Valid options in this context are: '
	'endpoint, account, connect_timeout, timeout, poll_intervals, max_in_flight, max_rps, breaker_failures, breaker_pause, ca_file, '
	'key_validity, session_ttl, form_timeout, return_timeout, authentication_timeout, authorization_ttl, timezone, grace, lookup, refund_names.',
	'the hint names the options of a server')
FROM pg_temp.error(pg_temp.option('host', 'x')) e;
SELECT is(e.code, 'HV00D', 'a secret is no option of a server') FROM pg_temp.error(pg_temp.option('api_key', 'x')) e;
SELECT is(e.code || ': ' || e.message || ' ' || e.hint,
	'HV00D: invalid option "x" There are no valid options in this context.', 'a wrapper has no options')
FROM pg_temp.error('ALTER FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (x ''y'')') e;

CREATE SERVER options_test FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'https://x');
SELECT is(e.code, 'HV002', 'the endpoint cannot be dropped') FROM pg_temp.error('ALTER SERVER options_test OPTIONS (DROP endpoint)') e;
SELECT is(e.code || ': ' || e.message || ' ' || e.hint, 'HV00D: invalid option "password" '
	'Valid options in this context are: api_key, webhook_secret.', 'the hint names the options of a mapping')
FROM pg_temp.error('CREATE USER MAPPING FOR PUBLIC SERVER options_test OPTIONS (password ''x'')') e;

-- secrets
SELECT is((e.code, e.message, e.hint IS NOT NULL AND position(value IN e.hint) = 0)::text,
	format('(22023,"invalid value for option ""%s""",t)', name), format('a bad %s is refused and not shown', name))
FROM (VALUES ('api_key', E'secret\r\nX-Other: value'), ('api_key', 'two secrets'), ('api_key', E'secret\x7f'), ('api_key', 'sécret'),
	('api_key', repeat('s', 4097)), ('webhook_secret', 'v1,whsec_c2VjcmV0'), ('webhook_secret', 'whsec_c2VjcmV0 v1,whsec_c2VjcmV0'),
	('webhook_secret', ' , '), ('webhook_secret', E'whsec_c2VjcmV0\nwhsec_c2VjcmV0')) v(name, value),
	pg_temp.error(format('CREATE USER MAPPING FOR PUBLIC SERVER options_test OPTIONS (%I %L)', name, value)) e;
SELECT is(e.code, '22023', 'an empty secret is refused')
FROM pg_temp.error('CREATE USER MAPPING FOR PUBLIC SERVER options_test OPTIONS (api_key '''')') e;
SELECT lives_ok($$CREATE USER MAPPING FOR PUBLIC SERVER options_test
	OPTIONS (api_key 'sk_test', webhook_secret 'whsec_YWFh, whsec_YmJi plain')$$, 'several webhook secrets');

-- what only superusers may do
CREATE ROLE options_owner;
GRANT USAGE ON FOREIGN DATA WRAPPER payflow_sandbox TO options_owner;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pg_temp TO options_owner;
SET LOCAL ROLE options_owner;
CREATE TEMP TABLE refused AS SELECT name, e.* FROM (VALUES
	('a file', $$CREATE SERVER own FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'https://x', ca_file '/etc/passwd')$$),
	('http', $$CREATE SERVER own FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://x')$$),
	('http to what looks local', $$CREATE SERVER own FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1.x')$$),
	('http in capitals', $$CREATE SERVER own FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'HTTP://x')$$))
	v(name, statement), pg_temp.error(statement) e;
CREATE SERVER own FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
ALTER SERVER own OPTIONS (SET endpoint 'https://x', ADD max_rps '5');
RESET ROLE;
SELECT is(code, '42501', 'only superusers set ' || name) FROM refused;
SELECT is((SELECT srvoptions FROM pg_foreign_server WHERE srvname = 'own'), '{endpoint=https://x,max_rps=5}'::text[],
	'others make servers with https, or on this machine');

SELECT * FROM finish();
ROLLBACK;
