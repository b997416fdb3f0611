"""A worker whose lease was taken over comes back with what it has learned.

Facts move a session forward, whoever brings them; absences are journaled as
stale and change nothing.  B1, D3, C32, C36, C39, C40, C42.

Protection: the lease token in decide.c, for absences; the comparison with what
is booked, for facts; the session's lock in apply.c, at the end.

How: worker A gets its answer while the test holds the order's row, so that it
cannot apply it, and is stopped (SIGSTOP); its lease is ended; worker B takes
over; then A goes on.
"""

from payflow_test import Lab, done_testing, is_, ok, poll


class Late:
    """Worker A's late answer: A is stopped with it, worker B is about to take over."""

    def __init__(self, lab, order, operation="get", act=None, rule=None, capture="automatic", server=None):
        self.lab, self.order = lab, order
        self.a, self.b = lab.workers()
        self.operation = operation
        if operation == "register":
            self.stop(self.a, self.b)
            self.create(capture, server)
        else:
            self.create(capture, server)
            lab.poll_session(self.id, "registered")
            self.stop(self.a, self.b)
            lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now(), expiring = %s WHERE session_id = %s",
                    [operation == "expire", self.id])
        if act:
            self.act(act)
        if callable(rule):
            rule = rule(self)
        if rule:
            lab.rule(operation, *rule, reference=self.id)
        holder = lab.connect(autocommit=False)
        lab.sql("SELECT FROM payflow.orders WHERE order_id = %s FOR UPDATE", [order], conn=holder)
        lab.go_on(self.a)
        lab.poll_sql("SELECT attempts > 0 AND lease_until > now() FROM payflow.payment_sessions WHERE session_id = %s", [self.id])
        poll(lambda: server or [c for c in self.calls() if c["status"] is not None], what="the answer")
        lab.poll_sql("SELECT calls > 0 AND in_flight = 0 FROM payflow.workers WHERE pid = %s", [self.a])
        self.stop(self.a)
        holder.rollback()
        holder.close()
        lab.end_lease(self.id)

    def create(self, capture, server):
        self.id = self.lab.one("SELECT session_id FROM payflow.create(%s, 1000, 'EUR', capture => %s, provider => %s)",
                               [self.order, capture, server])

    def stop(self, *pids):
        for pid in pids:
            self.lab.stop_worker(pid)

    def act(self, what):
        self.lab.act(self.id, what)

    def calls(self, operation=None):
        return self.lab.requests(self.id, operation or self.operation)

    def row(self):
        return self.lab.row("SELECT * FROM payflow.payment_sessions WHERE session_id = %s", [self.id])

    def status(self):
        return self.row().status

    def journal(self):
        return self.lab.sql("SELECT * FROM payflow.journal WHERE session_id = %s ORDER BY journal_id", [self.id])

    def a_returns(self):
        """Worker A applies what it has; returns the row before and after, and what the journal says of it."""
        before, n = self.row(), len(self.journal())
        self.lab.go_on(self.a)
        poll(lambda: len(self.journal()) > n, what="A to come back")
        return before, self.row(), self.journal()[n]

    def b_takes_over(self, *statuses):
        """Worker B asks as well, and applies its answer."""
        n = len(self.journal())
        self.lab.go_on(self.b)
        poll(lambda: len(self.journal()) > n, what="B to take over")
        return self.lab.poll_session(self.id, *statuses)

    def b_is_held(self):
        """Worker B takes over, and its call is held at the provider; returns the rule."""
        rule = self.lab.rule(self.operation, "hold", reference=self.id)
        self.lab.go_on(self.b)
        self.lab.wait_held(rule)
        return rule

    def is_stale(self, name, outcome):
        before, after, said = self.a_returns()
        is_(after, before, f"{name}: nothing changes")
        is_((said.outcome, said.from_status, said.to_status, (said.detail or {}).get("stale")),
            (outcome, before.status, before.status, True), f"{name}: it is journaled as stale")
        is_(self.lab.one("SELECT count(*) FROM payflow.alerts WHERE closed_at IS NULL AND message LIKE %s",
                         [f"%{self.id}%"]), 0, f"{name}: no alert")

    def one_payment(self, name, register=1):
        calls = self.calls("register")
        is_((len(calls), len({(c["key"], c["body_sha256"]) for c in calls}), self.lab.stats(reference=self.id)["payments"]),
            (register, 1, 1), f"{name}: one key, one body, one payment")

    def receipts(self):
        return [(e.entry_type, e.amount) for e in
                self.lab.sql("SELECT * FROM payflow.accounting_entries WHERE session_id = %s ORDER BY entry_id", [self.id])]

    def alerts(self):
        return self.lab.sql("SELECT key, count FROM payflow.alerts WHERE key LIKE %s ORDER BY key", [f"%:{self.id}"])

    def done(self):
        self.lab.poll_sql("SELECT lease_until IS NULL FROM payflow.payment_sessions WHERE session_id = %s", [self.id])


