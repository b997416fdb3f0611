"""Money that goes back, or comes, while something else is decided about it: C6, C8, C9, E4, C30, C53.

A cancel that loses when part of the money is gone, late money of which part has gone back already, money that returns to
suspense, accepts that wait, two answers about one order at once; and the dump of a database with all of that.  Nothing is
made up, lost or sent twice: after each step the entries and the money at the provider are compared.  The numbers are
those of the findings they came from.
"""

import json
import os
import subprocess
import threading

from payflow_test import DATABASE, Lab, done_testing, is_, ok, poll
from wire import Front

UNSETTLED = "status IN ('pending', 'sent', 'unknown')"
POLICIES = ("hold", "refund", "accept")
SWALLOWED = "could not be applied|changed while it was locked|payflow worker pauses"


class Payment:
    """A payment of 1000 EUR, and both sides of its money.  The merchants are named after their late_payment."""

    def __init__(self, lab, order, merchant="hold", capture="automatic", provider="sandbox"):
        self.lab, self.order, self.merchant = lab, order, merchant
        self.id = lab.one("""SELECT session_id FROM payflow.create(%s, 1000, 'EUR', merchant => %s, capture => %s,
                             provider => %s)""", [order, merchant, capture, provider])
        lab.poll_session(self.id, "registered")
        lab.quiet(self.id)

    def act(self, what, **body):
        return self.lab.act(self.id, what, **body)

    def check(self, times=1, wait="30 seconds"):
        for _ in range(times):
            row = self.lab.row("SELECT * FROM payflow.check(%s::uuid, %s)", [self.id, wait])
        return row

    def to(self, *acts, **last):
        """Acts, each with a check, the last one with members."""
        for act in acts:
            self.act(act, **(last if act is acts[-1] else {}))
            self.check()
        return self

    def told(self, **other):
        """What the provider says of it, with other members."""
        payment, = [p for p in self.lab.payments(self.order) if p["reference"] == str(self.id)]
        return {**payment, **other}

    def row(self):
        return self.lab.row("SELECT * FROM payflow.get(%s::uuid)", [self.id])

    def state(self):
        row = self.row()
        return row.status, row.failure_code, row.paid, row.order_status

    def amounts(self):
        row = self.row()
        return row.captured_amount, row.refunded_amount, row.disputed_amount, row.suspense_amount

    def entries(self):
        return [tuple(e) for e in self.lab.sql(
            """SELECT e.entry_type, d.kind, c.kind AS credit, e.amount FROM payflow.accounting_entries e
                   JOIN payflow.accounts d ON d.account_id = e.debit_account
                   JOIN payflow.accounts c ON c.account_id = e.credit_account
               WHERE e.session_id = %s ORDER BY e.entry_id""", [self.id])]

    def agree(self, entries, name):
        """These entries; and what they say that the provider has is what it has."""
        got = self.entries()
        claim = sum(a * ((d == "provider") - (c == "provider")) for _, d, c, a in got)
        payment = self.told()
        want, there = sorted(entries), payment["captured"] - payment["refunded"] - payment["disputed"]
        ok((sorted(got), claim) == (want, there), f"{name}: booked once, and both sides agree",
           f"{claim} of {there}; {len(got)} entries, {len(want)} expected: {got[:8]}, {want[:8]}")

    def discrepancies(self, columns="kind, amount, status, resolution"):
        return [tuple(d) for d in self.lab.sql(
            f"SELECT {columns} FROM payflow.discrepancies WHERE session_id = %s ORDER BY id", [self.id])]

    def refund(self, amount=None):
        return self.lab.one("SELECT refund_id FROM payflow.refund(%s::uuid, %s)", [self.id, amount])

    def cancel(self):
        """While its Reverse is held at the provider; returns the rule."""
        rule = self.lab.rule("cancel", "hold", order=self.order)
        self.lab.sql("SELECT payflow.cancel(%s::uuid)", [self.id])
        self.lab.wait_held(rule)
        return rule

    def discrepancy(self):
        return self.lab.one("SELECT max(id) FROM payflow.discrepancies WHERE session_id = %s AND amount > 0", [self.id])

    def resolve(self, how, discrepancy=None):
        """None, or the error's SQLSTATE and word."""
        return error(self.lab, "SELECT FROM payflow.resolve_discrepancy(%s, %s, 'so it was decided')",
                     [discrepancy or self.discrepancy(), how])

    def create_is(self, word, name):
        """What create() says to a new attempt; None: it makes one (which then fails)."""
        e = error(self.lab, "SELECT * FROM payflow.create(%s, 1000, 'EUR', merchant => %s)", [self.order, self.merchant])
        is_(e, word and ("PT409", word), name)
        if e is None:
            id_ = self.lab.one("SELECT session_id FROM payflow.find(%s, %s) LIMIT 1", [self.order, self.merchant])
            self.lab.poll_session(id_, "registered")
            self.lab.act(id_, "decline")
            self.lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [id_])

    def operations(self, kind):
        return self.lab.sql("SELECT * FROM payflow.operations WHERE session_id = %s AND kind = %s ORDER BY operation_id",
                            [self.id, kind])

    def ring(self):
        self.lab.sql(f"""UPDATE payflow.operations SET next_action_at = now() WHERE session_id = %s AND {UNSETTLED}
                         AND lease_until IS NULL AND next_action_at > now()""", [self.id])
        return True

    def settle(self):
        """Wait until none of its operations is open; returns their statuses."""
        poll(lambda: self.ring() and not self.lab.one(
            f"SELECT count(*) FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}", [self.id]),
            what=f"the operations of {self.order}")
        return [o.status for o in self.lab.sql(
            "SELECT status FROM payflow.operations WHERE session_id = %s ORDER BY operation_id", [self.id])]

    def alerted(self, about):
        return f"{about}:{self.id}" in self.lab.alerts()

    def calls(self, operation):
        return self.lab.stats(order=self.order)["calls"][operation]


