"""A9, A10, D3: the server or a worker dies, at every step of a payment.

Whatever dies and when: one payment at the provider, one receipt, nothing
stuck.  The test provider's rule "kill" does it before or after the provider's
work; around it, each crash of the server finds payments at all other steps.

Protection: first_sent_at, committed before the call; the lease, after which
another worker goes on; the idempotency key, always the same.
"""

import os
import signal

import psycopg2

from payflow_test import Lab, done_testing, is_, poll

CREATE = "SELECT * FROM payflow.create(%s, 1000, 'EUR')"


class Payment:
    """A payment at some step, and how it has to end."""

    def __init__(self, lab, order, ends="completed", conn=None):
        self.lab, self.order, self.ends = lab, order, ends
        self.id = lab.one(CREATE, [order], conn=conn)

    def registered(self):
        self.lab.poll_session(self.id, "registered")
        return self

    def paid(self):
        self.lab.act(self.id, "pay")
        return self

    def ring(self, expiring=False):
        self.lab.sql("""UPDATE payflow.payment_sessions SET next_action_at = now(), expiring = %s
                        WHERE session_id = %s AND next_action_at IS NOT NULL""", [expiring, self.id])
        return self

    def answered(self, operation):
        poll(lambda: [c for c in self.lab.requests(self.id, operation) if c["status"]], what=f"{self.order}: the answer")

    def hold_order(self):
        """So that no worker can apply what it learns."""
        conn = self.lab.connect(autocommit=False)
        self.lab.sql("SELECT 1 FROM payflow.orders WHERE order_id = %s FOR UPDATE", [self.order], conn=conn)
        return conn


def all_steps(lab, name):
    """Payments at each step where a crash can find them."""
    rules, holders = [], []

    def held(payment, operation):
        rules.append(lab.rule(operation, "hold", order=payment))

    # the provider has not answered
    held(f"{name}: Register under way", "register")
    payments = [Payment(lab, f"{name}: Register under way")]
    payments.append(Payment(lab, f"{name}: asked").registered().paid())
    held(payments[-1].order, "get")
    payments[-1].ring()
    payments.append(Payment(lab, f"{name}: being expired", ends="failed").registered())
    held(payments[-1].order, "expire")
    payments[-1].ring(expiring=True)
    for rule in rules:
        lab.wait_held(rule)

    # it has answered, nothing is applied
    payments.append(Payment(lab, f"{name}: answered").registered().paid())
    holders.append(payments[-1].hold_order())
    payments[-1].ring().answered("get")
    rules.append(lab.rule("register", "hold", order=f"{name}: Register answered"))
    payments.append(Payment(lab, f"{name}: Register answered"))
    lab.wait_held(rules[-1])
    holders.append(payments[-1].hold_order())
    lab.release(rules.pop())
    payments[-1].answered("register")

    # nothing is under way: never sent, at the page, done
    conn = lab.connect(autocommit=False)
    payments.append(Payment(lab, f"{name}: never sent", conn=conn))
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() + '1 hour'::interval WHERE session_id = %s",
            [payments[-1].id], conn=conn)
    conn.commit()
    payments.append(Payment(lab, f"{name}: at the page").registered())
    payments.append(Payment(lab, f"{name}: completed").registered().paid().ring())
    lab.poll_session(payments[-1].id, "completed")

    # not committed
    lab.sql(CREATE, [f"{name}: not committed"], conn=conn)
    return payments, rules, [*holders, conn]


def settle(lab, name, payments, rules):
    """After the crash: all go on by themselves, once their leases are over; then they are paid."""
    for rule in rules:
        lab.release(rule)
    ids = [payment.id for payment in payments]
    lab.end_lease(*ids)
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() WHERE session_id = ANY (%s::uuid[]) "
            "AND status = 'registering'", [ids])
    for payment in payments:
        row = lab.poll_session(payment.id, "registered", "completed", "failed")
        if row.status == "registered" and payment.ends == "completed":
            payment.paid().ring()
    seen = {payment.order: lab.poll_session(payment.id, "completed", "failed").status for payment in payments}
    is_(seen, {payment.order: payment.ends for payment in payments}, f"{name}: all come to their end")
    wrong = []
    for payment in payments:
        calls = lab.requests(payment.id, "register")
        stats = lab.stats(order=payment.order)
        receipts = lab.one("SELECT count(*) FROM payflow.accounting_entries WHERE session_id = %s", [payment.id])
        if (len({(c["key"], c["body_sha256"]) for c in calls}), stats["payments"]) != (1, 1) or \
                receipts != (payment.ends == "completed"):
            wrong.append((payment.order, calls, stats, receipts))
    is_(wrong, [], f"{name}: one key, one body, one payment, one receipt each")


