"""Answers that no provider ought to give: C8, E3, A3, F1, B4.

Ids and payments of others, sums that are out of this world, a thousand disputes, captured money that is called
authorized, questions that are never answered.  Each is applied or refused once, stops nobody else, and what the provider
has moved is booked.  One worker: what stops it stops all.  The numbers are those of the findings they came from.
"""

from payflow_test import Lab, done_testing, is_, ok, poll

UNSETTLED = "status IN ('pending', 'sent', 'unknown')"
POLICIES = ("hold", "refund", "accept")
SWALLOWED = "could not be applied|changed while it was locked|payflow worker pauses"


class Payment:
    """A payment of 1000 EUR, and both sides of its money.  The merchants are named after their late_payment."""

    def __init__(self, lab, order, merchant="hold", capture="automatic", provider="sandbox", status="registered"):
        self.lab, self.order = lab, order
        self.id = lab.one("""SELECT session_id FROM payflow.create(%s, 1000, 'EUR', merchant => %s, capture => %s,
                             provider => %s)""", [order, merchant, capture, provider])
        lab.poll_session(self.id, status)
        if status == "registered":
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

    def answered(self, rule, times=1, name=None):
        """Ask it, without waiting for an answer that counts, and let the answer be taken in."""
        for _ in range(times):
            before, heard = self.lab.hits(rule), len(self.lab.journal(self.id))
            self.check(wait="0")
            poll(lambda: self.lab.hits(rule) > before and len(self.lab.journal(self.id)) > heard,
                 what=f"{name or self.order}: the answer")

    def told(self, **other):
        """What the provider says of it, with other members."""
        payment, = self.lab.payments(self.order)
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
        payment, = [p for p in self.lab.payments(self.order) if p["reference"] == str(self.id)]
        want, there = sorted(entries), payment["captured"] - payment["refunded"] - payment["disputed"]
        ok((sorted(got), claim) == (want, there), f"{name}: booked once, and both sides agree",
           f"{claim} of {there}; {len(got)} entries, {len(want)} expected: {got[:8]}, {want[:8]}")

    def discrepancies(self, columns="kind, amount, status, resolution"):
        return [tuple(d) for d in self.lab.sql(
            f"SELECT {columns} FROM payflow.discrepancies WHERE session_id = %s ORDER BY id", [self.id])]

    def refund(self, amount=None):
        return self.lab.one("SELECT refund_id FROM payflow.refund(%s::uuid, %s)", [self.id, amount])

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


def unexpected(amount=1000):
    return "unexpected_received", "provider", "suspense", amount


def sent(amount=1000, source="suspense"):
    return "refund_sent", source, "provider", amount


def reported(amount, source="held"):
    return "refund_reported", source, "provider", amount


def asked_with_pauses(lab, pay, rule, name):
    """Its operation is asked about once for each alarm: no answer makes it spin."""
    for _ in range(3):
        before = lab.hits(rule)
        poll(lambda: pay.ring() and lab.hits(rule) > before, what=f"{name}: a question")
    before = lab.hits(rule)
    for _ in range(2):
        lab.all_looked()
    hits = lab.hits(rule) - before
    ok(hits <= 3, f"{name}: it is asked about with growing pauses", f"{hits} questions while the worker looked round twice")


# ---- ids of others -------------------------------------------------------------------------

