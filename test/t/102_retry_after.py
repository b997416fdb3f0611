"""A provider that asks to be left alone: 429 and 503 with Retry-After.

C23, C29: every worker leaves it alone until then; other providers notice nothing of it.
"""

import datetime
import email.utils

from payflow_test import Lab, done_testing, is_, ok, poll

WORKERS = 3
OPTIONS = {"breaker_failures": "1000000"}


def create(lab, order, provider):
    return lab.row("SELECT * FROM payflow.create(%s, 1000, 'EUR', provider => %s)", [order, provider])


def wait(lab, pay):
    return lab.row("SELECT * FROM payflow.wait(%s::uuid, '30 seconds')", [pay.session_id])


def blocked_until(lab, provider):
    return lab.one("SELECT blocked_until FROM payflow.provider_stats WHERE provider = %s", [provider])


def left_alone(lab, status, retry_after, pause):
    """One call is told to wait; nobody calls before that time, not for other sessions and not when asked to.

    protection: limits.c take() heeds blocked_until, decide.c decide_unanswered() the time for the session itself.
    """
    name = f"{status} {retry_after or 'date'}"
    if retry_after is None:
        # A date has whole seconds, so the pause may be a second shorter than it looks.
        retry_after = email.utils.formatdate(lab.one("SELECT extract(epoch FROM now())::float8") + pause + 1, usegmt=True)
    lab.add_server(name, **OPTIONS)
    before = create(lab, f"{name}: before", name)
    reg = wait(lab, before)
    lab.quiet(before.session_id)

    # The question and the answer to it, held until more sessions wait for their turn.
    lab.rule("register", "status", status, order=f"{name}: first", retry_after=retry_after)
    first = create(lab, f"{name}: first", name)
    poll(lambda: blocked_until(lab, name), what="the provider to be left alone")
    told_at = lab.requests(first.session_id, "register")[0]["at_ms"]
    journal = poll(lambda: lab.journal(first.session_id, "register"), what="the end of the attempt")[0]
    row = lab.session(first.session_id)
    is_((row.status, journal.outcome, journal.http_status),
        ("registering", "throttled", 429) if status == 429 else ("unknown", "lost", 503), f"{name}: the status right after")
    ok(row.next_action_at.timestamp() * 1000 >= told_at + pause * 1000, "its alarm rings no earlier than told")

    # Every worker is woken by each of these, and a caller asks for an answer now.
    more = [create(lab, f"{name}: more {i}", name) for i in range(2 * WORKERS)]
    asked = lab.row("SELECT * FROM payflow.check(%s::uuid, '100 milliseconds')", [before.session_id])
    is_(asked.status, "registered", "a caller that asks gets what is known")
    lab.ring(before.session_id)
    lab.ring(first.session_id)
    other = create(lab, f"{name}: other", "other")
    is_(wait(lab, other).status, "registered", "another provider goes on")
    is_((lab.requests(before.session_id, "get")[1:], [lab.requests(m.session_id) for m in more],
         len(lab.requests(first.session_id))), ([], [[]] * len(more), 1), "nobody has called yet")

    for pay in (first, *more):
        is_(lab.poll_session(pay.session_id, "registered", "failed", "canceled").status, "registered", "then registered")
    called = [call["at_ms"] for pay in (before, first, *more) for call in lab.requests(pay.session_id)
              if call["at_ms"] > told_at]
    ok(min(called) >= told_at + pause * 1000, f"{name}: left alone by all workers until then",
       f"called {min(called) - told_at} ms after it had said so")
    sent = lab.requests(first.session_id, "register")
    is_((len({r["key"] for r in sent}), len({r["body_sha256"] for r in sent}), lab.stats(order=f"{name}: first")["payments"]),
        (1, 1, 1), "one key, the same bytes, one payment")
    lab.act(reg.provider_payment_id, "pay")
    is_(lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [before.session_id]).status, "completed",
        "the one that was there before is completed")


def question(lab):
    """C23: 429 to a question: nothing changes."""
    lab.add_server("asks", **OPTIONS)
    pay = create(lab, "asks", "asks")
    reg = wait(lab, pay)
    lab.act(reg.provider_payment_id, "pay")
    lab.rule("get", "status", 429, order="asks", retry_after=1)
    lab.rule("get", "status", 429, order="asks")
    lab.ring(pay.session_id)
    poll(lambda: "throttled" in [e.outcome for e in lab.journal(pay.session_id, "get")], what="the first 429")
    is_(lab.session(pay.session_id).status, "registered", "C23: 429: stays as it is")
    row = lab.poll_session(pay.session_id, "completed", "failed")
    is_(row.paid, True, "and is completed when it answers")
    is_([e.outcome for e in lab.journal(pay.session_id, "get")][-3:], ["throttled", "throttled", "paid"],
        "with and without Retry-After")


def odd_values(lab):
    """What it says may be of no use: then the pauses are our own, and never longer than a day.

    protection: task.c LONGEST_RETRY_AFTER
    """
    for i, value in enumerate(("soon", "-5", "0", "1.5", "Thu, 01 Jan 1970 00:00:00 GMT", "99999999999999999999999", "1 2")):
        name = f"odd {i}"
        lab.add_server(name, **OPTIONS)
        lab.rule("register", "status", 429, order=name, retry_after=value)
        pay = create(lab, name, name)
        poll(lambda: lab.journal(pay.session_id, "register"), what="the 429")
        row = lab.session(pay.session_id)
        if value.startswith("9"):
            now = lab.one("SELECT now()")
            day = datetime.timedelta(days=1)
            ok(day * 0.9 < row.next_action_at - now <= day, f"Retry-After: {value}: the alarm rings in a day",
               row.next_action_at - now)
            ok(day * 0.9 < blocked_until(lab, name) - now <= day, "the provider is left alone for a day")
            is_(row.status, "registering", "the session goes on waiting")
        else:
            is_(lab.poll_session(pay.session_id, "registered").status, "registered", f"Retry-After: {value}: soon again")


def not_for_all(lab):
    """Beside another status it is about that call: the provider is not left alone for it.

    protection: http.c finish() forgets Retry-After beside other statuses than 429 and 503.
    """
    lab.add_server("single", **OPTIONS)
    lab.rule("register", "status", 409, order="single", retry_after=3600, code="key_in_use")
    pay = create(lab, "single", "single")
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "409 with Retry-After: asked and repeated soon")
    is_(blocked_until(lab, "single"), None, "nobody is kept from calling")
    lab.rule("get", "answer", lab.payments("single")[0], order="single", retry_after=3600)
    lab.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])
    is_(blocked_until(lab, "single"), None, "nor by 200 with Retry-After")


with Lab(workers=WORKERS) as lab:
    lab.add_server("other", **OPTIONS)
    left_alone(lab, 429, 2, 2)
    left_alone(lab, 503, 2, 2)
    left_alone(lab, 429, None, 1)
    question(lab)
    odd_values(lab)
    not_for_all(lab)
    is_(lab.alerts(), set(), "no alert: all of it is ordinary")
    lab.finish()
done_testing()