# ---- absences ------------------------------------------------------------------

def absences_of_register(lab):
    """A's Register brought nothing; B's is under way, then brings the payment."""
    for name, rule, outcome in (
            ("pending", None, "pending"),
            ("refused", ("status", 422), "refused"),
            ("lost: no payment in the answer", ("answer", {"error": {"code": "not_allowed"}}), "lost"),
            ("lost: 504", ("status", 504), "lost"),
            ("lost: dropped after the work", ("drop_after",), "lost"),
            ("throttled", ("status", 429), "throttled"),
            ("unauthorized", ("status", 401), "unauthorized")):
        late = Late(lab, f"register, {name}", "register", rule=rule)
        held = late.b_is_held()
        late.is_stale(f"A's Register {name}, B's under way", outcome)
        is_((late.status(), lab.one("SELECT count(*) FROM payflow.provider_refs WHERE session_id = %s", [late.id])),
            ("registering", 0), f"{name}: as if A had not been")
        lab.release(held)
        lab.poll_session(late.id, "registered")
        late.one_payment(name, register=2)
        late.done()


def register_refused_after_b(lab):
    """The same when B is done."""
    late = Late(lab, "register, refused late", "register", rule=("status", 422))
    late.b_takes_over("registered")
    late.is_stale("A's Register refused, B's done", "refused")
    late.one_payment("refused late", register=2)


def register_unsent(lab):
    """A's Register never left this machine; B's may have: the mark stays."""
    lab.sql("CREATE SERVER nobody FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1', breaker_failures '1000')")
    lab.sql("CREATE USER MAPPING FOR CURRENT_USER SERVER nobody OPTIONS (api_key 'k')")
    late = Late(lab, "register, unsent", "register", server="nobody")
    n = len(late.journal())
    lab.go_on(late.b)
    poll(lambda: len(late.journal()) > n, what="B to try as well")
    late.stop(late.b)
    late.is_stale("A's Register unsent", "unsent")
    ok(late.row().first_sent_at is not None, "the mark that it may have been sent stays, for B's attempt")
    late.lab.go_on(late.b)


def absences_of_get(lab):
    """A's question brought nothing, B's is under way, then brings the money."""
    for name, rule, outcome in (
            ("pending", None, "pending"),
            ("not found", ("notfound",), "not_found"),
            ("lost", ("status", 500), "lost"),
            ("throttled", ("status", 429), "throttled"),
            ("unauthorized", ("status", 403), "unauthorized")):
        late = Late(lab, f"get, {name}", rule=rule)
        # its time is over: with the lease, "not found" would end it, and "pending" have it expired
        lab.sql("UPDATE payflow.payment_sessions SET expires_at = now() - interval '1 hour' WHERE session_id = %s", [late.id])
        held = late.b_is_held()
        late.is_stale(f"A's question {name}, B's under way", outcome)
        late.act("pay")
        lab.release(held)
        is_(lab.poll_session(late.id, "completed").paid, True, f"{name}: B's answer completes it")
        is_(late.receipts(), [("payment_received", 1000)], f"{name}: one receipt")
        late.done()


def absences_after_the_end(lab):
    """C42: absences never touch what is final."""
    for name, rule, outcome in (("pending", None, "pending"), ("not found", ("notfound",), "not_found"),
                                ("lost", ("status", 500), "lost")):
        late = Late(lab, f"final, {name}", rule=rule)
        late.act("pay")
        late.b_takes_over("completed")
        late.is_stale(f"C42: A's question {name}, the session completed", outcome)
        is_(late.receipts(), [("payment_received", 1000)], f"{name}: one receipt")


