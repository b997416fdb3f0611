"""Answers that are lost, late, broken or no answers at all.

C17, C21, C29, A10, B3: whatever comes instead of an answer, the status right after the fault, the way to the final state,
and what was counted at the provider.
"""

from payflow_test import Lab, done_testing, is_, ok, poll

# What a rule does to a call, and whether the provider has done its work all the same.  All of it is "lost": the request
# may have arrived, and nothing usable came back.
FAULTS = {
    "drop before": (("drop_before",), {}, False),
    "drop after": (("drop_after",), {}, True),
    "reset": (("reset",), {}, False),
    "500": (("status", 500), {}, False),
    "500 done": (("status", 500), {"done": True}, True),
    "502": (("status", 502), {}, False),
    "503": (("status", 503), {}, False),
    "504": (("status", 504), {}, False),
    "504 done": (("status", 504), {"done": True}, True),
    "418": (("status", 418), {}, False),
    "302": (("status", 302), {}, False),
    "408": (("status", 408), {}, False),
    "key in use": (("status", 409), {"code": "key_in_use"}, False),
    "garbage": (("garbage",), {}, True),
    "half body": (("half_body",), {}, True),
    "huge body": (("huge_body",), {}, True),
    "empty": (("answer", ""), {}, False),
    "null": (("answer", "null"), {}, False),
    "text": (("answer", '"ok"'), {}, False),
    "array": (("answer", "[]"), {}, False),
    "nothing in it": (("answer", {}), {}, False),
    "cut JSON": (("answer", '{"id":"pay_1","status":"pend'), {}, False),
    "no id": (("answer", {"status": "pending", "amount": 1000, "currency": "EUR"}), {}, False),
    "no status": (("answer", {"id": "pay_no_status", "amount": 1000, "currency": "EUR"}), {}, False),
    "odd amount": (("answer", {"id": "pay_odd", "status": "paid", "amount": 1000, "captured": -1}), {}, False),
    "a page": (("answer", "<html>Please log in</html>"), {}, False),
    "a page, 404": (("answer", "<html>Not Found</html>"), {"status": 404}, False),
    "a page, 422": (("answer", "<html>No</html>"), {"status": 422}, False),
    "other's JSON, 404": (("answer", {"message": "no Route matched"}), {"status": 404}, False),
    "201 of nothing": (("answer", ""), {"status": 201}, False),
    "204": (("status", 204), {}, False),
    "slow": (("delay", 1500), {}, True),
    "stalled": (("stall_body",), {}, True),
}

# Those that take the whole timeout go to a server with a short one.
HASTY = {"slow", "stalled"}


def server_of(fault):
    return "hasty" if fault in HASTY else "sandbox"


def create(lab, order, provider="sandbox", **args):
    named = "".join(f", {key} => %({key})s" for key in args)
    return lab.row(f"SELECT * FROM payflow.create(%(order)s, 1000, 'EUR', provider => %(provider)s{named})",
                   {"order": order, "provider": provider, **args})


def check(lab, session_id):
    return lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [session_id])


def register(lab):
    """Register: unknown at once, then asked for, then known or repeated with the same key and bytes.

    protection: http.c finish() says lost, not unsent, once the request may have left.
    """
    hold = lab.rule("find", "hold", times=0)
    for fault, (action, more, _) in FAULTS.items():
        lab.rule("register", *action, order=fault, **more)
    sessions = {fault: create(lab, fault, server_of(fault)).session_id for fault in FAULTS}
    poll(lambda: all(lab.stats(order=fault)["calls"]["find"] for fault in FAULTS), what="a question about each")
    poll(lambda: lab.stats(order="slow")["payments"], what="the slow one to be done")

    for fault, session_id in sessions.items():
        replay = create(lab, fault, server_of(fault))
        stats = lab.stats(order=fault)
        entry = lab.journal(session_id, "register")
        is_((replay.session_id, replay.status, replay.http_status, replay.replayed), (session_id, "unknown", 202, True),
            f"C17, C29: Register, {fault}: unknown, a replay gets 202")
        is_(([(e.outcome, e.from_status, e.to_status) for e in entry], stats["calls"]["register"]),
            ([("lost", "registering", "unknown")], 1), "the journal says lost; one call so far")
    is_(lab.one("""SELECT count(*) FROM payflow.payment_sessions WHERE status = 'unknown'
                   AND (next_action_at IS NULL OR unresolved_since IS NULL)"""), 0, "each has its alarm")

    other = create(lab, "other", "other")
    is_(lab.row("SELECT * FROM payflow.wait(%s::uuid, '30 seconds')", [other.session_id]).status, "registered",
        "another provider goes on meanwhile")
    lab.release(hold)
    for fault, session_id in sessions.items():
        row = lab.poll_session(session_id, "registered", "failed", "canceled", "completed")
        stats, sent = lab.stats(order=fault), lab.requests(session_id, "register")
        is_((row.status, stats["payments"], len(sent)), ("registered", 1, 1 if FAULTS[fault][2] else 2),
            f"C29: {fault}: registered, one payment, no Register more than it takes")
        is_((len({r["key"] for r in sent}), len({r["body_sha256"] for r in sent})), (1, 1), "one key, the same bytes")
        ok(row.redirect_url, "its page is known")
    return sessions


