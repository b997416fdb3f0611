/* payflow: the extension script. The files of sql/ are joined in the order of their names. */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION payflow" to load this file. \quit

/*
 * Somebody who may create schemas could have laid out objects that the
 * unqualified names below would find, or drop the schema later: only an empty
 * one is taken, and not from a role with less power.
 */
DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
				   WHERE n.nspname OPERATOR(pg_catalog.=) 'payflow'
					 AND (r.rolsuper OR r.rolname OPERATOR(pg_catalog.=) CURRENT_USER))
	THEN
		RAISE EXCEPTION 'schema "payflow" belongs to another role'
			USING ERRCODE = 'insufficient_privilege',
				HINT = 'Drop it, or have it belong to you, then create the extension again.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_depend d
			   WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
				 AND d.refobjid OPERATOR(pg_catalog.=) 'payflow'::pg_catalog.regnamespace::pg_catalog.oid
				 AND d.deptype OPERATOR(pg_catalog.=) 'n'
				 AND d.classid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_extension'::pg_catalog.regclass)
	THEN
		RAISE EXCEPTION 'schema "payflow" is not empty'
			USING ERRCODE = 'duplicate_object',
				HINT = 'Drop what it contains, or the schema itself, then create the extension again.';
	END IF;
END
$$;
