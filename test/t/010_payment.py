"""One payment from create to completed, and the ways it may take.

A3, A4, A7, A9, B1, B3, B6, D1, C42: the whole path, on both sides of the wire.
"""

from payflow_test import Lab, done_testing, is_, isnt, like, ok, poll

CREATE = "SELECT * FROM payflow.create(%s, %s, %s)"


def create(lab, order, amount=1500, currency="EUR"):
    return lab.row(CREATE, [order, amount, currency])


def call(lab, name, session, **args):
    named = "".join(f", {key} => %({key})s" for key in args)
    return lab.row(f"SELECT * FROM payflow.{name}(%(session)s::uuid{named})", {"session": session, **args})


def happy_path(lab):
    pay = create(lab, "happy")
    is_((pay.status, pay.http_status, pay.replayed, pay.paid), ("registering", 202, False, False),
        "create returns at once, in progress")
    reg = call(lab, "wait", pay.session_id, timeout="30 seconds")
    is_((reg.status, reg.stage, reg.http_status), ("registered", "form", 200), "wait: registered, at the form")
    ok(reg.redirect_url.startswith(lab.url), "the payment page's address is there")
    ok(reg.next_action_at is not None and reg.expires_at is not None, "D1, D4: alarm and deadline are visible")
    is_(create(lab, "happy").session_id, pay.session_id, "A4: a replay returns the same session")
    away = call(lab, "payer_redirected", pay.session_id)
    is_(away.stage, "return", "the payer is away: the return timer runs")
    isnt(away.expires_at, reg.expires_at, "with a deadline of its own")
    lab.act(reg.provider_payment_id, "pay")
    back = call(lab, "payer_returned", pay.session_id, wait="30 seconds")
    is_((back.status, back.paid, back.order_status, back.http_status), ("completed", True, "paid", 200),
        "the payer is back: completed")
    is_((back.captured_amount, back.authorized_amount, back.refundable_amount), (1500, 1500, 1500), "and captured")
    is_((back.next_action_at, back.expires_at), (None, None), "a final session has no alarm")
    is_(lab.one("SELECT count(*) FROM payflow.accounting_entries WHERE order_id = 'happy'"), 1, "one receipt")
    events = [row.event for row in lab.sql("SELECT event FROM payflow.timeline(%s::uuid)", [pay.session_id])]
    is_(events[:3], ["create", "register", "payer_redirected"], "the timeline begins with create, register, redirect")
    stats = lab.stats(order="happy")
    is_((stats["calls"]["register"], stats["payments"], stats["distinct_keys"], stats["captured"]), (1, 1, 1, 1500),
        "the provider saw one Register, one payment, 1500")
    error = lab.error(CREATE, ["happy", 1500, "EUR"])
    is_((error.pgcode, error.diag.message_detail), ("PT409", "order_already_paid"), "A6: it cannot be paid again")


def ask_again_and_again(lab):
    """B1, B6: poll, check and return all learn the same."""
    pay = create(lab, "asks")
    reg = lab.poll_session(pay.session_id, "registered")
    lab.act(reg.provider_payment_id, "pay")
    for _ in range(3):
        row = call(lab, "check", pay.session_id, wait="30 seconds")
        is_((row.status, row.paid), ("completed", True), "check: completed, however often it is asked")
    is_(lab.one("SELECT count(*) FROM payflow.accounting_entries WHERE order_id = 'asks'"), 1, "B1: one receipt")


def polls_by_itself(lab):
    """D6: without anybody asking, the poll finds out."""
    pay = create(lab, "polled")
    reg = lab.poll_session(pay.session_id, "registered")
    lab.act(reg.provider_payment_id, "pay")
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() WHERE session_id = %s", [pay.session_id])
    is_(lab.poll_session(pay.session_id, "completed").paid, True, "C26: the sweep completes it without a return")


def endings(lab):
    """The provider's endings, each from registered; A7: the order is free again."""
    for act, status, code in (("decline", "failed", "declined"), ("expire", "failed", "expired"),
                              ("cancel", "canceled", "canceled_by_provider")):
        pay = create(lab, act)
        reg = lab.poll_session(pay.session_id, "registered")
        lab.act(reg.provider_payment_id, act)
        row = call(lab, "check", pay.session_id, wait="30 seconds")
        is_((row.status, row.failure_code, row.paid), (status, code, False), f"{act}: {status} {code}")
        again = create(lab, act)
        isnt(again.session_id, pay.session_id, f"A7: after {act} the order may be tried again")
        reg = lab.poll_session(again.session_id, "registered")
        lab.act(reg.provider_payment_id, "pay")
        is_(call(lab, "check", again.session_id, wait="30 seconds").status, "completed", "and be paid")
        found = lab.sql("SELECT * FROM payflow.find(%s)", [act])
        is_([row.session_id for row in found], [again.session_id, pay.session_id], "find: both, newest first")


