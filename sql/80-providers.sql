/* Drivers: one foreign-data wrapper each. A provider is a foreign server of one, its secrets a user mapping. */

CREATE FUNCTION payflow.sandbox_validator(options text[], catalog oid) RETURNS void
LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'payflow_sandbox_validator';
COMMENT ON FUNCTION payflow.sandbox_validator(text[], oid) IS 'checks the options of servers and user mappings of payflow_sandbox';
CREATE FOREIGN DATA WRAPPER payflow_sandbox NO HANDLER VALIDATOR payflow.sandbox_validator;
COMMENT ON FOREIGN DATA WRAPPER payflow_sandbox IS 'payflow driver: the test provider';
