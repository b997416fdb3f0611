"""What an operator sees while 200 calls hang; D2: four workers share 10 000 due rows."""

from payflow_test import Lab, done_testing, is_, like, ok, poll


def many_hang(lab):
    rule = lab.rule("register", "hold", times=0)
    lab.sql("SELECT count(*) FROM generate_series(1, 200) i, payflow.create('hang' || i, 100, 'EUR')")
    lab.wait_held(rule, 200)
    row = lab.row("""SELECT sum(in_flight) AS n, sum(in_flight_payments) AS p, count(*) AS w
                     FROM payflow.workers WHERE datname = 'shop'""")
    is_((row.n, row.p, row.w), (200, 200, 4), "workers: four, 200 calls in flight, all in queue payments")
    row = lab.row("SELECT * FROM payflow.queue_stats WHERE queue = 'payments'")
    is_((row.due, row.leased, row.instances), (0, 200, 4), "queue_stats: all leased, none waiting, four work it")
    # a worker that looks for work holds places and a transaction for a moment
    row = poll(lambda: lab.row("SELECT * FROM payflow.provider_stats WHERE provider = 'sandbox' AND in_flight = 200"),
               what="200 calls in provider_stats")
    is_(row.breaker, "closed", "provider_stats: 200 in flight")
    said = [r.query for r in lab.sql("SELECT query FROM pg_stat_activity WHERE backend_type = 'payflow worker'")]
    ok(len(said) == 4 and any("calls in flight (payments" in text for text in said),
       "pg_stat_activity says what they do", said)
    is_(lab.one("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'payflow launcher'"), 1, "one launcher")
    lab.poll_sql("""SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'payflow%'
                    AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)""", what="no transaction among them")
    is_(lab.held(rule), 200, "A3: no transaction among them while all calls hang")
    lab.release(rule)
    lab.poll_sql("SELECT count(*) = 200 FROM payflow.payment_sessions WHERE status = 'registered'")
    stats = lab.stats()
    is_((stats["calls"]["register"], stats["payments"]), (200, 200), "each was called once")


def many_due(lab):
    lab.sql("SELECT count(*) FROM generate_series(1, 10000) i, payflow.create('due' || i, 100, 'EUR')")
    lab.poll_sql("SELECT count(*) = 10200 FROM payflow.payment_sessions WHERE status = 'registered'", deadline=120)
    stats = lab.stats()
    is_((stats["calls"]["register"], stats["payments"], stats["distinct_keys"]), (10200, 10200, 10200),
        "D2: four workers, 10 000 due: each handled once")
    busy = lab.one("SELECT count(*) FROM payflow.workers WHERE calls > 0")
    ok(busy >= 2, f"D2: the work was shared ({busy} of 4 workers called)")
    row = lab.row("SELECT calls, errors, latency_p50 IS NOT NULL AS timed FROM payflow.provider_stats")
    ok(row.calls >= 10200 and row.errors == 0 and row.timed, "provider_stats counts them", row)


with Lab(workers=4) as lab:
    many_hang(lab)
    many_due(lab)
    like(lab.one("SELECT string_agg(from_status || '>' || to_status, ' ') FROM payflow.state_machine"),
         "registered>completed", "state_machine")
    lab.finish()
done_testing()
