"""Money that nobody expected: B4, C8, C30, C53, C54, D13, E4.

Whatever the provider takes is booked, once: to suspense where it is not what was agreed, with a discrepancy; then the
merchant's policy or a person decides.  After each step the entries of the session and the money at the provider are compared.
"""

import itertools

import psycopg2.extensions

from payflow_test import Lab, done_testing, is_, ok, poll, threads_at_barrier

UNSETTLED = "status IN ('pending', 'sent', 'unknown')"
POLICIES = ("hold", "refund", "accept")
RESOLVE = "SELECT FROM payflow.resolve_discrepancy(%s, %s, %s)"
CREATE = "SELECT * FROM payflow.create(%s, %s, 'EUR', merchant => %s)"


class Payment:
    """A payment of 1000 EUR, and both sides of its money.  The merchants are named after their late_payment."""

    def __init__(self, lab, order, merchant="hold", capture="automatic"):
        self.lab, self.order, self.merchant = lab, order, merchant
        self.id = lab.one("SELECT session_id FROM payflow.create(%s, 1000, 'EUR', merchant => %s, capture => %s)",
                          [order, merchant, capture])
        lab.poll_session(self.id, "registered")
        lab.quiet(self.id)

    def act(self, what, **body):
        return self.lab.act(self.id, what, **body)

    def check(self, times=1):
        for _ in range(times):
            row = self.lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [self.id])
        return row

    def to(self, *acts, **last):
        """Acts, each with a check, the last one with members."""
        for act in acts:
            self.act(act, **(last if act is acts[-1] else {}))
            self.check()
        return self

    def row(self):
        return self.lab.row("SELECT * FROM payflow.get(%s::uuid)", [self.id])

    def state(self):
        row = self.row()
        return row.status, row.failure_code, row.paid, row.order_status

    def amounts(self):
        row = self.row()
        return row.captured_amount, row.refunded_amount, row.suspense_amount, row.refundable_amount

    def entries(self):
        return [tuple(e) for e in self.lab.sql(
            """SELECT e.entry_type, d.kind AS debit, c.kind AS credit, e.amount FROM payflow.accounting_entries e
                   JOIN payflow.accounts d ON d.account_id = e.debit_account
                   JOIN payflow.accounts c ON c.account_id = e.credit_account
               WHERE e.session_id = %s ORDER BY e.entry_id""", [self.id])]

    def agree(self, entries, name):
        """These entries; and what they say that the provider has is what it has."""
        got = self.entries()
        claim = sum(a * ((d == "provider") - (c == "provider")) for _, d, c, a in got)
        payment, = [p for p in self.lab.payments(self.order) if p["reference"] == str(self.id)]
        is_((sorted(got), claim), (sorted(entries), payment["captured"] - payment["refunded"] - payment["disputed"]),
            f"{name}: booked once, and both sides agree")

    def discrepancies(self, columns="kind, amount, status, resolution"):
        return [tuple(d) for d in self.lab.sql(
            f"SELECT {columns} FROM payflow.discrepancies WHERE session_id = %s ORDER BY id", [self.id])]

    def discrepancy(self):
        return self.lab.one("SELECT max(id) FROM payflow.discrepancies WHERE session_id = %s AND amount > 0", [self.id])

    def resolve(self, how, note="so it was decided", discrepancy=None):
        """None, or the error's SQLSTATE and word."""
        return error(self.lab, RESOLVE, [discrepancy or self.discrepancy(), how, note])

    def operations(self, kind):
        return self.lab.sql("SELECT * FROM payflow.operations WHERE session_id = %s AND kind = %s ORDER BY operation_id", [self.id, kind])

    def settle(self):
        """Wait until none of its operations is open; returns their statuses."""
        def done():
            self.lab.sql(f"""UPDATE payflow.operations SET next_action_at = now() WHERE session_id = %s AND {UNSETTLED}
                             AND lease_until IS NULL""", [self.id])
            return not self.lab.one(f"SELECT count(*) FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}", [self.id])

        poll(done, what=f"the operations of {self.order}")
        return [o.status for o in self.lab.sql(
            "SELECT status FROM payflow.operations WHERE session_id = %s ORDER BY operation_id", [self.id])]

    def alerted(self, about):
        return f"{about}:{self.id}" in self.lab.alerts()

    def create_is(self, word, name):
        """What create() says to a new attempt; None: it makes one (which then fails)."""
        e = error(self.lab, CREATE, [self.order, 1000, self.merchant])
        is_(e, word and ("PT409", word), name)
        if e is None:
            id_ = self.lab.one("SELECT session_id FROM payflow.find(%s, %s) LIMIT 1", [self.order, self.merchant])
            self.lab.poll_session(id_, "registered")
            self.lab.act(id_, "decline")
            self.lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [id_])


def error(lab, query, args, conn=None):
    e = lab.error(query, args, conn=conn)
    return e and (e.pgcode, e.diag.message_detail)


def late(lab, order, merchant="hold", end="decline"):
    """A session that has ended, and is paid after that."""
    return Payment(lab, order, merchant).to(end, "pay")


def unexpected(amount=1000):
    return "unexpected_received", "provider", "suspense", amount


def sent(amount=1000, source="suspense"):
    return "refund_sent", source, "provider", amount


def came_back(amount=1000, source="suspense"):
    return "refund_reversed", "provider", source, amount


def reported(amount=1000, source="suspense"):
    return "refund_reported", source, "provider", amount


ACCEPTED = "unexpected_accepted", "suspense", "held", 1000
RECEIPT = "payment_received", "provider", "held", 1000


# ---- another amount or currency -----------------------------------------------------

