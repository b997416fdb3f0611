"""The server's own limits: no place for another worker, a standby that is missing."""

import os
import re

from life import Life
from payflow_test import Lab, done_testing, is_, like, ok, poll


def no_place(lab):
    """max_worker_processes is used up: the launcher says so once, and the workers come when there is a place.

    Protection: could_not_start() and the noted state in launcher.c.
    """
    life = Life(lab, 1)
    life.one_set()
    mark = lab.log_mark()
    life.sql("ALTER SYSTEM SET payflow.workers TO 3")
    life.sql("SELECT pg_reload_conf()")
    lab.wait_for_log('no background worker slot is free for database "shop"', mark)
    # It tries again, in pauses, and says nothing more.
    pids = life.pids()
    tries = lab.one("SELECT count(*) FROM payflow.workers WHERE state = 'starting'")
    is_((len(pids), tries), (2, 0), "as many as there is a place for; no slot of ours is lost")
    pay = lab.row("SELECT * FROM payflow.create('few', 1000, 'EUR')")
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "they work")

    # A second database has none, until the first one leaves it a place.
    life.sql("CREATE DATABASE second")
    other = lab.connect(dbname="second")
    lab.sql("CREATE EXTENSION payflow", conn=other)
    life.sql("ALTER SYSTEM SET payflow.databases TO shop, second")
    life.sql("SELECT pg_reload_conf()")
    lab.wait_for_log('no background worker slot is free for database "second"', mark)
    is_(life.pids(), pids, "those that run stay")
    said = life.said(mark)
    is_(sorted(line for line in said if "no background" in line),
        ['LOG:  no background worker slot is free for database "second"',
         'LOG:  no background worker slot is free for database "shop"'], "the log says it once a database")
    is_({line for line in said if line.startswith("HINT")}, {"HINT:  Raise max_worker_processes."}, "with a hint")
    life.sql("ALTER SYSTEM SET payflow.workers TO 1")
    life.sql("SELECT pg_reload_conf()")
    life.one_set(database="second")
    life.one_set()
    ok(True, "a place is free: the worker comes")
    other.close()
    life.sql("ALTER SYSTEM RESET payflow.databases")
    life.sql("ALTER SYSTEM RESET payflow.workers")
    life.sql("SELECT pg_reload_conf()")
    life.none("second")
    life.one_set()


def missing_standby(lab):
    """A worker waits at its commit for a standby that is missing: a fast shutdown ends it.

    Protection: die() as the handler of SIGTERM, which the wait for a standby heeds.
    """
    hold = lab.rule("register", "hold")
    pay = lab.row("SELECT * FROM payflow.create('standby', 1000, 'EUR')")
    lab.wait_held(hold)
    lab.sql("ALTER SYSTEM SET synchronous_standby_names TO 'missing'")
    lab.sql("SELECT pg_reload_conf()")
    lab.poll_sql("SELECT current_setting('synchronous_standby_names') = 'missing'")
    conn = lab.connect(dbname="postgres")
    poll(lambda: lab.release(hold) is None and lab.one("""SELECT wait_event = 'SyncRep' FROM pg_stat_activity
        WHERE backend_type = 'payflow worker'""", conn=conn), what="the worker to wait for the standby")
    conn.close()
    lab.stop("fast")
    ok(not os.path.exists(os.path.join(lab.dir, "data", "postmaster.pid")), "a fast shutdown ends")
    auto = os.path.join(lab.dir, "data", "postgresql.auto.conf")
    with open(auto, encoding="utf-8") as file:
        text = file.read()
    with open(auto, "w", encoding="utf-8") as file:
        file.write(re.sub("synchronous_standby_names.*", "", text))
    lab.start()
    row = lab.poll_session(pay.session_id, "registered")
    like(row.status, "registered", "and what it had written is there")
    is_(lab.stats(order="standby")["payments"], 1, "one payment")


# the launcher of logical replication, ours, and two workers
with Lab(workers=1, conf={"shared_preload_libraries": "payflow", "max_worker_processes": "4",
                          "payflow.poll_interval": "100ms"}) as lab:
    no_place(lab)
    missing_standby(lab)
    lab.finish()
done_testing()
