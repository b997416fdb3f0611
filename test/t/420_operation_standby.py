"""A hot standby takes over while captures, cancels and refunds are on their way.  A10, D3.

What the old server has sent may be missing on the new one: there each command
that counts as never sent is asked about before it is sent.

Protection: timeline.c, which marks them as possibly sent; that a claim leaves
out what could not be marked yet; that cancel() compares the timelines itself.
"""

from payflow_test import Lab, done_testing, is_

CALLS = {"capture": "capture", "reverse": "cancel", "refund": "refund"}
COMMANDS = {
    "capture": "SELECT FROM payflow.capture(%s::uuid)",
    "reverse": "SELECT FROM payflow.cancel(%s::uuid)",
    "refund": "SELECT FROM payflow.refund(%s::uuid, 300)",
}


class Operation:
    """A command that was given and whose alarm does not ring yet."""

    def __init__(self, lab, kind, order):
        self.lab, self.kind, self.order = lab, kind, order
        self.session = lab.one("SELECT session_id FROM payflow.create(%s, 1000, 'EUR', capture => %s)",
                               [order, "automatic" if kind == "refund" else "manual"])
        lab.poll_session(self.session, "registered")
        lab.act(self.session, "pay" if kind == "refund" else "authorize")
        lab.ring(self.session)
        lab.poll_session(self.session, "completed" if kind == "refund" else "authorized")
        conn = lab.connect(autocommit=False)
        lab.sql(COMMANDS[kind], [self.session], conn=conn)
        self.id = lab.one("""UPDATE payflow.operations SET next_action_at = now() + interval '1 hour'
                             WHERE session_id = %s RETURNING operation_id""", [self.session], conn=conn)
        lab.sql("""UPDATE payflow.payment_sessions SET next_action_at = now() + interval '1 hour'
                   WHERE session_id = %s AND next_action_at IS NOT NULL""", [self.session], conn=conn)
        conn.commit()
        conn.close()

    def ring(self):
        self.lab.sql("""UPDATE payflow.operations SET next_action_at = now()
                        WHERE operation_id = %s AND status IN ('pending', 'sent', 'unknown')""", [self.id])

    def row(self, conn=None):
        return self.lab.row("SELECT * FROM payflow.operations WHERE operation_id = %s", [self.id], conn=conn)

    def calls(self):
        """What the provider was asked and told of it since the payment was made, in order."""
        return [c for c in self.lab.requests(self.session) if c["operation"] in ("get", CALLS[self.kind])]

    def settled(self):
        self.lab.poll_sql("SELECT status IN ('succeeded', 'failed') FROM payflow.operations WHERE operation_id = %s",
                          [self.id], what=f"{self.order} to be settled")
        return self.row()

    def outcome(self):
        """The money on both sides, and the keys that were used."""
        payment, = self.lab.payments(self.order)
        entries = [(e.entry_type, e.amount) for e in self.lab.sql(
            "SELECT * FROM payflow.accounting_entries WHERE session_id = %s ORDER BY entry_id", [self.session])]
        keys = {(c["key"], c["body_sha256"]) for c in self.lab.requests(self.session, CALLS[self.kind])}
        return payment["status"], payment["captured"], [r["amount"] for r in payment["refunds"]], entries, len(keys)


WANTED = {
    "capture": ("paid", 1000, [], [("payment_received", 1000)], 1),
    "reverse": ("canceled", 0, [], [], 1),
    "refund": ("paid", 1000, [300], [("payment_received", 1000), ("refund_sent", 300)], 1),
}


def created_and_canceled(lab, order):
    """In one transaction, so that no worker has seen it; returns its status at the end."""
    conn = lab.connect(autocommit=False)
    session = lab.one("SELECT session_id FROM payflow.create(%s, 1000, 'EUR')", [order], conn=conn)
    status = lab.one("SELECT status FROM payflow.cancel(%s::uuid)", [session], conn=conn)
    conn.commit()
    conn.close()
    return status


