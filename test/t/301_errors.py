"""An error in each phase of a cycle, and poisoned rows: the worker stays, the others go on, the log says it once."""

import os
import signal

from life import Life
from payflow_test import Lab, done_testing, is_, like, ok, poll

WORKERS = 1


def create(lab, *orders):
    """Sessions that are due in one go."""
    return {row.order_id: str(row.session_id) for row in lab.sql("""
        SELECT o AS order_id, c.session_id FROM unnest(%s) o, LATERAL payflow.create(o, 1000, 'EUR') c""", [list(orders)])}


def fails(lab, table, event, condition):
    """A trigger that raises for certain rows; returns how to take it away."""
    lab.sql("""CREATE OR REPLACE FUNCTION public.fails() RETURNS trigger LANGUAGE plpgsql AS $$
               BEGIN RAISE 'made by the test'; END $$""")
    lab.sql(f"CREATE TRIGGER fails BEFORE {event} ON {table} FOR EACH ROW WHEN ({condition}) "
            "EXECUTE FUNCTION public.fails()")
    return lambda: lab.sql(f"DROP TRIGGER fails ON {table}")


def others(lab, name, n=6):
    return [f"{name} {i}" for i in range(n)]


def goes_on(life, name, sessions, pids):
    for order, session in sessions.items():
        life.lab.poll_session(session, "registered")
    is_(life.pids(), pids, f"{name}: the others are registered, by the same workers")


def mended(lab, name, order, session):
    """What was wrong is gone: it goes on as if nothing had been."""
    def there():
        lab.end_lease(session)
        lab.ring(session)
        return lab.session(session).status == "registered"

    poll(there, what=f"{order} to be registered")
    is_(lab.stats(order=order)["payments"], 1, f"{name}: mended, it is registered by one payment")


def in_claim(life):
    """Protection: source_failed(): claimed one by one, the one that fails is put off."""
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    mend = fails(lab, "payflow.payment_sessions", "UPDATE",
                 "NEW.order_id = 'bad claim' AND NEW.lease_token IS DISTINCT FROM OLD.lease_token")
    sessions = create(lab, "bad claim", *others(lab, "claim"))
    bad = sessions.pop("bad claim")
    goes_on(life, "an error in a claim", sessions, pids)
    lab.poll_sql("SELECT next_action_at > now() FROM payflow.payment_sessions WHERE session_id = %s", [bad])
    ok("claim_failed:sandbox" in lab.alerts(), "a claim that fails: an alert")
    lab.all_looked()
    is_(life.trouble(mark),
        ['LOG:  a payment session of provider "sandbox" could not be taken: made by the test'], "the log says it once")
    mend()
    mended(lab, "an error in a claim", "bad claim", bad)


def in_every_update(life):
    """A row that cannot be written at all, not even to be put off.

    Protection: Source.passed in claims.c.
    """
    life.lab.sql("UPDATE payflow.alerts SET closed_at = now() WHERE closed_at IS NULL")
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    mend = fails(lab, "payflow.payment_sessions", "UPDATE", "OLD.order_id = 'bad row'")
    sessions = create(lab, "bad row", *others(lab, "row"))
    bad = sessions.pop("bad row")
    goes_on(life, "a row that cannot be written", sessions, pids)
    lab.wait_for_log("could not be taken: made by the test", mark)
    lab.all_looked()
    is_(life.trouble(mark),
        ['LOG:  a payment session of provider "sandbox" could not be taken: made by the test'], "the log says it once")
    more = create(lab, *others(lab, "after the bad row"))
    goes_on(life, "later ones", more, pids)
    ok("claim_failed:sandbox" in lab.alerts(), "with an alert")
    mend()
    # Who has met it passes over it for a minute; another one does not.
    os.kill(pids[0], signal.SIGTERM)
    life.one_set(than=pids)
    mended(lab, "a row that cannot be written", "bad row", bad)


def in_apply(life):
    """Protection: apply_one_by_one() and put_off_failed()."""
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    hold = lab.rule("register", "hold", times=0)
    sessions = create(lab, "bad apply", *others(lab, "apply"))
    bad = sessions.pop("bad apply")
    mend = fails(lab, "payflow.payment_sessions", "UPDATE",
                 "NEW.order_id = 'bad apply' AND NEW.status IS DISTINCT FROM OLD.status")
    lab.wait_held(hold, 7)
    lab.release(hold)
    goes_on(life, "an error when an answer is applied", sessions, pids)
    lab.wait_for_log(f"answer for payment session {bad} could not be applied", mark)
    lab.all_looked()
    is_(life.trouble(mark),
        [f"LOG:  answer for payment session {bad} could not be applied: made by the test"], "the log says it once")
    mend()
    lab.poll_session(bad, "registered")
    is_(lab.stats(order="bad apply")["calls"]["register"], 1, "its answer was kept: registered without another call")


