"""The provider's API: calls, keys, acts, settings."""

import re
import urllib.parse

from lab import Later, ok, same, send, test, until


@test
def register_and_look(s):
    answer = s.register('s1', 'o1', return_url='https://shop.example/r?a=1',
                        metadata={'k': 'ключ'}, receipt=[{'name': 'tea'}])
    same(answer.status, 200, 'register answers 200')
    payment = answer.json
    same({k: payment[k] for k in ('reference', 'order', 'status', 'stage', 'amount', 'currency',
                                  'authorized', 'captured', 'refunded', 'disputed', 'refunds',
                                  'disputes', 'decline_code', 'metadata')},
         {'reference': 's1', 'order': 'o1', 'status': 'pending', 'stage': 'form',
          'amount': 1000, 'currency': 'EUR', 'authorized': 0, 'captured': 0, 'refunded': 0,
          'disputed': 0, 'refunds': [], 'disputes': [], 'decline_code': None,
          'metadata': {'k': 'ключ'}}, 'a new payment looks so')
    ok(payment['redirect_url'] == s.url + '/pay/' + payment['id'], 'redirect_url is the page')
    ok(re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z', payment['created_at']),
       'times are RFC 3339', payment['created_at'])
    same(s.get('/v1/payments/' + payment['id']).json, payment, 'get shows the same')
    same(s.get('/v1/payments?reference=s1').json, [payment], 'find shows the same')
    same(s.get('/v1/payments?reference=nobody').json, [], 'find of nothing is an empty array')
    s.register('s1', 'o1', key='another')
    same(len(s.get('/v1/payments?reference=s1').json), 2, 'one reference, two payments')
    seen = s.payments(order='o1')
    same([p['receipt'] for p in seen], [[{'name': 'tea'}], None],
         'the control face shows the receipt')
    same(seen[0]['return_url'], 'https://shop.example/r?a=1', 'and the return_url')
    same(seen[0]['capture'], 'automatic', 'and the capture')
    same(len(s.payments(reference='s1')), 2, 'payments by reference')
    same(len(s.payments()), 2, 'all payments')
    same(s.payments(order='none'), [], 'payments of an unknown order')


@test
def refused(s):
    def code(**wrong):
        body = {'reference': 'bad', 'order': 'bad', 'amount': 1000, 'currency': 'EUR'}
        body.update(wrong)
        answer = s.post('/v1/payments', body)
        return answer.status, answer.code

    for amount in (0, -1, 10 ** 15 + 1, 1.5, 1000.0, '1000', None, True, 10 ** 30):
        status, word = code(amount=amount)
        ok((status, word) in ((400, 'invalid_amount'), (400, 'invalid_json')),
           f'amount {amount}', (status, word))
    same(s.register('big', 'big', amount=10 ** 15).status, 200, 'the largest amount')
    for currency in ('eur', 'EU', 'EURO', '', None, 978, 'ЕUR'):
        same(code(currency=currency), (400, 'invalid_currency'), f'currency {currency}')
    same(code(capture='later'), (400, 'invalid_capture'), 'capture')
    for url in ('ftp://x', 'javascript:alert(1)', 'https://', 'https://a b', 'https://a\r\nX: 1',
                5):
        same(code(return_url=url), (400, 'invalid_return_url'), f'return_url {url!r}')
    for seconds in (0, -1, 1.5, '60', 10 ** 12):
        same(code(expires_in=seconds), (400, 'invalid_expires_in'), f'expires_in {seconds}')
    same(code(metadata=[]), (400, 'invalid_metadata'), 'metadata')
    same(code(reference=''), (400, 'invalid_reference'), 'empty reference')
    same(code(reference=None), (400, 'invalid_reference'), 'no reference')
    same(code(reference='x' * 201), (400, 'invalid_reference'), 'long reference')
    same(code(order=5), (400, 'invalid_order'), 'order')
    for body in (b'{', b'[]', b'"x"', b'\xff', b'{"reference":"\xff"}', b'{"a":1}x'):
        answer = s.post('/v1/payments', body)
        same((answer.status, answer.code), (400, 'invalid_json'), f'body {body!r}')
    answer = s.post('/v1/payments', 'x' * (1024 * 1024 + 1))
    same(answer.status, 413, 'a body of more than a MiB')
    same(s.stats()['payments'], 1, 'none of them made a payment')

    answer = send(s.api_host, 'POST', '/v1/payments', '{}', {'Authorization': 'Bearer x'})
    same((answer.status, answer.code), (400, 'key_required'), 'POST without a key')
    for headers in ({}, {'Authorization': 'Basic eDp5'}, {'Authorization': 'Bearer '}):
        answer = send(s.api_host, 'GET', '/v1/payments?reference=x', None, headers)
        same((answer.status, answer.code), (401, 'unauthorized'), f'headers {headers}')
    same(s.get('/v1/payments').status, 400, 'find without a reference')
    same(s.get('/v1/payments/pay_nobody').code, 'not_found', 'unknown payment')
    same(s.get('/v1/refunds/re_nobody').code, 'not_found', 'unknown refund')
    same(s.post('/v1/payments/pay_nobody/cancel').status, 404, 'cancel of nothing')
    same(s.get('/v1/nothing').status, 404, 'unknown path')
    same(s.get('/v1/payments/x/capture').status, 405, 'wrong method')
    same(send(s.api_host, 'DELETE', '/v1/payments').status, 405, 'unknown method')


