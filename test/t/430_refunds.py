"""Refunds: C7, C8, C60, C61, A8, A9, A10, B3.

Each refund is made once at the provider and booked once here, whatever becomes of its answer; the sum of ours never exceeds
what was captured; what the provider does by itself is booked all the same.  After each step the entries of the session
and the money of the payment at the provider are compared.
"""

import psycopg2.extensions

from payflow_test import Lab, done_testing, is_, ok, poll, threads_at_barrier

UNSETTLED = "status IN ('pending', 'sent', 'unknown')"
REFUND = "SELECT * FROM payflow.refund(%s::uuid, %s)"
KEYED = "SELECT * FROM payflow.refund(%s::uuid, %s, idempotency_key => %s)"


class Payment:
    """A payment of 1000 that is completed, and both sides of its money."""

    def __init__(self, lab, order, amount=1000, provider="sandbox", pay=True):
        self.lab, self.order = lab, order
        self.id = lab.one("SELECT session_id FROM payflow.create(%s, %s, 'EUR', provider => %s)", [order, amount, provider])
        lab.poll_session(self.id, "registered")
        lab.quiet(self.id)
        if pay:
            self.act("pay")
            self.check()

    def act(self, what, **body):
        return self.lab.act(self.id, what, **body)

    def check(self):
        return self.lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [self.id])

    def row(self):
        return self.lab.row("SELECT * FROM payflow.get(%s::uuid)", [self.id])

    def money(self):
        row = self.row()
        return row.order_status, row.paid, row.refunded_amount, row.refundable_amount

    def refund(self, amount=None, key=None):
        return self.lab.row(KEYED, [self.id, amount, key])

    def refunds(self):
        return self.lab.sql("SELECT * FROM payflow.refunds WHERE session_id = %s ORDER BY refund_id", [self.id])

    def calls(self):
        return self.lab.requests(self.id, "refund")

    def keys(self):
        """Refund calls, and the different keys and bodies among them."""
        calls = self.calls()
        return len(calls), len({call["key"] for call in calls}), len({call["body_sha256"] for call in calls})

    def entries(self):
        """All but the receipt."""
        return [(e.entry_type, e.amount) for e in self.lab.sql(
            """SELECT entry_type, amount FROM payflow.accounting_entries
               WHERE session_id = %s AND entry_type <> 'payment_received' ORDER BY entry_id""", [self.id])]

    def claim(self):
        """What the ledger says that the provider still has of it, and what it has."""
        payment, = self.lab.payments(self.order)
        booked = self.lab.one("""SELECT coalesce(sum(CASE WHEN d.kind = 'provider' THEN e.amount ELSE 0 END
                                              - CASE WHEN c.kind = 'provider' THEN e.amount ELSE 0 END), 0)::bigint
            FROM payflow.accounting_entries e JOIN payflow.accounts d ON d.account_id = e.debit_account
                JOIN payflow.accounts c ON c.account_id = e.credit_account WHERE e.session_id = %s""", [self.id])
        return booked, payment["captured"] - payment["refunded"] - payment["disputed"]

    def agree(self, entries, name):
        booked, there = self.claim()
        is_((self.entries(), booked), (entries, there), f"{name}: booked once, and both sides agree")

    def discrepancies(self):
        return [d.kind for d in self.lab.sql("SELECT kind FROM payflow.discrepancies WHERE session_id = %s ORDER BY id", [self.id])]


def get(lab, refund):
    return lab.row("SELECT * FROM payflow.get_refund(%s::uuid)", [refund.refund_id])


def operation(lab, refund):
    return lab.row("SELECT * FROM payflow.operations WHERE operation_id = %s", [refund.refund_id])


def ring(lab, *refunds):
    """Let the alarms of unsettled refunds ring; true, for poll()."""
    lab.sql(f"UPDATE payflow.operations SET next_action_at = now() WHERE operation_id = ANY (%s::uuid[]) AND {UNSETTLED}",
            [[str(refund.refund_id) for refund in refunds]])
    return True


def settled(lab, refund, status="succeeded"):
    """Wait until it is settled; it should be so."""
    def there():
        ring(lab, refund)
        row = get(lab, refund)
        return row if row.status in ("succeeded", "failed") else None

    row = poll(there, what="the refund to be settled")
    is_(row.status, status, f"the refund has {status}")
    return row


def error(lab, query, args, conn=None):
    """The SQLSTATE and word of an error."""
    e = lab.error(query, args, conn=conn)
    return e and (e.pgcode, e.diag.message_detail)


# ---- what is ordinary ------------------------------------------------------------

