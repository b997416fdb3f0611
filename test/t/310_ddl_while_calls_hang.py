"""Statements on databases and tables while 200 calls hang: none waits for a provider, and the workers come back.

"Ends" is judged by the calls, which are still held when the statement has ended.
"""

import os
import shutil

from life import Hanging, Life
from payflow_test import DATABASE, Lab, done_testing, is_, like, ok, poll

WORKERS = 2
HANGING = 200

# They need payflow's tables, or the whole server, but no worker has to leave for them.  Protections: no transaction
# during calls; the wait on the latch (a dropped database needs a barrier that every process takes part in).
BESIDE = (
    "VACUUM (FULL) payflow.payment_sessions",
    "VACUUM (FULL) payflow.orders",
    "VACUUM (FULL, ANALYZE) payflow.journal",
    "VACUUM (FULL) payflow.accounting_entries",
    "VACUUM (FULL) payflow.accounts",
    "VACUUM (FULL) payflow.alerts",
    "VACUUM (FREEZE) payflow.payment_sessions",
    "CLUSTER payflow.payment_sessions USING payment_sessions_pkey",
    "REINDEX SCHEMA payflow",
    "REINDEX TABLE CONCURRENTLY payflow.payment_sessions",
    "CREATE INDEX CONCURRENTLY of_the_test ON payflow.payment_sessions (created_at)",
    "DROP INDEX CONCURRENTLY payflow.of_the_test",
    "ALTER TABLE payflow.payment_sessions SET (fillfactor = 60)",
    "TRUNCATE payflow.journal",
    "CREATE DATABASE unrelated",
    "ALTER DATABASE unrelated RENAME TO another",
    "DROP DATABASE another",
    "CREATE DATABASE unrelated TEMPLATE template0",
    "DROP DATABASE unrelated WITH (FORCE)",
    "CHECKPOINT",
)

# What has a history is never emptied.  Protection: the triggers refuse_change.
REFUSED = ("payflow.orders", "payflow.payment_sessions", "payflow.accounts", "payflow.accounting_entries",
           "payflow.merchants")


def nothing_is_held(life):
    """While calls hang, no process of payflow has a transaction, a lock or a snapshot.

    Protection: the commit before calls are started.
    """
    free = poll(lambda: life.one("""
        SELECT count(*) = %s AND bool_and(a.xact_start IS NULL AND a.backend_xmin IS NULL AND a.backend_xid IS NULL
            AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid))
        FROM pg_stat_activity a WHERE a.backend_type IN ('payflow worker', 'payflow launcher')""", [WORKERS + 1]),
        what="no transaction and no lock")
    ok(free, "while calls hang: no transaction, no lock, no snapshot")
    ok(poll(lambda: life.one("""SELECT bool_and(wait_event_type = 'Extension') FROM pg_stat_activity
        WHERE backend_type = 'payflow worker'"""), what="all to sleep"), "the workers sleep where they can be woken")


def beside_the_workers(life, hanging):
    pids, mark = life.pids(), life.lab.log_mark()
    for statement in BESIDE:
        life.lab.sql(statement)
        hanging.untouched(statement, pids)
    for table in REFUSED:
        error = life.lab.error(f"TRUNCATE {table} CASCADE")
        ok(error is not None, f"TRUNCATE {table}: refused")
    is_(life.trouble(mark), [], "nothing of it is in the log")
    ok(life.lab.one("SELECT count(*) = %s FROM payflow.payment_sessions", [HANGING]), "all sessions are there")


def other_workers(life, hanging, what, run, refused=None, conn=None):
    """A statement that needs the database for itself: they leave, and exactly one set comes back."""
    pids, mark = life.pids(), life.lab.log_mark()
    life.leave()
    error = life.lab.error(run, conn=conn or life.outside)
    if refused is None:
        ok(error is None, f"{what}: done", error)
    else:
        like(error, refused, f"{what}: refused")
    hanging.ends(what)
    life.comes_back(what, pids)
    is_((life.ended(mark), life.trouble(mark)), (WORKERS, []), f"{what}: the log says once that they ended")
    hanging.again()


def rename_and_back(life):
    """Away, nobody works; back, they come."""
    mark = life.lab.log_mark()
    error = life.lab.error(f"ALTER DATABASE {DATABASE} RENAME TO elsewhere", conn=life.outside)
    if error:
        return error
    life.lab.wait_for_log(f'database "{DATABASE}" of payflow.databases does not exist', mark)
    is_((life.pids(), life.pids("elsewhere")), ([], []), "renamed: nobody works for it")
    is_(life.ended(mark), WORKERS, "renamed: the log says once that they ended")
    return life.lab.error(f"ALTER DATABASE elsewhere RENAME TO {DATABASE}", conn=life.outside)


