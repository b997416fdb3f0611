"""cancel(): C1, C2, C3, C4, C5, C6, C38, C72 and A10, with both sides counted.

Where a payment stands when it is canceled, what becomes of the call that is
under way, who is faster, and what is lost on the way: it ends canceled with
nothing taken, or completed with all of it given back.  At most one Reverse is
worked at the provider, under a key of its own, and a code works once.

Protection: the order's row, locked before anything is looked at; one operation
reverse a session (ux_operation_reverse); its mark and its key; guarded UPDATEs
of the code.  Server "still" asks only when a test rings; the others by themselves.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg2

from payflow_test import Lab, done_testing, is_, isnt, like, ok, poll, threads_at_barrier
from wire import Front, answer, close, pass_on, pass_on_and_close, reset, silent

UNSETTLED = "status IN ('pending', 'sent', 'unknown')"
CANCEL = "SELECT * FROM payflow.cancel(%s::uuid, %s, %s)"


# ---- helpers -----------------------------------------------------------------

def create(lab, order, amount=1000, capture="automatic", provider=None, merchant="default", conn=None):
    return lab.row("""SELECT * FROM payflow.create(%s, %s, 'EUR', capture => %s, provider => %s, merchant => %s)""",
                   [order, amount, capture, provider, merchant], conn=conn)


def registered(lab, order, **args):
    pay = create(lab, order, **args)
    return lab.poll_session(pay.session_id, "registered")


def authorized(lab, order, **args):
    pay = registered(lab, order, capture="manual", **args)
    lab.act(pay.session_id, "authorize")
    poll(lambda: lab.ring(pay.session_id), what="its alarm")
    return lab.poll_session(pay.session_id, "authorized")


def cancel(lab, pay, code=None, reason=None, conn=None):
    return lab.row(CANCEL, [pay.session_id, code, reason], conn=conn)


def get(lab, pay, conn=None):
    return lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id], conn=conn)


def check(lab, pay, conn=None):
    return lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id], conn=conn)


def error_of(lab, query, args, conn=None):
    error = lab.error(query, args, conn=conn)
    return None if error is None else (error.pgcode, error.diag.message_detail)


def calls(lab, pay, operation):
    return lab.requests(pay.session_id, operation)


def operations(lab, pay, kind=None):
    return lab.sql("""SELECT *, created_xid::text AS xid FROM payflow.operations WHERE session_id = %s
                      AND kind = coalesce(%s, kind) ORDER BY operation_id""", [pay.session_id, kind])


def entries(lab, pay):
    return [(e.entry_type, e.amount) for e in lab.sql(
        "SELECT * FROM payflow.accounting_entries WHERE session_id = %s ORDER BY entry_id", [pay.session_id])]


def settled(lab, pay, *statuses):
    """Wait until it has ended and nothing of it is under way."""
    row = lab.poll_session(pay.session_id, *(statuses or ("canceled", "completed", "failed")))
    lab.poll_sql(f"""SELECT count(*) = 0 FROM payflow.operations WHERE session_id = %s AND {UNSETTLED}
                     AND kind <> 'after_look'""", [pay.session_id], what="its operations to be settled")
    return get(lab, pay) or row


def provider_money(lab, pay):
    stats = lab.stats(reference=pay.session_id)
    return stats["captured"], stats["refunded"]


def is_canceled(lab, pay, name, reverses=1):
    """Canceled, nothing taken; the Reverse was sent so often, under one key that is the operation's own."""
    row = settled(lab, pay)
    sent = calls(lab, pay, "cancel")
    is_((row.status, row.paid, row.captured_amount, entries(lab, pay), provider_money(lab, pay), row.order_status),
        ("canceled", False, 0, [], (0, 0), "open"), f"{name}: canceled, nothing taken, nothing booked")
    is_(len(sent), reverses, f"{name}: Reverse was sent {reverses} times")
    if reverses:
        reverse, = operations(lab, pay, "reverse")
        is_({(c["key"], c["body_sha256"]) for c in sent} == {(str(reverse.operation_id), sent[0]["body_sha256"])}, True,
            f"{name}: with its own key, the same bytes")
        is_({p["status"] for p in lab.payments(row.order_id)}, {"canceled"}, f"{name}: canceled at the provider")
    return row


def is_given_back(lab, pay, name, captured=1000):
    """The cancel has lost: booked, and given back by one refund."""
    row = settled(lab, pay)
    refunds = operations(lab, pay, "refund")
    is_((row.status, row.paid, row.captured_amount, row.refunded_amount, row.refundable_amount, row.order_status),
        ("completed", False, captured, captured, 0, "refunded"), f"C6: {name}: completed, refunded, never paid")
    is_(entries(lab, pay), [("payment_received", captured), ("refund_sent", captured)], f"C6: {name}: booked, then given back")
    is_(([r.status for r in refunds], provider_money(lab, pay)), (["succeeded"], (captured, captured)),
        f"C6: {name}: one refund; the provider's money is 0")
    is_(lab.session(pay.session_id).cancel_lost, True, f"C6: {name}: cancel_lost")
    ok(f"cancel_lost:{pay.session_id}" in lab.alerts(), f"C6: {name}: with an alert")
    receipt = lab.row("""SELECT xmin::text AS xid FROM payflow.accounting_entries WHERE session_id = %s
                         AND entry_type = 'payment_received'""", [pay.session_id])
    step = lab.sql("""SELECT xmin::text AS xid FROM payflow.journal WHERE session_id = %s AND from_status = 'canceling'
                      AND to_status = 'completed'""", [pay.session_id])
    is_(([s.xid for s in step], [str(int(r.xid) % 2 ** 32) for r in refunds]), ([receipt.xid], [receipt.xid]),
        f"C6: {name}: receipt, refund and step in one transaction")
    sent = calls(lab, pay, "refund")
    is_({c["key"] for c in sent}, {str(refunds[0].operation_id)}, f"C6: {name}: with a key of its own")
    return row


def gated(event, then):
    """An act of a Front: wait for the event, then do that."""
    def act(front, connection, request):
        event.wait()
        return then(front, connection, request)
    return act


def refusal(status, code):
    body = b'{"error":{"code":"%s","message":"made by the test"}}' % code.encode()
    return answer(b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)


# ---- C5: before Register ------------------------------------------------------

def ended_locally(lab, pay, name):
    lab.all_looked()
    row = settled(lab, pay)
    is_((row.status, row.http_status, row.failure_code), ("canceled", 200, None), f"C5: {name}: canceled at once")
    is_((lab.requests(pay.session_id), operations(lab, pay), lab.stats(order=row.order_id)["payments"]), ([], [], 0),
        f"C5: {name}: no call was ever made")
    is_([(e.event, e.from_status, e.to_status) for e in lab.journal(pay.session_id) if e.from_status != e.to_status],
        [("cancel", "registering", "canceled")], f"C5: {name}: one step in the journal")