def partial_and_full(lab):
    pay = Payment(lab, "C7", pay=False)
    is_(pay.money()[:2], ("open", False), "C7: open")
    pay.act("pay")
    pay.check()
    is_(pay.money(), ("paid", True, 0, 1000), "C7: paid")
    hold = lab.rule("refund", "hold", order="C7")
    first = pay.refund(300)
    is_((first.status, first.http_status, first.replayed, first.amount, first.currency), ("pending", 202, False, 300, "EUR"),
        "C7: a refund is pending")
    lab.wait_held(hold)
    is_(pay.money(), ("refunding", True, 0, 700), "C7: refunding; what is pending cannot be refunded again")
    waited = lab.row("SELECT * FROM payflow.wait_refund(%s::uuid, '20 milliseconds')", [first.refund_id])
    is_((waited.status, waited.http_status), ("pending", 202), "wait_refund() at its timeout: still pending")
    results = threads_at_barrier(2, lambda i: lab.release(hold) if i else lab.row(
        "SELECT * FROM payflow.wait_refund(%s::uuid, '30 seconds')", [first.refund_id]))
    is_((results[0].status, results[0].http_status), ("succeeded", 200), "wait_refund() returns when it is done")
    is_(get(lab, first).provider_refund_id, lab.payments("C7")[0]["refunds"][0]["id"], "get_refund() tells the provider's id")
    is_(pay.money(), ("partially_refunded", True, 300, 700), "C7: partially refunded, and still paid")
    pay.agree([("refund_sent", 300)], "C7: a part")

    hold = lab.rule("refund", "hold", order="C7")
    second = pay.refund()
    lab.wait_held(hold)
    is_((second.amount, pay.money()), (700, ("refunding", True, 300, 0)), "C7: null is all that is left; refunding again")
    lab.release(hold)
    settled(lab, second)
    is_(pay.money(), ("refunded", False, 1000, 0), "C7: refunded, no longer paid")
    is_(pay.row().status, "completed", "the session stays completed")
    is_(pay.keys(), (2, 2, 2), "C7: each has its own key")
    is_([call["key"] for call in pay.calls()], [str(first.refund_id), str(second.refund_id)], "which is its id")
    is_([r["reference"] for r in lab.payments("C7")[0]["refunds"]], [str(first.refund_id), str(second.refund_id)],
        "the provider knows them by their ids")
    pay.agree([("refund_sent", 300), ("refund_sent", 700)], "C7: all of it")
    is_(error(lab, REFUND, [pay.id, 1]), ("PT409", "refund_exceeds_captured"), "C7: nothing more goes")
    is_(error(lab, REFUND, [pay.id, None]), ("PT409", "not_refundable"), "C7: of nothing, all that is left is nothing")
    is_(error(lab, "SELECT payflow.create(%s, 1000, 'EUR')", ["C7"]), ("PT409", "order_already_paid"),
        "A6: an order that was refunded is not free again")
    is_(error(lab, "SELECT payflow.get_refund(%s::uuid)", [pay.id]), ("PT404", "refund_not_found"), "no such refund")


def odd_amounts(lab):
    pay = Payment(lab, "C61", 100)
    for amount in (-1, 0, -2 ** 63):
        is_(error(lab, REFUND, [pay.id, amount]), ("PT400", "invalid_amount"), f"C61: a refund of {amount} is refused")
    is_(error(lab, REFUND, [pay.id, 101]), ("PT409", "refund_exceeds_captured"), "C7: more than was captured is refused")
    is_((pay.refunds(), pay.calls(), pay.money()), ([], [], ("paid", True, 0, 100)), "C61: and nothing came of it")
    unpaid = Payment(lab, "not paid", pay=False)
    is_(error(lab, REFUND, [unpaid.id, 1]), ("PT409", "not_refundable"), "what was not paid is not refunded")


# ---- many at once ------------------------------------------------------------------

def ten_of_ten(lab):
    """C60, C7.  Protection: refund() locks order and session before it looks at what is left."""
    pay = Payment(lab, "C60", 100)
    results = threads_at_barrier(14, lambda i, conn: lab.row(REFUND, [pay.id, 10], conn=conn), lambda i: lab.connect())
    made = [r for r in results if not isinstance(r, Exception)]
    refused = [(r.pgcode, r.diag.message_detail) for r in results if isinstance(r, Exception)]
    is_((len(made), refused), (10, [("PT409", "refund_exceeds_captured")] * 4), "C60: 14 times 10 of 100 at once: exactly 10")
    is_(len({r.refund_id for r in made}), 10, "C60: ten different refunds")
    poll(lambda: ring(lab, *made) and all(get(lab, r).status == "succeeded" for r in made), what="all of them")
    is_((lab.stats(order="C60")["refunded"], pay.keys()[:2]), (100, (10, 10)), "C60: the provider refunded 100, under ten keys")
    is_(pay.money(), ("refunded", False, 100, 0), "C60: refunded")
    pay.agree([("refund_sent", 10)] * 10, "C60")


def two_sixties(lab):
    """C60 in each isolation level, with snapshots from before."""
    for name, level in (("READ COMMITTED", psycopg2.extensions.ISOLATION_LEVEL_READ_COMMITTED),
                        ("REPEATABLE READ", psycopg2.extensions.ISOLATION_LEVEL_REPEATABLE_READ),
                        ("SERIALIZABLE", psycopg2.extensions.ISOLATION_LEVEL_SERIALIZABLE)):
        pay = Payment(lab, f"C60, {name}", 100)

        def connect(_, level=level, pay=pay):
            conn = lab.connect(autocommit=False)
            conn.set_session(isolation_level=level)
            lab.sql("SELECT * FROM payflow.get(%s::uuid)", [pay.id], conn=conn)
            return conn

        def refund(_, conn, pay=pay):
            try:
                row = lab.row(REFUND, [pay.id, 60], conn=conn)
                conn.commit()
                return row
            finally:
                conn.close()

        results = threads_at_barrier(2, refund, connect)
        made = [r for r in results if not isinstance(r, Exception)]
        wrong = [(r.pgcode, r.diag.message_detail if r.pgcode == "PT409" else None) for r in results if isinstance(r, Exception)]
        allowed = [("PT409", "refund_exceeds_captured")] + ([("40001", None)] if name != "READ COMMITTED" else [])
        ok(len(made) == 1 and len(wrong) == 1 and wrong[0] in allowed, f"C60: 2 times 60 of 100, {name}: one", results)
        settled(lab, made[0])
        is_((lab.stats(order=pay.order)["refunded"], len(pay.calls())), (60, 1), f"C60: {name}: 60 at the provider, one call")
        pay.agree([("refund_sent", 60)], f"C60: {name}")


# ---- keys and transactions -----------------------------------------------------------

