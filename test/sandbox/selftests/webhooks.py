"""Webhooks, automatic and by hand."""

import base64
import json
import socket
import time

from lab import DEADLINE, Later, Receiver, ok, same, send, signature, test, until


@test
def webhooks(s):
    r = Receiver()
    secret = b'0123456789abcdef0123456789abcdef'
    try:
        s.set(webhooks=True, webhook_url=r.url,
              webhook_secret='whsec_' + base64.b64encode(secret).decode())
        s.register('s1', 'o1', capture='manual')
        for act in ('redirect', 'redirect', 'authenticate', 'authorize'):
            s.act('s1', act)
            # one after the other, so that their order can be looked at
            until(lambda: len(r.got) == s.stats()['webhooks'])
        events = r.wait(3)
        same([e['type'] for e in events],
             ['payment.updated', 'payment.requires_action', 'payment.authorized'],
             'each change is told, no change is not')
        payment = s.payments()[0]
        path = '/v1/payments/' + payment['id']
        same(events[-1]['data'], s.get(path).json, 'data is the payment')
        headers, body = r.got[-1]
        same(headers['webhook-signature'], signature(secret, headers, body), 'signed')
        same(headers['webhook-id'], events[-1]['id'], 'the id')
        ok(abs(int(headers['webhook-timestamp']) - time.time()) < DEADLINE, 'the time')
        s.post(path + '/capture')
        s.post(path + '/refunds', {'amount': 5})
        s.act('s1', 'refund_fail')
        s.act('s1', 'dispute')
        s.act('s1', 'win_dispute')
        s.act('s1', 'capture_fail')
        same(sorted(e['type'] for e in r.wait(9)[3:]),
             ['dispute.opened', 'dispute.won', 'payment.capture_failed', 'payment.paid',
              'refund.failed', 'refund.succeeded'], 'all kinds')
        same(len({e['id'] for e in r.wait(9)}), 9, 'each has an id of its own')
        same(s.stats(order='o1')['webhooks'], 9, 'counted by order')

        del r.got[:]
        r.answers = [500, 404]
        s.act('s1', 'expire')
        events = r.wait(3)
        same(len({e['id'] for e in events}), 1, 'repeated under one id until it is taken')
        same(len({body for _, body in r.got}), 1, 'with the same body')
        del r.got[:]
        r.answers = [500, 500, 500]
        s.act('s1', 'pay')
        r.wait(3)
        until(lambda: s.stats()['webhooks'] == 15, 'the third try')
        same(len(r.got), 3, 'three tries')

        del r.got[:]
        s.set(event_ids=False, webhook_secret='plain secret')
        s.act('s1', 'cancel')
        event = r.wait(1)[0]
        headers, body = r.got[0]
        ok('id' not in event and headers['webhook-id'] is None, 'an event without an id')
        same(headers['webhook-signature'], signature(b'plain secret', headers, body),
             'signed with a plain secret')
        s.set(webhook_secret=None)
        s.act('s1', 'pay')
        r.wait(2)
        same(r.got[1][0]['webhook-signature'], None, 'without a secret: not signed')
        s.set(event_ids=True, expires_in=1)
        s.register('s2', 'o2')
        same(r.wait(3)[2]['type'], 'payment.expired', 'expiry is told too')
    finally:
        r.close()


