"""What the tests of the workers' life share: counting workers, hanging calls, reading the log."""

import re

import psycopg2

from payflow_test import DATABASE, is_, ok, poll

# What is ordinary in the log of the background processes.
ENDED = r'FATAL:  terminating background worker "payflow (worker|launcher)" due to administrator command'


# the test's own session must not feel the settings that it makes for others
OWN_SETTINGS = ("-c default_transaction_read_only=off -c statement_timeout=0 -c lock_timeout=0 "
                "-c session_replication_role=origin -c default_transaction_isolation=read\\ committed "
                "-c search_path=public -c row_security=on")


class Life:
    """A lab seen from the database postgres, which no worker works for."""

    def __init__(self, lab, workers):
        self.lab = lab
        self.workers = workers
        self.outside = lab.connect(dbname="postgres", options=OWN_SETTINGS)
        self.most = 0

    def after_crash(self, launcher):
        """Wait until the server is back, which a launcher shows that is not the one from before."""
        def back():
            try:
                self.outside = self.lab.connect(dbname="postgres", options=OWN_SETTINGS)
                return self.launcher() not in (None, launcher)
            except psycopg2.Error:
                return False

        poll(back, 60, "the server to come back")
        self.lab.disconnect()

    def leave(self):
        """Close our own connection to the database."""
        self.lab.sql("SELECT 1")
        self.lab._own_connection().close()
        self.lab.disconnect()

    def sql(self, query, args=None):
        return self.lab.sql(query, args, conn=self.outside)

    def one(self, query, args=None):
        return self.lab.one(query, args, conn=self.outside)

    def pids(self, database=DATABASE):
        """The processes of a database's workers, as the server lists them."""
        return [row.pid for row in self.sql("""SELECT pid FROM pg_stat_activity
            WHERE backend_type = 'payflow worker' AND datname = %s ORDER BY pid""", [database])]

    def launcher(self):
        return self.one("SELECT pid FROM pg_stat_activity WHERE backend_type = 'payflow launcher'")

    def new_launcher(self, than):
        """Wait for another launcher."""
        return poll(lambda: self.launcher() not in (None, than) and self.launcher(), what="another launcher")

    def one_set(self, than=(), n=None, database=DATABASE):
        """Wait for exactly n workers, all connected and none of `than`; returns their pids."""
        n = self.workers if n is None else n

        def complete():
            pids = self.pids(database)
            self.most = max(self.most, len(pids))
            if len(pids) != n or set(pids) & set(than):
                return None
            rows = self.lab.sql("SELECT pid, state FROM payflow.workers WHERE datname = %s ORDER BY pid", [database])
            connected = [row.pid for row in rows if row.state in ("idle", "working")]
            return (pids,) if connected == pids and len(rows) == n else None

        return poll(complete, what=f"{n} workers of {database}, all connected")[0]

    def comes_back(self, what, than):
        """Exactly one set of other workers, unaided."""
        self.most = 0
        try:
            pids = self.one_set(than=than)
        except AssertionError as error:
            ok(False, f"{what}: one set of workers is back", error)
            raise
        ok(self.most <= self.workers, f"{what}: one set of workers is back, never more", self.most)
        return pids

    def fresh(self):
        """Other workers, and a launcher that remembers no failures: after many ends in a row it pauses longer and longer."""
        pids = self.pids()
        self.sql("ALTER SYSTEM SET payflow.databases TO ''")
        self.sql("SELECT pg_reload_conf()")
        self.none()
        self.sql("ALTER SYSTEM RESET payflow.databases")
        self.sql("SELECT pg_reload_conf()")
        return self.one_set(than=pids)

    def none(self, database=DATABASE):
        poll(lambda: not self.pids(database), what=f"no worker of {database}")

    def said(self, since, process="payflow (worker|launcher)"):
        """What the background processes have logged: level and text, without time and pid."""
        found = []
        for line in self.lab.log(since).splitlines():
            match = re.match(rf"\S+ \S+ \S+ \[\d+\] {process} (.*)$", line)
            if match:
                found.append(match.group(match.lastindex))
        return found

    def trouble(self, since):
        """The same, but for the end of those that were asked to end, whatever statement they were in."""
        return [line for line in self.said(since) if not re.search(ENDED + "|^CONTEXT:  SQL statement", line)]

    def ended(self, since):
        """How often the log says that a worker was ended."""
        return sum(re.search(ENDED, line) is not None for line in self.said(since, "payflow worker"))


class Hanging:
    """Sessions whose calls hang for as long as the rule is there."""

    def __init__(self, life, n, order="hangs"):
        self.life = life
        self.lab = life.lab
        self.n = n
        self.lab.option(breaker_failures=1000000)
        self.rule = self.lab.rule("*", "hold", times=0)
        self.sessions = [str(row.session_id) for row in self.lab.sql("""
            SELECT c.session_id FROM generate_series(1, %s) i,
                LATERAL payflow.create(%s || i, 1000, 'EUR') c""", [n, order + " "])]
        self.lab.wait_held(self.rule, n)
        poll(lambda: self.in_flight() == n, what=f"{n} calls in flight")

    def in_flight(self):
        return self.lab.one("SELECT sum(in_flight)::int FROM payflow.workers WHERE datname = %s", [DATABASE]) or 0

    def again(self):
        """Let the present workers take them all, which an earlier set had.

        Their Register is refused, for the first one is still held, and then they hang in the question for it.
        """
        held = self.lab.held(self.rule)
        self.lab.end_lease(*self.sessions)
        poll(lambda: self.lab.ring(*self.sessions) and self.lab.held(self.rule) >= held + self.n
             and self.in_flight() == self.n, what=f"{self.n} calls to hang again")

    def still(self):
        """All calls are held: nothing has waited for an answer."""
        return self.lab.held(self.rule) >= self.n

    def ends(self, what):
        """Said after a statement: it did not wait for the provider."""
        ok(self.still(), f"{what}: ends while the calls are still held")

    def untouched(self, what, pids):
        """The same workers have the same calls in flight."""
        self.ends(what)
        is_((self.life.pids(), self.in_flight()), (pids, self.n), f"{what}: the workers keep their calls")

    def let_go(self):
        """Release all, and see each registered once."""
        lab = self.lab
        lab.release(self.rule)
        lab.end_lease(*self.sessions)

        def registered():
            lab.ring(*[row.session_id for row in lab.sql("""SELECT session_id FROM payflow.payment_sessions
                WHERE session_id = ANY (%s::uuid[]) AND status <> 'registered' AND lease_until IS NULL""",
                [self.sessions])])
            lab.end_lease(*[row.session_id for row in lab.sql("""SELECT session_id FROM payflow.payment_sessions
                WHERE session_id = ANY (%s::uuid[]) AND status <> 'registered' AND lease_until IS NOT NULL""",
                [self.sessions])])
            return lab.one("""SELECT count(*) = %s FROM payflow.payment_sessions
                WHERE session_id = ANY (%s::uuid[]) AND status = 'registered'""", [self.n, self.sessions])

        poll(registered, what="all to be registered")
        payments = lab.control("GET", "/payments")
        mine = [payment["reference"] for payment in payments if payment["reference"] in set(self.sessions)]
        is_((len(mine), len(set(mine))), (self.n, self.n), f"all {self.n} are registered, by one payment each")
        lab.sql("""UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 day'
                   WHERE session_id = ANY (%s::uuid[])""", [self.sessions])  # not to be counted among others
