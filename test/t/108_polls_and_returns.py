"""The sweep, callers who ask and payers who come back, all at once and in the middle of lost answers.

C22: never two calls that do something within one attempt.  C26: a payer's return asks the provider once.
"""

import itertools
import threading

from payflow_test import Lab, done_testing, is_, ok, poll, threads_at_barrier

SESSIONS = 200
FAULTS = (None, "drop_before", "drop_after", "reset", "garbage")


def turmoil(lab, sessions, until):
    """Everything that may start a call, for all sessions, until they are where they should be."""
    over = threading.Event()
    live = "status IN ('registering', 'registered', 'unknown')"
    acts = (
        f"SELECT payflow.check(session_id) FROM payflow.payment_sessions WHERE session_id = %s AND {live}",
        f"SELECT payflow.payer_returned(session_id) FROM payflow.payment_sessions WHERE session_id = %s AND {live}",
        "UPDATE payflow.payment_sessions SET next_action_at = now() WHERE session_id = %s AND next_action_at IS NOT NULL",
        "SELECT c.* FROM payflow.payment_sessions s, payflow.create(s.order_id, 1000, 'EUR') AS c WHERE s.session_id = %s",
    )

    def stir(i, conn):
        for session_id in itertools.cycle(sessions[i * 7:] + sessions[:i * 7]):
            if over.is_set():
                return
            error = lab.error(acts[i % len(acts)], [session_id], conn=conn)
            # What create() says of a session that has ended meanwhile is another test's business.
            if error is not None and error.pgcode not in ("PT409", "PT400"):
                raise error

    def wait(_):
        try:
            lab.poll_sql(until, deadline=60)
        finally:
            over.set()

    results = threads_at_barrier(2 * len(acts) + 1, lambda i, conn: wait(i) if i == 2 * len(acts) else stir(i, conn),
                                 lambda i: lab.connect())
    is_([r for r in results if r is not None], [], "nobody meets an error")


def one_call_an_attempt(lab, operation, name):
    """What the provider has counted is what the journal says, session by session."""
    sent = {}
    for call in lab.control("GET", "/requests"):
        if call["operation"] == operation:
            sent.setdefault(call["reference"], []).append(call)
    attempts = dict(lab.sql("""SELECT session_id::text, count(*) FROM payflow.journal
                               WHERE event = %s AND outcome <> 'unsent' GROUP BY 1""", [operation]))
    is_({ref: len(calls) for ref, calls in sent.items()}, attempts, f"C22: {name}: one call an attempt, in all sessions")
    is_({(len({c["key"] for c in calls}), len({c["body_sha256"] for c in calls})) for calls in sent.values()}, {(1, 1)},
        "one key and the same bytes for each")
    return sent


def registering(lab):
    """protection: a claim (source.c, claim.c) leaves alone what another one has leased."""
    for i, fault in enumerate(FAULTS):
        if fault is not None:
            for order in range(i, SESSIONS, len(FAULTS)):
                lab.rule("register", fault, order=f"C22 {order}")
    sessions = [row.session_id for row in lab.sql("""
        SELECT c.session_id FROM generate_series(0, %s) AS i, payflow.create('C22 ' || i, 1000, 'EUR') AS c""",
                                                  [SESSIONS - 1])]
    turmoil(lab, sessions, f"SELECT count(*) = {SESSIONS} FROM payflow.payment_sessions WHERE status = 'registered'")
    sent = one_call_an_attempt(lab, "register", "Register")
    orders = {payment["reference"]: payment["order"] for payment in lab.control("GET", "/payments")}
    expected = {"drop_before": 2, "reset": 2, None: 1, "drop_after": 1, "garbage": 1}
    wrong = {orders[ref]: len(calls) for ref, calls in sent.items()
             if len(calls) != expected[FAULTS[int(orders[ref].split()[1]) % len(FAULTS)]]}
    is_(wrong, {}, "C22: and no more Registers than it takes")
    stats = lab.stats()
    is_((stats["payments"], stats["distinct_keys"]), (SESSIONS, SESSIONS), "as many payments and keys as sessions")
    return sessions


