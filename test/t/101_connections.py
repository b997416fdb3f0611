"""Faults of the connection itself, counted on the wire.

A10, C12, C29: refused, reset, silent and dripping connections, kept ones that are closed at the wrong moment, answers that
are no HTTP.  Within one attempt a Register is never sent twice.
"""

from payflow_test import Lab, done_testing, is_, like, ok, poll
from wire import DeafPort, Front, answer, close, drip, padded, pass_on_and_close, reset, silent, with_headers


def page(body):
    """A complete answer with this body."""
    return answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


# Sent, and no usable answer: the name, what comes, whether the provider has done its work.
ANSWERS = {
    "closed": (close, False),
    "done and closed": (pass_on_and_close, True),
    "reset": (reset, False),
    "HTTP/0.9": (answer(b"hello\n"), False),
    "other protocol": (answer(b"\x15\x03\x01\x00\x02\x02\x28"), False),
    "half a status line": (answer(b"HTTP/1.1 20"), False),
    "half a header": (answer(b"HTTP/1.1 200 OK\r\nContent-Le"), False),
    "no end of headers": (answer(b"HTTP/1.1 200 OK\r\n" + b"X-Filler: " + b"x" * 300000), False),
    "many headers": (with_headers([b"X-Filler: " + b"x" * 70] * 1000), True),
    "only an interim answer": (answer(b"HTTP/1.1 100 Continue\r\n\r\n"), False),
    "switching protocols": (answer(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), False),
    "bad chunks": (answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"), False),
    "half a chunk": (answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"id\":"), False),
    "two lengths": (answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 50\r\n\r\n{}"), False),
    "a length of nonsense": (answer(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"), False),
    "packed": (answer(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"), False),
    "NUL in the body": (page(b'{"id":"pay_nul\x00","status":"pending"}'), False),
    "NUL in a header": (answer(b"HTTP/1.1 200 OK\r\nX-Nul: a\x00b\r\nContent-Length: 2\r\n\r\n{}"), False),
    "escaped NUL": (page(b'{"id":"pay\\u0000_1","status":"pending"}'), False),
    "invalid UTF-8": (page(b'{"id":"pay_\xe4\xf6\xfc","status":"pending"}'), False),
    "long after its end": (padded(2 << 20), True),
    "silent": (silent, False),
    "dripping body": (drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "), False),
    "dripping headers": (drip(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), False),
    "dripping interim answers": (drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), False),
}


def create(lab, order, provider="front"):
    return lab.row("SELECT * FROM payflow.create(%s, 1000, 'EUR', provider => %s)", [order, provider])


def wait(lab, pay):
    return lab.row("SELECT * FROM payflow.wait(%s::uuid, '30 seconds')", [pay.session_id])


def first_attempt(lab, pay):
    """The outcome of the first attempt to register."""
    return poll(lambda: lab.journal(pay.session_id, "register"), what="the end of an attempt")[0]


def answers(lab, front):
    """Whatever comes back: one POST an attempt, unknown, then one payment by the same bytes.

    protection: http.c's limits of time, of headers, of the body; finish(), which says lost once the request may have left.
    """
    sessions = {}
    for order, (act, _) in ANSWERS.items():
        front.plan("register", order, act)
        sessions[order] = create(lab, order, "hasty" if act is silent or "drip" in order else "front")
    for order, pay in sessions.items():
        first = first_attempt(lab, pay)
        is_((first.outcome, first.from_status, first.to_status), ("lost", "registering", "unknown"),
            f"{order}: lost, unknown ({(first.detail or {}).get('error')})")
    front.release()
    for order, pay in sessions.items():
        row = lab.poll_session(pay.session_id, "registered", "failed", "canceled", "completed")
        posts = front.sent("register", order)
        is_((row.status, lab.stats(order=order)["payments"], len(posts)), ("registered", 1, 1 if ANSWERS[order][1] else 2),
            f"{order}: registered, one payment, no POST more than it takes")
        is_(len(posts), len(lab.journal(pay.session_id, "register")), "on the wire: one POST an attempt")
        is_(len({(p.body, p.headers["idempotency-key"]) for p in posts}), 1, "the same bytes and key")
        lab.quiet(pay.session_id)


def kept_connection(lab, front):
    """A kept connection that is closed after the next request was read: not sent again within the attempt.

    protection: http.c on_request() refuses the second sending of a call that must be sent once.
    """
    for i in range(5):
        first, second = f"keeps {i}", f"kept {i}"
        front.hang_up()
        is_(wait(lab, one := create(lab, first)).status, "registered", f"{first}: a connection is left open")
        lab.quiet(one.session_id)
        front.plan("register", second, close)
        two = create(lab, second)
        attempt = first_attempt(lab, two)
        posts = front.sent("register", second)
        is_((len(posts), attempt.outcome, attempt.to_status), (1, "lost", "unknown"),
            f"{second}: one POST within the attempt, then unknown")
        ok(posts[0].nth > 1, "it had come over the kept connection")
        is_(wait(lab, two).status, "registered", "asked, not there, repeated: registered")
        posts = front.sent("register", second)
        is_((len(posts), len({(p.body, p.headers["idempotency-key"]) for p in posts})), (2, 1),
            "by one more POST of the same bytes and key")
        is_(lab.stats(order=second)["payments"], 1, "one payment")
        lab.quiet(two.session_id)

    # The same for the other call that does something.
    lab.sql("""UPDATE payflow.payment_sessions SET expires_at = now() - interval '1 second', next_action_at = now()
               WHERE session_id = %s""", [two.session_id])
    front.plan("expire", second, close)
    is_(lab.poll_session(two.session_id, "failed").failure_code, "expired", "expired, after a lost answer to it")
    posts, attempts = front.sent("expire", second), lab.journal(two.session_id, "expire")
    is_((len(posts), [a.outcome for a in attempts]), (2, ["lost", "expired"]), "expire: one POST an attempt")
    ok(posts[0].nth > 1, "the first over a kept connection")
    is_(len({(p.body, p.headers["idempotency-key"]) for p in posts}), 1, "the same bytes and key")


def idle_connection(lab, front):
    """A kept connection that was closed before anything was sent is simply replaced."""
    is_(wait(lab, create(lab, "idle 1")).status, "registered", "a connection is left open")
    front.hang_up()
    pay = create(lab, "idle 2")
    is_(wait(lab, pay).status, "registered", "closed while idle: registered")
    is_((len(front.sent("register", "idle 2")), lab.stats(order="idle 2")["payments"]), (1, 1), "one POST, one payment")


def refused(lab, front):
    """Nothing left this machine: still registering, nothing is fixed, the same step again.

    protection: decide.c decide_unanswered() takes back the mark that Register may have been sent.
    """
    front.close_door()
    pay = create(lab, "refused")
    first = first_attempt(lab, pay)
    row, get = lab.session(pay.session_id), lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id])
    is_((first.outcome, get.status, get.http_status), ("unsent", "registering", 202), "refused: unsent, registering")
    is_((row.first_sent_at, row.endpoint), (None, None), "the mark is taken back: surely never sent")
    is_(wait(lab, create(lab, "beside", "sandbox")).status, "registered", "another provider goes on")
    poll(lambda: lab.ring(pay.session_id) and len(lab.journal(pay.session_id, "register")) >= 3, what="two more attempts")
    is_({a.outcome for a in lab.journal(pay.session_id, "register")}, {"unsent"}, "refused again and again: unsent")
    front.open_door()
    lab.ring(pay.session_id)
    is_(wait(lab, pay).status, "registered", "listening again: registered")
    is_((len(front.sent("register", "refused")), lab.stats(order="refused")["payments"]), (1, 1), "one POST, one payment")


def no_connection(lab):
    """Neither accepted nor refused; accepted and reset at once.

    protection: http.c sets CURLOPT_CONNECTTIMEOUT_MS.
    """
    port = DeafPort()
    lab.add_server("deaf", port.url, connect_timeout="1 s", breaker_failures="1000000")
    pay = create(lab, "deaf", "deaf")
    first = first_attempt(lab, pay)
    is_((first.outcome, first.to_status), ("unsent", "registering"), "no connection in time: unsent, registering")
    ok(first.duration.total_seconds() < 20, "in the time that a connection may take, not a call", first.duration)
    is_(lab.session(pay.session_id).first_sent_at, None, "the mark is taken back")
    port.close()

    front = Front(lab.url)
    front.knock = lambda connection: reset(front, connection, None)
    lab.add_server("knock", front.url, breaker_failures="1000000")
    pay = create(lab, "knock", "knock")
    first = first_attempt(lab, pay)
    ok((first.outcome, first.to_status) in (("unsent", "registering"), ("lost", "unknown")),
       "reset as soon as it is connected: registering or unknown, as may be", first)
    is_(lab.stats(order="knock")["calls"]["register"], 0, "the provider knows nothing of it")
    front.knock = None
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "then registered")
    is_((len(front.sent("register", "knock")), lab.stats(order="knock")["payments"]), (1, 1), "one POST, one payment")

    # The one that nobody will ever take: its deadline ends it.
    pay = lab.row("SELECT * FROM payflow.find('deaf')")
    lab.sql("ALTER SERVER deaf OPTIONS (ADD session_ttl '1 millisecond')")
    lab.ring(pay.session_id)
    row = lab.poll_session(pay.session_id, "failed")
    is_(row.failure_code, "expired", "never sent in its whole lifetime: failed, expired")


def redirects(lab, front):
    """A redirect is no answer and is never followed: neither the secret nor the order goes elsewhere.

    protection: http.c sets CURLOPT_FOLLOWLOCATION to 0.
    """
    elsewhere = Front(lab.url)
    sessions = {}
    for status in ("301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"):
        front.plan("register", status, answer(f"HTTP/1.1 {status}\r\nLocation: {elsewhere.url}/v1/payments\r\n"
                                              "Content-Length: 0\r\n\r\n".encode(), keep=True))
        sessions[status] = create(lab, status)
    for status, pay in sessions.items():
        is_(first_attempt(lab, pay).outcome, "lost", f"{status}: lost")
        is_(lab.poll_session(pay.session_id, "registered").status, "registered", "and registered where it was sent first")
    is_(elsewhere.knocks, 0, "nothing was sent elsewhere")


def headers(lab, front):
    """Many of them, and long ones, up to a limit."""
    for order, lines in (("long", [b"X-Filler: " + b"x" * 8000]), ("many", [b"X-Filler: x"] * 1000)):
        front.plan("register", order, with_headers(lines))
        pay = create(lab, order)
        is_(wait(lab, pay).status, "registered", f"{order} headers: registered")
        is_(len(front.sent("register", order)), 1, "at the first attempt")


# Whatever the server's environment says of proxies: no call goes through one, or none of this would work.
PROXIES = "http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9"

with Lab(workers=1, under=f"env {PROXIES}") as lab:
    front = Front(lab.url)
    lab.add_server("front", front.url, breaker_failures="1000000")
    lab.add_server("hasty", front.url, timeout="1 s", breaker_failures="1000000")
    answers(lab, front)
    kept_connection(lab, front)
    idle_connection(lab, front)
    refused(lab, front)
    no_connection(lab)
    redirects(lab, front)
    headers(lab, front)
    is_(lab.alerts(), set(), "no alert: all of it is ordinary")
    like(lab.one("SELECT string_agg(last_error, ',') FROM payflow.provider_stats"), ".", "the newest error can be seen")
    lab.finish()
done_testing()
