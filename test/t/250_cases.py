"""Faults seen in the field, where what came too late met what had moved on: C17, C21, C22, C26, C29, C73.

C42 and its kin are in 210_take_over.py, C76 in 230_transactions.py.
"""

from payflow_test import Lab, done_testing, is_, ok, poll, threads_at_barrier

CREATE = "SELECT * FROM payflow.create(%s, 1000, 'EUR')"


def create(lab, order):
    return lab.row(CREATE, [order])


def registers(lab, pay):
    """Register calls, and the different keys and bodies among them."""
    calls = lab.requests(pay.session_id, "register")
    return len(calls), len({(c["key"], c["body_sha256"]) for c in calls})


def statuses(lab, pay):
    """All statuses that the session has ever had."""
    return [r.to_status for r in lab.sql("SELECT * FROM payflow.timeline(%s::uuid)", [pay.session_id])]


def completes(lab, pay, name):
    lab.act(pay.session_id, "pay")
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "completed").paid, True, f"{name}: then it is paid")
    is_((lab.stats(reference=pay.session_id)["payments"],
         lab.one("SELECT count(*) FROM payflow.accounting_entries WHERE session_id = %s", [pay.session_id])), (1, 1),
        f"{name}: one payment, one receipt")


def gateway_timeout(lab):
    """C17: a 504 may be stored with the key: neither a failure nor a reason for another key.

    Protection: lost is unknown, not failed; one key a session.
    """
    for name, more in (("C17", {}), ("C17, done", {"done": True})):
        find = lab.rule("find", "hold", order="*")
        lab.rule("register", "status", 504, order=name, **more)
        pay = create(lab, name)
        lab.wait_held(find)
        replay = create(lab, name)
        is_((replay.session_id, replay.replayed, replay.status, replay.http_status), (pay.session_id, True, "unknown", 202),
            f"{name}: a 504: unknown, replays get 202")
        lab.release(find)
        lab.poll_session(pay.session_id, "registered")
        n, kinds = registers(lab, pay)
        is_((n, kinds), (1 if more else n, 1), f"{name}: resolved by asking; whatever was sent again was the same")
        ok("failed" not in statuses(lab, pay), f"{name}: it never failed")
        completes(lab, pay, name)


def answer_after_timeout(lab):
    """C21: the provider answers after we have given up.  Protection: the same key, as it is still at work."""
    lab.option(timeout="300ms")
    hold = lab.rule("register", "hold", order="C21")
    pay = create(lab, "C21")
    lab.poll_session(pay.session_id, "unknown")
    poll(lambda: registers(lab, pay)[0] >= 2, what="the repeat")
    is_(registers(lab, pay)[1], 1, "C21: our time is over: unknown, repeated with the same key and bytes")
    lab.release(hold)
    lab.poll_session(pay.session_id, "registered")
    lab.option(timeout="30s")
    ok("failed" not in statuses(lab, pay), "C21: the work is done after that: found, never failed")
    completes(lab, pay, "C21")


def sweep_and_retry(lab):
    """C22: the sweep and the payer's retries, 200 times, on the same payments.  Protection: the lease."""
    orders = [f"C22 {i}" for i in range(200)]

    def pester(i):
        for order in orders[i % 4::4]:
            pay = create(lab, order)
            lab.ring(pay.session_id)
            lab.sql("SELECT * FROM payflow.check(%s::uuid)", [pay.session_id])
            if i >= 4:
                lab.sql("SELECT * FROM payflow.wait(%s::uuid, '10 seconds')", [pay.session_id])
                lab.sql("SELECT * FROM payflow.payer_returned(%s::uuid)", [pay.session_id])
            lab.ring(pay.session_id)

    is_(threads_at_barrier(8, pester), [None] * 8, "C22: everybody is answered")
    pays = [create(lab, order) for order in orders]
    for pay in pays:
        lab.poll_session(pay.session_id, "registered")
    is_({(registers(lab, pay), lab.stats(reference=pay.session_id)["payments"]) for pay in pays}, {((1, 1), 1)},
        "C22: 200 orders: one Register, one payment each")


