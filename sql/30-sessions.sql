/*
 * Orders and payment sessions.
 *
 * The session row is its own job: a live session has exactly one alarm, and a
 * CHECK says so.  Due work is found through partial indexes over live rows that
 * lead with the provider; a claim writes only columns that no index holds.
 */

CREATE TABLE payflow.orders (
	merchant text COLLATE "C" NOT NULL,
	order_id text COLLATE "C" NOT NULL,
	amount payflow.minor_units NOT NULL,
	currency payflow.currency_code NOT NULL,
	status payflow.order_status NOT NULL DEFAULT 'open',
	active_session_id uuid,
	paid_session_id uuid,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT orders_pkey PRIMARY KEY (merchant, order_id),
	CONSTRAINT orders_order_id_length CHECK (octet_length(order_id) BETWEEN 1 AND 200),
	CONSTRAINT orders_amount_positive CHECK (amount > 0),
	CONSTRAINT orders_receipt_means_not_open CHECK ((status = 'open') = (paid_session_id IS NULL))
) WITH (fillfactor = 60);
COMMENT ON TABLE payflow.orders IS 'the orders that applications asked to have paid; its row is what calls for one order lock';
COMMENT ON COLUMN payflow.orders.merchant IS 'the merchant whose order it is';
COMMENT ON COLUMN payflow.orders.order_id IS 'the application''s own id';
COMMENT ON COLUMN payflow.orders.amount IS 'amount of the newest attempt, in minor units';
COMMENT ON COLUMN payflow.orders.currency IS 'currency of the newest attempt';
COMMENT ON COLUMN payflow.orders.status IS 'open, paid, refunding, partially_refunded, refunded';
COMMENT ON COLUMN payflow.orders.active_session_id IS 'the live session, if any';
COMMENT ON COLUMN payflow.orders.paid_session_id IS 'the session whose money is the order''s receipt, if any';
COMMENT ON COLUMN payflow.orders.created_at IS 'when the order was first asked to be paid';
COMMENT ON COLUMN payflow.orders.updated_at IS 'when the row changed last';