def mismatch(lab):
    """B4, C53, C54.  Protection: complete() in settle.c compares amount and currency."""
    for amount, currency in ((1, "EUR"), (400, "EUR"), (1001, "EUR"), (1000, "USD"), (1000, "JPY")):
        pay = Payment(lab, f"C53: {amount} {currency}")
        pay.act("pay", amount=amount, currency=currency)
        pay.check(3)
        name = f"C53: {amount} {currency} for 1000 EUR"
        is_(pay.state(), ("failed", "amount_mismatch", False, "open"), f"{name}: failed, not paid, the order is open")
        is_(pay.amounts(), (0, 0, amount if currency == "EUR" else 0, 0), f"{name}: shown in suspense, if it is our currency")
        pay.agree([unexpected(amount)], f"{name}, three checks")
        is_(pay.discrepancies("kind, amount, currency::text, status"), [("amount_mismatch", amount, currency, "open")],
            f"{name}: a discrepancy")
        is_(lab.row("""SELECT a.kind, a.currency::text, a.provider FROM payflow.accounting_entries e
                       JOIN payflow.accounts a ON a.account_id = e.credit_account WHERE e.session_id = %s""", [pay.id]),
            ("suspense", currency, "sandbox"), f"{name}: in the provider's currency")
        ok(pay.alerted("amount_mismatch"), f"{name}: an alert")
        pay.create_is("money_in_suspense", f"{name}: no new session while it waits")
        is_(pay.resolve("accept"), ("PT400", "invalid_argument"), f"{name}: it cannot be accepted")
        is_(pay.resolve("refund"), None, f"{name}: it can be refunded")
        is_(pay.settle(), ["succeeded"], f"{name}: and it goes back")
        pay.check()
        pay.agree([unexpected(amount), sent(amount)], f"{name}: refunded")
        is_(pay.amounts(), (0, 0, 0, 0), f"{name}: refunded_amount counts receipt money only")
        pay.create_is(None, f"{name}: then a new session may be made")
    for merchant, entries, status in (("accept", [unexpected(400)], "open"), ("refund", [unexpected(400), sent(400)], "resolved")):
        pay = Payment(lab, f"C54, {merchant}", merchant)
        pay.act("pay", amount=400)
        pay.check()
        pay.settle()
        pay.check()
        pay.agree(entries, f"C54: policy {merchant}")
        is_((pay.state(), pay.discrepancies("status")), (("failed", "amount_mismatch", False, "open"), [(status,)]),
            f"C54: policy {merchant}: another amount is never accepted")


# ---- late money, and the three policies -------------------------------------------------

def held(lab):
    """E4."""
    pay = late(lab, "E4, hold")
    pay.check(3)
    is_(pay.state(), ("failed", "declined", False, "open"), "E4: late money: the session stays failed, the order open")
    is_(pay.amounts(), (0, 0, 1000, 0), "E4: it waits in suspense")
    pay.agree([unexpected()], "E4: four checks")
    is_(pay.discrepancies(), [("unexpected_money", 1000, "open", None)], "E4: a discrepancy waits for a decision")
    ok(pay.alerted("unexpected_money"), "E4: with an alert")
    e = error(lab, "SELECT payflow.refund(%s::uuid, 1)", [pay.id])
    is_(e, ("PT409", "not_refundable"), "E4: refund() is for receipts only")
    pay.create_is("money_in_suspense", "E4: no new session while it waits")


def policies(lab):
    """E4: on a failed session, and on one that the provider canceled or let expire."""
    for merchant, end in itertools.product(("refund", "accept"), ("decline", "cancel", "expire")):
        pay = late(lab, f"E4, {merchant} after {end}", merchant, end)
        pay.settle()
        pay.check(2)
        name = f"E4: policy {merchant}, after {end}"
        final = "canceled" if end == "cancel" else "failed"
        if merchant == "refund":
            pay.agree([unexpected(), sent()], name)
            is_((pay.state()[0], pay.state()[2:], pay.amounts()), (final, (False, "open"), (0, 0, 0, 0)),
                f"{name}: it has gone back, the order is open")
            pay.create_is(None, f"{name}: a new session may be made")
        else:
            pay.agree([unexpected(), ACCEPTED], name)
            is_((pay.state()[0], pay.state()[2:], pay.amounts()), (final, (True, "paid"), (1000, 0, 0, 1000)),
                f"{name}: it is the order's receipt, the status stays")
            is_(lab.row("SELECT paid_session_id, active_session_id FROM payflow.orders WHERE order_id = %s", [pay.order]),
                (pay.id, None), f"{name}: the order names the session")
            pay.create_is("order_already_paid", f"{name}: an order that has its receipt")
            lab.sql("SELECT payflow.refund(%s::uuid, 300)", [pay.id])
            pay.settle()
            is_((pay.amounts(), pay.state()[2:]), ((1000, 300, 0, 700), (True, "partially_refunded")), f"{name}: it can be refunded")
            pay.agree([unexpected(), ACCEPTED, sent(300, "held")], f"{name}, refunded in part")
        is_(pay.discrepancies(), [("unexpected_money", 1000, "resolved", merchant)], f"{name}: the discrepancy is resolved")
        is_(pay.discrepancies("resolved_by"), [("payflow",)], f"{name}: by payflow")