def taken_movements(lab):
    """5.  Protection: is_taken() in returns.c."""
    other = Payment(lab, "5: the other's").to("pay", "refund", amount=300)
    other.to("dispute", amount=200)
    refund_id, dispute_id = other.told()["refunds"][0]["id"], other.told()["disputes"][0]["id"]
    theirs = [RECEIPT, reported(300), ("chargeback", "held", "provider", 200)]
    other.agree(theirs, "5: the other one")

    pay = Payment(lab, "5: its ids")
    pay.act("pay")
    pay.act("refund", amount=300)
    pay.act("dispute", amount=100)
    told = pay.told()
    told["refunds"][0]["id"], told["disputes"][0]["id"] = refund_id, dispute_id
    rule = lab.rule("get", "answer", told, order=pay.order, times=2)
    pay.answered(rule, 2)
    poll(lambda: pay.row().status == "completed", what="it to complete")
    is_(pay.state(), ("completed", None, True, "partially_refunded"),
        "C8, 5: paid, and a refund and a dispute bear another payment's ids: it completes")
    entries = [RECEIPT, reported(300), ("chargeback", "held", "provider", 100)]
    pay.agree(entries, "C8, 5: told twice; what they are worth the totals tell")
    ok(pay.alerted("duplicate_movement_id"), "5: with an alert")
    other.check()
    other.agree(theirs, "5: the other one still")
    pay.check(2)
    pay.agree(entries, "C8, 5: told by their own names: nothing is booked again")
    is_(pay.discrepancies(), [], "5: no discrepancy")

    # the answer to a refund of ours names it so, and so does each answer to a question
    pay = Payment(lab, "5: our refund, its id").to("pay")
    lab.rule("refund", "drop_after", order=pay.order)
    deaf = lab.rule("get", "drop_before", order=pay.order, times=0)
    ours = pay.refund(400)
    poll(lambda: pay.ring() and lab.hits(deaf), what="the question about the refund")
    told = pay.told()
    is_([r["reference"] for r in told["refunds"]], [str(ours)], "5: the provider has made our refund")
    told["refunds"][0]["id"] = refund_id
    odd = lab.rule("get", "answer", told, order=pay.order, times=0)
    lab.release(deaf)
    poll(lambda: pay.ring() and lab.hits(odd), what="the answer")
    lab.all_looked()
    if pay.operations("refund")[0].status != "succeeded":
        asked_with_pauses(lab, pay, odd, "5: our refund under another's id")
    lab.release(odd)
    pay.settle()
    pay.check()
    pay.agree([RECEIPT, sent(400, "held")], "C8, 5: our refund, first told under another's id")
    is_(pay.calls("refund"), 1, "5: it was sent once")


def foreign_answers(lab):
    """8.  Protection: decide_foreign_answer() and the order of cases in decide()."""
    other, pay = Payment(lab, "8: another").to("pay"), Payment(lab, "8: asked about").to("pay")
    drop = lab.rule("refund", "drop_before", order=pay.order)
    rule = lab.rule("get", "answer", other.told(), order=pay.order, times=0)
    pay.refund(300)
    poll(lambda: pay.ring() and lab.hits(drop) and lab.hits(rule), what="the question about the refund")
    asked_with_pauses(lab, pay, rule, "E3, 8: an operation whose question is answered with another's payment")
    is_(([o.status for o in pay.operations("refund")], pay.calls("refund")), (["sent"], 1), "8: such an answer proves nothing")
    ok("foreign_reference:sandbox" in lab.alerts(), "8: an alert")
    lab.release(rule)
    is_(pay.settle(), ["succeeded"], "8: the right answer goes on with it")
    is_((pay.calls("refund"), len({c["key"] for c in lab.requests(pay.id, "refund")})), (2, 1), "8: sent again with its key")
    pay.agree([RECEIPT, sent(300, "held")], "8: the one asked about")
    other.agree([RECEIPT], "8: the other one")

    # without the reference, too, by which the answer betrays itself
    for reference in (True, False):
        pay = Payment(lab, f"8: live, {reference}")
        told = other.told()
        if not reference:
            del told["reference"]
        rule = lab.rule("get", "answer", told, order=pay.order)
        pay.check(wait="0")
        poll(lambda: lab.hits(rule) and lab.session(pay.id).lease_until is None, what="the answer")
        is_(pay.row().status, "registered", "E3, 8: an answer about another payment ends no live session")
        lab.quiet(pay.id)
        pay.to("pay")
        is_(pay.state(), ("completed", None, True, "paid"), "8: and it is paid")
        pay.agree([RECEIPT], "8: live")
    other.agree([RECEIPT], "8: the other one, still")


