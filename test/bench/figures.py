"""The figures: each function measures some and yields their names and values."""

import http.client
import http.server
import json
import os
import random
import re
import socket
import statistics
import threading
import time

import payments
from bench import AMOUNT, API_KEY, QUEUES, Broken, command, note, now, poll

CALLS = 100  # in flight at a time, of the HTTP loop and of libcurl alone


class Result:
    """One line: the ratio of two rates, or a figure that stands for itself."""

    def __init__(self, name, value, ours=None, theirs=None):
        self.name = name
        self.value = value
        self.ours = ours
        self.theirs = theirs


def ratio(name, seen, ours, theirs):
    return Result(name, seen[ours] / seen[theirs], seen[ours], seen[theirs])


# ---- create and replay ----

def create(b):
    """create() on distinct orders, against the bare INSERT of the same rows."""
    payments.afresh(b)
    same_rows(b)
    for clients in (1, 8, 32):
        seen = b.take_turns(f"create-{clients}", {
            "create": lambda: b.pgbench("create.sql", clients),
            "insert": lambda: b.pgbench("insert.sql", clients),
        })
        yield ratio(f"create-{clients}", seen, "create", "insert")


def same_rows(b):
    """The two scripts must write the same, but for ids and times."""
    for script in ("create.sql", "insert.sql"):
        b.pgbench(script, 1, "-t", "1")
    kinds = b.one("""SELECT count(DISTINCT (
            SELECT jsonb_object_agg(key, value) FROM jsonb_each(to_jsonb(o) || to_jsonb(s))
            WHERE key NOT LIKE '%\\_id' AND key NOT LIKE '%\\_at'))
        FROM payflow.orders o JOIN payflow.payment_sessions s ON s.session_id = o.active_session_id""")
    if kinds != 1:
        raise Broken("insert.sql does not write what create writes")


def replay(b):
    """create() on one order with a running session."""
    payments.afresh(b)
    session = b.one("SELECT session_id FROM payflow.create('one', 1999, 'EUR')")
    seen = b.take_turns("replay", {
        "replay": lambda: b.pgbench("replay.sql", 32, order="one"),
        "locking": lambda: b.pgbench("replay_locking.sql", 32, order="one"),
        "select": lambda: b.pgbench("select.sql", 32, session=session),
    })
    yield ratio("replay-locking", seen, "replay", "locking")
    yield ratio("replay-select", seen, "replay", "select")


# ---- create to completed ----

def backlog(b):
    """Payments that wait when the workers begin."""
    return completed(b, "backlog", False)


def live(b):
    """Payments that are created meanwhile; what each costs."""
    return completed(b, "live", True)


def completed(b, figure, live_):
    contenders = {"payflow": (payments.Payflow(b), 4000), "two-workers": (payments.TwoWorkers(b), 4000),
                  "obvious": (payments.Obvious(b), 400), "skilled": (payments.Skilled(b), 4000),
                  "database": (payments.Database(b), 4000)}
    runs = {name: [] for name in contenders}

    def measure(name):
        contender, n = contenders[name]
        runs[name].append(payments.complete(contender, n * b.scale, live_))
        return runs[name][-1].rate

    seen = b.take_turns(figure, {name: lambda name=name: measure(name) for name in contenders})
    for name in ("obvious", "skilled", "database"):
        yield ratio(f"{figure}-{name}", seen, "payflow", name)
    yield ratio(f"{figure}-two-workers", seen, "two-workers", "obvious")
    if not live_:
        return
    for name in ("payflow", "obvious", "skilled"):
        yield Result(f"cpu-us-{name}", statistics.median(run.cpu for run in runs[name]))
        yield Result(f"wal-bytes-{name}", statistics.median(run.wal for run in runs[name]))


def slow(b):
    """A backlog when the provider takes 100 ms for everything."""
    contenders = {"payflow": (payments.Payflow(b), 4000), "obvious": (payments.Obvious(b), 100)}
    seen = b.take_turns("slow", {
        name: lambda contender=contender, n=n: payments.complete(contender, n * b.scale, False, delay_ms=100).rate
        for name, (contender, n) in contenders.items()})
    yield ratio("slow-obvious", seen, "payflow", "obvious")


# ---- the worker's calls ----

