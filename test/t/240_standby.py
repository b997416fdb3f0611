"""A9, A10, D3: a hot standby answers who reads, and is promoted with work in flight.

The server is stopped before its standby is promoted; what the standby does not
have is lost, also the marks that Register may have been sent.

Protection: the noted timeline; where it differs, whatever counts as never sent
is marked as possibly sent before anybody relies on it.
"""

from concurrent.futures import ThreadPoolExecutor

from payflow_test import DEADLINE, Lab, done_testing, is_, ok, poll

CREATE = "SELECT * FROM payflow.create(%s, 1000, 'EUR')"


def create(lab, order, conn=None):
    return lab.row(CREATE, [order], conn=conn)


def registered(lab, order):
    return lab.poll_session(create(lab, order).session_id, "registered")


def code(lab, query, args, conn):
    error = lab.error(query, args, conn=conn)
    return error and error.pgcode


def reads(lab, standby):
    pay = registered(lab, "read")
    lab.caught_up(standby)
    row = lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id], conn=standby)
    is_(row, lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id]), "standby: get")
    is_([r.session_id for r in lab.sql("SELECT * FROM payflow.find('read')", conn=standby)], [pay.session_id],
        "standby: find")
    is_([r.event for r in lab.sql("SELECT * FROM payflow.timeline(%s::uuid)", [pay.session_id], conn=standby)],
        ["create", "register"], "standby: timeline")
    is_((lab.sql("SELECT * FROM payflow.check_invariants()", conn=standby),
         lab.one("SELECT sum(instances) FROM payflow.queue_stats", conn=standby),
         lab.sql("SELECT * FROM payflow.workers", conn=standby)), ([], 0, []), "standby: the views; nobody works there")

    rule = lab.rule("register", "hold", order="waited for")
    pay = create(lab, "waited for")
    lab.wait_held(rule)
    lab.caught_up(standby)
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(lab.row, "SELECT * FROM payflow.wait(%s::uuid, '60 seconds')", [pay.session_id], standby)
        other = lab.connect(port=standby.info.port)
        poll(lambda: lab.one("""SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension'
                                AND query LIKE '%%payflow.wait%%'""", conn=other), what="wait to sleep")
        ok(not waited.done(), "standby: wait sleeps")
        lab.release(rule)
        is_(waited.result(DEADLINE).status, "registered", "and returns when the change has come over")
        other.close()


def writes(lab, standby):
    pay = lab.row("SELECT * FROM payflow.find('read')")
    for name, query, args in (("create", CREATE, ["new"]),
                              ("check", "SELECT * FROM payflow.check(%s::uuid)", [pay.session_id]),
                              ("check and wait", "SELECT * FROM payflow.check(%s::uuid, '1 second')", [pay.session_id]),
                              ("payer_redirected", "SELECT * FROM payflow.payer_redirected(%s::uuid)", [pay.session_id]),
                              ("payer_returned", "SELECT * FROM payflow.payer_returned(%s::uuid)", [pay.session_id])):
        is_(code(lab, query, args, standby), "25006", f"standby: {name}: 25006")
    row = create(lab, "read", standby)
    is_((row.session_id, row.replayed), (pay.session_id, True), "standby: create of what runs reads only: the session")
    conn = lab.connect(options="-c default_transaction_read_only=on")
    is_((code(lab, CREATE, ["new"], conn), create(lab, "read", conn).replayed), ("25006", True),
        "the same in a read-only transaction")
    conn.close()


def never_sent(lab, order):
    """A session whose alarm has not rung yet."""
    conn = lab.connect(autocommit=False)
    pay = create(lab, order, conn)
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() + '1 hour'::interval WHERE session_id = %s",
            [pay.session_id], conn=conn)
    conn.commit()
    conn.close()
    return pay