# ---- the worker goes on --------------------------------------------------------------------

def others_go_on(lab, name, n=3):
    """Others' payments are registered and completed, while it is so."""
    others = [Payment(lab, f"{name}, others {i}") for i in range(n)]
    for pay in others:
        pay.act("pay")
    is_([pay.check(wait="10 seconds").status for pay in others], ["completed"] * n, f"{name}: the payments of others go on")


def held_alert(lab):
    """9, A3.  Protection: SKIP LOCKED in count_alert."""
    first = Payment(lab, "9: the first")
    pays = [Payment(lab, f"9: unauthorized {i}") for i in range(4)]
    rule = lab.rule("get", "status", 401, order=first.order)
    first.answered(rule)
    key = "unauthorized:sandbox"
    alert = lab.one("SELECT id FROM payflow.alerts WHERE key = %s AND closed_at IS NULL", [key])
    person = lab.connect(autocommit=False)
    lab.sql("SELECT payflow.acknowledge_alert(%s, 'seen')", [alert], conn=person)
    for pay in pays:
        pay.answered(lab.rule("get", "status", 401, order=pay.order))
    ok(True, "A3, 9: a person holds the alert that four answers raise: they are applied")
    others_go_on(lab, "A3, 9: while a person holds an alert")
    person.rollback()
    count = lab.one("SELECT count FROM payflow.alerts WHERE id = %s", [alert])
    first.answered(lab.rule("get", "status", 401, order=first.order))
    is_(lab.one("SELECT count FROM payflow.alerts WHERE id = %s", [alert]), count + 1, "9: given back, it counts on")
    lab.sql("SELECT payflow.acknowledge_alert(%s, 'seen')", [alert])
    first.answered(lab.rule("get", "status", 401, order=first.order))
    is_(lab.one("SELECT count(*) FROM payflow.alerts WHERE key = %s AND closed_at IS NULL AND id <> %s", [key, alert]), 1,
        "9: closed, it is raised anew")
    for pay in [first] + pays:
        pay.to("pay")
        pay.agree([RECEIPT], "9: and all are paid")

    # The alert of one payment: its money is booked all the same.
    late = Payment(lab, "9: late").to("decline", "pay")
    alert = lab.one("SELECT id FROM payflow.alerts WHERE key = %s", [f"unexpected_money:{late.id}"])
    lab.sql("SELECT payflow.acknowledge_alert(%s, 'seen')", [alert], conn=person)
    late.act("pay", amount=1500)
    late.check(wait="10 seconds")
    late.agree([unexpected(), unexpected(500)], "C8, 9: more late money while a person holds the alert about it")
    person.commit()
    person.close()


def many_disputes(lab):
    """17.  Protection: fact_ref of entries in post.c; ENTRIES_MAX."""
    def odd(order, n):
        pay = Payment(lab, order)
        pay.act("pay")
        told = pay.told(disputes=[{"id": f"dp_{n}_{i}", "amount": 10, "status": "won", "won": 10} for i in range(n)])
        return pay, lab.rule("get", "answer", told, order=order)

    pay, rule = odd("17: 1000", 1000)
    others = [Payment(lab, f"17: others {i}") for i in range(3)]
    for other in others:
        other.act("pay")
    pay.check(wait="0")
    poll(lambda: lab.hits(rule), what="the answer")
    is_([other.check(wait="10 seconds").status for other in others], ["completed"] * 3,
        "17: one answer with 1000 won disputes: the payments of others go on")
    poll(lambda: pay.row().status == "completed", what="it to complete")
    pay.agree([RECEIPT] + [("chargeback", "held", "provider", 10), ("chargeback_reversed", "provider", "held", 10)] * 1000,
              "C8, 17: each is booked once")
    is_((pay.state(), pay.amounts()), (("completed", None, True, "paid"), (1000, 0, 0, 0)), "17: all won: paid")

    pay, rule = odd("17: 1001", 1001)
    pay.check(wait="0")
    poll(lambda: lab.hits(rule) and lab.session(pay.id).lease_until is None, what="the answer")
    is_((pay.row().status, pay.entries()), ("registered", []), "17: more than a thousand: no usable answer")
    pay.check()
    pay.agree([RECEIPT], "17: the next one is")