def keys_of_callers(lab):
    """A8.  Protection: idempotency_keys, claimed before the limits are looked at."""
    pay = Payment(lab, "A8")
    results = threads_at_barrier(8, lambda i, conn: lab.row(KEYED, [pay.id, 600, "key A8"], conn=conn), lambda i: lab.connect())
    ok(all(not isinstance(r, Exception) for r in results), "A8: eight with one key at once: no error", results)
    is_((len({r.refund_id for r in results}), sorted(r.replayed for r in results)), (1, [False] + [True] * 7),
        "A8: one refund, the others get it replayed")
    first = results[0]
    is_(error(lab, KEYED, [pay.id, 300, "key A8"]), ("PT422", "idempotency_key_reused"), "A8: another amount: 422")
    is_(error(lab, KEYED, [pay.id, None, "key A8"]), ("PT422", "idempotency_key_reused"), "A8: all that is left is another amount")
    other = Payment(lab, "A8, other")
    is_(error(lab, KEYED, [other.id, 600, "key A8"]), ("PT422", "idempotency_key_reused"), "A8: another session: 422")
    settled(lab, first)
    again = pay.refund(600, "key A8")
    is_((again.refund_id, again.replayed, again.status, again.http_status), (first.refund_id, True, "succeeded", 200),
        "A8: replayed when it is done, although 600 more are not left")
    is_(pay.keys(), (1, 1, 1), "A8: one call")

    lab.rule("refund", "decline", order="A8")
    failed = pay.refund(100, "key A8 b")
    settled(lab, failed, "failed")
    is_(pay.refund(100, "key A8 b").status, "failed", "A8: a key replays its failure too")
    is_(len(pay.calls()), 2, "A8: without another call")
    pay.agree([("refund_sent", 600)], "A8")


def without_keys(lab):
    pay = Payment(lab, "no key")
    conn = lab.connect(autocommit=False)
    one = lab.row(REFUND, [pay.id, 100], conn=conn)
    two = lab.row(REFUND, [pay.id, 100], conn=conn)
    three = lab.row(REFUND, [pay.id, 200], conn=conn)
    keyed = lab.row(KEYED, [pay.id, 100, "its own"], conn=conn)
    conn.commit()
    is_((two.refund_id, two.replayed), (one.refund_id, True), "without a key the same again in one transaction is the same")
    ok(len({one.refund_id, three.refund_id, keyed.refund_id}) == 3, "another amount, or one with a key, is another one")
    four = lab.row(REFUND, [pay.id, 100], conn=conn)
    conn.commit()
    isnt = four.refund_id not in (one.refund_id, keyed.refund_id)
    ok(isnt and not four.replayed, "in the next transaction it is another one")
    for refund in (one, three, keyed, four):
        settled(lab, refund)
    is_(lab.stats(order="no key")["refunded"], 500, "the provider refunded these four")


def rolled_back(lab):
    """A9."""
    pay = Payment(lab, "A9")
    conn = lab.connect(autocommit=False)
    lab.sql(REFUND, [pay.id, 400], conn=conn)
    conn.rollback()
    lab.sql("SAVEPOINT s", conn=conn)
    lab.sql(KEYED, [pay.id, 1000, "key A9"], conn=conn)
    is_(error(lab, REFUND, [pay.id, 1], conn=conn), ("PT409", "refund_exceeds_captured"), "A9: it counts in its transaction")
    lab.sql("ROLLBACK TO s", conn=conn)
    lab.sql("SELECT 1", conn=conn)
    conn.commit()
    lab.sql("CREATE TABLE public.deferred (id int PRIMARY KEY, other int REFERENCES public.deferred DEFERRABLE INITIALLY DEFERRED)")
    lab.sql(REFUND, [pay.id, 400], conn=conn)
    lab.sql("INSERT INTO public.deferred VALUES (1, 2)", conn=conn)
    try:
        conn.commit()
        failed = False
    except psycopg2.errors.ForeignKeyViolation:
        failed = True
    ok(failed, "A9: the commit fails")
    lab.all_looked()
    is_((pay.refunds(), pay.calls(), pay.money()), ([], [], ("paid", True, 0, 1000)),
        "A9: rolled back, to a savepoint too, or a failed commit: no refund, no call, the money is free")
    settled(lab, pay.refund(1000, "key A9"))
    pay.agree([("refund_sent", 1000)], "A9: the key is free as well")


# ---- answers that are lost -------------------------------------------------------------

# What a rule does to the call, and whether the provider has done its work all the same.
FAULTS = {
    "drop before": (("drop_before",), {}, False),
    "drop after": (("drop_after",), {}, True),
    "reset": (("reset",), {}, False),
    "503": (("status", 503), {}, False),
    "500 done": (("status", 500), {"done": True}, True),
    "504 done": (("status", 504), {"done": True}, True),
    "key in use": (("status", 409), {"code": "key_in_use"}, False),
    "garbage": (("garbage",), {}, True),
    "half body": (("half_body",), {}, True),
    "huge body": (("huge_body",), {}, True),
    "nothing in it": (("answer", {}), {}, False),
    "another refund": (("answer", {"id": "ref_other", "amount": 300, "status": "succeeded", "reference": "other"}), {}, False),
    "a payment": (("answer", {"id": "pay_x", "status": "paid", "amount": 300, "captured": 300}), {}, False),
    "a page, 422": (("answer", "<html>No</html>"), {"status": 422}, False),
    "late": (("hold",), {}, True),
    "stalled": (("stall_body",), {}, True),
}
HASTY = ("late", "stalled")


