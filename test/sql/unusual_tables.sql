-- What create() inserts without a statement is checked as by one, and what
-- others have added to the tables counts from the next call on.
-- Nothing is to be worked meanwhile: run with payflow.queues = '', or in a
-- database that payflow.databases does not name.

SET client_min_messages = warning;
CREATE SERVER IF NOT EXISTS sandbox FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1');
UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default';
INSERT INTO payflow.merchants (id, default_provider) VALUES ('unusual_shop', 'sandbox');
RESET client_min_messages;
\pset null '(null)'

CREATE FUNCTION pg_temp.create(order_id text, amount bigint DEFAULT 100, currency text DEFAULT 'EUR') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	name text;
BEGIN
	RETURN (payflow.create($1, $2, $3, merchant => 'unusual_shop', metadata => '{"a": 1}')).status;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME;
	RETURN concat_ws(' ', SQLSTATE, name, SQLERRM);
END
$$;

SELECT pg_temp.create('usual');

-- constraints of others, and the next call after one has failed
ALTER TABLE payflow.orders ADD CONSTRAINT orders_unusual CHECK (amount <> 7101) NOT VALID;
ALTER TABLE payflow.payment_sessions ADD CONSTRAINT sessions_unusual CHECK (amount <> 7102) NOT VALID;
ALTER DOMAIN payflow.currency_code ADD CONSTRAINT currency_unusual CHECK (VALUE <> 'CZK') NOT VALID;
SELECT pg_temp.create('u-1', amount), pg_temp.create('u-1', amount) FROM generate_series(7101, 7103) amount;
SELECT pg_temp.create('u-2', 100, 'CZK');
ALTER TABLE payflow.orders DROP CONSTRAINT orders_unusual;
ALTER TABLE payflow.payment_sessions DROP CONSTRAINT sessions_unusual;
ALTER DOMAIN payflow.currency_code DROP CONSTRAINT currency_unusual;
SELECT pg_temp.create('u-3', 7101), pg_temp.create('u-4', 7102), pg_temp.create('u-5', 100, 'CZK');

-- nothing stays of an order whose session could not be made
BEGIN;
ALTER TABLE payflow.payment_sessions ADD CONSTRAINT sessions_unusual CHECK (amount <> 7106) NOT VALID;
SELECT pg_temp.create('u-6', 7106);
SELECT count(*) FROM payflow.orders WHERE order_id = 'u-6';
ROLLBACK;
SELECT pg_temp.create('u-6', 7106);

-- columns of others
BEGIN;
CREATE DOMAIN unusual AS int DEFAULT 5 CHECK (VALUE < 10);
ALTER TABLE payflow.payment_sessions ADD COLUMN u1 int DEFAULT 7, ADD COLUMN u2 unusual, ADD COLUMN u3 text,
	ADD COLUMN u4 bigint GENERATED ALWAYS AS (amount + 1) STORED;
SELECT pg_temp.create('u-7');
SELECT u1, u2, u3, u4 FROM payflow.payment_sessions WHERE order_id = 'u-7';
ALTER DOMAIN unusual SET DEFAULT 6;
SELECT pg_temp.create('u-8');
SELECT u1, u2, u3, u4 FROM payflow.payment_sessions WHERE order_id = 'u-8';
ALTER DOMAIN unusual SET DEFAULT 10;
SELECT pg_temp.create('u-9');
ALTER DOMAIN unusual DROP DEFAULT;
ALTER DOMAIN unusual ADD CONSTRAINT unusual_there CHECK (VALUE IS NOT NULL) NOT VALID;
SELECT pg_temp.create('u-10');
ALTER TABLE payflow.payment_sessions DROP COLUMN u2, DROP COLUMN u1;
SELECT pg_temp.create('u-11');
ROLLBACK;
BEGIN;
ALTER TABLE payflow.payment_sessions ADD COLUMN u5 text;
UPDATE payflow.payment_sessions SET u5 = '';
ALTER TABLE payflow.payment_sessions ALTER COLUMN u5 SET NOT NULL;
SELECT pg_temp.create('u-12');
ROLLBACK;