RECEIPT = "payment_received", "provider", "held", 1000
ACCEPTED = "unexpected_accepted", "suspense", "held", 1000


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


def reported(amount=1000, source="suspense"):
    return "refund_reported", source, "provider", amount


def back(amount=1000, source="suspense", kind="refund_reversed"):
    return kind, "provider", source, amount


def taken(amount=1000, source="suspense"):
    return "chargeback", source, "provider", amount


# ---- a cancel that loses -------------------------------------------------------------------

def lost_cancels(lab):
    """1, C6.  Protection: refund_lost_cancel() after compare_with_books()."""
    for what, amount in (("refund", 200), ("dispute", 200), ("refund", 1000), ("dispute", 1000), (None, 0)):
        pay = Payment(lab, f"1: {what} {amount}")
        rule = pay.cancel()
        pay.act("pay")
        if what:
            pay.act(what, amount=amount)
        pay.check(2)
        name = f"C6, C8, 1: a cancel loses, and {amount} have gone back by {what}"
        gone = [reported(amount, "held")] if what == "refund" else [taken(amount, "held")] if what else []
        is_((pay.row().status, pay.row().paid, lab.session(pay.id).cancel_lost), ("completed", False, True), f"{name}: completed, not paid")
        pay.agree([RECEIPT] + gone, f"{name}: both sides of it")
        is_([(o.amount, o.status) for o in pay.operations("refund")], [(1000 - amount, "pending")] * (amount < 1000),
            f"{name}: what is left is to be refunded")
        pay.ring()
        for _ in range(2):
            lab.all_looked()
        is_((pay.calls("refund"), lab.held(rule)), (0, 1), f"{name}: not while the Reverse is in flight")
        lab.release(rule)
        pay.settle()
        pay.check(2)
        pay.agree([RECEIPT] + gone + [sent(1000 - amount, "held")] * (amount < 1000), f"{name}: and it is, once")
        is_((pay.calls("refund"), pay.calls("cancel"), pay.row().paid), (int(amount < 1000), 1, False), f"{name}: by one call")