def before_register(lab):
    """C5.  Protection: first_sent_at, which the claim commits before the call and cancel reads with the row locked."""
    conn = lab.connect(autocommit=False)
    pay = create(lab, "same transaction", conn=conn)
    row = cancel(lab, pay, conn=conn)
    is_((row.status, row.http_status, row.replayed), ("canceled", 200, False), "C5: created and canceled in one transaction")
    is_(cancel(lab, pay, conn=conn).replayed, True, "C5: again: replayed")
    conn.commit()
    ended_locally(lab, pay, "in the same transaction")

    pay = create(lab, "held", conn=conn)
    is_(error_of(lab, CANCEL, [pay.session_id, None, None]), ("PT404", "session_not_found"),
        "C5: one that is not committed cannot be canceled by others")
    conn.commit()
    lab.poll_session(pay.session_id, "registered")
    cancel(lab, pay, conn=conn)
    conn.rollback()
    lab.all_looked()
    is_((get(lab, pay).status, calls(lab, pay, "cancel"), operations(lab, pay)), ("registered", [], []),
        "a cancel that is rolled back: nothing happened")
    cancel(lab, pay)
    is_canceled(lab, pay, "then canceled")
    conn.close()

    lab.sql("ALTER SYSTEM SET payflow.queues = 'status,money'")
    lab.sql("SELECT pg_reload_conf()")
    poll(lambda: {row.queues for row in lab.sql("SELECT queues FROM payflow.workers")} == {"status,money"}, what="two queues")
    pay = create(lab, "nobody registers")
    lab.all_looked()
    cancel(lab, pay)
    lab.sql("ALTER SYSTEM RESET payflow.queues")
    lab.sql("SELECT pg_reload_conf()")
    poll(lambda: any("payments" in row.queues for row in lab.sql("SELECT queues FROM payflow.workers")), what="all queues")
    ended_locally(lab, pay, "payments not worked")

    for pid in lab.workers():
        lab.stop_worker(pid)
    pay = create(lab, "no workers")
    is_(cancel(lab, pay).status, "canceled", "C5: workers standing still: canceled at once")
    again = create(lab, "no workers", 2000)
    is_((again.replayed, again.amount), (False, 2000), "A7: and the order is free")
    cancel(lab, again)
    lab.go_on(*lab.workers())
    ended_locally(lab, pay, "workers standing still")


def claim_and_cancel(lab):
    """C5: the claim and cancel at the same moment, many times: known to the provider and reversed, or never sent."""
    def begin_and_cancel(i, conn):
        pay = create(lab, f"claimed or not {i}", conn=conn)
        row = cancel(lab, pay, conn=conn)
        return pay, row

    done = threads_at_barrier(12, begin_and_cancel, lambda i: lab.connect())
    local = 0
    for pay, first in done:
        row = settled(lab, pay)
        sent = lab.requests(pay.session_id, "register")
        local += not sent
        is_((row.status, len(sent) <= 1, {p["status"] for p in lab.payments(row.order_id)} <= {"canceled"},
             len(calls(lab, pay, "cancel")) == len(sent), first.status == "canceled" if not sent else first.status),
            ("canceled", True, True, True, True if not sent else "canceling"),
            f"C5: {row.order_id}: {'never sent' if not sent else 'sent, then reversed'}")


# ---- C5: while Register is in flight -------------------------------------------