@test
def keys(s):
    first = s.register('s1', 'o1', key='k')
    again = s.register('s1', 'o1', key='k')
    same(again.body, first.body, 'same key, same body: same answer')
    same(first.headers['Idempotent-Replayed'], None, 'the first is not marked')
    same(again.headers['Idempotent-Replayed'], 'true', 'the second is')
    s.act(first.json['id'], 'pay', currency='USD')
    same(s.register('s1', 'o1', key='k').body, first.body, 'also when things have changed')
    other = s.register('s1', 'o1', key='k', amount=1001)
    same((other.status, other.code), (422, 'key_reused'), 'same key, other body')
    other = s.post('/v1/payments/' + first.json['id'] + '/cancel',
                   {'reference': 's1', 'order': 'o1', 'amount': 1000, 'currency': 'EUR'}, 'k')
    same((other.status, other.code), (422, 'key_reused'), 'same key, other path')
    stats = s.stats()
    same((stats['payments'], stats['replays'], stats['distinct_keys']), (1, 2, 1), 'counted so')
    same(s.stats(order='o1')['replays'], 2, 'replays of the order')

    path = '/v1/payments/' + first.json['id']
    refund = s.post(path + '/refunds', {'amount': 300}, 'r')
    same(s.post(path + '/refunds', {'amount': 300}, 'r').body, refund.body, 'a refund replays')
    same(s.stats()['refunded'], 300, 'and is made once')
    too_much = s.post(path + '/refunds', {'amount': 3000}, 'big')
    again = s.post(path + '/refunds', {'amount': 3000}, 'big')
    same((too_much.status, again.status, again.headers['Idempotent-Replayed']),
         (422, 422, 'true'), 'a refusal is kept')
    same(s.register('s2', 'o2', key='bad', amount=0).status, 400, 'a malformed call')
    same(s.register('s2', 'o2', key='bad').status, 200, 'does not take its key')

    rule = s.rule('hold', 'register', reference='s3')
    held = Later(s.register, 's3', 'o3', key='h')
    s.held(rule)
    busy = s.register('s3', 'o3', key='h')
    same((busy.status, busy.code), (409, 'key_in_use'), 'a key that is being worked')
    same(s.register('s3', 'o3', key='h', amount=5).code, 'key_reused', 'with another body')
    s.release(rule)
    held = held.wait()
    same(s.register('s3', 'o3', key='h').body, held.body, 'then it replays')

    s.set(key_ttl_s=1)
    until(lambda: s.register('s1', 'o1', key='k').json['id'] != first.json['id'], 'forgetting')
    same(s.stats(reference='s1')['payments'], 2, 'a forgotten key makes a second payment')
    same(s.stats(reference='s1')['distinct_keys'], 1, 'with the same key')
    s.set(key_ttl_s=0)
    s.register('s9', 'o9')
    s.register('s9', 'o9')
    same(s.stats(reference='s9')['payments'], 2, 'key_ttl_s 0: no key is kept')