def another_amount(lab):
    """4, C53, C30.  Protection: settle_commands() keeps a Reverse that is in flight; reverse_gave_back()."""
    front = Front(lab.url)
    lab.add_server("front", front.url, poll_intervals="1 hour", breaker_failures="1000000")
    for itself in (False, True):
        pay = Payment(lab, f"4: gives back {itself}", "accept", provider="front")
        given_back = threading.Event()

        def gives_back(_front, connection, _request, pay=pay, given_back=given_back):
            given_back.wait()
            body = json.dumps(pay.told(status="canceled")).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return True

        if itself:
            front.plan("cancel", pay.order, gives_back)
            lab.sql("SELECT payflow.cancel(%s::uuid)", [pay.id])
            poll(lambda: front.sent("cancel", pay.order), what="the Reverse")
        else:
            rule = pay.cancel()
        pay.act("pay", amount=700)
        pay.check()
        name = f"C53, 4: canceling, and paid with another amount{', which the Reverse gives back' if itself else ''}"
        is_((pay.state(), [o.status for o in pay.operations("reverse")], [o.status for o in pay.operations("refund")]),
            (("canceled", None, False, "open"), ["sent"], ["pending"]), f"{name}: canceled, the Reverse is in flight, a refund waits")
        pay.ring()
        for _ in range(2):
            lab.all_looked()
        is_((pay.calls("refund"), itself or lab.held(rule)), (0, 1), f"{name}: no refund is sent before the Reverse is settled")
        pay.agree([unexpected(700)], name)
        if itself:
            pay.act("refund", amount=700)
            given_back.set()
        else:
            lab.release(rule)
        pay.settle()
        pay.check(2)
        pay.agree([unexpected(700), sent(700)], f"{name}: refunded")
        is_((pay.calls("refund"), pay.amounts()), (0 if itself else 1, (0, 0, 0, 0)), f"{name}: it goes back once")
        pay.create_is(None, f"{name}: the order is free")


# ---- late money of which part has gone ---------------------------------------------------------

def part_has_gone(lab):
    """2, C8.  Protection: free_suspense() in follow_policy()."""
    for merchant in POLICIES:
        for gone in (300, 1000):
            pay = Payment(lab, f"2: {merchant} {gone}", merchant).to("decline")
            pay.act("pay")
            pay.act("refund", amount=gone)
            pay.check(2)
            pay.settle()
            pay.check()
            name = f"C8, 2: late money, {gone} of it have gone back by then, policy {merchant}"
            rest = [sent(700)] if merchant == "refund" and gone == 300 else []
            pay.agree([unexpected(), reported(gone)] + rest, name)
            is_((pay.state(), pay.amounts()), (("failed", "declined", False, "open"), (0, 0, 0, 0 if rest or gone == 1000 else 700)),
                f"{name}: nothing is accepted of what is not there")
            if rest or gone == 1000:
                is_(pay.discrepancies("status, resolution"), [("resolved", "refund")], f"{name}: it is resolved")
            else:
                is_(pay.discrepancies("status, resolution"), [("open", None)], f"{name}: the rest is for a person")
                is_(pay.resolve("accept"), ("PT400", "invalid_argument"), f"{name}: who cannot accept it")
                is_(pay.resolve("refund"), None, f"{name}: but refund it")
                pay.settle()
                pay.agree([unexpected(), reported(gone), sent(700)], f"{name}: the rest")
            pay.create_is(None, f"{name}: the order is free")


def promised_twice(lab):
    """3, E4.  Protection: free_suspense(), in policies, decisions and require_acceptable()."""
    def begin(order, merchant):
        pay = Payment(lab, order, merchant).to("decline")
        rule = lab.rule("refund", "hold", order=order)
        pay.to("pay", amount=400)
        if merchant == "hold":
            pay.resolve("refund")
        lab.wait_held(rule)
        pay.to("refund", amount=400)
        pay.to("pay", amount=1000)
        pay.check()
        return pay, rule

    pay, rule = begin("3: policy", "refund")
    entries = [unexpected(400), reported(400), unexpected(600)]
    is_(pay.entries()[:3], entries, "E4, 3: late money while a refund is unsettled whose money has gone otherwise")
    is_([o.amount for o in pay.operations("refund")], [400, 200], "3: the policy decides about what is free of it")
    lab.release(rule)
    pay.settle()
    pay.check(2)
    pay.agree(entries + [sent(400), sent(200)], "3: policy: all of it goes back, once")

    for how, entry in (("write_off", ("correction", "suspense", "losses", 200)), ("refund", sent(200)), ("accept", None)):
        pay, rule = begin(f"3: by hand, {how}", "hold")
        name = f"3: what is promised already, {how} by hand"
        is_(pay.resolve(how), None if entry else ("PT400", "invalid_argument"), f"{name}: {'done' if entry else 'refused'}")
        lab.release(rule)
        pay.settle()
        pay.check(2)
        pay.agree(entries + [sent(400)] + ([entry] if entry else []), f"{name}: only what is free of it")
        is_((pay.amounts()[3], pay.row().paid), (0 if entry else 200, False), f"{name}: the suspense holds what it should")


