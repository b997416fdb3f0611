/*
 * Types that calls return and domains that tables share.
 *
 * Words with a fixed list are domains over text and not enums: an enum cannot
 * gain a value and be used in an index within one ALTER EXTENSION UPDATE.
 */

CREATE DOMAIN payflow.session_status AS pg_catalog.text COLLATE pg_catalog."C"
	CONSTRAINT session_status_known CHECK (VALUE OPERATOR(pg_catalog.=) ANY (ARRAY[
		'registering', 'registered', 'unknown', 'authorized', 'canceling',
		'completed', 'failed', 'canceled']::pg_catalog.text[]));
COMMENT ON DOMAIN payflow.session_status IS
	'where the money of a payment session is; the view state_machine lists the moves between them';

CREATE DOMAIN payflow.session_stage AS pg_catalog.text COLLATE pg_catalog."C"
	CONSTRAINT session_stage_known CHECK (VALUE OPERATOR(pg_catalog.=) ANY (ARRAY[
		'register', 'form', 'return', 'authentication', 'bank', 'capture', 'reverse', 'none']::pg_catalog.text[]));
COMMENT ON DOMAIN payflow.session_stage IS 'what a payment session is waiting for';

CREATE DOMAIN payflow.order_status AS pg_catalog.text COLLATE pg_catalog."C"
	CONSTRAINT order_status_known CHECK (VALUE OPERATOR(pg_catalog.=) ANY (ARRAY[
		'open', 'paid', 'refunding', 'partially_refunded', 'refunded']::pg_catalog.text[]));
COMMENT ON DOMAIN payflow.order_status IS 'what has become of an order''s money';

CREATE DOMAIN payflow.minor_units AS pg_catalog.int8
	CONSTRAINT minor_units_range CHECK (VALUE OPERATOR(pg_catalog.>=) 0::pg_catalog.int8
		AND VALUE OPERATOR(pg_catalog.<=) 1000000000000000::pg_catalog.int8);
COMMENT ON DOMAIN payflow.minor_units IS
	'an amount of money in minor units of its currency, 0 to 10^15';

CREATE DOMAIN payflow.currency_code AS pg_catalog.text COLLATE pg_catalog."C"
	CONSTRAINT currency_code_form CHECK (VALUE OPERATOR(pg_catalog.~) '^[A-Z]{3}$'::pg_catalog.text);
COMMENT ON DOMAIN payflow.currency_code IS 'an ISO 4217 currency code in upper case';

