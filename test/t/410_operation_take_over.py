"""Captures, cancels and refunds are taken over, and take their turn.  A9, A10, D3.

Whatever dies and when: the provider moves the money once, it is booked once,
nothing is stuck.  Of two commands of one session that must not cross, the
later one waits.

Protection: the operation's mark first_sent_at, committed before the call; its
lease, after which another worker goes on; its idempotency key, always the
same; FOR NO KEY UPDATE SKIP LOCKED and what sources leave out, in source.c.
"""

import os
import signal

import psycopg2

from payflow_test import Lab, done_testing, is_, ok, poll

CALLS = {"capture": "capture", "reverse": "cancel", "refund": "refund"}
COMMANDS = {
    "capture": "SELECT FROM payflow.capture(%s::uuid)",
    "reverse": "SELECT FROM payflow.cancel(%s::uuid)",
    "refund": "SELECT FROM payflow.refund(%s::uuid, 300)",
}
UNSETTLED = "status IN ('pending', 'sent', 'unknown')"


class Operation:
    """A command, and what it has to come to."""

    def __init__(self, lab, kind, order, server=None):
        self.lab, self.kind, self.order = lab, kind, order
        self.session = lab.one("SELECT session_id FROM payflow.create(%s, 1000, 'EUR', capture => %s, provider => %s)",
                               [order, "automatic" if kind == "refund" else "manual", server])
        lab.poll_session(self.session, "registered")
        lab.act(self.session, "pay" if kind == "refund" else "authorize")
        lab.ring(self.session)
        lab.poll_session(self.session, "completed" if kind == "refund" else "authorized")
        # what happens to it from now on is the operation's doing
        lab.sql("""UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 hour'
                   WHERE session_id = %s AND next_action_at IS NOT NULL""", [self.session])
        self.id = None

    def give(self, conn=None):
        self.lab.sql(COMMANDS[self.kind], [self.session], conn=conn)
        self.id = self.lab.one("""SELECT operation_id FROM payflow.operations WHERE session_id = %s AND kind = %s
                                  ORDER BY operation_id DESC LIMIT 1""", [self.session, self.kind], conn=conn)
        return self

    def row(self):
        return self.lab.row("SELECT * FROM payflow.operations WHERE operation_id = %s", [self.id])

    def calls(self, call=None):
        return self.lab.requests(self.session, call or CALLS[self.kind])

    def set(self, columns):
        self.lab.sql(f"UPDATE payflow.operations SET {columns} WHERE operation_id = %s AND {UNSETTLED}", [self.id])

    def end_lease(self):
        """As if the worker that has it had been away for long."""
        self.set("lease_until = CASE WHEN lease_until IS NOT NULL THEN now() - interval '1 second' END, next_action_at = now()")

    def hold(self, times=1):
        return self.lab.rule(CALLS[self.kind], "hold", order=self.order, times=times)

    def entries(self):
        return [(e.entry_type, e.amount) for e in self.lab.sql(
            "SELECT * FROM payflow.accounting_entries WHERE session_id = %s ORDER BY entry_id", [self.session])]

    def done(self):
        """It succeeds: once at the provider, once here."""
        self.lab.poll_sql("SELECT status IN ('succeeded', 'failed') FROM payflow.operations WHERE operation_id = %s", [self.id])
        payment, = self.lab.payments(self.order)
        wanted = {
            "capture": ("paid", 1000, [], [("payment_received", 1000)]),
            "reverse": ("canceled", 0, [], []),
            "refund": ("paid", 1000, [300], [("payment_received", 1000), ("refund_sent", 300)]),
        }[self.kind]
        got = (payment["status"], payment["captured"], [refund["amount"] for refund in payment["refunds"]], self.entries())
        return self.row().status, got == wanted, len({(c["key"], c["body_sha256"]) for c in self.calls()})

    def is_done(self, name):
        is_(self.done(), ("succeeded", True, 1), f"{name}: moved once, booked once, with one key and the same bytes")


# ---- somebody dies -------------------------------------------------------------

def come_back(lab):
    def there():
        try:
            return len(lab.workers()) == 2
        except psycopg2.OperationalError:
            lab.disconnect()
            return False

    lab.disconnect()
    poll(there, deadline=60, what="the server and its workers")


def killed(lab, kind, when, target):
    """A command whose call lets the provider kill its caller, before or after the work."""
    operation = Operation(lab, kind, f"{target} killed {when} its {kind}")
    rule = lab.rule(CALLS[kind], "kill", when, target=target, order=operation.order)
    operation.give()
    poll(lambda: lab.control("GET", f"/rules/{rule}")["exit_status"] == 0, what="the kill")
    return operation


