-- The order, its payment and the first job, in one transaction.
\set n :n + 1
\set order :base + :client_id * 100000000 + :n
WITH o AS (
	INSERT INTO obvious.orders (id, amount, currency) VALUES (:order, 1999, 'EUR') RETURNING id, amount, currency),
p AS (
	INSERT INTO obvious.payments (order_id, amount, currency) SELECT id, amount, currency FROM o RETURNING id)
SELECT graphile_worker.add_job('register', json_build_object('id', id)) FROM p;