CREATE TYPE payflow.payment AS (
	session_id uuid,
	merchant text,
	order_id text,
	amount bigint,
	currency text,
	provider text,
	status payflow.session_status,
	stage text,
	paid boolean,
	redirect_url text,
	provider_payment_id text,
	authorized_amount bigint,
	captured_amount bigint,
	refunded_amount bigint,
	disputed_amount bigint,
	suspense_amount bigint,
	refundable_amount bigint,
	order_status text,
	failure_code text,
	failure_message text,
	next_action_at timestamptz,
	expires_at timestamptz,
	created_at timestamptz,
	updated_at timestamptz,
	replayed boolean,
	http_status integer
);
COMMENT ON TYPE payflow.payment IS 'the state of one payment, as every payment call returns it';
COMMENT ON COLUMN payflow.payment.session_id IS 'payflow''s id of the payment session: a version 7 UUID that carries the routing slot of its order';
COMMENT ON COLUMN payflow.payment.merchant IS 'the merchant whose payment it is';
COMMENT ON COLUMN payflow.payment.order_id IS 'the application''s own id of the order';
COMMENT ON COLUMN payflow.payment.amount IS 'the amount to pay, in minor units of the currency';
COMMENT ON COLUMN payflow.payment.currency IS 'ISO 4217 code, upper case';
COMMENT ON COLUMN payflow.payment.provider IS 'the foreign server that takes the payment';
COMMENT ON COLUMN payflow.payment.status IS 'where the money is: registering, registered, unknown, authorized, canceling, completed, failed, canceled';
COMMENT ON COLUMN payflow.payment.stage IS 'what the session waits for: register, form, return, authentication, bank, capture, reverse, none';
COMMENT ON COLUMN payflow.payment.paid IS 'ship on this and on nothing else: the order''s receipt is this session''s, and its money has not gone back';
COMMENT ON COLUMN payflow.payment.redirect_url IS 'where to send the payer, once the payment is registered';
COMMENT ON COLUMN payflow.payment.provider_payment_id IS 'the provider''s id of the payment';
COMMENT ON COLUMN payflow.payment.authorized_amount IS 'what the payer''s card was authorized for, also after the capture, in minor units; 0 once the authorization was given up';
COMMENT ON COLUMN payflow.payment.captured_amount IS 'taken from the payer and booked, in minor units';
COMMENT ON COLUMN payflow.payment.refunded_amount IS 'given back to the payer, in minor units';
COMMENT ON COLUMN payflow.payment.disputed_amount IS 'taken back through disputes, in minor units';
COMMENT ON COLUMN payflow.payment.suspense_amount IS 'unexpected money of this session that waits for a decision, in minor units';
COMMENT ON COLUMN payflow.payment.refundable_amount IS 'what a refund may still give back, in minor units';
COMMENT ON COLUMN payflow.payment.order_status IS 'open, paid, refunding, partially_refunded, refunded';
COMMENT ON COLUMN payflow.payment.failure_code IS 'why it failed, from payflow''s own list; also the newest reason while another card or another capture can be tried';
COMMENT ON COLUMN payflow.payment.failure_message IS 'the provider''s own text for the failure';
COMMENT ON COLUMN payflow.payment.next_action_at IS 'the alarm: when payflow acts next by itself; null when final';
COMMENT ON COLUMN payflow.payment.expires_at IS 'the end of the running timer, if any';
COMMENT ON COLUMN payflow.payment.created_at IS 'when the session was created';
COMMENT ON COLUMN payflow.payment.updated_at IS 'when anything about it changed last';
COMMENT ON COLUMN payflow.payment.replayed IS 'true when the call found what it asked for already there';
COMMENT ON COLUMN payflow.payment.http_status IS 'what an HTTP handler should answer: 200 settled, 202 in progress (also its capture) or not answered in time, 403 wrong code';

CREATE TYPE payflow.refund AS (
	refund_id uuid,
	session_id uuid,
	amount bigint,
	currency text,
	status text,
	provider_refund_id text,
	failure_code text,
	failure_message text,
	replayed boolean,
	http_status integer,
	created_at timestamptz,
	updated_at timestamptz
);
COMMENT ON TYPE payflow.refund IS 'the state of one refund, as every refund call returns it';
COMMENT ON COLUMN payflow.refund.refund_id IS 'payflow''s id of the refund; the provider knows it by this id';
COMMENT ON COLUMN payflow.refund.session_id IS 'the session whose money goes back';
COMMENT ON COLUMN payflow.refund.amount IS 'in minor units of the currency';
COMMENT ON COLUMN payflow.refund.currency IS 'ISO 4217 code, upper case';
COMMENT ON COLUMN payflow.refund.status IS 'pending, succeeded, failed, unknown (its result cannot be learned: a person may decide)';
COMMENT ON COLUMN payflow.refund.provider_refund_id IS 'the provider''s id of the refund';
COMMENT ON COLUMN payflow.refund.failure_code IS 'why it failed: refused, failed_at_provider, settled (by a person), not_needed (its money had gone back otherwise)';
COMMENT ON COLUMN payflow.refund.failure_message IS 'the provider''s own text for the failure';
COMMENT ON COLUMN payflow.refund.replayed IS 'true when the call found what it asked for already there';
COMMENT ON COLUMN payflow.refund.http_status IS 'what an HTTP handler should answer: 200 settled, 202 in progress or unknown';
COMMENT ON COLUMN payflow.refund.created_at IS 'when it was asked for';
COMMENT ON COLUMN payflow.refund.updated_at IS 'when its status changed last';
