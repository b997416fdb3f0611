"""What the provider counts and reports."""

import hashlib
import json
import time

from lab import DEADLINE, Later, OPERATIONS, failure, ok, same, send, test


@test
def statistics(s):
    zeros = {'calls': {op: 0 for op in OPERATIONS}, 'payments': 0, 'distinct_keys': 0,
             'replays': 0, 'authorized': 0, 'captured': 0, 'refunded': 0, 'disputed': 0,
             'webhooks': 0}
    same(s.stats(order='none'), zeros, 'an unknown order')
    same(s.stats(), zeros, 'nothing yet')
    payment = s.register('s1', 'o1', capture='manual').json['id']
    s.register('s2', 'o1')
    s.register('s3', 'o3')
    s.act('s1', 'authorize')
    path = '/v1/payments/' + payment
    s.get(path)
    s.get('/v1/payments?reference=s1')
    s.post(path + '/capture')
    s.post(path + '/cancel')
    s.post(path + '/expire')
    refund = s.post(path + '/refunds', {'amount': 5}).json['id']
    s.get('/v1/refunds/' + refund)
    s.get('/v1/report?day=2026-01-01')
    same(s.stats(reference='s1')['calls'],
         {'register': 1, 'get': 2, 'find': 1, 'capture': 1, 'cancel': 1, 'expire': 1,
          'refund': 1, 'report': 0}, 'calls of a reference')
    same(s.stats(order='o1')['calls'],
         {'register': 2, 'get': 2, 'find': 1, 'capture': 1, 'cancel': 1, 'expire': 1,
          'refund': 1, 'report': 0}, 'calls of an order')
    same(s.stats()['calls'],
         {'register': 3, 'get': 2, 'find': 1, 'capture': 1, 'cancel': 1, 'expire': 1,
          'refund': 1, 'report': 1}, 'all calls')
    stats = s.stats(order='o1')
    same((stats['payments'], stats['distinct_keys'], stats['authorized'], stats['captured'],
          stats['refunded']), (2, 2, 1000, 1000, 5), 'figures of an order')
    send(s.api_host, 'POST', '/v1/payments', '{"reference":"s9","order":"o9"}',
         {'Idempotency-Key': 'x'})
    same(s.stats(order='o9')['calls']['register'], 1, 'refused calls count too')
    same(s.stats(order='o9')['distinct_keys'], 1, 'and their keys')
    s.forget()
    same(s.stats(), zeros, 'all forgotten')
    same(s.get(path).status, 404, 'the payments too')
    ok(s.register('s1', 'o1', key='reg-s1').json['id'] != payment, 'ids are never used again')


@test
def requests(s):
    s.rule('drop_after', 'register')
    failure(s.register, 's1', 'o1', key='k')
    s.register('s1', 'o1', key='k')
    s.register('s2', 'o2')
    body = json.dumps({'reference': 's1', 'order': 'o1', 'amount': 1000, 'currency': 'EUR'})
    seen = s.control('GET', '/requests?reference=s1')
    same([(r['operation'], r['method'], r['path'], r['key'], r['status']) for r in seen],
         [('register', 'POST', '/v1/payments', 'k', 0),
          ('register', 'POST', '/v1/payments', 'k', 200)], 'the record of a reference')
    same({r['body_sha256'] for r in seen}, {hashlib.sha256(body.encode()).hexdigest()},
         'the same bytes')
    ok(abs(seen[0]['at_ms'] / 1000 - time.time()) < DEADLINE, 'with their time')
    rule = s.rule('hold', 'find')
    call = Later(s.get, '/v1/payments?reference=s2')
    s.held(rule)
    same(s.control('GET', '/requests?order=o2')[-1]['status'], None, 'not answered yet')
    s.release(rule)
    call.wait()
    same(s.control('GET', '/requests?order=o2')[-1]['status'], 200, 'answered')
    same(len(s.control('GET', '/requests')), 4, 'all requests')
    s.set(record=False)
    s.register('s3', 'o3')
    same(s.control('GET', '/requests?reference=s3'), [], 'record false')


@test
def report(s):
    today = time.strftime('%Y-%m-%d', time.gmtime())
    s.register('s1', 'o1')
    s.act('s1', 'pay')
    payment = s.payments()[0]['id']
    refund = s.post(f'/v1/payments/{payment}/refunds', {'amount': 300, 'reference': 'r1'}).json
    s.act('s1', 'refund_fail')
    s.act('s1', 'dispute', amount=50)
    s.act('s1', 'win_dispute')
    s.register('s2', 'o2', currency='JPY')
    s.act('s2', 'pay')
    s.act('s2', 'capture_fail')
    s.register('open', 'oo')
    answer = s.get('/v1/report?day=' + today).json
    if time.strftime('%Y-%m-%d', time.gmtime()) != today:
        print('# midnight: the report is not looked at')
        return
    rows = answer['rows']
    same(sorted(rows[0]),
         sorted(['id', 'type', 'line', 'payment', 'reference', 'amount', 'currency',
                 'status', 'fee', 'refunded_amount', 'occurred_at']), 'columns')
    same([(r['type'], r['line'], r['amount'], r['currency'], r['status'], r['reference'])
          for r in rows],
         [('payment', 1, 1000, 'EUR', 'paid', 's1'),
          ('refund', 1, 300, 'EUR', 'failed', 'r1'),
          ('refund_reversed', 2, 300, 'EUR', 'failed', 'r1'),
          ('dispute', 1, 50, 'EUR', 'won', 's1'),
          ('dispute_reversed', 2, 50, 'EUR', 'won', 's1'),
          ('payment', 1, 1000, 'JPY', 'authorized', 's2'),
          ('payment_reversed', 2, 1000, 'JPY', 'authorized', 's2')], 'every movement of money')
    same((rows[0]['id'], rows[1]['id'], rows[1]['payment']), (payment, refund['id'], payment),
         'with ids')
    same(answer['next_cursor'], None, 'one page')
    same(s.get('/v1/report?day=2001-02-03').json['rows'], [], 'an empty day')
    for query in ('', 'day=yesterday', 'day=2026-02-30', f'day={today}&cursor=x'):
        same(s.get('/v1/report?' + query).status, 400, f'query {query!r}')

    s.set(auto='pay')
    for i in range(243):
        s.register(f'p{i}', f'op{i}')
    ids, cursor, pages = [], '', 0
    while cursor is not None:
        answer = s.get(f'/v1/report?day={today}' + (f'&cursor={cursor}' if cursor else '')).json
        ids += [(r['id'], r['line']) for r in answer['rows']]
        cursor = answer['next_cursor']
        pages += 1
    same((len(ids), len(set(ids)), pages), (250, 250, 3), 'in pages of a hundred')
    same(s.get(f'/v1/report?day={today}&cursor=99999').json['rows'], [], 'beyond the end')
