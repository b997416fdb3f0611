-- The running session by its primary key.
SELECT session_id, status, redirect_url FROM payflow.payment_sessions WHERE session_id = :session::uuid;
