/*
 * Operations: each command that moves money after Register is a row, which is
 * its own job as the session's row is; and what the provider did of itself.
 */

CREATE TABLE payflow.operations (
	operation_id uuid NOT NULL,
	session_id uuid NOT NULL,
	merchant text COLLATE "C" NOT NULL,
	order_id text COLLATE "C" NOT NULL,
	provider text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL,
	status text COLLATE "C" NOT NULL DEFAULT 'pending',
	amount bigint,
	currency payflow.currency_code NOT NULL,
	source text COLLATE "C",
	limit_amount bigint,
	idempotency_key text COLLATE "C" NOT NULL,
	next_action_at timestamptz,
	lease_until timestamptz,
	lease_token bigint,
	attempts integer NOT NULL DEFAULT 0,
	first_sent_at timestamptz,
	ask_due boolean NOT NULL DEFAULT false,
	unresolved_since timestamptz,
	provider_ref text COLLATE "C",
	total_before bigint,
	failure_code text COLLATE "C",
	failure_message text,
	reason text,
	receipt jsonb,
	discrepancy_id bigint,
	created_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
	settled_by text,
	note text,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT operations_pkey PRIMARY KEY (operation_id),
	CONSTRAINT operations_session_fkey FOREIGN KEY (session_id) REFERENCES payflow.payment_sessions (session_id),
	CONSTRAINT operations_kind_known CHECK (kind IN ('capture', 'reverse', 'void', 'refund', 'accept', 'after_look')),
	CONSTRAINT operations_status_known CHECK (status IN ('pending', 'sent', 'succeeded', 'failed', 'unknown')),
	CONSTRAINT operations_amount_positive CHECK (amount > 0),
	CONSTRAINT operations_amount_where_money CHECK ((kind IN ('capture', 'refund', 'accept')) = (amount IS NOT NULL)),
	CONSTRAINT operations_source_of_refund CHECK ((kind = 'refund') = (source IS NOT NULL) AND source IN ('receipt', 'suspense')),
	CONSTRAINT operations_within_limit CHECK (amount <= limit_amount),
	CONSTRAINT operations_has_limit CHECK (kind NOT IN ('capture', 'refund') OR limit_amount IS NOT NULL),
	CONSTRAINT operations_unsettled_has_alarm CHECK (
		CASE WHEN status IN ('succeeded', 'failed') THEN next_action_at IS NULL
			ELSE next_action_at IS NOT NULL AND isfinite(next_action_at) OR kind IN ('capture', 'reverse') END),
	CONSTRAINT operations_sent_has_mark CHECK (status <> 'sent' OR first_sent_at IS NOT NULL),
	CONSTRAINT operations_pending_has_none CHECK (status <> 'pending' OR first_sent_at IS NULL),
	CONSTRAINT operations_lease_has_token CHECK ((lease_until IS NULL) = (lease_token IS NULL)),
	CONSTRAINT operations_attempts_not_negative CHECK (attempts >= 0),
	CONSTRAINT operations_person_has_note CHECK ((settled_by IS NULL) = (note IS NULL))
) WITH (fillfactor = 80);
COMMENT ON TABLE payflow.operations IS 'commands that move money after Register, one row each; an unsettled row is its own job';
COMMENT ON COLUMN payflow.operations.operation_id IS 'payflow''s id: a version 7 UUID that carries the routing slot of its order; the provider knows a refund by it';
COMMENT ON COLUMN payflow.operations.session_id IS 'the session whose money it moves';
COMMENT ON COLUMN payflow.operations.merchant IS 'the merchant of the session';
COMMENT ON COLUMN payflow.operations.order_id IS 'the order of the session';
COMMENT ON COLUMN payflow.operations.provider IS 'the foreign server that carries it out';
COMMENT ON COLUMN payflow.operations.kind IS 'capture, reverse (of a session that is canceled), void (of an authorization that nobody wants), refund, accept (unexpected money waits to become the receipt), after_look (a session ended unproven: asking goes on)';
COMMENT ON COLUMN payflow.operations.status IS 'pending: surely not sent; sent: may have reached the provider; succeeded; failed; unknown: cannot be proven, a person may decide';
COMMENT ON COLUMN payflow.operations.amount IS 'in minor units; null where it is the whole of it';
COMMENT ON COLUMN payflow.operations.currency IS 'ISO 4217 code';
COMMENT ON COLUMN payflow.operations.source IS 'of a refund: money of the receipt, or money in suspense';
COMMENT ON COLUMN payflow.operations.limit_amount IS 'what the command was allowed to move when it was given: set by the trigger, bounds amount';
COMMENT ON COLUMN payflow.operations.idempotency_key IS 'the key under which it is sent: first its id, another after each proven refusal';
COMMENT ON COLUMN payflow.operations.next_action_at IS 'the alarm: when a worker acts next; null when settled, or while it waits for its session';
COMMENT ON COLUMN payflow.operations.lease_until IS 'until when the worker that took the row has it for itself';
COMMENT ON COLUMN payflow.operations.lease_token IS 'names the taking: an answer that proves an absence counts only with it';
COMMENT ON COLUMN payflow.operations.attempts IS 'times it was taken since its last step forward';
COMMENT ON COLUMN payflow.operations.first_sent_at IS 'from when on it may have reached the provider with its present key; null: surely never sent';
COMMENT ON COLUMN payflow.operations.ask_due IS 'the provider is to be asked before it is sent, or sent again';
COMMENT ON COLUMN payflow.operations.unresolved_since IS 'since when its result cannot be learned';
COMMENT ON COLUMN payflow.operations.provider_ref IS 'the provider''s id of it';
COMMENT ON COLUMN payflow.operations.total_before IS 'of a refund: what the provider had refunded in all when it was first sent';
COMMENT ON COLUMN payflow.operations.failure_code IS 'why it failed: refused, failed_at_provider, not_needed, settled; of accept: order_already_paid';
COMMENT ON COLUMN payflow.operations.failure_message IS 'the provider''s text for it';
COMMENT ON COLUMN payflow.operations.reason IS 'why it was asked for, in the caller''s words; never sent';
COMMENT ON COLUMN payflow.operations.receipt IS 'fiscal receipt data that goes to the provider as it is';
COMMENT ON COLUMN payflow.operations.discrepancy_id IS 'the discrepancy whose money it moves, if any';
COMMENT ON COLUMN payflow.operations.created_xid IS 'the transaction that gave the command: the same one again in it is the same command';
COMMENT ON COLUMN payflow.operations.settled_by IS 'the role that decided its result by hand';
COMMENT ON COLUMN payflow.operations.note IS 'why it was decided so';
COMMENT ON COLUMN payflow.operations.created_at IS 'when it was asked for';
COMMENT ON COLUMN payflow.operations.updated_at IS 'when its status changed last';

