"""Applications that hold rows for long, write around the API, or take many orders in crossing order.

The workers go on with everything else, come back to what is held, and neither
call again nor wait meanwhile.
"""

from concurrent.futures import ThreadPoolExecutor

from payflow_test import Lab, done_testing, is_, like, ok, poll, threads_at_barrier

CREATE = "SELECT * FROM payflow.create(%s, 1000, 'EUR', merchant => %s)"
REDIRECT = "SELECT * FROM payflow.payer_redirected(%s::uuid)"


def create(lab, order, merchant="default", conn=None):
    return lab.row(CREATE, [order, merchant], conn=conn)


def registered(lab, order, merchant="default"):
    return lab.poll_session(create(lab, order, merchant).session_id, "registered")


def status(lab, pay):
    return lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id]).status


def counts(lab, order):
    """Register calls, questions and payments, as the provider counts them."""
    stats = lab.stats(order=order)
    return stats["calls"]["register"], stats["calls"]["get"] + stats["calls"]["find"], stats["payments"]


def pay_and_ring(lab, pays):
    for pay in pays:
        lab.act(pay.provider_payment_id, "pay")
    lab.ring(*[pay.session_id for pay in pays])


HELD = {
    "order": "SELECT FROM payflow.orders WHERE order_id = %(order)s FOR UPDATE",
    "session": "SELECT FROM payflow.payment_sessions WHERE order_id = %(order)s FOR UPDATE",
    # the first money of a merchant opens his accounts, which refer to his row
    "merchant": "SELECT FROM payflow.merchants WHERE id = %(merchant)s FOR UPDATE",
}


def held_while_paid(lab):
    """Protection: SKIP LOCKED on orders and sessions, NOWAIT on merchants."""
    lab.sql("INSERT INTO payflow.merchants (id, default_provider) VALUES ('m', 'sandbox')")
    pays = {name: registered(lab, f"held {name}", "m" if name == "merchant" else "default") for name in HELD}
    others = [registered(lab, f"free {i}") for i in range(10)]
    conns = {name: lab.connect(autocommit=False) for name in HELD}
    for pay in [*pays.values(), *others]:
        lab.act(pay.provider_payment_id, "pay")
    workers = lab.workers()
    for pid in workers:
        lab.stop_worker(pid)
    lab.ring(*[pay.session_id for pay in [*pays.values(), *others]])
    for name, query in HELD.items():
        lab.sql(query, {"order": f"held {name}", "merchant": "m"}, conn=conns[name])
    lab.go_on(*workers)
    for pay in others:
        lab.poll_session(pay.session_id, "completed")
    poll(lambda: [counts(lab, f"held {name}")[1] for name in ("order", "merchant")] == [1, 1], what="both questions")
    late = [registered(lab, f"later {i}") for i in range(10)]
    pay_and_ring(lab, late)
    for pay in late:
        lab.poll_session(pay.session_id, "completed")
    is_([status(lab, pay) for pay in pays.values()], ["registered"] * 3,
        "an order, a session, a merchant held FOR UPDATE: these three wait, all others go on")
    is_([counts(lab, f"held {name}")[1] for name in HELD], [1, 0, 1], "their answers are kept, nobody asks again")
    for conn in conns.values():
        conn.rollback()
        conn.close()
    for name, pay in pays.items():
        is_(lab.poll_session(pay.session_id, "completed").paid, True, f"{name}: when it is let go, the payment completes")
        is_(counts(lab, f"held {name}"), (1, 1, 1), f"{name}: one Register, one question, one payment")


def held_while_registered(lab):
    """The same before the provider knows it; and beyond the lease."""
    conn = lab.connect(autocommit=False)
    rule = lab.rule("register", "hold", order="held new")
    pay = create(lab, "held new")
    lab.wait_held(rule)
    lab.sql(HELD["order"], {"order": "held new"}, conn=conn)
    lab.release(rule)
    registered(lab, "held new, other")
    lab.end_lease(pay.session_id)
    poll(lambda: counts(lab, "held new")[0] == 2, what="the worker that takes it over")
    lab.all_looked()
    is_((status(lab, pay), counts(lab, "held new")), ("registering", (2, 0, 1)),
        "held beyond the lease: taken over, called with the same key, one payment")
    conn.rollback()
    conn.close()
    lab.poll_session(pay.session_id, "registered")
    calls = lab.requests(pay.session_id, "register")
    is_((len({c["key"] for c in calls}), len({c["body_sha256"] for c in calls})), (1, 1), "with the same bytes")