CREATE TABLE payflow.payment_sessions (
	session_id uuid NOT NULL,
	merchant text COLLATE "C" NOT NULL,
	order_id text COLLATE "C" NOT NULL,
	amount payflow.minor_units NOT NULL,
	currency payflow.currency_code NOT NULL,
	provider text COLLATE "C" NOT NULL,
	capture text COLLATE "C" NOT NULL DEFAULT 'automatic',
	status payflow.session_status NOT NULL DEFAULT 'registering',
	stage payflow.session_stage NOT NULL DEFAULT 'register',
	next_action_at timestamptz,
	lease_until timestamptz,
	lease_token bigint,
	attempts integer NOT NULL DEFAULT 0,
	expiring boolean NOT NULL DEFAULT false,
	repeat_due boolean NOT NULL DEFAULT false,
	expires_at timestamptz,
	provider_expires_at timestamptz,
	first_sent_at timestamptz,
	answered_at timestamptz,
	unresolved_since timestamptz,
	redirected_at timestamptz,
	returned_at timestamptz,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	authorized_amount bigint NOT NULL DEFAULT 0,
	captured_amount bigint NOT NULL DEFAULT 0,
	refunded_amount bigint NOT NULL DEFAULT 0,
	disputed_amount bigint NOT NULL DEFAULT 0,
	reversed_amount bigint NOT NULL DEFAULT 0,
	suspense_amount bigint NOT NULL DEFAULT 0,
	reserved_amount bigint NOT NULL DEFAULT 0,
	refundable_amount bigint NOT NULL GENERATED ALWAYS AS
		(GREATEST(captured_amount - refunded_amount - reserved_amount - disputed_amount, 0::bigint)) STORED,
	cancel_lost boolean NOT NULL DEFAULT false,
	provider_payment_id text COLLATE "C",
	provider_status text,
	redirect_url text,
	failure_code text COLLATE "C",
	failure_message text,
	endpoint text,
	account text,
	return_url text,
	description text,
	customer jsonb,
	metadata jsonb,
	receipt jsonb,
	return_params jsonb,
	CONSTRAINT payment_sessions_pkey PRIMARY KEY (session_id),
	CONSTRAINT payment_sessions_order_fkey FOREIGN KEY (merchant, order_id) REFERENCES payflow.orders (merchant, order_id),
	CONSTRAINT payment_sessions_amount_positive CHECK (amount > 0),
	CONSTRAINT payment_sessions_capture_known CHECK (capture IN ('automatic', 'manual')),
	CONSTRAINT payment_sessions_provider_length CHECK (octet_length(provider) BETWEEN 1 AND 63),
	CONSTRAINT payment_sessions_live_has_alarm CHECK (
		CASE WHEN status IN ('registering', 'registered', 'unknown', 'authorized', 'canceling')
			THEN next_action_at IS NOT NULL AND isfinite(next_action_at)
			ELSE next_action_at IS NULL AND expires_at IS NULL AND NOT expiring END),
	CONSTRAINT payment_sessions_stage_fits_status CHECK (
		CASE status
			WHEN 'registering' THEN stage = 'register'
			WHEN 'unknown' THEN stage = 'register'
			WHEN 'registered' THEN stage IN ('form', 'return', 'authentication', 'bank')
			WHEN 'authorized' THEN stage = 'capture'
			WHEN 'canceling' THEN stage IN ('register', 'reverse')
			ELSE stage = 'none' END),
	CONSTRAINT payment_sessions_lease_has_token CHECK ((lease_until IS NULL) = (lease_token IS NULL)),
	CONSTRAINT payment_sessions_attempts_not_negative CHECK (attempts >= 0),
	CONSTRAINT payment_sessions_unknown_was_sent CHECK (status <> 'unknown' OR first_sent_at IS NOT NULL),
	CONSTRAINT payment_sessions_amounts_not_negative CHECK (
		authorized_amount >= 0 AND captured_amount >= 0 AND refunded_amount >= 0
		AND disputed_amount >= 0 AND reversed_amount >= 0 AND suspense_amount >= 0 AND reserved_amount >= 0),
	CONSTRAINT payment_sessions_failure_code_known CHECK (failure_code IN (
		'declined', 'expired', 'rejected', 'not_found', 'provider_error', 'insufficient_funds',
		'authentication_failed', 'canceled_by_provider', 'amount_mismatch')),
	CONSTRAINT payment_sessions_failed_says_why CHECK (status <> 'failed' OR failure_code IS NOT NULL),
	CONSTRAINT payment_sessions_completed_is_captured CHECK (status <> 'completed' OR captured_amount > 0 OR reversed_amount > 0),
	CONSTRAINT payment_sessions_lost_cancel_status CHECK (NOT cancel_lost OR status IN ('canceling', 'completed'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE payflow.payment_sessions IS 'one row an attempt to pay an order; a live row is its own job';
COMMENT ON COLUMN payflow.payment_sessions.session_id IS 'payflow''s id: a version 7 UUID whose rand_a bits are the routing slot of (merchant, order_id)';
COMMENT ON COLUMN payflow.payment_sessions.merchant IS 'the merchant whose payment it is';
COMMENT ON COLUMN payflow.payment_sessions.order_id IS 'the application''s own id of the order';
COMMENT ON COLUMN payflow.payment_sessions.amount IS 'the amount to pay, in minor units';
COMMENT ON COLUMN payflow.payment_sessions.currency IS 'ISO 4217 code';
COMMENT ON COLUMN payflow.payment_sessions.provider IS 'the foreign server that takes the payment';
COMMENT ON COLUMN payflow.payment_sessions.capture IS 'automatic, or manual: authorized first and captured by a call';
COMMENT ON COLUMN payflow.payment_sessions.status IS 'where the money is';
COMMENT ON COLUMN payflow.payment_sessions.stage IS 'what is being waited for';
COMMENT ON COLUMN payflow.payment_sessions.next_action_at IS 'the alarm: when a worker acts next; null when final';
COMMENT ON COLUMN payflow.payment_sessions.lease_until IS 'until when the worker that took the row has it for itself';
COMMENT ON COLUMN payflow.payment_sessions.lease_token IS 'names the taking: an answer that proves an absence counts only with it';
COMMENT ON COLUMN payflow.payment_sessions.attempts IS 'times it was taken since its last step forward';
COMMENT ON COLUMN payflow.payment_sessions.expiring IS 'its time is over and an answer fetched since says that nothing was paid: the provider is to be told to expire it';
COMMENT ON COLUMN payflow.payment_sessions.repeat_due IS 'the provider does not know it: Register is to be sent again with its key';
COMMENT ON COLUMN payflow.payment_sessions.expires_at IS 'the end of the running timer (form, return, authentication), if any';
COMMENT ON COLUMN payflow.payment_sessions.provider_expires_at IS 'when the payment lapses at the provider by itself';
COMMENT ON COLUMN payflow.payment_sessions.first_sent_at IS 'from when on Register may have reached the provider; null: surely never sent';
COMMENT ON COLUMN payflow.payment_sessions.answered_at IS 'when the question of the newest usable answer was sent';
COMMENT ON COLUMN payflow.payment_sessions.unresolved_since IS 'since when the provider''s state of it cannot be learned';
COMMENT ON COLUMN payflow.payment_sessions.redirected_at IS 'when the payer was sent to the payment page';
COMMENT ON COLUMN payflow.payment_sessions.returned_at IS 'when the payer came back';
COMMENT ON COLUMN payflow.payment_sessions.created_at IS 'when it was created';
COMMENT ON COLUMN payflow.payment_sessions.updated_at IS 'when anything that callers can see changed last';
COMMENT ON COLUMN payflow.payment_sessions.authorized_amount IS 'what the payer''s card was authorized for, also after the capture, in minor units; 0 once the authorization was given up';
COMMENT ON COLUMN payflow.payment_sessions.captured_amount IS 'taken and booked as receipt money, in minor units';
COMMENT ON COLUMN payflow.payment_sessions.refunded_amount IS 'receipt money given back, in minor units';
COMMENT ON COLUMN payflow.payment_sessions.disputed_amount IS 'receipt money taken back through disputes, in minor units';
COMMENT ON COLUMN payflow.payment_sessions.reversed_amount IS 'receipt money whose capture failed after all, in minor units';
COMMENT ON COLUMN payflow.payment_sessions.suspense_amount IS 'unexpected money in the session''s currency that waits for a decision, in minor units';
COMMENT ON COLUMN payflow.payment_sessions.reserved_amount IS 'refunds of ours that are pending, sent or unknown, in minor units';
COMMENT ON COLUMN payflow.payment_sessions.refundable_amount IS 'what a refund may still give back, in minor units';
COMMENT ON COLUMN payflow.payment_sessions.cancel_lost IS 'it was paid while it was being canceled: the money goes back';
COMMENT ON COLUMN payflow.payment_sessions.provider_payment_id IS 'the provider''s id of the payment';
COMMENT ON COLUMN payflow.payment_sessions.provider_status IS 'the provider''s own word for its state, as last seen';
COMMENT ON COLUMN payflow.payment_sessions.redirect_url IS 'where to send the payer';
COMMENT ON COLUMN payflow.payment_sessions.failure_code IS 'why it failed, from payflow''s own list; also the newest reason while another card or another capture can be tried';
COMMENT ON COLUMN payflow.payment_sessions.failure_message IS 'the provider''s text for it';
COMMENT ON COLUMN payflow.payment_sessions.endpoint IS 'the provider''s address as frozen when Register was first sent';
COMMENT ON COLUMN payflow.payment_sessions.account IS 'the server''s account option as frozen when Register was first sent';
COMMENT ON COLUMN payflow.payment_sessions.return_url IS 'where the provider sends the payer back to';
COMMENT ON COLUMN payflow.payment_sessions.description IS 'what the payer pays for, in words; sent where the driver has a place for it';
COMMENT ON COLUMN payflow.payment_sessions.customer IS 'id, email, phone, ip, locale of the payer, as given';
COMMENT ON COLUMN payflow.payment_sessions.metadata IS 'the application''s own data; never sent anywhere';
COMMENT ON COLUMN payflow.payment_sessions.receipt IS 'fiscal receipt data that goes to the provider as it is';
COMMENT ON COLUMN payflow.payment_sessions.return_params IS 'what came with the payer''s return';

CREATE UNIQUE INDEX ux_payment_active_order ON payflow.payment_sessions (merchant, order_id)
	WHERE status IN ('registering', 'registered', 'unknown', 'authorized', 'canceling');
COMMENT ON INDEX payflow.ux_payment_active_order IS 'one live session an order, also for those who insert around the API';
CREATE INDEX ix_payment_order ON payflow.payment_sessions (merchant, order_id, created_at);
COMMENT ON INDEX payflow.ix_payment_order IS 'all sessions of an order';
CREATE INDEX ix_payment_due_register ON payflow.payment_sessions (provider, next_action_at)
	WHERE status = 'registering';
COMMENT ON INDEX payflow.ix_payment_due_register IS 'queue payments: sessions to register';
CREATE INDEX ix_payment_due_status ON payflow.payment_sessions (provider, next_action_at)
	WHERE status IN ('registered', 'unknown', 'authorized', 'canceling') AND NOT expiring;
COMMENT ON INDEX payflow.ix_payment_due_status IS 'queue status: sessions to ask about';
CREATE INDEX ix_payment_due_expire ON payflow.payment_sessions (provider, next_action_at)
	WHERE expiring;
COMMENT ON INDEX payflow.ix_payment_due_expire IS 'queue money: sessions to expire at the provider';

CREATE FUNCTION payflow.orders_guard() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'payflow_orders_guard';
COMMENT ON FUNCTION payflow.orders_guard() IS 'keeps an order''s key and its receipt from being changed';
CREATE FUNCTION payflow.session_guard() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'payflow_session_guard';
COMMENT ON FUNCTION payflow.session_guard() IS
	'refuses transitions that state_machine does not list and changes of what never changes; tells waiters and workers at commit';
CREATE FUNCTION payflow.refuse_change() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'payflow_refuse_change';
COMMENT ON FUNCTION payflow.refuse_change() IS 'refuses the statement: money history is only ever added to';

CREATE TRIGGER orders_guard BEFORE UPDATE ON payflow.orders
	FOR EACH ROW EXECUTE FUNCTION payflow.orders_guard();
COMMENT ON TRIGGER orders_guard ON payflow.orders IS 'the key never changes; a receipt is never taken away';
CREATE TRIGGER orders_no_delete BEFORE DELETE ON payflow.orders
	FOR EACH ROW EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER orders_no_delete ON payflow.orders IS 'orders are never deleted';
CREATE TRIGGER orders_no_truncate BEFORE TRUNCATE ON payflow.orders
	FOR EACH STATEMENT EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER orders_no_truncate ON payflow.orders IS 'orders are never deleted';

CREATE TRIGGER session_guard BEFORE INSERT OR UPDATE ON payflow.payment_sessions
	FOR EACH ROW EXECUTE FUNCTION payflow.session_guard();
COMMENT ON TRIGGER session_guard ON payflow.payment_sessions IS 'only the transitions of state_machine; fixed columns stay';
CREATE TRIGGER sessions_no_delete BEFORE DELETE ON payflow.payment_sessions
	FOR EACH ROW EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER sessions_no_delete ON payflow.payment_sessions IS 'sessions are never deleted';
CREATE TRIGGER sessions_no_truncate BEFORE TRUNCATE ON payflow.payment_sessions
	FOR EACH STATEMENT EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER sessions_no_truncate ON payflow.payment_sessions IS 'sessions are never deleted';

CREATE TABLE payflow.provider_refs (
	provider text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL,
	ref text COLLATE "C" NOT NULL,
	session_id uuid NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT provider_refs_pkey PRIMARY KEY (provider, kind, ref),
	CONSTRAINT provider_refs_kind_form CHECK (kind ~ '^[a-z_]{1,40}$'),
	CONSTRAINT provider_refs_ref_length CHECK (octet_length(ref) BETWEEN 1 AND 255),
	CONSTRAINT provider_refs_session_fkey FOREIGN KEY (session_id) REFERENCES payflow.payment_sessions (session_id)
);
COMMENT ON TABLE payflow.provider_refs IS 'every id by which a provider may name a payment: one id names one session';
COMMENT ON COLUMN payflow.provider_refs.provider IS 'the foreign server';
COMMENT ON COLUMN payflow.provider_refs.kind IS 'what the id names: payment, …';
COMMENT ON COLUMN payflow.provider_refs.ref IS 'the provider''s id';
COMMENT ON COLUMN payflow.provider_refs.session_id IS 'the session that it names';
COMMENT ON COLUMN payflow.provider_refs.created_at IS 'when it was learned';
CREATE INDEX ix_provider_refs_session ON payflow.provider_refs (session_id);
COMMENT ON INDEX payflow.ix_provider_refs_session IS 'all ids of a session';