def lost(lab):
    """A10, B3: asked about before it is sent again; sent again with the same key and bytes.

    Protection: operate.c sets ask_due when a command's answer is lost.
    """
    pays = {fault: Payment(lab, f"lost: {fault}", provider="hasty" if fault in HASTY else "sandbox") for fault in FAULTS}
    hold = lab.rule("get", "hold", times=0)
    rules = {fault: lab.rule("refund", *action, order=pays[fault].order, **more) for fault, (action, more, _) in FAULTS.items()}
    refunds = {fault: pay.refund(300) for fault, pay in pays.items()}
    poll(lambda: ring(lab, *refunds.values()) and all(
        lab.one("SELECT ask_due AND lease_until IS NOT NULL FROM payflow.operations WHERE operation_id = %s", [r.refund_id])
        for r in refunds.values()) and lab.held(hold) >= len(FAULTS), what="a question about each")
    for fault, pay in pays.items():
        row = get(lab, refunds[fault])
        is_((row.status, row.http_status, pay.money(), pay.entries(), len(pay.calls())),
            ("pending", 202, ("refunding", True, 0, 700), [], 1), f"A10: {fault}: nothing is known, nothing booked, one call so far")
    lab.release(rules["late"])      # the first call is done only now, before the question
    lab.release(hold)
    for fault, pay in pays.items():
        settled(lab, refunds[fault])
        payment, = lab.payments(pay.order)
        is_([(r["amount"], r["status"]) for r in payment["refunds"]], [(300, "succeeded")], f"A10: {fault}: one refund at the provider")
        is_(pay.keys(), (1 if FAULTS[fault][2] else 2, 1, 1), f"A10: {fault}: one key, the same bytes, sent no more than it takes")
        pay.agree([("refund_sent", 300)], f"A10: {fault}")
    lab.clear_rules()


def lost_again_and_again(lab):
    """The question's answer is lost too, and the command's once more."""
    pay = Payment(lab, "lost often")
    lab.rule("refund", "drop_before", order=pay.order, times=2)
    lab.rule("get", "status", 503, order=pay.order, times=2)
    lab.rule("refund", "half_body", order=pay.order)
    lab.rule("get", "garbage", order=pay.order, times=2)
    refund = pay.refund(1000)
    settled(lab, refund)
    is_(pay.keys(), (3, 1, 1), "A10: lost three times: three calls, one key, the same bytes")
    is_(lab.stats(order=pay.order)["refunded"], 1000, "A10: refunded once")
    pay.agree([("refund_sent", 1000)], "A10: lost often")


def still_working(lab):
    """The provider works so long that it is asked, knows nothing, and gets the command again: the key keeps it one."""
    pay = Payment(lab, "slow", provider="hasty")
    hold = lab.rule("refund", "hold", order="slow")
    refund = pay.refund(300)
    poll(lambda: ring(lab, refund) and len(pay.calls()) >= 3, what="repeats of a call that is still being worked")
    is_((get(lab, refund).status, lab.stats(order="slow")["refunded"]), ("pending", 0), "A10: key_in_use proves nothing")
    lab.release(hold)
    settled(lab, refund)
    is_((pay.keys()[1:], lab.stats(order="slow")["refunded"]), ((1, 1), 300), "A10: one key, one refund")
    pay.agree([("refund_sent", 300)], "A10: slow")


def not_now(lab):
    """Not lost: the provider says that it has not done it, or nothing has left this machine."""
    faults = {"401": (("status", 401), {}), "429": (("status", 429), {"retry_after": 1}), "404": (("notfound",), {})}
    pays = {fault: Payment(lab, f"not now: {fault}") for fault in faults}
    for fault, (action, more) in faults.items():
        lab.rule("refund", *action, order=pays[fault].order, **more)
    refunds = {fault: pay.refund(300) for fault, pay in pays.items()}
    poll(lambda: all(pay.calls() for pay in pays.values()), what="the first calls")
    for fault, pay in pays.items():
        settled(lab, refunds[fault])
        is_((pay.keys(), lab.stats(order=pay.order)["refunded"]), ((2, 1, 1), 300), f"A10: {fault}: later, with the same key and bytes")
        pay.agree([("refund_sent", 300)], f"A10: {fault}")
    ok("unauthorized:sandbox" in lab.alerts(), "401: with an alert")


def other_amount(lab):
    """The provider refunds another amount than was asked for: a fact, and a discrepancy."""
    for amount, left in ((200, 800), (500, 500)):
        pay = Payment(lab, f"asked 300, done {amount}")
        hold = lab.rule("refund", "hold", order=pay.order)
        refund = pay.refund(300)
        lab.wait_held(hold)
        pay.act("refund", amount=amount, reference=str(refund.refund_id))
        for _ in range(2):
            pay.check()
        is_((get(lab, refund).status, pay.money()), ("succeeded", ("partially_refunded", True, amount, left)),
            f"C8: asked for 300, {amount} went back: what went is booked")
        is_(pay.discrepancies(), ["refund_amount"], f"C8: {amount} for 300: a discrepancy")
        pay.agree([("refund_sent", amount)], f"C8: {amount} for 300")
        lab.release(hold)
        poll(lambda: lab.journal(pay.id, "refund"), what="the held call")
        for _ in range(2):
            pay.check()
        booked, there = pay.claim()
        is_(booked, there, f"C8: and when ours is done besides, under the same reference, both sides agree: {pay.entries()}")
        ok(f"refund_elsewhere:{pay.id}" in lab.alerts(), "C8: with an alert")


def same_reference(lab):
    """Two refunds under one reference of ours: the second one is money too."""
    pay = Payment(lab, "one reference")
    refund = pay.refund(300)
    settled(lab, refund)
    pay.act("refund", amount=300, reference=str(refund.refund_id))
    for _ in range(3):
        pay.check()
    pay.agree([("refund_sent", 300), ("refund_reported", 300)], "C8: two under one reference")
    is_(pay.money(), ("partially_refunded", True, 600, 400), "C8: both count")
    ok(f"refund_elsewhere:{pay.id}" in lab.alerts(), "C8: with an alert")
    pay.act("refund", amount=100)
    for _ in range(2):
        pay.check()
    booked, there = pay.claim()
    is_((booked, pay.money()), (there, ("partially_refunded", True, 700, 300)), "C8: and a third one")


# ---- the provider decides later, or against it ---------------------------------------------

