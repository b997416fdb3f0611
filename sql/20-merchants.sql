/* Merchants and their settings. */

CREATE TABLE payflow.merchants (
	id text COLLATE "C" NOT NULL,
	default_provider text COLLATE "C",
	notify_url text,
	notify_secrets text[],
	form_timeout interval,
	return_timeout interval,
	authentication_timeout interval,
	hold_period interval NOT NULL DEFAULT '0',
	cancel_requires_code boolean NOT NULL DEFAULT false,
	late_payment text COLLATE "C" NOT NULL DEFAULT 'hold',
	fee_percent numeric(7,4) NOT NULL DEFAULT 0,
	fee_fixed jsonb NOT NULL DEFAULT '{}',
	fee_on_refund text COLLATE "C" NOT NULL DEFAULT 'keep',
	enabled boolean NOT NULL DEFAULT true,
	seeded boolean NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT merchants_pkey PRIMARY KEY (id),
	CONSTRAINT merchants_id_length CHECK (octet_length(id) BETWEEN 1 AND 200),
	CONSTRAINT merchants_form_timeout_range CHECK (form_timeout > '0' AND form_timeout <= '100 years'),
	CONSTRAINT merchants_return_timeout_range CHECK (return_timeout > '0' AND return_timeout <= '100 years'),
	CONSTRAINT merchants_authentication_timeout_range CHECK (authentication_timeout > '0' AND authentication_timeout <= '100 years'),
	CONSTRAINT merchants_hold_period_range CHECK (hold_period >= '0' AND hold_period <= '100 years'),
	CONSTRAINT merchants_late_payment_known CHECK (late_payment IN ('hold', 'accept', 'refund')),
	CONSTRAINT merchants_fee_percent_range CHECK (fee_percent BETWEEN 0 AND 100),
	CONSTRAINT merchants_fee_fixed_object CHECK (jsonb_typeof(fee_fixed) = 'object'),
	CONSTRAINT merchants_fee_on_refund_known CHECK (fee_on_refund IN ('keep', 'return'))
);
COMMENT ON TABLE payflow.merchants IS 'merchants and their settings; a row "default" exists from the start';
COMMENT ON COLUMN payflow.merchants.id IS 'the name by which calls refer to the merchant';
COMMENT ON COLUMN payflow.merchants.default_provider IS 'the foreign server used when create() is given no provider';
COMMENT ON COLUMN payflow.merchants.notify_url IS 'where to post notifications of final states; null: nowhere (unused in this version)';
COMMENT ON COLUMN payflow.merchants.notify_secrets IS 'the secrets that sign notifications, newest first (unused in this version)';
COMMENT ON COLUMN payflow.merchants.form_timeout IS 'how long the payer may take on the payment page; null: the server''s option or the default';
COMMENT ON COLUMN payflow.merchants.return_timeout IS 'how long the payer may take to come back after he was sent away; null: the server''s option or the default';
COMMENT ON COLUMN payflow.merchants.authentication_timeout IS 'how long the payer''s bank may take to authenticate; null: the server''s option or the default';
COMMENT ON COLUMN payflow.merchants.hold_period IS 'how long a completed payment stays in the held balance (unused in this version): it stays there';
COMMENT ON COLUMN payflow.merchants.cancel_requires_code IS 'whether cancel() asks for a one-time code';
COMMENT ON COLUMN payflow.merchants.late_payment IS 'what to do with money that nobody expected: hold, accept, refund';
COMMENT ON COLUMN payflow.merchants.fee_percent IS 'commission in percent of the captured amount (unused in this version)';
COMMENT ON COLUMN payflow.merchants.fee_fixed IS 'fixed commission in minor units, by currency (unused in this version)';
COMMENT ON COLUMN payflow.merchants.fee_on_refund IS 'whether the commission of refunded money is kept or returned in proportion: keep, return (unused in this version)';
COMMENT ON COLUMN payflow.merchants.enabled IS 'false: no new payments; those that run go on';
COMMENT ON COLUMN payflow.merchants.seeded IS 'true while the row is as CREATE EXTENSION made it: then a restored row may take its place';
COMMENT ON COLUMN payflow.merchants.created_at IS 'when the merchant was created';
COMMENT ON COLUMN payflow.merchants.updated_at IS 'when a setting changed last';

CREATE FUNCTION payflow.merchants_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN
		RAISE EXCEPTION 'merchant "%" cannot be deleted', OLD.id
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'Set its column "enabled" to false: then it gets no new payments.';
	END IF;
	IF TG_OP = 'UPDATE' THEN
		IF NEW.id <> OLD.id THEN
			RAISE EXCEPTION 'merchant "%" cannot be renamed', OLD.id
				USING ERRCODE = 'object_not_in_prerequisite_state';
		END IF;
		NEW.seeded := false;
		-- a restored row brings its own
		IF NEW.updated_at = OLD.updated_at THEN
			NEW.updated_at := clock_timestamp();
		END IF;
		RETURN NEW;
	END IF;
	-- a restored row takes the place of the seeded one
	UPDATE payflow.merchants SET (default_provider, notify_url, notify_secrets, form_timeout, return_timeout,
			authentication_timeout, hold_period, cancel_requires_code, late_payment, fee_percent, fee_fixed,
			fee_on_refund, enabled, created_at, updated_at)
		= (NEW.default_provider, NEW.notify_url, NEW.notify_secrets, NEW.form_timeout, NEW.return_timeout,
			NEW.authentication_timeout, NEW.hold_period, NEW.cancel_requires_code, NEW.late_payment, NEW.fee_percent,
			NEW.fee_fixed, NEW.fee_on_refund, NEW.enabled, NEW.created_at, NEW.updated_at)
		WHERE id = NEW.id AND seeded;
	IF FOUND THEN
		RETURN NULL;
	END IF;
	RETURN NEW;
END
$$;
COMMENT ON FUNCTION payflow.merchants_guard() IS
	'keeps merchants from being deleted or renamed, and lets a restored row replace the seeded one';

CREATE TRIGGER merchants_guard BEFORE INSERT OR UPDATE OR DELETE ON payflow.merchants
	FOR EACH ROW EXECUTE FUNCTION payflow.merchants_guard();
COMMENT ON TRIGGER merchants_guard ON payflow.merchants IS 'merchants are disabled, not deleted; their id never changes';

INSERT INTO payflow.merchants (id, seeded) VALUES ('default', true);