def canceled_by_us(lab):
    """C30, C6: whoever was told that it is canceled gets his money back, whatever the policy."""
    for merchant in POLICIES:
        pay = Payment(lab, f"C30, {merchant}", merchant)
        lab.sql("SELECT payflow.cancel(%s::uuid)", [pay.id])
        lab.poll_session(pay.id, "canceled")
        pay.act("pay")
        pay.check()
        pay.settle()
        pay.check(5)
        is_(pay.state(), ("canceled", None, False, "open"), f"C30: policy {merchant}: stays canceled")
        pay.agree([unexpected(), sent()], f"C30: policy {merchant}: refunded, five more checks")
        is_((len(pay.operations("refund")), pay.discrepancies()), (1, [("unexpected_money", 1000, "resolved", "refund")]),
            f"C30: policy {merchant}: one refund, one discrepancy")
        is_(lab.one("SELECT count(*) FROM payflow.alerts WHERE key = %s", [f"unexpected_money:{pay.id}"]), 1,
            f"C30: policy {merchant}: one alert")
        pay.create_is(None, f"C30: policy {merchant}: the order is free")


def paid_twice(lab):
    """E4: the order has been paid by another session."""
    for merchant in POLICIES:
        first = Payment(lab, f"twice, {merchant}", merchant).to("decline")
        second = Payment(lab, f"twice, {merchant}", merchant).to("pay")
        first.to("pay")
        first.settle()
        first.check(2)
        name = f"E4: a second payment of a paid order, policy {merchant}"
        first.agree([unexpected()] + [sent()] * (merchant != "hold"), name)
        second.agree([RECEIPT], f"{name}: the first one")
        is_((first.state(), second.state()), (("failed", "declined", False, "paid"), ("completed", None, True, "paid")),
            f"{name}: the order's receipt stays the other session's")
        is_(first.discrepancies("status, resolution"), [("open", None) if merchant == "hold" else ("resolved", "refund")],
            f"{name}: {'waits' if merchant == 'hold' else 'accept means refund'}")
        first.create_is("order_already_paid", f"{name}: order_already_paid comes before money_in_suspense")
        if merchant == "hold":
            is_(first.resolve("accept"), ("PT409", "order_already_paid"), f"{name}: nobody can accept it")
            is_(first.resolve("refund"), None, f"{name}: it is refunded")
            first.settle()
            first.agree([unexpected(), sent()], f"{name}: refunded")


def more_than_booked(lab):
    """E4, B5: the excess over what is booked is unexpected, not the whole."""
    for merchant in POLICIES:
        after = [unexpected(200)] + [sent(200)] * (merchant != "hold")
        pay = Payment(lab, f"manual excess, {merchant}", merchant, "manual").to("authorize")
        pay.act("pay", amount=1200)
        pay.check(2)
        pay.settle()
        is_((pay.state(), pay.amounts()), (("completed", None, True, "paid"), (1000, 0, 200 if merchant == "hold" else 0, 1000)),
            f"C54: manual, captured 1200 of 1000, policy {merchant}: completed with 1000")
        pay.agree([RECEIPT] + after, f"C54: manual excess, policy {merchant}")
        pay = Payment(lab, f"automatic excess, {merchant}", merchant).to("pay")
        pay.act("pay", amount=1200)
        pay.check(2)
        pay.settle()
        is_((pay.state(), pay.amounts()), (("completed", None, True, "paid"), (1000, 0, 200 if merchant == "hold" else 0, 1000)),
            f"E4: completed, then 200 more, policy {merchant}: only the excess is unexpected")
        pay.agree([RECEIPT] + after, f"E4: automatic excess, policy {merchant}")
        is_(pay.discrepancies("kind, amount"), [("unexpected_money", 200)], f"E4: excess, policy {merchant}: one discrepancy")

    part = Payment(lab, "manual part", capture="manual").to("authorize", "pay", amount=400)
    part.check(2)
    is_((part.state(), part.amounts()), (("completed", None, True, "paid"), (400, 0, 0, 400)), "C54: manual, captured 400: completed with 400")
    is_(part.discrepancies("kind, amount, status"), [("captured_amount", None, "open")], "C54: which nobody asked for: a discrepancy")
    ok(part.alerted("captured_amount"), "C54: and an alert")
    is_(part.resolve("refund", discrepancy=lab.one("SELECT id FROM payflow.discrepancies WHERE session_id = %s", [part.id])),
        ("PT400", "invalid_argument"), "a discrepancy without money cannot be refunded")
    is_(part.resolve("no_money", discrepancy=lab.one("SELECT id FROM payflow.discrepancies WHERE session_id = %s", [part.id])),
        None, "it can be closed")
    part.agree([("payment_received", "provider", "held", 400)], "C54: manual part")
    ours = Payment(lab, "manual part, ours", capture="manual").to("authorize")
    lab.sql("SELECT payflow.capture(%s::uuid, 400)", [ours.id])
    lab.poll_session(ours.id, "completed")
    is_(ours.discrepancies(), [], "C54: none if it was asked for")


def paid_in_vain(lab):
    """Money behind a status that says that there is none; and the other way round."""
    for act, status, code in (("decline", "failed", "declined"), ("expire", "failed", "expired"), ("cancel", "canceled", "canceled_by_provider")):
        pay = Payment(lab, f"{act}, with money")
        pay.act("pay")
        pay.to(act)
        pay.check(2)
        is_(pay.state(), (status, code, False, "open"), f"C8: the provider says {act}: it ends so")
        pay.agree([unexpected()], f"C8: {act}, but 1000 are captured: booked")
        is_(pay.discrepancies(), [("unexpected_money", 1000, "open", None)], f"C8: {act}, with money: a discrepancy")
        done = Payment(lab, f"completed, then {act}").to("pay", act)
        done.check(2)
        is_((done.state(), done.amounts(), done.discrepancies()), (("completed", None, True, "paid"), (1000, 0, 0, 1000), []),
            f"C36, C39: {act} after completion changes nothing")
        is_(done.alerted("contradiction"), act != "expire", f"C32, C36: {act} after completion: {'journal only' if act == 'expire' else 'one alert'}")
        done.agree([RECEIPT], f"C39: completed, then {act}")


