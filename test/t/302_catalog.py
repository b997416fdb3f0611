"""Servers, mappings and roles that change or go while calls to them hang: the answers are kept, the others go on."""

from life import Life
from payflow_test import API_KEY, Lab, done_testing, is_, ok, poll

WORKERS = 2


def create(lab, order, provider="other"):
    return str(lab.one("SELECT session_id FROM payflow.create(%s, 1000, 'EUR', provider => %s)", [order, provider]))


def others_go_on(life, name):
    lab = life.lab
    session = create(lab, f"beside {name}", "sandbox")
    is_(lab.poll_session(session, "registered").status, "registered", f"{name}: another provider goes on")


def completes(lab, session):
    """Paid in the end."""
    lab.act(lab.session(session).provider_payment_id, "pay")

    def ended():
        lab.sql("""UPDATE payflow.payment_sessions SET next_action_at = now()
                   WHERE session_id = %s AND next_action_at > now() AND lease_until IS NULL""", [session])
        return lab.session(session).status == "completed"

    poll(ended, what="the end of a payment")
    return lab.session(session).status


def gone_and_back(life, name, go, back):
    """A server goes while a call to it is held: it does not wait, the answer is applied, and it goes on when it is back.

    Protections: no lock on the server during a call; check_providers(); the alert instead of a give-up.
    """
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    hold = lab.rule("register", "hold", order=name)
    session = create(lab, name)
    lab.wait_held(hold)
    go()
    is_(lab.held(hold), 1, f"{name}: ends while the call is held")
    others_go_on(life, name)
    lab.release(hold)
    is_(lab.poll_session(session, "registered").status, "registered", f"{name}: its answer is applied")
    lab.ring(session)
    poll(lambda: "provider_missing:other" in lab.alerts(), what="an alert")
    ok(True, f"{name}: an alert says that payments name it")
    back()
    is_(completes(lab, session), "completed", f"{name}: back again, it is paid in the end")
    is_(lab.stats(order=name)["payments"], 1, f"{name}: by one payment")
    is_((life.pids(), life.said(mark)), (pids, []), f"{name}: the workers stay, the log says nothing")


def roles(life):
    """The owner of server and mapping is renamed, then dropped, while a call is held."""
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    lab.sql("CREATE ROLE keeper")
    lab.sql("GRANT USAGE ON FOREIGN DATA WRAPPER payflow_sandbox TO keeper")
    lab.sql(f"CREATE SERVER kept FOREIGN DATA WRAPPER payflow_sandbox OPTIONS (endpoint '{lab.url}')")
    lab.sql("ALTER SERVER kept OWNER TO keeper")
    lab.sql(f"CREATE USER MAPPING FOR keeper SERVER kept OPTIONS (api_key '{API_KEY}')")
    hold = lab.rule("register", "hold", order="kept")
    session = create(lab, "kept", "kept")
    lab.wait_held(hold)
    lab.sql("ALTER ROLE keeper RENAME TO warden")
    renamed = create(lab, "renamed role", "kept")
    is_(lab.poll_session(renamed, "registered").status, "registered", "its role renamed: it goes on")
    lab.sql("REASSIGN OWNED BY warden TO CURRENT_USER")
    lab.sql("DROP OWNED BY warden")
    lab.sql("DROP USER MAPPING IF EXISTS FOR warden SERVER kept")
    lab.sql("DROP ROLE warden")
    is_(lab.held(hold), 1, "its role dropped: ends while the call is held")
    others_go_on(life, "its role dropped")
    lab.release(hold)
    is_(lab.poll_session(session, "registered").status, "registered", "its role dropped: its answer is applied")
    lab.ring(session)
    poll(lambda: "setting:kept" in lab.alerts(), what="an alert")
    ok(True, "its role dropped: without a secret nothing is called, with an alert")
    lab.sql(f"CREATE USER MAPPING FOR CURRENT_USER SERVER kept OPTIONS (api_key '{API_KEY}')")
    is_(completes(lab, session), "completed", "a new mapping: it is paid in the end")
    is_((life.pids(), life.said(mark)), (pids, []), "the workers stay, the log says nothing")


def options(life):
    """Options that change while calls are held count from the next call on, and no place is lost or doubled."""
    lab, pids, mark = life.lab, life.pids(), life.lab.log_mark()
    hold = lab.rule("register", "hold", times=0)
    sessions = [create(lab, f"options {i}") for i in range(5)]
    lab.wait_held(hold, 5)
    lab.sql("""ALTER SERVER other OPTIONS (ADD max_in_flight '1', ADD timeout '20 s', ADD breaker_failures '1',
               ADD breaker_pause '1 s')""")
    more = [create(lab, f"options more {i}") for i in range(3)]
    lab.all_looked()
    is_(lab.held(hold), 5, "max_in_flight lowered: no more calls while those from before run")
    lab.sql("ALTER SERVER other OPTIONS (SET max_in_flight '7')")
    lab.wait_held(hold, 7)
    lab.all_looked()
    is_(lab.held(hold), 7, "raised: as many as there is room for")
    lab.sql("ALTER USER MAPPING FOR CURRENT_USER SERVER other OPTIONS (SET api_key 'another')")
    lab.settings(api_keys=["another", API_KEY])
    lab.release(hold)
    for session in sessions + more:
        lab.poll_session(session, "registered")
    is_({lab.stats(reference=session)["payments"] for session in sessions + more}, {1}, "each has one payment")
    poll(lambda: lab.one("SELECT in_flight = 0 FROM payflow.provider_stats WHERE provider = 'other'"), what="no call")
    ok(True, "and all places are given back")
    lab.sql("ALTER SERVER other OPTIONS (DROP max_in_flight, DROP timeout, DROP breaker_failures, DROP breaker_pause)")
    lab.sql("ALTER USER MAPPING FOR CURRENT_USER SERVER other OPTIONS (SET api_key %s)", [API_KEY])
    is_((life.pids(), life.said(mark)), (pids, []), "the workers stay, the log says nothing")


with Lab(workers=WORKERS, conf={"shared_preload_libraries": "payflow", "payflow.poll_interval": "100ms"}) as lab:
    life = Life(lab, WORKERS)
    life.one_set()
    lab.add_server("other")
    gone_and_back(life, "dropped", lambda: lab.sql("DROP SERVER other CASCADE"), lambda: lab.add_server("other"))
    gone_and_back(life, "renamed", lambda: lab.sql("ALTER SERVER other RENAME TO another"),
                  lambda: lab.sql("ALTER SERVER another RENAME TO other"))
    roles(life)
    options(life)
    lab.finish()
done_testing()