def referenced(lab):
    """Protection: FOR NO KEY UPDATE: who only refers to a row is in nobody's way."""
    lab.sql("""CREATE TABLE public.parcels (
                   session_id uuid REFERENCES payflow.payment_sessions (session_id), merchant text COLLATE "C", order_id text COLLATE "C",
                   FOREIGN KEY (merchant, order_id) REFERENCES payflow.orders (merchant, order_id))""")
    pay = registered(lab, "referred to")
    conn = lab.connect(autocommit=False)
    lab.sql("INSERT INTO public.parcels VALUES (%s, 'default', 'referred to')", [pay.session_id], conn=conn)
    pay_and_ring(lab, [pay])
    is_(lab.poll_session(pay.session_id, "completed").paid, True,
        "a foreign key's lock on order and session, held open, stops no worker")
    conn.commit()
    conn.close()


def crossing(lab):
    """An application takes orders from the other end while a worker has answers to all of them."""
    pays = [registered(lab, f"many {i:02}") for i in range(20)]
    rule = lab.rule("get", "hold", times=0)
    for pay in pays:
        lab.act(pay.provider_payment_id, "pay")
    lab.ring(*[pay.session_id for pay in pays])
    lab.wait_held(rule, 20)
    conn = lab.connect(autocommit=False)
    for pay in reversed(pays[10:]):
        lab.sql(REDIRECT, [pay.session_id], conn=conn)
    lab.release(rule)
    for pay in pays[:10]:
        lab.poll_session(pay.session_id, "completed")
    is_([status(lab, pay) for pay in pays[10:]], ["registered"] * 10, "crossing order: what is free completes")
    for pay in reversed(pays[:10]):
        is_(lab.row(REDIRECT, [pay.session_id], conn=conn).status, "completed", "the application goes on to it")
    conn.commit()
    conn.close()
    for pay in pays[10:]:
        lab.poll_session(pay.session_id, "completed")
    is_({counts(lab, f"many {i:02}") for i in range(20)}, {(1, 1, 1)}, "one question each")


def crossing_batch(lab):
    """A worker in the middle of a batch: the application waits for it, never the other way round."""
    def redirect(i):
        conn = lab.connect(autocommit=False)
        for pay in pays if i else reversed(pays):
            lab.sql(REDIRECT, [pay.session_id], conn=conn)
        conn.commit()
        conn.close()

    pays = [registered(lab, f"batch {i:02}") for i in range(10)]
    with lab.gate("payflow.accounting_entries", "INSERT", "NEW.order_id = 'batch 00'") as gate:
        rule = lab.rule("get", "hold", times=0)
        for pay in pays:
            lab.act(pay.provider_payment_id, "pay")
        lab.ring(*[pay.session_id for pay in pays])
        lab.wait_held(rule, 10)
        lab.release(rule)
        gate.wait_held()

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(threads_at_barrier, 2, redirect)
            poll(lambda: lab.one("""SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                                    AND query LIKE '%%payer_redirected%%' AND pid <> pg_backend_pid()"""),
                 what="an application to wait for the batch")
            gate.open()
            errors = {getattr(e, "pgcode", e) for e in running.result() if e is not None}
    ok(errors <= {"40P01"}, "two applications from both ends against a batch: a deadlock between them at worst", errors)
    for pay in pays:
        lab.poll_session(pay.session_id, "completed")
    is_({counts(lab, f"batch {i:02}") for i in range(10)}, {(1, 1, 1)}, "and the batch is booked, once")


