"""capture(): B5, C20, C63, C64, C70 and A10, with both sides counted.

What is authorized is taken once, all or part of it, whatever is lost on the
way; the rest is released and shown.  Beside a cancel, an expiry, the bank's
second thoughts and a provider that captures by itself, what is booked is what
the provider has taken.

Protection: ux_operation_unsettled_capture and the order's lock behind it; the
operation's key; the reverse that waits for the capture (WAITS_FOR_ANOTHER in
source.c).  Server "still" asks only when a test rings; the others by themselves.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

from payflow_test import Lab, done_testing, is_, isnt, ok, poll, threads_at_barrier
from wire import Front, answer

UNSETTLED = "status IN ('pending', 'sent', 'unknown')"
CAPTURE = "SELECT * FROM payflow.capture(%s::uuid, %s, %s)"
CANCEL = "SELECT * FROM payflow.cancel(%s::uuid)"
REFUND = "SELECT * FROM payflow.refund(%s::uuid, %s)"


# ---- helpers -----------------------------------------------------------------

def authorized(lab, order, capture="manual", provider=None):
    pay = lab.row("SELECT * FROM payflow.create(%s, 1000, 'EUR', capture => %s, provider => %s)", [order, capture, provider])
    lab.poll_session(pay.session_id, "registered")
    lab.act(pay.session_id, "authorize")
    lab.ring(pay.session_id)
    return lab.poll_session(pay.session_id, "authorized")


def capture(lab, pay, amount=None, key=None, conn=None):
    return lab.row(CAPTURE, [pay.session_id, amount, key], conn=conn)


def cancel(lab, pay, conn=None):
    return lab.row(CANCEL, [pay.session_id], conn=conn)


def get(lab, pay, conn=None):
    return lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id], conn=conn)


def check(lab, pay):
    return lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])


def error_of(lab, query, args, conn=None):
    error = lab.error(query, args, conn=conn)
    return None if error is None else (error.pgcode, error.diag.message_detail)


def calls(lab, pay, operation="capture"):
    return lab.requests(pay.session_id, operation)


def operations(lab, pay, kind="capture"):
    return lab.sql("SELECT * FROM payflow.operations WHERE session_id = %s AND kind = %s ORDER BY operation_id",
                   [pay.session_id, kind])


def entries(lab, pay):
    return [(e.entry_type, e.amount) for e in lab.sql(
        "SELECT * FROM payflow.accounting_entries WHERE session_id = %s ORDER BY entry_id", [pay.session_id])]


def findings(lab, pay):
    return [row.kind for row in lab.sql("SELECT kind FROM payflow.discrepancies WHERE session_id = %s ORDER BY id", [pay.session_id])]


def settled(lab, pay, *statuses):
    lab.poll_session(pay.session_id, *(statuses or ("canceled", "completed", "failed")))
    lab.poll_sql(f"SELECT count(*) = 0 FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}", [pay.session_id],
                 what="its operations to be settled")
    return get(lab, pay)


def provider_money(lab, pay):
    stats = lab.stats(reference=pay.session_id)
    return stats["captured"], stats["refunded"]


def is_captured(lab, pay, name, amount=1000, sent=1):
    """Completed with that amount, by one capture; sent so often with one key."""
    row = settled(lab, pay)
    is_((row.status, row.paid, row.authorized_amount, row.captured_amount, row.refundable_amount, row.order_status),
        ("completed", True, 1000, amount, amount, "paid"), f"{name}: completed, {amount} captured")
    is_((entries(lab, pay), provider_money(lab, pay)), ([("payment_received", amount)], (amount, 0)),
        f"{name}: booked what the provider has taken")
    operation = operations(lab, pay)[-1]
    is_((operation.status, operation.amount), ("succeeded", amount), f"{name}: the capture has succeeded")
    made = [c for c in calls(lab, pay) if c["key"] == str(operation.operation_id)]
    is_((len(made), len({c["body_sha256"] for c in made})), (sent, 1), f"{name}: sent {sent} times with its own key, the same bytes")
    shown = [e.detail["released"] for e in lab.journal(pay.session_id) if "released" in (e.detail or {})]
    is_(shown, [1000 - amount] if amount < 1000 else [], f"C64, C10: {name}: the rest is released, and shown")
    return row


def is_given_back(lab, pay, name, captured=1000):
    row = settled(lab, pay)
    is_((row.status, row.paid, row.captured_amount, row.refunded_amount, row.order_status),
        ("completed", False, captured, captured, "refunded"), f"{name}: completed, refunded, never paid")
    is_((entries(lab, pay), provider_money(lab, pay)),
        ([("payment_received", captured), ("refund_sent", captured)], (captured, captured)), f"{name}: booked, then given back")
    ok(f"cancel_lost:{pay.session_id}" in lab.alerts(), f"{name}: with an alert")


def is_canceled(lab, pay, name):
    row = settled(lab, pay)
    is_((row.status, entries(lab, pay), provider_money(lab, pay), lab.payments(row.order_id)[0]["status"]),
        ("canceled", [], (0, 0), "canceled"), f"{name}: canceled on both sides, nothing taken")
    is_(len(calls(lab, pay, "cancel")), 1, f"{name}: by one Reverse")


# ---- all of it, part of it, too much --------------------------------------------

def whole_and_part(lab, front):
    """B5, C63, C64."""
    pay = authorized(lab, "all")
    row = capture(lab, pay)
    is_((row.status, row.stage, row.paid, row.replayed, row.http_status), ("authorized", "capture", False, False, 202),
        "B5: all: 202, not paid yet")
    is_captured(lab, pay, "B5: all")
    is_(error_of(lab, CAPTURE, [pay.session_id, None, None]), ("PT409", "not_capturable"), "C70: captured: not again")
    is_(error_of(lab, CANCEL, [pay.session_id]), ("PT409", "not_cancelable"), "C70: cancel after capture: 409")

    pay = authorized(lab, "C64")
    capture(lab, pay, 400)
    is_captured(lab, pay, "C64: part", 400)
    timeline = lab.sql("SELECT * FROM payflow.timeline(%s::uuid) WHERE to_status = 'completed' AND from_status <> 'completed'",
                       [pay.session_id])
    is_([e.detail.get("released") for e in timeline], [600], "C64: the timeline shows it")
    is_(error_of(lab, REFUND, [pay.session_id, 401]), ("PT409", "refund_exceeds_captured"), "C63: 401 of 400: refused")
    is_(lab.row(REFUND, [pay.session_id, 400]).status, "pending", "C63: 400 of 400")
    row = settled(lab, pay)
    is_((row.refunded_amount, row.order_status, provider_money(lab, pay)), (400, "refunded", (400, 400)), "C63: all of it is back")

    pay = authorized(lab, "C63")
    is_(error_of(lab, REFUND, [pay.session_id, 1]), ("PT409", "not_refundable"), "C63: what is authorized only is not refundable")
    for amount, error in ((1001, ("PT409", "capture_exceeds_authorized")), (0, ("PT400", "invalid_amount")),
                          (-1, ("PT400", "invalid_amount"))):
        is_(error_of(lab, CAPTURE, [pay.session_id, amount, f"key {amount}"]), error, f"C63: capture of {amount} is refused")
    is_((operations(lab, pay), lab.one("SELECT count(*) FROM payflow.idempotency_keys WHERE session_id = %s", [pay.session_id])),
        ([], 0), "C63: and leaves nothing behind")
    error = lab.error("""INSERT INTO payflow.operations (operation_id, session_id, merchant, order_id, provider, kind, amount,
        currency, idempotency_key, next_action_at) SELECT gen_random_uuid(), session_id, merchant, order_id, provider, 'capture',
        1001, 'EUR', 'x', now() FROM payflow.payment_sessions WHERE session_id = %s""", [pay.session_id])
    is_(error and error.pgcode, "23514", "C63: around the API it is refused as well")
    capture(lab, pay, 1)
    is_captured(lab, pay, "C63: one cent", 1)

    pay = authorized(lab, "receipt", provider="front")
    lab.sql("""SELECT FROM payflow.capture(%s::uuid, 300, receipt => '{"items": [{"name": "tea", "amount": 300}]}')""", [pay.session_id])
    is_captured(lab, pay, "with a receipt", 300)
    is_([json.loads(r.body) for r in front.sent("capture", "receipt")],
        [{"amount": 300, "receipt": {"items": [{"name": "tea", "amount": 300}]}}], "the receipt goes to the provider as it is")


def not_capturable(lab):
    """C70: only what is authorized, and was to be captured by a call."""
    pay = lab.row("SELECT * FROM payflow.create('registered', 1000, 'EUR', capture => 'manual', provider => 'still')")
    lab.poll_session(pay.session_id, "registered")
    is_(error_of(lab, CAPTURE, [pay.session_id, None, None]), ("PT409", "not_capturable"), "registered: 409")
    lab.act(pay.session_id, "decline")
    is_(check(lab, pay).status, "failed", "failed")
    is_(error_of(lab, CAPTURE, [pay.session_id, None, None]), ("PT409", "not_capturable"), "failed: 409")

    pay = authorized(lab, "automatic", capture="automatic", provider="still")
    is_(error_of(lab, CAPTURE, [pay.session_id, None, None]), ("PT409", "not_capturable"), "captured by the provider itself: 409")
    lab.act(pay.session_id, "pay")
    is_(check(lab, pay).paid, True, "which it does")

    pay = authorized(lab, "void", provider="still")
    rule = lab.rule("cancel", "hold", order="void")
    cancel(lab, pay)
    is_(error_of(lab, CAPTURE, [pay.session_id, None, None]), ("PT409", "not_capturable"), "C70: capture while it is voided: 409")
    lab.wait_held(rule)
    lab.release(rule)
    is_canceled(lab, pay, "C70: void")
    is_(error_of(lab, CAPTURE, [pay.session_id, None, None]), ("PT409", "not_capturable"), "C70: capture after void: 409")
    is_((operations(lab, pay), calls(lab, pay)), ([], []), "C70: and nothing was sent")

    conn = lab.connect(autocommit=False)
    pay = authorized(lab, "rolled back", provider="still")
    capture(lab, pay, conn=conn)
    conn.rollback()
    lab.all_looked()
    is_((operations(lab, pay), calls(lab, pay), get(lab, pay).status), ([], [], "authorized"), "rolled back: nothing happened")
    capture(lab, pay, conn=conn)
    is_(error_of(lab, CAPTURE, [pay.session_id, None, None], conn), ("PT409", "payment_in_progress"), "twice in a transaction: 409")
    conn.rollback()
    capture(lab, pay)
    is_captured(lab, pay, "then captured")
    conn.close()


def keys(lab):
    """C20, A8: while one is under way, and after it."""
    pay = authorized(lab, "keys", provider="still")
    rule = lab.rule("capture", "hold", order="keys")
    row = capture(lab, pay, 400, "k")
    lab.wait_held(rule)
    again = capture(lab, pay, 400, "k")
    is_((row.replayed, again.replayed, again.http_status, again.status), (False, True, 202, "authorized"), "C20: the same key: replay, 202")
    for amount, key, error in ((400, "other", ("PT409", "payment_in_progress")), (400, None, ("PT409", "payment_in_progress")),
                               (None, "other", ("PT409", "payment_in_progress")), (401, "k", ("PT422", "idempotency_key_reused")),
                               (None, "k", ("PT422", "idempotency_key_reused"))):
        is_(error_of(lab, CAPTURE, [pay.session_id, amount, key]), error, f"C20: amount {amount}, key {key}: {error[1]}")
    is_(len(operations(lab, pay)), 1, "C20: one capture")
    lab.release(rule)
    is_captured(lab, pay, "C20: keys", 400)
    again = capture(lab, pay, 400, "k")
    is_((again.replayed, again.http_status, again.status, again.captured_amount), (True, 200, "completed", 400),
        "C20: the same key afterwards: replayed, 200")
    is_(error_of(lab, CAPTURE, [pay.session_id, 400, "other"]), ("PT409", "not_capturable"), "C20: another key afterwards: 409")

    other = authorized(lab, "keys, another order", provider="still")
    is_(error_of(lab, CAPTURE, [other.session_id, 400, "k"]), ("PT422", "idempotency_key_reused"), "a key names one capture of one session")
    capture(lab, other, key="x" * 255)
    is_captured(lab, other, "a long key")


# ---- what is lost -------------------------------------------------------------------

def lost_answers(lab):
    """C20, A10: asked for before anything is sent again; the same key, the same bytes; taken once."""
    faults = {
        "drop_after": ("sandbox", ("drop_after",), {}, 1),
        "504 done": ("sandbox", ("status", 504), {"done": True}, 1),
        "garbage": ("sandbox", ("garbage",), {}, 1),
        "half_body": ("sandbox", ("half_body",), {}, 1),
        "stall_body": ("hasty", ("stall_body",), {}, 1),
        "drop_before": ("sandbox", ("drop_before",), {}, 2),
        "503": ("sandbox", ("status", 503), {}, 2),
        "reset": ("sandbox", ("reset",), {}, 2),
        "empty": ("sandbox", ("answer", {}), {}, 2),
        "429": ("sandbox", ("status", 429), {"retry_after": 0}, 2),
        "401": ("sandbox", ("status", 401), {}, 2),
        "404": ("sandbox", ("notfound",), {}, 2),
        "key_in_use": ("sandbox", ("status", 409), {"code": "key_in_use"}, 2),
    }
    pays = {}
    for fault, (server, action, more, _) in faults.items():
        pays[fault] = authorized(lab, fault, provider=server)
        lab.rule("capture", *action, order=fault, **more)
    for pay in pays.values():
        capture(lab, pay, 700, f"key of {pay.order_id}")
    for fault, pay in pays.items():
        is_captured(lab, pay, f"A10: {fault}", 700, faults[fault][3])
        is_(len(calls(lab, pay)), faults[fault][3], f"A10: {fault}: no other capture was sent")


def unknown_capture(lab):
    """C20: done at the provider, the answer lost: nobody captures a second time before that is known."""
    pay = authorized(lab, "C20", provider="still")
    rule = lab.rule("get", "hold", order="C20")
    lab.rule("capture", "drop_after", order="C20")
    capture(lab, pay, None, "C20 k")
    lab.wait_held(rule)
    is_((operations(lab, pay)[0].status, provider_money(lab, pay), get(lab, pay).status), ("sent", (1000, 0), "authorized"),
        "C20: the provider has done it, and we do not know")
    row = capture(lab, pay, None, "C20 k")
    is_((row.replayed, row.http_status), (True, 202), "C20: the same key: replay, 202")
    is_(error_of(lab, CAPTURE, [pay.session_id, None, "other"]), ("PT409", "payment_in_progress"), "C20: another key: payment_in_progress")
    lab.release(rule)
    is_captured(lab, pay, "C20")
    is_(len(calls(lab, pay)), 1, "C20: never a second capture")


def key_runs_out(lab):
    """A10: past the key's validity it is never sent again: asked, unknown, an alert; what the provider says ends it."""
    ends = {"captured after all": "pay", "lapsed": "expire", "canceled": "cancel"}
    pays = {}
    for name in ends:
        pays[name] = authorized(lab, f"no key, {name}")
        rule = lab.rule("capture", "drop_before", order=f"no key, {name}", times=0)
        capture(lab, pays[name], None, f"k {name}")
        poll(lambda: lab.hits(rule) and lab.sql("""UPDATE payflow.operations SET first_sent_at = now() - interval '23 hours',
             unresolved_since = now() - interval '61 minutes', next_action_at = now() WHERE session_id = %s AND lease_until IS NULL
             AND status = 'sent' RETURNING 1""", [pays[name].session_id]), what="its time to be over")
    for name, pay in pays.items():
        lab.poll_sql("SELECT status = 'unknown' FROM payflow.operations WHERE session_id = %s", [pay.session_id])
        operation, = operations(lab, pay)
        ok(f"operation_unresolved:{operation.operation_id}" in lab.alerts(), f"A10: no key any more: unknown, with an alert")
        sent, asked = len(calls(lab, pay)), len(calls(lab, pay, "get"))
        poll(lambda: lab.sql("UPDATE payflow.operations SET next_action_at = now() WHERE session_id = %s AND next_action_at IS NOT NULL RETURNING 1", [pay.session_id])
             and len(calls(lab, pay, "get")) >= asked + 4, what="questions")
        is_((len(calls(lab, pay)), get(lab, pay).status), (sent, "authorized"), "A10: not sent again, only asked; it stays authorized")
        is_(error_of(lab, CAPTURE, [pay.session_id, None, None]), ("PT409", "payment_in_progress"), "C20: unknown: no other capture")
        if name == "canceled":
            cancel(lab, pay)
            # its pause may be long by now
            lab.sql("UPDATE payflow.operations SET next_action_at = now() WHERE session_id = %s AND kind = 'capture' AND next_action_at IS NOT NULL", [pay.session_id])
            is_canceled(lab, pay, "A10: unknown, then canceled: asked first, then reversed")
            is_(operations(lab, pay)[0].status, "failed", "A10: the capture has failed")
            continue
        lab.act(pay.session_id, ends[name])
        lab.ring(pay.session_id)
        row = settled(lab, pay)
        if name == "lapsed":
            is_((row.status, row.failure_code, entries(lab, pay)), ("failed", "expired", []), "A10: unknown, then lapsed: failed")
        else:
            is_((row.status, row.paid, entries(lab, pay)), ("completed", True, [("payment_received", 1000)]), "A10: unknown, then captured")
        is_(len(calls(lab, pay)), sent, "A10: without another capture")
    lab.clear_rules()


