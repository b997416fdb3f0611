-- What a payment service needs; the schema is the service's own.
CREATE SCHEMA :service;
SET search_path = :service;

CREATE TABLE orders (
	id text PRIMARY KEY,
	amount bigint NOT NULL CHECK (amount > 0),
	currency text NOT NULL,
	status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'paid')),
	created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE payments (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	order_id text NOT NULL REFERENCES orders (id),
	amount bigint NOT NULL CHECK (amount > 0),
	currency text NOT NULL,
	status text NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'registered', 'completed', 'failed')),
	provider_id text UNIQUE,
	redirect_url text,
	captured bigint NOT NULL DEFAULT 0,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now()
);
-- one running payment an order
CREATE UNIQUE INDEX payments_running ON payments (order_id) WHERE status IN ('new', 'registered');
CREATE TABLE ledger_entries (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	payment_id uuid NOT NULL REFERENCES payments (id),
	order_id text NOT NULL REFERENCES orders (id),
	debit text NOT NULL,
	credit text NOT NULL,
	amount bigint NOT NULL CHECK (amount > 0),
	currency text NOT NULL,
	booked_at timestamptz NOT NULL DEFAULT now()
);
-- one receipt an order
CREATE UNIQUE INDEX ledger_entries_receipt ON ledger_entries (order_id) WHERE credit = 'merchant';
CREATE TABLE journal (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	payment_id uuid NOT NULL,
	event text NOT NULL,
	status text NOT NULL,
	at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX journal_payment ON journal (payment_id, id);
