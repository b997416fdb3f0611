-- Minor units to and from exact text (C55, C56, C58).
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT * FROM no_plan();

-- SQLSTATE and DETAIL of a statement's error
CREATE FUNCTION pg_temp.error(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN SQLSTATE || ' ' || detail;
END
$$;

CREATE TEMP TABLE exponents (code text, exponent integer);
INSERT INTO exponents SELECT code, 0 FROM unnest(string_to_array(
	'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF', ' ')) code;
INSERT INTO exponents SELECT code, 3 FROM unnest(string_to_array('BHD IQD JOD KWD LYD OMR TND', ' ')) code;
INSERT INTO exponents VALUES ('CLF', 4), ('UYW', 4);
INSERT INTO exponents SELECT code, 2 FROM unnest(string_to_array(
	'AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW '
	'CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR '
	'ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV '
	'MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD '
	'SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG', ' ')) code;
SELECT is(payflow.format_amount(12345, code), to_char(12345 / 10.0 ^ exponent, CASE exponent
		WHEN 0 THEN 'FM99999' WHEN 2 THEN 'FM990.00' WHEN 3 THEN 'FM990.000' ELSE 'FM990.0000' END),
	format('%s has %s decimals', code, exponent))
FROM exponents ORDER BY code;
SELECT is(pg_temp.error(format('SELECT payflow.format_amount(1, %L)', code)), 'PT400 invalid_currency', format('"%s" is no currency', code))
FROM unnest(ARRAY['XXX', 'XTS', 'XAU', 'XAG', 'XPT', 'XPD', 'XDR', 'XUA', 'ABC', 'usd', 'US', 'USDX', '', ' USD', '840', 'ÜSD']) code;

SELECT is(payflow.format_amount(amount, currency), want, format('C56: %s %s is %s', amount, currency, want))
FROM (VALUES (80, 'JPY', '80'), (0, 'JPY', '0'), (12345, 'KWD', '12.345'), (1, 'OMR', '0.001'), (1234, 'BHD', '1.234'),
	(12345, 'CLF', '1.2345'), (0, 'EUR', '0.00'), (5, 'EUR', '0.05'), (-5, 'EUR', '-0.05'), (-100, 'EUR', '-1.00'), (-7, 'KRW', '-7'),
	(1000000000000000, 'EUR', '10000000000000.00'), (9223372036854775807, 'EUR', '92233720368547758.07'),
	(-9223372036854775808, 'KWD', '-9223372036854775.808')) v(amount, currency, want);

SELECT is(payflow.parse_amount(value, currency), want, format('"%s" %s is %s', left(value, 30), currency, want))
FROM (VALUES ('19.99', 'EUR', 1999), ('8.20', 'EUR', 820), ('19.9', 'EUR', 1990), ('19', 'EUR', 1900), ('0', 'EUR', 0), ('0.00', 'EUR', 0),
	('007.5', 'EUR', 750), (repeat('0', 100) || '1', 'EUR', 100), ('80', 'JPY', 80), ('1.5', 'KWD', 1500), ('0.0001', 'CLF', 1),
	('10000000000000.00', 'EUR', 1000000000000000), ('1000000000000000', 'JPY', 1000000000000000)) v(value, currency, want);
SELECT is(pg_temp.error(format('SELECT payflow.parse_amount(%L, %L)', value, currency)), 'PT400 invalid_amount',
	format('%s is no amount of %s', to_json(left(value, 30)), currency))
FROM (VALUES ('10.005', 'USD'), ('10.000', 'USD'), ('10.5', 'JPY'), ('10.0', 'JPY'), ('10.', 'JPY'), ('5.', 'USD'), ('.5', 'USD'), ('.', 'USD'),
	('', 'USD'), (' 1', 'USD'), ('1 ', 'USD'), (E'1\n', 'USD'), ('1 000', 'USD'), ('1,5', 'USD'), ('1,000.00', 'USD'), ('1e3', 'USD'),
	('-1', 'USD'), ('+1', 'USD'), ('-0', 'USD'), ('0x10', 'USD'), ('1_000', 'USD'), ('1.2.3', 'USD'), ('$1', 'USD'), ('NaN', 'USD'),
	('Infinity', 'USD'), ('١', 'USD'), ('10000000000000.01', 'USD'), ('1000000000000001', 'JPY'), ('9223372036854775808', 'JPY'),
	('18446744073709551617', 'JPY'), (repeat('9', 1000), 'EUR')) v(value, currency);

SELECT is_empty($$SELECT i FROM generate_series(1, 10000) i
	WHERE payflow.parse_amount(i / 100 || '.' || lpad((i % 100)::text, 2, '0'), 'EUR') <> i$$, 'C58: every value from 0.01 to 100.00');
SELECT is_empty($$SELECT code, amount FROM exponents, unnest(ARRAY[0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10000, 12345, 100500,
		999999999999999, 1000000000000000]) amount
	WHERE payflow.parse_amount(payflow.format_amount(amount, code), code) <> amount$$, 'C56: parse(format(x)) = x in every currency');
SELECT is(payflow.parse_amount(NULL, 'EUR'), NULL, 'null in, null out');

SELECT * FROM finish();
ROLLBACK;
