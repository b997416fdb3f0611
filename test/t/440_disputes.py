"""Disputes: C8, C9, C67, C68.

What the provider reports as disputed is booked whatever it is, once, reduces what can be refunded, and can be won back.
After each step the entries of the session, its balances, and the money of the payment at the provider are compared.
"""

from payflow_test import Lab, done_testing, is_, ok, poll, threads_at_barrier

REFUND = "SELECT * FROM payflow.refund(%s::uuid, %s)"


class Payment:
    """A payment, and both sides of its money."""

    def __init__(self, lab, order, amount=100, pay=True):
        self.lab, self.order = lab, order
        self.id = lab.one("SELECT session_id FROM payflow.create(%s, %s, 'EUR')", [order, amount])
        lab.poll_session(self.id, "registered")
        lab.quiet(self.id)
        if pay:
            self.act("pay")
            self.check()

    def act(self, what, **body):
        return self.lab.act(self.id, what, **body)

    def check(self, times=1):
        for _ in range(times):
            self.lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [self.id])

    def row(self):
        return self.lab.row("SELECT * FROM payflow.get(%s::uuid)", [self.id])

    def money(self):
        row = self.row()
        return row.order_status, row.paid, row.refunded_amount, row.disputed_amount, row.refundable_amount

    def refund(self, amount=None):
        refund = self.lab.row(REFUND, [self.id, amount])
        row = self.lab.row("SELECT * FROM payflow.wait_refund(%s::uuid, '30 seconds')", [refund.refund_id])
        is_(row.status, "succeeded", f"{self.order}: a refund of {refund.amount} goes through")

    def entries(self):
        """Type, debit, credit, amount."""
        return [tuple(e) for e in self.lab.sql(
            """SELECT e.entry_type, d.kind AS debit, c.kind AS credit, e.amount FROM payflow.accounting_entries e
                   JOIN payflow.accounts d ON d.account_id = e.debit_account
                   JOIN payflow.accounts c ON c.account_id = e.credit_account
               WHERE e.session_id = %s ORDER BY e.entry_id""", [self.id])]

    def agree(self, entries, name):
        """These entries after the receipt; and they say what the provider says."""
        got = self.entries()
        claim = sum(a * ((d == "provider") - (c == "provider")) for _, d, c, a in got)
        payment, = self.lab.payments(self.order)
        is_((sorted(got[1:]), claim), (sorted(entries), payment["captured"] - payment["refunded"] - payment["disputed"]),
            f"{name}: booked once, and both sides agree")
        return self.balances(got)

    @staticmethod
    def balances(entries):
        """held, suspense, losses: each in its own direction."""
        def sum_of(kind):
            return sum(a * ((c == kind) - (d == kind)) for _, d, c, a in entries)
        return sum_of("held"), sum_of("suspense"), -sum_of("losses")

    def facts(self):
        return [tuple(f) for f in self.lab.sql("""SELECT kind, step, amount FROM payflow.provider_operations
            WHERE session_id = %s AND kind LIKE 'dispute%%' ORDER BY provider_operation_id""", [self.id])]

    def discrepancies(self):
        return sorted(d.kind for d in self.lab.sql("SELECT kind FROM payflow.discrepancies WHERE session_id = %s", [self.id]))

    def alerted(self, about):
        return f"{about}:{self.id}" in self.lab.alerts()

    def refused(self, amount, name, word="refund_exceeds_captured"):
        e = self.lab.error(REFUND, [self.id, amount])
        is_(e and (e.pgcode, e.diag.message_detail), ("PT409", word), name)


def taken(amount, source="held"):
    return "chargeback", source, "provider", amount


def won(amount, source="held"):
    return "chargeback_reversed", "provider", source, amount


def sent(amount):
    return "refund_sent", "held", "provider", amount


# ---- as a rule -------------------------------------------------------------------