def in_flight(lab, front, hasty):
    """C5.  Protection: the reverse waits, without an alarm, until the provider's answer says that there is something."""
    def late(front, connection, request):
        released.wait()
        front.ask_provider(request)
        return False

    def authorizes(front, connection, request):
        data = front.ask_provider(request)
        lab.act(orders[request.order].session_id, "authorize")
        connection.sendall(data)
        return True

    def pays(front, connection, request):
        data = front.ask_provider(request)
        lab.act(orders[request.order].session_id, "pay")
        connection.sendall(data)
        return True

    event, released = threading.Event(), threading.Event()
    # what comes of Register; the server; payments, how often Reverse is sent
    plans = {
        "success": (pass_on, "front", 1, 1),
        "authorized": (authorizes, "front", 1, 1),
        "declined": (refusal(402, "card_declined"), "front", 0, 0),
        "refused": (refusal(422, "invalid_amount"), "front", 0, 0),
        "lost, done": (pass_on_and_close, "front", 1, 1),
        "cut off": (close, "front", 0, 0),
        "reset": (reset, "front", 0, 0),
        "never": (silent, "hasty", 0, 0),
        "after our time": (late, "hasty", 1, 1),
        "paid": (pays, "front", 1, 1),
    }
    endless = {"cut off", "reset", "never"}
    orders = {}
    for order, (then, server, _, _) in plans.items():
        (hasty if server == "hasty" else front).plan("register", order, then if server == "hasty" else gated(event, then))
        orders[order] = create(lab, order, provider=server, capture="manual" if order == "authorized" else "automatic")
    for order, pay in orders.items():
        poll(lambda: (hasty if plans[order][1] == "hasty" else front).sent("register", order), what=f"Register of {order}")
        row = cancel(lab, pay, reason="changed his mind")
        is_((row.status, row.stage, row.http_status, row.replayed), ("canceling", "register", 202, False),
            f"C5: Register in flight, {order}: canceling")
        reverse, = operations(lab, pay)
        is_((reverse.kind, reverse.status, reverse.next_action_at, reverse.reason), ("reverse", "pending", None, "changed his mind"),
            f"C5: {order}: the reverse waits")
        again = cancel(lab, pay)
        is_((again.replayed, again.http_status, len(operations(lab, pay))), (True, 202, 1), f"C2: {order}: again: replayed")
    is_([calls(lab, pay, "cancel") for pay in orders.values()], [[]] * len(orders), "C5: nothing is reversed before it is known")
    event.set()
    lab.ring(*[pay.session_id for pay in orders.values()])
    # the lease of those that are lost for ever was taken for a whole call
    for order in endless | {"after our time"}:
        poll(lambda: lab.journal(orders[order].session_id, "register"), what=f"the end of {order}")
        lab.ring(orders[order].session_id)
    released.set()
    for order, (_, server, payments, reverses) in plans.items():
        if order in endless or order == "paid":
            continue
        is_canceled(lab, orders[order], f"C5: Register in flight, {order}", reverses)
        is_((lab.stats(order=order)["payments"], len((hasty if server == "hasty" else front).sent("register", order))),
            (payments, 1), f"C5: {order}: one Register")
    is_given_back(lab, orders["paid"], "paid while Register was in flight")

    for order in sorted(endless):
        pay = orders[order]
        asked = lambda: len((hasty if plans[order][1] == "hasty" else front).sent("find", order))  # noqa: E731
        before = asked()
        poll(lambda: lab.ring(pay.session_id) and asked() >= before + 2, what="two more questions")
        row = get(lab, pay)
        is_((row.status, row.stage, lab.session(pay.session_id).next_action_at is not None), ("canceling", "register", True),
            f"C5: {order}: a search that finds nothing proves nothing: asked again and again")
        lab.poll_sql("SELECT lease_until IS NULL FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id])
        lab.sql("""UPDATE payflow.payment_sessions SET first_sent_at = now() - interval '48 hours 1 second', next_action_at = now()
                   WHERE session_id = %s""", [pay.session_id])
        row = lab.poll_session(pay.session_id, "canceled", "failed", "completed")
        is_((row.status, calls(lab, pay, "cancel"), lab.stats(order=order)["payments"]), ("canceled", [], 0),
            f"C5: {order}: key validity, lifetime and grace are over: canceled")
        is_([(o.kind, o.status, o.next_action_at is not None) for o in operations(lab, pay)],
            [("reverse", "failed", False), ("after_look", "pending", True)], f"C5: {order}: asking goes on for a while")
        is_(len((hasty if plans[order][1] == "hasty" else front).sent("register", order)), 1, f"C5: {order}: never registered again")


# ---- C2, C4: known to the provider ----------------------------------------------

def known(lab):
    """B5, A10: registered, or authorized (a void): one Reverse, with a key of its own."""
    for name, begin in (("registered", registered), ("authorized", authorized)):
        pay = begin(lab, name)
        row = cancel(lab, pay, reason="no longer wanted")
        is_((row.status, row.stage, row.http_status, row.replayed), ("canceling", "reverse", 202, False), f"{name}: canceling")
        row = is_canceled(lab, pay, name)
        reverse, = operations(lab, pay)
        is_((reverse.kind, reverse.status, reverse.reason), ("reverse", "succeeded", "no longer wanted"), f"{name}: reversed")
        isnt(calls(lab, pay, "cancel")[0]["key"], calls(lab, pay, "register")[0]["key"], f"A10: {name}: not the key of Register")
        is_(lab.payments(name)[0]["authorized"], 0, f"{name}: nothing is held any more")
        again = cancel(lab, pay)
        is_((again.status, again.replayed, again.http_status), ("canceled", True, 200), f"C2: {name}: canceled: replayed")
        lab.all_looked()
        is_(len(calls(lab, pay, "cancel")), 1, f"C2: {name}: and no second Reverse")
        is_(error_of(lab, "SELECT payflow.issue_cancel_code(%s::uuid)", [pay.session_id]), ("PT409", "not_cancelable"),
            f"{name}: no code for what is canceled")


def repeated(lab, pool):
    """C2: while the Reverse is under way, all others see it."""
    pay = registered(lab, "repeated")
    rule = lab.rule("cancel", "hold", order="repeated")
    rows = threads_at_barrier(8, lambda i, conn: cancel(lab, pay, conn=conn), lambda i: lab.connect())
    is_(sorted((r.replayed, r.status, r.http_status) for r in rows), [(False, "canceling", 202)] + [(True, "canceling", 202)] * 7,
        "C2: 8 cancels at once: one has started it, the others see it")
    lab.wait_held(rule)
    row = cancel(lab, pay, code="0000000")
    is_((row.replayed, row.http_status), (True, 202), "C2: while it is under way a code is not looked at")
    lab.ring(pay.session_id)
    lab.all_looked()
    lab.release(rule)
    is_canceled(lab, pay, "C2: repeated")
    is_(len(operations(lab, pay)), 1, "C2: one operation")


def final(lab):
    """C38, C70: what has ended cannot be canceled."""
    pay = registered(lab, "C38 failed")
    lab.act(pay.session_id, "decline")
    lab.poll_session(pay.session_id, "failed")
    is_(error_of(lab, CANCEL, [pay.session_id, None, None]), ("PT409", "not_cancelable"), "C38: failed: not_cancelable")
    pay = registered(lab, "C38 completed")
    lab.act(pay.session_id, "pay")
    lab.poll_session(pay.session_id, "completed")
    error = lab.error(CANCEL, [pay.session_id, None, None])
    is_((error.pgcode, error.diag.message_detail), ("PT409", "not_cancelable"), "C38: completed: not_cancelable")
    like(error.diag.message_hint, "refund", "C38: with a hint to refund it")
    is_((get(lab, pay).paid, calls(lab, pay, "cancel"), operations(lab, pay)), (True, [], []), "C38: and nothing has happened")


# ---- C1, C3, C72: codes ------------------------------------------------------------

def code_row(lab, pay):
    return lab.row("SELECT * FROM payflow.cancel_codes WHERE session_id = %s", [pay.session_id])


def issue(lab, pay, ttl="5 minutes", digits=6, conn=None):
    return lab.one("SELECT payflow.issue_cancel_code(%s::uuid, %s, %s)", [pay.session_id, ttl, digits], conn=conn)


def other_than(code):
    return str((int(code) + 1) % 10 ** len(code)).zfill(len(code))


def untouched(lab, pay, name):
    lab.all_looked()
    is_((get(lab, pay).status, operations(lab, pay), calls(lab, pay, "cancel")), ("registered", [], []), name)


def codes(lab):
    """C1, C3: required, wrong, rolled back, dead by age, by use, by a newer one."""
    lab.sql("INSERT INTO payflow.merchants (id, default_provider, cancel_requires_code) VALUES ('coded', 'still', true)")
    pay = registered(lab, "C1", merchant="coded")
    row = cancel(lab, pay)
    is_((row.http_status, row.status, row.replayed), (403, "registered", False), "C1: a code is required: 403")
    is_(cancel(lab, pay, "123456").http_status, 403, "C1: none was issued: 403")
    untouched(lab, pay, "C1: nothing has happened")
    code = issue(lab, pay)
    like(code, "^[0-9]{6}$", "C3: a code of six digits")
    is_(cancel(lab, pay, other_than(code)).http_status, 403, "C3: a wrong one: 403")
    is_((code_row(lab, pay).failures, code_row(lab, pay).used_at), (1, None), "C3: it is counted")
    is_(cancel(lab, pay).http_status, 403, "C3: none at all: 403")

    conn = lab.connect(autocommit=False)
    is_(cancel(lab, pay, code, conn=conn).status, "canceling", "C1: the right one, in a transaction")
    conn.rollback()
    is_(code_row(lab, pay).used_at, None, "C1: that is rolled back: the code is still good")
    untouched(lab, pay, "C1: and nothing has happened")

    newer = issue(lab, pay, digits=8)
    like(newer, "^[0-9]{8}$", "a code of eight digits")
    is_((cancel(lab, pay, code).http_status, code_row(lab, pay).failures), (403, 1), "C3: the newer one kills the older")
    lab.sql("UPDATE payflow.cancel_codes SET expires_at = now() - interval '1 second' WHERE session_id = %s", [pay.session_id])
    is_((cancel(lab, pay, newer).http_status, code_row(lab, pay).used_at), (403, None), "C3: expired: 403")
    code = issue(lab, pay)
    used = lab.one("UPDATE payflow.cancel_codes SET used_at = now() WHERE session_id = %s RETURNING used_at", [pay.session_id])
    is_((cancel(lab, pay, code).http_status, code_row(lab, pay).used_at), (403, used), "C3: used before: 403")
    is_((cancel(lab, pay, other_than(code)).http_status, code_row(lab, pay).failures), (403, 0), "C3: and not to be guessed")
    untouched(lab, pay, "C3: nothing has happened")
    code = issue(lab, pay, "10 seconds", 12)
    is_(code_row(lab, pay).failures, 0, "C3: a new one counts anew")
    rule = lab.rule("cancel", "hold", order="C1")
    row = cancel(lab, pay, code)
    is_((row.status, row.http_status, code_row(lab, pay).used_at is not None), ("canceling", 202, True),
        "C1: the right one: used up, canceling")
    is_([(o.kind, str(int(o.xid) % 2 ** 32)) for o in operations(lab, pay)],
        [("reverse", lab.one("SELECT xmin::text FROM payflow.cancel_codes WHERE session_id = %s", [pay.session_id]))],
        "C1: code and reverse in one transaction")
    lab.wait_held(rule)
    is_((cancel(lab, pay, code).replayed, cancel(lab, pay, "000000").replayed), (True, True), "C2: then the code is not looked at")
    lab.release(rule)
    is_canceled(lab, pay, "C1")

    pay = registered(lab, "C3 not required", provider="still")
    code = issue(lab, pay)
    is_(cancel(lab, pay, other_than(code)).http_status, 403, "C3: not required, but a wrong one is given: 403")
    untouched(lab, pay, "C3: not required: nothing has happened")
    is_(cancel(lab, pay).status, "canceling", "C3: without one it is canceled")
    is_canceled(lab, pay, "C3: not required")

    other = registered(lab, "C3 another's", merchant="coded")
    issue(lab, other)
    pay = registered(lab, "C3 mine", merchant="coded")
    code = issue(lab, pay)
    if code_row(lab, other).code_hash != code_row(lab, pay).code_hash:
        is_(cancel(lab, other, code).http_status, 403, "C3: another session's code is wrong")
    for what, args in (("ttl", ["0 seconds", 6]), ("ttl", ["-1 day", 6]), ("ttl", ["25 hours", 6]), ("digits", ["1 hour", 3]),
                       ("digits", ["1 hour", 13])):
        is_(error_of(lab, "SELECT payflow.issue_cancel_code(%s::uuid, %s, %s)", [pay.session_id, *args]),
            ("PT400", "invalid_argument"), f"{what} {args} is refused")
    for pay in (other, pay):
        cancel(lab, pay, issue(lab, pay))
        is_canceled(lab, pay, "C3: cleaned up")


def crowds(lab):
    """C72.  Protection: the code is used, and failures counted, by guarded UPDATEs with the order locked."""
    pay = registered(lab, "C72 right", merchant="coded")
    code = issue(lab, pay)
    rule = lab.rule("cancel", "hold", order="C72 right")
    rows = threads_at_barrier(20, lambda i, conn: cancel(lab, pay, code, conn=conn), lambda i: lab.connect())
    is_(sorted((r.replayed, r.status, r.http_status) for r in rows), [(False, "canceling", 202)] + [(True, "canceling", 202)] * 19,
        "C72: 20 with the right code: one success, the others see it")
    is_(len(operations(lab, pay)), 1, "C72: one reverse")
    lab.wait_held(rule)
    lab.release(rule)
    is_canceled(lab, pay, "C72")

    pay = registered(lab, "C72 wrong", merchant="coded")
    code = issue(lab, pay)
    wrong = other_than(code)
    rows = threads_at_barrier(20, lambda i, conn: cancel(lab, pay, wrong, conn=conn), lambda i: lab.connect())
    is_([(r.status, r.http_status) for r in rows], [("registered", 403)] * 20, "C72: 20 wrong ones at once: 403")
    is_((code_row(lab, pay).failures, [e.detail["failures"] for e in lab.journal(pay.session_id, "cancel_code_wrong")]),
        (5, [1, 2, 3, 4, 5]), "C72: five are counted, then it is dead")
    is_((cancel(lab, pay, code).http_status, code_row(lab, pay).used_at), (403, None), "C72: for the right one too")
    untouched(lab, pay, "C72: nothing has happened")
    is_(cancel(lab, pay, issue(lab, pay)).status, "canceling", "C72: a new code works")
    is_canceled(lab, pay, "C72: with a new code")

    pay = registered(lab, "C72 mixed", merchant="coded")
    code = issue(lab, pay)
    rows = threads_at_barrier(20, lambda i, conn: cancel(lab, pay, code if i % 2 else other_than(code), conn=conn),
                              lambda i: lab.connect())
    started = sum(not r.replayed and r.http_status == 202 for r in rows)
    failures = code_row(lab, pay).failures
    is_((started, len(operations(lab, pay))) if failures < 5 else (0, 0), (1, 1) if failures < 5 else (0, 0),
        f"C72: right and wrong mixed: {failures} wrong ones came first, {started} success")
    if failures == 5:
        cancel(lab, pay, issue(lab, pay))
    is_canceled(lab, pay, "C72: mixed")

    pay = registered(lab, "C72 timeout", provider="hasty", merchant="coded")
    code = issue(lab, pay)
    lab.rule("cancel", "stall_body", order="C72 timeout")
    cancel(lab, pay, code)
    is_canceled(lab, pay, "C72: the provider times out")
    is_(code_row(lab, pay).used_at is not None, True, "C72: the code was used up")


def secret(lab):
    """C3: a code is nowhere but in the result of the call that makes it.  The test never names it in a query either."""
    mark = lab.log_mark()
    options = "-c log_statement=all -c log_min_messages=debug1 -c log_parameter_max_length_on_error=-1 -c log_min_duration_statement=0"
    conn = lab.connect(options=options)
    pay = registered(lab, "C3 secret", merchant="coded")
    lab.sql("CREATE TEMP TABLE mine (code text)", conn=conn)
    lab.sql("INSERT INTO mine SELECT payflow.issue_cancel_code(%s::uuid, '1 hour', 12)", [pay.session_id], conn=conn)
    code = lab.one("SELECT code FROM mine", conn=conn)
    by_table = "SELECT * FROM payflow.cancel(%s::uuid, (SELECT code FROM mine))"
    lab.sql("""CREATE FUNCTION public.fail_cancel() RETURNS trigger LANGUAGE plpgsql AS
               $$BEGIN RAISE EXCEPTION 'made by the test'; END$$""")
    lab.sql("""CREATE TRIGGER fail_cancel BEFORE INSERT ON payflow.operations FOR EACH ROW
               WHEN (NEW.order_id = 'C3 secret') EXECUTE FUNCTION public.fail_cancel()""")
    like(lab.error(by_table, [pay.session_id], conn=conn), "made by the test", "an error in the middle of it")
    lab.sql("DROP TRIGGER fail_cancel ON payflow.operations")
    is_(code_row(lab, pay).used_at, None, "C1: then the code is still good")
    with lab.gate("payflow.payment_sessions", "UPDATE", "NEW.order_id = 'C3 secret'") as gate:
        other = threading.Thread(target=lambda: lab.sql(by_table, [pay.session_id], conn=conn))
        other.start()
        gate.wait_held()
        seen = lab.sql("SELECT pg_stat_activity::text AS line FROM pg_stat_activity")
    other.join()
    is_canceled(lab, pay, "C3: secret")
    is_([row.line for row in seen if code in row.line], [], "C3: not in pg_stat_activity while it is used")
    for table in lab.sql("""SELECT c.oid::regclass::text AS name FROM pg_class c WHERE c.relnamespace = 'payflow'::regnamespace
                            AND c.relkind = 'r'"""):
        is_(lab.one(f"SELECT count(*) FROM {table.name} t WHERE t::text LIKE %s", [f"%{code}%"]), 0, f"C3: not in {table.name}")
    is_(code in lab.log(mark), False, "C3: not in the log, all statements logged")
    conn.close()


# ---- C4: the answer of the Reverse ---------------------------------------------------

def lost_answers(lab):
    """C4, A10: resolved by the status; sent again only if it was not done, with the same key and bytes."""
    # how often it is sent in all
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
        "another's": ("sandbox", ("answer", {"id": "pay_foreign", "reference": "x", "status": "canceled", "amount": 1000,
                                             "currency": "EUR"}), {}, 2),
        "429": ("sandbox", ("status", 429), {"retry_after": 0}, 2),
        "401": ("sandbox", ("status", 401), {}, 2),
        "404": ("sandbox", ("notfound",), {}, 2),
        "key_in_use": ("sandbox", ("status", 409), {"code": "key_in_use"}, 2),
    }
    pays = {}
    for fault, (server, action, more, _) in faults.items():
        for begin in (registered, authorized):
            name = f"{fault}, {begin.__name__}"
            pays[name] = begin(lab, name, provider=server)
            lab.rule("cancel", *action, order=name, **more)
    for pay in pays.values():
        cancel(lab, pay)
    for name, pay in pays.items():
        is_canceled(lab, pay, f"C4: {name}", faults[name.split(",")[0]][3])
        is_(operations(lab, pay)[0].status, "succeeded", f"C4: {name}: the reverse has succeeded")
    lab.sql("UPDATE payflow.alerts SET closed_at = now() WHERE closed_at IS NULL")


