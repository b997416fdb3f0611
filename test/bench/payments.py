"""Payments from create to completed: payflow, and those that it is compared with."""

import os
import shutil
import subprocess
import threading

import bench
from bench import AMOUNT, CREATORS, Broken, command, note, now

DEADLINE = 600
HISTORY = 10_000  # finished payments that are there: plans that were made for empty tables are another story
WARM_UP = 100  # payments before a run
BATCH = 100  # of the database alone


class Contender:
    """Somebody who completes payments that others create."""

    create_script = None
    payments = None  # table
    finished = None  # condition: nothing is left to do
    entries = None  # table of receipts
    asks_provider = True

    def __init__(self, b):
        self.b = b

    def reset(self):
        """Remove all payments."""

    def history(self, first, last):
        """Finished payments of another day, that failed."""

    def fill(self, first, last, conn):
        """Create the payments of these numbers."""

    def start(self):
        """Complete payments from now on."""

    def stop(self):
        """Until now."""

    def watch(self):
        """Raise an error if nobody is at work any more."""

    def cpu(self):
        return self.b.server_cpu()

    def last_completed(self):
        return float(self.b.one(f"SELECT extract(epoch FROM max(updated_at)) FROM {self.payments}"))

    def first_created(self, since):
        return float(self.b.one(f"""SELECT extract(epoch FROM min(created_at)) FROM {self.payments}
                                    WHERE created_at >= to_timestamp(%s)""", [since]))

    def judge(self, n):
        """Each payment was registered once, asked about once and completed, on both sides."""
        seen = self.b.lab.row(f"""SELECT count(*) FILTER (WHERE status = 'completed') AS completed,
            (SELECT count(*) FROM {self.entries}) AS entries FROM {self.payments}""")
        got, want = (seen.completed, seen.entries), (n, n)
        if self.asks_provider:
            stats = self.b.lab.control("GET", "/stats")
            got += (stats["payments"], stats["calls"]["register"], stats["calls"]["get"], stats["captured"])
            want += (n, n, n, n * AMOUNT)
        if got != want:
            raise Broken(f"{type(self).__name__}: completed, entries, and the provider's payments, registers, gets,"
                         f" money are {got}, not {want}")


class Payflow(Contender):
    """One worker, as installed."""

    workers = 1
    create_script = "create.sql"
    payments = "payflow.payment_sessions"
    entries = "payflow.accounting_entries WHERE entry_type = 'payment_received'"
    finished = """NOT EXISTS (SELECT FROM payflow.payment_sessions WHERE status = 'registering') AND NOT EXISTS (
        SELECT FROM payflow.payment_sessions WHERE status IN ('registered', 'unknown', 'authorized', 'canceling'))"""

    def reset(self):
        self.b.workers(0)
        self.b.empty()

    def history(self, first, last):
        with self.b.lab.connect(autocommit=False, options="-c session_replication_role=replica") as conn:
            self.b.sql("""INSERT INTO payflow.orders (merchant, order_id, amount, currency)
                          SELECT 'default', 'f' || i, %s, 'EUR' FROM generate_series(%s::bigint, %s) i""",
                       [AMOUNT, first, last], conn=conn)
            self.b.sql("""INSERT INTO payflow.payment_sessions (session_id, merchant, order_id, amount, currency,
                              provider, status, stage, first_sent_at, created_at, updated_at, provider_status,
                              redirect_url, failure_code, endpoint)
                          SELECT lpad(to_hex(i), 32, '0')::uuid, 'default', 'f' || i, %s, 'EUR', 'sandbox',
                              'failed', 'none', at, at, at, 'expired', 'https://provider.example/pay/' || i,
                              'expired', 'https://provider.example'
                          FROM generate_series(%s::bigint, %s) i,
                              LATERAL (SELECT now() - '1 day'::interval + i * '1 ms'::interval) AS t(at)""",
                       [AMOUNT, first, last], conn=conn)
        conn.close()

    def fill(self, first, last, conn):
        self.b.sql("""SELECT count(*) FROM generate_series(%s::bigint, %s) i
                      CROSS JOIN LATERAL payflow.create('o' || i, %s, 'EUR')""", [first, last, AMOUNT], conn=conn)

    def start(self):
        self.b.workers(self.workers)

    def stop(self):
        self.b.workers(0)

    def judge(self, n):
        super().judge(n)
        wrong = self.b.sql("SELECT * FROM payflow.check_invariants()")
        if wrong:
            raise Broken(f"check_invariants(): {wrong[:3]}")


class TwoWorkers(Payflow):
    """One a core, on the machines that this is measured on."""

    workers = 2


class Database(Payflow):
    """What the worker does in the database, in one connection, without a provider."""

    asks_provider = False

    def __init__(self, b):
        super().__init__(b)
        b.function("database_alone", "text, integer", "integer")

    def start(self):
        self.ending = threading.Event()
        self.error = None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        conn = self.b.lab.connect(options="-c search_path=pg_catalog,pg_temp")
        try:
            while not self.ending.is_set():
                if self.b.one("SELECT bench.database_alone('sandbox', %s)", [BATCH], conn=conn) == 0:
                    self.ending.wait(0.002)
        except Exception as error:  # told by stop()
            self.error = error
        finally:
            conn.close()

    def watch(self):
        if self.error is not None:
            raise Broken(f"the database alone: {self.error}")

    def stop(self):
        self.ending.set()
        self.thread.join()
        self.watch()