def server_killed(lab, kind, when):
    """kill -9 of all of the server: what was under way is marked as sent, and is taken again."""
    operation = killed(lab, kind, when, "server")
    come_back(lab)
    row = operation.row()
    is_((row.status, row.first_sent_at is not None, row.attempts), ("sent", True, 1),
        f"A10: {operation.order}: the mark is on the disk")
    operation.end_lease()
    operation.is_done(operation.order)


def worker_killed(lab, kind, when):
    """SIGTERM for the worker that calls, which is the older one; the other goes on with its work."""
    older, younger = [row.pid for row in lab.sql("""SELECT pid FROM pg_stat_activity
        WHERE backend_type = 'payflow worker' ORDER BY backend_start""")]
    lab.stop_worker(younger)
    operation = killed(lab, kind, when, "worker")
    is_(older in lab.workers(), False, f"{operation.order}: it has ended")
    lab.go_on(younger)
    operation.end_lease()
    operation.is_done(operation.order)


def worker_is_killed_by_9(lab):
    """kill -9 of one worker, with calls of all kinds held at the provider: the server starts anew."""
    operations = [Operation(lab, kind, f"under way: {kind}") for kind in CALLS]
    rules = [operation.hold() for operation in operations]
    for operation in operations:
        operation.give()
    for rule in rules:
        lab.wait_held(rule)
    mark = lab.log_mark()
    os.kill(lab.workers()[0], signal.SIGKILL)
    lab.wait_for_log("terminating any other active server processes", mark)
    come_back(lab)
    for rule in rules:
        lab.release(rule)
    for operation in operations:
        operation.end_lease()
        operation.is_done(f"kill -9 of a worker, {operation.order}")


# ---- leases ----------------------------------------------------------------------

def lease_is_over(lab):
    """Another worker takes what the first one has not brought back; the first one itself never twice."""
    for kind in CALLS:
        operation = Operation(lab, kind, f"lease over: {kind}")
        a, b = lab.workers()
        lab.stop_worker(b)
        rule = operation.hold()
        operation.give()
        lab.wait_held(rule)
        first = operation.row()
        operation.end_lease()
        at = lab.one("SELECT clock_timestamp() + '200 milliseconds'::interval")
        lab.poll_sql("SELECT last_loop > %s FROM payflow.workers WHERE pid = %s", [at, a])
        row = operation.row()
        is_((row.attempts, row.status, row.first_sent_at, len(operation.calls())), (1, "sent", first.first_sent_at, 1),
            f"{kind}: while its call is in flight, a worker does not make it twice")
        operation.end_lease()
        lab.go_on(b)
        poll(lambda: len(operation.calls()) == 2, what="the other worker to call")
        row = operation.row()
        is_((first.attempts, row.attempts, row.lease_token != first.lease_token, row.first_sent_at),
            (1, 2, True, first.first_sent_at), f"{kind}: the other one takes it, and counts")
        lab.release(rule)
        operation.end_lease()
        operation.is_done(f"lease over: {kind}")


def mark_is_taken_back(lab):
    """A claim that comes to nothing, because an earlier call is still in flight, leaves no mark behind."""
    operation = Operation(lab, "refund", "mark taken back")
    a, b = lab.workers()
    lab.stop_worker(b)
    rule = operation.hold()
    operation.give()
    lab.wait_held(rule)
    # as if the call in flight had only been a question
    operation.set("""status = 'pending', first_sent_at = NULL,
                     lease_until = NULL, lease_token = NULL, attempts = 0, next_action_at = now()""")
    at = lab.one("SELECT clock_timestamp() + '200 milliseconds'::interval")
    lab.poll_sql("SELECT last_loop > %s FROM payflow.workers WHERE pid = %s", [at, a])
    row = operation.row()
    is_((row.status, row.first_sent_at, row.lease_token, row.attempts, len(operation.calls())),
        ("pending", None, None, 0, 1), "what was claimed in vain is as it was before")
    lab.release(rule)
    lab.go_on(b)
    operation.is_done("mark taken back")


def session_and_operation(lab):
    """The session's own question and its operation's call may be in flight at the same time, of one worker."""
    operation = Operation(lab, "capture", "both in flight")
    other = lab.workers()[1]
    lab.stop_worker(other)
    rules = [operation.hold(), lab.rule("get", "hold", order=operation.order)]
    operation.give()
    lab.wait_held(rules[0])
    lab.ring(operation.session)
    lab.wait_held(rules[1])
    is_(lab.one("SELECT leased FROM payflow.queue_stats WHERE queue = 'money'"), 1, "queue_stats counts the operation")
    for rule in rules:
        lab.release(rule)
    lab.go_on(other)
    operation.is_done("with the session's question in flight")


