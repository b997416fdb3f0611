"""Authorizations that lapse, differ or come late: B4, C8, C10, C27, C66, with both sides counted.

An authorization has its own validity: before it ends a person is told, after
it the provider is asked, and only its answer ends the session.  One that is
not what was agreed, or that nobody wants any more, is given up by a void, sent
only after a fresh answer has said that it is still there.  Nothing of it is
ever booked, unless the provider takes the money after all.

Protection: the void's ask_due; is_outdated(); watch_authorization() in
settle.c.  Server "still" asks only when a test rings; the others by themselves.
"""

from payflow_test import Lab, done_testing, is_, ok, poll

UNSETTLED = "status IN ('pending', 'sent', 'unknown')"


# ---- helpers -----------------------------------------------------------------

def registered(lab, order, capture="manual", provider="still", merchant="default", amount=1000):
    pay = lab.row("SELECT * FROM payflow.create(%s, %s, 'EUR', capture => %s, provider => %s, merchant => %s)",
                  [order, amount, capture, provider, merchant])
    return lab.poll_session(pay.session_id, "registered")


def authorized(lab, order, **args):
    pay = registered(lab, order, **args)
    lab.act(pay.session_id, "authorize")
    lab.ring(pay.session_id)
    return lab.poll_session(pay.session_id, "authorized")


def get(lab, pay):
    return lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id])


def check(lab, pay):
    return lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])


def calls(lab, pay, operation):
    return lab.requests(pay.session_id, operation)


def operations(lab, pay, kind):
    return lab.sql("SELECT * FROM payflow.operations WHERE session_id = %s AND kind = %s ORDER BY operation_id",
                   [pay.session_id, kind])


def entries(lab, pay):
    return [(e.entry_type, e.amount) for e in lab.sql(
        "SELECT * FROM payflow.accounting_entries WHERE session_id = %s ORDER BY entry_id", [pay.session_id])]


def findings(lab, pay):
    return [tuple(row) for row in lab.sql(
        "SELECT kind, status FROM payflow.discrepancies WHERE session_id = %s ORDER BY id", [pay.session_id])]


def settled(lab, pay):
    lab.poll_sql(f"SELECT count(*) = 0 FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}", [pay.session_id],
                 what="its operations to be settled")
    return get(lab, pay)


def lapse(lab, pay, interval):
    """Move the end of its validity to so long from now, and let it look."""
    lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() + %s::interval, next_action_at = now()
               WHERE session_id = %s""", [interval, pay.session_id])
    lab.poll_sql("SELECT lease_until IS NULL AND next_action_at > now() OR status = 'failed' FROM payflow.payment_sessions WHERE session_id = %s",
                 [pay.session_id], what="the question")


def provider_money(lab, pay):
    stats = lab.stats(reference=pay.session_id)
    return stats["authorized"], stats["captured"], stats["refunded"]


def is_voided(lab, pay, name, sent=1):
    """Given up: asked first, then voided by one call, under the operation's own key."""
    row = settled(lab, pay)
    void, = operations(lab, pay, "void")
    is_((void.status, lab.payments(row.order_id)[0]["status"], provider_money(lab, pay), entries(lab, pay)),
        ("succeeded", "canceled", (0, 0, 0), []), f"{name}: voided; nothing is held, nothing booked")
    about = [c for c in lab.requests(pay.session_id) if c["operation"] in ("get", "cancel")]
    voids = [i for i, c in enumerate(about) if c["operation"] == "cancel"]
    is_((len(voids), {about[i]["key"] for i in voids}, len({about[i]["body_sha256"] for i in voids})),
        (sent, {str(void.operation_id)}, 1), f"{name}: the void was sent {sent} times, with its own key")
    ok(about[voids[0] - 1]["operation"] == "get" and voids[0] >= 2, f"{name}: and asked for just before", about)
    return row


# ---- validity --------------------------------------------------------------------

