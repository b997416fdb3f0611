-- What users read in psql, and what they may not touch (H3).
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT plan(9);

CREATE TEMP TABLE members AS
SELECT classid, objid FROM pg_depend
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'payflow');

SELECT is_empty($$SELECT pg_describe_object(classid, objid, 0) FROM members
	WHERE obj_description(objid, classid::regclass::name) IS NULL
		AND NOT (classid = 'pg_type'::regclass AND objid IN (SELECT oid FROM pg_type WHERE typrelid <> 0 AND typname <> 'payment' OR typelem <> 0))
		AND NOT (classid = 'pg_class'::regclass AND objid IN (SELECT oid FROM pg_class WHERE relkind IN ('c', 'i')))
		AND NOT classid IN ('pg_constraint'::regclass, 'pg_trigger'::regclass, 'pg_rewrite'::regclass, 'pg_namespace'::regclass)$$,
	'every object has a COMMENT');
SELECT is_empty($$SELECT c.relname, a.attname FROM pg_class c JOIN members m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	WHERE c.relkind IN ('r', 'v', 'c') AND col_description(c.oid, a.attnum) IS NULL$$,
	'every column has a COMMENT');
SELECT is_empty($$SELECT t.tgname FROM pg_trigger t JOIN members m ON m.classid = 'pg_class'::regclass AND m.objid = t.tgrelid
	WHERE NOT t.tgisinternal AND obj_description(t.oid, 'pg_trigger') IS NULL$$, 'every trigger has a COMMENT');
SELECT is_empty($$SELECT i.indexrelid::regclass FROM pg_index i JOIN members m ON m.classid = 'pg_class'::regclass AND m.objid = i.indrelid
	WHERE NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
		AND obj_description(i.indexrelid, 'pg_class') IS NULL$$, 'every index that is no constraint has a COMMENT');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p JOIN members m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
	WHERE has_function_privilege('public', p.oid, 'EXECUTE')$$, 'H3: PUBLIC may call nothing');
SELECT is_empty($$SELECT c.relname FROM pg_class c JOIN members m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
	WHERE c.relkind IN ('r', 'v', 'S') AND has_table_privilege('public', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')$$,
	'H3: PUBLIC may read and write nothing');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p JOIN members m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
	WHERE p.prosecdef AND NOT COALESCE('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)$$,
	'every SECURITY DEFINER function pins its search_path, pg_temp last');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p JOIN members m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
	WHERE p.proargnames IS NULL AND p.pronargs > 0$$, 'every argument can be passed by name');
SELECT is_empty($$SELECT c.relname FROM pg_class c JOIN members m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
	WHERE c.relkind IN ('r', 'S') AND c.relname <> 'server_timeline'
		AND NOT c.oid = ANY (SELECT unnest(extconfig) FROM pg_extension WHERE extname = 'payflow')$$,
	'H1: pg_dump carries every table and sequence but the server''s own timeline');

SELECT * FROM finish();
ROLLBACK;
