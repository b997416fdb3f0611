"""Races between callers and workers, in both orders, held by barriers.

What holds them: a gate (a trigger that stops a worker in the middle of its
transaction, with its locks), a call held at the provider, a row that the test
has locked.  Each race says which protection it tries; without that it fails.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from payflow_test import Lab, done_testing, is_, isnt, ok, poll, threads_at_barrier

CREATE = "SELECT * FROM payflow.create(%s, %s, 'EUR')"


def create(lab, order, amount=1000, conn=None):
    return lab.row(CREATE, [order, amount], conn=conn)


def registered(lab, order, amount=1000):
    """A session at the payment page; the test plays the payer by its id."""
    pay = create(lab, order, amount)
    return lab.poll_session(pay.session_id, "registered")


def ask(lab, pay, function="check", conn=None):
    return lab.row(f"SELECT * FROM payflow.{function}(%s::uuid, wait => '30 seconds')", [pay.session_id], conn=conn)


def calls(lab, order, operation="get"):
    return lab.stats(order=order)["calls"][operation]


def error_of(lab, query, args, conn=None):
    error = lab.error(query, args, conn=conn)
    return None if error is None else (error.pgcode, error.diag.message_detail)


def waiters(lab, what):
    """The backends that wait for a lock while they run something."""
    return lab.one("""SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                      AND pid <> pg_backend_pid() AND query LIKE %s""", [f"%{what}%"])


def one_receipt(lab, order, name):
    is_(lab.one("SELECT count(*) FROM payflow.accounting_entries WHERE order_id = %s AND entry_type = 'payment_received'",
                [order]), 1, f"{name}: one receipt")
    stats = lab.stats(order=order)
    is_((stats["calls"]["register"], stats["payments"], stats["captured"]), (1, 1, 1000),
        f"{name}: one Register, one payment, paid once")


# ---- create ------------------------------------------------------------------

def completion_then_create(lab, pool):
    """Protection: the first look needs no lock; above READ COMMITTED, the look at the newest version."""
    pay = registered(lab, "completing")
    old = lab.connect(autocommit=False, options="-c default_transaction_isolation=repeatable\\ read")
    is_(create(lab, "completing", conn=old).replayed, True, "create against completion: a snapshot from before it")
    lab.act(pay.provider_payment_id, "pay")
    with lab.gate("payflow.accounting_entries", "INSERT", "NEW.order_id = 'completing'") as gate:
        checked = pool.submit(ask, lab, pay)
        gate.wait_held()
        row = create(lab, "completing")
        is_((row.session_id, row.replayed, row.status), (pay.session_id, True, "registered"),
            "create while it completes: the running session, at once")
        is_(error_of(lab, CREATE, ["completing", 2000]), ("PT409", "parameters_differ"), "with other parameters: 409")
    is_(checked.result().paid, True, "it completes")
    is_(error_of(lab, CREATE, ["completing", 1000]), ("PT409", "order_already_paid"), "create after it: already paid")
    is_(error_of(lab, CREATE, ["completing", 1000], old), ("40001", None), "A11: with the old snapshot: 40001")
    old.close()
    one_receipt(lab, "completing", "create against completion")


def late_money_then_create(lab, pool):
    """Protection: create() locks the order's row, and looks after that."""
    pay = registered(lab, "late first")
    lab.act(pay.provider_payment_id, "decline")
    ask(lab, pay)
    lab.act(pay.provider_payment_id, "pay")
    with lab.gate("payflow.payment_sessions", "UPDATE", "NEW.order_id = 'late first' AND NEW.suspense_amount > 0") as gate:
        checked = pool.submit(ask, lab, pay)
        gate.wait_held()
        created = pool.submit(error_of, lab, CREATE, ["late first", 1000])
        poll(lambda: waiters(lab, "payflow.create"), what="create to wait for the order")
    is_(checked.result().suspense_amount, 1000, "late money, then create: it is in suspense")
    is_(created.result(), ("PT409", "money_in_suspense"), "create has waited for it: no second session")
    is_((calls(lab, "late first", "register"), lab.stats(order="late first")["payments"]), (1, 1),
        "and no second payment")


def create_then_late_money(lab, pool):
    """Protection: the worker skips a locked order and comes back."""
    first = registered(lab, "create first")
    lab.act(first.provider_payment_id, "decline")
    ask(lab, first)
    conn = lab.connect(autocommit=False)
    second = create(lab, "create first", conn=conn)
    isnt(second.session_id, first.session_id, "create, then late money: a second session")
    lab.act(first.provider_payment_id, "pay")
    checked = pool.submit(ask, lab, first)
    poll(lambda: calls(lab, "create first") == 2, what="the question")
    other = registered(lab, "create first, other")
    is_(other.status, "registered", "meanwhile another order goes on")
    ok(not checked.done(), "the answer waits for the order")
    conn.commit()
    row = checked.result()
    is_((row.status, row.suspense_amount), ("failed", 1000), "after the commit the money of the first is in suspense")
    is_(lab.poll_session(second.session_id, "registered").captured_amount, 0, "and the second goes its own way")
    is_((calls(lab, "create first", "register"), calls(lab, "create first"), lab.stats(order="create first")["payments"]),
        (2, 2, 2), "nothing was asked or sent twice")
    conn.close()


