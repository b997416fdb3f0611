/*
 * What happened, and what needs a person: journal, discrepancies, alerts.
 *
 * The journal has no foreign key to sessions: writing it must never wait for a
 * row that an application holds.
 */

CREATE SEQUENCE payflow.journal_journal_id_seq CACHE 1;
CREATE TABLE payflow.journal (
	journal_id bigint NOT NULL DEFAULT nextval('payflow.journal_journal_id_seq'),
	at timestamptz NOT NULL DEFAULT clock_timestamp(),
	session_id uuid,
	source text COLLATE "C" NOT NULL,
	event text COLLATE "C" NOT NULL,
	from_status text COLLATE "C",
	to_status text COLLATE "C",
	attempt integer,
	http_status integer,
	duration interval,
	outcome text COLLATE "C",
	actor text,
	detail jsonb,
	CONSTRAINT journal_pkey PRIMARY KEY (journal_id)
);
ALTER SEQUENCE payflow.journal_journal_id_seq OWNED BY payflow.journal.journal_id;
COMMENT ON SEQUENCE payflow.journal_journal_id_seq IS 'ids of journal rows';
COMMENT ON TABLE payflow.journal IS 'every attempt''s outcome and every step of a session; the setting payflow.journal may leave out successes';
COMMENT ON COLUMN payflow.journal.journal_id IS 'grows in the order of writing';
COMMENT ON COLUMN payflow.journal.at IS 'when it was written';
COMMENT ON COLUMN payflow.journal.session_id IS 'the session, where it is about one';
COMMENT ON COLUMN payflow.journal.source IS 'who learned it: worker, api, …';
COMMENT ON COLUMN payflow.journal.event IS 'what was done: register, get, find, expire, payer_redirected, …';
COMMENT ON COLUMN payflow.journal.from_status IS 'the session''s status before';
COMMENT ON COLUMN payflow.journal.to_status IS 'the session''s status after';
COMMENT ON COLUMN payflow.journal.attempt IS 'which attempt of its step it was';
COMMENT ON COLUMN payflow.journal.http_status IS 'the provider''s HTTP status, if there was an answer';
COMMENT ON COLUMN payflow.journal.duration IS 'how long the call took';
COMMENT ON COLUMN payflow.journal.outcome IS 'what was learned: pending, paid, lost, …';
COMMENT ON COLUMN payflow.journal.actor IS 'the role or process that wrote it';
COMMENT ON COLUMN payflow.journal.detail IS 'more, never secrets and never full bodies';
CREATE INDEX ix_journal_session ON payflow.journal (session_id, journal_id);
COMMENT ON INDEX payflow.ix_journal_session IS 'the timeline of a session';

CREATE SEQUENCE payflow.discrepancies_id_seq;
CREATE TABLE payflow.discrepancies (
	id bigint NOT NULL DEFAULT nextval('payflow.discrepancies_id_seq'),
	kind text COLLATE "C" NOT NULL,
	session_id uuid,
	provider text COLLATE "C",
	expected jsonb,
	actual jsonb,
	amount bigint,
	currency payflow.currency_code,
	status text COLLATE "C" NOT NULL DEFAULT 'open',
	opened_at timestamptz NOT NULL DEFAULT now(),
	resolved_at timestamptz,
	resolution text COLLATE "C",
	resolved_by text,
	note text,
	CONSTRAINT discrepancies_pkey PRIMARY KEY (id),
	CONSTRAINT discrepancies_status_known CHECK (status IN ('open', 'resolved')),
	CONSTRAINT discrepancies_resolution_known CHECK (resolution IN ('accept', 'refund', 'write_off', 'no_money')),
	CONSTRAINT discrepancies_resolved_says_how CHECK ((status = 'resolved') = (resolved_at IS NOT NULL AND resolution IS NOT NULL)),
	CONSTRAINT discrepancies_amount_has_currency CHECK ((amount IS NULL) = (currency IS NULL) AND amount > 0),
	CONSTRAINT discrepancies_session_fkey FOREIGN KEY (session_id) REFERENCES payflow.payment_sessions (session_id)
);
ALTER SEQUENCE payflow.discrepancies_id_seq OWNED BY payflow.discrepancies.id;
COMMENT ON SEQUENCE payflow.discrepancies_id_seq IS 'ids of discrepancies';
COMMENT ON TABLE payflow.discrepancies IS 'where the provider and payflow do not agree; open until a person decides';
COMMENT ON COLUMN payflow.discrepancies.id IS 'its number';
COMMENT ON COLUMN payflow.discrepancies.kind IS 'what does not agree: amount_mismatch, unexpected_money, …';
COMMENT ON COLUMN payflow.discrepancies.session_id IS 'the session, where there is one';
COMMENT ON COLUMN payflow.discrepancies.provider IS 'the foreign server';
COMMENT ON COLUMN payflow.discrepancies.expected IS 'what payflow has booked or asked for';
COMMENT ON COLUMN payflow.discrepancies.actual IS 'what the provider reports';
COMMENT ON COLUMN payflow.discrepancies.amount IS 'the money in suspense that waits for the decision, in minor units; null: none does';
COMMENT ON COLUMN payflow.discrepancies.currency IS 'its currency';
COMMENT ON COLUMN payflow.discrepancies.status IS 'open or resolved';
COMMENT ON COLUMN payflow.discrepancies.opened_at IS 'when it was found';
COMMENT ON COLUMN payflow.discrepancies.resolved_at IS 'when it was resolved';
COMMENT ON COLUMN payflow.discrepancies.resolution IS 'accept, refund, write_off, no_money';
COMMENT ON COLUMN payflow.discrepancies.resolved_by IS 'the role that resolved it';
COMMENT ON COLUMN payflow.discrepancies.note IS 'why it was resolved so';
CREATE INDEX ix_discrepancies_session ON payflow.discrepancies (session_id);
COMMENT ON INDEX payflow.ix_discrepancies_session IS 'discrepancies of a session';
CREATE INDEX ix_discrepancies_open ON payflow.discrepancies (opened_at) WHERE status = 'open';
COMMENT ON INDEX payflow.ix_discrepancies_open IS 'what waits for a decision';