-- indexes of others
CREATE INDEX unusual_btree ON payflow.payment_sessions ((amount + 1)) WHERE amount > 7000;
SELECT pg_temp.create('u-13', 7113);
CREATE INDEX unusual_gin ON payflow.payment_sessions USING gin (metadata);
SELECT pg_temp.create('u-14', 7114);
CREATE UNIQUE INDEX unusual_unique ON payflow.payment_sessions (amount) WHERE amount > 7112 AND merchant = 'unusual_shop';
SELECT pg_temp.create('u-15', 7114);
BEGIN;
SET LOCAL enable_seqscan = off;
SELECT order_id FROM payflow.payment_sessions WHERE amount + 1 IN (7114, 7115) AND amount > 7000 AND merchant = 'unusual_shop' ORDER BY 1;
SELECT count(*) FROM payflow.payment_sessions WHERE metadata @> '{"a": 1}' AND order_id IN ('u-13', 'u-14');
ROLLBACK;
DROP INDEX payflow.unusual_btree, payflow.unusual_gin, payflow.unusual_unique;

-- triggers of others, by rows and by statements
CREATE TABLE unusual_log (line int GENERATED ALWAYS AS IDENTITY, said text);
CREATE FUNCTION unusual_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.unusual_log (said) VALUES (concat_ws(' ', TG_TABLE_NAME, TG_WHEN, TG_LEVEL));
	RETURN CASE WHEN NEW.order_id LIKE '%never' THEN NULL ELSE NEW END;
END
$$;
CREATE FUNCTION unusual_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.unusual_log (said) SELECT concat_ws(' ', TG_TABLE_NAME, TG_WHEN, TG_LEVEL, order_id) FROM new_rows;
	RETURN NULL;
END
$$;
CREATE TRIGGER unusual_before BEFORE INSERT ON payflow.payment_sessions FOR EACH ROW EXECUTE FUNCTION unusual_trigger();
CREATE TRIGGER unusual_after AFTER INSERT ON payflow.payment_sessions FOR EACH ROW EXECUTE FUNCTION unusual_trigger();
CREATE TRIGGER unusual_rows AFTER INSERT ON payflow.orders REFERENCING NEW TABLE AS new_rows
	FOR EACH STATEMENT EXECUTE FUNCTION unusual_rows();
SELECT pg_temp.create('u-16');
SELECT pg_temp.create('u-17-never');
SELECT said FROM unusual_log ORDER BY line;
DROP TRIGGER unusual_before ON payflow.payment_sessions;
DROP TRIGGER unusual_after ON payflow.payment_sessions;
DROP TRIGGER unusual_rows ON payflow.orders;
SELECT pg_temp.create('u-18');
SELECT count(*) FROM unusual_log;
DROP TABLE unusual_log;
DROP FUNCTION unusual_trigger(), unusual_rows();