# ---- refused, and failed at the bank ---------------------------------------------------

def refused(lab):
    """A refused capture: failed, an alert, the session stays authorized and can be captured again."""
    for name, action, more in (("402", ("decline",), {}), ("409", ("status", 409), {"code": "not_capturable"}),
                               ("422", ("status", 422), {"code": "invalid_amount"})):
        pay = authorized(lab, f"refused {name}", provider="still")
        lab.rule("capture", *action, order=pay.order_id, **more)
        capture(lab, pay, 600, f"first {name}")
        poll(lambda: operations(lab, pay)[0].status == "failed", what="the refusal")
        first, = operations(lab, pay)
        row = get(lab, pay)
        is_((row.status, row.captured_amount, first.failure_code, first.next_action_at), ("authorized", 0, "refused", None),
            f"refused {name}: the capture fails, the session stays authorized")
        ok(f"operation_refused:{first.operation_id}" in lab.alerts(), f"refused {name}: with an alert")
        row = capture(lab, pay, 600, f"first {name}")
        is_((row.replayed, row.status, len(operations(lab, pay))), (True, "authorized", 1), f"refused {name}: its key replays it")
        lab.all_looked()
        is_(len(calls(lab, pay)), 1, f"refused {name}: not sent again by itself")
        capture(lab, pay, 500, f"second {name}")
        is_captured(lab, pay, f"refused {name}, then another", 500)
        keys_sent = [c["key"] for c in calls(lab, pay)]
        isnt(keys_sent[0], keys_sent[1], f"A10: refused {name}: under another key")


