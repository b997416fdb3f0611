"""Settings that change between the attempts of one payment.

A10, C12, C13, D11: what was sent is sent again byte for byte.  Endpoint and account are part of it: where they differ now,
nobody is called and a person is.  Secrets and timeouts are taken from the next call on.
"""

import threading

from payflow_test import Lab, done_testing, is_, isnt, ok, poll, threads_at_barrier
from wire import Front, close, pass_on_and_close

CHANGES = 200
OPTIONS = {"breaker_failures": "1000000"}


def create(lab, order, provider):
    return lab.row("""SELECT * FROM payflow.create(%s, 1000, 'EUR', provider => %s, description => 'thé',
                      return_url => 'https://shop.example/back?s={SESSION_ID}', receipt => '{"items": [1, "zwei"]}')""",
                   [order, provider])


def check(lab, pay, wait="30 seconds"):
    return lab.row("SELECT * FROM payflow.check(%s::uuid, %s)", [pay.session_id, wait])


def attempts(lab, pay):
    """How many there were, and what came of the newest."""
    rows = lab.sql("SELECT outcome FROM payflow.journal WHERE session_id = %s AND source = 'worker' ORDER BY journal_id",
                   [pay.session_id])
    return len(rows), rows[-1].outcome if rows else None


def tried_again(lab, pay):
    """Lets it ring and returns what came of it."""
    before = attempts(lab, pay)[0]
    poll(lambda: lab.ring(pay.session_id) and attempts(lab, pay)[0] > before, what="another attempt")
    return attempts(lab, pay)[1]


def lost(lab, front, order, act, provider):
    """A session whose Register was lost, and that is not asked about by itself."""
    front.plan("register", order, act)
    pay = create(lab, order, provider)
    lab.quiet(pay.session_id, "unknown")
    return pay


def goes_on(lab, order):
    pay = create(lab, order, "sandbox")
    is_(lab.row("SELECT * FROM payflow.wait(%s::uuid, '30 seconds')", [pay.session_id]).status, "registered",
        "another provider goes on")


def silence(lab):
    """No session of an earlier test is asked about while calls are counted."""
    def silent():
        lab.sql("""UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 hour'
                   WHERE status = 'registered' AND lease_until IS NULL""")
        return lab.one("""SELECT count(*) = 0 FROM payflow.payment_sessions
                          WHERE status = 'registered' AND lease_until IS NOT NULL""")

    poll(silent, what="the earlier sessions to be left alone")


def endpoint_and_account(lab, front):
    """protection: task.c why_unreachable()"""
    elsewhere = lab.start_provider()
    changes = {
        "endpoint": (f"SET endpoint '{elsewhere.url}'", f"SET endpoint '{front.url}'"),
        "account added": ("ADD account 'shop-2'", "DROP account"),
    }
    for name, (change, back) in changes.items():
        for act, done in ((close, False), (pass_on_and_close, True)):
            order = f"{name}, {'done' if done else 'not done'}"
            lab.add_server(order, front.url, **OPTIONS)
            pay = lost(lab, front, order, act, order)
            silence(lab)
            seen = len(front.requests)
            lab.sql(f'ALTER SERVER "{order}" OPTIONS ({change})')
            is_(tried_again(lab, pay), "unreachable_setting", f"{order}: not called")
            row = check(lab, pay)
            is_((row.status, row.http_status), ("unknown", 202), "unknown, also for one who asks")
            ok(lab.session(pay.session_id).next_action_at, "its alarm is set")
            is_((len(front.requests), elsewhere.stats()["calls"]["find"], elsewhere.stats()["calls"]["register"]), (seen, 0, 0),
                "nobody was called, neither there nor here")
            ok(f"setting:{order}" in lab.alerts(), "an alert calls a person", lab.alerts())
            goes_on(lab, f"beside {order}")

            lab.sql(f'ALTER SERVER "{order}" OPTIONS ({back})')
            poll(lambda: lab.ring(pay.session_id) and lab.session(pay.session_id).status != "unknown", what="its end")
            row = lab.session(pay.session_id)
            posts = front.sent("register", order)
            is_((row.status, len(posts), lab.stats(order=order)["payments"]), ("registered", 1 if done else 2, 1),
                "put back: registered, one payment")
            is_(len({(p.body, p.headers["idempotency-key"]) for p in posts}), 1, "by the same bytes and key")


