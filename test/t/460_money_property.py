"""A property of all histories: what is booked is what the provider has moved.  F1, C5 to C9, B4, E3.

Random histories of an order: the payer, the bank, the provider and a person
act, we capture, cancel and refund, answers are lost, come twice or too late.
After each step, once nothing is under way: check_invariants() and
verify_ledger() are empty; for each session the entries on the provider's
account sum up to what the provider has captured less what it has refunded and
what is disputed; and the session's own amounts fit both.

    460_money_property.py [SEED]

or PAYFLOW_SEED, which is printed; PAYFLOW_SEQUENCES (how many histories) and
PAYFLOW_STEPS (how long each is) make it longer.  A history that fails is
printed as a list of steps, made as short as it gets and still fails.
"""

import os
import random
import sys
import threading

from payflow_test import HttpError, Lab, TimedOut, diag, done_testing, is_, ok, poll

SEED = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PAYFLOW_SEED") or random.SystemRandom().randrange(10 ** 6))
SEQUENCES = int(os.environ.get("PAYFLOW_SEQUENCES", "18"))
STEPS = int(os.environ.get("PAYFLOW_STEPS", "8"))
THREADS = 3
# a step that has not come to rest by then has failed
REST = int(os.environ.get("PAYFLOW_REST", "20"))

UNSETTLED = "o.status IN ('pending', 'sent', 'unknown') AND o.kind NOT IN ('after_look', 'accept')"
LOST = [("drop_before",), ("drop_after",), ("status", 503), ("garbage",), ("reset",)]

BOOKED = """
    SELECT coalesce(sum(CASE WHEN d.kind = 'provider' THEN e.amount WHEN c.kind = 'provider' THEN -e.amount ELSE 0 END), 0)::bigint AS provider,
        coalesce(sum(e.amount * CASE WHEN e.entry_type IN ('payment_received', 'unexpected_received') THEN 1
            WHEN e.entry_type = 'payment_reversed' THEN -1 ELSE 0 END), 0)::bigint AS captured,
        coalesce(sum(e.amount * CASE WHEN e.entry_type IN ('refund_sent', 'refund_reported') THEN 1
            WHEN e.entry_type = 'refund_reversed' THEN -1 ELSE 0 END), 0)::bigint AS refunded,
        coalesce(sum(e.amount * CASE WHEN e.entry_type = 'chargeback' THEN 1
            WHEN e.entry_type = 'chargeback_reversed' THEN -1 ELSE 0 END), 0)::bigint AS disputed,
        coalesce(sum(e.amount * CASE WHEN c.kind = 'suspense' THEN 1 WHEN d.kind = 'suspense' THEN -1 ELSE 0 END)
            FILTER (WHERE e.currency = 'EUR'), 0)::bigint AS suspense,
        coalesce(sum(e.amount * CASE WHEN e.entry_type IN ('payment_received', 'unexpected_accepted') THEN 1
            WHEN e.entry_type = 'payment_reversed' AND d.kind NOT IN ('suspense', 'losses') THEN -1 ELSE 0 END), 0)::bigint AS receipt,
        coalesce(sum(e.amount * CASE WHEN e.entry_type IN ('refund_sent', 'refund_reported') AND d.kind = 'held' THEN 1
            WHEN e.entry_type = 'refund_reversed' AND c.kind = 'held' THEN -1 ELSE 0 END), 0)::bigint AS refunded_of_receipt
    FROM payflow.accounting_entries e
    JOIN payflow.accounts d ON d.account_id = e.debit_account
    JOIN payflow.accounts c ON c.account_id = e.credit_account
    WHERE e.session_id = %s"""


class Broken(Exception):
    """The property does not hold."""


# ---- one history ----------------------------------------------------------------

