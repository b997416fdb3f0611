"""What the end-to-end tests share: TAP output, a lab, the test provider.

A test is a script that prints TAP:

    from payflow_test import Lab, done_testing, is_

    with Lab(workers=2) as lab:
        pay = lab.row("SELECT * FROM payflow.create(%s, 1500, 'EUR')", ["A-1"])
        lab.poll_session(pay.session_id, "registered")
        is_(lab.stats(order="A-1")["calls"]["register"], 1, "one Register call")
        lab.finish()
    done_testing()

Tests wait for something to happen, with poll(), a rule that holds a call, or
a lock; they never sleep for a time that ought to be enough.
"""

import atexit
import http.server
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import psycopg2
import psycopg2.extras

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(os.path.dirname(HERE), "lab")
DATABASE = "shop"
API_KEY = "sandbox_test_key"
WEBHOOK_SECRET = "whsec_cGF5ZmxvdyBsYWIgd2ViaG9vayBzZWNyZXQ="
DEADLINE = 30


# ---- TAP -------------------------------------------------------------------

_tap = {"run": 0, "failed": 0, "planned": False}
_tap_lock = threading.RLock()


def diag(text):
    """Print a remark."""
    with _tap_lock:
        for line in str(text).splitlines() or [""]:
            print("#", line, flush=True)


def ok(passed, name, why=None):
    """One assertion; why is shown when it fails."""
    with _tap_lock:
        _tap["run"] += 1
        if not passed:
            _tap["failed"] += 1
        name = name.replace("#", r"\#")
        print(f"{'ok' if passed else 'not ok'} {_tap['run']} - {name}", flush=True)
        if not passed:
            frame = sys._getframe(1)
            while frame.f_code.co_filename == __file__ and frame.f_back:
                frame = frame.f_back
            diag(f"  failed at {os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno}")
            if why is not None:
                diag(why)
    return bool(passed)


def is_(got, want, name):
    """Equality."""
    return ok(got == want, name, f"         got: {got!r}\n    expected: {want!r}")


def isnt(got, other, name):
    """Inequality."""
    return ok(got != other, name, f"         got: {got!r}\n    expected: anything else")


def like(text, pattern, name):
    """A regular expression matches somewhere in the text."""
    return ok(re.search(pattern, str(text)) is not None, name,
              f"         got: {text!r}\n    no match of: {pattern}")


def unlike(text, pattern, name):
    """A regular expression matches nowhere in the text."""
    return ok(re.search(pattern, str(text)) is None, name,
              f"         got: {text!r}\n    but matches: {pattern}")


def done_testing():
    """The end: print the plan and leave."""
    with _tap_lock:
        _tap["planned"] = True
        print(f"1..{_tap['run']}", flush=True)
        sys.exit(1 if _tap["failed"] else 0)


def skip_all(reason):
    """Leave without a test, because something outside is not there."""
    print(f"1..0 # SKIP {reason}", flush=True)
    sys.exit(0)


# ---- waiting ---------------------------------------------------------------

class TimedOut(AssertionError):
    """What poll() waited for has not come."""


def poll(fn, deadline=DEADLINE, what="something"):
    """Call fn until it gives something true, and return that."""
    end = time.monotonic() + deadline
    while True:
        got = fn()
        if got:
            return got
        if time.monotonic() > end:
            raise TimedOut(f"waited {deadline} s for {what}; last seen: {got!r}")
        time.sleep(0.02)


def threads_at_barrier(n, fn, prepare=None):
    """Run fn(i) in n threads that all start at the same moment.

    prepare(i) runs before, without hurry (to connect, say), and what it
    returns is passed on: fn(i, prepared).  Returns the n results in order; an
    exception of fn stands in the list as it is.
    """
    barrier = threading.Barrier(n)
    results = [None] * n

    def run(i):
        try:
            args = [i] if prepare is None else [i, prepare(i)]
        except BaseException as error:
            results[i] = error
            barrier.abort()
            return
        try:
            barrier.wait(DEADLINE)
            results[i] = fn(*args)
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=[i], daemon=True) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# ---- HTTP ------------------------------------------------------------------

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HttpError(Exception):
    """An answer above 299."""

    def __init__(self, status, body, request):
        super().__init__(f"{request}: {status} {body[:500]!r}")
        self.status = status
        self.body = body