def manual_capture(lab):
    pay = lab.row("SELECT * FROM payflow.create('manual', 900, 'EUR', capture => 'manual')")
    reg = lab.poll_session(pay.session_id, "registered")
    lab.act(reg.provider_payment_id, "authorize")
    row = call(lab, "check", pay.session_id, wait="30 seconds")
    is_((row.status, row.stage, row.authorized_amount, row.captured_amount, row.paid),
        ("authorized", "capture", 900, 0, False), "manual capture: authorized, nothing booked")
    ok(row.next_action_at is not None, "D1: it has an alarm")


def rolled_back(lab):
    """A9, C76: no session and no call without a commit."""
    conn = lab.connect(autocommit=False)
    lab.row(CREATE, ["undone", 100, "EUR"], conn=conn)
    conn.rollback()
    with conn.cursor() as cursor:
        cursor.execute("SAVEPOINT s")
        cursor.execute(CREATE, ["undone", 100, "EUR"])
        cursor.execute("ROLLBACK TO s")
        cursor.execute(CREATE, ["kept", 100, "EUR"])
    conn.commit()
    kept = lab.row("SELECT * FROM payflow.find('kept')")
    lab.poll_session(kept.session_id, "registered")
    is_(lab.stats(order="undone")["calls"]["register"], 0, "A9: what was rolled back was never sent")
    is_(lab.one("SELECT count(*) FROM payflow.find('undone')"), 0, "and has no session")
    is_(lab.stats(order="kept")["calls"]["register"], 1, "what was committed was")
    conn.close()


def hanging_provider(lab):
    """A3: while calls hang no payflow process holds anything; others go on."""
    rule = lab.rule("register", "hold", order="hangs", times=0)
    pay = create(lab, "hangs")
    lab.wait_held(rule)
    # the worker may be looking for work just now: that is over in a moment, the call is not
    lab.poll_sql("""SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'payflow%'
                    AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)""",
                 what="no transaction and no snapshot of payflow")
    lab.poll_sql("""SELECT count(*) = 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                    WHERE a.backend_type LIKE 'payflow%'""", what="no lock of payflow")
    is_(lab.held(rule), 1, "A3: no transaction, no snapshot and no lock while the provider hangs")
    other = create(lab, "goes on")
    is_(call(lab, "wait", other.session_id, timeout="30 seconds").status, "registered", "other orders go on")
    row = call(lab, "get", pay.session_id)
    is_((row.status, row.http_status), ("registering", 202), "the hanging one is in progress")
    replay = create(lab, "hangs")
    is_((replay.session_id, replay.replayed, replay.http_status), (pay.session_id, True, 202), "A4: replayed, 202")
    lab.release(rule)
    is_(call(lab, "wait", pay.session_id, timeout="30 seconds").status, "registered", "released: registered")
    is_(lab.stats(order="hangs")["calls"]["register"], 1, "by one call")


def hostile_search_path(lab):
    """H3: nothing that a caller puts before pg_catalog is found by the calls' own statements."""
    conn = lab.connect()
    lab.sql("""CREATE SCHEMA evil;
        CREATE FUNCTION evil.caught(text, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$;
        CREATE FUNCTION evil.caught(uuid, uuid) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$;
        CREATE FUNCTION evil.caught(timestamptz, timestamptz) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$;
        CREATE FUNCTION evil.caught(bigint, bigint) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$;
        CREATE OPERATOR evil.= (FUNCTION = evil.caught, LEFTARG = text, RIGHTARG = text);
        CREATE OPERATOR evil.= (FUNCTION = evil.caught, LEFTARG = uuid, RIGHTARG = uuid);
        CREATE OPERATOR evil.< (FUNCTION = evil.caught, LEFTARG = timestamptz, RIGHTARG = timestamptz);
        CREATE OPERATOR evil.> (FUNCTION = evil.caught, LEFTARG = bigint, RIGHTARG = bigint);
        CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught'; END $$""")
    lab.sql("SET search_path = evil, pg_catalog", conn=conn)
    is_(str(lab.error("SELECT 'a'::text = 'a'::text", conn=conn)).split("\n")[0], "caught", "the trap works")
    pay = lab.row(CREATE, ["evil", 100, "EUR"], conn=conn)
    again = lab.row(CREATE, ["evil", 100, "EUR"], conn=conn)
    is_((again.session_id, again.replayed), (pay.session_id, True), "create and its replay do not step into it")
    lab.poll_session(pay.session_id, "registered")
    for query in ("SELECT * FROM payflow.get(%s::uuid)", "SELECT * FROM payflow.payer_redirected(%s::uuid)",
                  "SELECT * FROM payflow.check(%s::uuid, '10 seconds')", "SELECT * FROM payflow.wait(%s::uuid)",
                  "SELECT * FROM payflow.payer_returned(%s::uuid)", "SELECT * FROM payflow.timeline(%s::uuid)"):
        is_(lab.error(query, [pay.session_id], conn=conn), None, f"nor does {query.split('.')[1].split('(')[0]}")
    for query in ("SELECT * FROM payflow.find('evil')", "SELECT payflow.lock_order('evil')",
                  "SELECT * FROM payflow.check_invariants()"):
        is_(lab.error(query, conn=conn), None, f"nor does {query.split('payflow.')[1].split('(')[0]}")
    lab.sql("DROP SCHEMA evil CASCADE")
    conn.close()