class History:
    """An order, its sessions, and what has been done to them so far.

    A step is a tuple: name, which session (from the newest back), arguments.
    Whether a step makes sense is looked at when it is done, so that any part
    of a list of steps can be done too; what makes none does nothing.
    """

    def __init__(self, lab, order, flavour):
        self.lab, self.order = lab, order
        self.server, self.provider, self.merchant, self.capture = flavour
        self.names = self.server != "totals"
        self.capture_failed = set()
        self.sessions = []
        self.create()

    def create(self):
        row = self.lab.row("SELECT * FROM payflow.create(%s, 1000, 'EUR', provider => %s, merchant => %s, capture => %s)",
                           [self.order, self.server, self.merchant, self.capture])
        if row.session_id not in self.sessions:
            self.sessions.append(row.session_id)
        self.lab.poll_session(row.session_id, "registered", "completed", "failed", "canceled", "authorized")

    # looking

    def session(self, back):
        return self.sessions[-1 - back % len(self.sessions)]

    def get(self, session):
        return self.lab.row("SELECT * FROM payflow.get(%s::uuid)", [session])

    def payment(self, session):
        return self.provider.control("GET", f"/payments?reference={session}")[-1]

    def ask(self, session):
        return self.lab.row("SELECT * FROM payflow.check(%s::uuid, '10 seconds')", [session])

    # doing

    def do(self, step):
        name, back, *args = step
        session = self.session(back)
        getattr(self, f"do_{name}")(session, *args)

    def act(self, session, what, **body):
        try:
            self.provider.act(session, what, **body)
        except HttpError as error:
            if error.status != 409:
                raise

    def call(self, query, args):
        """A call of ours, which may be refused."""
        error = self.lab.error(query, args)
        if error is not None and not (error.pgcode or "").startswith("PT4"):
            raise error

    def do_pay(self, session, amount):
        self.act(session, "pay", amount=amount)

    def do_pay_usd(self, session, amount):
        payment = self.payment(session)
        if payment["captured"] == 0 and session not in self.capture_failed and payment["refunded"] == 0:
            self.act(session, "pay", amount=amount, currency="USD")

    def do_status(self, session, what):
        # with money taken, "authorize" and "process" would be a provider that contradicts itself
        if self.payment(session)["captured"] == 0 or what in ("decline", "expire", "cancel"):
            self.act(session, what)

    def do_capture_fail(self, session):
        if self.payment(session)["captured"] > 0:
            self.capture_failed.add(session)
            self.act(session, "capture_fail")

    def do_refund_there(self, session, amount):
        if self.payment(session)["captured"] > 0:
            self.act(session, "refund", amount=amount)

    def do_refund_fail(self, session):
        # without names nobody can tell which of them it was
        if self.names:
            self.act(session, "refund_fail")

    def do_refund_succeed(self, session):
        self.act(session, "refund_succeed")

    def do_dispute(self, session, amount):
        if self.payment(session)["captured"] > 0:
            self.act(session, "dispute", amount=amount)

    def do_win(self, session, amount):
        for dispute in self.payment(session)["disputes"]:
            left = dispute["amount"] - dispute.get("won", 0)
            if left > 0:
                self.act(session, "win_dispute", dispute=dispute["id"], amount=min(amount, left))
                return

    def do_capture(self, session, amount):
        self.call("SELECT FROM payflow.capture(%s::uuid, %s)", [session, amount])

    def do_cancel(self, session):
        self.call("SELECT FROM payflow.cancel(%s::uuid)", [session])

    def do_refund(self, session, amount):
        self.call("SELECT FROM payflow.refund(%s::uuid, %s)", [session, amount])

    def do_retry(self, session):
        for row in self.lab.sql("""SELECT refund_id::text FROM payflow.refunds WHERE session_id = %s AND status = 'failed'
                                   AND failure_code = 'refused'""", [session]):
            self.call("SELECT payflow.retry_now('refund', %s, 'the test wants it')", [row.refund_id])

    def do_resolve(self, session, resolution):
        for row in self.lab.sql("""SELECT id FROM payflow.discrepancies WHERE session_id = %s AND status = 'open'
                                   AND amount IS NOT NULL""", [session]):
            self.call("SELECT payflow.resolve_discrepancy(%s, %s, 'the test wants it')", [row.id, resolution])

    def do_again(self, _session):
        if self.get(self.sessions[-1]).status in ("failed", "canceled"):
            try:
                self.create()
            except Exception as error:
                if not (getattr(error, "pgcode", None) or "").startswith("PT4"):
                    raise

    def do_check(self, session):
        """Twice at once: the same answer may come twice."""
        other = threading.Thread(target=self.ask, args=[session])
        other.start()
        self.ask(session)
        other.join()

    def do_fault(self, session, operation, action):
        self.provider.rule(operation, *action, reference=str(session))

    def do_late(self, session, inner):
        """An answer that was fetched before this step comes after it."""
        rule = self.provider.rule("get", "stall_body", reference=str(session))
        try:
            other = threading.Thread(target=self.ask, args=[session])
            other.start()
            poll(lambda: self.provider.held(rule), what="the answer to be held")
            getattr(self, f"do_{inner[0]}")(session, *inner[2:])
            self.lab.end_lease(session)
            self.rest()
        finally:
            self.provider.release(rule)
        other.join()

    def do_burst(self, session, *inner):
        """Several before anybody looks."""
        for step in inner:
            getattr(self, f"do_{step[0]}")(session, *step[2:])

    # the property

    def hurry(self):
        """What waits for its alarm need not wait long: leases and turns are kept."""
        ids = [str(session) for session in self.sessions]
        self.lab.sql("""UPDATE payflow.payment_sessions SET next_action_at = now() WHERE session_id = ANY (%s::uuid[])
                        AND next_action_at > now() + interval '50 ms' AND lease_until IS NULL""", [ids])
        self.lab.sql("""UPDATE payflow.operations SET next_action_at = now() WHERE session_id = ANY (%s::uuid[])
                        AND status IN ('pending', 'sent') AND kind <> 'after_look' AND next_action_at > now() + interval '50 ms'
                        AND lease_until IS NULL""", [ids])

    def unsettled(self, session):
        """Operations under way, but for refunds that the provider itself has not decided."""
        undecided = {r["reference"] for r in self.payment(session)["refunds"] if r["status"] == "pending"}
        return [row.kind for row in self.lab.sql(f"""SELECT o.kind, o.operation_id::text FROM payflow.operations o
                WHERE o.session_id = %s AND {UNSETTLED}""", [session]) if row.operation_id not in undecided]

    def wrong(self):
        """What does not fit, in words; empty if all does."""
        found = []
        for session in self.sessions:
            payment, row = self.payment(session), self.lab.session(session)
            booked = self.lab.row(BOOKED, [session])
            told = {"captured": payment["captured"], "refunded": payment["refunded"], "disputed": payment["disputed"],
                    "provider": payment["captured"] - payment["refunded"] - payment["disputed"]}
            for what, amount in told.items():
                if getattr(booked, what) != amount:
                    found.append(f"{session}: booked {what} {getattr(booked, what)}, at the provider {amount}")
            for what, have, want in (
                    ("captured_amount", row.captured_amount, booked.receipt),
                    ("refunded_amount", row.refunded_amount, booked.refunded_of_receipt),
                    ("suspense_amount", row.suspense_amount, booked.suspense),
                    ("refundable_amount", row.refundable_amount,
                     max(row.captured_amount - row.refunded_amount - row.reserved_amount - row.disputed_amount, 0))):
                if have != want:
                    found.append(f"{session}: {what} {have}, by the entries {want}")
            if row.disputed_amount > booked.disputed:
                found.append(f"{session}: disputed_amount {row.disputed_amount}, by the entries {booked.disputed}")
            if booked.refunded + booked.disputed > booked.captured and not self.lab.one(
                    "SELECT count(*) FROM payflow.discrepancies WHERE session_id = %s", [session]):
                found.append(f"{session}: more has gone back than came in, and there is no discrepancy")
            if payment["captured"] > 0 and row.status not in ("completed", "failed", "canceled"):
                found.append(f"{session}: {row.status}, and the provider has captured {payment['captured']}")
            shown = self.get(session)
            paid = (self.lab.one("SELECT paid_session_id = %s FROM payflow.orders WHERE merchant = %s AND order_id = %s",
                                 [session, self.merchant, self.order]) is True and not row.cancel_lost and row.reversed_amount == 0
                    and row.refunded_amount + row.disputed_amount < row.captured_amount)
            if shown.paid != paid:
                found.append(f"{session}: paid is {shown.paid}, should be {paid}")
            if self.unsettled(session):
                found.append(f"{session}: unsettled: {self.unsettled(session)}")
        return found

    def rest(self):
        """Wait until nothing is under way and all is known; then the property must hold."""
        last = ["nothing was looked at"]

        def at_rest():
            self.hurry()
            if not any(self.unsettled(session) for session in self.sessions):
                for session in self.sessions:
                    self.ask(session)
            last[:] = self.wrong()
            return not last

        try:
            poll(at_rest, REST, "the books to agree with the provider")
        except TimedOut:
            raise Broken("; ".join(last)) from None
        for function in ("check_invariants", "verify_ledger"):
            rows = self.lab.sql(f"SELECT * FROM payflow.{function}()")
            if rows:
                raise Broken(f"{function}(): {rows}")
        dropped = self.lab.sql("SELECT key, message FROM payflow.alerts WHERE key = ANY (%s)",
                               [[f"answer_dropped:{session}" for session in self.sessions]])
        if dropped:
            raise Broken(f"an answer was dropped: {dropped}")


