-- The server settings.
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT plan(5);

SELECT results_eq($$SELECT name, boot_val, unit, context, vartype, min_val, max_val FROM pg_settings
		WHERE name LIKE 'payflow.%' ORDER BY name COLLATE "C"$$,
	$$VALUES ('payflow.allow_drop', 'off', NULL, 'superuser', 'bool', NULL, NULL),
		('payflow.allow_private_notify_addresses', 'off', NULL, 'sighup', 'bool', NULL, NULL),
		('payflow.ca_file', '', NULL, 'sighup', 'string', NULL, NULL),
		('payflow.databases', '', NULL, 'sighup', 'string', NULL, NULL),
		('payflow.journal', 'all', NULL, 'sighup', 'enum', NULL, NULL),
		('payflow.journal_retention', '7776000', 's', 'sighup', 'integer', '3600', '2147483647'),
		('payflow.key_retention', '604800', 's', 'sighup', 'integer', '3600', '2147483647'),
		('payflow.lease', '60', 's', 'sighup', 'integer', '1', '3600'),
		('payflow.max_in_flight_money', '500', NULL, 'sighup', 'integer', '1', '10000'),
		('payflow.max_in_flight_notifications', '500', NULL, 'sighup', 'integer', '1', '10000'),
		('payflow.max_in_flight_payments', '500', NULL, 'sighup', 'integer', '1', '10000'),
		('payflow.max_in_flight_status', '500', NULL, 'sighup', 'integer', '1', '10000'),
		('payflow.notify', 'off', NULL, 'sighup', 'bool', NULL, NULL),
		('payflow.ops_webhook_url', '', NULL, 'sighup', 'string', NULL, NULL),
		('payflow.poll_interval', '5000', 'ms', 'sighup', 'integer', '10', '3600000'),
		('payflow.queues', 'payments,status,money,notifications', NULL, 'sighup', 'string', NULL, NULL),
		('payflow.unresolved_alert_after', '3600', 's', 'sighup', 'integer', '1', '2147483647'),
		('payflow.workers', '1', NULL, 'sighup', 'integer', '0', '64')$$,
	'names, defaults, units and ranges');
SELECT is_empty($$SELECT name FROM pg_settings WHERE name LIKE 'payflow.%' AND short_desc IS NULL$$, 'all are described');
SELECT throws_ok($$SET payflow.something = 1$$, '42602', NULL, 'other names with this prefix are refused');

CREATE ROLE settings_reader;
SET LOCAL ROLE settings_reader;
SELECT throws_ok($$SHOW payflow.ops_webhook_url$$, '42501', NULL, 'the URL for alerts, which may hold a secret, is shown to superusers only');
SELECT throws_ok($$SET payflow.allow_drop = on$$, '42501', NULL, 'allow_drop is the superusers''');

SELECT * FROM finish();
ROLLBACK;
