"""The extension comes and goes under its workers: DROP, ALTER, CREATE EXTENSION, and look-alikes, while calls hang."""

from life import Hanging, Life
from payflow_test import DATABASE, Lab, done_testing, is_, like, ok, poll

WORKERS = 2
HANGING = 200

# All ways to lose the entries.  Protection: guard_history() in ddl.c.
DROPS = ("DROP EXTENSION payflow CASCADE", "DROP SCHEMA payflow CASCADE", "DROP OWNED BY keeper CASCADE",
         "DO $$ BEGIN DROP EXTENSION payflow CASCADE; END $$")


def server(lab):
    lab.add_server("sandbox", breaker_failures="1000000")
    lab.sql("UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default'")


def altered(life, hanging):
    """ALTER EXTENSION does not wait for calls, but for transactions, and keeps the workers out.

    Protections: no lock during calls; lock_altered_extension(); the conditional lock of the workers.
    """
    lab = life.lab
    pids, mark = life.pids(), lab.log_mark()
    lab.sql("CREATE TABLE public.extra ()")
    for statement in ("ALTER EXTENSION payflow ADD TABLE public.extra", "ALTER EXTENSION payflow DROP TABLE public.extra",
                      "ALTER EXTENSION payflow UPDATE"):
        lab.sql(statement)
        hanging.untouched(statement, pids)

    # While somebody alters it and does not commit, nothing is claimed and nobody waits.
    conn = lab.connect(autocommit=False)
    lab.sql("ALTER EXTENSION payflow ADD TABLE public.extra", conn=conn)
    session = lab.one("SELECT session_id FROM payflow.create('meanwhile', 1000, 'EUR')")
    at = lab.one("SELECT clock_timestamp()")
    poll(lambda: lab.one("SELECT min(last_loop) > %s FROM payflow.workers", [at]), what="the workers to go round")
    is_(lab.session(session).attempts, 0, "while it is being altered nothing is claimed")
    is_(lab.one("SELECT count(*)::int FROM pg_locks WHERE NOT granted"), 0, "and nobody waits for the lock")
    conn.rollback()
    conn.close()
    poll(lambda: lab.held(hanging.rule) == HANGING + 1, what="the one more to be called")
    is_((life.pids(), life.trouble(mark)), (pids, []), "then they go on; the log says nothing")


