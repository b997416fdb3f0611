/* payflow: the extension script. The files of sql/ are joined in the order of their names. */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION payflow" to load this file. \quit

/*
 * Somebody who may create schemas could have laid out objects that the
 * unqualified names below would find: only an empty schema is taken.
 */
DO $$
BEGIN
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
