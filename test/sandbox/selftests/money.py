"""Faults of the calls that move money: capture, cancel, refund.

What matters is whether the money moved, and that a repeat with the same key
never moves it again.
"""

import http.client
import time

from lab import CLOSED, Later, Sandbox, failure, ok, same, test

BODIES = {
    'capture': {'amount': 300, 'receipt': {'items': [1]}},
    'cancel': {},
    'refund': {'amount': 300, 'reference': 'r1', 'receipt': {'items': [1]}},
}


class Command:
    """A command about a payment of its own that is ready for it."""

    number = 0

    def __init__(self, s, operation):
        Command.number += 1
        self.s = s
        self.operation = operation
        self.name = f'{operation}-{Command.number}'
        payment = s.register(self.name, self.name, capture='manual').json
        s.act(self.name, 'pay' if operation == 'refund' else 'authorize')
        self.path = f'/v1/payments/{payment["id"]}/' + \
            ('refunds' if operation == 'refund' else operation)

    def send(self, **options):
        return self.s.post(self.path, BODIES[self.operation], key=self.name, **options)

    def rule(self, action, **more):
        return self.s.rule(action, self.operation, order=self.name, **more)

    def done(self):
        """How often it was done."""
        payment = self.s.payments(order=self.name)[0]
        if self.operation == 'capture':
            return payment['captured'] / 300
        if self.operation == 'cancel':
            return int(payment['status'] == 'canceled')
        same(payment['refunded'], 300 * len(payment['refunds']), 'total and list of refunds agree')
        return len(payment['refunds'])

    def is_right(self, answer):
        if answer.status != 200:
            return False
        if self.operation == 'refund':
            return (answer.json['reference'], answer.json['amount'], answer.json['status']) == \
                ('r1', 300, 'succeeded')
        return answer.json['reference'] == self.name and \
            answer.json['status'] == ('paid' if self.operation == 'capture' else 'canceled')

    def repeats(self, replayed, what):
        """The same call again, now without a fault."""
        answer = self.send()
        ok(self.is_right(answer), f'{what}: a repeat gets the right answer', answer.body[:300])
        same(answer.headers['Idempotent-Replayed'], 'true' if replayed else None,
             f'{what}: from before or not')
        same(self.done(), 1, f'{what}: done once')


def undone(s, operation):
    """Faults that keep the work from being done."""
    for action, status, more in (
            ('notfound', 404, {}), ('decline', 402, {}), ('status', 503, {'value': 503}),
            ('status', 429, {'value': 429, 'retry_after': 3}), ('answer', 200, {'value': '<html>'}),
            ('answer', 500, {'value': {'id': 'x'}, 'status': 500})):
        what = f'{operation}, {action} {status}'
        command = Command(s, operation)
        command.rule(action, **more)
        answer = command.send()
        same(answer.status, status, what)
        if status == 429:
            same(answer.headers['Retry-After'], '3', what + ': Retry-After')
        same(command.done(), 0, what + ': not done')
        command.repeats(False, what)
    for action in ('drop_before', 'reset'):
        what = f'{operation}, {action}'
        command = Command(s, operation)
        command.rule(action)
        error = failure(command.send)
        ok(isinstance(error, ConnectionResetError if action == 'reset' else CLOSED) and
           isinstance(error, CLOSED) == (action == 'drop_before'), what, repr(error))
        same(command.done(), 0, what + ': not done')
        command.repeats(False, what)


def done(s, operation):
    """Faults of the answer only."""
    for action, more, fits in (
            ('drop_after', {}, lambda got: isinstance(got, CLOSED)),
            ('garbage', {}, lambda got: got.status == 200 and b'\0' in got.body),
            ('half_body', {}, lambda got: isinstance(got, http.client.IncompleteRead)),
            ('huge_body', {'value': 100000}, lambda got: len(got.body) == 100000)):
        what = f'{operation}, {action}'
        command = Command(s, operation)
        command.rule(action, **more)
        got = failure(command.send)
        ok(fits(got), what, repr(got)[:200])
        same(command.done(), 1, what + ': done')
        command.repeats(True, what)

    command = Command(s, operation)
    rule = command.rule('stall_body')
    call = Later(command.send)
    s.held(rule)
    ok(call.running, f'{operation}, stall_body: no answer')
    same(command.done(), 1, f'{operation}, stall_body: done')
    s.release(rule)
    ok(command.is_right(call.wait()), f'{operation}, stall_body: the rest comes')
    command.repeats(True, f'{operation}, stall_body')

    # an answer that is kept under the key, as a stored failure is
    for action, more in (('status', {'value': 500}),
                         ('answer', {'value': {'x': 1}, 'status': 503})):
        what = f'{operation}, {action}, done'
        command = Command(s, operation)
        command.rule(action, done=True, **more)
        first = command.send()
        same((first.status >= 500, command.done()), (True, 1), what)
        again = command.send()
        same((again.status, again.body, again.headers['Idempotent-Replayed']),
             (first.status, first.body, 'true'), what + ': kept')
        same(command.done(), 1, what + ': once')