def authorizations(lab):
    """B4: held money of another amount or currency is given up, and so is what comes late."""
    for body in ({"amount": 900}, {"amount": 1100}, {"currency": "USD"}):
        pay = Payment(lab, f"B4: authorized {body}", "accept", "manual")
        pay.act("authorize", **body)
        pay.check(2)
        is_((pay.state(), pay.settle()), (("failed", "amount_mismatch", False, "open"), ["succeeded"]), f"B4: authorized {body}: failed, voided")
        is_((lab.stats(order=pay.order)["calls"]["cancel"], lab.payments(pay.order)[0]["status"]), (1, "canceled"), f"B4: {body}: by one call")
        is_(pay.discrepancies("kind, amount, status"), [("amount_mismatch", None, "open")], f"B4: {body}: a discrepancy, without money")
        pay.agree([], f"B4: {body}")
        pay.create_is(None, f"B4: {body}: no money waits, the order is free")
    pay = Payment(lab, "late authorization", "accept", "manual").to("decline", "authorize")
    pay.settle()
    pay.check(2)
    is_((pay.state(), lab.stats(order=pay.order)["calls"]["cancel"], lab.payments(pay.order)[0]["status"]),
        (("failed", "declined", False, "open"), 1, "canceled"), "E4: money that is held late is given up, not captured")
    pay.agree([], "E4: late authorization")


def other_price(lab):
    """The order costs something else by now: late money of the old price is not accepted."""
    pay = Payment(lab, "other price", "accept").to("decline")
    other = lab.one("SELECT session_id FROM payflow.create('other price', 1500, 'EUR', merchant => 'accept')")
    lab.poll_session(other, "registered")
    lab.act(other, "decline")
    lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [other])
    pay.to("pay")
    is_((pay.state(), pay.discrepancies("status")), (("failed", "declined", False, "open"), [("open",)]), "E4: accept, but another amount: hold")
    is_(pay.resolve("accept"), ("PT400", "invalid_argument"), "E4: by hand neither")
    pay.agree([unexpected()], "E4: other price")


# ---- accept beside a live session -----------------------------------------------------

def beside_live(lab):
    def two(order, merchant):
        first = Payment(lab, order, merchant).to("decline")
        second = Payment(lab, order, merchant)
        first.to("pay")
        return first, second

    first, second = two("beside, it fails", "accept")
    accept, = first.operations("accept")
    lab.sql("UPDATE payflow.operations SET next_action_at = now() WHERE operation_id = %s", [accept.operation_id])
    lab.all_looked()
    accept, = first.operations("accept")
    is_((accept.status, accept.amount, accept.next_action_at is not None, first.state()),
        ("pending", 1000, True, ("failed", "declined", False, "open")), "E4: accept waits while another session is live, with an alarm")
    first.agree([unexpected()], "E4: accept waits")
    lab.sql("UPDATE payflow.operations SET next_action_at = now() + interval '1 hour' WHERE operation_id = %s", [accept.operation_id])
    second.to("decline")
    e = error(lab, CREATE, [first.order, 1000, "accept"])
    ok(e in (("PT409", "money_in_suspense"), ("PT409", "order_already_paid")), "E4: when that has failed, no third session comes between", e)
    poll(lambda: first.operations("accept")[0].status == "succeeded", what="the end of the session to ring the accept")
    is_((first.state(), second.state()), (("failed", "declined", True, "paid"), ("failed", "declined", False, "paid")),
        "E4: the late money is the order's receipt")
    first.agree([unexpected(), ACCEPTED], "E4: accepted after the other failed")
    is_([o for o in first.operations("accept") if o.first_sent_at], [], "E4: of which the provider is told nothing")

    first, second = two("beside, it pays", "accept")
    second.to("pay")
    first.settle()
    first.check(2)
    is_([(o.kind, o.status) for o in lab.sql("SELECT kind, status FROM payflow.operations WHERE session_id = %s ORDER BY operation_id",
                                             [first.id])], [("accept", "failed"), ("refund", "succeeded")],
        "E4: the other one was paid: accept means refund")
    is_(second.state(), ("completed", None, True, "paid"), "E4: its receipt stays")
    first.agree([unexpected(), sent()], "E4: refunded after the other was paid")
    second.agree([RECEIPT], "E4: the other one")
    is_(first.discrepancies("status, resolution"), [("resolved", "refund")], "E4: the discrepancy says what became of it")

    first, second = two("beside, it goes back", "accept")
    first.act("refund")
    first.check()
    second.to("decline")
    first.settle()
    first.agree([unexpected(), reported()], "E4: the provider gave it back meanwhile: nothing is left to accept")
    is_((first.state()[2:], [o.status for o in first.operations("accept")]), ((False, "open"), ["failed"]), "E4: nothing was accepted")
    first.create_is(None, "E4: and the order is free")

    first, second = two("beside, by hand", "hold")
    is_(first.resolve("accept"), ("PT409", "payment_in_progress"), "E4: by hand nothing is accepted beside a live session")
    is_(lab.row(CREATE, ["beside, by hand", 1000, "hold"]).session_id, second.id, "E4: the live session is still replayed")
    second.to("decline")
    is_(first.resolve("accept"), None, "E4: afterwards it is")
    first.agree([unexpected(), ACCEPTED], "E4: accepted by hand")
    is_((first.state(), first.amounts()), (("failed", "declined", True, "paid"), (1000, 0, 0, 1000)), "E4: accepted by hand: paid")


