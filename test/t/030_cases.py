"""Faults seen in the field: C10, C12, and what surrounds a lost Register."""

from payflow_test import Lab, done_testing, is_, like, ok, poll


def create(lab, order, amount=1000):
    return lab.row("SELECT * FROM payflow.create(%s, %s, 'EUR')", [order, amount])


def wait(lab, pay, until="settled"):
    return lab.row("SELECT * FROM payflow.wait(%s::uuid, '30 seconds', %s)", [pay.session_id, until])


def ring(lab, pay):
    """Let its alarm ring now."""
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() WHERE session_id = %s", [pay.session_id])


def same_provider_id_for_two(lab):
    """C10: the provider gives the second order the first one's payment."""
    first = create(lab, "C10-1", 1000)
    one = wait(lab, first)
    body = lab.payments("C10-1")[0]
    lab.rule("register", "answer", body, order="C10-2")
    second = create(lab, "C10-2", 1200)
    two = wait(lab, second, "final")
    is_((two.status, two.failure_code, two.paid), ("failed", "provider_error", False),
        "C10: the second session fails, provider_error")
    is_(two.provider_payment_id, None, "it does not take the id")
    is_(lab.stats(order="C10-1")["calls"]["cancel"] + lab.stats(order="C10-2")["calls"]["cancel"], 0,
        "C10: nothing is reversed: the money is the first order's")
    like(lab.one("SELECT string_agg(key, ',') FROM payflow.alerts WHERE closed_at IS NULL"), "duplicate_payment_id",
         "C10: an alert")
    lab.act(one.provider_payment_id, "pay")
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [first.session_id])
    is_((row.status, row.paid), ("completed", True), "the first order is paid as if nothing had been")


def every_register_has_its_key(lab):
    """C12, A10: a re-send has the same key and identical bytes."""
    lab.rule("register", "drop_before", order="C12", times=2)
    pay = create(lab, "C12")
    done = lab.poll_session(pay.session_id, "registered")
    ok(done.provider_payment_id, "C12: registered after two lost calls")
    sent = [r for r in lab.control("GET", f"/requests?reference={pay.session_id}") if r["operation"] == "register"]
    is_(len(sent), 3, "three Register calls")
    is_(len({r["key"] for r in sent}), 1, "C12: one key")
    is_(len({r["body_sha256"] for r in sent}), 1, "C12: the same bytes")
    ok(sent[0]["key"], "and a key there is")
    is_(lab.stats(order="C12")["payments"], 1, "one payment at the provider")


def lost_answer(lab):
    """B3: the provider did it, the answer was lost: found by our reference, never registered twice."""
    lab.rule("register", "drop_after", order="B3", times=1)
    pay = create(lab, "B3")
    done = lab.poll_session(pay.session_id, "registered")
    stats = lab.stats(order="B3")
    is_((stats["calls"]["register"], stats["payments"]), (1, 1), "B3: one Register, one payment")
    ok(stats["calls"]["find"] >= 1, "B3: it was looked up by our reference")
    ok(done.redirect_url, "and its page is known")
    moves = [(r.from_status, r.to_status) for r in
             lab.sql("SELECT * FROM payflow.timeline(%s::uuid)", [pay.session_id]) if r.event != "create"]
    is_(moves, [("registering", "unknown"), ("unknown", "registered")], "by way of unknown")


def unknown_is_in_progress(lab):
    """C17: a 504 is no failure: unknown, replays 202, nothing registered under another key."""
    hold = lab.rule("find", "hold", reference="*", times=1)
    lab.rule("register", "status", 504, order="C17", times=1)
    pay = create(lab, "C17")
    lab.wait_held(hold)
    replay = create(lab, "C17")
    is_((replay.status, replay.replayed, replay.http_status, replay.session_id), ("unknown", True, 202, pay.session_id),
        "C17: replay: unknown, 202")
    lab.release(hold)
    lab.poll_session(pay.session_id, "registered")
    stats = lab.stats(order="C17")
    is_((stats["distinct_keys"], stats["payments"]), (1, 1), "C17: resolved, one key, one payment")


def refused(lab):
    """Refused on the first attempt: failed, rejected, with the provider's words."""
    lab.rule("register", "status", 422, order="refused", times=1)
    pay = create(lab, "refused")
    row = wait(lab, pay, "final")
    is_((row.status, row.failure_code), ("failed", "rejected"), "refused: failed, rejected")
    again = create(lab, "refused")
    is_(wait(lab, again).status, "registered", "and the order is free again")


def refused_after_lost(lab):
    """An earlier attempt may have arrived: then a refusal proves nothing."""
    lab.rule("register", "drop_before", order="maybe", times=1)
    lab.rule("register", "status", 422, order="maybe", times=1)
    pay = create(lab, "maybe")
    row = lab.poll_session(pay.session_id, "registered", "failed")
    is_(row.status, "registered", "a refusal after a lost call is no failure")
    is_(lab.stats(order="maybe")["payments"], 1, "one payment")