def huge_sums(lab):
    """15.  Protection: the running sums in sandbox_answer.c."""
    for what in ("refunds", "disputes"):
        pay = Payment(lab, f"15: {what}")
        pay.act("pay")
        told = pay.told(**{what: [{"id": f"big_{what}_{i}", "amount": 10 ** 18, "status": "succeeded" if what == "refunds" else "open"}
                                  for i in range(10)]})
        rule = lab.rule("get", "answer", told, order=pay.order)
        pay.check(wait="0")
        poll(lambda: lab.hits(rule) and lab.session(pay.id).lease_until is None, what="the answer")
        is_((pay.row().status, pay.entries()), ("registered", []), f"15: {what} that no number can hold: no usable answer")
        lab.quiet(pay.id)
        pay.check()
        is_(pay.state(), ("completed", None, True, "paid"), f"15: {what}: the next answer is taken")
        pay.agree([RECEIPT], f"15: {what}")


# ---- statuses ------------------------------------------------------------------------------

def registered_as_ended(lab):
    """16.  Protection: guard_session_update() lets it pass where the provider has said so."""
    for n, (word, status, code) in enumerate((("canceled", "canceled", "canceled_by_provider"), ("declined", "failed", "declined"),
                                             ("expired", "failed", "expired"))):
        order = f"16: {word}"
        lab.rule("register", "answer", {"id": f"pay_ended_{n}", "status": word, "amount": 1000, "currency": "EUR", "authorized": 0,
                                        "captured": 0, "refunded": 0, "disputed": 0}, order=order)
        pay = Payment(lab, order, status=status)
        is_((pay.state(), pay.calls("register"), pay.entries()), ((status, code, False, "open"), 1, []),
            f"16: Register is answered with {word}: {status}, after one call")
        again = Payment(lab, order).to("pay")
        is_(again.state(), ("completed", None, True, "paid"), f"16: {word}: and the order can be paid")
        again.agree([RECEIPT], f"16: {word}: the second attempt")