def both_late(lab):
    """Two sessions of an order are paid late, at the same moment: one receipt."""
    one = Payment(lab, "both late", "accept").to("decline")
    two = Payment(lab, "both late", "accept").to("decline")
    one.act("pay")
    two.act("pay")
    results = threads_at_barrier(2, lambda i: (one, two)[i].check())
    ok(all(not isinstance(r, Exception) for r in results), "E4: both at once", results)
    for pay in (one, two):
        pay.settle()
    is_(sorted(pay.entries() for pay in (one, two)), sorted([[unexpected(), ACCEPTED], [unexpected(), sent()]]),
        "E4: one is accepted, the other goes back")
    is_(sorted(pay.row().paid for pay in (one, two)), [False, True], "E4: one is paid")


# ---- a person decides ------------------------------------------------------------------

def by_hand(lab):
    pay = late(lab, "by hand, errors")
    id_ = pay.discrepancy()
    is_(pay.resolve("refund", None), ("PT400", "invalid_argument"), "resolve_discrepancy() wants a note")
    is_(pay.resolve("refund", ""), ("PT400", "invalid_argument"), "which says something")
    is_(pay.resolve("forget"), ("PT400", "invalid_argument"), "and a word that it knows")
    is_(pay.resolve("refund", discrepancy=10 ** 9), ("PT400", "invalid_argument"), "and one that is there")
    pay.agree([unexpected()], "after errors")
    conn = lab.connect(autocommit=False)
    lab.sql(RESOLVE, [id_, "refund", "undone"], conn=conn)
    conn.rollback()
    lab.all_looked()
    is_((pay.operations("refund"), pay.discrepancies("status")), ([], [("open",)]), "A9: a decision that is rolled back was none")

    results = threads_at_barrier(4, lambda i, conn: error(lab, RESOLVE, [id_, ("refund", "write_off")[i % 2], "me first"], conn=conn),
                                 lambda i: lab.connect())
    is_(sorted(str(r) for r in results), sorted(["None", "None", "('PT409', 'parameters_differ')", "('PT409', 'parameters_differ')"]),
        "four people at once, two decisions: one decision, the others are told")
    pay.settle()
    pay.check()
    how = pay.discrepancies("resolution")[0][0]
    pay.agree([unexpected(), sent() if how == "refund" else ("correction", "suspense", "losses", 1000)], "one of two decisions")

    pay = late(lab, "by hand, write off")
    is_(pay.resolve("write_off", "too small to bother"), None, "write_off")
    pay.check(2)
    pay.agree([unexpected(), ("correction", "suspense", "losses", 1000)], "write_off: suspense to losses")
    is_(pay.discrepancies("status, resolution, resolved_by, note"), [("resolved", "write_off", lab.env["PGUSER"], "too small to bother")],
        "write_off: who and why")
    is_(lab.one("SELECT note FROM payflow.accounting_entries WHERE session_id = %s AND entry_type = 'correction'", [pay.id]),
        "too small to bother", "F1: a correction bears its note")
    is_((pay.resolve("write_off"), pay.resolve("refund")), (None, ("PT409", "parameters_differ")), "write_off again is the same, refund is not")
    pay.agree([unexpected(), ("correction", "suspense", "losses", 1000)], "write_off, twice")
    is_((pay.amounts(), pay.operations("refund")), ((0, 0, 0, 0), []), "write_off: nothing waits, nothing is refunded")
    pay.create_is(None, "write_off: the order is free")

    # The provider had reported money by mistake, and does not any more.
    pay = late(lab, "by hand, no money")
    deaf = lab.rule("get", "status", 503, order=pay.order, times=0)
    is_(pay.resolve("no_money", "they had mixed up two shops"), None, "no_money")
    pay.act("capture_fail")
    pay.act("decline")
    lab.release(deaf)
    pay.check(2)
    pay.settle()
    pay.agree([unexpected(), ("correction", "suspense", "provider", 1000)], "no_money: suspense to provider")
    pay.create_is(None, "no_money: the order is free")


def refund_fails(lab):
    """A failed suspense refund reopens the discrepancy; it can be decided again."""
    for merchant in ("refund", "hold"):
        lab.settings(refunds="fail")
        pay = late(lab, f"suspense refund fails, {merchant}", merchant)
        if merchant == "hold":
            pay.resolve("refund")
        name = f"{pay.order}"
        pay.settle()
        is_((pay.discrepancies(), pay.amounts()), ([("unexpected_money", 1000, "open", None)], (0, 0, 1000, 0)),
            f"{name}: it has failed: to be decided again")
        refund, = pay.operations("refund")
        ok(refund.status == "failed" and f"refund_failed:{refund.operation_id}" in lab.alerts(), f"{name}: failed, with an alert")
        is_(error(lab, "SELECT payflow.retry_now('refund', %s, 'again')", [str(refund.operation_id)]), ("PT409", "not_refundable"),
            f"{name}: it is not tried again")
        pay.create_is("money_in_suspense", f"{name}: it waits again")
        lab.settings(refunds="succeed")
        is_(pay.resolve("refund"), None, f"{name}: decided again")
        is_(pay.settle(), ["failed", "succeeded"], f"{name}: by another refund")
        pay.agree([unexpected(), sent()], name)
        # and then it comes back after all
        pay.act("refund_fail")
        pay.check(3)
        pay.agree([unexpected(), sent(), came_back()], f"{name}: it comes back")
        is_((pay.discrepancies("status, resolution"), pay.amounts()), ([("open", None)], (0, 0, 1000, 0)), f"{name}: to be decided a third time")
        is_(pay.resolve("accept"), None, f"{name}: and now it is accepted")
        pay.agree([unexpected(), sent(), came_back(), ACCEPTED], f"{name}: accepted")
        is_(pay.state()[2:], (True, "paid"), f"{name}: paid")