def account_changed(lab, front):
    """The account as it was at the first sending is what counts; also for one that is registered, and one that is paid."""
    lab.add_server("accounts", front.url, account="shop-1", **OPTIONS)
    pay = lost(lab, front, "accounts", close, "accounts")
    live = create(lab, "accounts, live", "accounts")
    reg = lab.poll_session(live.session_id, "registered")
    lab.quiet(live.session_id)
    paid = create(lab, "accounts, paid", "accounts")
    lab.act(lab.poll_session(paid.session_id, "registered").provider_payment_id, "pay")
    is_(check(lab, paid).status, "completed", "one is paid")
    lab.sql("ALTER SERVER accounts OPTIONS (SET account 'shop-2')")
    lab.act(reg.provider_payment_id, "pay")
    silence(lab)
    seen = len(front.requests)
    is_((tried_again(lab, pay), tried_again(lab, live)), ("unreachable_setting",) * 2, "another account: not called")
    is_((check(lab, live).status, check(lab, paid).status, check(lab, paid).paid), ("registered", "completed", True),
        "all stay as they are")
    is_(len(front.requests), seen, "nobody was called")
    new = create(lab, "accounts, new", "accounts")
    is_(lab.poll_session(new.session_id, "registered").status, "registered", "new payments use the new account")
    lab.sql("ALTER SERVER accounts OPTIONS (SET account 'shop-1')")
    is_((check(lab, live).status, check(lab, pay).status), ("completed", "unknown"), "put back: asked again")
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "and registered")
    is_(tried_again(lab, new), "unreachable_setting", "now it is the other one that is not called")
    lab.sql("ALTER SERVER accounts OPTIONS (SET account 'shop-2')")


def never_sent(lab, front):
    """Before anything was sent nothing is fixed."""
    front.close_door()
    lab.add_server("moves", front.url, **OPTIONS)
    pay = create(lab, "moves", "moves")
    poll(lambda: attempts(lab, pay)[1] == "unsent", what="a refused connection")
    lab.sql(f"ALTER SERVER moves OPTIONS (SET endpoint '{lab.url}', ADD account 'shop-2')")
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "never sent: goes to the new endpoint")
    row = lab.session(pay.session_id)
    is_((row.endpoint, row.account, lab.stats(order="moves")["calls"]["register"]), (lab.url, "shop-2", 1), "which is noted")
    front.open_door()


def secret(lab, front):
    """The secret of the next call is the newest; the bytes are the old ones."""
    lab.add_server("secrets", front.url, **OPTIONS)
    pay = lost(lab, front, "secrets", close, "secrets")
    lab.sql("ALTER USER MAPPING FOR CURRENT_USER SERVER secrets OPTIONS (SET api_key 'new_key')")
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "with a new secret: registered")
    keys = [r.headers["authorization"] for r in front.sent("register", "secrets")]
    is_(keys, ["Bearer sandbox_test_key", "Bearer new_key"], "the first Register with the old one, the second with the new")
    is_({r.headers["authorization"] for r in front.sent("find", "secrets")}, {"Bearer new_key"}, "so was the question")
    is_(len({(p.body, p.headers["idempotency-key"]) for p in front.sent("register", "secrets")}), 1,
        "the same bytes and key")

    lab.settings(api_keys=["right_key", "sandbox_test_key"])
    lab.add_server("wrong", **OPTIONS)
    lab.sql("ALTER USER MAPPING FOR CURRENT_USER SERVER wrong OPTIONS (SET api_key 'wrong_key')")
    pay = create(lab, "wrong", "wrong")
    poll(lambda: attempts(lab, pay)[1] == "unauthorized", what="the refused secret")
    row = lab.row("SELECT * FROM payflow.get(%s::uuid)", [pay.session_id])
    is_((row.status, row.http_status), ("registering", 202), "C23: 401: still registering")
    ok("unauthorized:wrong" in lab.alerts(), "C23: with an alert", lab.alerts())
    lab.sql("ALTER USER MAPPING FOR CURRENT_USER SERVER wrong OPTIONS (SET api_key 'right_key')")
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "the right secret: registered")
    sent = lab.requests(pay.session_id, "register")
    is_((len({r["key"] for r in sent}), len({r["body_sha256"] for r in sent}), lab.stats(order="wrong")["payments"]), (1, 1, 1),
        "one key, the same bytes, one payment")

    lab.sql("DROP USER MAPPING FOR CURRENT_USER SERVER wrong")
    before = lab.stats(order="wrong")["calls"]["get"]
    is_(tried_again(lab, pay), "unreachable_setting", "no secret at all: not called")
    ok("setting:wrong" in lab.alerts(), "with an alert", lab.alerts())
    is_(lab.stats(order="wrong")["calls"]["get"], before, "and without a call")
    lab.sql("CREATE USER MAPPING FOR CURRENT_USER SERVER wrong OPTIONS (api_key 'right_key')")
    lab.act(str(pay.session_id), "pay")
    is_(check(lab, pay).status, "completed", "a secret again: asked and completed")
    lab.settings(api_keys=[])