def around_the_api(lab):
    """A2: direct statements, while a worker has a call in flight."""
    pay = registered(lab, "around")
    rule = lab.rule("get", "hold", order="around")
    lab.ring(pay.session_id)
    lab.wait_held(rule)
    for query, code, why in (
            ("""INSERT INTO payflow.payment_sessions (session_id, merchant, order_id, amount, currency, provider, next_action_at)
                VALUES (gen_random_uuid(), 'default', 'around', 1000, 'EUR', 'sandbox', now())""", "23505", "a second live session"),
            ("UPDATE payflow.payment_sessions SET amount = 1 WHERE session_id = %(id)s", "23514", "another amount"),
            ("UPDATE payflow.payment_sessions SET endpoint = 'http://elsewhere' WHERE session_id = %(id)s", "23514", "another endpoint"),
            ("UPDATE payflow.payment_sessions SET status = 'unknown', stage = 'register' WHERE session_id = %(id)s", "23514",
             "a step back"),
            ("UPDATE payflow.payment_sessions SET next_action_at = NULL WHERE session_id = %(id)s", "23514", "no alarm"),
            ("UPDATE payflow.orders SET status = 'paid' WHERE order_id = 'around'", "23514", "paid without a receipt"),
            ("DELETE FROM payflow.payment_sessions WHERE session_id = %(id)s", "55000", "no session"),
            ("DELETE FROM payflow.orders WHERE order_id = 'around'", "55000", "no order")):
        error = lab.error(query, {"id": pay.session_id})
        is_(error and error.pgcode, code, f"A2: refused: {why}")

    # what the rules allow can be written; then the worker's answer is one to a session that has moved on
    conn = lab.connect(autocommit=False)
    lab.sql("""UPDATE payflow.orders SET active_session_id = NULL WHERE order_id = 'around'""", conn=conn)
    lab.sql("""UPDATE payflow.payment_sessions SET status = 'failed', stage = 'none', failure_code = 'declined',
               next_action_at = NULL, expires_at = NULL WHERE session_id = %s""", [pay.session_id], conn=conn)
    lab.act(pay.provider_payment_id, "pay")
    lab.release(rule)
    other = registered(lab, "around, other")
    is_(other.status, "registered", "an uncommitted UPDATE: others go on")
    conn.commit()
    conn.close()
    lab.poll_sql("SELECT suspense_amount > 0 FROM payflow.get(%s::uuid)", [pay.session_id])
    row = lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id])
    is_((row.status, row.suspense_amount, row.captured_amount, row.paid), ("failed", 1000, 0, False),
        "the answer comes after it: the money is in suspense")
    is_(counts(lab, "around"), (1, 1, 1), "one question, one payment")

    # a session that was inserted whole is worked like any other
    lab.sql("""INSERT INTO payflow.orders (merchant, order_id, amount, currency, active_session_id)
               VALUES ('default', 'inserted', 1000, 'EUR', '0190a0b0-0000-7000-8000-000000000001');
               INSERT INTO payflow.payment_sessions (session_id, merchant, order_id, amount, currency, provider, next_action_at)
               VALUES ('0190a0b0-0000-7000-8000-000000000001', 'default', 'inserted', 1000, 'EUR', 'sandbox', now())""")
    row = lab.poll_session("0190a0b0-0000-7000-8000-000000000001", "registered")
    pay_and_ring(lab, [row])
    is_(lab.poll_session(row.session_id, "completed").paid, True, "A2: a session inserted whole is worked like any other")
    error = lab.error("""INSERT INTO payflow.accounting_entries (entry_type, session_id, merchant, order_id, debit_account,
                             credit_account, amount, currency, event_at)
                         SELECT entry_type, session_id, merchant, order_id, debit_account, credit_account, amount, currency, event_at
                         FROM payflow.accounting_entries WHERE order_id = 'inserted'""")
    is_(error and error.pgcode, "23505", "B2: a second receipt is refused")
    like(error, "ux_order_payment_receipt", "by its index")


CONF = {"payflow.poll_interval": "100ms", "log_lock_waits": "on", "deadlock_timeout": "100ms"}

with Lab(workers=2, conf=CONF) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    for test in (held_while_paid, held_while_registered, referenced, crossing, crossing_batch, around_the_api):
        test(lab)
    ok(not lab.log_contains(r"payflow worker .*(ERROR|FATAL|could not|pauses|deadlock)"), "no worker has complained")
    ok(not lab.log_contains(r"payflow worker .*still waiting for (?!\w+ on advisory lock)"), "or waited for anybody")
    lab.finish()
done_testing()