def freed_within_a_cycle(lab):
    """The one who held it commits after a cycle has marked all others, and before it looks for work; it is due now."""
    session = lab.one("SELECT session_id FROM payflow.create('in that cycle', 1000, 'EUR')")
    lab.poll_session(session, "registered")
    rule = lab.rule("get", "hold", order="in that cycle")
    lab.ring(session)
    lab.wait_held(rule)
    with lab.gate("payflow.journal", "INSERT", f"NEW.session_id = '{session}'") as gate:
        lab.release(rule)
        gate.wait_held()
        lab.sql("COMMIT PREPARED 'holder'")


def promotion(lab, standby):
    sent = [Operation(lab, kind, f"sent, not replicated: {kind}") for kind in CALLS]
    unsent = [Operation(lab, kind, f"never sent: {kind}") for kind in CALLS]
    held = Operation(lab, "refund", "held by a prepared transaction")
    conn = lab.connect(autocommit=False)
    lab.sql("UPDATE payflow.operations SET next_action_at = now() WHERE operation_id = %s", [held.id], conn=conn)
    lab.sql("PREPARE TRANSACTION 'holder'", conn=conn)
    conn.commit()
    conn.close()
    lab.caught_up(standby)
    lab.cut_off(standby)

    for operation in sent:
        operation.ring()
        operation.settled()
        is_(operation.outcome(), WANTED[operation.kind], f"{operation.order}: done on the old server")
        is_(operation.row(standby).status, "pending", "the standby does not know")
    standby.close()
    known = {operation.id: len(operation.calls()) for operation in [*sent, *unsent, held]}

    lab.promote()
    lab.poll_sql("SELECT count(*) = 1 FROM payflow.workers WHERE state <> 'starting'")
    lab.poll_sql("SELECT count(*) = 6 FROM payflow.operations WHERE status <> 'pending'")
    is_(lab.one("SELECT bool_and(status = 'sent' AND first_sent_at = created_at AND ask_due) FROM payflow.operations WHERE operation_id <> %s",
                [held.id]), True, "all that were pending are marked as possibly sent, to be asked about")
    for operation in [*sent, *unsent]:
        operation.ring()
    for operation in sent:
        operation.settled()
        is_(operation.outcome(), WANTED[operation.kind], f"{operation.order}: found there, and booked; not sent twice")
        is_([c["operation"] for c in operation.calls()[known[operation.id]:]], ["get"], "it was asked for, no more")
    for operation in unsent:
        operation.settled()
        is_(operation.outcome(), WANTED[operation.kind], f"{operation.order}: sent now")
        is_([c["operation"] for c in operation.calls()[known[operation.id]:]][:2], ["get", CALLS[operation.kind]],
            "it was asked for before it was sent")

    # one could not be marked: nothing that counts as never sent is believed
    is_((held.row().status, lab.one("SELECT timeline FROM payflow.server_timeline")), ("pending", 1),
        "while a mark is missing the new timeline is not noted")
    is_(created_and_canceled(lab, "canceled before it is noted"), "canceling",
        "cancel() does not believe either that Register was never sent")
    freed_within_a_cycle(lab)
    lab.poll_sql("SELECT timeline = 2 FROM payflow.server_timeline")
    held.settled()
    is_(held.outcome(), WANTED["refund"], "when it is free it goes on")
    is_([c["operation"] for c in held.calls()[known[held.id]:]], ["get", "refund"], "asked for first, too")

    # then what is new is believed again
    is_(created_and_canceled(lab, "canceled when it is noted"), "canceled", "canceled at once, without a call")
    again = Operation(lab, "refund", "new refund")
    n = len(again.calls())
    again.ring()
    again.settled()
    is_([c["operation"] for c in again.calls()[n:]], ["refund"], "a new refund is sent without asking")


with Lab(conf={"fsync": "off"}) as lab:
    lab.option(poll_intervals="1 hour", breaker_failures=1000)
    promotion(lab, lab.standby())
    is_(lab.one("SELECT count(*) FROM payflow.operations WHERE next_action_at < now() - interval '1 minute'"), 0, "nothing is stuck")
    lab.finish()
done_testing()
