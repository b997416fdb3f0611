-- lock_order(): see also the isolation spec lock_order_create.

INSERT INTO payflow.merchants (id) VALUES ('lock_shop');
CREATE VIEW pg_temp.order_locks AS
	SELECT classid, objid, objsubid, mode FROM pg_locks
	WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid > 2;

-- one lock an order, however it is named and however often it is taken
BEGIN;
SELECT payflow.lock_order('815');
SELECT payflow.lock_order(815);
SELECT payflow.lock_order(order_id => '815'::text, merchant => 'default');
SELECT count(*), min(mode) AS mode FROM pg_temp.order_locks;
SELECT payflow.lock_order(815, 'lock_shop');
SELECT payflow.lock_order('0b5c6a4e-51f9-4c41-a7c2-70a8c8d1c004'::uuid);
SELECT payflow.lock_order('0b5c6a4e-51f9-4c41-a7c2-70a8c8d1c004');
SELECT count(*) FROM pg_temp.order_locks;
SAVEPOINT s;
SELECT payflow.lock_order('lock-1');
SELECT count(*) FROM pg_temp.order_locks;
ROLLBACK TO s;
SELECT count(*) FROM pg_temp.order_locks;
COMMIT;
SELECT count(*) FROM pg_temp.order_locks;

-- nothing was made by it
SELECT count(*) FROM payflow.orders WHERE order_id IN ('815', 'lock-1');

-- in a transaction that may only read, too
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT payflow.lock_order('lock-1');
SELECT count(*) FROM pg_temp.order_locks;
COMMIT;

SELECT payflow.lock_order('lock-1', 'no_such_shop');
SELECT payflow.lock_order('lock-1', NULL);
SELECT payflow.lock_order('');
SELECT payflow.lock_order(NULL::bigint);
SELECT payflow.lock_order(NULL::uuid);
