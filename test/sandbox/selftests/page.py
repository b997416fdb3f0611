"""The page for the payer."""

import re

from lab import OPERATIONS, ok, same, send, test


@test
def page(s):
    def fetch(path, act=None):
        if act is None:
            return send(s.api_host, 'GET', path)
        return send(s.api_host, 'POST', path, f'act={act}',
                    {'Content-Type': 'application/x-www-form-urlencoded'})

    def path(**more):
        more.setdefault('order', '<script>"&\'')
        reference = f'p{s.stats()["payments"]}'
        return '/pay/' + s.register(reference, **more).json['id']

    there = path(currency='KWD', amount=12345, return_url='https://shop.example/r?a=1&b="<')
    text = fetch(there)
    html = text.body.decode()
    same(text.status, 200, 'the page')
    ok(text.headers['Content-Type'].startswith('text/html'), 'is HTML')
    ok('12.345 KWD' in html, 'the amount by the exponent of its currency', html)
    ok('<script>' not in html and '&lt;script&gt;&quot;&amp;&#39;' in html, 'the order, escaped')
    ok(all(f'value="{act}"' in html for act in ('pay', 'decline', 'authenticate')), 'the buttons')
    ok('lang="en"' in html and '<title>' in html and '<h1>' in html, 'accessible')
    ok(not re.search(r'(src|href)\s*=\s*"(?!https://shop)', html), 'nothing from elsewhere')
    for currency, amount, wanted in (('JPY', 80, '80 JPY'), ('EUR', 1999, '19.99 EUR'),
                                     ('OMR', 1, '0.001 OMR'), ('CLF', 12345, '1.2345 CLF')):
        ok(f'>{wanted}<' in fetch(path(currency=currency, amount=amount)).body.decode(),
           f'amount {wanted}')

    answer = fetch(there, 'authenticate')
    same((answer.status, answer.headers['Location']), (303, there), 'authenticate: the page again')
    ok('Confirm and pay' in fetch(there).body.decode(), 'waits for the confirmation')
    same(s.payments()[0]['status'], 'requires_action', 'requires_action')
    answer = fetch(there, 'pay')
    same((answer.status, answer.headers['Location']), (303, 'https://shop.example/r?a=1&b="<'),
         'pay: back to the shop')
    same(s.payments()[0]['status'], 'paid', 'paid')
    html = fetch(there).body.decode()
    ok('data-status="paid"' in html and '<button' not in html, 'the end is shown')
    ok('href="https://shop.example/r?a=1&amp;b=&quot;&lt;"' in html, 'the way back, escaped')
    same(fetch(there, 'decline').status, 409, 'too late to decline')
    same(s.payments()[0]['status'], 'paid', 'and without effect')

    there = path(capture='manual')
    same(fetch(there, 'pay').headers['Location'], there, 'no return_url: the page')
    same(s.payments()[-1]['status'], 'authorized', 'manual capture: authorized')
    there = path()
    same(fetch(there, 'decline').status, 303, 'decline')
    same(s.payments()[-1]['status'], 'declined', 'declined')
    there = path()
    same(fetch(there, 'nonsense').status, 400, 'an unknown button')
    same(send(s.api_host, 'PUT', there).status, 405, 'a wrong method')
    same(fetch('/pay/nobody').status, 404, 'an unknown page')
    same(sum(s.stats()['calls'][op] for op in OPERATIONS if op != 'register'), 0,
         'the page counts as no call')
