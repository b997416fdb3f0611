"""Command line, end, TLS."""

import http.client
import json
import os
import shutil
import ssl
import subprocess

from lab import DEADLINE, Later, PROGRAM, Sandbox, failure, ok, same, test, until


@test
def ending(s):
    other = Sandbox()
    other.rule('hold', 'register')
    call = Later(other.register)
    until(lambda: other.stats()['calls']['register'] == 1)
    same(other.stop(), 0, 'SIGTERM ends it, also with a held call')
    ok(call.failure() is not None, 'whose connection is closed')
    used = s.api_host.split(':')[1]
    taken = subprocess.run([PROGRAM, '--port', used], stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=DEADLINE)
    ok(taken.returncode == 1 and 'cannot listen' in taken.stderr, 'a port that is taken',
       taken)
    for options in (['--nonsense'], ['--port', 'x'], ['--port', '70000'], ['extra'],
                    ['--tls-cert', os.devnull]):
        same(subprocess.run([PROGRAM, *options], capture_output=True, timeout=DEADLINE).returncode,
             2, f'options {options}')
    same(subprocess.run([PROGRAM, '--help'], capture_output=True, timeout=DEADLINE).returncode,
         0, '--help')


@test
def tls(s):
    if shutil.which('openssl') is None:
        print('# no openssl: TLS is not tested')
        return
    cert, key = s.dir + '/cert.pem', s.dir + '/key.pem'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2',
                    '-subj', '/CN=sandbox', '-addext', 'subjectAltName=IP:127.0.0.1',
                    '-keyout', key, '-out', cert], check=True, capture_output=True)
    other = Sandbox('--tls-cert', cert, '--tls-key', key)
    try:
        ok(other.url.startswith('https://127.0.0.1:'), 'an https address')
        context = ssl.create_default_context(cafile=cert)
        connection = http.client.HTTPSConnection(other.api_host, context=context,
                                                 timeout=DEADLINE)
        body = json.dumps({'reference': 's1', 'order': 'o1', 'amount': 1, 'currency': 'EUR'})
        connection.request('POST', '/v1/payments', body,
                           {'Authorization': 'Bearer x', 'Idempotency-Key': 'k'})
        answer = json.loads(connection.getresponse().read())
        ok(answer['redirect_url'].startswith(other.url), 'the API speaks TLS')
        bearer = {'Authorization': 'Bearer x'}
        rule = other.rule('hold', 'find')
        connection.request('GET', '/v1/payments?reference=s1', headers=bearer)
        other.held(rule)
        other.release(rule)
        same(len(json.loads(connection.getresponse().read())), 1, 'holding works there too')
        other.rule('reset', 'find')
        connection.request('GET', '/v1/payments?reference=s1', headers=bearer)
        ok(isinstance(failure(connection.getresponse), OSError), 'and resetting')
        connection.close()
    finally:
        other.stop()
