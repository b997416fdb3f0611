-- The same without looking first: the order is locked, then looked at.
SELECT session_id FROM payflow.create(payflow.lock_order(:order)::text || :order, 1999, 'EUR');