def http_call(method, url, body=None, headers=None, timeout=60):
    """Send JSON, return what the JSON of the answer says."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method,
                                     headers={"Content-Type": "application/json", **(headers or {})})
    try:
        with _opener.open(request, timeout=timeout) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise HttpError(error.code, error.read(), f"{method} {url}") from None
    return json.loads(text) if text.strip() else None


class Receiver:
    """A web server that keeps what is posted to it.

    answer(request) may return the status to answer with; 200 without it.
    A request has: path, headers (a dict, names in lower case), body (bytes).
    """

    def __init__(self, answer=None):
        self.requests = []
        self.answer = answer
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = {"path": self.path, "body": body,
                           "headers": {name.lower(): value for name, value in self.headers.items()}}
                receiver.requests.append(request)
                status = receiver.answer(request) if receiver.answer else None
                self.send_response(status or 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


# ---- the test provider -------------------------------------------------------

class Provider:
    """A test provider that runs: its two faces (see test/sandbox/README.md)."""

    def __init__(self, url=None, control_url=None):
        self.url = url
        self.control_url = control_url

    def control(self, method, path, body=None, timeout=60):
        """Its control interface."""
        return http_call(method, self.control_url + path, body, timeout=timeout)

    def provider(self, method, path, body=None, key=None):
        """Its interface for payments, as the worker uses it."""
        headers = {"Authorization": f"Bearer {API_KEY}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        return http_call(method, self.url + path, body, headers)

    def settings(self, **changes):
        return self.control("POST", "/settings", changes)

    def forget(self):
        """Make the test provider forget everything, but for the secret."""
        self.control("DELETE", "/")
        self.settings(webhook_secret=WEBHOOK_SECRET)

    def rule(self, operation, action, value=None, **more):
        """Make a fault; more: reference, order, times, retry_after, target.  Returns its id."""
        body = {"operation": operation, "action": action, **more}
        if value is not None:
            body["value"] = value
        return self.control("POST", "/rules", body)["id"]

    def hits(self, rule):
        """How many calls a rule has met."""
        return self.control("GET", f"/rules/{rule}")["hits"]

    def held(self, rule):
        """How many calls a rule holds now."""
        return self.control("GET", f"/rules/{rule}")["held"]

    def wait_held(self, rule, n=1, deadline=DEADLINE):
        poll(lambda: self.held(rule) >= n, deadline, f"{n} held calls")

    def release(self, rule):
        """Let held calls go."""
        self.control("POST", f"/rules/{rule}/release")

    def clear_rules(self):
        self.control("DELETE", "/rules")

    def act(self, payment_id, what, **body):
        """What the payer, the bank or the provider does to a payment."""
        return self.control("POST", f"/payments/{payment_id}/{what}", body)

    def stats(self, order=None, reference=None):
        query = ""
        if order is not None:
            query = "?" + urllib.parse.urlencode({"order": order})
        elif reference is not None:
            query = "?" + urllib.parse.urlencode({"reference": reference})
        return self.control("GET", "/stats" + query)

    def payments(self, order):
        return self.control("GET", "/payments?" + urllib.parse.urlencode({"order": order}))

    def requests(self, reference, operation=None):
        """The calls about a payment that have come, in their order."""
        calls = self.control("GET", "/requests?" + urllib.parse.urlencode({"reference": str(reference)}))
        return [call for call in calls if operation in (None, call["operation"])]


# ---- gates -----------------------------------------------------------------

class Gate:
    """Stops whoever writes certain rows, in the middle of a transaction, until it is opened.

        with lab.gate("payflow.accounting_entries", "INSERT", "NEW.order_id = 'A-1'") as gate:
            ...
            gate.wait_held()

    A trigger waits for an advisory lock that the gate holds, however short the
    lock_timeout of the one who writes.  It stays there when the gate is open.
    Without a condition it stops whole statements, before they lock a row.
    """

    def __init__(self, lab, table, event, condition=None):
        self.lab = lab
        self.key = next(_keys)
        self.conn = lab.connect()
        name = f"test_gate_{self.key}"
        lab.sql("SELECT pg_advisory_lock(%s)", [self.key], conn=self.conn)
        lab.sql(f"""CREATE FUNCTION public.{name}() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$
                    BEGIN PERFORM pg_advisory_xact_lock_shared({self.key}); RETURN NEW; END $$""")
        each = f"ROW WHEN ({condition})" if condition else "STATEMENT"
        lab.sql(f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH {each} EXECUTE FUNCTION public.{name}()")

    def held(self):
        """The processes that it stops now."""
        return [row.pid for row in self.lab.sql("""SELECT pid FROM pg_locks WHERE locktype = 'advisory'
            AND NOT granted AND objsubid = 1 AND classid = 0 AND objid = %s ORDER BY pid""", [self.key])]

    def wait_held(self, n=1, deadline=DEADLINE):
        return poll(lambda: len(self.held()) >= n and self.held(), deadline, f"{n} processes at the gate")

    def open(self):
        self.conn.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.open()


_keys = itertools.count(1)


# ---- the lab ---------------------------------------------------------------

_labs = []


def _lab_command(*args, timeout=180):
    lab = subprocess.Popen([LAB, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    try:
        output, errors = lab.communicate(timeout=timeout)
    except BaseException:
        # Given the time to do so, it takes down what it has started.
        lab.terminate()
        lab.wait()
        raise
    if lab.returncode != 0:
        raise RuntimeError(f"test/lab {' '.join(args)}: exit {lab.returncode}\n{errors}")
    return output


def _state_of(pid):
    """A process's state, as ps shows it."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