@test
def capture_cancel_expire(s):
    payment = s.register('m', 'om', capture='manual').json
    path = '/v1/payments/' + payment['id']
    same(s.post(path + '/capture').code, 'not_capturable', 'capture of a pending one')
    s.act('m', 'authorize')
    answer = s.get(path).json
    same((answer['status'], answer['stage'], answer['authorized'], answer['captured']),
         ('authorized', None, 1000, 0), 'authorized')
    same(s.post(path + '/capture', {'amount': 1001}).code, 'amount_too_large', 'too much')
    same(s.post(path + '/capture', {'amount': 0}).status, 400, 'amount 0')
    same(s.post(path + '/expire').status, 409, 'an authorized one cannot be expired')
    answer = s.post(path + '/capture', {'amount': 400}).json
    same((answer['status'], answer['authorized'], answer['captured']), ('paid', 1000, 400),
         'a part is captured')
    same(s.post(path + '/capture', {'amount': 100}).status, 409, 'once only')
    same(s.post(path + '/cancel').code, 'not_cancelable', 'cancel of a paid one')
    same(s.post(path + '/expire').code, 'not_expirable', 'expire of a paid one')
    same(s.stats(order='om')['captured'], 400, 'captured in the figures')

    payment = s.register('v', 'ov', capture='manual').json
    s.act('v', 'authorize')
    same(s.stats()['authorized'], 2000, 'authorized in the figures')
    answer = s.post(f'/v1/payments/{payment["id"]}/cancel').json
    same((answer['status'], answer['authorized']), ('canceled', 0), 'a void releases the hold')
    same(s.stats(order='ov')['authorized'], 0, 'also in the figures')
    same(s.post(f'/v1/payments/{payment["id"]}/cancel').json['status'], 'canceled',
         'cancel of a canceled one')
    same(s.post(f'/v1/payments/{payment["id"]}/capture').status, 409, 'capture after void')

    payment = s.register('c', 'oc').json
    same(s.post(f'/v1/payments/{payment["id"]}/cancel').json['status'], 'canceled', 'cancel')
    payment = s.register('e', 'oe').json
    same(s.post(f'/v1/payments/{payment["id"]}/expire').json['status'], 'expired', 'expire')
    same(s.post(f'/v1/payments/{payment["id"]}/cancel').status, 409, 'cancel of an expired one')
    payment = s.register('f', 'of', capture='manual').json
    s.act('f', 'authorize')
    answer = s.post(f'/v1/payments/{payment["id"]}/capture').json
    same((answer['status'], answer['captured']), ('paid', 1000), 'capture of all')


@test
def refunds(s):
    payment = s.register('s1', 'o1').json
    path = f'/v1/payments/{payment["id"]}/refunds'
    same(s.post(path, {'amount': 1}).code, 'not_refundable', 'nothing to refund')
    s.act('s1', 'pay')
    refund = s.post(path, {'amount': 300, 'reference': 'r1'}).json
    same({k: refund[k] for k in ('payment', 'reference', 'amount', 'status')},
         {'payment': payment['id'], 'reference': 'r1', 'amount': 300, 'status': 'succeeded'},
         'a refund')
    same(s.get('/v1/refunds/' + refund['id']).json, refund, 'GET /v1/refunds')
    same(s.get('/v1/refunds/' + payment['id']).status, 404, 'of a payment: no')
    same(s.get('/v1/payments/' + refund['id']).status, 404, 'and the other way round: no')
    same(s.get('/v1/payments/' + payment['id']).json['refunds'],
         [{'id': refund['id'], 'reference': 'r1', 'amount': 300, 'status': 'succeeded'}],
         'in its payment')
    same(s.post(path, {'amount': 701}).code, 'amount_too_large', 'more than is left')
    same(s.post(path, {'amount': -1}).status, 400, 'a negative amount')
    same(s.post(path, {'reference': 5}).status, 400, 'a wrong reference')

    s.set(refunds='pending')
    pending = s.post(path, {'amount': 200, 'reference': 'r2'}).json
    same(pending['status'], 'pending', 'a pending refund')
    same(s.stats()['refunded'], 300, 'does not count yet')
    same(s.post(path, {'amount': 501}).status, 422, 'but its money is bespoken')
    s.act('s1', 'refund_succeed')
    same(s.get('/v1/refunds/' + pending['id']).json['status'], 'succeeded', 'it succeeds')
    same(s.stats()['refunded'], 500, 'and counts')
    other = s.post(path, {'amount': 100, 'reference': 'r3'}).json
    s.act('s1', 'refund', refund='r3')
    same(s.get('/v1/refunds/' + other['id']).json['status'], 'succeeded',
         'the act refund, naming it, does it too')
    s.set(refunds='fail')
    same(s.post(path, {'amount': 100}).json['status'], 'failed', 'a refund that fails')
    same(s.stats()['refunded'], 600, 'counts nothing')
    s.act('s1', 'refund_fail', refund=refund['id'])
    same(s.get('/v1/refunds/' + refund['id']).json['status'], 'failed', 'one fails afterwards')
    same(s.stats(order='o1')['refunded'], 300, 'which lowers the figure')
    s.act('s1', 'refund_fail')
    same(s.get('/v1/refunds/' + other['id']).json['status'], 'failed', 'unnamed: the newest')
    s.set(refunds='succeed')
    s.act('s1', 'refund', amount=250)
    found = s.get('/v1/payments/' + payment['id']).json
    same((found['refunded'], found['refunds'][-1]['reference'], found['refunds'][-1]['amount']),
         (450, None, 250), 'a refund made at the provider')
    s.act('s1', 'refund', amount=5000)
    same(s.stats()['refunded'], 5450, 'facts have no limit')
    s.act('s1', 'refund', 409)
    s.act('s1', 'refund_fail', 409, refund='re_x')
    same(s.post(path).status, 422, 'all is refunded')
    s.register('s2', 'o2')
    s.act('s2', 'pay')
    answer = s.post(f'/v1/payments/{s.payments(order="o2")[0]["id"]}/refunds')
    same(answer.json['amount'], 1000, 'without an amount: all')


