/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Hooks on statements that concern the extension or whole databases.
 *
 *	  Some statements need a database that nobody is connected to; they end
 *	  its workers first.  Until its transaction has ended, with or without
 *	  success, the launcher starts none; then it brings them back where the
 *	  database still is.
 *
 * IDENTIFICATION
 *	  src/worker/ddl.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_foreign_server.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "shared/shared.h"
#include "worker/supervision.h"

static ProcessUtility_hook_type previous_utility_hook;
static object_access_hook_type previous_access_hook;

/* ---- statements that need a database for themselves ---- */

static bool
may_create_databases(void)
{
	HeapTuple	tuple;
	bool		may = superuser();

	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (HeapTupleIsValid(tuple))
	{
		may = may || ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	return may;
}

static bool
is_template(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		result = false;

	if (HeapTupleIsValid(tuple))
	{
		result = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
		ReleaseSysCache(tuple);
	}
	return result;
}

static const char *
option_text(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, name) == 0 && option->arg != NULL)
			return defGetString(option);
	}
	return NULL;
}

/*
 * The database that the statement needs without workers.  InvalidOid: none, or
 * the user may not do it and the statement is going to say so; nobody else's
 * workers are ended for a statement that fails for want of a privilege.
 */
static Oid
database_needed(Node *statement)
{
	const char *name = NULL;
	bool		creates = false;
	bool		renames = false;
	Oid			database;
	bool		allowed;

	if (IsA(statement, DropdbStmt))
		name = ((DropdbStmt *) statement)->dbname;
	else if (IsA(statement, AlterDatabaseStmt) &&
			 option_text(((AlterDatabaseStmt *) statement)->options, "tablespace") != NULL)
		name = ((AlterDatabaseStmt *) statement)->dbname;
	else if (IsA(statement, RenameStmt) && ((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
	{
		name = ((RenameStmt *) statement)->subname;
		renames = true;
	}
	else if (IsA(statement, CreatedbStmt))
	{
		name = option_text(((CreatedbStmt *) statement)->options, "template");
		if (name == NULL)
			name = "template1";
		creates = true;
	}
	if (name == NULL)
		return InvalidOid;

	database = get_database_oid(name, true);
	if (!OidIsValid(database))
		return InvalidOid;
	allowed = database_ownercheck(database, GetUserId()) || (creates && is_template(database));
	if (creates || renames)
		allowed = allowed && may_create_databases();
	return allowed ? database : InvalidOid;
}

/*
 * ALTER EXTENSION changes what the workers' transactions rely on, which hold a
 * share lock on the extension.  The server itself takes no lock there.
 */
static void
lock_altered_extension(Node *statement)
{
	const char *name = NULL;
	Oid			extension;

	if (IsA(statement, AlterExtensionStmt))
		name = ((AlterExtensionStmt *) statement)->extname;
	else if (IsA(statement, AlterExtensionContentsStmt))
		name = ((AlterExtensionContentsStmt *) statement)->extname;
	if (name == NULL || strcmp(name, "payflow") != 0)
		return;
	extension = get_extension_oid(name, true);
	if (OidIsValid(extension) && extension_ownercheck(extension, GetUserId()))
		LockDatabaseObject(ExtensionRelationId, extension, 0, AccessExclusiveLock);
}

static Oid
prepare_utility(Node *statement)
{
	lock_altered_extension(statement);
	return shared_memory_ready() ? database_needed(statement) : InvalidOid;
}

static void
on_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree, ProcessUtilityContext context,
		   ParamListInfo params, QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	ProcessUtility_hook_type volatile next = previous_utility_hook ? previous_utility_hook : standard_ProcessUtility;
	const Oid	database = prepare_utility(pstmt->utilityStmt);

	if (!OidIsValid(database))
	{
		next(pstmt, query, read_only_tree, context, params, environment, dest, qc);
		return;
	}

	PG_TRY();
	{
		workers_stop(database);
		next(pstmt, query, read_only_tree, context, params, environment, dest, qc);
	}
	PG_CATCH();
	{
		workers_resume();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* ---- the extension comes and goes ---- */

static bool
has_rows(Oid relation_id)
{
	Relation	relation = table_open(relation_id, NoLock); /* who drops it has locked it */
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	TableScanDesc scan = table_beginscan(relation, snapshot, 0, NULL);
	bool		found = table_scan_getnextslot(scan, ForwardScanDirection, slot);

	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	table_close(relation, NoLock);
	return found;
}

/*
 * The entries are what must not get lost, whichever statement drops them: DROP
 * EXTENSION, DROP SCHEMA ... CASCADE, DROP OWNED.  The extension itself may be
 * gone by then, in the course of the same statement.
 */
static void
guard_history(Oid relation)
{
	const char *name = get_rel_name(relation);

	if (setting_allow_drop || name == NULL || strcmp(name, "accounting_entries") != 0 ||
		get_rel_relkind(relation) != RELKIND_RELATION ||
		get_rel_namespace(relation) != get_namespace_oid("payflow", true))
		return;
	if (has_rows(relation))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"payflow\" cannot be dropped because it holds a history of money"),
				 errhint("A superuser can set payflow.allow_drop to on and drop it with its history.")));
}

static void
on_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_access_hook)
		previous_access_hook(access, class_id, object_id, sub_id, arg);

	if (access == OAT_DROP && class_id == RelationRelationId && sub_id == 0)
		guard_history(object_id);
	else if (class_id == ExtensionRelationId && access == OAT_POST_CREATE)
		reset_launcher_pauses_at_commit();	/* whose name cannot be seen yet */
	else if (class_id == ExtensionRelationId && access == OAT_DROP)
		wake_workers_at_commit();	/* they look whether it is theirs */
	else if (class_id == ForeignServerRelationId)
		wake_workers_at_commit();	/* work of a provider that they had none for, or not so */
}

void
ddl_hooks_init(void)
{
	previous_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = on_utility;
	previous_access_hook = object_access_hook;
	object_access_hook = on_object_access;
}
