"""A9, C76: the call is made if and only if the application's transaction commits, however it ends.

Protection: the session is a row of the application's transaction, and nothing
but that row makes a worker call; the workers are woken at commit, and look by
themselves where a wake-up cannot reach them (COMMIT PREPARED).
"""

from concurrent.futures import ThreadPoolExecutor

import psycopg2

from payflow_test import Lab, done_testing, is_, ok, poll

CREATE = "SELECT * FROM payflow.create(%s, 1000, 'EUR')"


def create(lab, order, conn=None):
    return lab.row(CREATE, [order], conn=conn)


def calls(lab, order):
    """All calls of any kind that the provider has had for an order, and its payments."""
    stats = lab.stats(order=order)
    return sum(stats["calls"].values()), stats["payments"]


def others_go_on(lab, name):
    """A worker has gone round since: it would have seen what it may see."""
    lab.poll_session(create(lab, f"{name}: another").session_id, "registered")
    lab.all_looked()


def never_was(lab, order):
    is_((lab.sql("SELECT * FROM payflow.find(%s)", [order]), calls(lab, order)), ([], (0, 0)),
        f"C76: {order}: no session, no call")
    row = create(lab, order)
    is_(row.replayed, False, f"{order}: the order is free")
    lab.poll_session(row.session_id, "registered")
    one_call(lab, order)


def one_call(lab, order):
    stats = lab.stats(order=order)
    is_((stats["calls"]["register"], stats["payments"]), (1, 1), f"{order}: one Register, one payment")


def rolled_back(lab):
    conn = lab.connect(autocommit=False)
    create(lab, "rolled back", conn)
    others_go_on(lab, "rolled back")
    is_(calls(lab, "rolled back"), (0, 0), "C76: before the end of the transaction nothing is called")
    conn.rollback()
    conn.close()
    never_was(lab, "rolled back")


def connection_lost(lab):
    conn = lab.connect(autocommit=False)
    create(lab, "connection lost", conn)
    conn.close()
    poll(lambda: not lab.sql("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"), what="its end")
    never_was(lab, "connection lost")


def savepoint(lab):
    conn = lab.connect(autocommit=False)
    lab.sql("SAVEPOINT s", conn=conn)
    create(lab, "savepoint", conn)
    lab.sql("ROLLBACK TO s", conn=conn)
    kept = create(lab, "savepoint, kept", conn)
    lab.sql("SAVEPOINT t", conn=conn)
    is_(create(lab, "savepoint, kept", conn).replayed, True, "within its transaction a session is replayed")
    lab.sql("ROLLBACK TO t", conn=conn)
    # the same order once more, after its first session was undone
    lab.sql("SAVEPOINT u", conn=conn)
    undone = create(lab, "savepoint, again", conn)
    lab.sql("ROLLBACK TO u", conn=conn)
    again = create(lab, "savepoint, again", conn)
    conn.commit()
    conn.close()
    for order, row in (("savepoint, kept", kept), ("savepoint, again", again)):
        lab.poll_session(row.session_id, "registered")
        one_call(lab, order)
    is_(lab.sql("SELECT 1 FROM payflow.payment_sessions WHERE session_id = %s", [undone.session_id]), [],
        "C76: what a savepoint took back is gone")
    never_was(lab, "savepoint")


def failed_commit(lab):
    lab.sql("""CREATE TABLE public.orders (id text PRIMARY KEY);
               CREATE TABLE public.items (order_id text REFERENCES public.orders DEFERRABLE INITIALLY DEFERRED)""")
    conn = lab.connect(autocommit=False)
    lab.sql("INSERT INTO public.items VALUES ('failed commit')", conn=conn)
    create(lab, "failed commit", conn)
    others_go_on(lab, "failed commit")
    try:
        conn.commit()
        error = None
    except psycopg2.Error as caught:
        error = caught.pgcode
    is_(error, "23503", "a deferred constraint fails at COMMIT")
    conn.close()
    never_was(lab, "failed commit")