def return_asks(lab):
    """C26: no webhook; the payer's return asks, and that is enough."""
    pay = create(lab, "C26")
    lab.poll_session(pay.session_id, "registered")
    lab.act(pay.session_id, "pay")
    row = lab.row("SELECT * FROM payflow.payer_returned(%s::uuid, wait => '30 seconds')", [pay.session_id])
    is_((row.status, row.paid), ("completed", True), "C26: the payer returns: completed")
    is_(len(lab.requests(pay.session_id, "get")), 1, "C26: by one question")


def never_dropped(lab):
    """C29: Register times out again and again: repeated while the key is valid, then asked, then failed.

    Protection: the validity of the key, looked at before each repeat.
    """
    lab.rule("register", "drop_before", order="C29", times=0)
    pay = create(lab, "C29")

    def age(interval):
        lab.sql("""UPDATE payflow.payment_sessions SET first_sent_at = now() - %s::interval, next_action_at = now()
                   WHERE session_id = %s""", [interval, pay.session_id])

    def asked_again():
        n = len(lab.requests(pay.session_id, "find"))
        poll(lambda: lab.ring(pay.session_id) and len(lab.requests(pay.session_id, "find")) > n + 2, what="questions")

    poll(lambda: lab.ring(pay.session_id) and registers(lab, pay)[0] >= 3, what="repeats")
    is_((registers(lab, pay)[1], lab.poll_session(pay.session_id, "unknown").http_status), (1, 202),
        "C29: lost three times: the same key, the same bytes, 202")
    asked_again()
    lab.poll_sql("SELECT status = 'unknown' AND lease_until IS NULL FROM payflow.payment_sessions WHERE session_id = %s",
                 [pay.session_id])
    age("23 hours")
    # what was claimed before that may still be sent
    lab.poll_sql("SELECT lease_until IS NULL FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id])
    n = registers(lab, pay)[0]
    asked_again()
    is_((registers(lab, pay)[0], create(lab, "C29").session_id), (n, pay.session_id),
        "C29: the key may be forgotten: never sent again, only asked; the order is still taken")
    age("3 days")
    row = lab.poll_session(pay.session_id, "failed")
    is_((row.failure_code, lab.stats(order="C29")["payments"]), ("not_found", 0),
        "C29: key, lifetime and grace are over, and nobody knows it: failed, not_found")
    lab.clear_rules()
    again = create(lab, "C29")
    is_(again.replayed, False, "C29: the order is free again")
    lab.poll_session(again.session_id, "registered")
    lost = lab.one("SELECT count(*) FROM payflow.journal WHERE session_id = %s AND event = 'register' AND outcome = 'lost'",
                   [pay.session_id])
    is_(lost, n, "C29: each loss is in the journal")


def crashed_worker(lab):
    """C73: taken by a worker that is no more: taken again when the lease is over, and counted.

    Protection: a claim looks at the end of the lease, not at whether there is one.
    """
    conn = lab.connect(autocommit=False)
    pay = lab.row(CREATE, ["C73"], conn=conn)
    lab.sql("""UPDATE payflow.payment_sessions SET lease_until = now() + '1 hour'::interval, lease_token = 1, attempts = 1,
               first_sent_at = now(), endpoint = %s WHERE session_id = %s""", [lab.url, pay.session_id], conn=conn)
    conn.commit()
    conn.close()
    hold = lab.rule("register", "hold", order="C73")
    lab.all_looked()
    is_(registers(lab, pay), (0, 0), "C73: while the lease lasts nobody takes it")
    lab.end_lease(pay.session_id)
    lab.wait_held(hold)
    row = lab.row("SELECT * FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id])
    is_((row.attempts, row.status, row.lease_token != 1, row.first_sent_at is not None), (2, "registering", True, True),
        "C73: when it is over it is taken again, as the second attempt")
    lab.release(hold)
    lab.poll_session(pay.session_id, "registered")
    is_(registers(lab, pay), (1, 1), "C73: one call")
    completes(lab, pay, "C73")


with Lab(workers=2, conf={"payflow.poll_interval": "100ms"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    for test in (gateway_timeout, answer_after_timeout, sweep_and_retry, return_asks, never_dropped, crashed_worker):
        test(lab)
    lab.finish()
done_testing()