def refused(lab):
    """The provider refuses the Reverse: an alert, it stays, and ends by the provider's state."""
    ends = {"canceled": ("expire", "canceled"), "declined": ("decline", "canceled"), "paid": ("pay", "completed"),
            "void at the provider": ("cancel", "canceled")}
    pays = {}
    for name, (act, _) in ends.items():
        for word, status in (("409", 409), ("402", 402)):
            order = f"refused {word}, {name}"
            pays[order] = (authorized if word == "402" else registered)(lab, order)
            lab.rule("cancel", "status", status, code="not_cancelable", order=order, times=0)
            cancel(lab, pays[order])
    for order, pay in pays.items():
        act, end = ends[order.split(", ", 1)[1]]
        reverse = lambda: operations(lab, pay, "reverse")[0]  # noqa: E731
        poll(lambda: reverse().status == "failed", what="the refusal")
        row = get(lab, pay)
        is_((row.status, row.stage, reverse().failure_code, row.next_action_at is not None), ("canceling", "reverse", "refused", True),
            f"C4: {order}: it stays, with an alarm")
        ok(f"operation_refused:{reverse().operation_id}" in lab.alerts(), f"C4: {order}: with an alert")
        asked = len(calls(lab, pay, "get"))
        poll(lambda: len(calls(lab, pay, "get")) > asked, what="to be asked on")
        is_(get(lab, pay).status, "canceling", f"C4: {order}: still canceling")
        lab.act(pay.session_id, act)
        if end == "completed":
            is_given_back(lab, pay, order)
        else:
            row = settled(lab, pay)
            is_((row.status, entries(lab, pay), provider_money(lab, pay)), ("canceled", [], (0, 0)), f"C4: {order}: canceled in the end")
        is_(len(calls(lab, pay, "cancel")), 1, f"C4: {order}: what was refused is not sent again by itself")
    lab.clear_rules()


