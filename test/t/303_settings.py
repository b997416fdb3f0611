"""Settings of databases, roles and the server that would hurt a worker; settings changed while it runs."""

import re

from life import Hanging, Life
from payflow_test import Lab, done_testing, is_, ok, poll

# Protection: force_settings() in worker.c, synchronous_commit in begin_work().
HARMFUL = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "search_path": "hostile, pg_catalog",
    "row_security": "on",
    "session_replication_role": "replica",
    "lock_timeout": "1ms",
    "statement_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "idle_session_timeout": "1ms",
    "synchronous_commit": "off",
    "default_tablespace": "nowhere",
    "temp_tablespaces": "nowhere",
    "default_table_access_method": "nothing",
    "role": "nobody",
    "exit_on_error": "on",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
    "enable_nestloop": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_custom_plan",
    "force_parallel_mode": "regress",
    "work_mem": "64kB",
    "temp_file_limit": "0",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "lc_messages": "C",
    "lc_numeric": "C",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "xmloption": "document",
    "application_name": "somebody else",
    "client_min_messages": "error",
    "client_encoding": "LATIN1",
    "track_activities": "on",
    "payflow.allow_drop": "on",
}


def pays(life, order, amount=1250):
    """A payment from create to completed."""
    lab = life.lab
    pay = lab.row("SELECT * FROM payflow.create(%s, %s, 'EUR')", [order, amount])
    row = lab.poll_session(pay.session_id, "registered")
    lab.act(row.provider_payment_id, "pay")
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])
    is_((row.status, row.paid), ("completed", True), f"{order}: paid")
    is_(lab.one("SELECT count(*)::int FROM payflow.accounting_entries WHERE order_id = %s", [order]), 1,
        f"{order}: booked, by the triggers too")


def harmful(life):
    """None of what a database or its owner sets is felt by the workers."""
    lab = life.lab
    life.sql("CREATE ROLE nobody")
    lab.sql("CREATE SCHEMA hostile")
    lab.sql("""CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'infinity'::timestamptz $$""")
    lab.sql("CREATE TABLE hostile.payment_sessions (session_id uuid)")
    known = [row.name for row in life.sql("SELECT name FROM pg_settings")]
    taken = []
    for name, value in HARMFUL.items():
        if name not in known and name != "role":
            continue
        for whom in ("DATABASE shop", "ROLE postgres"):
            error = lab.error(f"ALTER {whom} SET {name} TO {value if name == 'search_path' else repr(value)}")
            if error is None:
                taken.append(name)
            elif whom.startswith("DATABASE"):
                ok(False, f"{name} can be set", error)
    ok(len(set(taken)) > 30, f"{len(set(taken))} settings that would hurt, for the database and the role", taken)

    mark = lab.log_mark()
    life.fresh()
    for i in range(3):
        pays(life, f"harmful {i}")
    # the server warns of what it takes from the database, before a worker is asked
    is_([line for line in life.trouble(mark) if not re.search("invalid value for parameter|^DETAIL:  Table", line)], [],
        "the workers' log says nothing")
    # An error in a cycle is caught as ever.  Protection: exit_on_error is forced as well.
    lab.sql("""CREATE FUNCTION public.fails() RETURNS trigger LANGUAGE plpgsql AS $$
               BEGIN RAISE 'made by the test'; END $$""")
    lab.sql("""CREATE TRIGGER fails BEFORE INSERT ON payflow.journal FOR EACH ROW
               WHEN (NEW.source = 'worker' AND NEW.event = 'register') EXECUTE FUNCTION public.fails()""")
    pids, failing = life.pids(), lab.log_mark()
    bad = lab.one("SELECT session_id FROM payflow.create('fails', 1000, 'EUR')")
    lab.wait_for_log(f"answer for payment session {bad} could not be applied: made by the test", failing)
    lab.sql("DROP TRIGGER fails ON payflow.journal")
    lab.poll_session(bad, "registered")
    is_(life.pids(), pids, "an error does not end a worker")
    is_([line for line in life.trouble(failing) if not re.search("invalid value for parameter|^DETAIL:  Table", line)],
        [f"LOG:  answer for payment session {bad} could not be applied: made by the test"], "and is said once")
    is_({row.application_name for row in life.sql("""SELECT application_name FROM pg_stat_activity
        WHERE backend_type = 'payflow worker'""")}, {"payflow worker"}, "they bear their own name")

    for whom in ("DATABASE shop", "ROLE postgres"):
        lab.sql(f"ALTER {whom} RESET ALL")
    life.leave()


def of_the_server(life):
    """The same in the server's configuration, while the workers run."""
    lab = life.lab
    pids, mark = life.pids(), lab.log_mark()
    names = ("default_transaction_isolation", "default_transaction_read_only", "statement_timeout", "lock_timeout",
             "synchronous_commit", "row_security", "session_replication_role", "IntervalStyle", "DateStyle")
    conn = lab.connect(options="-c default_transaction_read_only=off -c statement_timeout=0 -c lock_timeout=0 "
                               "-c session_replication_role=origin -c default_transaction_isolation=read\\ committed")
    for name in names:
        lab.sql(f"ALTER SYSTEM SET {name} TO '{HARMFUL[name]}'", conn=conn)
    reload(life)
    session = lab.one("SELECT session_id FROM payflow.create('reloaded', 1000, 'EUR')", conn=conn)
    poll(lambda: lab.one("SELECT status = 'registered' FROM payflow.payment_sessions WHERE session_id = %s", [session],
                         conn=conn), what="registered")
    is_((life.pids(), life.trouble(mark)), (pids, [line for line in life.trouble(mark) if "parameter" in line]),
        "by a reload: registered, by the same workers")
    for name in names:
        lab.sql(f"ALTER SYSTEM RESET {name}", conn=conn)
    reload(life)
    conn.close()
    life.leave()


