/* The ledger: accounts and entries. Entries are only ever added. */

CREATE SEQUENCE payflow.accounts_account_id_seq;
CREATE TABLE payflow.accounts (
	account_id bigint NOT NULL DEFAULT nextval('payflow.accounts_account_id_seq'),
	merchant text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL,
	currency payflow.currency_code NOT NULL,
	provider text COLLATE "C" NOT NULL DEFAULT '',
	balance numeric NOT NULL DEFAULT 0,
	created_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT accounts_pkey PRIMARY KEY (account_id),
	CONSTRAINT accounts_key UNIQUE (merchant, kind, currency, provider),
	CONSTRAINT accounts_kind_known CHECK (kind IN ('provider', 'losses', 'held', 'available', 'suspense', 'fees')),
	CONSTRAINT accounts_provider_where_named CHECK ((kind IN ('provider', 'suspense')) = (provider <> '')),
	CONSTRAINT accounts_merchant_fkey FOREIGN KEY (merchant) REFERENCES payflow.merchants (id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER SEQUENCE payflow.accounts_account_id_seq OWNED BY payflow.accounts.account_id;
COMMENT ON SEQUENCE payflow.accounts_account_id_seq IS 'ids of accounts';
COMMENT ON TABLE payflow.accounts IS 'accounts of the ledger; assets (provider, losses) grow by debits, liabilities (held, available, suspense, fees) by credits';
COMMENT ON COLUMN payflow.accounts.account_id IS 'accounts are locked in the order of this id';
COMMENT ON COLUMN payflow.accounts.merchant IS 'the merchant whose account it is';
COMMENT ON COLUMN payflow.accounts.kind IS 'provider, losses (assets); held, available, suspense, fees (liabilities)';
COMMENT ON COLUMN payflow.accounts.currency IS 'ISO 4217 code';
COMMENT ON COLUMN payflow.accounts.provider IS 'the foreign server, for kinds provider and suspense; else empty';
COMMENT ON COLUMN payflow.accounts.balance IS 'the sum of its entries, in minor units, counted in the account''s own direction';
COMMENT ON COLUMN payflow.accounts.created_at IS 'when it was opened';

CREATE SEQUENCE payflow.accounting_entries_entry_id_seq;
CREATE TABLE payflow.accounting_entries (
	entry_id bigint NOT NULL DEFAULT nextval('payflow.accounting_entries_entry_id_seq'),
	entry_type text COLLATE "C" NOT NULL,
	session_id uuid NOT NULL,
	operation_id uuid,
	provider_operation_id uuid,
	merchant text COLLATE "C" NOT NULL,
	order_id text COLLATE "C" NOT NULL,
	debit_account bigint NOT NULL,
	credit_account bigint NOT NULL,
	amount bigint NOT NULL,
	currency payflow.currency_code NOT NULL,
	event_at timestamptz NOT NULL,
	booked_at timestamptz NOT NULL DEFAULT now(),
	note text,
	CONSTRAINT accounting_entries_pkey PRIMARY KEY (entry_id),
	CONSTRAINT accounting_entries_type_known CHECK (entry_type IN (
		'payment_received', 'unexpected_received', 'unexpected_accepted', 'refund_sent', 'refund_reported',
		'refund_reversed', 'payment_reversed', 'fee_charged', 'fee_returned', 'fee_return_reversed',
		'hold_released', 'hold_shortfall', 'chargeback', 'chargeback_reversed', 'correction')),
	CONSTRAINT accounting_entries_amount_positive CHECK (amount > 0),
	CONSTRAINT accounting_entries_two_accounts CHECK (debit_account <> credit_account),
	CONSTRAINT accounting_entries_correction_has_note CHECK (entry_type <> 'correction' OR note IS NOT NULL),
	CONSTRAINT accounting_entries_session_fkey FOREIGN KEY (session_id) REFERENCES payflow.payment_sessions (session_id),
	CONSTRAINT accounting_entries_operation_fkey FOREIGN KEY (operation_id) REFERENCES payflow.operations (operation_id),
	CONSTRAINT accounting_entries_provider_operation_fkey FOREIGN KEY (provider_operation_id)
		REFERENCES payflow.provider_operations (provider_operation_id),
	CONSTRAINT accounting_entries_debit_fkey FOREIGN KEY (debit_account) REFERENCES payflow.accounts (account_id),
	CONSTRAINT accounting_entries_credit_fkey FOREIGN KEY (credit_account) REFERENCES payflow.accounts (account_id)
);
ALTER SEQUENCE payflow.accounting_entries_entry_id_seq OWNED BY payflow.accounting_entries.entry_id;
COMMENT ON SEQUENCE payflow.accounting_entries_entry_id_seq IS 'ids of entries';
COMMENT ON TABLE payflow.accounting_entries IS 'the ledger: each entry moves an amount from one account to another; entries are never changed or deleted';
COMMENT ON COLUMN payflow.accounting_entries.entry_id IS 'grows in the order of booking';
COMMENT ON COLUMN payflow.accounting_entries.entry_type IS 'what happened';
COMMENT ON COLUMN payflow.accounting_entries.session_id IS 'the session whose money it is';
COMMENT ON COLUMN payflow.accounting_entries.operation_id IS 'the operation that moved it, where there is one';
COMMENT ON COLUMN payflow.accounting_entries.provider_operation_id IS 'the provider''s own movement that it books, where it is one';
COMMENT ON COLUMN payflow.accounting_entries.merchant IS 'the merchant whose money it is';
COMMENT ON COLUMN payflow.accounting_entries.order_id IS 'the application''s id of the order';
COMMENT ON COLUMN payflow.accounting_entries.debit_account IS 'the account that is debited';
COMMENT ON COLUMN payflow.accounting_entries.credit_account IS 'the account that is credited';
COMMENT ON COLUMN payflow.accounting_entries.amount IS 'in minor units, always positive';
COMMENT ON COLUMN payflow.accounting_entries.currency IS 'the currency of both accounts';
COMMENT ON COLUMN payflow.accounting_entries.event_at IS 'when it happened, by the provider''s clock where it tells';
COMMENT ON COLUMN payflow.accounting_entries.booked_at IS 'when it was booked, by the database''s clock';
COMMENT ON COLUMN payflow.accounting_entries.note IS 'why, for corrections by a person';

CREATE UNIQUE INDEX ux_order_payment_receipt ON payflow.accounting_entries (merchant, order_id)
	WHERE entry_type IN ('payment_received', 'unexpected_accepted');
COMMENT ON INDEX payflow.ux_order_payment_receipt IS 'one receipt an order';
CREATE UNIQUE INDEX ux_entry_operation ON payflow.accounting_entries
	(operation_id, entry_type, debit_account, credit_account) WHERE operation_id IS NOT NULL;
COMMENT ON INDEX payflow.ux_entry_operation IS 'each operation is booked once, an entry an account';
CREATE UNIQUE INDEX ux_entry_provider_operation ON payflow.accounting_entries
	(provider_operation_id, entry_type, debit_account, credit_account) WHERE provider_operation_id IS NOT NULL;
COMMENT ON INDEX payflow.ux_entry_provider_operation IS 'each movement that a provider reports is booked once, an entry an account';
CREATE INDEX ix_entries_session ON payflow.accounting_entries (session_id);
COMMENT ON INDEX payflow.ix_entries_session IS 'all entries of a session';

CREATE TRIGGER entries_no_change BEFORE UPDATE OR DELETE ON payflow.accounting_entries
	FOR EACH ROW EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER entries_no_change ON payflow.accounting_entries IS 'entries are only ever added';
CREATE TRIGGER entries_no_truncate BEFORE TRUNCATE ON payflow.accounting_entries
	FOR EACH STATEMENT EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER entries_no_truncate ON payflow.accounting_entries IS 'entries are only ever added';
CREATE TRIGGER accounts_no_delete BEFORE DELETE ON payflow.accounts
	FOR EACH ROW EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER accounts_no_delete ON payflow.accounts IS 'accounts are never deleted';
CREATE TRIGGER accounts_no_truncate BEFORE TRUNCATE ON payflow.accounts
	FOR EACH STATEMENT EXECUTE FUNCTION payflow.refuse_change();
COMMENT ON TRIGGER accounts_no_truncate ON payflow.accounts IS 'accounts are never deleted';

CREATE VIEW payflow.balances AS
	SELECT merchant, currency,
		COALESCE(sum(balance) FILTER (WHERE kind = 'held'), 0) AS held,
		COALESCE(sum(balance) FILTER (WHERE kind = 'available'), 0) AS available,
		COALESCE(sum(balance) FILTER (WHERE kind = 'suspense'), 0) AS suspense,
		COALESCE(sum(balance) FILTER (WHERE kind = 'fees'), 0) AS fees,
		COALESCE(sum(balance) FILTER (WHERE kind = 'provider'), 0) AS provider,
		COALESCE(sum(balance) FILTER (WHERE kind = 'losses'), 0) AS losses
	FROM payflow.accounts GROUP BY merchant, currency;
COMMENT ON VIEW payflow.balances IS 'what each merchant has, by currency, in minor units';
COMMENT ON COLUMN payflow.balances.merchant IS 'the merchant';
COMMENT ON COLUMN payflow.balances.currency IS 'ISO 4217 code';
COMMENT ON COLUMN payflow.balances.held IS 'taken, still in its hold period';
COMMENT ON COLUMN payflow.balances.available IS 'free for the merchant; may be negative after refunds and disputes';
COMMENT ON COLUMN payflow.balances.suspense IS 'unexpected money that waits for a decision';
COMMENT ON COLUMN payflow.balances.fees IS 'commissions';
COMMENT ON COLUMN payflow.balances.provider IS 'the gross claim on providers';
COMMENT ON COLUMN payflow.balances.losses IS 'written off';