def expires(lab):
    """D5: a timer that runs out asks first, then has the provider expire the payment."""
    pay = create(lab, "D5")
    reg = wait(lab, pay)
    lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() - '1 second'::interval, next_action_at = now()
               WHERE session_id = %s""", [pay.session_id])
    row = lab.poll_session(pay.session_id, "failed")
    is_((row.failure_code, row.expires_at), ("expired", None), "D5: failed, expired")
    is_(lab.payments("D5")[0]["status"], "expired", "D5: expired at the provider as well")
    calls = lab.stats(order="D5")["calls"]
    ok(calls["get"] >= 1 and calls["expire"] == 1, "asked first, then expired once", calls)

    pay = create(lab, "D5 paid")
    reg = wait(lab, pay)
    lab.act(reg.provider_payment_id, "pay")
    lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() - '1 second'::interval, next_action_at = now()
               WHERE session_id = %s""", [pay.session_id])
    is_(lab.poll_session(pay.session_id, "completed").paid, True, "C27: what was paid in time is completed, not expired")

    rule = lab.rule("get", "status", 503, order="D5 unreachable", times=0)
    pay = create(lab, "D5 unreachable")
    reg = wait(lab, pay)
    lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() - '1 second'::interval, next_action_at = now()
               WHERE session_id = %s""", [pay.session_id])
    poll(lambda: lab.hits(rule) >= 2, what="two questions")
    is_(lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id]).status, "registered",
        "D5: out of reach: a local timeout proves nothing, it stays and is asked again")
    lab.clear_rules()


def declined_card(lab):
    """A declined card while the page is open is not the end."""
    pay = create(lab, "card")
    wait(lab, pay)
    ref = str(pay.session_id)
    payment = lab.payments("card")[0]
    payment["decline_code"] = "insufficient_funds"
    lab.rule("get", "answer", payment, order="card", times=1)
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [ref])
    is_((row.status, row.failure_code), ("registered", "insufficient_funds"), "the reason is kept, the page is open")
    lab.act(payment["id"], "pay")
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [ref])
    is_((row.status, row.failure_code), ("completed", None), "the next card pays")


def about_another_payment(lab):
    """An answer that bears another reference than was asked for is no answer."""
    pay = create(lab, "foreign")
    wait(lab, pay)
    payment = lab.payments("foreign")[0]
    lab.rule("get", "answer", {**payment, "reference": "somebody else's", "status": "paid", "captured": 1000,
                               "authorized": 1000}, order="foreign", times=1)
    row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])
    is_((row.status, row.paid), ("registered", False), "an answer about another payment is not booked")
    like(lab.one("SELECT string_agg(key, ',') FROM payflow.alerts"), "foreign_reference:sandbox", "but alerted")
    lab.rule("register", "answer", {**payment, "id": "pay_elsewhere", "reference": "somebody else's"}, order="foreign2",
             times=1)
    pay = create(lab, "foreign2")
    done = lab.poll_session(pay.session_id, "registered")
    is_(done.provider_payment_id, lab.payments("foreign2")[0]["id"], "Register too: it is asked again, and gets its own id")


def nothing_sent(lab):
    """A secret that is missing: nothing was sent, so nothing is fixed, and a refusal is the first."""
    lab.sql("CREATE SERVER bare FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint 'http://127.0.0.1:1')")
    pay = lab.row("SELECT * FROM payflow.create('bare', 1000, 'EUR', provider => 'bare')")
    lab.poll_sql("SELECT count(*) > 0 FROM payflow.journal WHERE session_id = %s", [pay.session_id])
    is_(lab.row("SELECT first_sent_at, endpoint FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id]),
        (None, None), "without a secret nothing is sent, and nothing is fixed")
    lab.sql(f"ALTER SERVER bare OPTIONS (SET endpoint '{lab.url}')")
    lab.sql("CREATE USER MAPPING FOR CURRENT_USER SERVER bare OPTIONS (api_key 'sandbox_test_key')")
    ring(lab, pay)
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "set up rightly, it goes on")


def money_that_goes_back(lab):
    """C8: what the provider reports of a completed payment is never passed over in silence."""
    for act, alert, kind, entry in (("capture_fail", "payment_reversed", "payment_reversed", "payment_reversed"),
                                    ("refund", "refund_elsewhere", None, "refund_reported"),
                                    ("dispute", "dispute", None, "chargeback")):
        pay = create(lab, act)
        reg = wait(lab, pay)
        lab.act(reg.provider_payment_id, "pay")
        lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])
        lab.act(reg.provider_payment_id, act)
        for _ in range(2):
            row = lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])
        is_(row.status, "completed", f"{act} after completion: the status stays")
        is_(lab.one("SELECT count FROM payflow.alerts WHERE key = %s", [f"{alert}:{pay.session_id}"]), 1,
            "with one alert")
        is_(lab.one("SELECT array_agg(kind) FROM payflow.discrepancies WHERE session_id = %s", [pay.session_id]),
            [kind] if kind else None, "and a discrepancy where nobody can have meant it")
        is_(lab.one("""SELECT array_agg(amount::int) FROM payflow.accounting_entries
                       WHERE session_id = %s AND entry_type = %s""", [pay.session_id, entry]), [1000], "booked once")
        is_((row.paid, row.refundable_amount), (False, 0), "not paid, and nothing to refund")
        lab.control("DELETE", "/")


def no_payment_page(lab):
    """An address that nobody can be sent to is not kept, and said."""
    pay = create(lab, "page")
    lab.poll_session(pay.session_id, "registered")
    payment = lab.payments("page")[0]
    lab.rule("register", "answer", {**payment, "id": "pay_odd", "reference": None, "redirect_url": "javascript:alert(1)"},
             order="page2")
    pay = create(lab, "page2")
    row = wait(lab, pay)
    is_((row.status, row.redirect_url), ("registered", None), "an odd address is not kept")
    like(lab.one("SELECT string_agg(key, ',') FROM payflow.alerts"), f"no_payment_page:{pay.session_id}", "and alerted")
    lab.clear_rules()


with Lab() as lab:
    for test in (no_payment_page, about_another_payment, nothing_sent, same_provider_id_for_two, every_register_has_its_key, lost_answer, unknown_is_in_progress, refused,
                 refused_after_lost, expires, declined_card):
        test(lab)
    lab.finish()
with Lab() as lab:
    money_that_goes_back(lab)
    is_(lab.sql("SELECT * FROM payflow.check_invariants()"), [], "check_invariants() finds nothing")
done_testing()