@test
def acts(s):
    payment = s.register('s/1', 'o1').json
    name = urllib.parse.quote('s/1', safe='')

    def state(act, **body):
        shown = s.act(name, act, **body)
        same({k: shown[k] for k in payment}, s.get('/v1/payments/' + payment['id']).json,
             f'{act}: both faces agree')
        return tuple(shown[k] for k in ('status', 'stage', 'authorized', 'captured'))

    same(state('redirect'), ('pending', 'redirected', 0, 0), 'redirect')
    same(state('authenticate'), ('requires_action', 'authentication', 0, 0), 'authenticate')
    same(state('process'), ('pending', 'processing', 0, 0), 'process')
    same(state('decline', decline_code='no_funds'), ('declined', None, 0, 0), 'decline')
    same(s.payments()[0]['decline_code'], 'no_funds', 'with its code')
    same(state('authorize'), ('authorized', None, 1000, 0), 'authorize, although declined')
    same(s.payments()[0]['decline_code'], None, 'the code is gone')
    same(state('expire'), ('expired', None, 0, 0), 'the authorization lapses')
    same(state('pay', amount=400), ('paid', None, 400, 400), 'late money, less of it')
    same(state('pay', amount=1500), ('paid', None, 1500, 1500), 'more money')
    same(state('pay', amount=10), ('paid', None, 1500, 1500), 'pay never lowers')
    same(state('cancel'), ('canceled', None, 1500, 1500), 'a status does not move money')
    same(state('pay'), ('paid', None, 1500, 1500), 'paid again')
    same(state('decline'), ('declined', None, 1500, 1500), 'declined after it was paid')
    same(state('capture_fail'), ('authorized', None, 1500, 0), 'the capture fails')
    same(s.payments()[0]['decline_code'], 'capture_failed', 'and says so')
    same(state('pay', currency='USD'), ('paid', None, 1500, 1500), 'in another currency')
    same(s.payments()[0]['currency'], 'USD', 'which the payment shows')
    same(s.stats()['captured'], 1500, 'the figure agrees')

    state('dispute', amount=700)
    state('dispute', amount=2000)
    shown = s.get('/v1/payments/' + payment['id']).json
    same([(d['amount'], d['status']) for d in shown['disputes']],
         [(700, 'open'), (2000, 'open')], 'disputes, also of too much')
    same((shown['disputed'], s.stats()['disputed']), (2700, 2700), 'are counted')
    state('win_dispute')
    state('win_dispute', dispute=shown['disputes'][0]['id'], amount=200)
    shown = s.get('/v1/payments/' + payment['id']).json
    same([(d['amount'], d['status'], d['won']) for d in shown['disputes']],
         [(700, 'partly_won', 200), (2000, 'won', 2000)], 'won, and won in part')
    same((shown['disputed'], s.stats(reference='s/1')['disputed']), (500, 500), 'the rest counts')
    path = f'/v1/payments/{payment["id"]}/refunds'
    same(s.post(path, {'amount': 1001}).status, 422, 'what is disputed cannot be refunded')
    same(s.post(path, {'amount': 1000}).status, 200, 'the rest can')
    s.act(name, 'win_dispute', 409, amount=501)
    s.act(name, 'dispute', 409)
    s.act(name, 'nonsense', 404)
    s.act('nobody', 'pay', 404)
    s.act(name, 'pay', 400, amount=0)
    s.act(name, 'pay', 400, colour='red')
    s.act(name, 'pay', 400, currency='EURO')
    s.act(name, 'pay', 400, currency='<b>')
    s.register('two', 'o2', key='a')
    second = s.register('two', 'o2', key='b').json
    s.act('two', 'pay')
    same([p['status'] for p in s.payments(order='o2')], ['pending', 'paid'],
         'a reference means its newest payment')
    same(s.control('GET', '/payments/two')['id'], second['id'], 'GET /payments/{reference}')