def pending_there(lab):
    lab.settings(refunds="pending")
    good, bad, whole = Payment(lab, "pending, succeeds"), Payment(lab, "pending, fails"), Payment(lab, "pending, by its alarm")
    refunds = [pay.refund(300) for pay in (good, bad)] + [whole.refund()]
    poll(lambda: all(get(lab, r).provider_refund_id for r in refunds), what="the provider to have them")
    for pay, refund in zip((good, bad), refunds):
        row = get(lab, refund)
        is_((row.status, row.http_status, pay.money(), pay.entries()), ("pending", 202, ("refunding", True, 0, 700), []),
            f"{pay.order}: accepted is not succeeded")
    lab.settings(refunds="succeed")
    good.act("refund_succeed")
    good.check()
    is_((get(lab, refunds[0]).status, good.money()), ("succeeded", ("partially_refunded", True, 300, 700)),
        "pending at the provider, succeeded: a check learns it")
    bad.act("refund_fail")
    bad.check()
    failed_at_provider(lab, bad, refunds[1])
    whole.act("refund_succeed")
    settled(lab, refunds[2])
    is_(whole.money(), ("refunded", False, 1000, 0), "and so does its own alarm")
    for pay, entries in ((good, [("refund_sent", 300)]), (bad, []), (whole, [("refund_sent", 1000)])):
        is_(len(pay.calls()), 1, f"{pay.order}: asked about, not sent again")
        pay.agree(entries, pay.order)


def failed_at_provider(lab, pay, refund):
    row = get(lab, refund)
    is_((row.status, row.failure_code, row.http_status, pay.money()), ("failed", "failed_at_provider", 200, ("paid", True, 0, 1000)),
        f"{pay.order}: failed, the amount is free, the order is paid again")
    ok(f"refund_failed:{refund.refund_id}" in lab.alerts(), f"{pay.order}: with an alert")
    calls = len(pay.calls())
    ring(lab, refund)
    pay.check()
    lab.all_looked()
    is_((len(pay.calls()), operation(lab, refund).next_action_at), (calls, None), f"{pay.order}: it is not tried again")
    is_(error(lab, "SELECT payflow.retry_now('refund', %s, 'again')", [str(refund.refund_id)]), ("PT409", "not_refundable"),
        f"{pay.order}: by hand neither: a new one is asked for")


def fails_at_once(lab):
    lab.settings(refunds="fail")
    pay = Payment(lab, "fails")
    refund = pay.refund(300)
    settled(lab, refund, "failed")
    lab.settings(refunds="succeed")
    failed_at_provider(lab, pay, refund)
    settled(lab, pay.refund())
    is_((pay.money(), pay.keys()[:2]), (("refunded", False, 1000, 0), (2, 2)), "fails: the amount can be refunded by another one")
    pay.agree([("refund_sent", 1000)], "fails")


def refused(lab):
    """Refused: a proven no.  retry_now() gives it once more, under a key of its own."""
    pay = Payment(lab, "refused")
    lab.rule("refund", "decline", order="refused", times=2)
    refund = pay.refund(600)
    settled(lab, refund, "failed")
    is_((get(lab, refund).failure_code, pay.money()), ("refused", ("paid", True, 0, 1000)), "refused: failed, the amount is free")
    ok(f"refund_failed:{refund.refund_id}" in lab.alerts(), "refused: with an alert")
    lab.all_looked()
    is_(len(pay.calls()), 1, "refused: not tried again")
    other = pay.refund(500)
    settled(lab, other, "failed")
    half = pay.refund(500)
    settled(lab, half)
    is_(error(lab, "SELECT payflow.retry_now('refund', %s, 'again')", [str(refund.refund_id)]), ("PT409", "refund_exceeds_captured"),
        "retry_now() looks at the limits anew")
    lab.sql("SELECT payflow.retry_now('refund', %s, 'the bank has agreed')", [str(other.refund_id)])
    settled(lab, other)
    is_((pay.money(), pay.keys()[:2], lab.stats(order="refused")["refunded"]), (("refunded", False, 1000, 0), (4, 4), 1000),
        "retry_now(): done, under a new key")
    is_(error(lab, "SELECT payflow.retry_now('refund', %s, 'again')", [str(other.refund_id)]), ("PT409", "not_refundable"),
        "what has succeeded is not tried again")
    pay.agree([("refund_sent", 500)] * 2, "refused")


def comes_back(lab):
    """A refund that had succeeded fails later: the money is here again."""
    pay = Payment(lab, "comes back")
    refund = pay.refund()
    settled(lab, refund)
    is_(pay.money(), ("refunded", False, 1000, 0), "comes back: refunded")
    pay.act("refund_fail")
    for _ in range(3):
        pay.check()
    is_((get(lab, refund).status, pay.money()), ("failed", ("paid", True, 0, 1000)),
        "comes back: succeeded, then failed: the order is paid again, the amount free")
    ok(f"refund_failed:{refund.refund_id}" in lab.alerts(), "comes back: with an alert")
    pay.agree([("refund_sent", 1000), ("refund_reversed", 1000)], "comes back: three checks")
    settled(lab, pay.refund(400))
    is_(pay.money(), ("partially_refunded", True, 400, 600), "comes back: refundable again")
    is_(pay.keys()[:2], (2, 2), "comes back: by another call")
    pay.agree([("refund_sent", 1000), ("refund_reversed", 1000), ("refund_sent", 400)], "comes back")


# ---- what cannot be proven --------------------------------------------------------------