def gone_meanwhile(lab):
    """The provider gives it back, or takes it, while it waits."""
    pay = late(lab, "gone")
    pay.act("refund")
    pay.check(3)
    pay.agree([unexpected(), reported()], "gone: refunded at the provider, three checks")
    is_((pay.discrepancies("status, resolution, resolved_by"), pay.amounts()), ([("resolved", "refund", "payflow")], (0, 0, 0, 0)),
        "gone: that closes the discrepancy")
    pay.create_is(None, "gone: the order is free")

    pay = late(lab, "partly gone")
    pay.act("refund", amount=400)
    pay.check(2)
    pay.agree([unexpected(), reported(400)], "partly gone")
    is_((pay.discrepancies("status"), pay.amounts()[2]), ([("open",)], 600), "partly gone: the rest waits")
    is_(pay.resolve("accept"), ("PT400", "invalid_argument"), "partly gone: the rest is not what the order costs")
    is_(pay.resolve("refund"), None, "partly gone: refund")
    pay.settle()
    pay.agree([unexpected(), reported(400), sent(600)], "partly gone: what is left is refunded")

    pay = late(lab, "taken back")
    pay.act("capture_fail")
    pay.act("decline")
    pay.check(2)
    pay.settle()
    pay.agree([unexpected(), ("payment_reversed", "suspense", "provider", 1000)], "taken back: a capture that fails")
    is_((pay.discrepancies("kind, status")[0], pay.amounts()), (("unexpected_money", "resolved"), (0, 0, 0, 0)), "taken back: closes it")

    # Ours and theirs at the same time.
    pay = late(lab, "both refund")
    hold = lab.rule("refund", "hold", order="both refund")
    pay.resolve("refund")
    lab.wait_held(hold)
    pay.act("refund")
    pay.check()
    lab.release(hold)
    is_(pay.settle(), ["failed"], "both refund: the provider refuses ours")
    pay.check()
    pay.agree([unexpected(), reported()], "both refund")
    is_((pay.discrepancies("status"), pay.amounts()), ([("resolved",)], (0, 0, 0, 0)), "both refund: nothing is left to decide")
    pay.create_is(None, "both refund: the order is free")


def settled_by_person(lab):
    """A suspense refund whose result cannot be learned is decided by a person."""
    lab.add_server("forgetful", timeout="1 s", key_validity="1 s", poll_intervals="1 hour", breaker_failures="1000000")
    lab.sql("INSERT INTO payflow.merchants (id, default_provider, late_payment) VALUES ('forgetful', 'forgetful', 'refund')")
    for outcome in ("failed", "succeeded"):
        pay = Payment(lab, f"settled, {outcome}", "forgetful").to("decline")
        rule = lab.rule("refund", "hold" if outcome == "succeeded" else "drop_before", order=pay.order)
        pay.act("pay")
        pay.check()
        poll(lambda: lab.hits(rule), what="the refund's call")
        # from here on nobody can ask; in the end it is done, or was never
        deaf = lab.rule("get", "status", 503, order=pay.order, times=0)
        poll(lambda: pay.operations("refund")[0].unresolved_since, what="its answer to be lost")
        lab.release(rule)
        refund, = pay.operations("refund")
        lab.sql("UPDATE payflow.operations SET unresolved_since = now() - interval '61 minutes' WHERE operation_id = %s", [refund.operation_id])

        def is_unknown():
            lab.sql("""UPDATE payflow.operations SET next_action_at = now()
                       WHERE operation_id = %s AND lease_until IS NULL AND status <> 'unknown'""", [refund.operation_id])
            return pay.operations("refund")[0].status == "unknown"

        poll(is_unknown, what="it to be unknown")
        lab.sql("SELECT payflow.settle_refund(%s::uuid, %s, 'the bank says so')", [refund.operation_id, outcome])
        lab.release(deaf)
        pay.check(2)
        if outcome == "failed":
            is_((pay.discrepancies("status, resolution"), pay.amounts()), ([("open", None)], (0, 0, 1000, 0)),
                "a suspense refund that a person settles as failed: its discrepancy is open again")
            pay.create_is("money_in_suspense", "and the money waits again")
            pay.agree([unexpected()], "settled as failed")
            is_(pay.resolve("accept"), None, "now it is accepted")
            pay.agree([unexpected(), ACCEPTED], "settled as failed, then accepted")
        else:
            is_((pay.discrepancies("status, resolution"), pay.amounts()), ([("resolved", "refund")], (0, 0, 0, 0)), "settled as succeeded")
            pay.agree([unexpected(), sent()], "settled as succeeded")