def in_question(life):
    """An error while it serves what a caller asks: the caller gets what is known, and the worker goes on."""
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    sessions = create(lab, "bad question", "good question")
    goes_on(life, "before", sessions, pids)
    for session in sessions.values():
        lab.quiet(session)
    mend = fails(lab, "payflow.payment_sessions", "UPDATE",
                 "NEW.order_id = 'bad question' AND NEW.lease_token IS DISTINCT FROM OLD.lease_token")
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [sessions["bad question"]])
    is_(row.status, "registered", "a question that cannot be served: what is known")
    lab.act(lab.session(sessions["good question"]).provider_payment_id, "pay")
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [sessions["good question"]])
    is_((row.status, life.pids()), ("completed", pids), "the next one is served")
    is_(life.trouble(mark), ["LOG:  payflow worker could not serve questions of callers: made by the test"],
        "the log says it once")
    mend()


def in_configuration(life):
    """The catalog of providers cannot be read, or holds nonsense: later, or the defaults."""
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    conn = lab.connect(autocommit=False)
    session = lab.one("SELECT session_id FROM payflow.create('locked', 1000, 'EUR')", conn=conn)
    lab.sql("LOCK TABLE pg_catalog.pg_foreign_server IN ACCESS EXCLUSIVE MODE", conn=conn)
    conn2 = lab.connect()
    looks = lab.one("SELECT clock_timestamp()", conn=conn2)
    poll(lambda: lab.one("SELECT max(last_loop) > %s + interval '1 second' FROM payflow.workers", [looks], conn=conn2),
         what="the worker to meet the lock a few times")
    is_(life.trouble(mark), [], "a locked catalog: tried again quietly")
    conn.commit()
    lab.poll_session(session, "registered")
    is_(life.pids(), pids, "and it goes on")

    # Made without the validator, a server may say anything.
    lab.sql("ALTER FOREIGN DATA WRAPPER payflow_sandbox NO VALIDATOR")
    lab.sql("""ALTER SERVER sandbox OPTIONS (ADD timeout 'soon', ADD connect_timeout '-1', ADD max_in_flight 'all',
               ADD max_rps '', ADD breaker_pause '1 fortnight and a half', ADD poll_intervals '{}', ADD lookup 'maybe',
               ADD nonsense 'x')""")
    lab.sql("CREATE SERVER nowhere FOREIGN DATA WRAPPER payflow_sandbox")
    lab.sql("CREATE SERVER garbage FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'not: a url')")
    lab.sql("CREATE USER MAPPING FOR PUBLIC SERVER garbage OPTIONS (api_key E'two\\nlines')")
    lab.sql("SET allow_system_table_mods = on", conn=conn2)
    lab.sql("CREATE SERVER broken FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1')")
    lab.sql("""UPDATE pg_catalog.pg_foreign_server SET srvoptions = '{endpoint,=,timeout=}' WHERE srvname = 'broken'""",
            conn=conn2)
    conn2.close()
    sessions = create(lab, *others(lab, "nonsense"))
    goes_on(life, "options that are nonsense", sessions, pids)
    is_([line for line in life.trouble(mark) if not line.startswith("LOG:  ignored option")], [],
        "the log says what is ignored")
    mark = lab.log_mark()
    goes_on(life, "later ones", create(lab, *others(lab, "more nonsense")), pids)
    lab.all_looked()
    is_(life.trouble(mark), [], "and does not say it again until something changes")
    for name in ("nowhere", "garbage", "broken"):
        lab.sql(f"DROP SERVER {name} CASCADE")
    names = "timeout, connect_timeout, max_in_flight, max_rps, breaker_pause, poll_intervals, lookup, nonsense"
    lab.sql("ALTER SERVER sandbox OPTIONS (" + ", ".join(f"DROP {name}" for name in names.split(", ")) + ")")
    lab.sql("ALTER FOREIGN DATA WRAPPER payflow_sandbox VALIDATOR payflow.sandbox_validator")


def bad_rows(life):
    """Rows that no call of ours would have written."""
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    conn = lab.connect(autocommit=False)
    sessions = create(lab, "before the flood", "out of range", *others(lab, "with bad rows"))
    for name in ("before the flood", "out of range"):
        lab.poll_session(sessions[name], "registered")
        lab.quiet(sessions[name])
    lab.sql("SET LOCAL session_replication_role = replica", conn=conn)
    lab.sql("""UPDATE payflow.payment_sessions SET created_at = '4714-11-24 00:00:00+00 BC', updated_at = 'infinity',
               next_action_at = now() - interval '1 day' WHERE session_id = %s""", [sessions["before the flood"]], conn=conn)
    lab.sql("""UPDATE payflow.payment_sessions SET created_at = '294276-12-31 23:59:59+00', first_sent_at = '294276-12-31',
               next_action_at = now() - interval '1 day' WHERE session_id = %s""", [sessions["out of range"]], conn=conn)
    conn.commit()
    conn.close()
    goes_on(life, "rows that are out of range", create(lab, *others(lab, "after bad rows")), pids)
    lab.all_looked()
    said = life.trouble(mark)
    is_(len(said), len(set(said)), "the log says of each once what is wrong")


with Lab(workers=WORKERS, conf={"shared_preload_libraries": "payflow", "payflow.poll_interval": "100ms"}) as lab:
    life = Life(lab, WORKERS)
    life.one_set()
    for test in (in_claim, in_apply, in_question, in_configuration, bad_rows, in_every_update):
        test(life)
    lab.finish()
done_testing()