# ---- turns -------------------------------------------------------------------------

def reverse_waits_for_capture(lab):
    """Protection: WAITS_FOR_ANOTHER in source.c."""
    operation = Operation(lab, "capture", "canceled while captured")
    rule = operation.hold()
    operation.give()
    lab.wait_held(rule)
    lab.sql("SELECT FROM payflow.cancel(%s::uuid)", [operation.session])
    lab.all_looked()
    reverse = lab.row("SELECT * FROM payflow.operations WHERE session_id = %s AND kind = 'reverse'", [operation.session])
    is_((reverse.status, reverse.attempts, len(operation.calls("cancel"))), ("pending", 0, 0),
        "a reverse is not sent while a capture is under way")
    lab.release(rule)
    lab.poll_session(operation.session, "completed")
    lab.poll_sql(f"SELECT count(*) = 0 FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}", [operation.session])
    is_(operation.entries(), [("payment_received", 1000), ("refund_sent", 1000)],
        "the capture was faster: the money goes back by a refund")
    is_((len(operation.calls("capture")), len(operation.calls("cancel")), len(operation.calls("refund"))), (1, 0, 1),
        "captured once, never reversed, refunded once")


def refund_waits_for_reverse(lab):
    """The payment is made while its Reverse is under way: first the provider says what became of that."""
    operation = Operation(lab, "reverse", "paid while reversed")
    rule = operation.hold()
    operation.give()
    lab.wait_held(rule)
    lab.act(operation.session, "pay")
    lab.ring(operation.session)
    lab.poll_session(operation.session, "completed")
    lab.all_looked()
    is_((operation.row().status, operation.calls("refund")), ("sent", []), "a refund is not sent while a reverse is under way")
    lab.release(rule)
    lab.poll_sql(f"SELECT count(*) = 0 FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}", [operation.session])
    is_((operation.row().status, len(operation.calls("refund")), operation.entries()),
        ("failed", 1, [("payment_received", 1000), ("refund_sent", 1000)]), "the reverse lost: then the refund is sent, once")


def one_refund_at_a_time(lab):
    """Where the provider does not name refunds, only the total proves them."""
    lab.add_server("nameless", refund_names="no", poll_intervals="1 hour", breaker_failures="1000")
    first = Operation(lab, "refund", "one at a time", "nameless")
    named = Operation(lab, "refund", "side by side")
    rules = [first.hold(times=0), named.hold(times=0)]
    for operation in (first, named):
        operation.give()
        for amount in (200, 100):
            lab.sql("SELECT FROM payflow.refund(%s::uuid, %s)", [operation.session, amount])
    lab.wait_held(rules[0])
    lab.wait_held(rules[1], 3)
    lab.all_looked()
    is_(lab.sql("SELECT status, total_before FROM payflow.operations WHERE session_id = %s AND kind = 'refund' ORDER BY operation_id",
                [first.session]), [("sent", 0), ("pending", None), ("pending", None)],
        "no names: one refund is under way, the others wait; the total that was refunded before is noted")
    is_(len(first.calls()), 1, "no names: one call")
    for rule in rules:
        lab.release(rule)
    for operation in (first, named):
        lab.poll_sql(f"SELECT count(*) = 0 FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}", [operation.session])
        is_(sorted(operation.entries()[1:]), [("refund_sent", amount) for amount in (100, 200, 300)],
            f"{operation.order}: all three are made, in the end")
    is_(lab.one("""SELECT sum(amount) - max(total_before + amount) FROM payflow.operations WHERE session_id = %s""", [first.session]), 0,
        "each has noted what was refunded before it")


def nobody_holds_another(lab):
    """Whoever holds another refund of the session may be about to send it.  Protection: without_rivals() in claim.c."""
    operation = Operation(lab, "refund", "another one is held", "nameless")
    conn = lab.connect(autocommit=False)
    operation.give(conn)
    lab.sql("UPDATE payflow.operations SET next_action_at = now() + interval '1 hour' WHERE operation_id = %s", [operation.id], conn=conn)
    other = lab.one("SELECT refund_id FROM payflow.refund(%s::uuid, 200)", [operation.session], conn=conn)
    conn.commit()
    lab.sql("SELECT 1 FROM payflow.operations WHERE operation_id = %s FOR UPDATE", [other], conn=conn)
    operation.set("next_action_at = now()")
    lab.all_looked()
    is_((operation.row().status, operation.calls()), ("pending", []), "no names: not while somebody holds another refund of the session")
    conn.rollback()
    conn.close()
    lab.poll_sql(f"SELECT count(*) = 0 FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}", [operation.session])
    is_(operation.entries()[1:], [("refund_sent", 300), ("refund_sent", 200)], "then one after the other")