def out_of_reach(lab):
    """C4: out of reach for longer than the key is valid: alerts; then never sent again, only asked."""
    pay = registered(lab, "out of reach")
    rule = lab.rule("*", "status", 503, order="out of reach", times=0)
    cancel(lab, pay)
    poll(lambda: lab.ring(pay.session_id) and len(calls(lab, pay, "cancel")) >= 1 and len(calls(lab, pay, "get")) >= 2,
         what="Reverse and questions")
    reverse, = operations(lab, pay)
    is_((get(lab, pay).status, reverse.status), ("canceling", "sent"), "out of reach: canceling, it may have been done")
    is_({f"unresolved:{pay.session_id}", f"operation_unresolved:{reverse.operation_id}"} & lab.alerts(), set(), "no alert so far")
    lab.poll_sql("""SELECT true FROM payflow.payment_sessions s JOIN payflow.operations o USING (session_id) WHERE session_id = %s
                    AND s.lease_until IS NULL AND o.lease_until IS NULL""", [pay.session_id])
    lab.sql("""UPDATE payflow.payment_sessions SET unresolved_since = now() - interval '61 minutes', next_action_at = now()
               WHERE session_id = %s""", [pay.session_id])
    lab.sql("""UPDATE payflow.operations SET unresolved_since = now() - interval '61 minutes', next_action_at = now(),
               first_sent_at = now() - interval '23 hours' WHERE session_id = %s""", [pay.session_id])
    poll(lambda: {f"unresolved:{pay.session_id}", f"operation_unresolved:{reverse.operation_id}"} <= lab.alerts(), what="both alerts")
    poll(lambda: operations(lab, pay)[0].status == "unknown", what="unknown")
    sent = len(calls(lab, pay, "cancel"))
    is_(len({c["key"] for c in calls(lab, pay, "cancel")}), 1, "A10: out of reach: one key in all that time")
    lab.release(rule)
    asked = len(calls(lab, pay, "get"))
    poll(lambda: lab.ring(pay.session_id) and lab.sql("""UPDATE payflow.operations SET next_action_at = now()
         WHERE session_id = %s AND next_action_at IS NOT NULL RETURNING 1""", [pay.session_id])
         and len(calls(lab, pay, "get")) >= asked + 4, what="questions")
    is_((len(calls(lab, pay, "cancel")), get(lab, pay).status), (sent, "canceling"),
        "A10: past the key's validity it is never sent again; still pending there: canceling")
    lab.act(pay.session_id, "expire")
    lab.ring(pay.session_id)
    row = settled(lab, pay)
    is_((row.status, len(calls(lab, pay, "cancel")), entries(lab, pay)), ("canceled", sent, []), "it lapses there: canceled")