class Peer(Contender):
    """A service in Node.js with tables of its own."""

    service = None
    idle = ("", "")  # a column, and its value in a payment that is finished
    process = None
    installed = None  # the folder

    def __init__(self, b):
        super().__init__(b)
        self.create_script = f"peers/create_{self.service}.sql"
        self.payments = f"{self.service}.payments"
        self.entries = f"{self.service}.ledger_entries"
        self.finished = f"NOT EXISTS (SELECT FROM {self.service}.payments WHERE status IN ('new', 'registered'))"
        if not b.one("SELECT to_regclass(%s)", [self.payments]):
            self.install()

    def install(self):
        if Peer.installed is None:
            note("npm install")
            Peer.installed = os.path.join(self.b.folder, "peers")
            shutil.copytree(os.path.join(bench.HERE, "peers"), Peer.installed)
            command("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent", cwd=Peer.installed)
        for file in ("tables.sql", f"{self.service}.sql"):
            path = os.path.join(Peer.installed, file)
            if os.path.exists(path):
                with open(path, encoding="utf-8") as script:
                    self.b.lab.psql(script.read(), "-v", f"service={self.service}")

    def reset(self):
        self.b.workers(0)
        self.b.empty()
        self.b.sql("TRUNCATE " + ", ".join(f"{self.service}.{table}" for table in
                                           ("orders", "payments", "ledger_entries", "journal")))

    def history(self, first, last):
        self.b.sql(f"""WITH o AS (INSERT INTO {self.service}.orders (id, amount, currency)
                           SELECT 'f' || i, %s, 'EUR' FROM generate_series(%s::bigint, %s) i RETURNING *)
                       INSERT INTO {self.service}.payments
                           (order_id, amount, currency, status, created_at, updated_at{self.idle[0]})
                       SELECT id, amount, currency, 'failed', at, at{self.idle[1]}
                       FROM o, LATERAL (SELECT now() - '1 day'::interval) AS t(at)""", [AMOUNT, first, last])

    def start(self):
        env = {**os.environ, **self.b.lab.env, "NODE_ENV": "production",
               "PROVIDER_URL": self.b.lab.url, "PROVIDER_KEY": bench.API_KEY}
        self.process = subprocess.Popen(["node", f"{self.service}.mjs"], cwd=Peer.installed, env=env,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.stop()
            raise Broken(f"{self.service}.mjs does not start")

    def watch(self):
        if self.process.poll() is not None:
            raise Broken(f"{self.service}.mjs has ended")

    def stop(self):
        self.process.kill()
        self.process.communicate()

    def cpu(self):
        return super().cpu() + bench.process_cpu(self.process.pid)


class Obvious(Peer):
    service = "obvious"

    def fill(self, first, last, conn):
        self.b.sql("""WITH o AS (INSERT INTO obvious.orders (id, amount, currency)
                          SELECT 'o' || i, %s, 'EUR' FROM generate_series(%s::bigint, %s) i RETURNING *),
                      p AS (INSERT INTO obvious.payments (order_id, amount, currency)
                          SELECT id, amount, currency FROM o RETURNING id)
                      SELECT count(graphile_worker.add_job('register', json_build_object('id', id))) FROM p""",
                   [AMOUNT, first, last], conn=conn)

    def reset(self):
        super().reset()
        if self.b.one("SELECT to_regclass('graphile_worker._private_jobs')"):
            self.b.sql("TRUNCATE graphile_worker._private_jobs")


class Skilled(Peer):
    service = "skilled"
    idle = (", due_at", ", NULL")

    def fill(self, first, last, conn):
        self.b.sql("""WITH o AS (INSERT INTO skilled.orders (id, amount, currency)
                          SELECT 'o' || i, %s, 'EUR' FROM generate_series(%s::bigint, %s) i RETURNING *)
                      INSERT INTO skilled.payments (order_id, amount, currency) SELECT id, amount, currency FROM o""",
                   [AMOUNT, first, last], conn=conn)


# ---- runs ----

def afresh(b):
    """A shop with a history, and nothing going on."""
    b.workers(0)
    b.empty()
    Payflow(b).history(1, HISTORY)
    b.settle()


class Run:
    """How fast one of them was, and what each payment cost."""

    def __init__(self, rate, cpu, wal):
        self.rate = rate
        self.cpu = cpu  # microseconds
        self.wal = wal  # bytes


def complete(contender, n, live, delay_ms=0):
    """One run with n payments, all there at once or created one by one meanwhile."""
    b = contender.b
    contender.reset()
    contender.history(1, HISTORY)
    b.settle()
    b.lab.settings(auto="pay")
    b.option("poll_intervals", "1 ms")
    contender.start()
    try:
        appear(contender, 1, WARM_UP)
        b.wait(f"SELECT {contender.finished}", DEADLINE, contender.watch)
        if delay_ms:
            b.lab.rule("*", "delay", delay_ms, times=0)
        b.settle()
        cpu, wal = contender.cpu(), b.wal()
        begin = now()
        if live:
            b.pgbench(contender.create_script, CREATORS, "-t", str(n // CREATORS))
            begin = contender.first_created(begin)
        else:
            begin, cpu, wal = appear(contender, WARM_UP + 1, WARM_UP + n)
        b.wait(f"SELECT {contender.finished}", DEADLINE, contender.watch)
        cpu, wal = contender.cpu() - cpu, b.wal() - wal
    finally:
        contender.stop()
    contender.judge(WARM_UP + n)
    return Run(n / (contender.last_completed() - begin), cpu / n * 1e6, wal / n)


def appear(contender, first, last):
    """Payments that come with one commit; returns when that began, and what had been used up by then."""
    b = contender.b
    conn = b.lab.connect(autocommit=False)
    for i in range(first, last + 1, 1000):
        contender.fill(i, min(i + 999, last), conn)
    b.sql("ANALYZE", conn=conn)
    b.sql("CHECKPOINT")
    cpu, wal = contender.cpu(), b.wal()
    begin = now()
    conn.commit()
    conn.close()
    return begin, cpu, wal
