"""The same small shop with psycopg 3."""

import json
import os
import sys
import urllib.request

import psycopg
from psycopg.rows import dict_row

order = sys.argv[1]
seen = {}
with psycopg.connect("", row_factory=dict_row) as conn:
    created = conn.execute("SELECT * FROM payflow.create(%s, %s, %s, return_url => %s)",
                           [order, 1999, "EUR", "https://shop.example/back?s={SESSION_ID}"]).fetchone()
    conn.commit()
    seen["created"] = [created["status"], created["http_status"], created["replayed"]]

    conn.autocommit = True
    ready = conn.execute("SELECT * FROM payflow.wait(%s, '30 seconds')", [created["session_id"]]).fetchone()
    seen["ready"] = [ready["status"], ready["redirect_url"] is not None]
    conn.execute("SELECT * FROM payflow.payer_redirected(%s)", [created["session_id"]])

    act = f"{os.environ['SANDBOX_CONTROL']}/payments/{ready['provider_payment_id']}/pay"
    urllib.request.urlopen(urllib.request.Request(act, data=b"{}", method="POST")).close()
    paid = conn.execute("SELECT * FROM payflow.check(%s, '30 seconds')", [created["session_id"]]).fetchone()
    seen["paid"] = [paid["status"], paid["paid"], paid["captured_amount"]]

    found = conn.execute("SELECT * FROM payflow.find(%s)", [order]).fetchall()
    seen["found"] = [row["session_id"] == created["session_id"] for row in found]

    try:
        conn.execute("SELECT * FROM payflow.create(%s, %s, %s)", [order, 1999, "EUR"])
    except psycopg.Error as error:
        seen["error"] = [error.sqlstate, error.diag.message_detail, bool(error.diag.message_hint)]
print(json.dumps(seen))