# ---- C6: against a payment -------------------------------------------------------------

def loses(lab, pool):
    """C6, C38: paid before the Reverse arrives, or while it is under way."""
    pay = registered(lab, "C38 unknown to us", provider="still")
    lab.act(pay.session_id, "pay")
    cancel(lab, pay)
    is_given_back(lab, pay, "C38: it was paid, and we did not know")
    is_((len(calls(lab, pay, "cancel")), len(calls(lab, pay, "refund"))), (1, 1), "C38: the Reverse was refused, the refund not")

    for name, begin in (("paid", registered), ("captured", authorized)):
        order = f"{name} while reversed"
        pay = begin(lab, order, provider="still")
        rule = lab.rule("cancel", "hold", order=order)
        cancel(lab, pay)
        lab.wait_held(rule)
        lab.act(pay.session_id, "pay")
        row = check(lab, pay)
        is_((row.status, row.paid, row.order_status, row.captured_amount, row.refundable_amount),
            ("completed", False, "refunding", 1000, 0), f"C6: {order}: completed, all of it on its way back")
        is_([(o.kind, o.status) for o in operations(lab, pay)], [("reverse", "sent"), ("refund", "pending")],
            f"C6: {order}: the Reverse is still under way")
        lab.all_looked()
        is_(calls(lab, pay, "refund"), [], f"C6: {order}: the refund waits for it")
        is_(error_of(lab, "SELECT * FROM payflow.refund(%s::uuid)", [pay.session_id]), ("PT409", "not_refundable"),
            f"C6: {order}: nothing is left to refund")
        is_(error_of(lab, "SELECT * FROM payflow.create(%s, 1000, 'EUR')", [order]), ("PT409", "order_already_paid"),
            f"C6: {order}: the order is not free")
        lab.release(rule)
        is_given_back(lab, pay, order)
        is_((len(calls(lab, pay, "cancel")), len(calls(lab, pay, "refund"))), (1, 1), f"C6: {order}: one Reverse, one refund")
        reverse, = operations(lab, pay, "reverse")
        is_(reverse.status, "failed", f"C6: {order}: the Reverse has failed")
        is_(error_of(lab, CANCEL, [pay.session_id, None, None]), ("PT409", "not_cancelable"), f"C6: {order}: cannot be canceled again")

    # the Reverse was done, and its answer is lost, and before anybody asks it is paid all the same
    order = "reversed, then paid"
    pay = registered(lab, order, provider="still")
    get_rule = lab.rule("get", "hold", order=order)
    lab.rule("cancel", "drop_after", order=order)
    cancel(lab, pay)
    lab.wait_held(get_rule)
    is_(lab.payments(order)[0]["status"], "canceled", f"C6: {order}")
    lab.act(pay.session_id, "pay")
    lab.release(get_rule)
    is_given_back(lab, pay, order)

    order = "lost, then paid"
    pay = registered(lab, order)
    rule = lab.rule("cancel", "drop_before", order=order, times=0)
    cancel(lab, pay)
    poll(lambda: lab.hits(rule) >= 1, what="a lost Reverse")
    lab.act(pay.session_id, "pay")
    is_given_back(lab, pay, order)
    lab.clear_rules()

    order = "refund fails"
    pay = registered(lab, order, provider="still")
    lab.rule("refund", "decline", order=order)
    lab.act(pay.session_id, "pay")
    cancel(lab, pay)
    lab.poll_session(pay.session_id, "completed")
    poll(lambda: [o.status for o in operations(lab, pay, "refund")] == ["failed"], what="the refusal")
    refund, = operations(lab, pay, "refund")
    row = get(lab, pay)
    is_((row.paid, row.refunded_amount, row.refundable_amount), (False, 0, 1000), "C6: the refund is refused: the money is here, not paid")
    ok(f"refund_failed:{refund.operation_id}" in lab.alerts(), "C6: with an alert")
    lab.sql("SELECT payflow.retry_now('refund', %s, 'the cancel has lost')", [str(refund.operation_id)])
    row = settled(lab, pay)
    is_((row.order_status, provider_money(lab, pay), len({c["key"] for c in calls(lab, pay, "refund")})), ("refunded", (1000, 1000), 2),
        "C6: given once more, under a new key: refunded")

    for policy in ("hold", "accept", "refund"):
        order = f"another amount, {policy}"
        lab.sql("INSERT INTO payflow.merchants (id, default_provider, late_payment) VALUES (%s, 'still', %s)", [policy, policy])
        pay = registered(lab, order, merchant=policy)
        rule = lab.rule("cancel", "hold", order=order)
        cancel(lab, pay)
        lab.wait_held(rule)
        lab.act(pay.session_id, "pay", amount=700)
        check(lab, pay)
        lab.release(rule)
        row = settled(lab, pay)
        is_((row.status, row.paid, row.order_status, row.suspense_amount, entries(lab, pay), provider_money(lab, pay)),
            ("canceled", False, "open", 0, [("unexpected_received", 700), ("refund_sent", 700)], (700, 700)),
            f"B4, C6: {order}: canceled, the money goes back whatever the policy says")