def promotion(lab, standby):
    # what the standby has
    pays = {name: registered(lab, name) for name in ("asked", "answered", "completed", "completed, not replicated")}
    for pay in pays.values():
        lab.act(pay.session_id, "pay")
    lab.ring(pays["completed"].session_id)
    lab.poll_session(pays["completed"].session_id, "completed")
    rules = [lab.rule("get", "hold", order="asked"), lab.rule("register", "hold", order="Register under way")]
    lab.ring(pays["asked"].session_id)
    pays["Register under way"] = create(lab, "Register under way")
    for rule in rules:
        lab.wait_held(rule)
    for name in ("never sent", "sent, not replicated", "held by a prepared transaction"):
        pays[name] = never_sent(lab, name)
    conn = lab.connect(autocommit=False)
    lab.sql("SELECT 1 FROM payflow.payment_sessions WHERE session_id = %s FOR UPDATE",
            [pays["held by a prepared transaction"].session_id], conn=conn)
    lab.sql("PREPARE TRANSACTION 'holder'", conn=conn)
    conn.commit()
    conn.close()
    lab.caught_up(standby)
    lab.cut_off(standby)

    # what it has not
    lab.ring(pays["sent, not replicated"].session_id, pays["completed, not replicated"].session_id)
    lab.poll_session(pays["sent, not replicated"].session_id, "registered")
    lab.poll_session(pays["completed, not replicated"].session_id, "completed")
    holder = lab.connect(autocommit=False)
    lab.sql("SELECT 1 FROM payflow.orders WHERE order_id = 'answered' FOR UPDATE", conn=holder)
    lab.ring(pays["answered"].session_id)
    poll(lambda: [c for c in lab.requests(pays["answered"].session_id, "get") if c["status"]], what="the answer")
    is_(lab.one("SELECT first_sent_at IS NULL FROM payflow.payment_sessions WHERE session_id = %s",
                [pays["sent, not replicated"].session_id], conn=standby), True,
        "the standby does not know that Register was sent")
    standby.close()

    # the provider refuses a second Register of it: that proves nothing
    refusal = lab.rule("register", "status", 422, order="sent, not replicated")
    lab.promote()
    holder.close()
    is_(lab.one("SELECT pg_is_in_recovery()"), False, "promoted")
    lab.poll_sql("SELECT count(*) = 1 FROM payflow.workers WHERE state <> 'starting'")
    for rule in rules:
        lab.release(rule)
    free = {name: pay for name, pay in pays.items() if name != "held by a prepared transaction"}
    ids = [pay.session_id for pay in free.values()]
    lab.end_lease(*ids)
    lab.ring(*ids)

    is_({name: lab.poll_session(free[name].session_id, "completed").paid for name in
         ("asked", "answered", "completed", "completed, not replicated")},
        {"asked": True, "answered": True, "completed": True, "completed, not replicated": True},
        "D3: what was paid completes on the new server, although somebody holds a session there")
    row = lab.poll_session(free["sent, not replicated"].session_id, "registered", "failed")
    is_((row.status, lab.hits(refusal)), ("registered", 1), "A10: a refusal of what may have been sent: asked, and found")
    for name in ("Register under way", "never sent"):
        lab.poll_session(free[name].session_id, "registered")
    is_(lab.one("SELECT timeline FROM payflow.server_timeline"), 1, "while a mark is missing the new timeline is not noted")

    lab.sql("ROLLBACK PREPARED 'holder'")
    lab.poll_sql("SELECT timeline = 2 FROM payflow.server_timeline")
    lab.ring(pays["held by a prepared transaction"].session_id)
    lab.poll_session(pays["held by a prepared transaction"].session_id, "registered")
    is_(lab.sql("""SELECT order_id FROM payflow.payment_sessions WHERE status = 'registered'
                   AND endpoint IS DISTINCT FROM %s""", [lab.url]), [], "the endpoint is fixed for those marked, too")
    for name in ("Register under way", "never sent", "sent, not replicated", "held by a prepared transaction"):
        lab.act(pays[name].session_id, "pay")
        lab.ring(pays[name].session_id)
        lab.poll_session(pays[name].session_id, "completed")
    wrong = []
    for name, pay in pays.items():
        calls = lab.requests(pay.session_id, "register")
        receipts = lab.one("SELECT count(*) FROM payflow.accounting_entries WHERE session_id = %s", [pay.session_id])
        if (len({(c["key"], c["body_sha256"]) for c in calls}), lab.stats(order=name)["payments"], receipts) != (1, 1, 1):
            wrong.append((name, calls, lab.stats(order=name), receipts))
    is_(wrong, [], "one key, one body, one payment, one receipt each")
    is_(registered(lab, "new").status, "registered", "new orders go on")


with Lab(conf={"fsync": "off"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    standby = lab.standby()
    for test in (reads, writes, promotion):
        test(lab, standby)
    is_(lab.one("SELECT count(*) FROM payflow.payment_sessions WHERE next_action_at < now() - '1 minute'::interval"), 0,
        "nothing is stuck")
    lab.finish()
done_testing()