def more_than_came(lab):
    """C8: limits bind our commands, never the facts: what goes wrong at the provider is booked and alerted."""
    # Ours is on its way, the provider refunds the same by itself, and then ours as well.
    lab.settings(refunds="pending")
    pay = late(lab, "refunded twice", "refund")
    poll(lambda: pay.operations("refund")[0].provider_ref, what="the provider to have it")
    ours, = [r["id"] for r in lab.payments(pay.order)[0]["refunds"]]
    pay.act("refund", amount=1000)
    pay.check(2)
    pay.act("refund_succeed", refund=ours)
    pay.check(2)
    lab.settings(refunds="succeed")
    pay.settle()
    pay.agree([unexpected(), reported(), sent(source="losses")], "C8: late money that went back twice")
    ok([d for d in pay.discrepancies("kind, status") if d[1] == "open"], "C8: more went back than came: a discrepancy", pay.discrepancies())

    # Ours is on its way, the provider refunds the same by itself, and more money comes.
    lab.settings(refunds="pending")
    pay = late(lab, "more comes while it goes back", "refund")
    poll(lambda: pay.operations("refund")[0].provider_ref, what="the provider to have it")
    pay.act("refund", amount=1000)
    pay.check()
    pay.act("pay", amount=2000)
    pay.check(2)
    lab.settings(refunds="succeed")
    is_(sorted(pay.entries()), sorted([unexpected(), reported(), unexpected()]), "C8: what comes meanwhile is booked, whatever is on its way")
    ours = pay.operations("refund")[0].provider_ref
    pay.act("refund_fail", refund=ours)
    pay.check()
    pay.settle()
    pay.check()
    booked = pay.entries()
    is_((sum(a * ((d == "provider") - (c == "provider")) for _, d, c, a in booked), pay.amounts()[2]),
        (lambda p: (p["captured"] - p["refunded"],) * 2)(lab.payments(pay.order)[0]), "C8: and in the end both sides agree")

    # Of what is on its way back nothing can be accepted.
    lab.settings(refunds="pending")
    pay = late(lab, "reserved")
    pay.act("pay", amount=2000)
    pay.check()
    first, second = [d[0] for d in pay.discrepancies("id")]
    is_(pay.resolve("refund", discrepancy=first), None, "reserved: one of two goes back")
    poll(lambda: pay.operations("refund")[0].provider_ref, what="the provider to have it")
    ours = pay.operations("refund")[0].provider_ref
    pay.act("refund", amount=1000)
    pay.check()
    e = pay.resolve("accept", discrepancy=second)
    ok(e and e[0].startswith("PT4"), "reserved: what is left is on its way back: it cannot be accepted", e)
    e = pay.resolve("refund", discrepancy=second)
    ok(e is None or e[0].startswith("PT4"), "reserved: nor refunded once more, and that is said in an error of ours", e)
    pay.act("refund_succeed", refund=ours)
    lab.settings(refunds="succeed")
    pay.settle()
    pay.check()
    pay.agree([unexpected(), unexpected(), reported(), sent()], "reserved: all of it went back")
    is_(pay.state()[2:], (False, "open"), "reserved: and the order is not paid")


def twice_on_one(lab):
    """More comes while the first waits: each has its own discrepancy."""
    pay = late(lab, "more comes")
    pay.act("pay", amount=1500)
    pay.check(2)
    is_((pay.discrepancies("amount, status"), pay.amounts()[2]), ([(1000, "open"), (500, "open")], 1500), "more comes: two discrepancies")
    first, second = [d[0] for d in pay.discrepancies("id")]
    is_(pay.resolve("refund", discrepancy=second), None, "more comes: the second one goes back")
    pay.settle()
    pay.agree([unexpected(), unexpected(500), sent(500)], "more comes")
    pay.create_is("money_in_suspense", "more comes: the first one still waits")
    is_((pay.discrepancies("status"), pay.amounts()[2]), ([("open",), ("resolved",)], 1000), "more comes: the first one stays open")
    is_(pay.resolve("accept", discrepancy=first), None, "more comes: the first one is accepted")
    pay.agree([unexpected(), unexpected(500), sent(500), ACCEPTED], "more comes: accepted")
    is_((pay.state()[2:], pay.amounts()), ((True, "paid"), (1000, 0, 0, 1000)), "more comes: paid")


# ---- create() while it waits ---------------------------------------------------------------