def make_unknown(lab, pay, action, amount=600):
    """A refund whose answer is lost and whose key the provider may have forgotten."""
    lab.rule("refund", action, order=pay.order)
    refund = pay.refund(amount)
    poll(lambda: operation(lab, refund).unresolved_since, what="its answer to be lost")
    questions = lab.stats(order=pay.order)["calls"]["get"]
    poll(lambda: ring(lab, refund) and lab.stats(order=pay.order)["calls"]["get"] >= questions + 3, what="questions")
    row = get(lab, refund)
    is_((row.status, len(pay.calls())), ("pending", 1), f"A10: {pay.order}: past the key's validity it is only asked about")
    lab.sql("""UPDATE payflow.operations SET unresolved_since = now() - interval '61 minutes', next_action_at = now()
               WHERE operation_id = %s""", [refund.refund_id])
    poll(lambda: ring(lab, refund) and get(lab, refund).status == "unknown", what="it to be unknown")
    row = get(lab, refund)
    is_((row.http_status, pay.money(), error(lab, REFUND, [pay.id, 1001 - amount])),
        (202, ("refunding", True, 0, 1000 - amount), ("PT409", "refund_exceeds_captured")),
        f"A10: {pay.order}: unknown, and counted in the limits")
    ok(f"operation_unresolved:{refund.refund_id}" in lab.alerts(), f"A10: {pay.order}: with an alert")
    questions = lab.stats(order=pay.order)["calls"]["get"]
    poll(lambda: ring(lab, refund) and lab.stats(order=pay.order)["calls"]["get"] >= questions + 2, what="more questions")
    is_(len(pay.calls()), 1, f"A10: {pay.order}: never sent again, and asking goes on")
    ok(lab.one("SELECT count(*) FROM payflow.stuck WHERE operation_id = %s", [refund.refund_id]), f"{pay.order}: stuck lists it")
    return refund


def settle(lab, refund, outcome):
    return lab.row("SELECT * FROM payflow.settle_refund(%s::uuid, %s, 'the bank says so')", [refund.refund_id, outcome])


def unproven(lab):
    """B3, A10, C7.  Protection: operation_key_is_valid()."""
    gone = Payment(lab, "unproven, failed", provider="forgetful")
    refund = make_unknown(lab, gone, "drop_before")
    is_(error(lab, "SELECT payflow.settle_refund(%s::uuid, 'succeeded', NULL)", [refund.refund_id]), ("PT400", "invalid_argument"),
        "settle_refund() wants a note")
    row = settle(lab, refund, "failed")
    is_((row.status, row.failure_code, row.replayed, gone.money()), ("failed", "settled", False, ("paid", True, 0, 1000)),
        "settle_refund(failed): the amount is free")
    is_(settle(lab, refund, "failed").replayed, True, "settle_refund() again is replayed")
    is_(error(lab, "SELECT payflow.settle_refund(%s::uuid, 'succeeded', 'no')", [refund.refund_id]), ("PT409", "not_refundable"),
        "and what was decided stays so")
    gone.check()
    lab.all_looked()
    is_(len(gone.calls()), 1, "settle_refund(failed): never sent again")
    gone.agree([], "settle_refund(failed)")
    settled(lab, gone.refund(1000))
    gone.agree([("refund_sent", 1000)], "settle_refund(failed), then another one")

    # The provider has done it, but nobody can ask.
    for outcome in ("succeeded", "failed"):
        pay = Payment(lab, f"done, settled as {outcome}", provider="forgetful")
        deaf = lab.rule("get", "status", 503, order=pay.order, times=0)
        refund = make_unknown(lab, pay, "drop_after")
        row = settle(lab, refund, outcome)
        is_((row.status, operation(lab, refund).settled_by is not None), (outcome, True), f"{pay.order}: as the person says")
        is_(lab.one("SELECT count(*) FROM payflow.accounting_entries WHERE operation_id = %s", [refund.refund_id]),
            1 if outcome == "succeeded" else 0, f"{pay.order}: booked as the person says")
        lab.release(deaf)
        for _ in range(2):
            pay.check()
        is_(pay.money(), ("partially_refunded", True, 600, 400), f"{pay.order}: the late proof is booked, and only once")
        pay.agree([("refund_sent" if outcome == "succeeded" else "refund_reported", 600)], pay.order)
        is_(error(lab, REFUND, [pay.id, 401]), ("PT409", "refund_exceeds_captured"), f"{pay.order}: the limits know it")
        is_(f"refund_elsewhere:{pay.id}" in lab.alerts(), outcome == "failed", f"{pay.order}: an alert only where it contradicts")

    # A person says that it is done, but the provider does not have it yet.
    pay = Payment(lab, "not done, settled as succeeded", provider="forgetful")
    refund = make_unknown(lab, pay, "drop_before")
    settle(lab, refund, "succeeded")
    for _ in range(2):
        pay.check()
    is_(pay.discrepancies(), ["refund_missing"], "settled as succeeded, but it is not there: a discrepancy, one")
    pay.act("refund", amount=600, reference=str(refund.refund_id))
    for _ in range(2):
        pay.check()
    pay.agree([("refund_sent", 600)], "settled as succeeded: when it is there at last, nothing more")

    # It turns up while nobody has decided.
    pay = Payment(lab, "turns up", provider="forgetful")
    refund = make_unknown(lab, pay, "drop_before")
    pay.act("refund", amount=600, reference=str(refund.refund_id))
    settled(lab, refund)
    pay.check()
    pay.agree([("refund_sent", 600)], "unknown, then it turns up")
    is_(error(lab, "SELECT payflow.settle_refund(%s::uuid, 'failed', 'no')", [refund.refund_id]), ("PT409", "not_refundable"),
        "and is nobody's decision any more")

    hold = lab.rule("refund", "hold", order="turns up")
    running = pay.refund(100)
    lab.wait_held(hold)
    is_(error(lab, "SELECT payflow.settle_refund(%s::uuid, 'failed', 'no')", [running.refund_id]), ("PT409", "payment_in_progress"),
        "one that runs is not for a person to decide")
    lab.release(hold)
    settled(lab, running)


# ---- refunds that were not asked for here ----------------------------------------------------