def failed_at_the_bank(lab):
    """B5: the bank takes a capture back: before we know of it, after it, and while it is canceled."""
    pay = authorized(lab, "capture_fail first", provider="still")
    rule = lab.rule("get", "hold", order=pay.order_id)
    lab.rule("capture", "drop_after", order=pay.order_id)
    capture(lab, pay)
    lab.wait_held(rule)
    lab.act(pay.session_id, "capture_fail")
    lab.release(rule)
    poll(lambda: operations(lab, pay)[0].status == "failed", what="the failure")
    first, = operations(lab, pay)
    is_((get(lab, pay).status, first.failure_code, entries(lab, pay)), ("authorized", "failed_at_provider", []),
        "capture_fail: the capture fails, the session stays authorized")
    ok(f"capture_failed:{first.operation_id}" in lab.alerts(), "capture_fail: with an alert")
    capture(lab, pay)
    is_captured(lab, pay, "capture_fail, then captured again")
    is_(len(calls(lab, pay)), 2, "capture_fail: two captures, two keys")

    pay = authorized(lab, "capture_fail later", provider="still")
    capture(lab, pay, 800)
    is_captured(lab, pay, "capture_fail later", 800)
    lab.act(pay.session_id, "capture_fail")
    for _ in range(3):
        row = check(lab, pay)
    is_((row.status, row.paid, row.captured_amount, row.refundable_amount, row.order_status),
        ("completed", False, 0, 0, "refunded"), "capture_fail after completion: the status stays, the money is gone")
    is_((entries(lab, pay), provider_money(lab, pay), findings(lab, pay)),
        ([("payment_received", 800), ("payment_reversed", 800)], (0, 0), ["payment_reversed"]), "booked once, with a discrepancy")
    ok(f"payment_reversed:{pay.session_id}" in lab.alerts(), "and an alert")
    for query, args, word in ((CAPTURE, [pay.session_id, None, None], "not_capturable"), (CANCEL, [pay.session_id], "not_cancelable"),
                              (REFUND, [pay.session_id, None], "not_refundable")):
        is_(error_of(lab, query, args), ("PT409", word), f"then {word}")

    pay = authorized(lab, "capture_fail, canceled", provider="still")
    rule = lab.rule("get", "hold", order=pay.order_id)
    lab.rule("capture", "drop_after", order=pay.order_id)
    capture(lab, pay)
    lab.wait_held(rule)
    cancel(lab, pay)
    lab.act(pay.session_id, "capture_fail")
    lab.release(rule)
    is_canceled(lab, pay, "capture_fail while it is canceled")
    is_(operations(lab, pay)[0].status, "failed", "capture_fail while it is canceled: the capture has failed")