def returns_to_suspense(lab):
    """12, C9.  Protection: suspense_finding() in give_back_money()."""
    ways = (("dispute", "win_dispute", taken(), back(kind="chargeback_reversed")), ("refund", "refund_fail", reported(), back()))
    for (out, again, gone, returned), merchant in [(way, merchant) for way in ways for merchant in POLICIES]:
        pay = late(lab, f"12: {out}, {merchant}", merchant)
        name = f"C9, 12: late money goes by {out} and returns, policy {merchant}"
        if merchant != "hold":
            # only what the merchant has not decided about yet can go so
            lab.sql("UPDATE payflow.merchants SET late_payment = 'hold' WHERE id = %s", [merchant])
            pay = late(lab, f"12: {out}, {merchant}, later", merchant)
        pay.to(out)
        is_((pay.discrepancies("status"), pay.amounts()[3]), ([("resolved",)], 0), f"{name}: gone")
        lab.sql("UPDATE payflow.merchants SET late_payment = %s WHERE id = %s", [merchant, merchant])
        pay.to(again)
        pay.settle()
        pay.check(2)
        entries = [unexpected(), gone, returned]
        if merchant == "hold":
            pay.agree(entries, name)
            is_((pay.discrepancies("amount, status")[1:], pay.amounts()[3]), ([(1000, "open")], 1000), f"{name}: to be decided again")
            pay.create_is("money_in_suspense", f"{name}: it waits")
            how = "refund" if out == "dispute" else "accept"
            is_(pay.resolve(how), None, f"{name}: and can be")
            pay.settle()
            entries.append(sent() if how == "refund" else ACCEPTED)
        else:
            entries.append(sent() if merchant == "refund" else ACCEPTED)
        pay.agree(entries, f"{name}: decided")
        paid = entries[-1] == ACCEPTED
        is_((pay.row().paid, pay.amounts()[3], [d for d in pay.discrepancies("status") if d == ("open",)]), (paid, 0, []), f"{name}: nothing is left")
        pay.create_is("order_already_paid" if paid else None, f"{name}: the order goes on")

    part = late(lab, "12: partly won").to("dispute", "win_dispute", amount=400)
    part.agree([unexpected(), taken(), back(400, kind="chargeback_reversed")], "C9, 12: partly won")
    is_(part.discrepancies("amount, status")[1:], [(400, "open")], "12: partly won: that part is to be decided")
    is_(part.resolve("refund"), None, "12: it goes back")
    part.settle()
    part.agree([unexpected(), taken(), back(400, kind="chargeback_reversed"), sent(400)], "12: partly won, refunded")

    # a refund of ours that succeeds for less: the rest is not forgotten
    less = late(lab, "12: for less")
    drop = lab.rule("refund", "drop_before", order=less.order)
    deaf = lab.rule("get", "status", 503, order=less.order, times=0)
    less.resolve("refund")
    poll(lambda: lab.hits(drop), what="the refund's call")
    less.act("refund", amount=600, reference=str(less.operations("refund")[0].operation_id))
    lab.release(deaf)
    is_(less.settle(), ["succeeded"], "12: a refund of late money succeeds for 600 of 1000")
    less.check()
    less.agree([unexpected(), sent(600)], "12: for less")
    is_(less.amounts()[3], 400, "12: for less: 400 are in suspense")
    if ok([d for d in less.discrepancies("amount, status") if d[0] and d[1] == "open"], "12: for less: with a discrepancy that somebody can decide",
          less.discrepancies()):
        is_(less.resolve("refund"), None, "12: for less: the rest is refunded")
        less.settle()
        less.agree([unexpected(), sent(600), sent(400)], "12: for less, then the rest")


def gone_while_accept_waits(lab):
    """13, E4.  Protection: decide_accept() opens the discrepancy again."""
    for gone in (300, 1000):
        first, second = Payment(lab, f"13: {gone}", "accept").to("decline"), Payment(lab, f"13: {gone}", "accept")
        first.to("pay")
        is_([(o.kind, o.status) for o in lab.sql("SELECT kind, status FROM payflow.operations WHERE session_id = %s", [first.id])],
            [("accept", "pending")], "13: an accept waits for the live session")
        first.to("refund", amount=gone)
        second.to("decline")
        first.settle()
        name = f"E4, 13: an accept waits, and {gone} of its money go back meanwhile"
        first.agree([unexpected(), reported(gone)], name)
        is_((first.state(), first.amounts()[3], [o.status for o in first.operations("accept")]),
            (("failed", "declined", False, "open"), 1000 - gone, ["failed"]), f"{name}: nothing is accepted")
        if gone == 300:
            is_(first.discrepancies("status, resolution"), [("open", None)], f"{name}: the rest is for a person")
            first.create_is("money_in_suspense", f"{name}: it waits")
            is_(first.resolve("refund"), None, f"{name}: who refunds it")
            first.settle()
            first.agree([unexpected(), reported(300), sent(700)], f"{name}: refunded")
        is_(first.discrepancies("status, resolution"), [("resolved", "refund")], f"{name}: resolved")
        first.create_is(None, f"{name}: the order is free")


