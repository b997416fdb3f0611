"""Processes of payflow that are ended or killed, at each stage: exactly one set comes back, and no payment is made twice.

Protections: the launcher as the only supervisor (workers are never restarted by the postmaster), slots with generations
(one that was given up never attaches), the pauses of the launcher, the lease for what a worker had taken with it.
"""

import os
import signal

from life import Life
from payflow_test import Lab, done_testing, is_, ok, poll

WORKERS = 2
KILLS = 5


def create(lab, order):
    return str(lab.one("SELECT session_id FROM payflow.create(%s, 1000, 'EUR')", [order]))


def registered_once(lab, session, order):
    """However often its worker went, it is registered by one payment."""
    lab.clear_rules()

    def there():
        lab.end_lease(session)
        lab.ring(session)
        return lab.session(session).status == "registered"

    poll(there, what=f"{order} to be registered")
    stats = lab.stats(order=order)
    is_((stats["payments"], stats["distinct_keys"]), (1, 1), f"{order}: one payment, one key")


def end(life, what, victims, then=None):
    """SIGTERM, then another one is in its place; the others stay."""
    mark, others = life.lab.log_mark(), set(life.pids()) - set(victims)
    for pid in victims:
        os.kill(pid, signal.SIGTERM)
    if then is not None:
        poll(lambda: not set(life.pids()) & set(victims), what="the end of a worker")
        then()
    now = life.comes_back(what, victims)
    ok(others <= set(now), f"{what}: the others are left alone")
    poll(lambda: life.ended(mark) >= len(victims), what="the log to say it")
    is_((life.ended(mark), life.trouble(mark)), (len(victims), []), f"{what}: the log says it once")
    return now


def worker_of(lab, session):
    """Who has the only call in flight."""
    return poll(lambda: lab.one("SELECT pid FROM payflow.workers WHERE in_flight > 0"), what=f"a call for {session}")


def idle(life):
    end(life, "SIGTERM, idle", life.pids()[:1])
    end(life, "SIGTERM of all, idle", life.pids())


def starting(life):
    """Ended before it is connected: it has a slot, but is in no database yet."""
    lab = life.lab
    keeper = lab.connect(autocommit=False)
    lab.sql("LOCK TABLE pg_catalog.pg_db_role_setting IN ACCESS EXCLUSIVE MODE", conn=keeper)
    victim = life.pids()[0]
    gone = [victim]
    os.kill(victim, signal.SIGTERM)
    for _ in range(2):
        row = poll(lambda: life.sql("""SELECT pid FROM pg_locks WHERE NOT granted
            AND relation = 'pg_catalog.pg_db_role_setting'::regclass AND pid <> ALL (%s)""", [gone]),
            what="a worker that starts")[0]
        is_(lab.one("SELECT state FROM payflow.workers WHERE pid = %s", [row.pid]), "starting", "a worker is starting")
        os.kill(row.pid, signal.SIGTERM)
        gone.append(row.pid)
    keeper.close()
    life.comes_back("SIGTERM, starting", gone)


def calls_held(life):
    lab = life.lab
    hold = lab.rule("register", "hold", order="held")
    session = create(lab, "held")
    lab.wait_held(hold)
    end(life, "SIGTERM, a call held", [worker_of(lab, session)])
    is_(lab.held(hold), 1, "it ended while the call was held")
    is_(lab.session(session).lease_until is not None, True, "what it had is leased until the lease is over")
    registered_once(lab, session, "held")


def in_a_transaction(life):
    """While it claims, and between an answer and its being applied: nothing is half done."""
    lab = life.lab
    with lab.gate("payflow.payment_sessions", "UPDATE",
                  "NEW.order_id = 'claim' AND NEW.lease_token IS DISTINCT FROM OLD.lease_token") as gate:
        session = create(lab, "claim")
        end(life, "SIGTERM, in a claim", gate.wait_held(), gate.open)
    registered_once(lab, session, "claim")

    with lab.gate("payflow.journal", "INSERT", "NEW.event = 'register' AND NEW.outcome = 'pending'") as gate:
        session = create(lab, "apply")
        end(life, "SIGTERM, between answer and apply", gate.wait_held(), gate.open)
        is_(lab.session(session).status, "registering", "what it was about to write is not written")
    registered_once(lab, session, "apply")


def launcher(life):
    """The launcher goes: its workers stay, with their calls; the next launcher takes them over."""
    lab = life.lab
    hold = lab.rule("register", "hold", order="orphans")
    session = create(lab, "orphans")
    lab.wait_held(hold)
    mark, before, pids = lab.log_mark(), life.launcher(), life.pids()
    os.kill(before, signal.SIGTERM)
    poll(lambda: life.launcher() != before, what="the launcher to end")
    # One worker ends while there is no launcher: the next one replaces it.
    victim = next(pid for pid in pids if pid != worker_of(lab, session))
    os.kill(victim, signal.SIGTERM)
    ok(life.new_launcher(before), "SIGTERM of the launcher: another one comes")
    now = life.comes_back("SIGTERM of the launcher", [victim])
    ok(set(pids) - {victim} < set(now), "the others have stayed")
    is_((lab.held(hold), lab.one("SELECT sum(in_flight)::int FROM payflow.workers")), (1, 1), "the call was not touched")
    is_(life.trouble(mark), [], "nothing else is in the log")
    lab.release(hold)
    is_(lab.poll_session(session, "registered").status, "registered", "its answer is applied")
    end(life, "SIGTERM under the new launcher", life.pids()[:1])


def killed(life, what, victim):
    """kill -9: the postmaster restarts all; five times in a row, one set comes back each time."""
    lab = life.lab
    hold = lab.rule("*", "hold", order=what, times=0)
    session = create(lab, what)
    lab.wait_held(hold)
    for i in range(KILLS):
        gone, last = life.pids(), life.launcher()
        os.kill(victim(), signal.SIGKILL)
        life.after_crash(last)
        life.comes_back(f"kill -9 of {what}, {i + 1}", gone)
    is_(lab.one("SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'payflow launcher'"), 1, "one launcher")
    ok(lab.held(hold) >= 1, "it is over while the call is held")
    registered_once(lab, session, what)
    ok(not lab.log_contains("signal 11|signal 6|PANIC|TRAP"), "no crash but ours")


with Lab(workers=WORKERS, conf={"shared_preload_libraries": "payflow", "payflow.poll_interval": "100ms"}) as lab:
    life = Life(lab, WORKERS)
    life.one_set()
    for test in (idle, starting, calls_held, in_a_transaction, launcher):
        test(life)
        life.fresh()
    killed(life, "a worker", lambda: life.pids()[0])
    killed(life, "the launcher", life.launcher)
    lab.finish()
done_testing()