def partial(lab):
    pay = Payment(lab, "C9")
    pay.act("dispute", amount=40)
    results = threads_at_barrier(4, lambda i: pay.check())
    ok(all(r is None for r in results), "C9: four checks at once", results)
    pay.check(2)
    is_(pay.money(), ("paid", True, 0, 40, 60), "C9: disputed; the order's status stays; less can be refunded")
    is_(pay.agree([taken(40)], "C9: six checks"), (60, 0, 0), "C9: it is taken from held")
    is_(pay.facts(), [("dispute", "taken:40", 40)], "C9: one fact")
    ok(pay.alerted("dispute"), "C9: with an alert")
    pay.refused(61, "C67: more than is left is refused")
    pay.refund(60)
    is_(pay.money(), ("partially_refunded", False, 60, 40, 0), "C9: disputed and refunded is all of it: no longer paid")
    pay.refused(1, "C67: nothing is left")
    is_(pay.agree([taken(40), sent(60)], "C9: with a refund"), (0, 0, 0), "C9: nothing is left here")
    is_(pay.discrepancies(), [], "C9: that is no discrepancy")


def whole_and_won(lab):
    """C67."""
    pay = Payment(lab, "C67")
    pay.act("dispute")
    pay.check(2)
    is_(pay.money(), ("paid", False, 0, 100, 0), "C67: all of it is disputed: not paid for now")
    pay.refused(1, "C67: captured 100, dispute 100, refund 1: refused")
    pay.refused(None, "C67: nor all that is left", "not_refundable")
    pay.agree([taken(100)], "C67")
    pay.act("win_dispute")
    pay.check(3)
    is_(pay.money(), ("paid", True, 0, 0, 100), "C67: won: paid again, refundable again")
    is_(pay.agree([taken(100), won(100)], "C67: won, three checks"), (100, 0, 0), "C67: back to where it came from")
    ok(pay.alerted("dispute_won"), "C67: with an alert")
    pay.refund(1)
    pay.agree([taken(100), won(100), sent(1)], "C67: dispute won: allowed again")


def won_in_part(lab):
    pay = Payment(lab, "won in part")
    pay.act("dispute", amount=80)
    pay.check()
    pay.act("win_dispute", amount=30)
    pay.check(2)
    is_(pay.money(), ("paid", True, 0, 50, 50), "C9: 30 of 80 won: 50 stay disputed")
    pay.agree([taken(80), won(30)], "C9: won in part")
    pay.refused(51, "C9: what is not won cannot be refunded")
    pay.act("win_dispute", amount=20)
    pay.check(2)
    pay.agree([taken(80), won(30), won(20)], "C9: 20 more")
    pay.act("win_dispute")
    pay.check(2)
    is_(pay.agree([taken(80), won(30), won(20), won(30)], "C9: and the rest"), (100, 0, 0), "C9: all is back")
    is_(pay.money(), ("paid", True, 0, 0, 100), "C9: won whole, in three parts")


def second_dispute(lab):
    """Each is booked by its own name; what one wins is not the other's."""
    pay = Payment(lab, "second")
    pay.act("dispute", amount=30)
    pay.check()
    first = lab.payments("second")[0]["disputes"][0]["id"]
    pay.act("dispute", amount=50)
    pay.check(2)
    is_(pay.money(), ("paid", True, 0, 80, 20), "C9: a second dispute adds to the first")
    pay.agree([taken(30), taken(50)], "C9: two disputes")
    pay.act("win_dispute", dispute=first)
    pay.check(2)
    is_(pay.money(), ("paid", True, 0, 50, 50), "C9: the first is won, the second is not")
    pay.agree([taken(30), taken(50), won(30)], "C9: one won")
    pay.act("dispute", amount=50)
    pay.check(2)
    is_(pay.money(), ("paid", False, 0, 100, 0), "C9: and a third one")
    pay.agree([taken(30), taken(50), won(30), taken(50)], "C9: three disputes")

    both = Payment(lab, "both at once")
    both.act("dispute", amount=20)
    both.act("dispute", amount=30)
    both.act("win_dispute", amount=10)
    both.check(2)
    is_(both.money(), ("paid", True, 0, 40, 60), "C9: all of it learned by one answer")
    both.agree([taken(20), taken(30), won(10)], "C9: two disputes, one won in part, at once")


