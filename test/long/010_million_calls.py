"""A million calls: memory of worker and server stays flat, tables no larger than their rows, plans on their indexes.

Takes about ten minutes.  CALLS=100000 makes it shorter.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "t"))
from payflow_test import Lab, diag, done_testing, is_, ok, poll  # noqa: E402

CALLS = int(os.environ.get("CALLS", "1000000"))
SESSIONS = 500


def rss(pid):
    """Private memory of a process in kB: shared buffers that it has touched are not its own."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))


def calls(lab):
    return lab.one("SELECT sum(calls)::bigint FROM payflow.workers WHERE datname = 'shop'")


def size(lab, table):
    return lab.one("SELECT pg_table_size(%s::regclass)", [f"payflow.{table}"])


with Lab(conf={"payflow.journal": "failures", "autovacuum_naptime": "5s"}) as lab:
    lab.settings(record=False)
    lab.sql("ALTER SERVER sandbox OPTIONS (ADD poll_intervals '1 ms')")
    lab.sql(f"SELECT count(*) FROM generate_series(1, {SESSIONS}) i, payflow.create('o' || i, 100, 'EUR')")
    worker, = lab.workers()
    server = lab.postmaster()

    poll(lambda: calls(lab) >= CALLS // 10, 900, "a tenth of the calls")
    early = {"worker": rss(worker), "server": rss(server)}
    poll(lambda: calls(lab) >= CALLS, 3600, "all calls")
    late = {"worker": rss(worker), "server": rss(server)}

    is_(lab.workers(), [worker], "the same worker made them all")
    for process, before in early.items():
        grown = late[process] - before
        diag(f"{process}: {before} kB after a tenth, {late[process]} kB at the end")
        ok(grown <= 2048, f"memory of the {process} is flat ({grown} kB more)")
    live = lab.one("SELECT sum(pg_column_size(s.*)) FROM payflow.payment_sessions s")
    table = size(lab, "payment_sessions")
    diag(f"payment_sessions: {live} bytes of rows, {table} bytes of table after {CALLS} updates")
    ok(table < 40 * live + 8 * 1024 * 1024, "dead rows are cleaned up: the table stays small")
    plan = "\n".join(row[0] for row in lab.sql("""
        EXPLAIN SELECT s.session_id FROM payflow.payment_sessions s
        WHERE s.provider = 'sandbox' AND s.status IN ('registered', 'unknown', 'authorized', 'canceling') AND NOT s.expiring
            AND s.next_action_at <= now() ORDER BY s.next_action_at LIMIT 100"""))
    ok("ix_payment_due_status" in plan, "the sweep's plan is on its index", plan)
    lab.sql("ALTER SERVER sandbox OPTIONS (SET poll_intervals '1 hour')")
    lab.finish()
done_testing()
