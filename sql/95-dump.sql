/* Data that pg_dump carries: all of it, but what belongs to this one server. */

SELECT pg_catalog.pg_extension_config_dump('payflow.merchants', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.orders', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.payment_sessions', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.provider_refs', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.operations', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.provider_operations', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.cancel_codes', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.idempotency_keys', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.accounts', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.accounts_account_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.accounting_entries', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.accounting_entries_entry_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.journal', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.journal_journal_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.discrepancies', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.discrepancies_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.alerts', '');
SELECT pg_catalog.pg_extension_config_dump('payflow.alerts_id_seq', '');
