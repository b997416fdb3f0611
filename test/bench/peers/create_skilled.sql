-- The order and its payment, which is its own job.
\set n :n + 1
\set order :base + :client_id * 100000000 + :n
WITH o AS (
	INSERT INTO skilled.orders (id, amount, currency) VALUES (:order, 1999, 'EUR') RETURNING id, amount, currency)
INSERT INTO skilled.payments (order_id, amount, currency) SELECT id, amount, currency FROM o;