# ---- what cannot be worked -----------------------------------------------------------

def poisoned(lab):
    """Protection: source_failed() in claims.c."""
    bad, good = (Operation(lab, "refund", order) for order in ("bad claim", "good claim"))
    lab.sql("""CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS
               $$BEGIN RAISE EXCEPTION 'made by the test'; END$$""")
    lab.sql("""CREATE TRIGGER fail BEFORE UPDATE ON payflow.operations FOR EACH ROW
               WHEN (NEW.order_id = 'bad claim' AND NEW.lease_token IS DISTINCT FROM OLD.lease_token)
               EXECUTE FUNCTION public.fail()""")
    mark = lab.log_mark()
    bad.give()
    good.give()
    good.is_done("an operation that cannot be taken hides no other")
    poll(lambda: bad.row().next_action_at > lab.one("SELECT now()"), what="it to be put off")
    ok("claim_failed:sandbox" in lab.alerts(), "with an alert")
    ok(lab.log_contains('an operation of provider "sandbox" could not be taken: made by the test', mark), "and in the log")
    lab.sql("DROP TRIGGER fail ON payflow.operations")
    bad.end_lease()
    bad.is_done("mended")


def missing_provider(lab):
    """Protection: providers_with_live_work(): an operation alone names the provider."""
    lab.add_server("gone", poll_intervals="1 hour", breaker_failures="1000")
    operation = Operation(lab, "refund", "provider gone", "gone")
    conn = lab.connect(autocommit=False)
    operation.give(conn)
    lab.sql("UPDATE payflow.operations SET next_action_at = now() + interval '1 hour' WHERE operation_id = %s", [operation.id], conn=conn)
    conn.commit()
    conn.close()
    lab.sql("DROP SERVER gone CASCADE")
    poll(lambda: "provider_missing:gone" in lab.alerts(), what="an alert")
    operation.set("next_action_at = now() - interval '2 minutes'")
    is_(lab.row("SELECT session_id, reason FROM payflow.stuck WHERE operation_id = %s", [operation.id]),
        (operation.session, "refund: there is no such provider"), "stuck lists the operation")
    lab.sql("CREATE SERVER rings_the_check FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1')")
    poll(lambda: operation.row().next_action_at > lab.one("SELECT now()"), what="its alarm to be put off")
    lab.add_server("gone", poll_intervals="1 hour", breaker_failures="1000")
    operation.end_lease()
    operation.is_done("the provider is back")


# The disk does not die here; without fsync a start after a crash is much shorter.
with Lab(workers=2, conf={"fsync": "off", "payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    lease_is_over(lab)
    mark_is_taken_back(lab)
    session_and_operation(lab)
    reverse_waits_for_capture(lab)
    refund_waits_for_reverse(lab)
    one_refund_at_a_time(lab)
    nobody_holds_another(lab)
    poisoned(lab)
    missing_provider(lab)
    for kind in CALLS:
        for when in ("before", "after"):
            worker_killed(lab, kind, when)
            server_killed(lab, kind, when)
    worker_is_killed_by_9(lab)
    is_(lab.one(f"SELECT count(*) FROM payflow.operations WHERE {UNSETTLED}"), 0, "nothing is stuck")
    lab.finish()

# Four workers, a thousand refunds that are due at the same moment.
with Lab(workers=4, conf={"fsync": "off", "payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    lab.settings(auto="pay")
    lab.sql("SELECT payflow.create('R' || i, 1000, 'EUR') FROM generate_series(1, 1000) i")
    lab.poll_sql("SELECT count(*) = 1000 FROM payflow.payment_sessions WHERE status = 'registered'", deadline=120)
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now()")
    lab.poll_sql("SELECT count(*) = 1000 FROM payflow.payment_sessions WHERE status = 'completed'", deadline=120)
    lab.sql("SELECT payflow.refund(session_id, 100) FROM payflow.payment_sessions")
    lab.poll_sql("SELECT count(*) = 1000 FROM payflow.operations WHERE status = 'succeeded'", deadline=120)
    calls = [call for call in lab.control("GET", "/requests") if call["operation"] == "refund"]
    is_((len(calls), len({call["key"] for call in calls}), lab.stats()["replays"]), (1000, 1000, 0),
        "four workers, a thousand due refunds: each is sent once")
    is_(lab.row("SELECT count(*), max(attempt) FROM payflow.journal WHERE source = 'worker' AND event = 'refund'"), (1000, 1),
        "and taken once")
    ok(lab.one("SELECT count(*) FROM payflow.workers WHERE calls > 0") > 1, "by several workers")
    lab.finish()
done_testing()