@test
def expiry(s):
    born = s.register('s1', 'o1', expires_in=1)
    payment = s.payments()[0]
    until(lambda: s.payments()[0]['status'] == 'expired', 'expiry')
    same(s.get('/v1/payments/' + payment['id']).json['status'], 'expired', 'its time is over')
    s.set(expires_in=3600)
    second = s.register('s2', 'o2').json
    same(second['expires_at'][:10] != second['created_at'][:10] or
         int(second['expires_at'][11:13]) - int(second['created_at'][11:13]) == 1, True,
         'the setting expires_in')
    s.act('s1', 'redirect')
    same(s.get('/v1/payments/' + payment['id']).json['status'], 'pending',
         'an act opens it again')
    same(s.register('s1', 'o1', expires_in=1).body, born.body, 'the replay is as it was')
    s.act('s1', 'pay')
    same(s.payments(order='o1')[0]['status'], 'paid', 'late money')


@test
def automatic(s):
    def status(reference, **more):
        born = s.register(reference, 'o-' + reference, **more).json
        found = s.get('/v1/payments/' + born['id']).json
        return born['status'], found['status'], found['captured']

    s.set(auto='pay')
    same(status('a'), ('pending', 'paid', 1000), 'auto pay: paid right after register')
    same(status('b', capture='manual'), ('pending', 'authorized', 0), 'manual: authorized')
    s.set(auto='authorize')
    same(status('c', capture='manual'), ('pending', 'authorized', 0), 'auto authorize')
    s.set(auto='decline')
    same(status('d'), ('pending', 'declined', 0), 'auto decline')
    rule = s.rule('decline', 'register')
    s.set(auto='pay')
    same(status('e'), ('declined', 'declined', 0), 'the rule decline goes before it')
    same(s.control('GET', f'/rules/{rule}')['ended'], True, 'a rule is used up')
    s.set(auto_delay_ms=1)
    s.register('f', 'o-f')
    until(lambda: s.payments(order='o-f')[0]['status'] == 'paid', 'the payer')
    s.set(auto_delay_ms=3600000)
    same(status('g'), ('pending', 'pending', 0), 'auto_delay_ms')
    s.set(auto='none', auto_delay_ms=0)
    same(status('h'), ('pending', 'pending', 0), 'auto none')


@test
def settings(s):
    same(s.control('GET', '/settings'),
         {'webhooks': False, 'webhook_url': None, 'webhook_secret': None, 'event_ids': True,
          'auto': 'none', 'auto_delay_ms': 0, 'expires_in': 86400, 'key_ttl_s': 86400,
          'find': True, 'find_lag_ms': 0, 'refunds': 'succeed', 'api_keys': [],
          'record': True}, 'the defaults')
    for bad in ({'nonsense': 1}, {'auto': 'x'}, {'auto': 1}, {'webhooks': 1}, {'expires_in': 0},
                {'find_lag_ms': -1}, {'webhook_url': 'x'}, {'webhook_secret': 'whsec_!!'},
                {'webhook_secret': ''}, {'api_keys': [1]}, {'refunds': None}):
        s.control('POST', '/settings', {'key_ttl_s': 5, **bad}, 400)
    same(s.control('GET', '/settings')['key_ttl_s'], 86400, 'a wrong one: none is taken over')

    s.register('s1', 'o1')
    s.set(find=False)
    answer = s.get('/v1/payments?reference=s1')
    same((answer.status, answer.code), (501, 'not_supported'), 'find false')
    s.set(find=True, find_lag_ms=3600000)
    same(s.get('/v1/payments?reference=s1').json, [], 'find_lag_ms: not yet')
    s.set(find_lag_ms=1)
    until(lambda: s.get('/v1/payments?reference=s1').json, 'find_lag_ms')
    s.set(api_keys=['sk_1', 'test'])
    same(s.get('/v1/payments?reference=s1').status, 200, 'a listed key')
    s.set(api_keys=['sk_1'])
    same(s.get('/v1/payments?reference=s1').status, 401, 'an unlisted key')
    s.set(api_keys=None)
    same(s.get('/v1/payments?reference=s1').status, 200, 'any key')
    s.set(auto='pay')
    s.forget()
    same(s.control('GET', '/settings')['auto'], 'none', 'forgotten: back to the default')
    same(send(s.control_host, 'POST', '/settings', '[1]').status, 400, 'no object')
    same(send(s.control_host, 'POST', '/settings', '{').status, 400, 'no JSON')
    same(send(s.control_host, 'GET', '/nothing').status, 404, 'unknown path')
    same(send(s.control_host, 'GET', '/').status, 200, 'the face answers')