CREATE INDEX ix_operations_session ON payflow.operations (session_id);
COMMENT ON INDEX payflow.ix_operations_session IS 'all operations of a session';
CREATE INDEX ix_operations_due ON payflow.operations (provider, next_action_at)
	WHERE status IN ('pending', 'sent', 'unknown');
COMMENT ON INDEX payflow.ix_operations_due IS 'queue money: operations to send or to ask about';
CREATE INDEX ix_operations_accept ON payflow.operations (merchant, order_id)
	WHERE kind = 'accept' AND status = 'pending';
COMMENT ON INDEX payflow.ix_operations_accept IS 'unexpected money that waits to become the receipt of an order';
CREATE UNIQUE INDEX ux_operation_unsettled_capture ON payflow.operations (session_id)
	WHERE kind = 'capture' AND status IN ('pending', 'sent', 'unknown', 'succeeded');
COMMENT ON INDEX payflow.ux_operation_unsettled_capture IS 'one capture a session, unless it failed';
CREATE UNIQUE INDEX ux_operation_reverse ON payflow.operations (session_id) WHERE kind = 'reverse';
COMMENT ON INDEX payflow.ux_operation_reverse IS 'one reverse a session, ever';

CREATE FUNCTION payflow.operation_guard() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'payflow_operation_guard';
COMMENT ON FUNCTION payflow.operation_guard() IS
	'binds commands to what they may move, keeps the session''s reserved amount, refuses changes of what never changes, tells workers and waiters at commit';
CREATE TRIGGER operation_guard BEFORE INSERT OR UPDATE ON payflow.operations
	FOR EACH ROW EXECUTE FUNCTION payflow.operation_guard();
COMMENT ON TRIGGER operation_guard ON payflow.operations IS 'limits of commands; fixed columns stay; a settled operation is never sent again';
CREATE TRIGGER operations_no_delete BEFORE DELETE ON payflow.operations
	FOR EACH ROW EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER operations_no_delete ON payflow.operations IS 'operations are never deleted';
CREATE TRIGGER operations_no_truncate BEFORE TRUNCATE ON payflow.operations
	FOR EACH STATEMENT EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER operations_no_truncate ON payflow.operations IS 'operations are never deleted';