def absence_of_expire(lab):
    """A's request to expire the payment is refused, B's is under way."""
    late = Late(lab, "expire", "expire", rule=("status", 409))
    held = late.b_is_held()
    late.is_stale("A's request to expire refused, B's under way", "refused")
    lab.release(held)
    is_(lab.poll_session(late.id, "failed").failure_code, "expired", "expire: B's answer ends it")
    late.one_payment("expire")


# ---- facts -----------------------------------------------------------------------

def facts_before_b(lab):
    """A's fact counts although the row bears B's lease; B's answer then finds it done."""
    for act, status, entries in (("pay", "completed", [("payment_received", 1000)]), ("decline", "failed", []),
                                 ("expire", "failed", []), ("cancel", "canceled", [])):
        late = Late(lab, f"fact, {act}", act=act)
        held = late.b_is_held()
        _, after, said = late.a_returns()
        is_((after.status, said.to_status, (said.detail or {}).get("stale")), (status, status, None),
            f"A comes back with {act}: {status}, without the lease")
        is_(late.receipts(), entries, f"{act}: booked")
        n = len(late.journal())
        lab.release(held)
        poll(lambda: len(late.journal()) > n, what="B to come back")
        is_((late.status(), late.receipts(), late.alerts()), (status, entries, []), f"{act}: B's answer changes nothing")
        late.done()
        late.one_payment(act)


def facts_after_b(lab):
    """B has ended the session; A's older fact says something else, or the same."""
    for first, second, status, entries, alerts in (
            ("pay", None, "completed", [("payment_received", 1000)], {}),
            ("decline", "pay", "completed", [("payment_received", 1000)], {"contradiction": 1}),
            ("expire", "pay", "completed", [("payment_received", 1000)], {}),
            ("cancel", "pay", "completed", [("payment_received", 1000)], {"contradiction": 1}),
            ("authorize", "pay", "completed", [("payment_received", 1000)], {}),
            ("authorize", "decline", "failed", [], {"late_authorization": 1}),
            # the provider's captured total stays after its decline: it is money, whoever reports it first
            ("pay", "decline", "failed", [("unexpected_received", 1000)], {"unexpected_money": 1})):
        name = f"A {first}, B {second or first}"
        capture = "manual" if first == "authorize" else "automatic"
        late = Late(lab, name, act=first, capture=capture)
        if second:
            late.act(second)
        late.b_takes_over(status)
        before, after, _ = late.a_returns()
        is_(after, before, f"{name}: {status}, as it was")
        is_(late.receipts(), entries, f"{name}: booked once")
        is_({a.key.partition(":")[0]: a.count for a in late.alerts()}, alerts, f"{name}: the alerts")
        late.one_payment(name)


def facts_go_forward(lab):
    """B has made a step, A's older fact another: the one that is further on stands."""
    late = Late(lab, "authorized, then paid", act="authorize", capture="manual")
    held = late.b_is_held()
    _, after, _ = late.a_returns()
    is_((after.status, after.authorized_amount), ("authorized", 1000), "A comes back with authorized")
    late.act("pay")
    lab.release(held)
    is_(lab.poll_session(late.id, "completed").captured_amount, 1000, "then B with paid")

    late = Late(lab, "paid, then authorized", act="pay", capture="manual")
    late.act("authorize")
    late.b_takes_over("authorized")
    late.a_returns()
    is_((late.status(), late.receipts()), ("completed", [("payment_received", 1000)]),
        "B says authorized, then A comes back with paid: completed")

    late = Late(lab, "declined, then paid", act="decline")
    held = late.b_is_held()
    late.a_returns()
    late.act("pay")
    lab.release(held)
    lab.poll_sql("SELECT suspense_amount = 1000 FROM payflow.payment_sessions WHERE session_id = %s", [late.id])
    is_((late.status(), late.receipts()), ("failed", [("unexpected_received", 1000)]),
        "A comes back with declined, then B with paid: failed, the money in suspense")