def create_meanwhile(lab):
    pay = Payment(lab, "older snapshot").to("decline")
    conn = lab.connect(autocommit=False)
    for level in (psycopg2.extensions.ISOLATION_LEVEL_REPEATABLE_READ, psycopg2.extensions.ISOLATION_LEVEL_SERIALIZABLE):
        conn.set_session(isolation_level=level)
        lab.sql("SELECT 1", conn=conn)
        pay.act("pay", amount=1000 * level)
        pay.check()
        e = error(lab, CREATE, [pay.order, 1000, "hold"], conn=conn)
        conn.rollback()
        ok(e and (e[0] == "40001" or e == ("PT409", "money_in_suspense")), "A11: create() whose snapshot is older makes no session", e)

    # create() and the late money at the same moment: whoever is first, no money is lost.
    pays = [Payment(lab, f"at once {i}").to("decline") for i in range(6)]
    for pay in pays:
        pay.act("pay")
    results = threads_at_barrier(12, lambda i: pays[i // 2].check() if i % 2 else error(lab, CREATE, [pays[i // 2].order, 1000, "hold"]))
    ok(all(r in (None, ("PT409", "money_in_suspense")) for r in results[::2]), "E4: create() at the same moment: made, or refused", results[::2])
    for pay in pays:
        pay.agree([unexpected()], f"E4: {pay.order}")
    ids = [row.session_id for row in lab.sql("""SELECT session_id FROM payflow.payment_sessions
        WHERE order_id LIKE 'at once %%' AND status NOT IN ('completed', 'failed', 'canceled')""")]
    for id_ in ids:
        lab.poll_session(id_, "registered")


# ---- forced checks --------------------------------------------------------------------------

def forced(lab):
    """D13: by hand, in any status; it can never finalise twice."""
    force = "SELECT * FROM payflow.force_check(%s::uuid, %s, '30 seconds')"
    done = Payment(lab, "D13, completed").to("pay")
    failed = Payment(lab, "D13, failed").to("decline")
    calls = lab.stats(order=done.order)["calls"]["get"]
    row = lab.row(force, [done.id, "the customer calls"])
    is_((row.status, row.paid, lab.stats(order=done.order)["calls"]["get"] > calls), ("completed", True, True), "D13: asks about a completed one")
    done.agree([RECEIPT], "D13: and completes nothing twice")
    failed.act("pay")
    results = threads_at_barrier(4, lambda i: lab.row(force, [failed.id, f"clerk {i}"]))
    ok(all(not isinstance(r, Exception) and r.status == "failed" for r in results), "D13: four at once on a failed one", results)
    failed.agree([unexpected()], "D13: late money is found, once")
    is_(failed.discrepancies("kind"), [("unexpected_money",)], "D13: one discrepancy")
    said = [j for j in lab.journal(failed.id) if j.event == "force_check"]
    is_((sorted((j.detail or {}).get("reason") for j in said), {j.actor for j in said}), ([f"clerk {i}" for i in range(4)], {lab.env["PGUSER"]}),
        "D13: the journal says who and why")
    is_(error(lab, force, [done.id, None]), ("PT400", "invalid_argument"), "D13: a reason is wanted")


# ---- a capture that fails after completion -----------------------------------------------------

def reversed_money(lab):
    """C8."""
    gone = ("payment_reversed", "held", "provider", 1000)
    pay = Payment(lab, "reversed").to("pay")
    pay.act("capture_fail")
    pay.check(3)
    is_(pay.state(), ("completed", None, False, "refunded"), "C8: the capture fails after completion: not paid, the status stays")
    is_(pay.amounts(), (0, 0, 0, 0), "C8: nothing is captured, nothing refundable")
    pay.agree([RECEIPT, gone], "C8: three checks")
    is_(pay.discrepancies("kind, status"), [("payment_reversed", "open")], "C8: a discrepancy, one")
    ok(pay.alerted("payment_reversed"), "C8: with an alert")
    e = error(lab, "SELECT payflow.refund(%s::uuid, 1)", [pay.id])
    ok(e in (("PT409", "not_refundable"), ("PT409", "refund_exceeds_captured")), "C8: nothing can be refunded", e)
    pay.create_is("order_already_paid", "C8: the order is not free again")
    is_(pay.operations("void"), [], "C8: what had been completed is not voided by us")

    pay.act("pay")
    pay.check(2)
    is_((pay.state(), pay.amounts()), (("completed", None, False, "refunded"), (0, 0, 1000, 0)), "C8: paid again after that: unexpected money")
    pay.agree([RECEIPT, gone, unexpected()], "C8: paid again")
    is_(pay.resolve("refund"), None, "C8: which goes back")
    pay.settle()
    pay.agree([RECEIPT, gone, unexpected(), sent()], "C8: paid again and refunded")

    part = Payment(lab, "reversed after a refund").to("pay")
    lab.sql("SELECT payflow.refund(%s::uuid, 300)", [part.id])
    part.settle()
    part.act("capture_fail")
    part.check(2)
    is_((part.state(), part.amounts()[:2], part.amounts()[3]), (("completed", None, False, "refunded"), (0, 300), 0),
        "C8: refunded 300, then reversed: both are facts")
    part.agree([RECEIPT, sent(300, "held"), gone], "C8: reversed after a refund")

    two = Payment(lab, "reversed, with suspense").to("pay")
    two.act("pay", amount=1200)
    two.check()
    two.act("capture_fail")
    two.check(2)
    two.agree([RECEIPT, unexpected(200), ("payment_reversed", "suspense", "provider", 200), gone], "C8: suspense first, then the receipt")
    is_((two.amounts(), two.state()[2:]), ((0, 0, 0, 0), (False, "refunded")), "C8: all of it is gone")
    is_([d for d in two.discrepancies("kind, status") if d[0] == "unexpected_money"], [("unexpected_money", "resolved")],
        "C8: of the suspense there is nothing left to decide")

    accepted = late(lab, "reversed, accepted", "accept")
    accepted.act("capture_fail")
    accepted.check(2)
    accepted.settle()
    is_(accepted.state(), ("failed", "declined", False, "refunded"), "C8: accepted late money is reversed: not paid any more")
    entries = [unexpected(), ACCEPTED, gone]
    is_(sorted(accepted.entries()), sorted(entries), "C8: accepted, then reversed")


with Lab(workers=2, conf={"fsync": "off", "payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000000)
    for policy in POLICIES:
        lab.sql("INSERT INTO payflow.merchants (id, default_provider, late_payment) VALUES (%s, 'sandbox', %s)", [policy, policy])
    mismatch(lab)
    held(lab)
    policies(lab)
    canceled_by_us(lab)
    paid_twice(lab)
    more_than_booked(lab)
    paid_in_vain(lab)
    authorizations(lab)
    other_price(lab)
    beside_live(lab)
    both_late(lab)
    by_hand(lab)
    refund_fails(lab)
    gone_meanwhile(lab)
    settled_by_person(lab)
    more_than_came(lab)
    twice_on_one(lab)
    create_meanwhile(lab)
    forced(lab)
    reversed_money(lab)
    is_(lab.one(f"SELECT count(*) FROM payflow.operations WHERE {UNSETTLED}"), 0, "nothing is left unsettled")
    # With corrections in the ledger, finish() would count money that a person has said was none.
    is_(lab.sql("SELECT * FROM payflow.check_invariants()"), [], "check_invariants() finds nothing")
    stats = lab.stats()
    is_(lab.one("SELECT sum(balance)::bigint FROM payflow.accounts WHERE kind = 'provider'"),
        stats["captured"] - stats["refunded"] - stats["disputed"], "what all providers have: the ledger says what they say")
done_testing()
