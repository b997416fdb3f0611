"""Databases of other encodings: LATIN1 and SQL_ASCII, each with a worker.

A10, C12, C13: on the wire all is UTF-8, and the same bytes at each repeat.  What a provider sends that the database cannot
store is replaced in messages and never stops a payment.
"""

import json

from payflow_test import Lab, done_testing, is_, ok
from wire import Front, answer, close

DATABASES = {"latin": "LATIN1", "bytes": "SQL_ASCII"}
OPTIONS = {"breaker_failures": "1000000"}


def page(payment, status="200 OK"):
    """A complete answer with this body, all beyond ASCII as it is."""
    body = payment if isinstance(payment, bytes) else json.dumps(payment, ensure_ascii=False).encode()
    return answer(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


class Database:
    """One of the databases, seen by a client that speaks UTF-8."""

    def __init__(self, lab, name):
        self.lab = lab
        self.name = name
        self.conn = lab.connect(dbname=name)
        if DATABASES[name] == "SQL_ASCII":
            # The server converts nothing, and the client's library believes what the server says.
            self.conn.set_client_encoding("UTF8")

    def sql(self, query, args=None):
        return self.lab.sql(query, args, conn=self.conn)

    def row(self, query, args=None):
        return self.lab.row(query, args, conn=self.conn)

    def create(self, order, **args):
        named = "".join(f", {key} => %({key})s" for key in args)
        return self.row(f"SELECT * FROM payflow.create(%(order)s, 1000, 'EUR'{named})", {"order": order, **args})

    def wait(self, pay, until="settled"):
        return self.row("SELECT * FROM payflow.wait(%s::uuid, '30 seconds', %s)", [pay.session_id, until])

    def check(self, pay):
        return self.row("SELECT * FROM payflow.check(%s::uuid, '30 seconds')", [pay.session_id])

    def journal(self, pay, event):
        return self.sql("""SELECT outcome, to_status, detail FROM payflow.journal WHERE session_id = %s AND event = %s
                           ORDER BY journal_id""", [pay.session_id, event])


def set_up(lab, name, front):
    lab.sql(f"CREATE DATABASE {name} ENCODING '{DATABASES[name]}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    db = Database(lab, name)
    db.sql("CREATE EXTENSION payflow")
    lab.add_server("sandbox", front.url, db.conn, **OPTIONS)
    db.sql("UPDATE payflow.merchants SET default_provider = 'sandbox' WHERE id = 'default'")
    return db


def whole_way(lab, front, db):
    """Beyond ASCII on the way out and back; the Register is lost once.

    protection: sandbox.c set_post() turns the body into UTF-8.
    """
    order = f"Käse №1 {db.name}" if db.name == "bytes" else f"Käse {db.name}"
    front.plan("register", order, close)
    pay = db.create(order, return_url="https://shop.example/zurück?s={SESSION_ID}", description="thé",
                    receipt='{"name": "Crème brûlée"}')
    row = db.wait(pay)
    is_((row.status, row.order_id), ("registered", order), f"{db.name}: registered after a lost call")
    posts = front.sent("register", order)
    is_((len(posts), len({(p.body, p.headers["idempotency-key"]) for p in posts})), (2, 1), "the same bytes and key")
    body = json.loads(posts[0].body.decode("utf-8"))
    is_((body["order"], body["return_url"], body["receipt"]),
        (order, f"https://shop.example/zurück?s={pay.session_id}", {"name": "Crème brûlée"}), "as UTF-8 on the wire")
    is_([p["order"] for p in lab.payments(order)], [order], "one payment, and the provider has the right name")
    lab.act(row.provider_payment_id, "pay")
    row = db.row("SELECT * FROM payflow.payer_returned(%s::uuid, %s, '30 seconds')",
                 [pay.session_id, '{"name": "Müller", "PaRes": "ü"}'])
    is_((row.status, row.paid), ("completed", True), "the payer is back, with words beyond ASCII: completed")
    is_(db.row("SELECT return_params ->> 'name' AS name FROM payflow.payment_sessions WHERE session_id = %s",
               [pay.session_id]).name, "Müller", "and they are kept")


def foreign_words(front, db):
    """Words that LATIN1 lacks: replaced where people read them, no harm to the payment.

    protection: json.c json_get_message() converts what can be.
    """
    words = "zu wenig €, Привет, 漢字 🙂"
    stored = words if db.name == "bytes" else "zu wenig ?, ??????, ?? ?"
    order = f"words {db.name}"
    front.plan("register", order, page({"error": {"code": "card_declined", "message": words}}, "422 Unprocessable"))
    row = db.wait(db.create(order), "final")
    is_((row.status, row.failure_code, row.failure_message), ("failed", "rejected", stored),
        f"{db.name}: refused, with the provider's words as far as they can be stored")

    order = f"status {db.name}"
    pay = db.create(order)
    row = db.wait(pay)
    payment = {"id": row.provider_payment_id, "reference": str(pay.session_id), "order": order, "status": "bezahlt €",
               "amount": 1000, "currency": "EUR", "note": "Привет \u2028 🙂"}
    front.plan("get", order, page(payment))
    row = db.check(pay)
    is_((row.status, row.http_status), ("registered", 200), "a status word beyond ASCII is unknown: nothing changes")
    word = db.row("SELECT provider_status FROM payflow.payment_sessions WHERE session_id = %s", [pay.session_id])
    is_(word.provider_status, "bezahlt €" if db.name == "bytes" else "bezahlt ?", "it is noted as far as it can be stored")
    payment.update(status="paid", captured=1000, authorized=1000)
    front.plan("get", order, page(json.dumps(payment, ensure_ascii=False).encode().replace(b"\xe2\x80\xa8", b"\xff\xfe")))
    row = db.check(pay)
    is_((row.status, db.journal(pay, "get")[-1].outcome), ("registered", "lost"), "bytes that are no UTF-8: lost")
    front.lab.act(row.provider_payment_id, "pay")
    is_(db.check(pay).paid, True, "and the next answer completes it")


def unusable_id(front, db):
    """An id must come back as it was: one that cannot be stored is no usable answer."""
    order = f"id {db.name}"
    front.plan("register", order, page({"id": "pay_€", "status": "pending", "amount": 1000, "currency": "EUR"}))
    pay = db.create(order)
    is_(db.wait(pay).status, "registered", f"{db.name}: an unusable id: lost, then registered")
    is_((db.journal(pay, "register")[0].outcome, front.lab.stats(order=order)["payments"]), ("lost", 1), "one payment")


def no_text_at_all(front, db):
    """SQL_ASCII takes any bytes: what is no UTF-8 is mended, the same way each time."""
    order = "order ?? é"
    front.plan("register", order, close)
    pay = db.row("SELECT session_id FROM payflow.create(convert_from(%s, 'SQL_ASCII'), 1000, 'EUR')",
                 [b"order \xff\xc3 \xc3\xa9"])
    is_(db.row("SELECT status FROM payflow.wait(%s::uuid, '30 seconds')", [pay.session_id]).status, "registered",
        "bytes that are no text: registered after a lost call")
    posts = front.sent("register", order)
    is_((len(posts), len({p.body for p in posts}), front.lab.stats(order=order)["payments"]), (2, 1, 1),
        "the same bytes, one payment")


with Lab(workers=1) as lab:
    front = Front(lab.url)
    front.lab = lab
    databases = [set_up(lab, name, front) for name in DATABASES]
    lab.sql(f"ALTER SYSTEM SET payflow.databases = 'shop, {', '.join(DATABASES)}'")
    lab.sql("SELECT pg_reload_conf()")
    lab.poll_sql(f"SELECT count(DISTINCT datname) = {1 + len(DATABASES)} FROM payflow.workers", what="a worker for each")
    for db in databases:
        whole_way(lab, front, db)
        foreign_words(front, db)
        unusable_id(front, db)
        if DATABASES[db.name] == "SQL_ASCII":
            no_text_at_all(front, db)
        is_(db.sql("SELECT * FROM payflow.check_invariants()"), [], f"{db.name}: check_invariants() finds nothing")
        keys = {row.key.split(":")[0] for row in db.sql("SELECT key FROM payflow.alerts")}
        is_(keys, {"unknown_status"}, "the one alert is about the unknown status word")
    ok(not lab.log_contains("ERROR|could not be applied|pauses"), "no worker has met an error")
    booked = sum(db.row("SELECT coalesce(sum(amount), 0)::bigint AS sum FROM payflow.accounting_entries").sum
                 for db in databases)
    is_(booked, lab.stats()["captured"], "captured: the ledgers say what the provider says")
done_testing()
