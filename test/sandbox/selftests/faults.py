"""Rules: what goes wrong with which calls."""

import http.client
import json
import os
import socket
import time

from lab import CLOSED, DEADLINE, Later, Sandbox, failure, ok, same, test, until


@test
def rule_matching(s):
    first = s.rule('status', 'register', reference='s1', value=500)
    second = s.rule('status', '*', order='o1', value=503, times=2)
    third = s.rule('status', 'get', value=502, times=0)
    same(s.register('s2', 'o2').status, 200, 'no rule fits')
    same([s.register('s1', 'o1').status for _ in range(4)], [500, 503, 503, 200],
         'in order of creation, each so often')
    payment = s.payments(order='o1')[0]['id']
    same([s.get('/v1/payments/' + payment).status for _ in range(3)], [502] * 3, 'for ever')
    same([s.control('GET', f'/rules/{r}')['hits'] for r in (first, second, third)], [1, 2, 3],
         'hits')
    s.release(third)
    same(s.get('/v1/payments/' + payment).status, 200, 'released: ended')
    s.rule('status', 'find', reference='s1', value=503)
    same(s.get('/v1/payments?reference=s2').status, 200, 'find of another reference')
    same(s.get('/v1/payments?reference=s1').status, 503, 'find matches by the query')
    s.rule('status', 'find', order='o1', value=503)
    same(s.get('/v1/payments?reference=s1').status, 503, 'and by the order it came with')
    s.rule('status', 'refund', reference='s1', order='other', value=503)
    same(s.post(f'/v1/payments/{payment}/refunds').status, 409, 'all that is given must match')
    s.rule('status', 'report', value=503)
    same(s.get('/v1/report?day=2026-01-01').status, 503, 'report')
    s.act('s1', 'pay')
    refund = s.post(f'/v1/payments/{payment}/refunds', {'amount': 1}).json['id']
    s.rule('status', 'get', reference='s1', value=503)
    same(s.get('/v1/refunds/' + refund).status, 503, "a refund's reference is its payment's")
    s.rule('status', '*', reference='*', order='*', value=503)
    same(s.register('s7', 'o7').status, 503, 'stars')
    s.rule('status', 'register', value=503)
    same(len(s.control('GET', '/rules')), 10, 'GET /rules')
    s.control('DELETE', '/rules')
    same(s.control('GET', '/rules'), [], 'all forgotten')
    same(s.register('s8', 'o8').status, 200, 'and without effect')
    s.control('GET', f'/rules/{first}', None, 404)
    for bad in ({'action': 'nonsense'}, {}, {'action': 'hold', 'operation': 'x'},
                {'action': 'delay'}, {'action': 'delay', 'value': -1}, {'action': 'status'},
                {'action': 'status', 'value': 42}, {'action': 'answer'},
                {'action': 'hold', 'times': -1}, {'action': 'hold', 'when': 1},
                {'action': 'kill', 'value': 'before', 'target': 'x'},
                {'action': 'kill', 'value': 'never'}, {'action': 'hold', 'reference': 5}):
        s.control('POST', '/rules', bad, 400)
    ok(True, 'malformed rules are refused')


@test
def rule_answers(s):
    s.rule('status', 'register', value=429, retry_after=7)
    answer = s.register('s1', 'o1', key='k')
    same((answer.status, answer.code, answer.headers['Retry-After']), (429, 'rate_limited', '7'),
         'status with retry_after')
    same(s.stats()['payments'], 0, 'the work was not done')
    same(s.register('s1', 'o1', key='k').status, 200, 'and the key is free')
    s.rule('status', 'register', value=500, done=True, code='boom')
    answer = s.register('s2', 'o2', key='k2')
    same((answer.status, answer.code), (500, 'boom'), 'status, done')
    again = s.register('s2', 'o2', key='k2')
    same((again.status, again.headers['Idempotent-Replayed']), (500, 'true'),
         'then it is kept under the key')
    same(s.stats(reference='s2')['payments'], 1, 'the payment is there')
    s.rule('answer', 'get', value={'status': 'odd'}, times=1)
    s.rule('answer', 'get', value='not JSON', status=502)
    path = '/v1/payments/' + s.payments(order='o2')[0]['id']
    same(s.get(path).json, {'status': 'odd'}, 'answer with JSON')
    answer = s.get(path)
    same((answer.status, answer.body), (502, b'not JSON'), 'answer with text')
    s.rule('answer', 'register', value={'id': 'x'})
    same(s.register('s3', 'o3').json, {'id': 'x'}, 'answer to register')
    same(s.stats(order='o3')['payments'], 0, 'the work was not done')
    s.rule('notfound', 'get')
    same(s.get(path).status, 404, 'notfound')
    s.rule('decline', 'register')
    answer = s.register('s4', 'o4').json
    same((answer['status'], answer['stage'], answer['decline_code']),
         ('declined', None, 'card_declined'), 'decline')
    same(s.register('s4', 'o4').json, answer, 'and its replay')
    s.act('s2', 'pay')
    s.rule('decline', 'refund')
    same(s.post(path + '/refunds').status, 402, 'decline of anything else: 402')


