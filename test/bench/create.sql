-- An order of its own each time.
\set n :n + 1
\set order :base + :client_id * 100000000 + :n
SELECT session_id FROM payflow.create(:order, 1999, 'EUR');