def gives_back_itself(lab, front):
    """C6: given back at the provider while the Reverse is under way; the second time that Reverse itself has done it."""
    order = "given back meanwhile"
    pay = registered(lab, order, provider="still")
    rule = lab.rule("cancel", "hold", order=order)
    cancel(lab, pay)
    lab.wait_held(rule)
    lab.act(pay.session_id, "pay")
    is_(check(lab, pay).status, "completed", f"C6: {order}: paid while it is reversed")
    lab.act(pay.session_id, "refund")
    lab.release(rule)
    settled(lab, pay)
    check(lab, pay)
    is_refunded_once(lab, pay, order)

    for order, totals_only in (("the Reverse gives back, named", False), ("the Reverse gives back, a total", True)):
        pay = registered(lab, order, provider="totals" if totals_only else "front")
        event = threading.Event()
        lab.quiet(pay.session_id)
        front.plan("cancel", order, gated(event, lambda _front, connection, _request: connection.sendall(given_back) or True))
        cancel(lab, pay)
        poll(lambda: front.sent("cancel", order), what="the Reverse")
        lab.act(pay.session_id, "pay")
        is_(check(lab, pay).status, "completed", f"C6: {order}: paid while it is reversed")
        payment = lab.act(pay.session_id, "refund")
        body = json.dumps({**payment, "status": "canceled"}).encode()
        given_back = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        event.set()
        settled(lab, pay)
        is_(len(calls(lab, pay, "refund")), 0, f"C6: {order}: that settles the refund: it is not sent")
        check(lab, pay)
        is_refunded_once(lab, pay, order)


def is_refunded_once(lab, pay, name):
    row = get(lab, pay)
    is_((row.status, row.refunded_amount, row.order_status, row.paid, provider_money(lab, pay)),
        ("completed", 1000, "refunded", False, (1000, 1000)), f"C6: {name}: refunded once")
    is_([amount for kind, amount in entries(lab, pay) if kind in ("refund_sent", "refund_reported")], [1000],
        f"C6: {name}: booked once")


