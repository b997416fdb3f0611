"""A million calls: memory of worker and server stays flat, tables no larger than their rows, plans on their indexes.

Takes about ten minutes.  CALLS=100000 makes it shorter.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "t"))
from payflow_test import Lab, diag, done_testing, is_, ok, poll  # noqa: E402

CALLS = int(os.environ.get("CALLS", "1000000"))
SESSIONS = 500
BATCH_MAX = 200  # of the worker


def rss(pid):
    """Private memory of a process in kB: shared buffers that it has touched are not its own."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))


def calls(lab):
    return lab.one("SELECT sum(calls)::bigint FROM payflow.workers WHERE datname = 'shop'")


def scans(lab):
    """Scans of payment_sessions so far: of all of it, of the index of what is due."""
    return lab.row("""SELECT t.seq_scan, i.idx_scan AS due FROM pg_stat_user_tables t, pg_stat_user_indexes i
                      WHERE t.relname = 'payment_sessions' AND i.indexrelname = 'ix_payment_due_status'""")


def size(lab, table):
    return lab.one("SELECT pg_table_size(%s::regclass)", [f"payflow.{table}"])


with Lab(conf={"payflow.journal": "failures", "autovacuum_naptime": "5s"}) as lab:
    lab.settings(record=False)
    lab.sql("ALTER SERVER sandbox OPTIONS (ADD poll_intervals '1 ms')")
    lab.sql(f"SELECT count(*) FROM generate_series(1, {SESSIONS}) i, payflow.create('o' || i, 100, 'EUR')")
    worker, = lab.workers()
    server = lab.postmaster()

    poll(lambda: calls(lab) >= CALLS // 10, 900, "a tenth of the calls")
    at_start = scans(lab)
    early = {"worker": rss(worker), "server": rss(server)}
    poll(lambda: calls(lab) >= CALLS, 3600, "all calls")
    at_end = scans(lab)
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
    is_(at_end.seq_scan, at_start.seq_scan, "nobody has read the whole table meanwhile")
    ok(at_end.due > at_start.due + CALLS // BATCH_MAX, f"due sessions were found by their index ({at_end.due} scans)")
    lab.sql("ALTER SERVER sandbox OPTIONS (SET poll_intervals '1 hour')")
    lab.finish()
done_testing()