def none_of_uncommitted(lab, name):
    order = f"{name}: not committed"
    is_((lab.sql("SELECT * FROM payflow.find(%s)", [order]), lab.stats(order=order)["calls"]["register"]), ([], 0),
        f"A9: {name}: what was not committed has no session and was never called")


def crash_of_server(lab, name, crash):
    payments, rules, conns = all_steps(lab, name)
    crash()
    come_back(lab)
    settle(lab, name, payments, rules)
    none_of_uncommitted(lab, name)
    for conn in conns:
        conn.close()


def come_back(lab):
    def there():
        try:
            return len(lab.workers()) == 2
        except psycopg2.OperationalError:
            lab.disconnect()
            return False

    lab.disconnect()
    poll(there, deadline=60, what="the server and its workers")


def killed_while(lab, operation, when, target, order=None):
    """A payment whose call lets the provider kill its caller, before or after the work."""
    order = order or f"{target} killed {when} its {operation}"
    ends = "failed" if operation == "expire" else "completed"
    rule = lab.rule(operation, "kill", when, target=target, order=order)
    payment = Payment(lab, order, ends)
    if operation != "register":
        payment.registered()
        if operation == "get":
            payment.paid()
        payment.ring(expiring=operation == "expire")
    poll(lambda: lab.control("GET", f"/rules/{rule}")["exit_status"] == 0, what="the kill")
    return payment


def worker_killed(lab, operation, when):
    """SIGTERM for the worker that calls, which is the older one; the other goes on with its work."""
    older, younger = [row.pid for row in lab.sql("""SELECT pid FROM pg_stat_activity
        WHERE backend_type = 'payflow worker' ORDER BY backend_start""")]
    lab.stop_worker(younger)
    payment = killed_while(lab, operation, when, "worker")
    is_(older in lab.workers(), False, f"{payment.order}: it has ended")
    lab.go_on(younger)
    settle(lab, payment.order, [payment], [])


def server_killed(lab, operation, when):
    """kill -9 of all of the server."""
    payment = killed_while(lab, operation, when, "server")
    come_back(lab)
    settle(lab, payment.order, [payment], [])


def mark_survives(lab):
    """The mark that Register may have been sent is on the disk before it is sent: what is refused later proves nothing."""
    payment = killed_while(lab, "register", "after", "server", "refused after a crash")
    refusal = lab.rule("register", "status", 422, order=payment.order)
    come_back(lab)
    lab.end_lease(payment.id)
    lab.poll_session(payment.id, "registered", "failed")
    is_((lab.hits(refusal), lab.requests(payment.id, "find") != []), (1, True),
        "A10: refused after a crash: asked by our reference")
    settle(lab, "refused after a crash", [payment], [])


def kill_a_worker(lab):
    """kill -9: the server takes down all others, too, and starts anew."""
    mark = lab.log_mark()
    os.kill(lab.workers()[0], signal.SIGKILL)
    lab.wait_for_log("terminating any other active server processes", mark)


# The disk does not die here; without fsync a start after a crash is much shorter.
with Lab(workers=2, conf={"fsync": "off"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    for operation in ("register", "get", "expire"):
        for when in ("before", "after"):
            worker_killed(lab, operation, when)
            server_killed(lab, operation, when)
    mark_survives(lab)
    crash_of_server(lab, "kill -9 of the server", lab.kill_server)
    crash_of_server(lab, "kill -9 of a worker", lambda: kill_a_worker(lab))
    crash_of_server(lab, "immediate shutdown", lambda: lab.restart("immediate"))
    crash_of_server(lab, "fast shutdown", lambda: lab.restart("fast"))
    is_(lab.one("SELECT count(*) FROM payflow.payment_sessions WHERE next_action_at IS NOT NULL"), 0, "nothing is stuck")
    lab.finish()
done_testing()