def ending(lab, sessions):
    """Half of them are paid, half run out of time and are expired."""
    # A return that waits to be told would stop a timer later: an answer to another question says that there is none.
    for session_id in sessions:
        lab.sql("SELECT payflow.check(%s::uuid, '30 seconds')", [session_id])
    for session_id in sessions[::2]:
        lab.act(str(session_id), "pay")
    lab.rule("expire", "drop_before", times=20)
    lab.rule("expire", "drop_after", times=20)
    lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() - interval '1 second', next_action_at = now()
               WHERE session_id = ANY (%s::uuid[])""", [sessions[1::2]])
    # For those that run out of time there is only the sweep.
    turmoil(lab, sessions[::2], "SELECT NOT EXISTS (SELECT FROM payflow.payment_sessions WHERE status = 'registered')")
    one_call_an_attempt(lab, "expire", "Expire")
    is_(dict(lab.sql("SELECT status, count(*)::int FROM payflow.payment_sessions GROUP BY 1")),
        {"completed": SESSIONS / 2, "failed": SESSIONS / 2}, "half completed, half expired")
    is_(lab.one("SELECT count(*) FROM payflow.accounting_entries"), SESSIONS / 2, "each receipt is booked once")


def pauses(lab):
    """However often callers ask, the pauses between polls are those of the provider's list.

    protection: claim.c write_leases does not count what callers ask.
    """
    pay = lab.row("SELECT * FROM payflow.create('pauses', 1000, 'EUR')")
    lab.poll_session(pay.session_id, "registered")
    for _ in range(15):
        lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])
    pause = lab.one("SELECT next_action_at - now() FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id])
    ok(pause.total_seconds() < 60, "15 questions of a caller: the next poll is still near", pause)
    lab.act(str(pay.session_id), "pay")
    lab.ring(pay.session_id)
    lab.poll_session(pay.session_id, "completed")


def time_runs_out(lab):
    """A timer that runs out while a question is under way: asked again at once, whatever the pauses have grown to.

    protection: decide.c decide_pending() compares the timer with the time of the question, not of its answer.
    """
    pay = lab.row("SELECT * FROM payflow.create('time', 1000, 'EUR')")
    lab.poll_session(pay.session_id, "registered")
    lab.sql("UPDATE payflow.payment_sessions SET attempts = 15 WHERE session_id = %s", [pay.session_id])
    hold = lab.rule("get", "hold", order="time")
    poll(lambda: lab.ring(pay.session_id) and lab.held(hold), what="a question")
    lab.sql("UPDATE payflow.payment_sessions SET expires_at = now() WHERE session_id = %s", [pay.session_id])
    lab.release(hold)
    is_(lab.poll_session(pay.session_id, "failed").failure_code, "expired", "its time was over: expired without delay")


def merchants_timers(lab):
    """The payer's timers are the merchant's where he has some, also when one batch is of several merchants.

    protection: lock_batch.c read_merchants().
    """
    lab.sql("""INSERT INTO payflow.merchants (id, default_provider, form_timeout, authentication_timeout)
               VALUES ('hasty', 'sandbox', '7 minutes', '3 minutes')""")
    lab.sql("""SELECT count(*) FROM generate_series(1, 3) i, unnest(ARRAY['default', 'hasty']) m
               CROSS JOIN LATERAL payflow.create('timer ' || i, 1000, 'EUR', merchant => m)""")

    def minutes(stage):
        lab.poll_sql(f"SELECT count(*) = 6 FROM payflow.payment_sessions WHERE order_id ~ '^timer' AND stage = '{stage}'")
        return {(row.merchant, row.minutes) for row in lab.sql(
            """SELECT merchant, round(extract(epoch FROM expires_at - updated_at) / 60)::int AS minutes
               FROM payflow.payment_sessions WHERE order_id ~ '^timer'""")}

    is_(minutes("form"), {("default", 30), ("hasty", 7)}, "the form")
    for row in lab.sql("SELECT session_id, provider_payment_id FROM payflow.payment_sessions WHERE order_id ~ '^timer'"):
        lab.act(row.provider_payment_id, "authenticate")
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() WHERE order_id ~ '^timer'")
    is_(minutes("authentication"), {("default", 10), ("hasty", 3)}, "authentication")


def returns(lab):
    """C26: no webhook, no poll: the return is one question, and its answer completes the payment."""
    pay = lab.row("SELECT * FROM payflow.create('C26', 1000, 'EUR')")
    reg = lab.poll_session(pay.session_id, "registered")
    lab.sql("SELECT payflow.payer_redirected(%s::uuid)", [pay.session_id])
    lab.quiet(pay.session_id)
    lab.act(reg.provider_payment_id, "pay")
    before = len(lab.requests(pay.session_id, "get"))
    row = lab.row("SELECT * FROM payflow.payer_returned(%s::uuid, wait => '30 seconds')", [pay.session_id])
    is_((row.status, row.paid, row.captured_amount), ("completed", True, 1000), "C26: the payer is back: completed")
    is_(len(lab.requests(pay.session_id, "get")) - before, 1, "C26: by one question")

    # Many tabs come back at the same moment, while the answer is held.
    pay = lab.row("SELECT * FROM payflow.create('C26 tabs', 1000, 'EUR')")
    reg = lab.poll_session(pay.session_id, "registered")
    lab.quiet(pay.session_id)
    lab.act(reg.provider_payment_id, "pay")
    before = len(lab.requests(pay.session_id, "get"))
    hold = lab.rule("get", "hold", order="C26 tabs")
    tabs = 10

    def come_back(i, conn):
        if i == tabs:
            lab.wait_held(hold)
            poll(lambda: lab.one("""SELECT count(*) FROM pg_stat_activity WHERE state = 'active'
                                    AND query LIKE '%%payer_returned%%' AND pid <> pg_backend_pid()""", conn=conn) == tabs,
                 what="all to wait")
            lab.release(hold)
            return None
        return lab.row("SELECT * FROM payflow.payer_returned(%s::uuid, wait => '30 seconds')", [pay.session_id], conn=conn)

    rows = threads_at_barrier(tabs + 1, come_back, lambda i: lab.connect())[:tabs]
    is_({(row.status, row.paid) for row in rows}, {("completed", True)}, "C26: many at once: each sees it completed")
    questions = len(lab.requests(pay.session_id, "get")) - before
    ok(questions <= 2, "by no more than the question under way and one more", questions)
    is_(lab.one("SELECT count(*) FROM payflow.accounting_entries WHERE order_id LIKE 'C26%%'"), 2, "one receipt each")


with Lab(workers=4) as lab:
    lab.sql("ALTER SERVER sandbox OPTIONS (ADD breaker_failures '1000000')")
    ending(lab, registering(lab))
    pauses(lab)
    time_runs_out(lab)
    merchants_timers(lab)
    returns(lab)
    is_(lab.alerts(), set(), "no alert: all of it is ordinary")
    lab.finish()
done_testing()