def attempt_declined(lab):
    """A declined card while the page is open: a fact, but none that turns anything back."""
    def card_declined(late):
        payment = lab.payments(late.order)[0]
        return "answer", {**payment, "decline_code": "insufficient_funds"}

    for act, status in (("pay", "completed"), ("decline", "failed"), ("process", "registered")):
        late = Late(lab, f"card, {act}", rule=card_declined)
        late.act(act)
        late.b_takes_over(status)
        before, after, _ = late.a_returns()
        is_((after.status, after.stage, after.failure_code),
            (status, before.stage, "insufficient_funds" if act == "process" else before.failure_code),
            f"A's card declined, B's answer to {act}: {status}, at stage {before.stage}")
        late.one_payment(f"card, {act}")


def foreign(lab):
    """An answer about somebody else's payment, come too late: a person is told, nothing is booked."""
    def others_payment(late):
        return "answer", {**lab.payments(late.order)[0], "id": "pay_foreign", "reference": "somebody else's",
                          "status": "paid", "captured": 1000, "authorized": 1000}

    late = Late(lab, "foreign", rule=others_payment)
    held = late.b_is_held()
    before, after, _ = late.a_returns()
    is_((after, late.receipts()), (before, []), "A's answer is about another payment: nothing changes, nothing is booked")
    is_(lab.one("SELECT count(*) FROM payflow.provider_refs WHERE ref = 'pay_foreign'"), 0, "its id is nobody's")
    ok("foreign_reference:sandbox" in lab.alerts(), "with an alert", lab.alerts())
    lab.release(held)
    late.done()
    late.one_payment("foreign")


def return_is_noted(lab):
    """The payer's return is a fact of its own, whatever becomes of the question that it led to."""
    order = "returned"
    pay = lab.poll_session(lab.one("SELECT session_id FROM payflow.create(%s, 1000, 'EUR')", [order]), "registered")
    rule = lab.rule("get", "hold", order=order)
    lab.sql("SELECT FROM payflow.payer_returned(%s::uuid, '{\"token\": \"t\"}')", [pay.session_id])
    lab.wait_held(rule)
    other = lab.rule("get", "hold", order=order)
    lab.end_lease(pay.session_id)
    lab.wait_held(other)
    lab.release(rule)
    lab.poll_sql("SELECT count(*) = 1 FROM payflow.journal WHERE session_id = %s AND (detail ->> 'stale')::boolean",
                 [pay.session_id])
    row = lab.row("SELECT * FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id])
    is_((row.returned_at is not None, row.return_params, row.status), (True, {"token": "t"}, "registered"),
        "a stale answer to the question of a payer's return: the return itself is noted")
    lab.release(other)


# ---- not taken over yet ------------------------------------------------------------

def taken_over_too_late(lab):
    """A applies while its lease is ended: who ends it waits, and finds that there is none.

    Protection: the lock of the session, from when the lease was compared.
    """
    pay = lab.row("SELECT * FROM payflow.create('too late', 1000, 'EUR')")
    lab.poll_session(pay.session_id, "registered")
    lab.act(pay.session_id, "pay")
    rule = lab.rule("get", "hold", order="too late")
    lab.ring(pay.session_id)
    lab.wait_held(rule)
    with lab.gate("payflow.payment_sessions", "UPDATE") as gate:
        lab.release(rule)
        gate.wait_held()
        found = lab.sql("SELECT 1 FROM payflow.payment_sessions WHERE session_id = %s FOR NO KEY UPDATE SKIP LOCKED",
                        [pay.session_id])
        is_(found, [], "between the comparison of the lease and the writing nobody can take the session over")
        gate.open()
    lab.poll_session(pay.session_id, "completed")
    is_(lab.stats(order="too late")["calls"]["get"], 1, "and nobody did")


with Lab(workers=2, conf={"payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    for test in (absences_of_register, register_refused_after_b, register_unsent, absences_of_get, absences_after_the_end,
                 absence_of_expire, facts_before_b, facts_after_b, facts_go_forward, attempt_declined, foreign, return_is_noted,
                 taken_over_too_late):
        test(lab)
    lab.finish()
done_testing()
