"""A REPEATABLE READ transaction held beside traffic: dead rows cannot go; payments must.

HELD=60 (seconds; the default is 600) makes it shorter.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "t"))
from payflow_test import Lab, diag, done_testing, is_, ok  # noqa: E402

HELD = int(os.environ.get("HELD", "600"))
BATCH = 200


def batch(lab, n):
    """One batch of payments from create to completed; returns its seconds."""
    began = time.monotonic()
    lab.sql(f"SELECT count(*) FROM generate_series(1, {BATCH}) i, payflow.create('b{n}-' || i, 100, 'EUR')")
    lab.poll_sql(f"""SELECT count(*) = {BATCH} FROM payflow.payment_sessions
                     WHERE merchant = 'default' AND order_id LIKE 'b{n}-%%' AND status = 'completed'""", deadline=120)
    return time.monotonic() - began


with Lab(workers=2) as lab:
    lab.settings(auto="pay", record=False)
    lab.sql("ALTER SERVER sandbox OPTIONS (ADD poll_intervals '1 ms')")
    times = [batch(lab, n) for n in range(10)]
    before = sorted(times)[len(times) // 2]
    holder = lab.connect(autocommit=False)
    holder.set_session(isolation_level="REPEATABLE READ")
    lab.row("SELECT count(*) FROM payflow.payment_sessions", conn=holder)
    began, n, times = time.monotonic(), 10, []
    while time.monotonic() - began < HELD:
        times.append(batch(lab, n))
        n += 1
    last = sorted(times[-10:])[5]
    dead = lab.one("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'payment_sessions'")
    diag(f"a batch of {BATCH}: {before:.3f} s before, {last:.3f} s after {HELD} s, {n * BATCH} payments, {dead} dead rows")
    ok(last < 10 * before, f"payments go on beside an old snapshot ({last / before:.1f} times the time)")
    holder.rollback()
    is_(lab.one("SELECT count(*) FROM payflow.payment_sessions WHERE status <> 'completed'"), 0, "all are completed")
    lab.finish()
done_testing()
