"""What the tests of the test provider are written with.

Nothing here sleeps: whatever is waited for is asked again until it is there
or a deadline is over.
"""

import base64
import hashlib
import hmac
import http.client
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), '..', 'build', 'sandbox')
DEADLINE = float(os.environ.get('SELFTEST_DEADLINE', '60'))
OPERATIONS = ['register', 'get', 'find', 'capture', 'cancel', 'expire', 'refund', 'report']

tests = []
count = 0
failed = 0


def test(function):
    tests.append(function)
    return function


def ok(condition, name, detail=None):
    global count, failed
    count += 1
    if condition:
        print(f'ok {count} - {name}')
    else:
        failed += 1
        print(f'not ok {count} - {name}')
        for line in traceback.format_stack(limit=3)[:-1]:
            print('# ' + line.strip().replace('\n', '\n# '))
        if detail is not None:
            print('# ' + str(detail).replace('\n', '\n# '))
    sys.stdout.flush()


def same(got, wanted, name):
    ok(got == wanted, name, f'got:    {got!r}\nwanted: {wanted!r}')


def until(question, name='the wait'):
    """Ask until the answer is true; returns it."""
    end = time.monotonic() + DEADLINE
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f'{name} did not end')


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json['error']['code']


def send(host, method, path, body=None, headers=None, timeout=DEADLINE):
    """One call on a connection of its own."""
    connection = http.client.HTTPConnection(host, timeout=timeout)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


class Sandbox:
    def __init__(self, *options):
        self.dir = tempfile.mkdtemp()
        ready = os.path.join(self.dir, 'ready')
        self.process = subprocess.Popen(
            [PROGRAM, '--port', '0', '--control-port', '0', '--ready-file', ready,
             *options], stdin=subprocess.DEVNULL)
        until(lambda: os.path.exists(ready) or self.process.poll() is not None, 'start')
        lines = dict(line.split('=', 1) for line in open(ready).read().splitlines())
        self.url = lines['SANDBOX_URL']
        self.api_host = urllib.parse.urlsplit(self.url).netloc
        self.control_host = urllib.parse.urlsplit(lines['SANDBOX_CONTROL']).netloc
        self.keys = 0

    def stop(self):
        self.process.terminate()
        status = self.process.wait(DEADLINE)
        shutil.rmtree(self.dir)
        return status

    def get(self, path, **options):
        return send(self.api_host, 'GET', path,
                    headers={'Authorization': 'Bearer test'}, **options)

    def post(self, path, body=None, key=None, **options):
        if key is None:
            self.keys += 1
            key = f'key-{self.keys}'
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body if body is not None else {})
        headers = {'Authorization': 'Bearer test', 'Idempotency-Key': key,
                   'Content-Type': 'application/json'}
        return send(self.api_host, 'POST', path, body, headers, **options)

    def register(self, reference='s1', order='o1', key=None, **more):
        body = {'reference': reference, 'order': order, 'amount': 1000, 'currency': 'EUR'}
        body.update(more)
        options = {'timeout': body.pop('timeout')} if 'timeout' in body else {}
        return self.post('/v1/payments', body, key or f'reg-{reference}', **options)

    def control(self, method, path, body=None, status=200):
        answer = send(self.control_host, method, path,
                      None if body is None else json.dumps(body))
        if answer.status != status:
            raise AssertionError(f'{method} {path}: {answer.status} {answer.body}')
        return answer.json

    def set(self, **settings):
        return self.control('POST', '/settings', settings)

    def rule(self, action, operation='*', **more):
        return self.control('POST', '/rules',
                            dict(operation=operation, action=action, **more))['id']

    def held(self, rule, number=1):
        until(lambda: self.control('GET', f'/rules/{rule}')['held'] == number,
              f'holding {number} calls')

    def release(self, rule):
        return self.control('POST', f'/rules/{rule}/release')

    def act(self, payment, act, status=200, **body):
        return self.control('POST', f'/payments/{payment}/{act}', body, status)

    def stats(self, **query):
        return self.control('GET', '/stats?' + urllib.parse.urlencode(query))

    def payments(self, **query):
        return self.control('GET', '/payments?' + urllib.parse.urlencode(query))

    def forget(self):
        self.control('DELETE', '/')


class Later:
    """A call in a thread of its own."""

    def __init__(self, function, *args, **more):
        self.result = None
        self.error = None

        def run():
            try:
                self.result = function(*args, **more)
            except Exception as error:      # noqa: it is looked at by the test
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    @property
    def running(self):
        return self.thread.is_alive()

    def wait(self):
        self.thread.join(DEADLINE)
        if self.running:
            raise TimeoutError('a call did not end')
        if self.error:
            raise self.error
        return self.result

    def failure(self):
        self.thread.join(DEADLINE)
        return self.error


def failure(function, *args, **more):
    try:
        return function(*args, **more)
    except Exception as error:              # noqa: it is looked at by the test
        return error


CLOSED = (http.client.RemoteDisconnected, http.client.BadStatusLine)


class Receiver:
    """Takes webhooks; `answers` are the statuses to give, then 200."""

    def __init__(self):
        self.got = []
        self.answers = []
        self.gate = threading.Event()
        self.gate.set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers['Content-Length']))
                receiver.gate.wait(DEADLINE)
                status = receiver.answers.pop(0) if receiver.answers else 200
                receiver.got.append((self.headers, body))
                self.send_response(status)
                self.send_header('Content-Length', '0')
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self.server.server_port}/hook'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, number):
        until(lambda: len(self.got) >= number, f'{number} webhooks')
        return [json.loads(body) for _, body in self.got]

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


def signature(secret, headers, body):
    signed = b'.'.join([headers.get('webhook-id', '').encode(),
                        headers['webhook-timestamp'].encode(), body])
    return 'v1,' + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