@test
def rule_wire(s):
    s.rule('drop_before', 'register')
    ok(isinstance(failure(s.register, 's1', 'o1', key='k'), CLOSED), 'drop_before closes')
    same(s.stats()['payments'], 0, 'before the work')
    same(s.stats()['calls']['register'], 1, 'but counted')
    s.rule('drop_after', 'register')
    ok(isinstance(failure(s.register, 's1', 'o1', key='k'), CLOSED), 'drop_after closes')
    same(s.stats()['payments'], 1, 'after the work')
    same(s.register('s1', 'o1', key='k').headers['Idempotent-Replayed'], 'true',
         'the answer is kept')
    same((s.stats()['replays'], s.stats()['distinct_keys']), (1, 1), 'one key, one replay')

    s.rule('reset', 'register')
    error = failure(s.register, 's2', 'o2')
    ok(isinstance(error, ConnectionResetError) and not isinstance(error, CLOSED),
       'reset breaks the connection', repr(error))
    same(s.stats(order='o2')['payments'], 0, 'before the work')

    s.rule('garbage', 'register')
    answer = s.register('s3', 'o3')
    ok(answer.status == 200 and b'\0' in answer.body, 'garbage, with a NUL')
    ok(isinstance(failure(answer.body.decode), UnicodeDecodeError), 'and not UTF-8')
    same(s.stats(order='o3')['payments'], 1, 'after the work')
    ok(s.register('s3', 'o3').json['id'], 'the right answer is kept')

    s.rule('half_body', 'register')
    error = failure(s.register, 's4', 'o4')
    ok(isinstance(error, http.client.IncompleteRead) and len(error.partial) > 0 and
       error.expected > 0, 'half_body breaks off', repr(error)[:200])
    same(s.stats(order='o4')['payments'], 1, 'after the work')

    s.rule('huge_body', 'register')
    answer = s.register('s5', 'o5')
    same(len(answer.body), 16 * 1024 * 1024, 'huge_body')
    same(answer.json['reference'], 's5', 'is valid JSON')
    s.rule('huge_body', 'find', value=100000)
    same(len(s.get('/v1/payments?reference=s5').body), 100000, 'of the given size')

    rule = s.rule('stall_body', 'register')
    sock = socket.create_connection(s.api_host.split(':'), DEADLINE)
    body = json.dumps({'reference': 's6', 'order': 'o6', 'amount': 1, 'currency': 'EUR'})
    sock.sendall((f'POST /v1/payments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n'
                  f'Idempotency-Key: stall\r\nContent-Length: {len(body)}\r\n'
                  f'Connection: close\r\n\r\n{body}').encode())
    got = b''
    while b'"reference"' not in got:
        got += sock.recv(65536)
    ok(got.startswith(b'HTTP/1.1 200'), 'stall_body sends headers and first bytes')
    s.held(rule)
    sock.settimeout(0.05)
    ok(isinstance(failure(sock.recv, 1), TimeoutError), 'then nothing')
    same(s.stats(order='o6')['payments'], 1, 'after the work')
    sock.settimeout(DEADLINE)
    same(s.release(rule)['released'], 1, 'one is released')
    while True:
        more = sock.recv(65536)
        if not more:
            break
        got += more
    sock.close()
    same(json.loads(got.split(b'\r\n\r\n', 1)[1])['reference'], 's6', 'the rest comes')


@test
def hold_and_delay(s):
    rule = s.rule('hold', 'register', order='o1')
    call = Later(s.register, 's1', 'o1', key='k')
    s.held(rule)
    same((s.stats()['calls']['register'], s.stats()['payments']), (1, 0), 'held before the work')
    same(s.register('s2', 'o2').status, 200, 'others go on')
    ok(call.running, 'it is still held')
    answer = s.release(rule)
    same((answer['released'], answer['hits'], answer['held']), (1, 1, 0), 'released')
    same(s.stats(order='o1')['payments'], 1, 'the work is done before the answer to release')
    same(call.wait().json['status'], 'pending', 'then it is answered')

    rule = s.rule('hold', 'get', times=0)
    path = '/v1/payments/' + s.payments(order='o1')[0]['id']
    calls = [Later(s.get, path) for _ in range(5)]
    s.held(rule, 5)
    s.act('s1', 'pay')
    s.control('DELETE', '/rules')
    same({c.wait().json['status'] for c in calls}, {'paid'}, 'DELETE /rules releases; '
         'the state is that of the moment of the work')
    same(s.get(path).status, 200, 'the next one passes')

    rule = s.rule('hold', 'register')
    gone = failure(s.register, 's3', 'o3', key='gone', timeout=0.01)
    ok(isinstance(gone, TimeoutError), 'a client that gives up')
    s.held(rule)
    s.release(rule)
    same(s.stats(order='o3')['payments'], 1, 'has its work done all the same')
    same(s.register('s3', 'o3', key='gone').headers['Idempotent-Replayed'], 'true',
         'and gets the answer when it repeats')

    s.rule('delay', 'register', value=50)
    begun = time.monotonic()
    same(s.register('s4', 'o4').status, 200, 'delay')
    ok(time.monotonic() - begun >= 0.045, 'takes its time')
    rule = s.rule('delay', 'register', value=3600000)
    call = Later(s.register, 's5', 'o5')
    s.held(rule)
    s.release(rule)
    same(call.wait().status, 200, 'a delayed call can be released')

    rule = s.rule('hold', 'register', times=0)
    calls = [Later(s.register, f'f{i}', f'of{i}') for i in range(3)]
    s.held(rule, 3)
    s.rule('delay', 'find', value=3600000)
    calls.append(Later(s.get, '/v1/payments?reference=f1'))
    until(lambda: s.stats()['calls']['find'] == 1)
    s.forget()
    ok(all(isinstance(c.failure(), CLOSED) for c in calls), 'forgetting closes what is held')
    same(s.stats()['payments'], 0, 'without doing its work')
    same(s.register('f1', 'of1').status, 200, 'and all is well')


