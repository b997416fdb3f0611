"""The examples of README.md and docs/ are tried: SQL with its output, and whole programs.

In the documents, a block of Markdown that begins with

    ```sql run          is run by psql, one session a document
    ```text             right after it, is its output
    ```js NAME          is a program, written to a file of that name (python as well)

and a comment of a line of its own tells what happens between two blocks:

    <!-- test: pay ORDER -->            the payer pays, at the test provider
    <!-- test: act ORDER ACT -->        anything else that the test provider can do
    <!-- test: rule {"operation": ...} --> a fault of the test provider
    <!-- test: no rules -->             no more faults
    <!-- test: quiet ORDER -->          its alarm does not ring meanwhile
    <!-- test: until QUERY -->          wait until the query is true
    <!-- test: new database -->         the next block has a database of its own

Ids, times and addresses in outputs may differ; all other words may not.

usage: 080_docs.py [--write]    puts the outputs that it gets into the documents
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from payflow_test import HERE, Lab, done_testing, is_, ok

TOP = os.path.dirname(os.path.dirname(HERE))
DOCUMENTS = ["README.md", "docs/guide.md", "docs/reference.md", "docs/providers.md", "docs/operations.md"]
LOOSE = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d", "TIME"),
    (r"\d\d:\d\d:\d\d\.\d+", "DURATION"),
    (r"http://127\.0\.0\.1:\d+", "URL"),
    (r"pay_[0-9a-f]+", "ID"),
    (r"-{2,}", "-"),
    (r"\s+", " "),
]


# ---- documents -----------------------------------------------------------------

class Block:
    """A block of code, with the comments for the test that come before it."""

    def __init__(self, line, info, before):
        self.line = line
        self.info = info.split()
        self.before = before
        self.text = ""
        self.output = None
        self.output_lines = None
        self.got = None

    def is_sql(self):
        return self.info == ["sql", "run"]

    def is_program(self):
        return len(self.info) == 2 and self.info[0] in ("js", "python")


def read_document(name):
    """Its runnable blocks, in order."""
    blocks, before, fence, last = [], [], None, None
    with open(os.path.join(TOP, name), encoding="utf-8") as file:
        lines = file.read().splitlines()
    for number, line in enumerate(lines, 1):
        if fence is not None:
            if line == "```":
                if fence.info == ["text"] and last is not None:
                    last.output = fence.text
                    last.output_lines = (fence.line, number - 1)
                last = fence if fence.is_sql() else None
                fence = None
            else:
                fence.text += line + "\n"
        elif line.startswith("```"):
            fence = Block(number, line[3:], before)
            if fence.is_sql() or fence.is_program():
                blocks.append(fence)
                before = []
        elif line.startswith("<!-- test: "):
            before = before + [line[len("<!-- test: "):].removesuffix(" -->")]
        elif line.strip():
            last = None
    return blocks


def write_outputs(name, blocks):
    """Puts what was got into the document."""
    path = os.path.join(TOP, name)
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for block in reversed(blocks):
        if block.output_lines is not None:
            start, end = block.output_lines
            lines[start:end] = [line.rstrip() for line in block.got.strip("\n").splitlines()]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


# ---- what happens between blocks -------------------------------------------------

def newest_session(lab, order):
    return lab.one("SELECT session_id FROM payflow.find(%s) LIMIT 1", [order])


def happen(lab, words):
    verb, _, rest = words.partition(" ")
    if verb == "pay":
        lab.act(newest_session(lab, rest), "pay")
    elif verb == "act":
        order, act = rest.split()
        lab.act(newest_session(lab, order), act)
    elif verb == "rule":
        lab.control("POST", "/rules", json.loads(rest))
    elif words == "no rules":
        lab.clear_rules()
    elif verb == "quiet":
        lab.poll_sql("""UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 hour'
                        WHERE session_id = %s AND lease_until IS NULL RETURNING true""", [newest_session(lab, rest)])
    elif verb == "until":
        lab.poll_sql(rest)
    else:
        raise ValueError(f"what is \"{words}\"?")


class Psql:
    """A psql that is fed block by block."""

    def __init__(self, lab, database=None):
        env = {**os.environ, **lab.env, "PGOPTIONS": "-c timezone=UTC"}
        if database is not None:
            env["PGDATABASE"] = database
        self.process = subprocess.Popen(["psql", "-X", "-q"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, cwd=TOP)
        self.count = 0

    def run(self, script):
        self.count += 1
        mark = f"end of block {self.count}"
        # what psql writes by \! comes after what it wrote itself
        self.process.stdin.write(f"{script}\n\\! echo '{mark}'\n")
        self.process.stdin.flush()
        output = ""
        for line in self.process.stdout:
            if line.rstrip("\n") == mark:
                return output
            output += line
        raise RuntimeError(f"psql has ended\n{output}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def plain(text):
    for pattern, word in LOOSE:
        text = re.sub(pattern, word, text)
    return text.strip()


def judge(name, block, output):
    what = f"{name} line {block.line}"
    block.got = output
    if block.output is None:
        ok("ERROR:" not in output and "FATAL:" not in output, f"{what} runs", output)
    else:
        is_(plain(output), plain(block.output), f"{what} gives what it says")


def run_sql(lab, name, blocks):
    """All SQL of a document."""
    psql = Psql(lab)
    for block in blocks:
        new = "new database" in block.before
        for words in block.before:
            if words != "new database":
                happen(lab, words)
        if new:
            lab.sql("CREATE DATABASE docs")
            own = Psql(lab, "docs")
            judge(name, block, own.run(block.text))
            own.close()
            lab.sql("DROP DATABASE docs")
        else:
            judge(name, block, psql.run(block.text))
    psql.close()


# ---- programs ---------------------------------------------------------------------

def write_programs(blocks, folder):
    for block in blocks:
        with open(os.path.join(folder, block.info[1]), "w", encoding="utf-8") as file:
            file.write(block.text)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)


def fetch(method, url):
    """Status, location, JSON."""
    try:
        with OPENER.open(urllib.request.Request(url, method=method), timeout=60) as got:
            return got.status, got.headers.get("location"), json.loads(got.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("location"), json.loads(error.read())


def try_node(lab, folder):
    """The shop in Node.js takes order 1002."""
    shutil.copy(os.path.join(HERE, "clients", "package.json"), folder)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"], cwd=folder, check=True,
                   stdin=subprocess.DEVNULL, timeout=180)
    lab.sql("INSERT INTO orders (id, total) VALUES (1002, 2490)")
    shop = subprocess.Popen(["node", "shop.mjs"], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, **lab.env, "PGUSER": "shop_app", "PORT": "0"})
    try:
        url = f"http://127.0.0.1:{shop.stdout.readline().strip()}"
        status, location, _ = fetch("POST", f"{url}/orders/1002/pay")
        session = newest_session(lab, "1002")
        is_((status, location), (303, lab.one("SELECT redirect_url FROM payflow.get(%s)", [session])),
            "shop.mjs: the payer is sent to the payment page")
        is_(fetch("GET", f"{url}/back?s={session}&x=1")[2], {"session_id": session, "status": "registered", "paid": False,
                                                             "failure_code": None}, "shop.mjs: back, not paid yet")
        lab.act(session, "pay")
        status, _, body = fetch("GET", f"{url}/back?s={session}&x=1")
        is_((status, body["status"], body["paid"]), (200, "completed", True), "shop.mjs: back, and paid")
        ok(lab.one("SELECT shipped_at IS NOT NULL FROM orders WHERE id = 1002"), "shop.mjs: shipped")
        is_(fetch("POST", f"{url}/orders/1002/pay")[2]["paid"], True, "shop.mjs: paying again shows the payment that is there")
        is_(fetch("GET", f"{url}/payments/{session}")[2]["status"], "completed", "shop.mjs: the page that waits")
        is_(fetch("POST", f"{url}/orders/1/pay")[0], 404, "shop.mjs: no such order")
        lab.sql("INSERT INTO orders (id, total) VALUES (10020, 0)")
        is_(fetch("POST", f"{url}/orders/10020/pay")[::2], (400, {"error": "invalid_amount"}), "shop.mjs: an error of payflow")
    finally:
        shop.send_signal(signal.SIGTERM)
        shop.wait()
        shop.stdout.close()


def try_python(lab, folder):
    """The shop in Python takes order 1003."""
    def shop(*args):
        done = subprocess.run(["/usr/bin/python3", "shop.py", *args], cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                              env={**os.environ, **lab.env, "PGUSER": "shop_app"})
        return done.stdout.splitlines() if done.returncode == 0 else done.stderr

    lab.sql("INSERT INTO orders (id, total) VALUES (1003, 990)")
    sent = shop("pay", "1003")
    session = newest_session(lab, "1003")
    is_(sent, ["303", lab.one("SELECT redirect_url FROM payflow.get(%s)", [session]), ""],
        "shop.py: the payer is sent to the payment page")
    is_(shop("ship"), ["200", "None", "shipped: []"], "shop.py: nothing to ship")
    lab.act(session, "pay")
    is_(shop("back", session), ["200", "None", "completed, paid: True"], "shop.py: back, and paid")
    is_(shop("ship"), ["200", "None", "shipped: [1003]"], "shop.py: shipped")
    is_(shop("pay", "1003"), ["200", "None", "completed, paid: True"], "shop.py: paying again shows the payment that is there")
    is_(shop("pay", "1"), ["404", "None", "no such order"], "shop.py: no such order")
    is_(shop("back", "00000000-0000-7000-8000-000000000000"), ["404", "None", "session_not_found"],
        "shop.py: an error of payflow")


# ---- links --------------------------------------------------------------------------

def check_links(name):
    """Links to files of the project lead somewhere."""
    with open(os.path.join(TOP, name), encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```$", "", file.read(), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    folder = os.path.dirname(os.path.join(TOP, name))
    is_([link for link in links if "://" not in link and not os.path.exists(os.path.join(folder, link))], [],
        f"{name}: the links to files")


def prepare(lab):
    """What the README takes for granted."""
    lab.sql("CREATE ROLE shop_app LOGIN")
    lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, total bigint NOT NULL)")


def clear(lab):
    lab.sql("DROP TABLE orders")
    lab.sql("DROP OWNED BY shop_app")
    lab.sql("DROP ROLE shop_app")


with Lab() as lab:
    prepare(lab)
    for document in DOCUMENTS:
        blocks = read_document(document)
        run_sql(lab, document, [block for block in blocks if block.is_sql()])
        if "--write" in sys.argv:
            write_outputs(document, blocks)
        if document == "README.md":
            clear(lab)
        programs = [block for block in blocks if block.is_program()]
        if programs:
            with tempfile.TemporaryDirectory() as folder:
                write_programs(programs, folder)
                try_node(lab, folder)
                try_python(lab, folder)
        check_links(document)
    lab.finish()
done_testing()
