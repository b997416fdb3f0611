"""A front of the test provider, for faults of the connection itself.

A Front listens on a port and passes what comes to the test provider, byte for
byte, connections kept.  It writes down every request that it has read, so what
was really sent can be counted, and does something else to those for which
something is planned:

    front = Front(lab.url)
    lab.add_server("front", front.url)
    front.plan("register", "A-1", close, answer(b"HTTP/1.1 200 OK\r\n..."))

plans for the first and the second Register of order A-1; later ones are passed
on.  An act is a function of (front, connection, request) that returns whether
to keep the connection.
"""

import http.client
import json
import socket
import struct
import threading
import urllib.parse


class Request:
    """What came as the nth request over a connection: method, path, headers (names in lower case), body; operation and
    order as the test provider calls them."""

    def __init__(self, connection, nth, head):
        first, *lines = head.decode("latin-1").split("\r\n")
        self.connection = connection
        self.nth = nth
        self.method, self.path, _ = first.split(" ", 2)
        self.headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines if line)}
        self.body = b""
        self.operation, self.order = None, None


class Front:
    """See above.  tls: an ssl.SSLContext, to speak https.

    knock, if set, is a function of a new connection's socket that returns
    whether to go on with it.
    """

    def __init__(self, target, tls=None):
        self.target = urllib.parse.urlsplit(target)
        self.knock = None
        self.tls = tls
        self.requests = []
        self.knocks = 0
        self.released = threading.Event()
        self._plans = {}
        self._orders = {}
        self._lock = threading.Lock()
        self._open = set()
        self._listener = None
        self.port = 0
        self.open_door()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    # the door

    def open_door(self):
        """Listen, on the same port as before."""
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen(200)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def close_door(self):
        """Refuse connections from now on, and end those that are open."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def hang_up(self):
        """End all connections that are open now."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def release(self):
        """Let go what waits in silent()."""
        self.released.set()

    # what came

    def plan(self, operation, order, *acts):
        with self._lock:
            self._plans.setdefault((operation, order), []).extend(acts)

    def sent(self, operation, order):
        """The requests of an operation about an order that have come."""
        with self._lock:
            return [r for r in self.requests if (r.operation, r.order) == (operation, order)]

    # inside

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with self._lock:
            self.knocks += 1
            number = self.knocks
        try:
            if self.knock is None or self.knock(connection):
                if self.tls is not None:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                with self._lock:
                    self._open.add(connection)
                nth, rest = 0, b""
                while True:
                    head, rest = self._read_to(connection, rest, b"\r\n\r\n")
                    nth += 1
                    request = Request(number, nth, head)
                    length = int(request.headers.get("content-length", 0))
                    while len(rest) < length:
                        rest += self._receive(connection)
                    request.body, rest = rest[:length], rest[length:]
                    if not self._note(request)(self, connection, request):
                        break
        except (OSError, http.client.HTTPException):
            pass
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    @staticmethod
    def _receive(connection):
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError
        return data

    def _read_to(self, connection, data, end):
        while end not in data:
            data += self._receive(connection)
        head, _, rest = data.partition(end)
        return head, rest

    def _note(self, request):
        """Write a request down; returns what is to be done with it."""
        path = urllib.parse.urlsplit(request.path)
        with self._lock:
            if request.method == "POST" and path.path == "/v1/payments":
                body = json.loads(request.body)
                request.operation, request.order = "register", body["order"]
                self._orders[body["reference"]] = body["order"]
            elif "reference" in (query := urllib.parse.parse_qs(path.query)):
                request.operation, request.order = "find", self._orders.get(query["reference"][0])
            else:
                word = path.path.split("/")[-1]
                request.operation = word if request.method == "POST" else "get"
                request.order = self._orders.get(path.path.split("/")[3])
            self.requests.append(request)
            acts = self._plans.get((request.operation, request.order))
            return acts.pop(0) if acts else pass_on

    def ask_provider(self, request):
        """The test provider's answer to a request: status line to the end of the body."""
        upstream = http.client.HTTPConnection(self.target.hostname, self.target.port, timeout=60)
        try:
            skipped = ("host", "connection", "content-length")
            upstream.request(request.method, request.path, request.body or None,
                             {name: value for name, value in request.headers.items() if name not in skipped})
            response = upstream.getresponse()
            body = response.read()
        finally:
            upstream.close()
        try:
            payment = json.loads(body)
            with self._lock:
                self._orders[payment["id"]] = payment["order"]
        except (ValueError, KeyError, TypeError):
            pass
        return (f"HTTP/1.1 {response.status} {response.reason}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode() + body


# ---- acts --------------------------------------------------------------------

def pass_on(front, connection, request):
    connection.sendall(front.ask_provider(request))
    return True


def close(_front, _connection, _request):
    """Close without an answer, the request read and not passed on."""
    return False


def pass_on_and_close(front, _connection, request):
    """Have it done, and close without an answer."""
    front.ask_provider(request)
    return False


def reset(_front, connection, _request):
    """Have the system send a reset where it would close."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def silent(front, _connection, _request):
    """Say nothing until released."""
    front.released.wait()
    return False


def answer(data, keep=False):
    """Send these bytes."""
    def act(_front, connection, _request):
        connection.sendall(data)
        return keep
    return act


def with_headers(lines, keep=True):
    """Pass it on, and put these lines into the answer's header."""
    def act(front, connection, request):
        first, rest = front.ask_provider(request).split(b"\r\n", 1)
        connection.sendall(b"\r\n".join([first, *lines, rest]))
        return keep
    return act


def padded(size):
    """Pass it on, and let so many blanks follow the answer's body."""
    def act(front, connection, request):
        head, body = front.ask_provider(request).split(b"\r\n\r\n", 1)
        head = head.replace(b"Content-Length: %d" % len(body), b"Content-Length: %d" % (len(body) + size))
        connection.sendall(head + b"\r\n\r\n" + body + b" " * size)
        return True
    return act


def drip(begin, data):
    """Send data again and again, a little at a time, as long as somebody listens or until released."""
    def act(front, connection, _request):
        connection.sendall(begin)
        while not front.released.wait(0.05):
            connection.sendall(data)
        return False
    return act


# ---- ports -------------------------------------------------------------------

class DeafPort:
    """A port whose queue of connections is full and is never looked at: a connection is neither made nor refused."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        address = self.listener.getsockname()
        self.url = f"http://127.0.0.1:{address[1]}"
        self.waiting = []
        while True:
            connection = socket.socket()
            connection.settimeout(0.3)
            self.waiting.append(connection)
            try:
                connection.connect(address)
            except OSError:
                break

    def close(self):
        for connection in [*self.waiting, self.listener]:
            connection.close()