def question(lab, sessions):
    """The same faults in place of the answer to a question: nothing is learned, nothing is changed."""
    for session_id in sessions.values():
        lab.quiet(session_id)
    for fault, session_id in sessions.items():
        action, more, _ = FAULTS[fault]
        rule = lab.rule("get", *action, order=fault, times=0,
                        **{key: value for key, value in more.items() if key != "done"})
        lab.act(str(session_id), "pay")
        row = check(lab, session_id)
        is_((row.status, row.paid), ("registered", False), f"a question, {fault}: stays as it is")
        is_(lab.journal(session_id)[-1].outcome, "lost", "the journal says lost")
        ok(lab.session(session_id).next_action_at, "its alarm is set")
        lab.release(rule)
        row = check(lab, session_id)
        is_((row.status, row.paid), ("completed", True), "and the next answer completes it")


def expire(lab):
    """And in place of the answer to "expire it"."""
    faults = {fault: FAULTS[fault] for fault in ("drop before", "drop after", "503", "garbage", "stalled")}
    sessions = {}
    for fault in faults:
        sessions[fault] = create(lab, f"expire, {fault}", server_of(fault)).session_id
    for fault, session_id in sessions.items():
        lab.poll_session(session_id, "registered")
        action, more, _ = faults[fault]
        lab.rule("expire", *action, order=f"expire, {fault}", **more)
        lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() - interval '1 second', next_action_at = now()
                   WHERE session_id = %s""", [session_id])
    for fault, session_id in sessions.items():
        poll(lambda: lab.journal(session_id, "expire"), what="the lost answer")
        row = lab.poll_session(session_id, "failed", "completed", "canceled")
        first = lab.journal(session_id, "expire")[0]
        sent = lab.requests(session_id, "expire")
        is_((first.outcome, first.to_status), ("lost", "registered"), f"Expire, {fault}: lost, stays registered")
        is_((row.status, row.failure_code, len(sent)), ("failed", "expired", 1 if faults[fault][2] else 2),
            "then asked, and repeated only if it was not done")
        is_((len({r["key"] for r in sent}), len({r["body_sha256"] for r in sent})), (1, 1), "one key, the same bytes")
        is_(lab.payments(f"expire, {fault}")[0]["status"], "expired", "expired at the provider as well")


def late_success(lab):
    """C21: the answer, success, comes after our timeout: unknown, then completed, never failed."""
    hold = lab.rule("register", "hold", order="C21")
    find = lab.rule("find", "hold", order="*", times=0)
    session_id = create(lab, "C21", "hasty").session_id
    lab.poll_session(session_id, "unknown")
    lab.release(hold)
    lab.act(str(session_id), "pay")
    lab.release(find)
    row = lab.poll_session(session_id, "completed", "failed")
    is_((row.status, row.paid, row.captured_amount), ("completed", True, 1000), "C21: paid meanwhile: completed")
    moves = [(e.from_status, e.to_status) for e in lab.journal(session_id) if e.from_status != e.to_status]
    ok(all(to != "failed" for _, to in moves), "C21: and never failed", moves)
    is_((lab.stats(order="C21")["calls"]["register"], lab.stats(order="C21")["payments"]), (1, 1),
        "C21: one Register, one payment")


def not_there(lab):
    """C23: the provider says that it has no such payment: it may be a mistake until the deadline, then it counts."""
    session_id = create(lab, "C23").session_id
    lab.poll_session(session_id, "registered")
    lab.quiet(session_id)
    lab.rule("get", "notfound", order="C23", times=0)
    is_(check(lab, session_id).status, "registered", "C23: not found before the deadline: stays registered")
    ok(lab.session(session_id).next_action_at, "with an alarm")
    lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() - interval '1 second', next_action_at = now()
               WHERE session_id = %s""", [session_id])
    row = lab.poll_session(session_id, "failed")
    is_((row.failure_code, row.paid), ("not_found", False), "C23: not found after it: failed, not_found")
    lab.clear_rules()


