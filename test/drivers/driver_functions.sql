-- The functions of driver_functions.c.  psql variable module: where it lies.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;

CREATE FUNCTION driver_build(call text, order_id text DEFAULT 'A-1', amount bigint DEFAULT 1999,
		currency text DEFAULT 'EUR', manual boolean DEFAULT false, return_url text DEFAULT NULL,
		receipt text DEFAULT NULL, payment_id text DEFAULT 'pay_1',
		endpoint text DEFAULT 'https://api.example/x', api_key text DEFAULT 'sk_1',
		operation boolean DEFAULT false, operation_amount bigint DEFAULT 300, operation_receipt text DEFAULT NULL,
		key text DEFAULT 'key-1') RETURNS bytea
	LANGUAGE c AS :'module';
CREATE FUNCTION driver_parse(call text, http_status integer, body bytea, exact boolean DEFAULT false,
		truncated boolean DEFAULT false, retry_after bigint DEFAULT -1, names boolean DEFAULT true) RETURNS text
	LANGUAGE c AS :'module';
CREATE FUNCTION names_refunds(refund_names text) RETURNS boolean LANGUAGE c AS :'module';
CREATE FUNCTION json_text(bytea) RETURNS text LANGUAGE c AS :'module';
CREATE FUNCTION json_int(bytea) RETURNS text LANGUAGE c AS :'module';
CREATE FUNCTION json_string(bytea) RETURNS text LANGUAGE c AS :'module';
CREATE FUNCTION json_message(bytea, integer) RETURNS text LANGUAGE c AS :'module';
CREATE FUNCTION url_kind(text) RETURNS text LANGUAGE c AS :'module';
CREATE FUNCTION percent_encoded(text) RETURNS text LANGUAGE c AS :'module';
CREATE FUNCTION wire_time(text) RETURNS timestamptz LANGUAGE c AS :'module';
CREATE FUNCTION slot_of(merchant text, order_id text) RETURNS integer LANGUAGE c AS :'module';
CREATE FUNCTION new_uuid(slot integer) RETURNS uuid LANGUAGE c AS :'module';

-- bytes of text, as UTF-8 whatever the database's encoding is
CREATE FUNCTION bytes(text) RETURNS bytea LANGUAGE sql AS $$ SELECT convert_to($1, 'UTF8') $$;
