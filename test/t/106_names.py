"""Looking up names: slow, failing, hanging for ever.

C29: a provider whose name cannot be resolved is not called, which is no secret to anybody, and holds up nobody: neither other
providers nor DROP DATABASE nor a shutdown.  The server runs with a getaddrinfo() of ours (see names.py).
"""

import os
import tempfile

from names import Names
from payflow_test import DATABASE, Lab, done_testing, is_, like, ok, poll

SESSIONS = 20
MUST_BE_BLOCKED = {"HUP": 1, "INT": 2, "QUIT": 3, "USR1": 10, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "URG": 23}


def create(lab, order, provider):
    return lab.row("SELECT * FROM payflow.create(%s, 1000, 'EUR', provider => %s)", [order, provider])


def goes_on(lab, order):
    """The other provider does all that it does."""
    pay = create(lab, order, "sandbox")
    row = lab.row("SELECT * FROM payflow.wait(%s::uuid, '30 seconds')", [pay.session_id])
    lab.act(row.provider_payment_id, "pay")
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])
    is_((row.status, row.paid), ("completed", True), f"{order}: another provider goes on")


def resolver_threads(pid):
    """The signals blocked in each thread but the first."""
    masks = []
    for task in os.listdir(f"/proc/{pid}/task"):
        if int(task) == pid:
            continue
        try:
            with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as file:
                masks += [int(line.split()[1], 16) for line in file if line.startswith("SigBlk:")]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return masks


def hanging(lab, names):
    """No answer at all, longer than the timeout.

    protection: http.c sets CURLOPT_QUICK_EXIT; without it the worker waits for the look-up when the call's time is over.
    And it blocks all signals around libcurl.
    """
    names.set("hangs.test", "hold")
    lab.add_server("hangs", lab.url.replace("127.0.0.1", "hangs.test"), connect_timeout="2 s", breaker_failures="1000000")
    sessions = [create(lab, f"hangs {i}", "hangs") for i in range(SESSIONS)]
    poll(lambda: names.asked("hangs.test") >= SESSIONS, what="all look-ups to hang")
    goes_on(lab, "while names hang")
    masks = [mask for pid in lab.workers() for mask in resolver_threads(pid)]
    ok(masks, "the look-ups are threads of the worker")
    is_({name for name, number in MUST_BE_BLOCKED.items() for mask in masks if not mask & (1 << (number - 1))}, set(),
        "in which the server's signal handlers cannot run")

    for pay in sessions:
        first = poll(lambda: lab.journal(pay.session_id, "register"), what="the timeout")[0]
        row = lab.session(pay.session_id)
        if (first.outcome, row.status, row.first_sent_at) != ("unsent", "registering", None):
            break
    is_((first.outcome, row.status, row.first_sent_at, row.endpoint), ("unsent", "registering", None, None),
        "the timeout: unsent, registering, nothing is fixed, for each of them")
    like(first.detail["error"], "Resolving timed out", "the journal says why")
    goes_on(lab, "when their time is over")
    lab.sql("CREATE DATABASE unrelated")
    lab.sql("DROP DATABASE unrelated")
    ok(True, "DROP DATABASE does not wait for a name")

    names.set("hangs.test", "127.0.0.1")
    for pay in sessions:
        lab.ring(pay.session_id)
    for pay in sessions:
        row = lab.poll_session(pay.session_id, "registered", "failed", "canceled")
        stats = lab.stats(reference=pay.session_id)
        if (row.status, stats["calls"]["register"], stats["payments"]) != ("registered", 1, 1):
            break
    is_((row.status, stats["calls"]["register"], stats["payments"]), ("registered", 1, 1),
        "the name is there: each registered, by one call")


def failing(lab, names):
    """No such name; a server that does not answer the question."""
    for order, answer in (("missing", None), ("fails", "fail")):
        name = f"{order}.test"
        if answer is not None:
            names.set(name, answer)
        lab.add_server(order, lab.url.replace("127.0.0.1", name), breaker_failures="1000000")
        pay = create(lab, order, order)
        first = poll(lambda: lab.journal(pay.session_id, "register"), what="an attempt")[0]
        row = lab.session(pay.session_id)
        is_((first.outcome, row.status, row.first_sent_at), ("unsent", "registering", None),
            f"{order}: unsent, registering, nothing is fixed")
        like(first.detail["error"], f"Could not resolve host: {name}", "the journal says why")
        goes_on(lab, f"beside {order}")
        names.set(name, "127.0.0.1")
        lab.ring(pay.session_id)
        is_(lab.poll_session(pay.session_id, "registered").status, "registered", "the name is there: registered")
        is_(lab.stats(order=order)["calls"]["register"], 1, "by one call")


def slow_but_there(lab, names):
    """An answer within the timeout, a little late."""
    names.set("slow.test", "hold")
    lab.add_server("slow", lab.url.replace("127.0.0.1", "slow.test"), connect_timeout="60 s")
    pay = create(lab, "slow", "slow")
    poll(lambda: names.asked("slow.test"), what="the look-up")
    goes_on(lab, "beside a slow name")
    names.set("slow.test", "127.0.0.1")
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "slow: registered")
    is_(len(lab.journal(pay.session_id, "register")), 1, "at the first attempt")


def outage(lab, names):
    """With the breaker as it is by default, an outage is not answered with ever more threads."""
    names.set("outage.test", "hold")
    lab.add_server("outage", lab.url.replace("127.0.0.1", "outage.test"), connect_timeout="1 s", max_in_flight="12")
    sessions = [create(lab, f"outage {i}", "outage") for i in range(40)]
    poll(lambda: lab.one("SELECT breaker FROM payflow.provider_stats WHERE provider = 'outage'") == "open",
         what="the breaker to open")
    for pay in sessions:
        lab.ring(pay.session_id)
    goes_on(lab, "in an outage")
    ok(names.asked("outage.test") <= 24, "nobody asks for the name again and again", names.asked("outage.test"))
    return sessions


def shutdown(lab, names, sessions):
    """The server stops although look-ups hang; afterwards all goes on."""
    lab.stop("fast")
    ok(lab.log_contains("database system is shut down"), "the server stops while names hang")
    ok(not lab.log_contains("terminated by signal|immediate shutdown|PANIC"), "without a crash")
    names.set("outage.test", "127.0.0.1")
    lab.start()
    # Those that were in flight are left to the worker that had them until their leases are over: now.
    lab.sql("""UPDATE payflow.payment_sessions SET lease_until = now()
               WHERE lease_until > now() AND first_sent_at < pg_postmaster_start_time()""")
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() WHERE provider = 'outage'")
    for pay in sessions:
        lab.poll_session(pay.session_id, "registered")
    is_(lab.one("SELECT count(*) FROM payflow.payment_sessions WHERE status = 'registered' AND provider = 'outage'"),
        len(sessions), "all are registered in the end")
    is_({lab.stats(reference=pay.session_id)["calls"]["register"] for pay in sessions}, {1}, "by one call each")


with tempfile.TemporaryDirectory(prefix="pf") as folder:
    names = Names(folder)
    with Lab(workers=1, under=names.under) as lab:
        is_(len(lab.workers()), 1, f"one worker in {DATABASE}: it has to do all at once")
        slow_but_there(lab, names)
        failing(lab, names)
        hanging(lab, names)
        shutdown(lab, names, outage(lab, names))
        is_(lab.alerts(), set(), "no alert: it may pass")
        lab.finish()
done_testing()