def out_of_reach(lab):
    """A state that cannot be learned for long calls a person, once, and goes on being asked for.

    protection: decide.c decide_unanswered() lets the pauses grow by failures in a row only.
    """
    session_id = create(lab, "out of reach").session_id
    lab.poll_session(session_id, "registered")
    # One that has waited long, asked in long pauses: when the first question fails the next one is near.
    lab.sql("UPDATE payflow.payment_sessions SET attempts = 15 WHERE session_id = %s", [session_id])
    rule = lab.rule("get", "status", 503, order="out of reach", times=0)
    poll(lambda: lab.ring(session_id) and lab.hits(rule), what="the first failure")
    poll(lambda: lab.hits(rule) >= 3, what="two more, without being told to")
    is_(lab.alerts(), set(), "so far no alert: all of it is ordinary")
    lab.sql("UPDATE payflow.payment_sessions SET unresolved_since = now() - interval '61 minutes' WHERE session_id = %s",
            [session_id])
    hits = lab.hits(rule)
    poll(lambda: lab.ring(session_id) and lab.hits(rule) >= hits + 3, what="three more questions")
    poll(lambda: lab.alerts() == {f"unresolved:{session_id}"}, what="the one alert")
    is_(lab.one("SELECT reason FROM payflow.stuck WHERE session_id = %s", [session_id]),
        "the provider's state cannot be learned", "out of reach for more than an hour: stuck, with an alert")
    lab.act(str(session_id), "pay")
    lab.release(rule)
    is_(check(lab, session_id).status, "completed", "and completed as soon as the provider answers")
    is_(lab.one("SELECT count(*) FROM payflow.stuck"), 0, "nothing is stuck")


def key_runs_out(lab):
    """C29: repeated while the key is surely valid, then only asked, and failed when nothing can come any more.

    protection: alarm.c register_key_is_valid()
    """
    rule = lab.rule("register", "drop_before", order="C29", times=0)
    session_id = create(lab, "C29").session_id
    poll(lambda: lab.ring(session_id) and lab.hits(rule) >= 2, what="a repeat")
    row = lab.row("SELECT * FROM payflow.get(%s::uuid)", [session_id])
    is_((row.status, row.http_status), ("unknown", 202), "C29: lost again: still unknown")

    lab.sql("""UPDATE payflow.payment_sessions SET first_sent_at = now() - interval '23 hours', next_action_at = now()
               WHERE session_id = %s""", [session_id])
    calls = lab.stats(order="C29")["calls"]
    poll(lambda: lab.ring(session_id) and lab.stats(order="C29")["calls"]["find"] >= calls["find"] + 3,
         what="three more questions")
    is_(lab.stats(order="C29")["calls"]["register"] - calls["register"] <= 1, True,
        "C29: after the key's validity it is not sent again")
    settled = lab.stats(order="C29")["calls"]["register"]
    is_(lab.row("SELECT * FROM payflow.get(%s::uuid)", [session_id]).status, "unknown", "a lagging search proves nothing")

    lab.sql("""UPDATE payflow.payment_sessions SET first_sent_at = now() - interval '48 hours 1 second',
               next_action_at = now() WHERE session_id = %s""", [session_id])
    row = lab.poll_session(session_id, "failed", "canceled")
    is_((row.status, row.failure_code), ("failed", "not_found"),
        "C29: key validity, lifetime and grace are over: failed, not_found")
    is_(lab.stats(order="C29")["calls"]["register"], settled, "without another Register")
    is_(lab.stats(order="C29")["distinct_keys"], 1, "one key in all that time")
    lab.clear_rules()


with Lab(workers=2) as lab:
    # The breaker would keep the faults of one test from the others.
    lab.sql("ALTER SERVER sandbox OPTIONS (ADD breaker_failures '1000000')")
    lab.add_server("hasty", timeout="1 s", breaker_failures="1000000")
    lab.add_server("other")
    question(lab, register(lab))
    expire(lab)
    late_success(lab)
    not_there(lab)
    key_runs_out(lab)
    out_of_reach(lab)
    lab.finish()
done_testing()