def taken_back_after_refund(lab):
    """20, C8: the capture of late money fails when that has been refunded."""
    reverse = "payment_reversed", "losses", "provider"
    pay = late(lab, "20: refunded", "refund")
    pay.settle()
    pay.to("capture_fail")
    pay.check(2)
    pay.agree([unexpected(), sent(), (*reverse, 1000)], "C8, 20: late money was refunded, then its capture fails: a loss")
    is_((pay.amounts(), [d for d in pay.discrepancies("kind, status") if d[1] == "open"]), ((0, 0, 0, 0), [("payment_reversed", "open")]),
        "20: with a discrepancy, one")
    ok(pay.alerted("payment_reversed"), "20: and an alert")
    part = late(lab, "20: partly")
    part.to("refund", amount=400)
    part.to("capture_fail")
    part.check(2)
    part.agree([unexpected(), reported(400), ("payment_reversed", "suspense", "provider", 600), (*reverse, 400)],
               "C8, 20: 400 had gone back: suspense first, then losses")
    is_(part.amounts()[3], 0, "20: nothing is left")
    part.create_is(None, "20: the order is free")


# ---- a live session ends with money --------------------------------------------------------------

def ends_with_money(lab):
    """18, C8.  Protection: accept_receipts lets the session be the active one that ends; may_be_unexpected()."""
    for capture, merchant, end in [(c, m, e) for c in ("automatic", "manual") for m in POLICIES for e in ("decline", "expire", "cancel")]:
        if merchant == "hold" and end != "decline":
            continue
        pay = Payment(lab, f"18: {capture} {merchant} {end}", merchant, capture)
        if capture == "manual":
            pay.to("authorize")
        pay.act("pay")
        pay.act(end)
        pay.check(2)
        pay.settle()
        pay.check()
        name = f"C8, 18: {capture}, a live session ends by {end} while 1000 are captured, policy {merchant}"
        accepted = merchant == "accept"
        pay.agree([unexpected()] + {"hold": [], "refund": [sent()], "accept": [ACCEPTED]}[merchant], name)
        is_((pay.row().status, pay.row().paid, pay.row().order_status),
            ("canceled" if end == "cancel" else "failed", accepted, "paid" if accepted else "open"), f"{name}: it ends")
        is_(pay.discrepancies("kind, status, resolution"), [("unexpected_money",) + (("open", None) if merchant == "hold" else ("resolved", merchant))],
            f"{name}: one discrepancy")
        is_(tuple(lab.row("SELECT active_session_id, paid_session_id FROM payflow.orders WHERE order_id = %s", [pay.order])),
            (None, pay.id if accepted else None), f"{name}: the order follows")
        pay.create_is({"hold": "money_in_suspense", "accept": "order_already_paid"}.get(merchant), f"{name}: create()")

    part = Payment(lab, "18: manual, part", "accept", "manual").to("authorize")
    part.act("pay", amount=400)
    part.act("decline")
    part.check(2)
    part.agree([unexpected(400)], "C8, 18: manual, 400 of 1000 are captured, then declined, policy accept")
    is_((part.row().paid, part.discrepancies("amount, status")), (False, [(400, "open")]), "18: another amount: hold")


# ---- two answers about one order -------------------------------------------------------------------