def long_return_url(lab):
    """An address is measured as it will be sent, with the session's id in it."""
    url = "https://shop.example/" + "{SESSION_ID}" * 100
    error = lab.error("SELECT * FROM payflow.create('url', 100, 'EUR', return_url => %s)", [url])
    is_((error.pgcode, error.diag.message_detail), ("PT400", "invalid_url"), "return_url: too long once the id is in it")
    is_(lab.one("SELECT count(*) FROM payflow.find('url')"), 0, "and nothing is written")


def foreign_schema(lab):
    """H3: the extension is not installed into a schema of a role with less power, which could drop it."""
    lab.sql("CREATE DATABASE other")
    lab.sql("CREATE ROLE nobody1")
    conn = lab.connect(dbname="other")
    lab.sql("CREATE SCHEMA payflow AUTHORIZATION nobody1", conn=conn)
    error = lab.error("CREATE EXTENSION payflow", conn=conn)
    is_(error and error.pgcode, "42501", "H3: a schema payflow of somebody else is refused")
    lab.sql("ALTER SCHEMA payflow OWNER TO CURRENT_USER", conn=conn)
    is_(lab.error("CREATE EXTENSION payflow", conn=conn), None, "one's own is taken")
    conn.close()


def closed_sessions(lab):
    """C42, D13: what is final stays final, whatever is asked or answered later."""
    pay = create(lab, "closed")
    reg = lab.poll_session(pay.session_id, "registered")
    lab.act(reg.provider_payment_id, "pay")
    call(lab, "check", pay.session_id, wait="30 seconds")
    lab.rule("get", "answer", {"id": reg.provider_payment_id, "reference": str(pay.session_id), "order": "closed",
                               "status": "pending", "stage": "form", "amount": 1500, "currency": "EUR"}, order="closed")
    row = call(lab, "check", pay.session_id, wait="30 seconds")
    is_((row.status, row.paid), ("completed", True), "C42: a late pending changes nothing")
    lab.act(reg.provider_payment_id, "expire")
    row = call(lab, "check", pay.session_id, wait="30 seconds")
    is_((row.status, row.paid), ("completed", True), "C32: nor does expired")


def late_money(lab):
    """Money on a session that has ended is booked to suspense, once."""
    pay = create(lab, "late", 700)
    reg = lab.poll_session(pay.session_id, "registered")
    lab.act(reg.provider_payment_id, "decline")
    call(lab, "check", pay.session_id, wait="30 seconds")
    lab.act(reg.provider_payment_id, "pay")
    for _ in range(3):
        row = call(lab, "check", pay.session_id, wait="30 seconds")
        is_((row.status, row.suspense_amount, row.captured_amount, row.paid), ("failed", 700, 0, False),
            "late money: the session stays failed, the money is in suspense")
    is_(lab.one("SELECT count(*) FROM payflow.discrepancies WHERE session_id = %s", [pay.session_id]), 1,
        "one discrepancy, however often it is reported")
    error = lab.error(CREATE, ["late", 700, "EUR"])
    is_((error.pgcode, error.diag.message_detail), ("PT409", "money_in_suspense"), "no new session meanwhile")


def wrong_amount(lab):
    """B4, C53: another amount or currency is never a clean completion."""
    for order, body in (("less", {"amount": 1}), ("other", {"currency": "USD"})):
        pay = create(lab, order, 1000)
        reg = lab.poll_session(pay.session_id, "registered")
        lab.act(reg.provider_payment_id, "pay", **body)
        for _ in range(2):
            row = call(lab, "check", pay.session_id, wait="30 seconds")
            is_((row.status, row.failure_code, row.paid, row.captured_amount), ("failed", "amount_mismatch", False, 0),
                f"{order}: failed amount_mismatch")
        is_(lab.one("""SELECT count(*) FROM payflow.accounting_entries
                       WHERE session_id = %s AND entry_type = 'unexpected_received'""", [pay.session_id]), 1,
            "the money is in suspense, once")
        like(lab.one("SELECT string_agg(key, ',') FROM payflow.alerts"), "amount_mismatch", "with an alert")


with Lab() as lab:
    for test in (happy_path, ask_again_and_again, polls_by_itself, endings, manual_capture, rolled_back,
                 hostile_search_path, long_return_url, foreign_schema,
                 hanging_provider, closed_sessions, late_money, wrong_amount):
        test(lab)
    ok(poll(lambda: lab.one("SELECT count(*) FROM payflow.payment_sessions WHERE lease_until IS NOT NULL") == 0,
            what="all leases to be given back"), "no lease is left behind")
    lab.finish()
done_testing()