def reported(lab):
    """C8.  Protection: provider_operations_key; facts are compared with the books."""
    pay = Payment(lab, "elsewhere")
    pay.act("refund", amount=300)
    results = threads_at_barrier(4, lambda i: pay.check())
    ok(all(not isinstance(r, Exception) for r in results), "C8: four checks at once", results)
    pay.check()
    is_(pay.money(), ("partially_refunded", True, 300, 700), "C8: a refund made elsewhere counts")
    pay.agree([("refund_reported", 300)], "C8: five checks")
    ok(f"refund_elsewhere:{pay.id}" in lab.alerts(), "C8: with an alert")
    is_(lab.sql("SELECT kind, amount, absorbed_amount FROM payflow.provider_operations WHERE session_id = %s AND kind <> 'payment'",
                [pay.id]), [("refund", 300, 0)], "C8: it is one operation of the provider")
    is_(error(lab, REFUND, [pay.id, 701]), ("PT409", "refund_exceeds_captured"), "C7: the limit knows it")
    settled(lab, pay.refund(700))
    is_(pay.money(), ("refunded", False, 1000, 0), "C8: ours and theirs make all of it")
    pay.agree([("refund_reported", 300), ("refund_sent", 700)], "C8: with one of ours")
    theirs = lab.payments("elsewhere")[0]["refunds"][0]["id"]
    pay.act("refund_fail", refund=theirs)
    for _ in range(2):
        pay.check()
    is_(pay.money(), ("partially_refunded", True, 700, 300), "C8: theirs fails: the money is here again")
    pay.agree([("refund_reported", 300), ("refund_sent", 700), ("refund_reversed", 300)], "C8: reversed once")

    early = Payment(lab, "E3", pay=False)
    early.act("pay")
    early.act("refund")
    early.check()
    is_((early.row().status, early.money()), ("completed", ("refunded", False, 1000, 0)),
        "E3, C8: refunded before anybody here knew that it was paid: booked after the capture")
    early.agree([("refund_reported", 1000)], "E3")

    more = Payment(lab, "too much")
    more.act("refund", amount=1500)
    for _ in range(2):
        more.check()
    is_(more.money(), ("refunded", False, 1500, 0), "C8: more than was captured is booked all the same")
    is_(more.discrepancies(), ["returned_exceeds_captured"], "C8: and is a discrepancy, one")
    is_(error(lab, REFUND, [more.id, 1]), ("PT409", "refund_exceeds_captured"), "C8: our commands are bound")
    more.agree([("refund_reported", 1500)], "C8: too much")


def limit_is_ours_only(lab):
    """A refund elsewhere meets one of ours that is on its way: both are facts, though together they exceed the payment."""
    pay = Payment(lab, "crossing")
    hold = lab.rule("refund", "hold", order="crossing")
    refund = pay.refund(700)
    lab.wait_held(hold)
    pay.act("refund", amount=600)
    pay.check()
    pay.agree([("refund_reported", 600)], "C8: booked while ours is on its way")
    is_(pay.money(), ("refunding", True, 600, 0), "C8: nothing is left, ours is pending")
    lab.release(hold)
    settled(lab, refund, "failed")
    is_((pay.money(), get(lab, refund).failure_code), (("partially_refunded", True, 600, 400), "refused"),
        "C8: the provider refuses ours")
    pay.agree([("refund_reported", 600)], "C8: crossing")


def raced(lab):
    """C08: the status shows our refund before its own answer comes."""
    pay = Payment(lab, "C08")
    stall = lab.rule("refund", "stall_body", order="C08")
    refund = pay.refund(300)
    poll(lambda: lab.stats(order="C08")["refunded"] == 300, what="the provider to have done it")
    results = threads_at_barrier(3, lambda i: pay.check())
    ok(all(not isinstance(r, Exception) for r in results), "C08: three checks at once", results)
    is_((get(lab, refund).status, pay.money()), ("succeeded", ("partially_refunded", True, 300, 700)),
        "C08: the status shows it, and that settles it")
    lab.release(stall)
    poll(lambda: lab.journal(pay.id, "refund"), what="its own answer")
    pay.check()
    pay.agree([("refund_sent", 300)], "C08: its own answer adds nothing")
    is_((len(pay.calls()), f"refund_elsewhere:{pay.id}" in lab.alerts()), (1, False), "C08: one call, and no alert")


def outdated(lab):
    """A status from before the refund arrives after it: it says nothing of it."""
    pay = Payment(lab, "outdated")
    stall = lab.rule("get", "stall_body", order="outdated")
    lab.sql("SELECT FROM payflow.check(%s::uuid)", [pay.id])
    lab.wait_held(stall)
    refund = pay.refund(300)
    settled(lab, refund)
    before = len(lab.journal(pay.id))
    lab.release(stall)
    poll(lambda: len(lab.journal(pay.id)) > before, what="the old answer")
    is_((get(lab, refund).status, pay.money(), pay.discrepancies()), ("succeeded", ("partially_refunded", True, 300, 700), []),
        "E3: an answer from before the refund changes nothing, and finds nothing missing")
    is_(f"refund_missing:{pay.id}" in lab.alerts(), False, "E3: and alarms nobody")
    pay.agree([("refund_sent", 300)], "E3: outdated")


# ---- a provider that does not name refunds ---------------------------------------------------