def waiting(s, operation):
    command = Command(s, operation)
    rule = command.rule('hold')
    call = Later(command.send)
    s.held(rule)
    same(command.done(), 0, f'{operation}, hold: not done')
    answer = command.send()
    same((answer.status, answer.code), (409, 'key_in_use'), f'{operation}, hold: the key is in use')
    s.release(rule)
    same(command.done(), 1, f'{operation}, hold: done when released')
    ok(command.is_right(call.wait()), f'{operation}, hold: then answered')
    command.repeats(True, f'{operation}, hold')

    command = Command(s, operation)
    rule = command.rule('hold')
    gone = failure(command.send, timeout=0.01)
    ok(isinstance(gone, TimeoutError), f'{operation}, hold: a client that gives up', repr(gone))
    s.held(rule)
    s.release(rule)
    command.repeats(True, f'{operation}, hold and gone')

    command = Command(s, operation)
    command.rule('delay', value=50)
    begun = time.monotonic()
    ok(command.is_right(command.send()), f'{operation}, delay')
    ok(time.monotonic() - begun >= 0.045, f'{operation}, delay: takes its time')
    command.repeats(True, f'{operation}, delay')


def killed(s, operation, log):
    """Faults that run a command, which writes into the log."""
    command = Command(s, operation)
    command.rule('kill', value='before')
    ok(isinstance(failure(command.send), CLOSED), f'{operation}, kill before')
    same(command.done(), 0, f'{operation}, kill before: not done')
    command.repeats(False, f'{operation}, kill before')
    command = Command(s, operation)
    command.rule('kill', value='after', target='worker')
    ok(command.is_right(command.send()), f'{operation}, kill after')
    same(open(log).read(), 's\nw\n', f'{operation}, kill: each command once')
    command.repeats(True, f'{operation}, kill after')
    open(log, 'w').close()


@test
def money_undone(s):
    for operation in BODIES:
        undone(s, operation)


@test
def money_done(s):
    for operation in BODIES:
        done(s, operation)


@test
def money_waiting(s):
    for operation in BODIES:
        waiting(s, operation)


@test
def money_killed(s):
    other = Sandbox('--kill-server', f'echo s >> {s.dir}/money', '--kill-worker',
                    f'echo w >> {s.dir}/money')
    try:
        for operation in BODIES:
            killed(other, operation, s.dir + '/money')
    finally:
        same(other.stop(), 0, 'ended by SIGTERM')


@test
def money_keys(s):
    for operation, other in (('capture', {'amount': 299}), ('cancel', {'amount': 1}),
                             ('refund', {'amount': 300, 'reference': 'r2'})):
        command = Command(s, operation)
        ok(command.is_right(command.send()), f'{operation}: done')
        answer = s.post(command.path, other, key=command.name)
        same((answer.status, answer.code), (422, 'key_reused'), f'{operation}: another body')
        same(command.done(), 1, f'{operation}: done once')
    command = Command(s, 'refund')
    same([s.post(command.path, BODIES['refund']).status for _ in range(2)], [200, 200],
         'one reference can have many refunds: only the key protects')
    same(command.done(), 2, 'both are made')
    command = Command(s, 'capture')
    s.act(command.name, 'decline')
    answer = [command.send() for _ in range(2)]
    same([(a.status, a.code, a.headers['Idempotent-Replayed']) for a in answer],
         [(409, 'not_capturable', None), (409, 'not_capturable', 'true')], 'a refusal is kept')