CREATE VIEW payflow.refunds AS
	SELECT operation_id AS refund_id, session_id, merchant, order_id, provider, amount, currency::text AS currency,
		CASE status WHEN 'sent' THEN 'pending' ELSE status END AS status, source,
		provider_ref AS provider_refund_id, failure_code, failure_message, reason,
		next_action_at, lease_until, lease_token, attempts, settled_by, note, created_at, updated_at
	FROM payflow.operations WHERE kind = 'refund';
COMMENT ON VIEW payflow.refunds IS 'refunds that were asked for here';
COMMENT ON COLUMN payflow.refunds.refund_id IS 'payflow''s id; the provider''s reference of it';
COMMENT ON COLUMN payflow.refunds.session_id IS 'the session whose money goes back';
COMMENT ON COLUMN payflow.refunds.merchant IS 'the merchant of the session';
COMMENT ON COLUMN payflow.refunds.order_id IS 'the order of the session';
COMMENT ON COLUMN payflow.refunds.provider IS 'the foreign server that carries it out';
COMMENT ON COLUMN payflow.refunds.amount IS 'in minor units';
COMMENT ON COLUMN payflow.refunds.currency IS 'ISO 4217 code';
COMMENT ON COLUMN payflow.refunds.status IS 'pending, succeeded, failed, unknown (it cannot be proven: see settle_refund)';
COMMENT ON COLUMN payflow.refunds.source IS 'money of the receipt, or money in suspense';
COMMENT ON COLUMN payflow.refunds.provider_refund_id IS 'the provider''s id of it';
COMMENT ON COLUMN payflow.refunds.failure_code IS 'why it failed: refused, failed_at_provider, settled (by a person), not_needed (its money had gone back otherwise)';
COMMENT ON COLUMN payflow.refunds.failure_message IS 'the provider''s text for it';
COMMENT ON COLUMN payflow.refunds.reason IS 'why it was asked for';
COMMENT ON COLUMN payflow.refunds.next_action_at IS 'the alarm: when a worker acts next; null when settled';
COMMENT ON COLUMN payflow.refunds.lease_until IS 'until when a worker has it';
COMMENT ON COLUMN payflow.refunds.lease_token IS 'names the taking';
COMMENT ON COLUMN payflow.refunds.attempts IS 'times it was taken since its last step forward';
COMMENT ON COLUMN payflow.refunds.settled_by IS 'the role that decided its result by hand';
COMMENT ON COLUMN payflow.refunds.note IS 'why it was decided so';
COMMENT ON COLUMN payflow.refunds.created_at IS 'when it was asked for';
COMMENT ON COLUMN payflow.refunds.updated_at IS 'when its status changed last';

/* What the provider reports that it did, each fact once. */
CREATE TABLE payflow.provider_operations (
	provider_operation_id uuid NOT NULL,
	provider text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL,
	ref text COLLATE "C" NOT NULL,
	step text COLLATE "C" NOT NULL,
	session_id uuid NOT NULL,
	amount bigint NOT NULL,
	absorbed_amount bigint NOT NULL DEFAULT 0,
	currency payflow.currency_code NOT NULL,
	event_at timestamptz NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT provider_operations_pkey PRIMARY KEY (provider_operation_id),
	CONSTRAINT provider_operations_key UNIQUE (provider, kind, ref, step),
	CONSTRAINT provider_operations_kind_known CHECK (kind IN ('payment', 'refund', 'refund_total', 'dispute', 'dispute_total')),
	CONSTRAINT provider_operations_ref_length CHECK (octet_length(ref) BETWEEN 1 AND 255),
	CONSTRAINT provider_operations_amount_positive CHECK (amount > 0),
	CONSTRAINT provider_operations_absorbed_range CHECK (absorbed_amount >= 0 AND absorbed_amount <= amount),
	CONSTRAINT provider_operations_session_fkey FOREIGN KEY (session_id) REFERENCES payflow.payment_sessions (session_id)
);
COMMENT ON TABLE payflow.provider_operations IS 'movements of money that the provider reports: each is booked once';
COMMENT ON COLUMN payflow.provider_operations.provider_operation_id IS 'payflow''s id of it';
COMMENT ON COLUMN payflow.provider_operations.provider IS 'the foreign server';
COMMENT ON COLUMN payflow.provider_operations.kind IS 'payment, refund, dispute; refund_total, dispute_total: what a total shows beyond those that are named';
COMMENT ON COLUMN payflow.provider_operations.ref IS 'the provider''s id of the payment, refund or dispute';
COMMENT ON COLUMN payflow.provider_operations.step IS 'which step of it: captured, succeeded, failed, …, with the total where it grows';
COMMENT ON COLUMN payflow.provider_operations.session_id IS 'the session whose money it is';
COMMENT ON COLUMN payflow.provider_operations.amount IS 'in minor units';
COMMENT ON COLUMN payflow.provider_operations.absorbed_amount IS 'of it, what a total had shown before it was named';
COMMENT ON COLUMN payflow.provider_operations.currency IS 'ISO 4217 code';
COMMENT ON COLUMN payflow.provider_operations.event_at IS 'when it happened, by the provider''s clock where it tells';
COMMENT ON COLUMN payflow.provider_operations.created_at IS 'when it was learned';
CREATE INDEX ix_provider_operations_session ON payflow.provider_operations (session_id);
COMMENT ON INDEX payflow.ix_provider_operations_session IS 'what the provider did with a session''s money';
CREATE TRIGGER provider_operations_no_change BEFORE UPDATE OR DELETE ON payflow.provider_operations
	FOR EACH ROW EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER provider_operations_no_change ON payflow.provider_operations IS 'facts are only ever added';