def completion_and_cancel(lab, pool):
    """C6, C70: in both orders, and at once.  Protection: the order's row."""
    order = "completion first"
    pay = registered(lab, order, provider="still")
    lab.act(pay.session_id, "pay")
    with lab.gate("payflow.accounting_entries", "INSERT", f"NEW.order_id = '{order}'") as gate:
        checked = pool.submit(check, lab, pay)
        gate.wait_held()
        canceled = pool.submit(error_of, lab, CANCEL, [pay.session_id, None, None])
        poll(lambda: lab.one("""SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                                AND query LIKE '%%payflow.cancel(%%' AND pid <> pg_backend_pid()"""), what="cancel to wait")
    is_((checked.result().paid, canceled.result()), (True, ("PT409", "not_cancelable")),
        "completion, then cancel: it has waited, and is refused")
    is_((operations(lab, pay), calls(lab, pay, "cancel")), ([], []), "and nothing is reversed")

    order = "cancel first"
    pay = registered(lab, order, provider="still")
    rule = lab.rule("get", "hold", order=order)
    checked = pool.submit(check, lab, pay)
    lab.wait_held(rule)
    lab.act(pay.session_id, "pay")
    conn = lab.connect(autocommit=False)
    is_(cancel(lab, pay, conn=conn).status, "canceling", "cancel, then completion: canceling")
    lab.release(rule)
    other = registered(lab, f"{order}, other")
    is_(other.status, "registered", "the answer waits, and meanwhile other orders go on")
    is_(entries(lab, pay), [], "nothing is booked before it commits")
    conn.commit()
    conn.close()
    checked.result()
    is_given_back(lab, pay, order)

    def race(i, conn):
        pay = pays[i // 2]
        if i % 2:
            lab.act(pay.session_id, "pay")
            return check(lab, pay, conn=conn).status
        return error_of(lab, CANCEL, [pay.session_id, None, None], conn=conn)

    pays = [registered(lab, f"race {i}", provider="still") for i in range(10)]
    results = threads_at_barrier(20, race, lambda i: lab.connect())
    ends = set()
    for i, pay in enumerate(pays):
        row = settled(lab, pay)
        check(lab, pay)
        settled(lab, pay)
        captured, refunded = provider_money(lab, pay)
        refused_ = results[2 * i] is not None
        row = get(lab, pay)
        kept = (True, 1000, 0, results[2 * i]) if refused_ else (False, captured, captured, None)
        ends.add((row.status, refused_))
        is_((row.paid, captured, refunded, results[2 * i]), (kept[0], kept[1], kept[2], ("PT409", "not_cancelable") if refused_ else None),
            f"race {i}: {row.status}, cancel {'refused' if refused_ else 'accepted'}: the money is where it is said to be")
    ok(ends <= {("completed", True), ("completed", False), ("canceled", False)}, f"the ways they went: {sorted(ends)}")


def expiry_and_cancel(lab):
    """The session's time is over while it is canceled, in both orders; and a decline."""
    for order, first in (("expire first", "expire"), ("cancel first, then expire", "cancel")):
        pay = registered(lab, order, provider="still")
        rules = {call: lab.rule(call, "hold", order=order) for call in ("expire", "cancel")}
        lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() - interval '1 second', next_action_at = now()
                   WHERE session_id = %s""", [pay.session_id])
        lab.wait_held(rules["expire"])
        row = cancel(lab, pay)
        is_((row.status, row.expires_at), ("canceling", None), f"{order}: canceled while the provider is told to expire it")
        lab.wait_held(rules["cancel"])
        for call in (first, *(set(rules) - {first})):
            lab.release(rules[call])
        row = settled(lab, pay)
        is_((row.status, row.failure_code, entries(lab, pay)), ("canceled", None, []), f"{order}: canceled")
        is_((len(calls(lab, pay, "cancel")), len(calls(lab, pay, "expire"))), (1, 1), f"{order}: each was sent once")
        ok(lab.payments(order)[0]["status"] in ("expired", "canceled"), f"{order}: ended at the provider")
    pay = registered(lab, "declined while reversed", provider="still")
    rule = lab.rule("cancel", "hold", order="declined while reversed")
    cancel(lab, pay)
    lab.wait_held(rule)
    lab.act(pay.session_id, "decline")
    is_(check(lab, pay).status, "canceled", "declined while it is reversed: canceled")
    lab.release(rule)
    row = settled(lab, pay)
    is_((row.status, len(calls(lab, pay, "cancel"))), ("canceled", 1), "and stays so")
    pay = registered(lab, "expired, then canceled", provider="still")
    lab.act(pay.session_id, "expire")
    cancel(lab, pay)
    is_(settled(lab, pay).status, "canceled", "it had lapsed there, and we did not know: canceled")


def late_money(lab):
    """C30: whoever was told that it is canceled gets his money back, whatever late_payment says."""
    for policy in ("hold", "accept", "refund"):
        order = f"C30 {policy}"
        pay = registered(lab, order, merchant=policy)
        cancel(lab, pay)
        is_canceled(lab, pay, order)
        second = registered(lab, order, merchant=policy, amount=1000) if policy == "accept" else None
        lab.act(pay.session_id, "pay")
        check(lab, pay)
        row = settled(lab, pay)
        is_((row.status, row.paid, row.captured_amount, row.suspense_amount), ("canceled", False, 0, 0), f"{order}: it stays canceled")
        is_((entries(lab, pay), provider_money(lab, pay)),
            ([("unexpected_received", 1000), ("refund_sent", 1000)], (1000, 1000)), f"{order}: to suspense, and back")
        is_(lab.sql("SELECT kind, status, resolution, amount FROM payflow.discrepancies WHERE session_id = %s", [pay.session_id]),
            [("unexpected_money", "resolved", "refund", 1000)], f"{order}: a discrepancy, resolved")
        alerts = lab.one("SELECT count FROM payflow.alerts WHERE key = %s", [f"unexpected_money:{pay.session_id}"])
        for _ in range(5):
            check(lab, pay)
        is_((entries(lab, pay), len(calls(lab, pay, "refund")),
             lab.one("SELECT count FROM payflow.alerts WHERE key = %s", [f"unexpected_money:{pay.session_id}"])),
            ([("unexpected_received", 1000), ("refund_sent", 1000)], 1, alerts), f"{order}: five times more: no change, one alert")
        second = second or registered(lab, order, merchant=policy)
        lab.act(second.session_id, "pay")
        is_((check(lab, second).paid, get(lab, pay).paid), (True, False), f"{order}: the order is paid by another session")


# ---- isolation levels --------------------------------------------------------------------

def above_read_committed(lab):
    """A11: a cancel by an old snapshot is done, replayed or 40001; never a second Reverse."""
    for level in ("repeatable\\ read", "serializable"):
        level_name = level.replace("\\", "")
        conn = lab.connect(autocommit=False, options=f"-c default_transaction_isolation={level}")
        pay = registered(lab, f"A11 {level_name}", provider="still")
        is_(get(lab, pay, conn=conn).status, "registered", f"A11: {level_name}: a snapshot")
        lab.all_looked()
        row = cancel(lab, pay, conn=conn)
        is_((row.status, row.replayed), ("canceling", False), f"A11: {level_name}: nothing has changed since: canceling")
        is_(cancel(lab, pay, conn=conn).replayed, True, f"A11: {level_name}: again: replayed")
        conn.commit()
        is_canceled(lab, pay, f"A11: {level_name}")

        pay = registered(lab, f"A11 {level_name}, old", provider="still", merchant="coded")
        code = issue(lab, pay)
        get(lab, pay, conn=conn)
        cancel(lab, pay, code)
        is_(error_of(lab, CANCEL, [pay.session_id, code, None], conn), ("40001", None), f"A11: {level_name}: an old snapshot: 40001")
        conn.rollback()
        is_canceled(lab, pay, f"A11: {level_name}, old")
        is_(cancel(lab, pay, code, conn=conn).replayed, True, f"A11: {level_name}: tried again: replayed")
        conn.commit()

        pay = registered(lab, f"A11 {level_name}, paid", provider="still")
        get(lab, pay, conn=conn)
        lab.act(pay.session_id, "pay")
        check(lab, pay)
        is_(error_of(lab, CANCEL, [pay.session_id, None, None], conn), ("40001", None), f"A11: {level_name}: completed since: 40001")
        conn.rollback()
        is_(error_of(lab, CANCEL, [pay.session_id, None, None], conn), ("PT409", "not_cancelable"), f"A11: {level_name}: tried again: 409")
        conn.rollback()
        conn.close()

        def attempt(i, conn):
            for _ in range(50):
                try:
                    row = cancel(lab, pay, code, conn=conn)
                    conn.commit()
                    return row.replayed, row.http_status
                except psycopg2.errors.SerializationFailure:
                    conn.rollback()
            return None

        pay = registered(lab, f"A11 {level_name}, crowd", provider="still", merchant="coded")
        code = issue(lab, pay)
        rule = lab.rule("cancel", "hold", order=pay.order_id)
        results = threads_at_barrier(8, attempt, lambda i: lab.connect(autocommit=False,
                                                                     options=f"-c default_transaction_isolation={level}"))
        is_(sorted(map(str, results)), sorted(map(str, [(False, 202)] + [(True, 202)] * 7)), f"A11: {level_name}: 8 at once: one success")
        lab.release(rule)
        is_canceled(lab, pay, f"A11: {level_name}, crowd")


with Lab(workers=2, conf={"payflow.poll_interval": "100ms", "fsync": "off"}) as lab, ThreadPoolExecutor(4) as pool:
    front, hasty_front = Front(lab.url), Front(lab.url)
    lab.option(poll_intervals="100 ms", breaker_failures=1000000)
    lab.add_server("still", poll_intervals="1 hour", breaker_failures="1000000")
    lab.add_server("front", front.url, poll_intervals="100 ms", breaker_failures="1000000")
    lab.add_server("hasty", hasty_front.url, poll_intervals="100 ms", breaker_failures="1000000", timeout="1 s")
    lab.add_server("totals", front.url, poll_intervals="1 hour", breaker_failures="1000000", refund_names="no")
    before_register(lab)
    claim_and_cancel(lab)
    in_flight(lab, front, hasty_front)
    known(lab)
    repeated(lab, pool)
    final(lab)
    codes(lab)
    crowds(lab)
    secret(lab)
    lost_answers(lab)
    refused(lab)
    out_of_reach(lab)
    loses(lab, pool)
    gives_back_itself(lab, front)
    completion_and_cancel(lab, pool)
    expiry_and_cancel(lab)
    late_money(lab)
    above_read_committed(lab)
    is_(lab.one(f"SELECT count(*) FROM payflow.operations WHERE {UNSETTLED} AND kind <> 'after_look'"), 0, "nothing is left undone")
    ok(not lab.log_contains(r"payflow worker .*(ERROR|FATAL|could not|PANIC)"), "no worker has complained")
    front.release()
    hasty_front.release()
    lab.finish()
done_testing()