def validity(lab):
    """C66, C10, C27: told before, asked after, ended only by the provider's word."""
    pay = authorized(lab, "C66", provider="short")
    row = get(lab, pay)
    left = lab.one("SELECT %s - clock_timestamp()", [row.expires_at])
    ok(3500 < left.total_seconds() <= 3600, "C66: authorization_ttl is the server's option; its end is visible beforehand", left)
    is_(lab.one("SELECT next_action_at <= expires_at - interval '5 minutes' FROM payflow.payment_sessions WHERE session_id = %s",
                [pay.session_id]), True, "C66: its alarm rings before that")
    is_(lab.alerts(), set(), "no alert so far")

    lapse(lab, pay, "30 minutes")
    is_(lab.alerts(), set(), "half of it is over: no alert")
    lapse(lab, pay, "5 minutes")
    is_(lab.alerts(), {f"authorization_lapses:{pay.session_id}"}, "C66: the last tenth has begun: an alert")
    is_(lab.one("SELECT next_action_at <= expires_at FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id]), True,
        "C66: the next alarm is not later than the end")
    lapse(lab, pay, "-1 minute")
    row = get(lab, pay)
    is_((row.status, row.stage, row.next_action_at is not None), ("authorized", "capture", True),
        "C66: over by our clock, still held there: it stays, with an alarm")
    is_(lab.alerts(), {f"authorization_lapses:{pay.session_id}", f"authorization_lapsed:{pay.session_id}"}, "C66: with an alert")
    check(lab, pay)
    check(lab, pay)
    is_(lab.one("SELECT count(*) FROM payflow.alerts WHERE key = %s", [f"authorization_lapsed:{pay.session_id}"]), 1, "C66: one alert")
    is_(lab.row("SELECT * FROM payflow.create('C66', 1000, 'EUR', capture => 'manual', provider => 'short')").replayed, True,
        "C66: the order is still taken")

    lab.act(pay.session_id, "expire")
    lab.ring(pay.session_id)
    row = lab.poll_session(pay.session_id, "failed", "canceled")
    is_((row.status, row.failure_code, row.paid, entries(lab, pay), provider_money(lab, pay)),
        ("failed", "expired", False, [], (0, 0, 0)), "C66: lapsed there: failed, expired; nothing was booked")
    is_([e.event for e in lab.journal(pay.session_id) if e.to_status == "failed" and e.from_status == "authorized"], ["get"],
        "C66, C10: by the answer to a question; the timeline shows it")
    lab.all_looked()
    is_((len(calls(lab, pay, "cancel")), operations(lab, pay, "void")), (0, []), "C66: nothing is left to be voided")
    again = lab.row("SELECT * FROM payflow.create('C66', 1000, 'EUR', capture => 'manual', provider => 'still')")
    is_(again.replayed, False, "A7: the order is free")

    pay = authorized(lab, "C27 out of reach", provider="short")
    rule = lab.rule("get", "status", 503, order="C27 out of reach", times=0)
    lab.sql("UPDATE payflow.payment_sessions SET expires_at = now() - interval '8 days', next_action_at = now() WHERE session_id = %s",
            [pay.session_id])
    poll(lambda: lab.hits(rule) >= 2, what="two questions")
    is_(get(lab, pay).status, "authorized", "C27: over by our clock, and out of reach: it stays")
    lab.sql("UPDATE payflow.payment_sessions SET unresolved_since = now() - interval '61 minutes', next_action_at = now() WHERE session_id = %s",
            [pay.session_id])
    poll(lambda: f"unresolved:{pay.session_id}" in lab.alerts(), what="an alert")
    lab.act(pay.session_id, "pay")
    lab.release(rule)
    lab.ring(pay.session_id)
    row = lab.poll_session(pay.session_id, "completed", "failed")
    is_((row.status, row.paid, entries(lab, pay)), ("completed", True, [("payment_received", 1000)]), "C27: captured there meanwhile: completed")

    for what, end, code in (("decline", "failed", "declined"), ("cancel", "canceled", "canceled_by_provider")):
        pay = authorized(lab, f"C27 {what}")
        lab.act(pay.session_id, what)
        row = check(lab, pay)
        is_((row.status, row.failure_code, entries(lab, pay)), (end, end == "failed" and "card_declined" and code or code, []),
            f"C27: the provider says {what}: {end}")


def short_validities(lab):
    """C10: the alarm is set before the end, whatever the intervals of the polls."""
    for ttl in ("10 minutes", "7 days", "1 month"):
        name = f"ttl {ttl}"
        lab.add_server(name, poll_intervals="90 days", authorization_ttl=ttl, breaker_failures="1000000")
        pay = authorized(lab, f"validity {ttl}", provider=name)
        row = lab.session(pay.session_id)
        is_(lab.one("""SELECT %(at)s < %(end)s AND %(end)s - %(at)s <= %(ttl)s::interval / 5 AND %(end)s <= now() + %(ttl)s::interval""",
                    {"at": row.next_action_at, "end": row.expires_at, "ttl": ttl}), True, f"C10: valid for {ttl}: it looks shortly before the end")
        lab.act(pay.session_id, "expire")
        check(lab, pay)


# ---- not what was agreed -----------------------------------------------------------

def mismatch(lab):
    """B4: another amount or currency: a void, failed amount_mismatch, a discrepancy; never captured."""
    for name, more in (("less", {"amount": 900}), ("more", {"amount": 1100}), ("currency", {"currency": "USD"})):
        for capture in ("manual", "automatic"):
            order = f"B4 {name}, {capture}"
            pay = registered(lab, order, capture=capture)
            lab.act(pay.session_id, "authorize", **more)
            row = check(lab, pay)
            is_((row.status, row.failure_code, row.paid, row.authorized_amount), ("failed", "amount_mismatch", False, 0), f"{order}: failed")
            is_(findings(lab, pay), [("amount_mismatch", "open")], f"{order}: a discrepancy")
            ok(f"amount_mismatch:{pay.session_id}" in lab.alerts(), f"{order}: an alert")
            is_voided(lab, pay, order)
            error = lab.error("SELECT * FROM payflow.capture(%s::uuid)", [pay.session_id])
            is_(error.diag.message_detail, "not_capturable", f"{order}: not to be captured")
            check(lab, pay)
            is_((findings(lab, pay), len(operations(lab, pay, "void"))), ([("amount_mismatch", "open")], 1), f"{order}: once")

    order = "B4 captured before the void"
    pay = registered(lab, order)
    lab.act(pay.session_id, "authorize", amount=900)
    lab.rule("get", "delay", 0, order=order)
    second = lab.rule("get", "hold", order=order)
    is_(check(lab, pay).status, "failed", order)
    lab.wait_held(second)
    lab.act(pay.session_id, "pay", amount=900)
    lab.release(second)
    row = settled(lab, pay)
    is_((row.status, row.suspense_amount, entries(lab, pay), calls(lab, pay, "cancel")),
        ("failed", 900, [("unexpected_received", 900)], []), f"{order}: in suspense, no void is sent")
    is_(findings(lab, pay), [("amount_mismatch", "open"), ("unexpected_money", "open")], f"{order}: a discrepancy more")
    is_(operations(lab, pay, "void")[0].status, "failed", f"{order}: the void is not needed")


# ---- late ------------------------------------------------------------------------------

def ended(lab, order, how, **args):
    """A session that has ended without money: the payer's bank, the provider, or the cancel."""
    pay = registered(lab, order, **args)
    if how == "canceled":
        lab.sql("SELECT FROM payflow.cancel(%s::uuid)", [pay.session_id])
        lab.poll_session(pay.session_id, "canceled")
        return settled(lab, pay)
    lab.act(pay.session_id, {"declined": "decline", "expired": "expire", "canceled there": "cancel"}[how])
    return check(lab, pay)


def late(lab):
    """C8: an authorization on a session that has ended: a void, after a fresh answer."""
    for how in ("declined", "expired", "canceled there", "canceled"):
        order = f"late, {how}"
        pay = ended(lab, order, how)
        reversals = len(calls(lab, pay, "cancel"))
        before = len([c for c in lab.requests(pay.session_id)])
        lab.act(pay.session_id, "authorize")
        row = check(lab, pay)
        is_((row.status, row.authorized_amount, row.paid), (pay.status, 0, False), f"{order}: the status stays")
        ok(f"late_authorization:{pay.session_id}" in lab.alerts(), f"{order}: an alert")
        row = settled(lab, pay)
        void, = operations(lab, pay, "void")
        since = [c["operation"] for c in lab.requests(pay.session_id)[before:]]
        is_((void.status, since, provider_money(lab, pay), entries(lab, pay)),
            ("succeeded", ["get", "get", "cancel"], (0, 0, 0), []), f"{order}: asked once more, then voided")
        is_({c["key"] for c in calls(lab, pay, "cancel")[reversals:]}, {str(void.operation_id)}, f"{order}: with a key of its own")
        check(lab, pay)
        is_((get(lab, pay).status, len(operations(lab, pay, "void"))), (pay.status, 1), f"{order}: and that was all")


def changes_in_between(lab):
    """The answer changes between the two questions."""
    for what, operation_ends, booked in (("expire", "succeeded", []), ("decline", "succeeded", []), ("cancel", "succeeded", []),
                                         ("process", None, []), ("pay", "failed", [("unexpected_received", 1000)])):
        order = f"then {what}"
        pay = ended(lab, order, "declined")
        lab.act(pay.session_id, "authorize")
        first, second = lab.rule("get", "delay", 0, order=order), lab.rule("get", "hold", order=order)
        check(lab, pay)
        lab.wait_held(second)
        is_((lab.hits(first), calls(lab, pay, "cancel")), (1, []), f"{order}: asked once more before anything is sent")
        lab.act(pay.session_id, what)
        lab.release(second)
        if operation_ends is None:
            poll(lambda: operations(lab, pay, "void")[0].lease_until is None, what="the answer")
            void, = operations(lab, pay, "void")
            is_((void.status, void.next_action_at is not None, calls(lab, pay, "cancel")), ("pending", True, []),
                f"{order}: neither held nor ended: asked again later")
            lab.act(pay.session_id, "authorize")
            lab.sql("UPDATE payflow.operations SET next_action_at = now() WHERE operation_id = %s AND next_action_at IS NOT NULL", [void.operation_id])
            settled(lab, pay)
            is_((operations(lab, pay, "void")[0].status, len(calls(lab, pay, "cancel"))), ("succeeded", 1), f"{order}: held again: voided")
            continue
        row = settled(lab, pay)
        void, = operations(lab, pay, "void")
        is_((row.status, void.status, calls(lab, pay, "cancel"), entries(lab, pay)), ("failed", operation_ends, [], booked),
            f"{order}: no void is sent; booked: {booked}")
        is_(row.suspense_amount, 1000 if booked else 0, f"{order}: in suspense")
        if booked:
            is_(findings(lab, pay), [("unexpected_money", "open")], f"{order}: a discrepancy, held for a person")

    for policy, end in (("refund", ([("unexpected_received", 1000), ("refund_sent", 1000)], "open", False, 1000)),
                        ("accept", ([("unexpected_received", 1000), ("unexpected_accepted", 1000)], "paid", True, 0))):
        lab.sql("INSERT INTO payflow.merchants (id, default_provider, late_payment) VALUES (%s, 'still', %s)", [policy, policy])
        order = f"then paid, {policy}"
        pay = ended(lab, order, "expired", merchant=policy)
        lab.act(pay.session_id, "authorize")
        lab.rule("get", "delay", 0, order=order)
        second = lab.rule("get", "hold", order=order)
        check(lab, pay)
        lab.wait_held(second)
        lab.act(pay.session_id, "pay")
        lab.release(second)
        row = settled(lab, pay)
        is_((entries(lab, pay), row.order_status, row.paid, lab.stats(order=order)["refunded"]), end, f"{order}: by the merchant's policy")
        is_((row.status, calls(lab, pay, "cancel"), operations(lab, pay, "void")[0].status), ("failed", [], "failed"), f"{order}: no void")


def lost_voids(lab):
    """A10: the void's answer is lost: asked, sent again only if it was not done, with the same key."""
    faults = {"drop_after": (("drop_after",), {}, 1), "drop_before": (("drop_before",), {}, 2), "503": (("status", 503), {}, 2),
              "reset": (("reset",), {}, 2), "garbage": (("garbage",), {}, 1)}
    pays = {}
    for fault, (action, more, _) in faults.items():
        order = f"void, {fault}"
        pays[fault] = ended(lab, order, "declined", provider="sandbox")
        lab.rule("cancel", *action, order=order, **more)
        lab.act(pays[fault].session_id, "authorize")
        check(lab, pays[fault])
    for fault, pay in pays.items():
        is_voided(lab, pay, f"A10: void, {fault}", faults[fault][2])

    order = "void, refused"
    pay = ended(lab, order, "declined")
    lab.rule("cancel", "status", 409, code="not_cancelable", order=order)
    lab.act(pay.session_id, "authorize")
    check(lab, pay)
    settled(lab, pay)
    first, = operations(lab, pay, "void")
    is_((first.status, first.failure_code, f"operation_refused:{first.operation_id}" in lab.alerts()), ("failed", "refused", True),
        "a void that is refused: failed, with an alert")
    check(lab, pay)
    settled(lab, pay)
    is_([(o.status, o.failure_code) for o in operations(lab, pay, "void")], [("failed", "refused"), ("succeeded", None)],
        "still held when asked again: another void, under another key")
    is_((len({c["key"] for c in calls(lab, pay, "cancel")}), provider_money(lab, pay)), (2, (0, 0, 0)), "and it is given up")


def outdated(lab):
    """E3: an old answer that says authorized, after a newer one that says it has ended: nothing is voided for it."""
    order = "outdated"
    pay = authorized(lab, order)
    first = lab.rule("get", "stall_body", order=order)
    lab.ring(pay.session_id)
    lab.wait_held(first)
    lab.act(pay.session_id, "expire")
    lab.end_lease(pay.session_id)
    row = lab.poll_session(pay.session_id, "failed")
    asked = len(calls(lab, pay, "get"))
    lab.release(first)
    lab.poll_sql("SELECT count(*) >= 1 FROM payflow.journal WHERE session_id = %s AND outcome = 'authorized' AND from_status = 'failed'",
                 [pay.session_id])
    lab.all_looked()
    is_((row.failure_code, operations(lab, pay, "void"), len(calls(lab, pay, "get")), calls(lab, pay, "cancel")),
        ("expired", [], asked, []), "E3: an old answer, authorized, on a session that has ended: nothing")


def second_session(lab):
    """C10, C33: the order's next session is not touched by the void of the first."""
    order = "next session"
    first = ended(lab, order, "declined")
    second = registered(lab, order)
    lab.act(first.session_id, "authorize")
    lab.act(second.session_id, "authorize")
    lab.ring(second.session_id)
    lab.poll_session(second.session_id, "authorized")
    check(lab, first)
    settled(lab, first)
    is_((provider_money(lab, first)[0], provider_money(lab, second)[0], get(lab, second).status), (0, 1000, "authorized"),
        "C33: the first is voided, the second is still held")
    lab.sql("SELECT FROM payflow.capture(%s::uuid)", [second.session_id])
    is_(lab.poll_session(second.session_id, "completed").paid, True, "C33: and captured")
    row = get(lab, first)
    is_((row.status, row.paid, row.order_status), ("failed", False, "paid"), "C33: the order is paid by the second")


with Lab(workers=2, conf={"payflow.poll_interval": "100ms", "fsync": "off"}) as lab:
    lab.option(poll_intervals="100 ms", breaker_failures=1000000)
    lab.add_server("still", poll_intervals="1 hour", breaker_failures="1000000")
    lab.add_server("short", poll_intervals="1 hour", breaker_failures="1000000", authorization_ttl="1 hour")
    validity(lab)
    short_validities(lab)
    mismatch(lab)
    late(lab)
    changes_in_between(lab)
    lost_voids(lab)
    outdated(lab)
    second_session(lab)
    is_(lab.one(f"SELECT count(*) FROM payflow.operations WHERE {UNSETTLED}"), 0, "nothing is left undone")
    ok(not lab.log_contains(r"payflow worker .*(ERROR|FATAL|could not|PANIC)"), "no worker has complained")
    lab.finish()
done_testing()
