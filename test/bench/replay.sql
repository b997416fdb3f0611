-- The order has a running session.
SELECT session_id FROM payflow.create(:order, 1999, 'EUR');
