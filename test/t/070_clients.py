"""Plain clients take a payment: psql, npm pg, psycopg; errors arrive with SQLSTATE, DETAIL and HINT."""

import json
import os
import shutil
import subprocess
import tempfile

from payflow_test import HERE, Lab, done_testing, is_, like

CLIENTS = os.path.join(HERE, "clients")
ERROR = ["PT409", "order_already_paid", True]


def run(lab, *command, cwd=None):
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **lab.env}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=180)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def judge(name, seen, captured):
    is_(seen["created"], ["registering", 202, False], f"{name}: create, commit")
    is_(seen["ready"], ["registered", True], f"{name}: wait: the address is there")
    is_(seen["paid"], ["completed", True, captured], f"{name}: check: completed")
    is_(seen["found"], [True], f"{name}: find")
    is_(seen["error"], ERROR, f"{name}: the error has SQLSTATE, DETAIL and HINT")


def psql(lab):
    created = lab.psql("""
        BEGIN;
        CREATE TABLE shop_orders (id bigint PRIMARY KEY);
        INSERT INTO shop_orders VALUES (77);
        SELECT session_id FROM payflow.create(77, 1999, 'EUR');
        COMMIT;""").strip()
    url = lab.psql(f"SELECT redirect_url FROM payflow.wait('{created}', '30 seconds');").strip()
    like(url, "^http://", "psql: create with a bigint id, commit, wait: the address is there")
    lab.act(created, "pay")
    is_(lab.psql(f"SELECT status, paid FROM payflow.check('{created}', '30 seconds');").strip(), "completed|t",
        "psql: check: completed")
    is_(lab.psql("SELECT session_id FROM payflow.find(77);").strip(), created, "psql: find")
    done = lab.psql("SELECT * FROM payflow.create(77, 1999, 'EUR');", "-v", "VERBOSITY=verbose", check=False)
    like(done.stderr, r"ERROR:  PT409: .*\nDETAIL:  order_already_paid\nHINT:  ", "psql: the error")


with Lab() as lab:
    psql(lab)
    judge("psycopg", json.loads(run(lab, "/usr/bin/python3", os.path.join(CLIENTS, "shop3.py"), "psycopg")), 1999)
    with tempfile.TemporaryDirectory() as folder:
        for file in ("package.json", "shop.mjs"):
            shutil.copy(os.path.join(CLIENTS, file), folder)
        run(lab, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent", cwd=folder)
        judge("npm pg", json.loads(run(lab, "node", "shop.mjs", "npm", cwd=folder)), "1999")
    lab.finish()
done_testing()