def authorized_with_money(lab):
    """19, C8: money is money, whatever the status says."""
    for merchant, after in (("hold", []), ("refund", [sent()]), ("accept", [ACCEPTED])):
        for last in ("authorize", "process"):
            pay = Payment(lab, f"19: late, {merchant}, {last}", merchant).to("decline")
            pay.act("pay")
            pay.act(last)
            pay.check(3)
            pay.settle()
            name = f"C8, 19: late money that is called {pay.told()['status']}, policy {merchant}"
            pay.agree([unexpected()] + after, f"{name}, three checks")
            is_(pay.discrepancies("kind, status, resolution"),
                [("unexpected_money",) + (("open", None) if merchant == "hold" else ("resolved", merchant))], f"{name}: one discrepancy")
            is_((pay.operations("void"), pay.calls("cancel")), ([], 0), f"{name}: no void of what is money")
            is_(pay.state()[2:], (merchant == "accept", "paid" if merchant == "accept" else "open"), f"{name}: paid or not")

    pay = Payment(lab, "19: completed").to("pay")
    pay.act("pay", amount=1200)
    pay.act("authorize")
    pay.check(3)
    pay.agree([RECEIPT, unexpected(200)], "C8, 19: completed, then called authorized with 200 more")
    is_((pay.state(), pay.operations("void"), pay.discrepancies("kind, amount")),
        (("completed", None, True, "paid"), [], [("unexpected_money", 200)]), "19: completed: it stays paid, the excess waits")

    for end in ("pay", "decline", "cancel"):
        pay = Payment(lab, f"19: live, {end}", "refund")
        pay.act("pay")
        pay.act("authorize")
        pay.check(2)
        name = f"C8, 19: a live session, authorized with 1000 captured, then {end}"
        is_((pay.row().paid, pay.discrepancies("kind, status"), pay.alerted("captured_amount")),
            (False, [("captured_amount", "open")], True), f"{name}: a discrepancy and an alert, one")
        if end == "cancel":
            lab.sql("SELECT payflow.cancel(%s::uuid)", [pay.id])
            is_(pay.settle(), ["failed"], f"{name}: the provider does not cancel what it has captured")
            ok(pay.row().status == "canceling" and any(key.startswith("operation_refused:") for key in lab.alerts()),
               f"{name}: it waits for the provider's final state, with an alert")
            pay.to("expire")
        else:
            pay.to(end)
        pay.settle()
        pay.check(2)
        if end == "pay":
            is_(pay.state(), ("completed", None, True, "paid"), f"{name}: completed")
            pay.agree([RECEIPT], name)
        else:
            is_((pay.state()[0], pay.row().paid), ("failed" if end == "decline" else "canceled", False), f"{name}: ended")
            pay.agree([unexpected(), sent()], f"{name}: the money goes back")

    part = Payment(lab, "19: captured in parts", "hold", "manual").to("authorize")
    part.act("pay", amount=400)
    part.act("authorize")
    part.check(2)
    is_((part.row().status, part.row().paid), ("authorized", False), "19: 400 of 1000 captured, and called authorized: it stays")
    part.act("pay", amount=1000)
    part.check(2)
    is_((part.state(), part.amounts()), (("completed", None, True, "paid"), (1000, 0, 0, 0)), "19: then all of it: completed")
    part.agree([RECEIPT], "19: captured in parts")


# ---- questions and their order -------------------------------------------------------------

def older_than_a_reversal(lab):
    """14, E3.  Protection: is_outdated() in compare_captured()."""
    for merchant in POLICIES:
        pay = Payment(lab, f"14: {merchant}", merchant).to("pay")
        stall = lab.rule("get", "stall_body", order=pay.order)
        pay.check(wait="0")
        lab.wait_held(stall)
        pay.act("capture_fail")
        lab.rule("refund", "drop_before", order=pay.order)
        pay.refund(100)
        entries = [RECEIPT, ("payment_reversed", "held", "provider", 1000)]
        poll(lambda: pay.ring() and pay.entries() == entries, what="the question to tell that it was reversed")
        heard = len(lab.journal(pay.id))
        lab.release(stall)
        poll(lambda: len(lab.journal(pay.id)) > heard, what="the older answer")
        lab.all_looked()
        name = f"E3, 14: an older answer that says captured, after the capture was reversed, policy {merchant}"
        pay.agree(entries, f"{name}: nothing is made up")
        is_(pay.settle(), ["failed"], f"{name}: no refund goes through")
        pay.check(2)
        pay.agree(entries, f"{name}, two checks")
        is_((pay.state(), pay.amounts()[3]), (("completed", None, False, "refunded"), 0), f"{name}: not paid")


def one_version(lab):
    """10, F1: a completion writes the session's row once.  Protection: the types of entry that post() leaves out."""
    lab.sql("""CREATE TABLE public.versions (session_id uuid, xid xid8);
               CREATE FUNCTION public.note_version() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   INSERT INTO public.versions VALUES (NEW.session_id, pg_current_xact_id()); RETURN NULL; END $$;
               CREATE TRIGGER note_version AFTER UPDATE ON payflow.payment_sessions FOR EACH ROW EXECUTE FUNCTION public.note_version()""")
    completed, late = Payment(lab, "10: completed").to("pay"), Payment(lab, "10: late", "accept").to("decline", "pay")
    for pay in (completed, late):
        is_(lab.one("""SELECT max(n) FROM (SELECT count(*) AS n FROM public.versions WHERE session_id = %s GROUP BY xid) v""", [pay.id]), 1,
            f"10: {pay.order}: each transaction writes the session's row once")
    lab.sql("DROP TRIGGER note_version ON payflow.payment_sessions")
    completed.agree([RECEIPT], "10: completed")
    late.agree([unexpected(), ACCEPTED], "10: accepted")