def failure_and_create(lab, pool):
    """Protection: a live session is looked for without a lock, its end frees the order in the same transaction."""
    pay = registered(lab, "failing")
    old = lab.connect(autocommit=False, options="-c default_transaction_isolation=serializable")
    is_(create(lab, "failing", conn=old).replayed, True, "create against failure: a snapshot from before it")
    lab.act(pay.provider_payment_id, "decline")
    with lab.gate("payflow.payment_sessions", "UPDATE", "NEW.order_id = 'failing' AND NEW.status = 'failed'") as gate:
        checked = pool.submit(ask, lab, pay)
        gate.wait_held()
        row = create(lab, "failing")
        is_((row.session_id, row.replayed, row.status), (pay.session_id, True, "registered"),
            "create while it fails: the running session")
        is_(error_of(lab, CREATE, ["failing", 2000]), ("PT409", "parameters_differ"), "with other parameters: 409")
    is_(checked.result().status, "failed", "it fails")
    is_(error_of(lab, CREATE, ["failing", 1000], old), ("40001", None), "A11: with the old snapshot: 40001")
    old.close()
    again = create(lab, "failing", 2000)
    is_((again.replayed, again.amount), (False, 2000), "A7: after it, a new session with other parameters")
    lab.poll_session(again.session_id, "registered")
    is_((calls(lab, "failing", "register"), lab.stats(order="failing")["payments"]), (2, 2), "one payment each")


def crossing_creates(lab, pool):
    """Two transactions, the same two orders, crossing: 40P01 for one of them, who tries again."""
    def both(i, conn):
        first, second = ("cross 1", "cross 2") if i == 0 else ("cross 2", "cross 1")
        create(lab, first, conn=conn)
        crossed.wait()
        create(lab, second, conn=conn)
        conn.commit()

    crossed = threading.Barrier(2)
    conns = [lab.connect(autocommit=False) for _ in range(2)]
    results = threads_at_barrier(2, lambda i: both(i, conns[i]))
    is_(sorted(getattr(r, "pgcode", None) or "" for r in results), ["", "40P01"],
        "orders in crossing order: one commits, the other deadlocks")
    loser = conns[0] if results[0] is not None else conns[1]
    loser.rollback()
    is_([create(lab, order, conn=loser).replayed for order in ("cross 1", "cross 2")], [True, True],
        "tried again, it gets both sessions")
    loser.commit()
    for order in ("cross 1", "cross 2"):
        lab.poll_session(create(lab, order).session_id, "registered")
        is_((calls(lab, order, "register"), lab.stats(order=order)["payments"]), (1, 1), f"{order}: one payment")
    for conn in conns:
        conn.close()


# ---- those who ask -----------------------------------------------------------

def check_against_check(lab, pool):
    """Protection: a question is taken once; an answer counts only for those who asked before it was sent."""
    pay = registered(lab, "two checks")
    first_call, second_call = lab.rule("get", "hold", order="two checks"), lab.rule("get", "hold", order="two checks")
    first = pool.submit(ask, lab, pay)
    lab.wait_held(first_call)
    second, third = pool.submit(ask, lab, pay), pool.submit(ask, lab, pay)
    poll(lambda: lab.one("""SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension'
                            AND query LIKE '%%payflow.check(%%'""") == 3, what="three checks to wait")
    lab.release(first_call)
    is_(first.result().status, "registered", "check against check: the first gets the answer to its question")
    lab.wait_held(second_call)
    lab.act(pay.provider_payment_id, "pay")
    ok(not second.done() and not third.done(), "the others wait for one that was asked after they came")
    lab.release(second_call)
    is_([(r.result().status, r.result().paid) for r in (second, third)], [("completed", True)] * 2,
        "and both learn that it is paid")
    is_(calls(lab, "two checks"), 2, "by two questions in all")
    one_receipt(lab, "two checks", "check against check")