def answer_of(lab, pay, **changes):
    """What the provider would say, changed."""
    payment = dict(lab.payments(pay.order)[0])
    for name in ("capture", "return_url", "receipt"):
        payment.pop(name, None)
    payment.update(changes)
    return payment


def grows(lab):
    """One dispute whose amount changes; the provider of the test cannot do that, so its answers are made up."""
    pay = Payment(lab, "grows")
    for amount, entries in ((30, [taken(30)]), (70, [taken(30), taken(40)]), (70, [taken(30), taken(40)]),
                            (50, [taken(30), taken(40), won(20)])):
        dispute = {"id": "dsp_grows", "amount": amount, "status": "open", "won": 0}
        rule = lab.rule("get", "answer", answer_of(lab, pay, disputed=amount, disputes=[dispute]), order="grows", times=0)
        pay.check(2)
        lab.release(rule)
        is_((sorted(pay.entries()[1:]), pay.money()[3:]), (sorted(entries), (amount, 100 - amount)),
            f"C9: one dispute, now of {amount}: the difference is booked")
    rule = lab.rule("get", "answer", answer_of(lab, pay, disputed=0, disputes=[{**dispute, "status": "won", "won": 50}]),
                    order="grows", times=0)
    pay.check(2)
    lab.release(rule)
    is_(pay.agree([taken(30), taken(40), won(20), won(50)], "C9: and it is won"), (100, 0, 0), "C9: all is back")


def only_totals(lab):
    """Without names the total is compared; names that come later use it up."""
    pay = Payment(lab, "total")
    for disputed, entries in ((60, [taken(60)]), (60, [taken(60)]), (20, [taken(60), won(40)]), (50, [taken(60), won(40), taken(30)])):
        answer = answer_of(lab, pay, disputed=disputed)
        answer.pop("disputes")
        rule = lab.rule("get", "answer", answer, order="total", times=0)
        pay.check(2)
        lab.release(rule)
        is_((sorted(pay.entries()[1:]), pay.money()[3]), (sorted(entries), disputed), f"C8: a total of {disputed}, no names")
    pay.act("dispute", amount=50)
    pay.check(2)
    pay.agree([taken(60), won(40), taken(30)], "C8: named later: nothing is booked twice")
    pay.act("win_dispute", amount=20)
    pay.check(2)
    is_(pay.agree([taken(60), won(40), taken(30), won(20)], "C8: and won in part"), (70, 0, 0), "C8: what is won is back in held")


# ---- more than there is --------------------------------------------------------------

def larger(lab):
    """C68."""
    pay = Payment(lab, "C68")
    pay.act("dispute", amount=105)
    pay.check(3)
    is_(pay.money(), ("paid", False, 0, 105, 0), "C68: dispute 105 on 100: shown as it is")
    is_(pay.agree([taken(100), taken(5, "losses")], "C68: three checks"), (0, 0, 5), "C68: 5 are a loss")
    ok(pay.alerted("dispute_exceeds_captured"), "C68: with an alert")
    ok("dispute_exceeds_captured" in pay.discrepancies(), "C68: and a discrepancy", pay.discrepancies())
    is_(len(pay.discrepancies()), len(set(pay.discrepancies())), "C68: none of them twice")
    pay.refused(1, "C68: nothing can be refunded")
    pay.act("win_dispute", amount=102)
    pay.check(2)
    is_(pay.agree([taken(100), taken(5, "losses"), won(100), won(2, "losses")], "C68: 102 won"), (100, 0, 3),
        "C68: source first, losses last")
    is_(pay.money(), ("paid", True, 0, 3, 97), "C68: 3 stay disputed")
    pay.act("win_dispute")
    pay.check(2)
    is_((pay.agree([taken(100), taken(5, "losses"), won(100), won(2, "losses"), won(3, "losses")], "C68: all won"), pay.money()),
        ((100, 0, 0), ("paid", True, 0, 0, 100)), "C68: all is back")

    two = Payment(lab, "C68, two")
    two.act("dispute", amount=70)
    two.check()
    two.act("dispute", amount=50)
    two.check(2)
    is_(two.agree([taken(70), taken(30), taken(20, "losses")], "C68: two disputes that together exceed it"), (0, 0, 20),
        "C68: what exceeds the captured amount is a loss")
    is_(two.money(), ("paid", False, 0, 120, 0), "C68: both count")


