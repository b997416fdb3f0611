"""Dead alarms make the look for due work slow: then old ones are left out for 5 s, and no longer.

protection: claims.c claim_source(), the look that what was left out gets; leave_out_dead(), note_dead().
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "t"))
from payflow_test import Lab, diag, done_testing, is_, ok  # noqa: E402

SESSIONS = 20_000
ROUNDS = 4  # dead entries of the index for each session

LOOK = """EXPLAIN (ANALYZE, FORMAT JSON) SELECT next_action_at FROM payflow.payment_sessions
          WHERE provider = 'sandbox' AND status IN ('registered', 'unknown', 'authorized', 'canceling') AND NOT expiring
          ORDER BY next_action_at LIMIT 1"""

with Lab(conf={"payflow.poll_interval": "1h", "autovacuum": "off"}) as lab:
    lab.settings(record=False)
    lab.sql("ALTER SERVER sandbox OPTIONS (ADD poll_intervals '1 day')")
    for first in range(0, SESSIONS, 5000):
        lab.sql(f"SELECT count(*) FROM generate_series({first}, {first + 4999}) i, payflow.create('o' || i, 100, 'EUR')")
    lab.poll_sql(f"SELECT count(*) = {SESSIONS} FROM payflow.payment_sessions WHERE status = 'registered'", deadline=120)

    holder = lab.connect(autocommit=False)
    holder.set_session(isolation_level="REPEATABLE READ")
    lab.row("SELECT count(*) FROM payflow.payment_sessions", conn=holder)
    for _ in range(ROUNDS):
        lab.sql("UPDATE payflow.payment_sessions SET next_action_at = next_action_at + interval '1 second'")
    took = lab.one(LOOK)[0]["Execution Time"]
    diag(f"a look from the beginning of the index takes {took:.0f} ms")
    ok(took > 5, "looks are slow")

    def alarm(order, when):
        lab.sql(f"UPDATE payflow.payment_sessions SET next_action_at = now() + '{when}'::interval WHERE order_id = '{order}'")

    def asked(order):
        lab.poll_sql(f"""SELECT count(*) = 1 FROM payflow.journal JOIN payflow.payment_sessions USING (session_id)
                         WHERE order_id = '{order}' AND event = 'get'""", deadline=30)

    # each wakes the worker: the first of them by a look from the beginning, the others leave out what is older
    for i in range(5):
        alarm(f"o{i}", "0")
        asked(f"o{i}")
    for order, when in (("o10", "-1 hour"), ("o11", "-1 minute")):
        alarm(order, when)
    for order in ("o10", "o11"):
        asked(order)
    is_(lab.one("SELECT count(*) FROM payflow.journal WHERE event = 'get'"), 7, "each was asked about once, old alarms too")
    holder.rollback()
    is_(lab.one("SELECT count(*) FROM payflow.payment_sessions WHERE status <> 'registered'"), 0, "and all still wait")
done_testing()