CREATE SEQUENCE payflow.alerts_id_seq;
CREATE TABLE payflow.alerts (
	id bigint NOT NULL DEFAULT nextval('payflow.alerts_id_seq'),
	key text COLLATE "C" NOT NULL,
	severity text COLLATE "C" NOT NULL,
	message text NOT NULL,
	count bigint NOT NULL DEFAULT 1,
	raised_at timestamptz NOT NULL DEFAULT now(),
	last_raised_at timestamptz NOT NULL DEFAULT now(),
	closed_at timestamptz,
	closed_by text,
	note text,
	CONSTRAINT alerts_pkey PRIMARY KEY (id),
	CONSTRAINT alerts_severity_known CHECK (severity IN ('info', 'warning', 'critical')),
	CONSTRAINT alerts_count_positive CHECK (count > 0)
);
ALTER SEQUENCE payflow.alerts_id_seq OWNED BY payflow.alerts.id;
COMMENT ON SEQUENCE payflow.alerts_id_seq IS 'ids of alerts';
COMMENT ON TABLE payflow.alerts IS 'what an operator should look at; one open row a key, counted';
COMMENT ON COLUMN payflow.alerts.id IS 'its number';
COMMENT ON COLUMN payflow.alerts.key IS 'what it is about; the same trouble again counts up the open row';
COMMENT ON COLUMN payflow.alerts.severity IS 'info, warning, critical';
COMMENT ON COLUMN payflow.alerts.message IS 'what happened';
COMMENT ON COLUMN payflow.alerts.count IS 'how often';
COMMENT ON COLUMN payflow.alerts.raised_at IS 'first time';
COMMENT ON COLUMN payflow.alerts.last_raised_at IS 'last time';
COMMENT ON COLUMN payflow.alerts.closed_at IS 'when it was acknowledged';
COMMENT ON COLUMN payflow.alerts.closed_by IS 'who acknowledged it';
COMMENT ON COLUMN payflow.alerts.note IS 'what he said of it';
CREATE UNIQUE INDEX ux_alerts_open_key ON payflow.alerts (key) WHERE closed_at IS NULL;
COMMENT ON INDEX payflow.ux_alerts_open_key IS 'one open alert a key';

CREATE TABLE payflow.server_timeline (
	singleton boolean NOT NULL DEFAULT true,
	timeline integer NOT NULL,
	noted_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT server_timeline_pkey PRIMARY KEY (singleton),
	CONSTRAINT server_timeline_one_row CHECK (singleton)
);
COMMENT ON TABLE payflow.server_timeline IS
	'the timeline on which "never sent" can be believed: after a promotion the marks of the last moments may be missing';
COMMENT ON COLUMN payflow.server_timeline.singleton IS 'always true: one row';
COMMENT ON COLUMN payflow.server_timeline.timeline IS 'the server''s timeline when a worker last put the marks right';
COMMENT ON COLUMN payflow.server_timeline.noted_at IS 'when that was';

INSERT INTO payflow.server_timeline (timeline)
	SELECT ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::pg_catalog.bit(32)::pg_catalog.int4;