def with_refund(lab):
    """C67: both took it: the money went out twice."""
    pay = Payment(lab, "dispute and refund")
    pay.refund(60)
    pay.act("dispute", amount=100)
    pay.check(2)
    is_(pay.money(), ("partially_refunded", False, 60, 100, 0), "C67: refunded 60, disputed 100 of 100: both are facts")
    is_(pay.discrepancies(), ["returned_exceeds_captured"], "C67: more than was captured: a discrepancy, one")
    ok(pay.alerted("returned_exceeds_captured"), "C67: with an alert")
    is_(pay.agree([sent(60), taken(100)], "C67: both"), (-60, 0, 0), "C67: held goes below nothing, and shows it")
    pay.act("win_dispute")
    pay.check(2)
    is_((pay.agree([sent(60), taken(100), won(100)], "C67: won"), pay.money()),
        ((40, 0, 0), ("partially_refunded", True, 60, 0, 40)), "C67: won: 40 are here")

    exact = Payment(lab, "exactly all")
    exact.refund(60)
    exact.act("dispute", amount=40)
    exact.check(2)
    is_((exact.discrepancies(), exact.money()), ([], ("partially_refunded", False, 60, 40, 0)), "C67: together exactly all: none")


def while_refunding(lab):
    """A dispute comes while a refund is on its way: the refund counts, the dispute is booked all the same."""
    pay = Payment(lab, "while refunding")
    hold = lab.rule("refund", "hold", order=pay.order)
    refund = lab.row(REFUND, [pay.id, 80])
    lab.wait_held(hold)
    pay.act("dispute", amount=50)
    pay.check(2)
    is_(pay.money(), ("refunding", True, 0, 50, 0), "C8: pending 80, disputed 50: nothing is left, and nothing fails")
    lab.release(hold)
    row = lab.row("SELECT * FROM payflow.wait_refund(%s::uuid, '30 seconds')", [refund.refund_id])
    is_((row.status, row.failure_code, pay.money()), ("failed", "refused", ("paid", True, 0, 50, 50)),
        "C67: the provider refuses the refund: its amount is free, the dispute stays")
    pay.agree([taken(50)], "C67: while refunding")


# ---- money in suspense -----------------------------------------------------------------

