/* What an operator looks at. */

CREATE FUNCTION payflow.state_machine_rows(OUT from_status text, OUT to_status text) RETURNS SETOF record
LANGUAGE c IMMUTABLE PARALLEL SAFE ROWS 30 AS 'MODULE_PATHNAME', 'payflow_state_machine_rows';
COMMENT ON FUNCTION payflow.state_machine_rows() IS 'the transition table of the C code, behind the view state_machine';
CREATE VIEW payflow.state_machine AS
	SELECT from_status, to_status FROM payflow.state_machine_rows();
COMMENT ON VIEW payflow.state_machine IS 'the moves that a payment session may make: the same table that the code uses; a status may always stay as it is';
COMMENT ON COLUMN payflow.state_machine.from_status IS 'from this status';
COMMENT ON COLUMN payflow.state_machine.to_status IS 'to this one';

CREATE FUNCTION payflow.worker_rows(OUT pid int, OUT datname text, OUT queues text, OUT in_flight int,
	OUT in_flight_payments int, OUT in_flight_status int, OUT in_flight_money int, OUT in_flight_notifications int,
	OUT state text, OUT calls bigint, OUT started_at timestamptz, OUT last_loop timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 10 AS 'MODULE_PATHNAME', 'payflow_worker_rows';
COMMENT ON FUNCTION payflow.worker_rows() IS 'the workers of this server, behind the view workers';
CREATE VIEW payflow.workers AS
	SELECT pid, datname, queues, in_flight, in_flight_payments, in_flight_status, in_flight_money,
		in_flight_notifications, state, calls, started_at, last_loop
	FROM payflow.worker_rows();
COMMENT ON VIEW payflow.workers IS 'the background workers of this server, all databases';
COMMENT ON COLUMN payflow.workers.pid IS 'process id, as in pg_stat_activity';
COMMENT ON COLUMN payflow.workers.datname IS 'the database that it works for';
COMMENT ON COLUMN payflow.workers.queues IS 'the queues that it works; empty: none';
COMMENT ON COLUMN payflow.workers.in_flight IS 'calls that it waits for now';
COMMENT ON COLUMN payflow.workers.in_flight_payments IS 'of them in queue payments';
COMMENT ON COLUMN payflow.workers.in_flight_status IS 'of them in queue status';
COMMENT ON COLUMN payflow.workers.in_flight_money IS 'of them in queue money';
COMMENT ON COLUMN payflow.workers.in_flight_notifications IS 'of them in queue notifications';
COMMENT ON COLUMN payflow.workers.state IS 'starting, idle, working, paused (after an error), no extension, ended';
COMMENT ON COLUMN payflow.workers.calls IS 'calls that it has started since it started';
COMMENT ON COLUMN payflow.workers.started_at IS 'when it started';
COMMENT ON COLUMN payflow.workers.last_loop IS 'when it last went round its loop';

CREATE VIEW payflow.queue_stats AS
	WITH work AS (
		SELECT 'payments'::text AS queue, next_action_at, lease_until FROM payflow.payment_sessions
			WHERE status = 'registering'
		UNION ALL
		SELECT 'status', next_action_at, lease_until FROM payflow.payment_sessions
			WHERE status IN ('registered', 'unknown', 'authorized', 'canceling') AND NOT expiring
		UNION ALL
		SELECT 'money', next_action_at, lease_until FROM payflow.payment_sessions WHERE expiring
		UNION ALL
		SELECT 'money', next_action_at, lease_until FROM payflow.operations
			WHERE status IN ('pending', 'sent', 'unknown')),
	sums AS (
		SELECT queue,
			count(*) FILTER (WHERE next_action_at <= now() AND (lease_until IS NULL OR lease_until <= now())) AS due,
			count(*) FILTER (WHERE lease_until > now()) AS leased,
			min(next_action_at) FILTER (WHERE next_action_at <= now() AND (lease_until IS NULL OR lease_until <= now())) AS oldest_due
		FROM work WHERE next_action_at <= now() OR lease_until > now() GROUP BY queue)
	SELECT q.queue, COALESCE(s.due, 0) AS due, COALESCE(s.leased, 0) AS leased, s.oldest_due,
		(SELECT count(*) FROM payflow.worker_rows() w
			WHERE w.datname = current_database() AND q.queue = ANY (string_to_array(w.queues, ','))) AS instances
	FROM unnest(ARRAY['payments', 'status', 'money', 'notifications']) WITH ORDINALITY AS q(queue, position)
	LEFT JOIN sums s USING (queue)
	ORDER BY q.position;
COMMENT ON VIEW payflow.queue_stats IS 'the queues of this database: what is due, what is being worked, and by how many workers';
COMMENT ON COLUMN payflow.queue_stats.queue IS 'payments, status, money, notifications';
COMMENT ON COLUMN payflow.queue_stats.due IS 'sessions and operations whose alarm has rung and that nobody has taken';
COMMENT ON COLUMN payflow.queue_stats.leased IS 'sessions and operations that a worker has taken';
COMMENT ON COLUMN payflow.queue_stats.oldest_due IS 'the alarm of the one that waits longest';
COMMENT ON COLUMN payflow.queue_stats.instances IS 'workers that work this queue for this database: 0 means that nobody does';

CREATE FUNCTION payflow.provider_stat_rows(OUT provider text, OUT driver text, OUT in_flight int, OUT calls bigint,
	OUT errors bigint, OUT latency_p50 interval, OUT latency_p95 interval, OUT latency_p99 interval,
	OUT breaker text, OUT consecutive_failures int, OUT blocked_until timestamptz, OUT last_error text,
	OUT last_error_at timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 10 AS 'MODULE_PATHNAME', 'payflow_provider_stat_rows';
COMMENT ON FUNCTION payflow.provider_stat_rows() IS 'the providers of this database, behind the view provider_stats';
CREATE VIEW payflow.provider_stats AS
	SELECT provider, driver, in_flight, calls, errors, latency_p50, latency_p95, latency_p99, breaker,
		consecutive_failures, blocked_until, last_error, last_error_at
	FROM payflow.provider_stat_rows();
COMMENT ON VIEW payflow.provider_stats IS 'the providers of this database and how their calls went since the server started';
COMMENT ON COLUMN payflow.provider_stats.provider IS 'the foreign server';
COMMENT ON COLUMN payflow.provider_stats.driver IS 'its foreign-data wrapper';
COMMENT ON COLUMN payflow.provider_stats.in_flight IS 'calls that are being waited for';
COMMENT ON COLUMN payflow.provider_stats.calls IS 'calls that have ended';
COMMENT ON COLUMN payflow.provider_stats.errors IS 'of them without a usable answer';
COMMENT ON COLUMN payflow.provider_stats.latency_p50 IS 'half of the calls took no longer (upper bound of the bucket)';
COMMENT ON COLUMN payflow.provider_stats.latency_p95 IS '95 percent took no longer';
COMMENT ON COLUMN payflow.provider_stats.latency_p99 IS '99 percent took no longer';
COMMENT ON COLUMN payflow.provider_stats.breaker IS 'closed: calls go; open: none until blocked_until; trial: one call tries whether it is back';
COMMENT ON COLUMN payflow.provider_stats.consecutive_failures IS 'failures since the last usable answer';
COMMENT ON COLUMN payflow.provider_stats.blocked_until IS 'no calls before this time (breaker, or as the provider told by Retry-After)';
COMMENT ON COLUMN payflow.provider_stats.last_error IS 'the newest failure, in a few words';
COMMENT ON COLUMN payflow.provider_stats.last_error_at IS 'when that was';

CREATE VIEW payflow.stuck AS
	WITH work AS (
		SELECT session_id, merchant, order_id, provider, status, stage, next_action_at, unresolved_since,
			lease_until, attempts, NULL::uuid AS operation_id, ''::text AS what, false AS undecided, NULL::text AS behind
		FROM payflow.payment_sessions
		WHERE status IN ('registering', 'registered', 'unknown', 'authorized', 'canceling')
		UNION ALL
		SELECT s.session_id, s.merchant, s.order_id, op.provider, s.status, s.stage, op.next_action_at, op.unresolved_since,
			op.lease_until, op.attempts, op.operation_id, op.kind || ': ', op.status = 'unknown',
			-- a reverse waits for the capture's result, a refund for the reverse's
			(SELECT first.kind FROM payflow.operations first WHERE first.session_id = op.session_id
				AND first.kind = CASE op.kind WHEN 'reverse' THEN 'capture' WHEN 'refund' THEN 'reverse' END
				AND first.status IN ('pending', 'sent', 'unknown') LIMIT 1)
		FROM payflow.operations op JOIN payflow.payment_sessions s USING (session_id)
		WHERE op.status IN ('pending', 'sent', 'unknown'))
	SELECT w.session_id, w.merchant, w.order_id, w.provider, w.status, w.stage, w.next_action_at, w.unresolved_since,
		w.lease_until, w.attempts,
		w.what || CASE WHEN f.srvname IS NULL THEN 'there is no such provider'
			WHEN w.undecided THEN 'its result cannot be proven'
			WHEN w.unresolved_since <= now() - current_setting('payflow.unresolved_alert_after', true)::interval
			THEN 'the provider''s state cannot be learned'
			WHEN w.behind IS NOT NULL THEN 'it waits for the ' || w.behind
			ELSE 'its alarm is overdue' END AS reason,
		w.operation_id
	FROM work w
	LEFT JOIN pg_catalog.pg_foreign_server f ON f.srvname = w.provider
	WHERE f.srvname IS NULL OR w.undecided
		OR w.unresolved_since <= now() - current_setting('payflow.unresolved_alert_after', true)::interval
		OR (w.next_action_at <= now() - '1 minute'::interval AND (w.lease_until IS NULL OR w.lease_until <= now()));
COMMENT ON VIEW payflow.stuck IS 'live sessions and unsettled operations whose alarm is overdue, that have been unresolved for too long or whose provider does not exist; and operations that only a person can decide';
COMMENT ON COLUMN payflow.stuck.session_id IS 'the session, also where an operation of it is stuck';
COMMENT ON COLUMN payflow.stuck.merchant IS 'its merchant';
COMMENT ON COLUMN payflow.stuck.order_id IS 'its order';
COMMENT ON COLUMN payflow.stuck.provider IS 'its foreign server';
COMMENT ON COLUMN payflow.stuck.status IS 'of the session: where the money is';
COMMENT ON COLUMN payflow.stuck.stage IS 'of the session: what it waits for';
COMMENT ON COLUMN payflow.stuck.next_action_at IS 'the alarm of what is stuck';
COMMENT ON COLUMN payflow.stuck.unresolved_since IS 'since when the provider''s state cannot be learned';
COMMENT ON COLUMN payflow.stuck.lease_until IS 'until when a worker has it';
COMMENT ON COLUMN payflow.stuck.attempts IS 'attempts at its present step';
COMMENT ON COLUMN payflow.stuck.reason IS 'why it is listed; of an operation after its kind';
COMMENT ON COLUMN payflow.stuck.operation_id IS 'the operation that is stuck; null: the session itself';