# ---- races ---------------------------------------------------------------------------------

def crowds(lab):
    """C70: two captures of 60 of 100; and one key many times."""
    for i in range(4):
        pay = authorized(lab, f"C70 {i}", provider="still")
        rule = lab.rule("capture", "hold", order=pay.order_id)
        results = threads_at_barrier(2, lambda n, conn: error_of(lab, CAPTURE, [pay.session_id, 600 + n, f"C70 {i} {n}"], conn),
                                     lambda n: lab.connect())
        is_(sorted(map(str, results)), sorted(map(str, [None, ("PT409", "payment_in_progress")])), f"C70: two captures at once: one ({i})")
        lab.wait_held(rule)
        lab.release(rule)
        is_captured(lab, pay, f"C70: two at once ({i})", 600 if results[0] is None else 601)
    pay = authorized(lab, "one key", provider="still")
    rule = lab.rule("capture", "hold", order=pay.order_id)
    rows = threads_at_barrier(10, lambda n, conn: capture(lab, pay, 500, "one key", conn=conn), lambda n: lab.connect())
    is_(sorted((r.replayed, r.http_status) for r in rows), [(False, 202)] + [(True, 202)] * 9, "C20: one key, ten times at once: one capture")
    lab.wait_held(rule)
    lab.release(rule)
    is_captured(lab, pay, "C20: one key", 500)

    def either(i, conn):
        return error_of(lab, *((CAPTURE, [race.session_id, None, None]) if i % 2 else (CANCEL, [race.session_id])), conn)

    for i in range(6):
        race = authorized(lab, f"capture or cancel {i}")
        rule = lab.rule("capture", "hold", order=race.order_id)  # a capture that is done cannot be canceled
        capture_error, cancel_error = reversed(threads_at_barrier(2, either, lambda n: lab.connect()))
        lab.release(rule)
        is_((capture_error in (None, ("PT409", "not_capturable")), cancel_error), (True, None),
            f"C70: capture and cancel at once ({i}): the cancel always, the capture only if it came first")
        row = settled(lab, race)
        captured, refunded = provider_money(lab, race)
        is_((captured - refunded, row.paid, row.captured_amount - row.refunded_amount), (0, False, 0), "and nothing is kept")