def of_suspense(lab):
    """A dispute takes this session's suspense first, then its receipt, and comes back there."""
    pay = Payment(lab, "suspense", 100)
    pay.act("pay", amount=130)
    pay.check()
    late = ("unexpected_received", "provider", "suspense", 30)
    is_(pay.agree([late], "30 more than is booked"), (100, 30, 0), "C8: the excess waits in suspense")
    pay.act("dispute", amount=20)
    pay.check(2)
    is_(pay.agree([late, taken(20, "suspense")], "C9: 20"), (100, 10, 0), "C9: a dispute takes suspense first")
    is_((pay.money(), pay.row().suspense_amount), (("paid", True, 0, 0, 100), 10), "C9: the receipt is untouched")
    pay.act("dispute", amount=50)
    pay.check(2)
    is_(pay.agree([late, taken(20, "suspense"), taken(10, "suspense"), taken(40)], "C9: 50 more"), (60, 0, 0),
        "C9: then the receipt")
    is_((pay.money(), pay.row().suspense_amount), (("paid", True, 0, 40, 60), 0), "C9: of which 40 are disputed")
    is_(lab.one("SELECT count(*) FROM payflow.discrepancies WHERE session_id = %s AND status = 'open'", [pay.id]), 0,
        "with the money in suspense gone there is nothing left to decide")
    pay.act("win_dispute")
    pay.check(2)
    is_(pay.agree([late, taken(20, "suspense"), taken(10, "suspense"), taken(40), won(10, "suspense"), won(40)], "C9: 50 won"),
        (100, 10, 0), "C9: each part goes back to where it was taken from")
    is_((pay.money(), pay.row().suspense_amount), (("paid", True, 0, 0, 100), 10), "C9: the receipt is whole again")

    # On a session that has no receipt: suspense, then losses.
    pay = Payment(lab, "suspense only", 100, pay=False)
    pay.act("decline")
    pay.check()
    pay.act("pay")
    pay.check()
    pay.act("dispute", amount=110)
    pay.check(2)
    entries = pay.entries()
    is_(sorted(entries), sorted([("unexpected_received", "provider", "suspense", 100), taken(100, "suspense"), taken(10, "losses")]),
        "C68: no receipt: suspense, and the rest is a loss")
    is_(pay.balances(entries), (0, 0, 10), "C68: balances")
    is_(pay.row().status, "failed", "and the session stays failed")


# ---- out of order ------------------------------------------------------------------------

def out_of_order(lab):
    """An answer from before, held while a newer one is applied, takes nothing back and adds nothing.

    Protection: is_outdated(), by answered_at.
    """
    for kind, first, second, entries, money in (
            ("disputed since", None, "dispute", [taken(40)], ("paid", True, 0, 40, 60)),
            ("won since", "dispute", "win_dispute", [taken(40), won(40)], ("paid", True, 0, 0, 100))):
        pay = Payment(lab, f"E3: {kind}")
        if first:
            pay.act(first, amount=40)
            pay.check()
        stall = lab.rule("get", "stall_body", order=pay.order)
        lab.sql("SELECT FROM payflow.check(%s::uuid)", [pay.id])
        lab.wait_held(stall)
        older = lab.one("SELECT pid FROM payflow.workers WHERE in_flight = 1")
        pay.act(second, amount=40)
        # Another worker asks, as if the first one had been away for long; no worker asks twice at once.
        lab.stop_worker(older)
        lab.end_lease(pay.id)
        pay.check()
        is_((sorted(pay.entries()[1:]), pay.money()), (sorted(entries), money), f"E3: {kind}: the newer answer is applied")
        before = len(lab.journal(pay.id))
        lab.go_on(older)
        lab.release(stall)
        poll(lambda: len(lab.journal(pay.id)) > before, what="the old answer")
        is_((sorted(pay.entries()[1:]), pay.money(), pay.discrepancies()), (sorted(entries), money, []),
            f"E3: {kind}: an outdated answer changes nothing and finds nothing wrong")
        pay.check()
        pay.agree(entries, f"E3: {kind}")


with Lab(workers=2, conf={"fsync": "off", "payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000000)
    partial(lab)
    whole_and_won(lab)
    won_in_part(lab)
    second_dispute(lab)
    grows(lab)
    only_totals(lab)
    larger(lab)
    with_refund(lab)
    while_refunding(lab)
    of_suspense(lab)
    out_of_order(lab)
    stats = lab.stats()
    is_(lab.one("""SELECT sum(amount * CASE entry_type WHEN 'chargeback' THEN 1 ELSE -1 END)::bigint
                   FROM payflow.accounting_entries WHERE entry_type LIKE 'chargeback%%'""", []), stats["disputed"],
        "disputed: the ledger says what the provider says")
    lab.finish()
done_testing()