def looks_end(lab):
    """11: a session that ended unproven is not asked about for ever, whatever the provider answers.

    Protection: look_is_over() in unanswered().
    """
    lab.add_server("looked at", breaker_failures="1000000", poll_intervals="1 hour")
    answers = [("status", 500, {}), ("status", 401, {}), ("status", 429, {}), ("garbage", None, {}), ("drop_before", None, {}),
               ("notfound", None, {}), ("set up otherwise", None, {})]
    for what, value, more in answers:
        name = f"11: {value or what}"
        pay = Payment(lab, name, provider="looked at")
        lab.sql("""BEGIN; SET LOCAL session_replication_role = replica; UPDATE payflow.payment_sessions
                   SET first_sent_at = first_sent_at - interval '30 days', provider_expires_at = NULL WHERE session_id = %s; COMMIT""", [pay.id])
        lab.rule("get", "answer", pay.told(expires_at=None), order=pay.order)
        pay.check()
        is_((pay.state(), [o.status for o in pay.operations("after_look")]), (("failed", "expired", False, "open"), ["pending"]),
            f"{name}: ended unproven, it is still asked about")
        if what == "set up otherwise":
            lab.sql("""ALTER SERVER "looked at" OPTIONS (SET endpoint 'http://127.0.0.1:9')""")
        else:
            rule = lab.rule("get", what, value, order=pay.order, times=0, **more)

        def tried(before):
            look, = pay.operations("after_look")
            return look.lease_until is None and look.attempts > before and look.next_action_at > lab.one("SELECT now()")

        for _ in range(2):
            before = pay.operations("after_look")[0].attempts
            pay.ring()
            poll(lambda: tried(before), what=f"{name}: an answer")
        is_(pay.operations("after_look")[0].status, "pending", f"{name}: while its time is not over it goes on")
        lab.sql("""BEGIN; SET LOCAL session_replication_role = replica; UPDATE payflow.operations
                   SET created_at = created_at - interval '30 days' WHERE session_id = %s; COMMIT""", [pay.id])
        is_(pay.settle(), ["succeeded"], f"{name}: lifetime and grace are over twice: it ends")
        if what != "set up otherwise":
            lab.release(rule)
    pay.agree([], "11: nothing was paid")


with Lab(workers=1, conf={"fsync": "off", "payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000000)
    for policy in POLICIES:
        lab.sql("INSERT INTO payflow.merchants (id, default_provider, late_payment) VALUES (%s, 'sandbox', %s)", [policy, policy])
    for test in (taken_movements, foreign_answers, held_alert, many_disputes, huge_sums, registered_as_ended, authorized_with_money,
                 older_than_a_reversal, one_version, looks_end):
        test(lab)
    is_(lab.one(f"SELECT count(*) FROM payflow.operations WHERE {UNSETTLED}"), 0, "nothing is left unsettled")
    ok(not lab.log_contains(SWALLOWED), "each answer could be applied", lab.log()[-2000:] if lab.log_contains(SWALLOWED) else None)
    ok(not [key for key in lab.alerts() if key.startswith("answer_dropped")], "and none was dropped")
    stats = lab.stats()
    is_(lab.one("SELECT sum(balance)::bigint FROM payflow.accounts WHERE kind = 'provider'"),
        stats["captured"] - stats["refunded"] - stats["disputed"], "what all providers have: the ledger says what they say")
    is_(lab.sql("SELECT * FROM payflow.check_invariants()"), [], "check_invariants() finds nothing")
done_testing()
