-- Amounts: exact decimal text to and from minor units (F3, C55, C56, C58).

-- the currency's own number of digits
SELECT v.currency, v.amount, payflow.format_amount(v.amount, v.currency)
FROM (VALUES ('JPY', 80), ('KRW', 5000), ('CLP', 990), ('EUR', 1999), ('USD', 5), ('KWD', 12345), ('OMR', 1),
	('BHD', 1234), ('CLF', 12345), ('EUR', 0), ('EUR', 1000000000000000), ('EUR', -150)) v(currency, amount);
SELECT v.currency, v.value, payflow.parse_amount(v.value, v.currency)
FROM (VALUES ('JPY', '80'), ('EUR', '19.99'), ('EUR', '8.20'), ('EUR', '19.9'), ('EUR', '19'), ('EUR', '0.01'),
	('KWD', '12.345'), ('OMR', '0.001'), ('CLF', '1.2345'), ('USD', '007.10'), ('EUR', '10000000000000')) v(currency, value);

-- C58: every cent from 0.01 to 100.00 is exact, both ways
SELECT count(*) AS values, count(*) FILTER (WHERE payflow.parse_amount(t.value, 'USD') = i
		AND payflow.format_amount(i, 'USD') = t.value) AS exact
FROM generate_series(1, 10000) i, LATERAL (SELECT (i / 100) || '.' || lpad((i % 100)::text, 2, '0')) t(value);
-- parse(format(x)) = x for each number of digits
SELECT c AS currency, count(*) FILTER (WHERE payflow.parse_amount(payflow.format_amount(x, c), c) <> x) AS wrong
FROM unnest(ARRAY['JPY', 'EUR', 'KWD', 'CLF']) c, generate_series(0, 1000000000000000, 999999999989) x
GROUP BY c ORDER BY c;

-- errors
SELECT payflow.parse_amount('10.005', 'USD');
\echo :LAST_ERROR_SQLSTATE
SELECT payflow.parse_amount('10.5', 'JPY');
SELECT payflow.parse_amount('1e3', 'EUR');
SELECT payflow.parse_amount('-1', 'EUR');
SELECT payflow.parse_amount('', 'EUR');
SELECT payflow.parse_amount('1.', 'EUR');
SELECT payflow.parse_amount('.5', 'EUR');
SELECT payflow.parse_amount(' 1', 'EUR');
SELECT payflow.parse_amount('1,00', 'EUR');
SELECT payflow.parse_amount('99999999999999999999999', 'EUR');
SELECT payflow.parse_amount('NaN', 'EUR');
SELECT payflow.parse_amount('1', 'XXX');
SELECT payflow.parse_amount('1', 'eur');
SELECT payflow.format_amount(1, 'EURO');
SELECT payflow.format_amount(NULL, 'EUR') IS NULL AS "null in, null out";