def one_batch(lab):
    """21: two sessions of an order in one batch of answers: the second one waits for the first, nothing is done twice.

    Protection: in_use in lock_all().  nextval() counts what was undone, too.
    """
    lab.sql("""CREATE TABLE public.order_versions (order_id text); CREATE SEQUENCE public.order_tries;
               CREATE FUNCTION public.note_order() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   PERFORM nextval('public.order_tries'); INSERT INTO public.order_versions VALUES (NEW.order_id); RETURN NULL; END $$""")
    worker, = lab.workers()
    for n, (merchant, end) in enumerate([(m, e) for m in POLICIES for e in ("decline", "pay")]):
        first, second = Payment(lab, f"21: {merchant} {end}", merchant).to("decline"), Payment(lab, f"21: {merchant} {end}", merchant)
        rule = lab.rule("get", "hold", order=first.order, times=2)
        for pay, act in ((first, "pay"), (second, end)):
            pay.act(act)
            pay.check(wait="0")
        lab.wait_held(rule, 2)
        lab.sql("CREATE TRIGGER note_order AFTER UPDATE ON payflow.orders FOR EACH ROW EXECUTE FUNCTION public.note_order()")
        lab.stop_worker(worker)
        lab.release(rule)
        poll(lambda: all(c["status"] == 200 for p in (first, second) for c in lab.requests(p.id, "get")), what="both answers")
        lab.go_on(worker)
        poll(lambda: second.row().status in ("failed", "completed") and first.entries(), what="both to be applied")
        first.settle()
        name = f"21: late money and {end} of the live session in one batch, policy {merchant}"
        tries, versions = lab.row("""SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.order_tries),
                                     (SELECT count(*) FROM public.order_versions)""")
        ok(versions > 0 and tries == versions, f"{name}: nothing was undone and tried again", f"{tries} tries, {versions} times")
        lab.sql("DROP TRIGGER note_order ON payflow.orders")
        for pay in (first, second):
            pay.check()
        first.settle()
        accepted = merchant == "accept" and end == "decline"
        first.agree([unexpected()] + ([] if merchant == "hold" else [ACCEPTED] if accepted else [sent()]), f"{name}: the late one")
        second.agree([RECEIPT] if end == "pay" else [], f"{name}: the live one")
        is_((first.row().paid, second.row().paid, first.row().order_status), (accepted, end == "pay", "paid" if accepted or end == "pay" else "open"),
            f"{name}: one receipt at most")
    lab.sql("DROP FUNCTION public.note_order(); DROP TABLE public.order_versions; DROP SEQUENCE public.order_tries")


# ---- dump and restore --------------------------------------------------------------------------------

TABLES = """SELECT c.oid::regclass::text AS name, c.relkind FROM pg_extension e, unnest(e.extconfig) AS t(id)
            JOIN pg_class c ON c.oid = t.id WHERE e.extname = 'payflow' ORDER BY 1"""


def content(lab, conn):
    """The rows of all that is to be kept, as text."""
    found = {}
    for table in lab.sql(TABLES, conn=conn):
        columns = "(last_value, is_called)" if table.relkind == "S" else "t"
        found[table.name] = [r[0] for r in lab.sql(f"SELECT {columns}::text FROM {table.name} t ORDER BY 1", conn=conn)]
    return found


