"""What the benchmarks share: a lab, turns, pgbench, what it costs, the machine."""

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TOP, "test", "t"))

from payflow_test import API_KEY, DATABASE, Lab, poll

PG_CONFIG = os.environ.get("PG_CONFIG", "pg_config")
AMOUNT = 1999
THREADS = 2  # of pgbench
QUEUES = "payments,status,money"
CREATORS = 8  # connections that create payments while others complete them

# No timed checkpoint falls into a run, and thousands of payments fit into a transaction; all else is as installed.
SETTINGS = {
    "shared_preload_libraries": "payflow",
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "max_locks_per_transaction": "512",
}


class Broken(Exception):
    """A run that did not do what it should have done: its time means nothing."""


def note(text):
    """A remark, not a result."""
    print(f"# {text}", file=sys.stderr, flush=True)


def command(*args, **more):
    """Run a program and return its output."""
    done = subprocess.run(args, stdin=more.pop("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        raise Broken(f"{args[0]}: exit {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def bindir():
    return command(PG_CONFIG, "--bindir").strip()


class Bench:
    """A lab for benchmarks, and how long they are to take."""

    def __init__(self, quick, rounds):
        self.quick = quick
        self.rounds = rounds or (2 if quick else 5)
        self.seconds = 3 if quick else 15  # of a run by time
        self.scale = 1 if quick else 5  # of a run by number
        self.folder = tempfile.mkdtemp(prefix="pfb")
        self.lab = None
        self.runs = 0

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder)
            os.chmod(self.folder, 0o755)  # the server loads a module from there
            self.lab = stack.enter_context(Lab(conf=SETTINGS))
            self.sql = self.lab.sql
            self.one = self.lab.one
            self.end = stack.pop_all()
        return self

    def __exit__(self, *error):
        return self.end.__exit__(*error)

    def build(self, name):
        """Build a file of the Makefile; returns its path."""
        path = os.path.join(self.folder, "build", name)
        command("make", "-s", "-C", HERE, f"BUILD={self.folder}/build", f"PG_CONFIG={PG_CONFIG}", path)
        return path

    def function(self, name, arguments, returns):
        """Have a function in C, of the module of its name."""
        if not self.one("SELECT to_regproc(%s)", [f"bench.{name}"]):
            self.sql("CREATE SCHEMA IF NOT EXISTS bench")
            self.sql(f"CREATE FUNCTION bench.{name}({arguments}) RETURNS {returns} LANGUAGE c STRICT AS %s",
                     [self.build(f"{name}.so")])

    # turns

    def take_turns(self, figure, contenders):
        """Measure each in turn, again and again; returns the median of each."""
        seen = {name: [] for name in contenders}
        for _ in range(self.rounds):
            for name, measure in contenders.items():
                seen[name].append(measure())
                note(f"{figure} {name} {seen[name][-1]:.6g}")
        return {name: statistics.median(values) for name, values in seen.items()}

    # the server

    def set(self, **settings):
        for name, value in settings.items():
            self.sql(f"ALTER SYSTEM SET payflow.{name} = %s", [value])
        self.sql("SELECT pg_reload_conf()")

    def workers(self, n, queues=QUEUES):
        """Have n workers that work these queues."""
        self.set(workers=n, queues=queues)
        poll(lambda: self.one("SELECT count(*) = %s FROM payflow.workers WHERE datname = %s AND pid IS NOT NULL",
                              [n, DATABASE]), 60, f"{n} workers")

    def rest(self):
        """Let the workers be there but do nothing."""
        self.set(queues="")
        self.wait("SELECT bool_and(queues = '' AND in_flight = 0) FROM payflow.workers", 60)

    def wait(self, query, deadline, watch=None):
        """Wait until a query says true, without being a burden: it had better use an index."""
        end = now() + deadline
        self.sql("SET enable_seqscan = off")
        while not self.one(query):
            if watch is not None:
                watch()
            if now() > end:
                raise Broken(f"waited {deadline} s for: {query}")
            time.sleep(0.1)

    def option(self, name, value):
        """Set an option of the test provider's foreign server."""
        known = self.one("SELECT count(*) FROM pg_foreign_server, unnest(srvoptions) AS o"
                         " WHERE srvname = 'sandbox' AND o LIKE %s", [name + "=%"])
        self.sql(f"ALTER SERVER sandbox OPTIONS ({'SET' if known else 'ADD'} {name} %s)", [str(value)])

    def empty(self):
        """No payments here, none at the provider.  No worker may be working."""
        tables = ("orders", "payment_sessions", "provider_refs", "operations", "provider_operations", "cancel_codes",
                  "idempotency_keys", "accounts", "accounting_entries", "journal", "discrepancies", "alerts")
        with self.lab.connect() as conn:
            # the guards against just that are triggers
            self.sql("SET session_replication_role = replica", conn=conn)
            self.sql("TRUNCATE " + ", ".join("payflow." + table for table in tables), conn=conn)
        conn.close()
        self.lab.forget()
        self.lab.settings(record=False)

    def settle(self):
        """The same beginning for everyone: statistics are there, nothing is dirty."""
        self.sql("VACUUM ANALYZE")
        self.sql("CHECKPOINT")

    def pgbench(self, script, clients, *args, **variables):
        """Run a script of this folder; returns transactions per second."""
        self.runs += 1
        limit = [] if "-t" in args else ["-T", str(self.seconds)]
        values = {"base": self.runs * 10 ** 10, "n": 0, **variables}
        output = command(os.path.join(bindir(), "pgbench"), "-n", "-M", "prepared", "-c", str(clients),
                         "-j", str(min(THREADS, clients)), *limit, *args,
                         *(f"-D{name}={value}" for name, value in values.items()),
                         "-f", os.path.join(HERE, script), env={**os.environ, **self.lab.env})
        failed = re.search(r"failed transactions: (\d+)", output)
        if failed and int(failed.group(1)):
            raise Broken(f"{script}: {failed.group(0)}")
        return float(re.search(r"tps = ([0-9.]+) \(without", output).group(1))

    # what it costs

    def server_cpu(self):
        """Seconds of processor time of all of the server's processes, those that have ended too."""
        total = 0
        program = self.lab.dir + bindir() + "/postgres"
        postmaster = self.lab.postmaster()
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                if os.readlink(f"/proc/{pid}/exe").startswith(program):
                    total += process_cpu(pid, children=pid == postmaster)
            except OSError:
                pass  # it has ended
        return total

    def wal(self):
        """Bytes of WAL so far."""
        return int(self.one("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    # for the record

    def circumstances(self):
        """The machine and the settings, for people who compare."""
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = re.search(r"model name\s*:\s*(.*)", file.read())
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
        yield (f"{os.cpu_count()} cores ({model.group(1) if model else os.uname().machine}), {memory:.0f} GB,"
               f" a flush of 8 kB takes {self.flush_us():.0f} µs; PostgreSQL {self.one('SHOW server_version')},"
               f" fsync {self.one('SHOW fsync')}, synchronous_commit {self.one('SHOW synchronous_commit')},"
               + ", ".join(f" {name} {value}" for name, value in SETTINGS.items() if name != "shared_preload_libraries")
               + f"; one worker; {'short' if self.quick else 'full'} runs, {self.rounds} turns.")

    def flush_us(self):
        """Microseconds of a write of 8 kB that is flushed."""
        times = []
        with open(os.path.join(self.folder, "flush"), "wb", buffering=0) as file:
            for _ in range(200):
                begin = time.perf_counter()
                file.seek(0)
                file.write(bytes(8192))
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e6


def process_cpu(pid, children=False):
    """Seconds of processor time of a process, and of its ended children."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def now():
    return time.time()
