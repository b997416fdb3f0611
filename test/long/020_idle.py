"""100 000 sessions wait: an idle server uses at most 2 % of a core."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "t"))
from payflow_test import Lab, diag, done_testing, is_, ok  # noqa: E402

SESSIONS = 100_000
SECONDS = 60


def cpu(pids):
    """CPU seconds of processes."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


with Lab(workers=2) as lab:
    lab.settings(record=False)
    lab.sql("ALTER SERVER sandbox OPTIONS (ADD poll_intervals '1 day')")
    # in pieces: every order's lock is kept until the end of its transaction
    for first in range(0, SESSIONS, 5000):
        lab.sql(f"SELECT count(*) FROM generate_series({first}, {first + 4999}) i, payflow.create('o' || i, 100, 'EUR')")
    lab.poll_sql(f"SELECT count(*) = {SESSIONS} FROM payflow.payment_sessions WHERE status = 'registered'", deadline=300)
    lab.sql("UPDATE payflow.payment_sessions SET next_action_at = now() + '1 day'::interval, expires_at = NULL")
    lab.sql("VACUUM ANALYZE payflow.payment_sessions")
    lab.sql("CHECKPOINT")
    pids = [row[0] for row in lab.sql("SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'payflow%'")]
    before, began = cpu(pids), time.monotonic()
    while time.monotonic() - began < SECONDS:
        # the length of the measurement, not a wait for something
        time.sleep(0.5)
    used = 100 * (cpu(pids) - before) / (time.monotonic() - began)
    diag(f"launcher and two workers: {used:.2f} % of a core")
    ok(used <= 2, f"{SESSIONS} sessions wait: {used:.2f} % of a core")
    is_(lab.one("SELECT count(*) FROM payflow.payment_sessions WHERE status <> 'registered'"), 0, "and they still wait")
done_testing()