def dump_and_restore(lab):
    """G, H2: the copy has the same rows, and nobody works in it."""
    worker, = lab.workers()
    lab.add_server("forgetful", timeout="1 s", key_validity="1 s", poll_intervals="1 hour", breaker_failures="1000000")

    pay = Payment(lab, "dump: refunds").to("pay")
    pay.refund(100)
    pay.settle()
    lab.settings(refunds="fail")
    pay.refund(110)
    pay.settle()
    lab.settings(refunds="succeed")
    pay.to("refund", amount=50)
    for act, amount in (("dispute", 50), ("win_dispute", 20)):
        pay.to(act, amount=amount)
    hold = lab.rule("refund", "hold", order=pay.order)
    pay.refund(120)
    lab.wait_held(hold)

    lost = Payment(lab, "dump: unknown", provider="forgetful").to("pay")
    lab.rule("refund", "drop_before", order=lost.order)
    deaf = lab.rule("get", "status", 503, order=lost.order, times=0)
    unknown = lost.refund(300)
    poll(lambda: lost.operations("refund")[0].unresolved_since, what="its answer to be lost")
    lab.sql("UPDATE payflow.operations SET unresolved_since = now() - interval '61 minutes' WHERE operation_id = %s", [unknown])
    poll(lambda: lost.ring() and lost.operations("refund")[0].status == "unknown", what="it to be unknown")

    waiting = late(lab, "dump: suspense")
    resolved = late(lab, "dump: written off")
    resolved.resolve("write_off")
    accept = Payment(lab, "dump: accept", "accept").to("decline")
    live = Payment(lab, "dump: accept", "accept")
    accept.to("pay")
    canceled = Payment(lab, "dump: code")
    code = lab.one("SELECT payflow.issue_cancel_code(%s::uuid, '1 day')", [canceled.id])
    manual = Payment(lab, "dump: capture", capture="manual").to("authorize")
    keyed = error(lab, "SELECT payflow.capture(%s::uuid, 400, idempotency_key => 'dumped')", [manual.id])
    is_(keyed, None, "dump: a capture with a key")
    manual.settle()
    suspense = late(lab, "dump: suspense refund")
    hold_too = lab.rule("refund", "hold", order=suspense.order)
    suspense.resolve("refund")
    lab.wait_held(hold_too)

    # what is asked for from now on is not sent
    lab.sql("""UPDATE payflow.operations SET next_action_at = now() + interval '1 day' WHERE next_action_at IS NOT NULL AND lease_until IS NULL;
               UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 day'
               WHERE next_action_at IS NOT NULL AND lease_until IS NULL""")
    lab.stop_worker(worker)
    keyed = error(lab, "SELECT payflow.refund(%s::uuid, 130, idempotency_key => 'dumped')", [pay.id])
    is_(keyed, None, "dump: a refund with a key, that nobody has sent")
    is_([tuple(r) for r in lab.sql("""SELECT status, amount FROM payflow.operations WHERE kind = 'refund' AND order_id LIKE 'dump: %%'
                                      ORDER BY amount""")],
        [("succeeded", 100), ("failed", 110), ("sent", 120), ("pending", 130), ("unknown", 300), ("sent", 1000)], "dump: refunds in every status")

    env = {**os.environ, **lab.env}
    server = ["-h", lab.env["PGHOST"], "-p", lab.env["PGPORT"], "-U", lab.env["PGUSER"]]
    lab.sql("DROP EXTENSION IF EXISTS pg_cron")  # it is in one database only
    lab.psql("CREATE DATABASE copy TEMPLATE template0")
    dump = subprocess.run(["pg_dump", *server, DATABASE],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, check=False)
    is_((dump.returncode, dump.stderr.decode()), (0, ""), "pg_dump says nothing")
    restore = subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *server, "copy"],
                             input=dump.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, check=False)
    is_((restore.returncode, restore.stderr.decode()), (0, ""), "psql restores it without a word")

    original, copy = lab.connect(), lab.connect(dbname="copy")
    want, got = content(lab, original), content(lab, copy)
    is_(sorted(got), sorted(want), "dump: the same tables")
    for table in sorted(want):
        ok(got[table] == want[table], f"dump: {table}: the same {len(want[table])} rows",
           [pair for pair in zip(got[table], want[table]) if pair[0] != pair[1]][:3] or (len(got[table]), len(want[table])))
    for table in ("operations", "provider_operations", "discrepancies", "cancel_codes", "idempotency_keys", "alerts", "accounting_entries"):
        ok(want.get(f"payflow.{table}"), f"dump: {table} is among them, and not empty")
    catalog = """SELECT s.srvname, m.usename, array(SELECT o FROM unnest(s.srvoptions || m.umoptions) o ORDER BY 1) AS options
                 FROM pg_foreign_server s LEFT JOIN pg_user_mappings m ON m.srvid = s.oid ORDER BY 1"""
    is_([tuple(r) for r in lab.sql(catalog, conn=copy)], [tuple(r) for r in lab.sql(catalog, conn=original)], "dump: servers and their options")
    is_(lab.sql("SELECT * FROM payflow.check_invariants()", conn=copy), [], "dump: check_invariants() of the copy finds nothing")
    is_(lab.sql("SELECT * FROM payflow.verify_ledger()", conn=copy), [], "dump: nor does verify_ledger()")
    reserved = "SELECT session_id, reserved_amount FROM payflow.payment_sessions WHERE reserved_amount > 0 ORDER BY 1"
    is_([tuple(r) for r in lab.sql(reserved, conn=copy)], sorted([(pay.id, 250), (lost.id, 300)]),
        "dump: amounts are reserved for what is under way, once")

    # The limits bind in the copy too; what was given there is known.
    left = lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.id], conn=copy).refundable_amount
    is_(left, 1000 - 100 - 50 - 30 - 250, "dump: what can be refunded in the copy")
    is_(error(lab, "SELECT payflow.refund(%s::uuid, %s)", [pay.id, left + 1], conn=copy), ("PT409", "refund_exceeds_captured"),
        "dump: no more than that")
    is_(lab.one("SELECT status FROM payflow.refund(%s::uuid, %s)", [pay.id, left], conn=copy), "pending", "dump: so much it takes")
    replay = "SELECT replayed FROM payflow.refund(%s::uuid, %s, idempotency_key => 'dumped')"
    is_((lab.one(replay, [pay.id, 130], conn=copy), error(lab, replay, [pay.id, 131], conn=copy)), (True, ("PT422", "idempotency_key_reused")),
        "dump: the key of a refund is known in the copy")
    is_(lab.one("SELECT http_status FROM payflow.cancel(%s::uuid, %s)", [canceled.id, code + "0"], conn=copy), 403, "dump: a wrong code")
    is_(lab.one("SELECT status::text FROM payflow.cancel(%s::uuid, %s)", [canceled.id, code], conn=copy), "canceling",
        "dump: the code is known in the copy")
    is_(error(lab, "SELECT payflow.create('dump: suspense', 1000, 'EUR', merchant => 'hold')", [], conn=copy), ("PT409", "money_in_suspense"),
        "dump: money waits there too")
    is_(lab.sql("SELECT * FROM payflow.check_invariants()", conn=copy), [], "dump: and all of that breaks nothing")

    # Nobody works in a database that is not listed, whatever is due.
    lab.sql(f"UPDATE payflow.operations SET lease_until = NULL, lease_token = NULL, next_action_at = now() WHERE {UNSETTLED}", conn=copy)
    lab.sql("""UPDATE payflow.payment_sessions SET lease_until = NULL, lease_token = NULL, next_action_at = now()
               WHERE status NOT IN ('completed', 'failed', 'canceled')""", conn=copy)
    due = lab.one("SELECT count(*) FROM payflow.operations WHERE next_action_at <= now()", conn=copy)
    ok(due > 5, f"dump: in the copy {due} operations are due")
    lab.sql("""UPDATE payflow.operations SET next_action_at = now() + interval '1 day'
               WHERE next_action_at IS NOT NULL AND lease_until IS NULL""", conn=original)
    before = sum(lab.stats()["calls"].values())
    lab.go_on(worker)
    for _ in range(5):
        lab.all_looked()
    is_((sum(lab.stats()["calls"].values()), lab.sql("SELECT DISTINCT datname FROM payflow.workers")), (before, [(DATABASE,)]),
        "dump: no worker calls anybody for the copy")
    is_(lab.one("SELECT count(*) FROM payflow.operations WHERE next_action_at <= now() AND lease_until IS NULL", conn=copy), due,
        "dump: all is due there still")
    copy.close()
    lab.sql("DROP DATABASE copy")

    # and the original goes on
    lab.clear_rules()
    lab.sql("SELECT payflow.settle_refund(%s::uuid, 'failed', 'the bank says so')", [unknown])
    canceled.to("decline")
    live.to("decline")
    for each in (pay, lost, waiting, resolved, accept, live, canceled, manual, suspense):
        each.settle()
        each.check()
    is_(sorted(r.status for r in pay.operations("refund")), ["failed", "succeeded", "succeeded", "succeeded"], "dump: the original goes on")


with Lab(workers=1, conf={"fsync": "off", "payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000000)
    for policy in POLICIES:
        lab.sql("INSERT INTO payflow.merchants (id, default_provider, late_payment) VALUES (%s, 'sandbox', %s)", [policy, policy])
    for test in (lost_cancels, another_amount, part_has_gone, promised_twice, returns_to_suspense, gone_while_accept_waits,
                 taken_back_after_refund, ends_with_money, one_batch, dump_and_restore):
        test(lab)
    is_(lab.one(f"SELECT count(*) FROM payflow.operations WHERE {UNSETTLED}"), 0, "nothing is left unsettled")
    ok(not lab.log_contains(SWALLOWED), "each answer could be applied", lab.log()[-2000:] if lab.log_contains(SWALLOWED) else None)
    ok(not [key for key in lab.alerts() if key.startswith("answer_dropped")], "and none was dropped")
    stats = lab.stats()
    is_(lab.one("SELECT sum(balance)::bigint FROM payflow.accounts WHERE kind = 'provider'"),
        stats["captured"] - stats["refunded"] - stats["disputed"], "what all providers have: the ledger says what they say")
    is_(lab.sql("SELECT * FROM payflow.check_invariants()"), [], "check_invariants() finds nothing")
done_testing()
