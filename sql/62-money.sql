/* The calls that move money after the payment was begun, and those by which people decide. */

CREATE FUNCTION payflow.capture(session_id uuid, amount bigint DEFAULT NULL, idempotency_key text DEFAULT NULL,
	receipt jsonb DEFAULT NULL) RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_capture';
COMMENT ON FUNCTION payflow.capture(uuid, bigint, text, jsonb) IS
	'takes the money of an authorized payment, once; amount null: all of it; what is left is released';

CREATE FUNCTION payflow.issue_cancel_code(session_id uuid, ttl interval DEFAULT '5 minutes', digits int DEFAULT 6)
RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_issue_cancel_code';
COMMENT ON FUNCTION payflow.issue_cancel_code(uuid, interval, int) IS
	'a one-time code to be sent to the payer, for cancel(); a new one kills the older; it is stored as a hash only';

CREATE FUNCTION payflow.cancel(session_id uuid, code text DEFAULT NULL, reason text DEFAULT NULL) RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_cancel';
COMMENT ON FUNCTION payflow.cancel(uuid, text, text) IS
	'cancels a payment that is not completed; a wrong or dead code comes back as a row with http_status 403, and counts if the caller commits';

CREATE FUNCTION payflow.refund(session_id uuid, amount bigint DEFAULT NULL, idempotency_key text DEFAULT NULL,
	reason text DEFAULT NULL, receipt jsonb DEFAULT NULL) RETURNS payflow.refund
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_refund';
COMMENT ON FUNCTION payflow.refund(uuid, bigint, text, text, jsonb) IS
	'gives money of a completed payment back; amount null: all that is left; give each a key, unique in the merchant: without one, the same session and amount again in one transaction is the same refund';

CREATE FUNCTION payflow.get_refund(refund_id uuid) RETURNS payflow.refund
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_get_refund';
COMMENT ON FUNCTION payflow.get_refund(uuid) IS 'the current state of a refund';

CREATE FUNCTION payflow.wait_refund(refund_id uuid, timeout interval DEFAULT '10 seconds') RETURNS payflow.refund
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_wait_refund';
COMMENT ON FUNCTION payflow.wait_refund(uuid, interval) IS
	'returns as soon as the refund is no longer pending, or at the timeout (0 to 60 s)';

CREATE FUNCTION payflow.force_check(session_id uuid, reason text, wait interval DEFAULT '5 seconds')
RETURNS payflow.payment
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_force_check';
COMMENT ON FUNCTION payflow.force_check(uuid, text, interval) IS
	'has the provider asked now, in any status, and writes into the journal who wanted it and why';

CREATE FUNCTION payflow.settle_refund(refund_id uuid, outcome text, note text) RETURNS payflow.refund
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_settle_refund';
COMMENT ON FUNCTION payflow.settle_refund(uuid, text, text) IS
	'decides a refund whose result cannot be learned: succeeded or failed';

CREATE FUNCTION payflow.retry_now(what text, id text, reason text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_retry_now';
COMMENT ON FUNCTION payflow.retry_now(text, text, text) IS
	'tries again what has been given up; what: refund (one that the provider has refused)';

CREATE FUNCTION payflow.resolve_discrepancy(id bigint, resolution text, note text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_resolve_discrepancy';
COMMENT ON FUNCTION payflow.resolve_discrepancy(bigint, text, text) IS
	'decides about a discrepancy and books it: accept (the money becomes the order''s receipt), refund, write_off, no_money (there was none)';

CREATE FUNCTION payflow.acknowledge_alert(id bigint, note text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'payflow_acknowledge_alert';
COMMENT ON FUNCTION payflow.acknowledge_alert(bigint, text) IS 'closes an alert; the same trouble again opens a new one';