def reload(life):
    life.sql("SELECT pg_reload_conf()")


def set_system(life, **settings):
    for name, value in settings.items():
        life.sql(f"ALTER SYSTEM SET payflow.{name} TO {value}")
    reload(life)


def numbers(life):
    """payflow.workers, by reload: more come, those that are too many go, and calls in flight are not made twice."""
    lab = life.lab
    mark = lab.log_mark()
    hanging = Hanging(life, 20)
    pids = life.pids()
    set_system(life, workers=4)
    more = life.one_set(n=4)
    ok(set(pids) <= set(more), "4 workers: two more")
    is_(hanging.in_flight(), 20, "the calls in flight stay where they are")
    set_system(life, workers=0)
    life.none()
    hanging.ends("0 workers")
    set_system(life, workers=life.workers)
    life.comes_back("as many as before", more)
    is_((life.ended(mark), life.trouble(mark)), (4, []), "the log says once of each that it was ended")
    hanging.again()
    hanging.let_go()


def queues(life):
    """payflow.queues, by reload: only those are worked."""
    lab = life.lab
    one = lab.one("SELECT session_id FROM payflow.create('before', 1000, 'EUR')")
    lab.poll_session(one, "registered")
    set_system(life, queues="status")
    poll(lambda: {row.queues for row in lab.sql("SELECT queues FROM payflow.workers")} == {"status"}, what="one queue")
    two = lab.one("SELECT session_id FROM payflow.create('not registered', 1000, 'EUR')")
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [one])
    is_(row.status, "registered", "status only: questions are answered")
    lab.all_looked()
    is_((lab.session(two).attempts, lab.stats(order="not registered")["calls"]["register"]), (0, 0),
        "status only: nothing is registered")
    is_([(r.queue, r.instances) for r in lab.sql("SELECT queue, instances FROM payflow.queue_stats")][:2],
        [("payments", 0), ("status", life.workers)], "queue_stats tells that nobody registers")
    set_system(life, queues="''")
    poll(lambda: {row.queues for row in lab.sql("SELECT queues FROM payflow.workers")} == {""}, what="no queue")
    life.sql("ALTER SYSTEM RESET payflow.queues")
    reload(life)
    is_(lab.poll_session(two, "registered").status, "registered", "all queues: registered")


def databases(life):
    """payflow.databases, by reload: two at a time, one, none."""
    lab = life.lab
    mark, pids = lab.log_mark(), life.pids()
    life.sql("CREATE DATABASE second")
    other = lab.connect(dbname="second")
    lab.sql("CREATE EXTENSION payflow", conn=other)
    lab.add_server("sandbox", conn=other)
    set_system(life, databases="shop, second, third")
    life.one_set(database="second")
    is_(life.pids(), pids, "two databases: a set each; the first one's stay")
    session = lab.one("SELECT session_id FROM payflow.create('second', 1000, 'EUR', provider => 'sandbox')", conn=other)
    poll(lambda: lab.one("SELECT status = 'registered' FROM payflow.payment_sessions WHERE session_id = %s", [session],
                         conn=other), what="registered in the second")
    pays(life, "first")
    lab.wait_for_log('database "third" of payflow.databases does not exist', mark)
    set_system(life, databases="shop")
    life.none("second")
    is_(life.pids(), pids, "taken out: only its own workers go")
    set_system(life, databases="''")
    life.none()
    ok(poll(lambda: not lab.sql("SELECT * FROM payflow.workers"), what="no workers"), "none listed: no workers")
    set_system(life, databases="second, shop")
    life.one_set(database="second")
    life.comes_back("listed again", pids)
    set_system(life, databases="shop")
    life.none("second")
    is_(life.trouble(mark), ['LOG:  database "third" of payflow.databases does not exist'],
        "the log says once that there is no third")
    other.close()
    life.sql("DROP DATABASE second")


def statistics(life):
    """What workers write is counted, or autovacuum would never come.  Protection: pgstat_report_stat()."""
    lab = life.lab

    def updates():
        return lab.one("""SELECT n_tup_upd FROM pg_stat_user_tables
                          WHERE schemaname = 'payflow' AND relname = 'payment_sessions'""")

    before = updates()
    session = lab.one("SELECT session_id FROM payflow.create('counted', 1000, 'EUR')")
    lab.poll_session(session, "registered")
    # create() inserts: what is updated was updated by a worker
    ok(poll(lambda: updates() >= before + 2, what="the statistics to move"), "n_tup_upd moves by the worker's updates")


with Lab(workers=2, conf={"shared_preload_libraries": "payflow", "payflow.poll_interval": "100ms"}) as lab:
    life = Life(lab, 2)
    life.one_set()
    statistics(life)
    numbers(life)
    queues(life)
    databases(life)
    harmful(life)
    of_the_server(life)
    lab.finish()
done_testing()