def nameless(lab):
    """Totals are compared, never added.  Protection: unattributed() and the order of commands in source.c."""
    lab.add_server("nameless", refund_names="no", poll_intervals="1 hour", breaker_failures="1000000")
    pay = Payment(lab, "totals", provider="nameless")
    lab.rule("refund", "drop_after", order="totals")
    lab.rule("get", "delay", 1, order="totals")  # the total is noted before it is sent
    hold = lab.rule("get", "hold", order="totals")
    one, two = pay.refund(300), pay.refund(200)
    poll(lambda: ring(lab, one, two) and lab.held(hold), what="the question about the lost one")
    lab.all_looked()
    is_((operation(lab, one).status, operation(lab, two).status, len(pay.calls())), ("sent", "pending", 1),
        "totals: one unsettled refund at a time, the other waits")
    lab.release(hold)
    settled(lab, one)
    settled(lab, two)
    is_((len(pay.calls()), lab.stats(order="totals")["refunded"]), (2, 500), "totals: the lost one was proven by the total, not sent again")
    pay.agree([("refund_sent", 300), ("refund_sent", 200)], "totals")

    lab.rule("refund", "drop_before", order="totals")
    three = pay.refund(100)
    settled(lab, three)
    is_((pay.keys()[:2], lab.stats(order="totals")["refunded"]), ((4, 3), 600), "totals: not in the total: sent again with its key")

    pay.act("refund", amount=150)
    for _ in range(3):
        pay.check()
    entries = [("refund_sent", 300), ("refund_sent", 200), ("refund_sent", 100), ("refund_reported", 150)]
    pay.agree(entries, "totals: the excess, three checks")
    is_(pay.money(), ("partially_refunded", True, 750, 250), "totals: it counts")
    is_([f.kind for f in lab.sql("SELECT kind FROM payflow.provider_operations WHERE session_id = %s AND kind LIKE 'refund%%'", [pay.id])],
        ["refund_total"], "totals: as unattributed")

    # While one of ours is unsettled a total books nothing.
    hold = lab.rule("refund", "hold", order="totals")
    four = pay.refund(50)
    lab.wait_held(hold)
    pay.act("refund", amount=60)
    pay.check()
    pay.check()
    is_(pay.entries(), entries, "totals: while one of ours is under way nothing is booked by the total")
    lab.release(hold)
    settled(lab, four)
    pay.check()
    entries += [("refund_sent", 50), ("refund_reported", 60)]
    pay.agree(entries, "totals: and then the rest of it")

    # Accepted by the provider, and then done: only the total can say so.
    lab.settings(refunds="pending")
    five = pay.refund(10)
    poll(lambda: get(lab, five).provider_refund_id, what="the provider to have it")
    ring(lab, five)
    pay.check()
    is_(get(lab, five).status, "pending", "totals: accepted is not succeeded")
    pay.act("refund_succeed")
    lab.settings(refunds="succeed")
    pay.check()
    settled(lab, five)
    entries += [("refund_sent", 10)]
    pay.agree(entries, "totals: the total proves it")

    # Names that come later use up what a total had shown.
    lab.sql("ALTER SERVER nameless OPTIONS (SET refund_names 'yes')")
    for _ in range(2):
        pay.check()
    pay.agree(entries, "names come later: nothing is booked twice")
    is_(lab.sql("""SELECT kind, amount, absorbed_amount FROM payflow.provider_operations
                   WHERE session_id = %s AND kind = 'refund' ORDER BY amount""", [pay.id]),
        [("refund", 60, 60), ("refund", 150, 150)], "names come later: they use up what was unattributed")
    pay.act("refund", amount=40)
    for _ in range(2):
        pay.check()
    pay.agree(entries + [("refund_reported", 40)], "names come later: only what exceeds it is booked")
    is_((pay.money(), pay.discrepancies()), (("partially_refunded", True, 910, 90), []), "names come later: no discrepancy")


def total_falls(lab):
    """A refund comes back, and nobody says which: for a person."""
    pay = Payment(lab, "total falls", provider="nameless_too")
    settled(lab, pay.refund(300))
    pay.act("refund_fail")
    for _ in range(2):
        pay.check()
    is_((pay.entries(), pay.discrepancies(), pay.money()), ([("refund_sent", 300)], ["refund_missing"], ("partially_refunded", True, 300, 700)),
        "totals: less than is booked: a discrepancy, one, and nothing is made up")
    ok(f"refund_missing:{pay.id}" in lab.alerts(), "totals: with an alert")
    pay.act("refund", amount=300)
    pay.check()
    pay.agree([("refund_sent", 300)], "totals: and when it is there again all is well")


def nameless_unknown(lab):
    """Past the key's validity, and only a total to prove it by."""
    lab.add_server("nothing", refund_names="no", key_validity="1 s", poll_intervals="1 hour", breaker_failures="1000000")
    pay = Payment(lab, "nothing to prove it", provider="nothing")
    refund = make_unknown(lab, pay, "drop_before", 300)
    second = pay.refund(200)
    lab.all_looked()
    is_((operation(lab, second).status, len(pay.calls())), ("pending", 1), "while one is unknown the next one waits")
    settle(lab, refund, "failed")
    ring(lab, second)
    settled(lab, second)
    pay.agree([("refund_sent", 200)], "settled as failed: the next one goes")
    pay.act("refund", amount=300, reference=str(refund.refund_id))
    for _ in range(2):
        pay.check()
    pay.agree([("refund_sent", 200), ("refund_reported", 300)], "done after all: the total shows it, booked once")
    lab.sql("ALTER SERVER nothing OPTIONS (SET refund_names 'yes')")
    for _ in range(2):
        pay.check()
    pay.agree([("refund_sent", 200), ("refund_reported", 300)],
              "named later, one that a person had settled as failed uses up the unattributed amount")


with Lab(workers=2, conf={"fsync": "off", "payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000000)
    lab.add_server("hasty", timeout="1 s", poll_intervals="1 hour", breaker_failures="1000000")
    lab.add_server("forgetful", key_validity="1 s", poll_intervals="1 hour", breaker_failures="1000000")
    partial_and_full(lab)
    odd_amounts(lab)
    ten_of_ten(lab)
    two_sixties(lab)
    keys_of_callers(lab)
    without_keys(lab)
    rolled_back(lab)
    lost(lab)
    lost_again_and_again(lab)
    still_working(lab)
    not_now(lab)
    other_amount(lab)
    same_reference(lab)
    pending_there(lab)
    fails_at_once(lab)
    refused(lab)
    comes_back(lab)
    unproven(lab)
    reported(lab)
    limit_is_ours_only(lab)
    raced(lab)
    outdated(lab)
    nameless(lab)
    lab.add_server("nameless_too", refund_names="no", poll_intervals="1 hour", breaker_failures="1000000")
    total_falls(lab)
    nameless_unknown(lab)
    is_(lab.one(f"SELECT count(*) FROM payflow.operations WHERE {UNSETTLED}"), 0, "nothing is left unsettled")
    lab.finish()
done_testing()
