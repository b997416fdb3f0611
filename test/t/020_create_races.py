"""A1: many callers, one order, at a barrier."""

from payflow_test import Lab, done_testing, is_, ok, threads_at_barrier

CONNECTIONS = 32


def race(lab, order, isolation, amounts):
    """One create a connection, all at once; returns the rows and the errors."""
    def prepare(i):
        conn = lab.connect(autocommit=False)
        lab.sql(f"SET default_transaction_isolation = '{isolation}'", conn=conn)
        conn.commit()
        lab.sql("SELECT 1", conn=conn)      # in REPEATABLE READ: the snapshot, before the race
        return conn

    def create(i, conn):
        row = lab.row("SELECT * FROM payflow.create(%s, %s, 'EUR')", [order, amounts[i % len(amounts)]], conn=conn)
        conn.commit()
        return row

    results = threads_at_barrier(CONNECTIONS, create, prepare)
    return ([r for r in results if not isinstance(r, BaseException)],
            [r for r in results if isinstance(r, BaseException)])


def one_payment(lab, order, sessions):
    is_(lab.one("SELECT count(*) FROM payflow.find(%s)", [order]), 1, f"{order}: one session")
    lab.poll_session(sessions.pop(), "registered")
    stats = lab.stats(order=order)
    is_((stats["calls"]["register"], stats["payments"], stats["distinct_keys"]), (1, 1, 1),
        f"{order}: one Register, one payment, one key at the provider")


with Lab(workers=2) as lab:
    for isolation in ("read committed", "repeatable read", "serializable"):
        order = f"A1 {isolation}"
        rows, errors = race(lab, order, isolation, [2500])
        sessions = {row.session_id for row in rows}
        is_(len(sessions), 1, f"A1 {isolation}: all that return have the same session")
        is_(sum(not row.replayed for row in rows), 1, "one of them made it")
        codes = {error.pgcode for error in errors}
        if isolation == "read committed":
            is_(codes, set(), "and all return")
        else:
            ok(codes <= {"40001"}, "A11: the others are told to retry, by 40001 and nothing else", codes)
        one_payment(lab, order, sessions)

    order = "A5"
    rows, errors = race(lab, order, "read committed", [100, 200])
    is_(len({row.session_id for row in rows}), 1, "A5: two amounts at once: one session")
    is_({(error.pgcode, error.diag.message_detail) for error in errors}, {("PT409", "parameters_differ")},
        "the losers of the other amount get parameters_differ")
    is_((len(rows), len(errors)), (CONNECTIONS // 2, CONNECTIONS // 2), "half each")
    one_payment(lab, order, {row.session_id for row in rows})
    lab.finish()
done_testing()