@test
def thousand_held(s):
    rule = s.rule('hold', 'register', times=0)
    delay = s.rule('delay', 'find', value=3600000, times=0)
    socks = []
    for i in range(1000):
        sock = socket.create_connection(s.api_host.split(':'), DEADLINE)
        body = json.dumps({'reference': f't{i}', 'order': 'many', 'amount': 7, 'currency': 'EUR'})
        sock.sendall((f'POST /v1/payments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n'
                      f'Idempotency-Key: t{i}\r\nContent-Length: {len(body)}\r\n\r\n'
                      f'{body}').encode())
        socks.append(sock)
    others = []
    for i in range(200):
        sock = socket.create_connection(s.api_host.split(':'), DEADLINE)
        sock.sendall(b'GET /v1/payments?reference=t1 HTTP/1.1\r\nHost: x\r\n'
                     b'Authorization: Bearer x\r\n\r\n')
        others.append(sock)
    s.held(rule, 1000)
    s.held(delay, 200)
    same(s.stats(order='many')['payments'], 0, 'a thousand calls are held')
    same(s.get('/v1/report?day=2026-01-01').status, 200, 'and the API still answers')
    same(s.release(rule)['released'], 1000, 'all are let go')
    stats = s.stats(order='many')
    same((stats['payments'], stats['calls']['register'], stats['distinct_keys']),
         (1000, 1000, 1000), 'each once')
    ok(all(sock.recv(65536).startswith(b'HTTP/1.1 200') for sock in socks), 'all are answered')
    s.release(delay)
    ok(all(sock.recv(65536).startswith(b'HTTP/1.1 200') for sock in others), 'the delayed too')
    for sock in socks + others:
        sock.close()


@test
def kill(s):
    other = Sandbox('--kill-server', f'echo s >> {s.dir}/killed; exit 3',
                    '--kill-worker', f'echo w >> {s.dir}/killed; cat {s.dir}/fifo')
    try:
        s.control('POST', '/rules', {'action': 'kill', 'value': 'before'}, 400)
        ok(True, 'without a command there is no kill')
        rule = other.rule('kill', 'register', value='before', target='server')
        ok(isinstance(failure(other.register, 's1', 'o1', key='k'), CLOSED), 'killed before')
        same(open(s.dir + '/killed').read(), 's\n', 'the command ran')
        same(other.control('GET', f'/rules/{rule}')['exit_status'], 3, 'its exit status')
        same(other.stats()['payments'], 0, 'the work was not done')
        os.mkfifo(s.dir + '/fifo')
        rule = other.rule('kill', 'register', value='after', target='worker')
        call = Later(other.register, 's1', 'o1', key='k')
        until(lambda: other.stats()['payments'] == 1, 'the work')
        same(other.register('s2', 'o2').status, 200, 'meanwhile others go on')
        ok(call.running, 'the answer waits for the command')
        same(other.register('s1', 'o1', key='k').headers['Idempotent-Replayed'], 'true',
             'the work is done already')
        open(s.dir + '/fifo', 'w').close()
        same(call.wait().status, 200, 'then it comes')
        same(open(s.dir + '/killed').read(), 's\nw\n', 'each command once')

        other.rule('kill', 'register', value='before', target='worker')
        call = Later(other.register, 's3', 'o3')
        until(lambda: open(s.dir + '/killed').read() == 's\nw\nw\n', 'the command')
        other.forget()
        open(s.dir + '/fifo', 'w').close()
        ok(isinstance(call.failure(), CLOSED), 'forgotten while the command runs')
        same(other.stats()['payments'], 0, 'without a trace')
    finally:
        same(other.stop(), 0, 'ended by SIGTERM')