class Clock(http.server.BaseHTTPRequestHandler):
    """A provider that notes when requests come and declines all payments."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    arrived = None
    arrival = threading.Event()

    def parse_request(self):
        Clock.arrived = time.time_ns()
        return super().parse_request()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"id": "pay_" + body["reference"], "reference": body["reference"], "status": "declined",
                             "amount": body["amount"], "currency": body["currency"], "captured": 0}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        Clock.arrival.set()

    def log_message(self, *args):
        pass


def idle_times(b, send):
    """Milliseconds from what send(i) returns, in ns, to the request, again and again in an idle system."""
    times = []
    for i in range(300 * b.scale):
        time.sleep(random.uniform(0.005, 0.015))
        Clock.arrival.clear()
        sent = send(i)
        if not Clock.arrival.wait(30):
            raise Broken("a request has not come")
        times.append((Clock.arrived - sent) / 1e6)
    return sorted(times)


def latency(b):
    """From the commit of create to the request at the provider, idle."""
    payments.afresh(b)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Clock)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host, port = server.server_address
    b.sql("DROP SERVER IF EXISTS clock CASCADE")
    b.sql("CREATE SERVER clock FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint %s)", [f"http://{host}:{port}"])
    b.sql("CREATE USER MAPPING FOR CURRENT_USER SERVER clock OPTIONS (api_key 'key')")
    b.workers(1)
    run = 0

    def committed(i):
        b.sql("SELECT FROM payflow.create(%s, 1999, 'EUR', provider => 'clock')", [f"{run}-{i}"])
        return time.time_ns()

    body = json.dumps({"reference": "0" * 36, "order": "0-0", "amount": 1999, "currency": "EUR",
                       "capture": "automatic"})

    def measure(name):
        nonlocal run
        run += 1
        connection = http.client.HTTPConnection(host, port)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def sent(_):
            at = time.time_ns()
            connection.request("POST", "/v1/payments", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
            return at

        times = idle_times(b, committed if name == "payflow" else sent)
        connection.close()
        quantiles[name].append((statistics.median(times), times[int(len(times) * 0.99)]))
        return quantiles[name][-1][0]

    quantiles = {"payflow": [], "bare": []}
    try:
        b.take_turns("latency", {name: lambda name=name: measure(name) for name in quantiles})
    finally:
        b.workers(0)
        server.shutdown()
        server.server_close()
    for i, name in enumerate(("median", "p99")):
        ours, bare = (statistics.median(pair[i] for pair in quantiles[who]) for who in ("payflow", "bare"))
        yield Result(f"latency-{name}-ms", ours - bare, ours, bare)


def calls(b):
    """The worker's HTTP loop without the database, against libcurl alone, with the same call."""
    program = b.build("curl_loop")
    b.function("http_alone", "integer, float8, text, text", "float8")
    b.workers(0)
    b.empty()
    payment = b.lab.provider("POST", "/v1/payments", {"reference": "one", "order": "one", "amount": AMOUNT,
                                                      "currency": "EUR", "capture": "automatic"}, key="one")
    call = [CALLS, b.seconds, f"Authorization: Bearer {API_KEY}", f"{b.lab.url}/v1/payments/{payment['id']}"]

    def loop():
        conn = b.lab.connect()  # it begins without connections to the provider, as a program does
        rate = b.one("SELECT bench.http_alone(%s, %s, %s, %s)", call, conn=conn)
        conn.close()
        return rate

    seen = b.take_turns("calls", {"loop": loop, "curl": lambda: float(command(program, *map(str, call)))})
    yield ratio("calls-curl", seen, "loop", "curl")


def questions(b):
    """Questions that one worker asks in a second, each claimed, sent, applied and journaled."""
    payments.afresh(b)
    b.option("poll_intervals", "1 ms")
    n = 2000
    b.sql("SELECT count(*) FROM generate_series(1, %s) i CROSS JOIN LATERAL payflow.create('o' || i, 1999, 'EUR')", [n])
    b.workers(1)
    b.wait("SELECT NOT EXISTS (SELECT FROM payflow.payment_sessions WHERE status = 'registering')", 60)
    b.settle()

    def asked():
        return b.lab.control("GET", "/stats")["calls"]["get"], now()

    def worker():
        b.set(queues=QUEUES)
        before = asked()
        poll(lambda: asked()[0] > before[0] + n, 60, "the worker to ask")
        calls_before, begin = asked()
        time.sleep(b.seconds)
        calls_after, end = asked()
        b.rest()
        return (calls_after - calls_before) / (end - begin)

    b.rest()
    seen = b.take_turns("questions", {"worker": worker})
    b.workers(0)
    yield Result("questions", seen["worker"])


# ---- the sweep ----

