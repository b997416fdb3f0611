"""The lab itself: what the other tests stand on."""

import os
import shutil
import subprocess
import tempfile

import psycopg2

from payflow_test import LAB, Lab, done_testing, is_, like, ok, poll, read_exports, threads_at_barrier

NAMES = ["PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "SANDBOX_URL", "SANDBOX_CONTROL"]


def lab(*args):
    """Run test/lab; to read to the end of its output is to see that nothing keeps it open."""
    return subprocess.run([LAB, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=120)


def processes(folder):
    """Those that run a program of the folder, or were started with its name, the dead ones aside."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace")
            if folder + "/" in words or os.readlink(f"/proc/{pid}/exe").startswith(folder + "/"):
                found.append((int(pid), words))
        except OSError:
            pass
    return found


# D may be any folder: here root's own, which nobody else may enter.
folder = tempfile.mkdtemp(prefix="pf")
before = os.stat(folder)
done = lab("up", "--dir", folder, "--workers", "2",
           "--conf", "payflow.queues=",
           "--conf", "cluster_name=it's a \\ 100% \"lab\"",
           "--conf", "work_mem=5MB",
           "--conf", "Work_Mem=6MB")
is_(done.returncode, 0, "up in an existing folder")
if done.returncode != 0:
    print("#", done.stderr.replace("\n", "\n# "))
lines = done.stdout.splitlines()
is_([line.split("=")[0] for line in lines], [f"export {name}" for name in NAMES], "the output is the exports alone")

env = read_exports(done.stdout)
conn = psycopg2.connect(host=env["PGHOST"], port=env["PGPORT"], user=env["PGUSER"], dbname=env["PGDATABASE"])
conn.autocommit = True
cursor = conn.cursor()


def value(query, args=None):
    cursor.execute(query, args)
    return cursor.fetchone()[0]


is_(value("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"), True, "the user is a superuser")
is_(value("SHOW server_encoding"), "UTF8", "the encoding is UTF8")
is_(value("SELECT count(*) FROM pg_extension WHERE extname IN ('payflow', 'pg_cron')"), 2, "the extensions are there")
is_(value("SELECT count(*) FROM payflow.workers WHERE datname = 'shop'"), 2, "the workers are connected")
is_(value("SHOW payflow.queues"), "", "--conf: an empty value")
is_(value("SHOW cluster_name"), "it's a \\ 100% \"lab\"", "--conf: quotes and backslashes")
is_(value("SHOW work_mem"), "6MB", "--conf: the last one wins, in any case of letters")
is_(value("SELECT default_provider FROM payflow.merchants WHERE id = 'default'"), "sandbox", "a default provider")
like(value("SELECT srvoptions[1] FROM pg_foreign_server WHERE srvname = 'sandbox'"),
     "^endpoint=" + env["SANDBOX_URL"] + "$", "the provider's address")

done = lab("up", "--dir", folder)
ok(done.returncode == 1 and "a lab runs in" in done.stderr, "up where a lab runs is an error", done.stderr)
is_(lab("env", "--dir", folder).stdout.splitlines(), lines, "env prints the exports again")

# Others beside it, at the same time.
others = threads_at_barrier(2, lambda i: Lab(workers=1, conf={"payflow.databases": "" if i else "shop"}))
ok(all(isinstance(other, Lab) for other in others), "two more labs at once", others)
is_(len({env["PGPORT"], *(other.env["PGPORT"] for other in others)}), 3, "each has its port")
is_([len(other.workers()) for other in others], [1, 0], "no workers where no database is listed")

# What the test provider's rule "kill" does to the server and to a worker.
victim = others[0]
worker, postmaster = victim.workers()[0], victim.postmaster()
is_(subprocess.run([f"{victim.dir}/bin/kill-worker"], timeout=60).returncode, 0, "kill-worker")
ok(worker not in [pid for pid, _ in processes(victim.dir)], "the worker has ended")
poll(victim.workers, what="another worker")
victim.disconnect()
is_(subprocess.run([f"{victim.dir}/bin/kill-server"], timeout=60).returncode, 0, "kill-server")
ok(postmaster not in [pid for pid, _ in processes(victim.dir)], "the postmaster is gone")
victim.wait_up()
poll(victim.workers, what="a worker of the new server")
ok(victim.postmaster() != postmaster, "another postmaster has started")
ok(victim.log_contains("automatic recovery in progress"), "after a crash")
victim.restart("immediate")
is_(len(victim.workers()), 1, "restart waits for the workers")

# Down.
for other in others:
    other.down()
is_([p for other in others for p in processes(other.dir)], [], "down leaves no process")
is_([other.dir for other in others if os.path.exists(other.dir)], [], "and no file")
is_(value("SELECT count(*) FROM payflow.workers WHERE datname = 'shop'"), 2, "the first lab has not noticed")

conn.close()
done = lab("down", "--dir", folder)
is_((done.returncode, done.stdout, done.stderr), (0, "", ""), "down")
is_(processes(folder), [], "no process is left")
is_(os.listdir(folder), [], "no file either")
after = os.stat(folder)
is_((after.st_uid, after.st_mode), (before.st_uid, before.st_mode), "the folder belongs to whom it did")
is_(lab("down", "--dir", folder).returncode, 0, "down again does no harm")

# A start that fails.
done = lab("up", "--dir", folder, "--conf", "no_such_setting=1")
ok(done.returncode == 1 and done.stdout == "", "a setting that the server does not know", done.stdout)
like(done.stderr, 'unrecognized configuration parameter "no_such_setting"', "the server's log says why")
is_((processes(folder), os.listdir(folder)), ([], []), "and nothing is left")

shutil.rmtree(folder)
done = lab("up", "--dir", folder)
is_(done.returncode, 0, "up makes the folder")
is_(lab("down", "--dir", folder).returncode, 0, "down")
ok(not os.path.exists(folder), "and down takes it away")

done_testing()
