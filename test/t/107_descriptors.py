"""File descriptors run out: few to begin with, and none left.

C29: no more calls are started than there are descriptors for, and a call that finds none says nothing about its provider:
unsent, registering, nothing is fixed.  A provider that hangs leaves room for the others.
"""

import os
import subprocess
import tempfile

from names import Names
from payflow_test import Lab, done_testing, is_, ok, poll

FILES = 256
MANY = 300


def create(lab, order, provider):
    return lab.row("SELECT * FROM payflow.create(%s, 1000, 'EUR', provider => %s)", [order, provider])


def create_many(lab, name, provider):
    return [row.session_id for row in lab.sql("""
        SELECT c.session_id FROM generate_series(1, %s) AS i, payflow.create(%s || ' ' || i, 1000, 'EUR', provider => %s) AS c
        """, [MANY, name, provider])]


def goes_on(lab, other, order, n=10):
    """Another provider does all that it does."""
    sessions = [create(lab, f"{order} {i}", "sandbox").session_id for i in range(n)]
    for session_id in sessions:
        row = lab.poll_session(session_id, "registered")
        other.act(row.provider_payment_id, "pay")
        lab.ring(session_id)
    paid = [lab.poll_session(session_id, "completed").paid for session_id in sessions]
    is_(paid, [True] * n, f"{order}: another provider goes on")


def unsent(lab):
    """What the journal says of calls that never left."""
    return lab.sql("SELECT DISTINCT session_id, detail ->> 'error' AS error FROM payflow.journal WHERE outcome = 'unsent'")


def few(lab, other):
    """More work than descriptors, at a provider that hangs.

    protection: claims.c share() leaves a part of a worker's calls to other providers.
    """
    hold = lab.rule("register", "hold", order="*", times=0)
    lab.add_server("hangs", max_in_flight="10000")
    sessions = create_many(lab, "hangs", "hangs")
    lab.wait_held(hold, 20)
    goes_on(lab, other, "while calls hang")
    poll(lambda: lab.one("SELECT in_flight FROM payflow.workers") == lab.held(hold), what="the worker to be at rest")
    held = lab.held(hold)
    ok(held < FILES / 2, "no more calls than there are descriptors for", held)
    is_(lab.stats()["calls"]["register"], held, "the others have not been started")
    lab.release(hold)
    lab.poll_sql("SELECT count(*) = 0 FROM payflow.payment_sessions WHERE status <> 'registered' AND provider = 'hangs'",
                 deadline=60)
    stats = lab.stats()
    is_((stats["calls"]["register"], stats["payments"], stats["distinct_keys"]), (MANY, MANY, MANY),
        "released: all are registered, by one call each")
    is_(unsent(lab), [], "no call has failed for want of descriptors")
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 hour' WHERE provider = 'hangs'")
    return sessions


def names_hang(lab, other, names):
    """The same while names hang: a look-up takes more descriptors than a connection.

    protection: worker.c DESCRIPTORS_PER_CALL
    """
    names.set("hangs.test", "hold")
    lab.add_server("names", lab.url.replace("127.0.0.1", "hangs.test"), max_in_flight="10000", connect_timeout="60 s")
    create_many(lab, "names", "names")
    poll(lambda: names.asked("hangs.test") >= 20, what="look-ups to hang")
    goes_on(lab, other, "while names hang")
    is_(unsent(lab), [], "no call has failed for want of descriptors")
    names.set("hangs.test", "127.0.0.1")
    lab.poll_sql("SELECT count(*) = 0 FROM payflow.payment_sessions WHERE status <> 'registered' AND provider = 'names'",
                 deadline=60)
    is_(lab.stats()["calls"]["register"], 2 * MANY, "the name is there: all are registered, by one call each")
    is_(unsent(lab), [], "still none has failed")
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 hour' WHERE provider = 'names'")


def limit(pid, soft):
    """Set the limit of another process; only its own user may."""
    owner = os.stat(f"/proc/{pid}")
    user = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.getuid() == 0 else {}
    subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={soft}:"], check=True, **user)


def lowest_free(pid):
    taken = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
    return next(fd for fd in range(len(taken) + 1) if fd not in taken)


def none_left(lab, names):
    """A full table: each kind of call, more often than the breaker would bear of a provider.

    protection: http.c own_shortage(); task.c end_place() leaves the provider's breaker alone then.
    """
    names.set("full.test", "127.0.0.1")
    third = lab.start_provider()
    lab.add_server("by address", third.url)
    lab.add_server("by name", third.url.replace("127.0.0.1", "full.test"))
    [pid] = lab.workers()
    limit(pid, lowest_free(pid))
    sessions = {name: create(lab, name, name).session_id for name in ("by address", "by name")}
    for session_id in sessions.values():
        poll(lambda: lab.ring(session_id) and len(lab.journal(session_id, "register")) >= 12, what="many failing attempts")
    for name, session_id in sessions.items():
        row = lab.session(session_id)
        is_((row.status, {e.outcome for e in lab.journal(session_id, "register")}, third.stats()["calls"]["register"]),
            ("registering", {"unsent"}, 0), f"{name}: unsent again and again, registering")
        is_({e.detail["error"] for e in lab.journal(session_id, "register")}, {"too many open files"}, "the journal says why")
        stats = lab.row("SELECT * FROM payflow.provider_stats WHERE provider = %s", [name])
        is_((stats.breaker, stats.errors, stats.consecutive_failures), ("closed", 0, 0), "nobody blames the provider")
    limit(pid, FILES)
    for name, session_id in sessions.items():
        lab.ring(session_id)
        is_(lab.poll_session(session_id, "registered").status, "registered", f"{name}: descriptors again: registered")
        is_(third.stats(order=name)["calls"]["register"], 1, "by one call")
    is_(lab.workers(), [pid], "by the same worker")


with tempfile.TemporaryDirectory(prefix="pf") as folder:
    names = Names(folder)
    with Lab(workers=1, under=f"prlimit --nofile={FILES} {names.under}") as lab:
        other = lab.start_provider()
        lab.sql("ALTER SERVER sandbox OPTIONS (SET endpoint %s)", [other.url])
        few(lab, other)
        names_hang(lab, other, names)
        none_left(lab, names)
        is_(lab.alerts(), set(), "no alert: it may pass")
        lab.finish()
done_testing()