CREATE TRIGGER provider_operations_no_truncate BEFORE TRUNCATE ON payflow.provider_operations
	FOR EACH STATEMENT EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER provider_operations_no_truncate ON payflow.provider_operations IS 'facts are only ever added';

/* One-time codes for cancel(), and the keys of callers. */
CREATE TABLE payflow.cancel_codes (
	session_id uuid NOT NULL,
	salt bytea NOT NULL,
	code_hash bytea NOT NULL,
	failures integer NOT NULL DEFAULT 0,
	issued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	expires_at timestamptz NOT NULL,
	used_at timestamptz,
	CONSTRAINT cancel_codes_pkey PRIMARY KEY (session_id),
	CONSTRAINT cancel_codes_session_fkey FOREIGN KEY (session_id) REFERENCES payflow.payment_sessions (session_id),
	CONSTRAINT cancel_codes_failures_range CHECK (failures BETWEEN 0 AND 5),
	CONSTRAINT cancel_codes_salt_length CHECK (octet_length(salt) = 16),
	CONSTRAINT cancel_codes_hash_length CHECK (octet_length(code_hash) = 32)
);
COMMENT ON TABLE payflow.cancel_codes IS 'the newest one-time code of a session, hashed with its salt; dead after five wrong tries, its time, or its use';
COMMENT ON COLUMN payflow.cancel_codes.session_id IS 'the session that it may cancel';
COMMENT ON COLUMN payflow.cancel_codes.salt IS 'random bytes that go before the code when it is hashed';
COMMENT ON COLUMN payflow.cancel_codes.code_hash IS 'SHA-256 of salt and code';
COMMENT ON COLUMN payflow.cancel_codes.failures IS 'wrong codes that were tried';
COMMENT ON COLUMN payflow.cancel_codes.issued_at IS 'when it was made';
COMMENT ON COLUMN payflow.cancel_codes.expires_at IS 'from when on it is worth nothing';
COMMENT ON COLUMN payflow.cancel_codes.used_at IS 'when it was used';

CREATE TABLE payflow.idempotency_keys (
	merchant text COLLATE "C" NOT NULL,
	call text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	request_hash bytea NOT NULL,
	session_id uuid NOT NULL,
	operation_id uuid,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	CONSTRAINT idempotency_keys_pkey PRIMARY KEY (merchant, call, key),
	CONSTRAINT idempotency_keys_key_length CHECK (octet_length(key) BETWEEN 1 AND 255),
	CONSTRAINT idempotency_keys_call_known CHECK (call IN ('create', 'capture', 'refund')),
	CONSTRAINT idempotency_keys_hash_length CHECK (octet_length(request_hash) = 32)
);
COMMENT ON TABLE payflow.idempotency_keys IS 'keys that callers gave with a call, each one of the merchant and the call, not of a payment: the same key and parameters again return what the first call made';
COMMENT ON COLUMN payflow.idempotency_keys.merchant IS 'the merchant among whose keys it is';
COMMENT ON COLUMN payflow.idempotency_keys.call IS 'capture, refund: each has keys of its own (create: unused in this version)';
COMMENT ON COLUMN payflow.idempotency_keys.key IS 'the caller''s key';
COMMENT ON COLUMN payflow.idempotency_keys.request_hash IS 'SHA-256 of the parameters';
COMMENT ON COLUMN payflow.idempotency_keys.session_id IS 'the session that the call made or was about';
COMMENT ON COLUMN payflow.idempotency_keys.operation_id IS 'the operation that the call made, if any';
COMMENT ON COLUMN payflow.idempotency_keys.created_at IS 'when it was first used';
CREATE INDEX ix_idempotency_keys_age ON payflow.idempotency_keys (created_at);
COMMENT ON INDEX payflow.ix_idempotency_keys_age IS 'the oldest keys, which are forgotten first';