def dropped(life, hanging):
    """DROP EXTENSION while calls hang: it ends, the log says it once, and CREATE EXTENSION starts anew at once."""
    lab = life.lab
    pids, mark = life.pids(), lab.log_mark()
    in_flight = hanging.in_flight()
    # In one session: a worker must not hold on to what it knows of the dropped one.
    conn = lab.connect()
    lab.sql("DROP EXTENSION payflow CASCADE", conn=conn)
    hanging.ends("DROP EXTENSION")
    life.none()
    given_up = [line for line in life.said(mark) if "given up" in line]
    is_(sum(int(line.split("answers to ")[1].split()[0]) for line in given_up), in_flight,
        f"the log says what is given up: {given_up}")
    lab.wait_for_log(f'database "{DATABASE}" has no extension "payflow"', mark)
    is_(len([line for line in life.said(mark) if "has no extension" in line]), 1, "and once that there is no extension")

    # A schema and tables of our names: no extension, no work, and no harm.  Protection: the extension is looked up.
    mark = lab.log_mark()
    lab.sql("""CREATE SCHEMA IF NOT EXISTS payflow; CREATE TABLE payflow.payment_sessions (session_id uuid, trap int);
               CREATE TABLE payflow.orders (); CREATE TABLE payflow.accounting_entries (id int);
               INSERT INTO payflow.payment_sessions VALUES (gen_random_uuid(), 1)""", conn=conn)
    life.sql("ALTER SYSTEM SET payflow.workers TO 1")
    life.sql("SELECT pg_reload_conf()")
    life.sql("CREATE DATABASE look_alike")
    other = lab.connect(dbname="look_alike")
    lab.sql("CREATE SCHEMA payflow; CREATE TABLE payflow.payment_sessions (x int)", conn=other)
    life.sql("ALTER SYSTEM SET payflow.databases TO shop, look_alike")
    life.sql("SELECT pg_reload_conf()")
    lab.wait_for_log('database "look_alike" has no extension "payflow"', mark)
    life.none("look_alike")
    lab.sql("INSERT INTO payflow.accounting_entries VALUES (1)", conn=conn)
    error = lab.error("CREATE EXTENSION payflow", conn=conn)
    ok(error is not None, "a schema of our name is in the way: CREATE EXTENSION says so", error)
    is_([line for line in life.said(mark) if not line.startswith("HINT")],
        ['LOG:  database "look_alike" has no extension "payflow"'], "the log has said it once; nothing crashes")
    other.close()
    life.sql("ALTER SYSTEM RESET payflow.databases")
    life.sql("ALTER SYSTEM RESET payflow.workers")
    life.sql("SELECT pg_reload_conf()")
    life.sql("DROP DATABASE look_alike")
    lab.sql("DROP TABLE payflow.orders, payflow.payment_sessions; SET payflow.allow_drop = on; DROP SCHEMA payflow CASCADE; "
            "RESET payflow.allow_drop", conn=conn)

    mark = lab.log_mark()
    lab.sql("CREATE EXTENSION payflow", conn=conn)
    life.comes_back("CREATE EXTENSION", pids)
    conn.close()
    lab.disconnect()
    lab.forget()
    server(lab)
    is_(life.trouble(mark), [], "the log says nothing")
    pay = lab.row("SELECT * FROM payflow.create('anew', 1000, 'EUR')")
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "payments go")

    life.sql("CREATE ROLE keeper SUPERUSER")
    # Dropped and made in one transaction: the workers of the old one go, those of the new one come.
    pids, mark = life.pids(), lab.log_mark()
    lab.sql("BEGIN; DROP EXTENSION payflow CASCADE; SET LOCAL ROLE keeper; CREATE EXTENSION payflow; COMMIT")
    life.comes_back("DROP and CREATE in one transaction", pids)
    lab.disconnect()
    server(lab)
    pay = lab.row("SELECT * FROM payflow.create('another', 1000, 'EUR')")
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "payments go")
    is_(life.trouble(mark), [], "the log says nothing")


def history(life):
    """What holds a history of money is not dropped by accident."""
    lab = life.lab
    pay = lab.row("SELECT * FROM payflow.create('paid', 1000, 'EUR')")
    lab.act(lab.poll_session(pay.session_id, "registered").provider_payment_id, "pay")
    is_(lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id]).paid, True, "a payment")
    pids, mark = life.pids(), lab.log_mark()
    for drop in DROPS:
        error = lab.error(drop)
        like(error, "holds a history of money", f"{drop}: refused")
        like(error.diag.message_hint, "payflow.allow_drop", "and says what allows it")
    life.sql("CREATE ROLE app LOGIN")
    app = lab.connect(user="app")
    ok(lab.error("SET payflow.allow_drop = on", conn=app), "allow_drop: not for everybody")
    app.close()
    is_((life.pids(), life.said(mark)), (pids, []), "the workers go on and say nothing")
    lab.finish()

    conn = lab.connect()
    lab.sql("SET payflow.allow_drop = on", conn=conn)
    lab.sql("DROP EXTENSION payflow CASCADE", conn=conn)
    conn.close()
    life.none()
    ok(True, "payflow.allow_drop: dropped with its history, and nobody works")


with Lab(workers=WORKERS, conf={"shared_preload_libraries": "payflow", "payflow.poll_interval": "100ms"}) as lab:
    life = Life(lab, WORKERS)
    life.one_set()
    hanging = Hanging(life, HANGING)
    altered(life, hanging)
    hanging.n += 1
    dropped(life, hanging)
    history(life)
done_testing()