def read_exports(text):
    """The variables that test/lab prints."""
    pairs = (shlex.split(line)[1].split("=", 1) for line in text.splitlines())
    return dict(pairs)


class Lab(Provider):
    """A server of its own with payflow and the test provider (see test/lab).

    under: a command that the server is started by, "prlimit --nofile=256", say.
    """

    def __init__(self, workers=1, conf=None, up=True, under=None):
        super().__init__()
        self.dir = tempfile.mkdtemp(prefix="pf")
        self.env = {}
        self.providers = [self]
        self._programs = []
        self._local = threading.local()
        self._era = 0
        self._stopped = set()
        _labs.append(self)
        if up:
            self.up(workers, conf, under)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and kind is not SystemExit:
            self.show_log()
        self.down()

    # up and down

    def up(self, workers=1, conf=None, under=None):
        args = ["--workers", str(workers)]
        if under is not None:
            args += ["--under", under]
        for name, value in (conf or {}).items():
            args += ["--conf", f"{name}={value}"]
        self.env = read_exports(_lab_command("up", "--dir", self.dir, *args))
        self.url = self.env["SANDBOX_URL"]
        self.control_url = self.env["SANDBOX_CONTROL"]

    def down(self):
        if self in _labs:
            _labs.remove(self)
            self.disconnect()
            self.go_on(*self._stopped)
            for program in self._programs:
                program.kill()
                program.wait()
            _lab_command("down", "--dir", self.dir)
            if os.path.isdir(self.dir):
                os.rmdir(self.dir)

    def restart(self, mode="fast"):
        """Restart the server; returns when the workers are connected again."""
        self.disconnect()
        _lab_command("restart", "--dir", self.dir, "-m", mode)

    def stop(self, mode="fast"):
        self.disconnect()
        _lab_command("stop", "--dir", self.dir, "-m", mode)

    def start(self):
        _lab_command("start", "--dir", self.dir)

    def wait_up(self, deadline=60):
        """Wait until a server that was killed takes connections again."""
        self.disconnect()

        def connects():
            try:
                self.connect().close()
                return True
            except psycopg2.OperationalError:
                return False

        poll(connects, deadline, "the server to come back")

    # SQL

    def connect(self, autocommit=True, **kw):
        """A connection of its own; rows come as named tuples."""
        args = {"host": self.env["PGHOST"], "port": self.env["PGPORT"], "user": self.env["PGUSER"],
                "dbname": DATABASE, "cursor_factory": psycopg2.extras.NamedTupleCursor}
        conn = psycopg2.connect(**{**args, **kw})
        conn.autocommit = autocommit
        return conn

    def disconnect(self):
        """Let every thread open a new connection at its next sql()."""
        self._era += 1
        self._local = threading.local()

    def _own_connection(self):
        conn, era = getattr(self._local, "conn", None), getattr(self._local, "era", None)
        if conn is None or conn.closed or era != self._era:
            self._local.conn, self._local.era = self.connect(), self._era
        return self._local.conn

    def sql(self, query, args=None, conn=None):
        """Run a statement and return its rows; each thread has its own session."""
        with (conn or self._own_connection()).cursor() as cursor:
            cursor.execute(query, args)
            return cursor.fetchall() if cursor.description else []

    def row(self, query, args=None, conn=None):
        """The first row, or None."""
        rows = self.sql(query, args, conn)
        return rows[0] if rows else None

    def one(self, query, args=None, conn=None):
        """The first column of the first row, or None."""
        row = self.row(query, args, conn)
        return row[0] if row else None

    def error(self, query, args=None, conn=None):
        """The error that a statement raises, or None: see .pgcode and .diag."""
        try:
            self.sql(query, args, conn)
            return None
        except psycopg2.Error as error:
            return error

    def psql(self, script, *options, check=True):
        """Run a script by psql; returns its output."""
        done = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *options],
                              input=script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **self.env})
        if check and done.returncode != 0:
            raise RuntimeError(f"psql: exit {done.returncode}\n{done.stderr}")
        return done.stdout if check else done

    def poll_sql(self, query, args=None, deadline=DEADLINE, what=None):
        """Run a query until its first column is true; returns that row."""
        def true_row():
            row = self.row(query, args)
            return row if row and row[0] else None

        return poll(true_row, deadline, what or query)

    def poll_session(self, session_id, *statuses, deadline=DEADLINE):
        """Wait until a session has one of these statuses; returns its payment row."""
        seen = None

        def there():
            nonlocal seen
            seen = self.row("SELECT * FROM payflow.get(%s::uuid)", [session_id])
            return seen if seen.status in statuses else None

        try:
            return poll(there, deadline, f"session {session_id} to be {' or '.join(statuses)}")
        except TimedOut as error:
            raise TimedOut(f"{error}; it is {seen.status} ({seen.stage})") from None

    def gate(self, table, event, condition=None):
        """Stop those who write rows of a table: see Gate."""
        return Gate(self, table, event, condition)

    def option(self, **options):
        """Set options of the provider."""
        present = self.one("SELECT srvoptions FROM pg_foreign_server WHERE srvname = 'sandbox'")
        names = [item.split("=", 1)[0] for item in present]
        for name, value in options.items():
            self.sql(f"ALTER SERVER sandbox OPTIONS ({'SET' if name in names else 'ADD'} {name} %s)", [str(value)])

    # sessions and workers

    def ring(self, *sessions):
        """Let the alarms of sessions ring now; true, so that poll() can do it again and again."""
        self.sql("""UPDATE payflow.payment_sessions SET next_action_at = now()
                    WHERE session_id = ANY (%s::uuid[]) AND next_action_at IS NOT NULL""",
                 [[str(session) for session in sessions]])
        return True

    def end_lease(self, *sessions):
        """As if the worker that has them had been away for long: the next one may take them."""
        self.sql("""UPDATE payflow.payment_sessions SET lease_until = now() - '1 second'::interval,
                    next_action_at = CASE WHEN next_action_at IS NOT NULL THEN now() END
                    WHERE session_id = ANY (%s::uuid[]) AND lease_until IS NOT NULL""",
                 [[str(session) for session in sessions]])

    def workers(self):
        """The pids of the workers."""
        return [row.pid for row in self.sql("SELECT pid FROM payflow.workers WHERE datname = %s ORDER BY pid",
                                            [DATABASE])]

    def all_looked(self):
        """Wait until every worker has looked for due work since now; payflow.poll_interval is at most 100 ms."""
        at = self.one("SELECT clock_timestamp() + '200 milliseconds'::interval")
        poll(lambda: self.one("SELECT min(last_loop) > %s FROM payflow.workers", [at]), what="all workers to look")

    def stop_worker(self, pid, deadline=DEADLINE):
        """Let a worker stand still (SIGSTOP) where it sleeps: outside of transactions, without any lock."""
        def asleep():
            self._stopped.add(pid)
            os.kill(pid, signal.SIGSTOP)
            poll(lambda: _state_of(pid) == "T", what=f"process {pid} to stand still")
            if self.one("""SELECT wait_event_type = 'Extension' AND xact_start IS NULL
                           FROM pg_stat_activity WHERE pid = %s""", [pid]):
                return True
            os.kill(pid, signal.SIGCONT)
            return False

        poll(asleep, deadline, f"worker {pid} to be asleep")

    def go_on(self, *pids):
        """Let stopped workers go on."""
        for pid in pids:
            self._stopped.discard(pid)
            os.kill(pid, signal.SIGCONT)

    def kill_server(self):
        """kill -9 all of it; it starts again by itself."""
        subprocess.run([os.path.join(self.dir, "bin", "kill-server")], stdin=subprocess.DEVNULL, check=True, timeout=120)
        self.disconnect()

    # a standby

    def standby(self):
        """Make a hot standby of the server; returns a connection to it."""
        return self.connect(port=read_exports(_lab_command("standby", "--dir", self.dir))["PGPORT"])

    def caught_up(self, standby):
        """Wait until the standby has replayed all that is committed here now."""
        at = self.one("SELECT pg_current_wal_lsn()")
        poll(lambda: self.one("SELECT pg_last_wal_replay_lsn() >= %s", [at], conn=standby), what="the standby")

    def cut_off(self, standby):
        """From now on nothing reaches the standby."""
        self.sql("ALTER SYSTEM SET primary_conninfo = ''", conn=standby)
        self.sql("SELECT pg_reload_conf()", conn=standby)
        poll(lambda: not self.sql("SELECT pid FROM pg_stat_wal_receiver", conn=standby)
             and not self.sql("SELECT pid FROM pg_stat_replication"), what="the standby to be cut off")

    def promote(self):
        """The server is stopped at once, and its standby takes its place; returns when its workers are connected."""
        self.disconnect()
        self.env = read_exports(_lab_command("promote", "--dir", self.dir))

    def postmaster(self):
        with open(os.path.join(self.dir, "data", "postmaster.pid"), encoding="utf-8") as file:
            return int(file.readline())

    # the server's log

    def log(self, since=0):
        with open(os.path.join(self.dir, "log"), "rb") as file:
            file.seek(since)
            return file.read().decode(errors="replace")

    def log_mark(self):
        """Where the log ends now."""
        return os.path.getsize(os.path.join(self.dir, "log"))

    def log_contains(self, pattern, since=0):
        return re.search(pattern, self.log(since)) is not None

    def wait_for_log(self, pattern, since=0, deadline=DEADLINE):
        poll(lambda: self.log_contains(pattern, since), deadline, f"the server's log to say {pattern}")

    def show_log(self, lines=40):
        try:
            diag("the last lines of the server's log:\n" + "\n".join(self.log().splitlines()[-lines:]))
        except OSError:
            pass

    # more providers

    def start_provider(self, *options):
        """Another test provider; it ends with the lab."""
        ready = os.path.join(self.dir, f"provider{len(self.providers)}.ready")
        program = subprocess.Popen([os.path.join(self.dir, "bin", "sandbox"), "--ready-file", ready, *options],
                                   stdin=subprocess.DEVNULL)
        self._programs.append(program)

        def is_ready():
            if program.poll() is not None:
                raise RuntimeError(f"the test provider has ended: exit {program.returncode}")
            return os.path.exists(ready)

        poll(is_ready, what="another test provider")
        with open(ready, encoding="utf-8") as file:
            addresses = dict(line.split("=", 1) for line in file.read().split())
        os.remove(ready)
        self.providers.append(Provider(addresses["SANDBOX_URL"], addresses["SANDBOX_CONTROL"]))
        return self.providers[-1]

    def add_server(self, name, url=None, conn=None, **options):
        """CREATE SERVER for a test provider (this lab's own one), with a user mapping."""
        options = {"endpoint": url or self.url, **options}
        listed = ", ".join(f"{option} %({option})s" for option in options)
        self.sql(f'CREATE SERVER "{name}" FOREIGN DATA WRAPPER payflow_sandbox OPTIONS ({listed})', options, conn)
        self.sql(f'CREATE USER MAPPING FOR CURRENT_USER SERVER "{name}" OPTIONS (api_key %s)', [API_KEY], conn)

    # sessions

    def quiet(self, session_id, status=None):
        """Let a session's alarm not ring during the test, as soon as no worker has it (and it has that status)."""
        poll(lambda: self.sql("""UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 hour'
                                 WHERE session_id = %s AND lease_until IS NULL AND status = coalesce(%s, status)
                                 RETURNING session_id""", [session_id, status]),
             what=f"session {session_id} to be left alone")

    def session(self, session_id):
        """Its row, with the columns that the calls do not show."""
        return self.row("SELECT * FROM payflow.payment_sessions WHERE session_id = %s", [session_id])

    def journal(self, session_id, event=None):
        """What the journal says of a session, in its order."""
        return self.sql("""SELECT * FROM payflow.journal WHERE session_id = %s AND event = coalesce(%s, event)
                           ORDER BY journal_id""", [session_id, event])

    def alerts(self):
        """The keys of the open alerts."""
        return {row.key for row in self.sql("SELECT key FROM payflow.alerts WHERE closed_at IS NULL")}

    # the end of a test

    def booked(self):
        """The money that the ledger says the provider took and gave back."""
        return self.row("""
            SELECT coalesce(sum(amount * CASE
                       WHEN entry_type IN ('payment_received', 'unexpected_received') THEN 1
                       WHEN entry_type = 'payment_reversed' THEN -1 ELSE 0 END), 0)::bigint AS captured,
                   coalesce(sum(amount * CASE
                       WHEN entry_type IN ('refund_sent', 'refund_reported') THEN 1
                       WHEN entry_type = 'refund_reversed' THEN -1 ELSE 0 END), 0)::bigint AS refunded
            FROM payflow.accounting_entries""")

    def finish(self, deadline=DEADLINE):
        """Both sides agree: nothing is wrong here, and all money is booked."""
        is_(self.sql("SELECT * FROM payflow.check_invariants()"), [], "check_invariants() finds nothing")

        sides = []

        def agree():
            stats, booked = [provider.stats() for provider in self.providers], self.booked()
            sides[:] = [(sum(s["captured"] for s in stats), sum(s["refunded"] for s in stats)),
                        (booked.captured, booked.refunded)]
            return sides[0] == sides[1]

        try:
            poll(agree, deadline, "the money of both sides to agree")
        except TimedOut:
            pass
        is_(sides[1], sides[0], "captured and refunded: the ledger says what the provider says")


def _end_labs():
    for lab in list(_labs):
        try:
            lab.down()
        except Exception as error:
            diag(f"{lab.dir}: {error}")


def _on_signal(number, _frame):
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    sys.exit(128 + number)


atexit.register(_end_labs)
for _name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(_name, _on_signal)