# ---- choosing steps ------------------------------------------------------------------

def simple_step(rng):
    """A step that the outside does, of those that leave a paid payment paid."""
    part = lambda: rng.choice([1, 100, 250, 300, 400, 500, 999, 1000])  # noqa: E731
    return rng.choice([
        lambda: ("pay", 0, 1000), lambda: ("refund_there", 0, part()), lambda: ("refund_fail", 0), lambda: ("dispute", 0, part()),
        lambda: ("win", 0, part()), lambda: ("refund", 0, part()), lambda: ("refund_succeed", 0)])()


def next_step(rng, history):
    """A step that has something to do, mostly."""
    back = rng.choice([0, 0, 0, 1])
    row = history.get(history.session(back))
    part = lambda: rng.choice([1, 100, 250, 300, 400, 500, 999, 1000])  # noqa: E731
    choices = [
        (2, lambda: ("status", back, rng.choice(["decline", "expire", "cancel", "authorize", "process"]))),
        (2, lambda: ("check", back)),
        (2, lambda: ("fault", back, rng.choice(["refund", "refund", "capture", "cancel", "get"]), rng.choice(LOST))),
        (1, lambda: ("fault", back, "refund", ("decline",))),
        (3, lambda: ("late", back, simple_step(rng))),
        (2, lambda: ("pay", back, rng.choice([1000, 1000, 1000, 700, 1300]))),
    ]
    if row.status in ("registered", "authorized"):
        choices += [(8, lambda: ("pay", back, rng.choice([1000, 1000, 1000, 1000, 600, 1200]))),
                    (1, lambda: ("pay_usd", back, 1000)),
                    (4, lambda: ("status", back, "authorize")),
                    (3, lambda: ("cancel", back)),
                    (3, lambda: ("burst", back, ("cancel", 0), ("pay", 0, 1000)))]
    if row.status == "authorized":
        choices += [(10, lambda: ("capture", back, rng.choice([None, 400, 1000]))),
                    (3, lambda: ("burst", back, ("capture", 0, rng.choice([None, 400])), ("cancel", 0)))]
    if row.captured_amount > 0 or row.suspense_amount > 0:
        choices += [(8, lambda: ("refund", back, rng.choice([None, part()]))),
                    (4, lambda: ("refund_there", back, part())),
                    (4, lambda: ("refund_fail", back)),
                    (4, lambda: ("refund_succeed", back)),
                    (5, lambda: ("dispute", back, part())),
                    (4, lambda: ("win", back, part())),
                    (1, lambda: ("capture_fail", back)),
                    (2, lambda: ("retry", back)),
                    (2, lambda: ("cancel", back)),
                    (5, lambda: ("burst", back, *[simple_step(rng) for _ in range(rng.randint(2, 3))]))]
    if row.suspense_amount > 0:
        choices += [(4, lambda: ("resolve", back, rng.choice(["accept", "refund", "write_off"])))]
    if row.status in ("failed", "canceled"):
        choices += [(5, lambda: ("again", 0)), (4, lambda: ("pay", back, 1000))]
    return rng.choices([make for _, make in choices], [weight for weight, _ in choices])[0]()