@test
def webhooks_by_hand(s):
    r = Receiver()
    secret = b'plain'
    try:
        payment = s.register('s1', 'o1').json
        same(send(s.control_host, 'POST', '/webhooks', '{"payment":"s1"}').status, 409,
             'no webhook_url')
        s.set(webhook_url=r.url, webhook_secret='plain')
        s.act('s1', 'pay')
        same(s.stats()['webhooks'], 0, 'webhooks false: nothing is told')
        answer = s.control('POST', '/webhooks', {'payment': payment['id']})
        same(answer['statuses'], [200], 'delivered before the answer')
        same(len(r.got), 1, 'it is there')
        event = json.loads(r.got[0][1])
        same((event['id'], event['type'], event['data']['id']),
             (answer['event_id'], 'payment.paid', payment['id']), 'the event')
        r.answers = [200, 503, 200]
        answer = s.control('POST', '/webhooks',
                           {'payment': 's1', 'type': 'refund.succeeded', 'times': 3,
                            'event_id': 'evt_mine', 'created_at': '2020-01-02T03:04:05Z'})
        same(sorted(answer['statuses']), [200, 200, 503], 'three times, none repeated')
        same(len(r.got), 4, 'three came')
        events = [json.loads(body) for _, body in r.got[1:]]
        same({(e['id'], e['type'], e['created_at']) for e in events},
             {('evt_mine', 'refund.succeeded', '2020-01-02T03:04:05Z')}, 'as wanted')
        s.control('POST', '/webhooks', {'payment': 's1', 'forge': True, 'timestamp': 1000000000,
                                        'created_at': 1577934245})
        headers, body = r.got[-1]
        ok(headers['webhook-signature'] != signature(secret, headers, body) and
           len(base64.b64decode(headers['webhook-signature'][3:])) == 32, 'a forged signature')
        same(headers['webhook-timestamp'], '1000000000', 'an old timestamp')
        same(json.loads(body)['created_at'], '2020-01-02T03:04:05.000Z', 'an old event')
        s.control('POST', '/webhooks', {'payment': 's1', 'event_id': None})
        ok('id' not in json.loads(r.got[-1][1]), 'no id')
        s.control('POST', '/webhooks', {'payment': {'id': 'pay_stranger'}, 'type': 'payment.paid'})
        same(json.loads(r.got[-1][1])['data'], {'id': 'pay_stranger'}, 'of a payment made up')
        same(s.stats(reference='s1')['webhooks'], 6, 'counted')

        before = len(r.got)
        answer = s.control('POST', '/webhooks', {'payment': 's1', 'delay_ms': 20, 'times': 2})
        same(answer['statuses'], [], 'delayed: answered at once')
        r.wait(before + 2)
        ok(True, 'and sent later')
        s.control('POST', '/webhooks', {'payment': 'nobody'}, 404)
        for bad in ({}, {'payment': 's1', 'times': 0}, {'payment': 's1', 'when': 1},
                    {'payment': {}}, {'payment': 's1', 'event_id': 5},
                    {'payment': 's1', 'created_at': 1.5}):
            s.control('POST', '/webhooks', bad, 400)

        # forgetting while one is on its way, and one waits
        r.gate.clear()
        waiting = Later(s.control, 'POST', '/webhooks', {'payment': 's1'})
        until(lambda: s.stats()['webhooks'] == 10, 'sending')
        s.control('POST', '/webhooks', {'payment': 's1', 'delay_ms': 3600000})
        s.forget()
        same(waiting.wait()['statuses'], [0], 'forgetting ends a delivery')
        r.gate.set()
        # a port where nobody listens
        sock = socket.socket()
        sock.bind(('127.0.0.1', 0))
        s.register('s1', 'o1')
        s.set(webhook_url=f'http://127.0.0.1:{sock.getsockname()[1]}/')
        same(s.control('POST', '/webhooks', {'payment': 's1'})['statuses'], [0], 'refused: 0')
        sock.close()
    finally:
        r.close()


@test
def slow_receiver(s):
    r = Receiver()
    try:
        r.gate.clear()
        s.set(webhooks=True, webhook_url=r.url, auto='pay')
        for i in range(50):
            s.register(f's{i}', 'o1')
        until(lambda: s.stats()['webhooks'] == 50, 'sending')
        same(s.stats()['payments'], 50, 'a receiver that hangs holds up nothing')
        r.gate.set()
        r.wait(50)
        ok(True, 'all come in the end')
    finally:
        r.close()