def prepared(lab):
    """Two-phase commit: the call waits for COMMIT PREPARED, also over a crash of the server."""
    for order in ("prepared", "prepared, rolled back", "prepared, crash", "prepared, crash, rolled back"):
        conn = lab.connect(autocommit=False)
        create(lab, order, conn)
        lab.sql(f"PREPARE TRANSACTION '{order}'", conn=conn)
        conn.commit()
        conn.close()
    others_go_on(lab, "prepared")
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(create, lab, "prepared")
        poll(lambda: lab.one("""SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                                AND query LIKE '%%payflow.create%%' AND pid <> pg_backend_pid()"""), what="another create to wait")
        is_(calls(lab, "prepared"), (0, 0), "A9: prepared, not committed: no call")
        lab.sql("COMMIT PREPARED 'prepared'")
        row = second.result()
        is_(row.replayed, True, "who creates meanwhile waits, and gets its session")
    lab.poll_session(row.session_id, "registered")
    one_call(lab, "prepared")
    lab.sql("ROLLBACK PREPARED 'prepared, rolled back'")
    never_was(lab, "prepared, rolled back")

    lab.kill_server()
    lab.wait_up()
    poll(lambda: len(lab.workers()) == 2, what="the workers")
    others_go_on(lab, "prepared, crash")
    is_([calls(lab, "prepared, crash"), calls(lab, "prepared, crash, rolled back")], [(0, 0)] * 2,
        "A9: prepared, and the server has crashed: still no call")
    lab.sql("COMMIT PREPARED 'prepared, crash'")
    row = create(lab, "prepared, crash")
    is_(row.replayed, True, "COMMIT PREPARED after the crash: the session is there")
    lab.poll_session(row.session_id, "registered")
    one_call(lab, "prepared, crash")
    lab.sql("ROLLBACK PREPARED 'prepared, crash, rolled back'")
    never_was(lab, "prepared, crash, rolled back")


def prepared_holds_rows(lab):
    """A prepared transaction that holds a session's row: nobody waits for it but its own payment."""
    pay = lab.poll_session(create(lab, "prepared, holds").session_id, "registered")
    conn = lab.connect(autocommit=False)
    lab.sql("SELECT * FROM payflow.payer_redirected(%s::uuid)", [pay.session_id], conn=conn)
    lab.sql("PREPARE TRANSACTION 'holds'", conn=conn)
    conn.commit()
    conn.close()
    lab.act(pay.session_id, "pay")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lab.row, "SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])
        others_go_on(lab, "prepared, holds")
        ok(not asked.done(), "a prepared transaction holds it: check waits, others go on")
        lab.sql("COMMIT PREPARED 'holds'")
        is_((asked.result().status, asked.result().paid), ("completed", True), "after COMMIT PREPARED it is asked and completes")
    one_call(lab, "prepared, holds")


def one_transaction_many_orders(lab):
    """Some undone by savepoints, the others committed together."""
    conn = lab.connect(autocommit=False)
    for i in range(60):
        lab.sql("SAVEPOINT s", conn=conn)
        create(lab, f"many {i}", conn)
        lab.sql("ROLLBACK TO s" if i % 3 == 0 else "RELEASE s", conn=conn)
    conn.commit()
    conn.close()
    lab.poll_sql("SELECT count(*) = 40 FROM payflow.payment_sessions WHERE order_id LIKE 'many %%' AND status = 'registered'")
    is_([(s["calls"]["register"], s["payments"]) for s in (lab.stats(order=f"many {i}") for i in range(60))],
        [(0, 0) if i % 3 == 0 else (1, 1) for i in range(60)], "A9: of 60 creates, 20 undone: 40 Register, 40 payments")


with Lab(workers=2, conf={"payflow.poll_interval": "100ms", "fsync": "off"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    for test in (rolled_back, connection_lost, savepoint, failed_commit, prepared, prepared_holds_rows,
                 one_transaction_many_orders):
        test(lab)
    lab.finish()
done_testing()
