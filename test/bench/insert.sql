-- The rows that create.sql writes, in one statement and without any look.
\set n :n + 1
\set order :base + :client_id * 100000000 + :n
WITH o AS (
	INSERT INTO payflow.orders (merchant, order_id, amount, currency, active_session_id)
	VALUES ('default', :order, 1999, 'EUR', lpad(:order, 32, '0')::uuid))
INSERT INTO payflow.payment_sessions
	(session_id, merchant, order_id, amount, currency, provider, capture, next_action_at)
VALUES (lpad(:order, 32, '0')::uuid, 'default', :order, 1999, 'EUR', 'sandbox', 'automatic', now());