-- so is a session that is updated without a statement
CREATE FUNCTION pg_temp.cancel(order_id text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	name text;
BEGIN
	RETURN (payflow.cancel((SELECT s.session_id FROM payflow.payment_sessions s
		WHERE s.order_id = $1 AND s.merchant = 'unusual_shop'))).status;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME;
	RETURN concat_ws(' ', SQLSTATE, name, SQLERRM);
END
$$;
SELECT pg_temp.create(order_id, 7200 + n) FROM (VALUES (0, 'v-0'), (1, 'v-1'), (2, 'v-2'), (3, 'v-3'), (4, 'v-4'), (5, 'v-5')) v(n, order_id);
SELECT pg_temp.cancel('v-0');
ALTER TABLE payflow.payment_sessions ADD CONSTRAINT sessions_unusual CHECK (status <> 'canceled') NOT VALID;
SELECT pg_temp.cancel('v-1'), pg_temp.cancel('v-1');
ALTER TABLE payflow.payment_sessions DROP CONSTRAINT sessions_unusual;
SELECT pg_temp.cancel('v-1');
ALTER DOMAIN payflow.session_stage ADD CONSTRAINT stage_unusual CHECK (VALUE <> 'none') NOT VALID;
SELECT pg_temp.cancel('v-2');
ALTER DOMAIN payflow.session_stage DROP CONSTRAINT stage_unusual;

-- columns and indexes of others follow it
ALTER TABLE payflow.payment_sessions ADD COLUMN u1 text DEFAULT 'kept', ADD COLUMN u2 text,
	ADD COLUMN u3 boolean GENERATED ALWAYS AS (status = 'canceled') STORED;
UPDATE payflow.payment_sessions SET u2 = repeat('long ', 1000) WHERE order_id LIKE 'v-%';
ALTER TABLE payflow.payment_sessions DROP COLUMN u2;
CREATE INDEX unusual_btree ON payflow.payment_sessions ((status || '!')) WHERE stage = 'none';
SELECT pg_temp.cancel('v-2');
BEGIN;
SET LOCAL enable_seqscan = off;
SELECT order_id, u1, u3, amount, status FROM payflow.payment_sessions
	WHERE status || '!' = 'canceled!' AND stage = 'none' AND order_id LIKE 'v-%' ORDER BY 1;
ROLLBACK;
DROP INDEX payflow.unusual_btree;
ALTER TABLE payflow.payment_sessions DROP COLUMN u1, DROP COLUMN u3;

-- triggers of others are called
CREATE TABLE unusual_log (line int GENERATED ALWAYS AS IDENTITY, said text);
CREATE FUNCTION unusual_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.unusual_log (said) VALUES (concat_ws(' ', TG_NAME, NEW.order_id, OLD.status, NEW.status));
	RETURN NEW;
END
$$;
CREATE TRIGGER unusual_of BEFORE UPDATE OF status ON payflow.payment_sessions FOR EACH ROW EXECUTE FUNCTION unusual_trigger();
CREATE TRIGGER unusual_other BEFORE UPDATE OF description ON payflow.payment_sessions FOR EACH ROW EXECUTE FUNCTION unusual_trigger();
SELECT pg_temp.cancel('v-3');
DROP TRIGGER unusual_of ON payflow.payment_sessions;
CREATE TRIGGER unusual_after AFTER UPDATE ON payflow.payment_sessions FOR EACH ROW EXECUTE FUNCTION unusual_trigger();
SELECT pg_temp.cancel('v-4');
DROP TRIGGER unusual_after ON payflow.payment_sessions;
DROP TRIGGER unusual_other ON payflow.payment_sessions;
SELECT pg_temp.cancel('v-5');
SELECT said FROM unusual_log ORDER BY line;
DROP TABLE unusual_log;
DROP FUNCTION unusual_trigger();

-- either way the rows are the same, and so they are read again
SELECT count(DISTINCT (SELECT jsonb_object_agg(key, value) FROM jsonb_each(to_jsonb(o) || to_jsonb(s))
		WHERE key NOT LIKE '%\_id' AND key NOT LIKE '%\_at'))
	FROM payflow.orders o JOIN payflow.payment_sessions s ON s.session_id = o.active_session_id
	WHERE o.order_id IN ('usual', 'u-16', 'u-18') AND o.merchant = 'unusual_shop';
SELECT count(*) FROM payflow.payment_sessions s
	CROSS JOIN LATERAL payflow.create(s.order_id, s.amount, s.currency, merchant => s.merchant) c
	WHERE s.merchant = 'unusual_shop' AND c.session_id = s.session_id AND c.replayed;
SELECT * FROM payflow.check_invariants();

-- a default that somebody has added calls create() itself, while a row is written
BEGIN;
CREATE FUNCTION unusual_nested() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM payflow.orders WHERE merchant = 'unusual_shop' AND order_id = 'n-inner') THEN
		PERFORM payflow.create('n-inner', 100, 'EUR', merchant => 'unusual_shop');
	END IF;
	RETURN 'x';
END
$$;
ALTER TABLE payflow.payment_sessions ADD unusual_note text;
ALTER TABLE payflow.payment_sessions ALTER unusual_note SET DEFAULT unusual_nested();
SELECT order_id, status, replayed FROM payflow.create('n-outer', 100, 'EUR', merchant => 'unusual_shop');
SELECT order_id, status FROM payflow.payment_sessions WHERE merchant = 'unusual_shop' AND order_id LIKE 'n-%' ORDER BY 1;
ROLLBACK;