def timeouts(lab):
    """A timeout counts from the next call on."""
    lab.add_server("patience", timeout="1 s", **OPTIONS)
    pay = create(lab, "patience", "patience")
    lab.poll_session(pay.session_id, "registered")
    lab.quiet(pay.session_id)
    lab.rule("get", "delay", 1500, order="patience", times=0)
    lab.act(str(pay.session_id), "pay")
    is_((check(lab, pay).status, attempts(lab, pay)[1]), ("registered", "lost"), "too slow an answer: lost")
    lab.sql("ALTER SERVER patience OPTIONS (SET timeout '60 s')")
    is_(check(lab, pay).status, "completed", "with more patience it comes")
    lab.clear_rules()


def changed_just_before(lab, front):
    """Whoever creates a payment after a change gets the change, however busy the workers are.

    protection: cycle.c recheck_providers()
    """
    lab.add_server("restless", front.url, **OPTIONS)
    over = threading.Event()

    def stir(conn):
        while not over.is_set():
            lab.sql("""UPDATE payflow.payment_sessions SET next_action_at = now()
                       WHERE status IN ('unknown', 'registered') AND lease_until IS NULL""", conn=conn)

    def change(conn):
        try:
            for i in range(CHANGES):
                lab.sql(f"ALTER USER MAPPING FOR CURRENT_USER SERVER restless OPTIONS (SET api_key 'key{i}')", conn=conn)
                lab.sql("SELECT payflow.create(%s, 1000, 'EUR', provider => 'restless')", [f"key{i}"], conn=conn)
            poll(lambda: all(front.sent("register", f"key{i}") for i in range(CHANGES)), what="all to be registered")
        finally:
            over.set()

    results = threads_at_barrier(2, lambda i, conn: (stir, change)[i](conn), lambda i: lab.connect())
    is_(results, [None] * 2, "a change before each of many payments")
    first = {f"key{i}": front.sent("register", f"key{i}")[0].headers["authorization"] for i in range(CHANGES)}
    # The next change may come before the call.
    old = {order: used for order, used in first.items() if int(used.removeprefix("Bearer key")) < int(order[3:])}
    is_(old, {}, "none is registered with a secret from before it")


def other_settings(lab, front):
    """Whatever else changes, the bytes are those of the first time."""
    lab.add_server("others", front.url, **OPTIONS)
    pay = lost(lab, front, "others", close, "others")
    lab.sql("""ALTER SERVER others OPTIONS (ADD lookup 'exact', ADD form_timeout '1 hour', ADD session_ttl '2 days',
               ADD poll_intervals '1 minute', ADD timezone 'Asia/Tokyo')""")
    lab.sql("UPDATE payflow.merchants SET default_provider = 'others' WHERE id = 'default'")
    error = lab.error("UPDATE payflow.payment_sessions SET return_url = 'https://other.example' WHERE session_id = %s",
                      [pay.session_id])
    isnt(error, None, "C13: what was sent cannot be changed, not even by hand")
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "other options: registered")
    posts = front.sent("register", "others")
    is_((len(posts), len({(p.body, p.headers["idempotency-key"]) for p in posts})), (2, 1), "C13: the same bytes and key")
    lab.sql("UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default'")


def renamed(lab, front):
    """The provider is gone: its sessions stay, with an alert, until it is back."""
    lab.add_server("gone", front.url, **OPTIONS)
    pay = lost(lab, front, "gone", close, "gone")
    lab.sql("ALTER SERVER gone RENAME TO elsewhere")
    lab.ring(pay.session_id)
    poll(lambda: "provider_missing:gone" in lab.alerts(), what="the alert")
    row = check(lab, pay, "100 milliseconds")
    is_((row.status, len(front.sent("register", "gone")), front.sent("find", "gone")), ("unknown", 1, []),
        "renamed: stays unknown, nobody is called")
    goes_on(lab, "beside gone")
    lab.sql("ALTER SERVER elsewhere RENAME TO gone")
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "back again: registered")


with Lab(workers=2) as lab:
    front = Front(lab.url)
    endpoint_and_account(lab, front)
    account_changed(lab, front)
    never_sent(lab, front)
    secret(lab, front)
    timeouts(lab)
    changed_just_before(lab, front)
    other_settings(lab, front)
    renamed(lab, front)
    lab.finish()
done_testing()