def cancel_during_capture(lab, front):
    """C6, C70: it waits for the capture's result: captured: a full refund; refused or lost and not done: the void."""
    pay = authorized(lab, "captured first", provider="still")
    rule = lab.rule("capture", "hold", order=pay.order_id)
    capture(lab, pay, 400)
    lab.wait_held(rule)
    row = cancel(lab, pay)
    is_((row.status, row.stage, row.http_status), ("canceling", "reverse", 202), "cancel during a capture: canceling")
    lab.all_looked()
    lab.ring(pay.session_id)
    lab.all_looked()
    is_((calls(lab, pay, "cancel"), operations(lab, pay, "reverse")[0].status), ([], "pending"), "it waits for the capture's result")
    is_(error_of(lab, CAPTURE, [pay.session_id, None, None]), ("PT409", "not_capturable"), "and nothing more is captured")
    lab.release(rule)
    is_given_back(lab, pay, "cancel during a capture, captured", 400)
    is_((len(calls(lab, pay)), calls(lab, pay, "cancel"), len(calls(lab, pay, "refund"))), (1, [], 1), "one capture, no Reverse, one refund")

    event = threading.Event()
    pay = authorized(lab, "refused then", provider="front")
    body = b'{"error":{"code":"card_declined","message":"made by the test"}}'
    said = answer(b"HTTP/1.1 402 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), keep=True)
    front.plan("capture", pay.order_id, lambda *args: event.wait() and said(*args))
    capture(lab, pay)
    poll(lambda: front.sent("capture", pay.order_id), what="the capture")
    cancel(lab, pay)
    event.set()
    is_canceled(lab, pay, "cancel during a capture, refused")

    for fault, given_back in (("drop_before", False), ("drop_after", True)):
        pay = authorized(lab, f"cancel, {fault}", provider="still")
        rule = lab.rule("get", "hold", order=pay.order_id)
        lab.rule("capture", fault, order=pay.order_id)
        capture(lab, pay)
        lab.wait_held(rule)
        cancel(lab, pay)
        lab.all_looked()
        is_(calls(lab, pay, "cancel"), [], f"cancel during a capture, {fault}: it waits for the answer")
        lab.release(rule)
        (is_given_back if given_back else is_canceled)(lab, pay, f"cancel during a capture, {fault}")
        is_(len(calls(lab, pay)), 1, f"cancel during a capture, {fault}: captured no second time")

    conn = lab.connect(autocommit=False)
    pay = authorized(lab, "never sent", provider="still")
    capture(lab, pay, conn=conn)
    cancel(lab, pay, conn=conn)
    conn.commit()
    conn.close()
    is_canceled(lab, pay, "captured and canceled in one transaction")
    is_(calls(lab, pay), [], "the capture was never sent")


def expiry(lab):
    """C66: the authorization lapses while it is captured."""
    pay = authorized(lab, "lapses there", provider="still")
    rule = lab.rule("capture", "hold", order=pay.order_id)
    capture(lab, pay)
    lab.wait_held(rule)
    lab.act(pay.session_id, "expire")
    lab.release(rule)
    row = settled(lab, pay)
    is_((row.status, row.failure_code, entries(lab, pay), operations(lab, pay)[0].status), ("failed", "expired", [], "failed"),
        "C66: it had lapsed at the provider: failed, expired")

    pay = authorized(lab, "lapses here", provider="still")
    rule = lab.rule("capture", "hold", order=pay.order_id)
    capture(lab, pay)
    lab.wait_held(rule)
    lab.sql("UPDATE payflow.payment_sessions SET expires_at = now() - interval '1 minute', next_action_at = now() WHERE session_id = %s",
            [pay.session_id])
    lab.poll_sql("SELECT next_action_at > now() FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id])
    is_(get(lab, pay).status, "authorized", "C66: over by our clock, and still held there: it stays")
    lab.release(rule)
    is_captured(lab, pay, "C66: captured in time")


def by_itself(lab):
    """C8, B4: the provider captures by itself, another amount than was asked for, or more than there was."""
    for amount, found, alerted in ((1000, [], False), (600, ["captured_amount"], True)):
        pay = authorized(lab, f"by itself {amount}", provider="still")
        lab.act(pay.session_id, "pay", amount=amount)
        row = check(lab, pay)
        is_((row.status, row.paid, row.captured_amount, entries(lab, pay), findings(lab, pay)),
            ("completed", True, amount, [("payment_received", amount)], found), f"captured {amount} by itself: completed with that amount")
        is_(f"captured_amount:{pay.session_id}" in lab.alerts(), alerted, f"captured {amount}: {'an' if alerted else 'no'} alert")
        is_([e.detail["released"] for e in lab.journal(pay.session_id) if "released" in (e.detail or {})],
            [400] if amount == 600 else [], f"C64: captured {amount}: the rest is released, and shown")

    pay = authorized(lab, "by itself 1500", provider="still")
    lab.act(pay.session_id, "pay", amount=1500)
    row = check(lab, pay)
    is_((row.status, row.paid, row.captured_amount, row.suspense_amount, entries(lab, pay)),
        ("completed", True, 1000, 500, [("payment_received", 1000), ("unexpected_received", 500)]),
        "more than was authorized: the excess is unexpected money")
    is_((findings(lab, pay), check(lab, pay).suspense_amount), (["unexpected_money"], 500), "with a discrepancy, once")

    pay = authorized(lab, "another than asked for", provider="still")
    rule = lab.rule("capture", "hold", order=pay.order_id)
    capture(lab, pay, 400)
    lab.wait_held(rule)
    lab.act(pay.session_id, "pay", amount=700)
    row = check(lab, pay)
    lab.release(rule)
    row = settled(lab, pay)
    is_((row.status, row.captured_amount, entries(lab, pay), findings(lab, pay), provider_money(lab, pay)),
        ("completed", 700, [("payment_received", 700)], ["captured_amount"], (700, 0)),
        "700 captured by itself while 400 were asked for: completed with 700, a discrepancy")

    pay = authorized(lab, "another currency", provider="still")
    lab.act(pay.session_id, "pay", amount=1000, currency="USD")
    row = check(lab, pay)
    is_((row.status, row.failure_code, row.paid, row.suspense_amount, entries(lab, pay)),
        ("failed", "amount_mismatch", False, 0, [("unexpected_received", 1000)]), "B4: another currency: failed, in suspense as it is")
    is_(lab.one("SELECT currency::text FROM payflow.accounting_entries WHERE session_id = %s", [pay.session_id]), "USD",
        "B4: in the provider's currency")


def above_read_committed(lab):
    """A11: by an old snapshot: done, replayed or 40001; never a second capture."""
    for level in ("repeatable\\ read", "serializable"):
        name = level.replace("\\", "")
        conn = lab.connect(autocommit=False, options=f"-c default_transaction_isolation={level}")
        pay = authorized(lab, f"A11 {name}", provider="still")
        get(lab, pay, conn=conn)
        lab.all_looked()
        is_(capture(lab, pay, 300, f"A11 {name}", conn=conn).replayed, False, f"A11: {name}: captured")
        is_(capture(lab, pay, 300, f"A11 {name}", conn=conn).replayed, True, f"A11: {name}: again: replayed")
        conn.commit()
        is_captured(lab, pay, f"A11: {name}", 300)

        pay = authorized(lab, f"A11 {name}, old", provider="still")
        others = [lab.connect(autocommit=False, options=f"-c default_transaction_isolation={level}") for _ in range(3)]
        for other in others:
            get(lab, pay, conn=other)
        capture(lab, pay, 300, f"A11 {name}, old")
        for key, other in zip((f"A11 {name}, old", f"A11 {name}, other", None), others):
            is_(error_of(lab, CAPTURE, [pay.session_id, 300, key], other), ("40001", None), f"A11: {name}: old snapshot, key {key}: 40001")
            other.close()
        is_(capture(lab, pay, 300, f"A11 {name}, old", conn=conn).replayed, True, f"A11: {name}: tried again: replayed")
        conn.commit()
        is_captured(lab, pay, f"A11: {name}, old", 300)
        conn.close()


with Lab(workers=2, conf={"payflow.poll_interval": "100ms", "fsync": "off"}) as lab:
    front, hasty = Front(lab.url), Front(lab.url)
    lab.option(poll_intervals="100 ms", breaker_failures=1000000)
    lab.add_server("still", poll_intervals="1 hour", breaker_failures="1000000")
    lab.add_server("front", front.url, poll_intervals="100 ms", breaker_failures="1000000")
    lab.add_server("hasty", hasty.url, poll_intervals="100 ms", breaker_failures="1000000", timeout="1 s")
    whole_and_part(lab, front)
    not_capturable(lab)
    keys(lab)
    lost_answers(lab)
    unknown_capture(lab)
    key_runs_out(lab)
    refused(lab)
    failed_at_the_bank(lab)
    crowds(lab)
    cancel_during_capture(lab, front)
    expiry(lab)
    by_itself(lab)
    above_read_committed(lab)
    is_(lab.one(f"SELECT count(*) FROM payflow.operations WHERE {UNSETTLED}"), 0, "nothing is left undone")
    ok(not lab.log_contains(r"payflow worker .*(ERROR|FATAL|could not|PANIC)"), "no worker has complained")
    lab.finish()
done_testing()