def both_learn_paid(lab, pool):
    """B1.  Protection: order and session are locked, and a final session never completes again."""
    for order, who_first in (("first, second", (0, 1)), ("second, first", (1, 0))):
        pay = registered(lab, order)
        lab.act(pay.provider_payment_id, "pay")
        rules = [lab.rule("get", "hold", order=order) for _ in range(2)]
        lab.ring(pay.session_id)
        lab.wait_held(rules[0])
        lab.end_lease(pay.session_id)
        lab.wait_held(rules[1])
        for i in who_first:
            lab.release(rules[i])
            lab.poll_session(pay.session_id, "completed")
        lab.poll_sql("SELECT count(*) = 2 FROM payflow.journal WHERE session_id = %s AND outcome = 'paid'", [pay.session_id])
        is_(lab.one("SELECT count(*) FROM payflow.journal WHERE session_id = %s AND to_status = 'completed' "
                    "AND from_status <> 'completed'", [pay.session_id]), 1, f"B1: {order}: both learn paid, one completes")
        one_receipt(lab, order, f"B1: {order}")

    order = "at once"
    pay = registered(lab, order)
    lab.act(pay.provider_payment_id, "pay")
    rules = [lab.rule("get", "hold", order=order) for _ in range(2)]
    lab.ring(pay.session_id)
    lab.wait_held(rules[0])
    lab.end_lease(pay.session_id)
    lab.wait_held(rules[1])
    with lab.gate("payflow.accounting_entries", "INSERT", f"NEW.order_id = '{order}'") as gate:
        lab.release(rules[0])
        gate.wait_held()
        lab.release(rules[1])
        other = registered(lab, "at once, other")
        is_(other.status, "registered", "B1: one is about to book, the other has its answer: neither stops other orders")
        is_(len(gate.held()), 1, "and the other does not wait for the first")
    lab.poll_sql("SELECT count(*) = 2 FROM payflow.journal WHERE session_id = %s AND outcome = 'paid'", [pay.session_id])
    one_receipt(lab, order, "B1: at once")


def sweep_and(function):
    def sweep_against_ask(lab, pool):
        """Protection: the lease; whoever comes second asks again, or finds nothing left to do."""
        order = f"sweep, {function}"
        pay = registered(lab, order)
        rule = lab.rule("get", "hold", order=order)
        lab.ring(pay.session_id)
        lab.wait_held(rule)
        asked = pool.submit(ask, lab, pay, function)
        lab.all_looked()
        is_(calls(lab, order), 1, f"{order}: while the sweep asks, nobody else does")
        lab.act(pay.provider_payment_id, "pay")
        lab.release(rule)
        is_(asked.result().paid, True, "both learn that it is paid")
        is_(calls(lab, order), 2, "by one question each")
        one_receipt(lab, order, order)
        returned = lab.one("SELECT returned_at IS NOT NULL FROM payflow.payment_sessions WHERE session_id = %s",
                           [pay.session_id])
        is_(returned, function == "payer_returned", "and whether the payer came back is noted")

        order = f"{function}, sweep"
        pay = registered(lab, order)
        rule = lab.rule("get", "hold", order=order)
        asked = pool.submit(ask, lab, pay, function)
        lab.wait_held(rule)
        lab.ring(pay.session_id)
        lab.all_looked()
        is_(calls(lab, order), 1, f"{order}: its alarm rings, but nobody asks a second time")
        lab.act(pay.provider_payment_id, "pay")
        lab.release(rule)
        is_(asked.result().paid, True, "the caller learns that it is paid")
        lab.all_looked()
        is_(calls(lab, order), 1, "and nothing is left to sweep")
        one_receipt(lab, order, order)

    sweep_against_ask.__name__ = f"sweep_against_{function}"
    return sweep_against_ask


def two_workers(lab, pool):
    """D2.  Protection: the lease, written before the call and looked at by every claim."""
    rule = lab.rule("register", "hold", times=0)
    lab.sql("SELECT count(*) FROM generate_series(1, 40) i, payflow.create('shared ' || i, 100, 'EUR')")
    lab.wait_held(rule, 40)
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() WHERE order_id LIKE 'shared %'")
    lab.all_looked()
    is_(lab.held(rule), 40, "D2: two workers, all due: each is called once")
    is_(lab.one("SELECT count(*) FROM payflow.payment_sessions WHERE order_id LIKE 'shared %' AND attempts = 1"), 40,
        "and taken once")
    lab.release(rule)
    lab.poll_sql("SELECT count(*) = 40 FROM payflow.payment_sessions WHERE order_id LIKE 'shared %' AND status = 'registered'")
    is_([(s["calls"]["register"], s["payments"]) for s in (lab.stats(order=f"shared {i}") for i in range(1, 41))],
        [(1, 1)] * 40, "D2: 40 orders, one Register and one payment each")


# Whoever waits for a lock is in the log; the gates are advisory locks.
CONF = {"payflow.poll_interval": "100ms", "log_lock_waits": "on", "deadlock_timeout": "100ms"}

with Lab(workers=2, conf=CONF) as lab, ThreadPoolExecutor(8) as pool:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    for test in (completion_then_create, late_money_then_create, create_then_late_money, failure_and_create,
                 crossing_creates, check_against_check, both_learn_paid, sweep_and("check"), sweep_and("payer_returned"),
                 two_workers):
        test(lab, pool)
    ok(not lab.log_contains(r"payflow worker .*(ERROR|FATAL|could not|pauses)"), "no worker has complained")
    ok(not lab.log_contains(r"payflow worker .*still waiting for (?!\w+ on advisory lock)"), "or waited for anybody")
    lab.finish()
done_testing()
