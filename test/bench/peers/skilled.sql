-- A payment that is not finished is its own job: due_at says when.
SET search_path = skilled;
ALTER TABLE payments
	ADD due_at timestamptz DEFAULT now(),
	ADD lease_until timestamptz,
	ADD attempts int NOT NULL DEFAULT 0,
	SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX payments_due ON payments (due_at) WHERE due_at IS NOT NULL;