def run(lab, order, flavour, steps):
    """Do these steps; returns why it is broken and after which of them, or None."""
    done = []
    try:
        history = History(lab, order, flavour)
        history.rest()
        for step in steps if not callable(steps) else iter(lambda: steps(history), None):
            done.append(step)
            history.do(step)
            history.rest()
    except Exception as error:
        return f"{type(error).__name__}: {error}", done
    return None, done


def shorten(lab, order, flavour, steps):
    """Leave out whatever can be left out; each try costs the time that a failure takes to be seen."""
    tries, i = 0, len(steps) - 1
    while i >= 0 and tries < 12:
        shorter = steps[:i] + steps[i + 1:]
        tries += 1
        if run(lab, f"{order}, try {tries}", flavour, shorter)[0] is not None:
            steps = shorter
        i -= 1
    return steps


def sequence(lab, flavours, number):
    rng = random.Random(f"{SEED} {number}")
    flavour = rng.choice(flavours)
    left = [STEPS]

    def choose(history):
        left[0] -= 1
        return next_step(rng, history) if left[0] >= 0 else None

    order = f"history {number}"
    return order, flavour, *run(lab, order, flavour, choose)


diag(f"PAYFLOW_SEED={SEED}: {SEQUENCES} histories of {STEPS} steps")
with Lab(workers=2, conf={"payflow.poll_interval": "100ms", "fsync": "off"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000000)
    lab.add_server("totals", poll_intervals="1 hour", breaker_failures="1000000", refund_names="no")
    slow = lab.start_provider()
    slow.settings(refunds="pending")
    lab.add_server("slow", slow.url, poll_intervals="1 hour", breaker_failures="1000000")
    for policy in ("hold", "accept", "refund"):
        lab.sql("INSERT INTO payflow.merchants (id, default_provider, late_payment) VALUES (%s, 'sandbox', %s)", [policy, policy])
    flavours = [(server, provider, merchant, capture) for server, provider in (("sandbox", lab), ("totals", lab), ("slow", slow))
                for merchant in ("hold", "accept", "refund") for capture in ("automatic", "manual")]

    numbers, results, broken = iter(range(SEQUENCES)), {}, []
    turn = threading.Lock()

    def work():
        while not broken:
            with turn:
                number = next(numbers, None)
            if number is None:
                return
            results[number] = sequence(lab, flavours, number)
            if results[number][2] is not None:
                broken.append(number)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in sorted(results):
        order, flavour, why, done = results[number]
        ok(why is None, f"F1, C8: {order} of seed {SEED}: {len(done)} steps, the books agree with the provider ({flavour[0]}, {flavour[2]}, {flavour[3]})", why)
    for number in broken[:1]:
        order, flavour, why, done = results[number]
        diag(f"{order}: the steps were: {done}")
        for row in lab.sql("SELECT session_id FROM payflow.payment_sessions WHERE order_id = %s ORDER BY session_id", [order]):
            for entry in lab.journal(row.session_id)[-12:]:
                diag(f"{row.session_id} {entry.event} {entry.from_status} -> {entry.to_status} {entry.outcome} {entry.detail}")
        diag(f"{order}: as short as it gets: {shorten(lab, order, flavour, done)}")
    diag("booked: " + ", ".join(f"{row.n} {row.entry_type}" for row in lab.sql(
        "SELECT entry_type, count(*) AS n FROM payflow.accounting_entries GROUP BY 1 ORDER BY 1")))
    diag("ends: " + ", ".join(f"{row.n} {row.status}" for row in lab.sql(
        "SELECT status, count(*) AS n FROM payflow.payment_sessions GROUP BY 1 ORDER BY 1")))
    is_(len(results), SEQUENCES, f"all {SEQUENCES} histories were gone through")
    ok(not lab.log_contains(r"payflow worker .*(ERROR|FATAL|could not|PANIC)"), "no worker has complained")
    if not broken:
        lab.finish()
done_testing()