def rename_while_starting(life, hanging):
    """A worker that is just starting is got out of the way as well.

    Protection: a worker takes its slot before it enters the database.
    """
    lab, pids = life.lab, life.pids()
    keeper = lab.connect(autocommit=False, dbname="postgres")
    watcher = lab.connect(dbname="postgres")
    lab.sql("LOCK TABLE pg_catalog.pg_db_role_setting IN ACCESS EXCLUSIVE MODE", conn=keeper)
    for pid in pids:
        os.kill(pid, 15)
    starting = poll(lambda: [row.pid for row in lab.sql("""SELECT pid FROM pg_locks WHERE NOT granted
        AND relation = 'pg_catalog.pg_db_role_setting'::regclass""", conn=watcher)], what="a worker that starts")
    life.leave()
    for name in (DATABASE, "elsewhere"):
        error = lab.error(f"ALTER DATABASE {name} RENAME TO {'elsewhere' if name == DATABASE else DATABASE}",
                          conn=life.outside)
        ok(error is None, f"renamed {name} while a worker starts", error)
    hanging.ends("RENAME while starting")
    keeper.close()
    life.comes_back("RENAME while starting", pids + starting)
    hanging.again()


def on_the_database(life, hanging):
    """Protection: the stop in ddl.c, and its end with the statement."""
    lab = life.lab
    space = os.path.join(lab.dir, "run", "space")
    os.mkdir(space)
    shutil.chown(space, os.stat(os.path.join(lab.dir, "data")).st_uid)
    life.sql(f"CREATE TABLESPACE elsewhere LOCATION '{space}'")

    other_workers(life, hanging, "CREATE DATABASE TEMPLATE", f"CREATE DATABASE copy TEMPLATE {DATABASE}")
    is_(life.pids("copy"), [], "the copy is not listed: nobody works for it")
    life.sql("DROP DATABASE copy")
    other_workers(life, hanging, "SET TABLESPACE", f"ALTER DATABASE {DATABASE} SET TABLESPACE elsewhere")
    other_workers(life, hanging, "SET TABLESPACE back", f"ALTER DATABASE {DATABASE} SET TABLESPACE pg_default")
    life.sql("DROP TABLESPACE elsewhere")
    os.rmdir(space)

    mark = lab.log_mark()
    pids = life.pids()
    life.leave()
    is_(rename_and_back(life), None, "RENAME and back: done")
    hanging.ends("RENAME and back")
    life.comes_back("RENAME and back", pids)
    is_([line for line in life.said(mark) if "does not exist" in line],
        [f'LOG:  database "{DATABASE}" of payflow.databases does not exist'], "RENAME: the log says it once")
    hanging.again()

    rename_while_starting(life, hanging)

    held = lab.connect()
    lab.sql("SELECT 1", conn=held)
    other_workers(life, hanging, "DROP DATABASE with a connection open", f"DROP DATABASE {DATABASE}",
                  "is being accessed by other users")
    held.close()
    other_workers(life, hanging, "DROP DATABASE in a transaction", f"DROP DATABASE {DATABASE}",
                  "cannot run inside a transaction block", lab.connect(dbname="postgres", autocommit=False))

    # Whose statement fails for want of a privilege ends nobody's workers.  Protection: database_needed().
    pids, mark = life.pids(), lab.log_mark()
    life.sql("CREATE ROLE maker LOGIN CREATEDB")
    maker = lab.connect(dbname="postgres", user="maker")
    for statement in (f"DROP DATABASE {DATABASE}", f"DROP DATABASE {DATABASE} WITH (FORCE)",
                      f"ALTER DATABASE {DATABASE} RENAME TO mine", f"ALTER DATABASE {DATABASE} SET TABLESPACE pg_default",
                      f"CREATE DATABASE mine TEMPLATE {DATABASE}"):
        error = lab.error(statement, conn=maker)
        ok(error is not None, f"another role: {statement}: refused")
        hanging.untouched("refused", pids)
    maker.close()
    is_(life.said(mark), [], "and the log of the workers says nothing")


def dropped(life, hanging):
    """DROP DATABASE while its calls hang; a new one of that name gets its workers when it has the extension."""
    lab = life.lab
    mark = lab.log_mark()
    life.leave()
    life.sql(f"DROP DATABASE {DATABASE}")
    hanging.ends("DROP DATABASE")
    is_(life.pids(), [], "DROP DATABASE: its workers are gone")
    lab.wait_for_log(f'database "{DATABASE}" of payflow.databases does not exist', mark)
    is_(life.trouble(mark), [f'LOG:  database "{DATABASE}" of payflow.databases does not exist'], "the log says it once")

    mark = lab.log_mark()
    life.sql(f"CREATE DATABASE {DATABASE}")
    lab.wait_for_log(f'database "{DATABASE}" has no extension "payflow"', mark)
    lab.sql("CREATE EXTENSION payflow")
    life.comes_back("CREATE EXTENSION in a new database", ())
    is_([line for line in life.trouble(mark) if not line.startswith("HINT")],
        [f'LOG:  database "{DATABASE}" has no extension "payflow"'], "the log has said it once")
    lab.clear_rules()
    lab.forget()
    lab.add_server("sandbox")
    pay = lab.row("SELECT * FROM payflow.create('after', 1000, 'EUR', provider => 'sandbox')")
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "and payments go")


with Lab(workers=WORKERS, conf={"shared_preload_libraries": "payflow", "payflow.poll_interval": "100ms"}) as lab:
    life = Life(lab, WORKERS)
    life.one_set()
    hanging = Hanging(life, HANGING)
    nothing_is_held(life)
    beside_the_workers(life, hanging)
    on_the_database(life, hanging)
    hanging.let_go()
    lab.finish()
    hanging = Hanging(life, HANGING, "hangs too")
    dropped(life, hanging)
    lab.finish()
done_testing()