def statements(b):
    """The statements by which the sweep finds work, macros expanded, with the types of their arguments."""
    with open(b.build("source.i"), encoding="utf-8") as file:
        text = file.read()
    text = text[text.index("work_sources[WORK_SOURCES] ="):]
    for literals, types in re.findall(r'\.sql = ((?:"[^"]*"\s*)+),.*?\.argtypes = \{([^}]*)\}', text, re.S):
        names = b.sql("""SELECT format_type(type, NULL) AS name
            FROM unnest(%s::oid[]) WITH ORDINALITY AS t(type, place) ORDER BY place""", [re.findall(r"\d+", types)])
        statement = "".join(re.findall(r'"([^"]*)"', literals))
        if statement.startswith("SELECT "):  # the others put off what has no provider any more
            yield statement, [row.name for row in names]


def add_live(b):
    """Of each kind of session 5 that are due and 50 that are not."""
    b.sql("SELECT count(*) FROM generate_series(1, 165) i CROSS JOIN LATERAL payflow.create('l' || i, 1999, 'EUR')")
    with b.lab.connect() as conn:
        b.sql("SET session_replication_role = replica", conn=conn)
        b.sql("""UPDATE payflow.payment_sessions s SET
                     next_action_at = now() + CASE WHEN n % 55 < 5 THEN '-1 minute' ELSE '1 hour' END::interval,
                     status = CASE WHEN n < 55 THEN 'registering' ELSE 'registered' END,
                     stage = CASE WHEN n < 55 THEN 'register' ELSE 'form' END,
                     expiring = n >= 110
                 FROM (SELECT session_id, row_number() OVER () - 1 AS n FROM payflow.payment_sessions
                       WHERE status = 'registering') l
                 WHERE s.session_id = l.session_id""", conn=conn)
    conn.close()


def refund(b):
    """Refunds: of a tenth of the finished sessions, settled; of live ones, 5 that are due and 50 that are not."""
    finished = ("status = 'failed' AND get_byte(uuid_send(session_id), 15) < 26", "succeeded", "NULL")
    live = ("expiring", "pending", "now() + CASE WHEN n < 5 THEN '-1 minute' ELSE '1 hour' END::interval")
    with b.lab.connect(options="-c session_replication_role=replica") as conn:
        b.sql("DELETE FROM payflow.operations", conn=conn)
        for sessions, status, alarm in (finished, live):
            b.sql(f"""INSERT INTO payflow.operations (operation_id, session_id, merchant, order_id, provider, kind,
                          status, amount, currency, source, limit_amount, idempotency_key, next_action_at)
                      SELECT gen_random_uuid(), session_id, merchant, order_id, provider, 'refund', '{status}', amount,
                          currency, 'receipt', amount, 'k' || n, {alarm}
                      FROM (SELECT s.*, row_number() OVER () - 1 AS n
                            FROM payflow.payment_sessions s WHERE {sessions}) s""", conn=conn)
    conn.close()


def most_buffers(b):
    """Of all statements of the sweep, the most buffers that one touches, with either kind of plan."""
    most = []
    conn = b.lab.connect()
    for text, types in statements(b):
        name = f"s{len(most)}"
        b.sql(f"PREPARE {name} ({', '.join(types)}) AS {text}", conn=conn)
        # the provider; now, unless it is the look at the first alarm, and from when on; the limit before the
        # offset; a provider that does not name refunds
        times = ["'-infinity'"] if ">=) $2" in text else ["now()", "'-infinity'"]
        given = {"text": iter(["'sandbox'"]), "timestamp with time zone": iter(times),
                 "bigint": iter(["200", "0"]), "boolean": iter(["false", "true"])}
        arguments = ", ".join(next(given[kind]) for kind in types)
        seen = []
        for mode in ("force_generic_plan", "force_custom_plan"):
            b.sql(f"SET plan_cache_mode = {mode}", conn=conn)
            b.sql("BEGIN", conn=conn)
            plan = b.one(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {name} ({arguments})", conn=conn)[0]["Plan"]
            b.sql("ROLLBACK", conn=conn)
            seen.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        note(f"statement {len(most)}: {plan['Actual Rows']} rows, {seen} buffers")
        most.append(max(seen))
    conn.close()
    if len(most) != 12:
        raise Broken(f"{len(most)} statements were found in src/sweep/source.c: three of each of four sources?")
    return max(most)


def sweep(b):
    """Buffers that finding due work touches beside finished sessions."""
    sizes = [("10k", 10_000), ("1m", 1_000_000)] + ([] if b.quick else [("10m", 10_000_000)])
    b.workers(0)
    b.empty()
    add_live(b)
    there = 0
    for name, size in sizes:
        while there < size:
            step = min(size - there, 500_000)
            payments.Payflow(b).history(there + 1, there + step)
            there += step
        refund(b)
        b.settle()
        yield Result(f"sweep-{name}-buffers", most_buffers(b))
    b.empty()
