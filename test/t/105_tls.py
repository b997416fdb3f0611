"""https: unknown, wrong and expired certificates, and what else goes wrong before a connection is safe.

A10, C29: nothing is sent to a server that has not proven who it is: unsent, the session stays registering, nothing is fixed.
"""

import os
import ssl
import subprocess
import tempfile

from payflow_test import Lab, done_testing, is_, like, ok, poll
from wire import Front, close

OPTIONS = {"breaker_failures": "1000000", "connect_timeout": "20 s"}


KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]


class Authority:
    """A private CA; its folder can be read by the server."""

    def __init__(self, folder, name):
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        self.ca_file = os.path.join(self.folder, "ca.pem")
        self.openssl("req", "-x509", *KEY, "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "30",
                     "-subj", f"/CN={name}")
        for file in ("index.txt", "index.txt.attr"):
            self.write(file, "")
        self.write("ca.conf", "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\n"
                   "certificate=ca.pem\nprivate_key=ca.key\ndefault_md=sha256\npolicy=p\nunique_subject=no\n[p]\n"
                   "commonName=supplied\n")
        os.chmod(self.folder, 0o755)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def certificate(self, name, subject="IP:127.0.0.1", start="20200101000000Z", end="20990101000000Z"):
        """A certificate and its key: the options of the test provider."""
        self.openssl("req", *KEY, "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                     "-subj", f"/CN={name}")
        self.write(f"{name}.ext", f"subjectAltName={subject}\n")
        self.openssl("ca", "-batch", "-notext", "-config", "ca.conf", "-in", f"{name}.csr", "-out", f"{name}.pem",
                     "-startdate", start, "-enddate", end, "-extfile", f"{name}.ext")
        return ["--tls-cert", os.path.join(self.folder, f"{name}.pem"), "--tls-key", os.path.join(self.folder, f"{name}.key")]


def tls_context(options):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options[1], options[3])
    return context


def create(lab, order, provider):
    return lab.row("SELECT * FROM payflow.create(%s, 1000, 'EUR', provider => %s)", [order, provider])


def attempt(lab, pay, n=1):
    """The n-th attempt to register."""
    return poll(lambda: lab.journal(pay.session_id, "register")[n - 1:n], what="the end of an attempt")[0]


def not_sent(lab, pay, name, why):
    """Nothing has left: registering, the mark is taken back."""
    first = attempt(lab, pay)
    row = lab.session(pay.session_id)
    is_((first.outcome, first.http_status, row.status, row.first_sent_at, row.endpoint),
        ("unsent", None, "registering", None, None), f"{name}: unsent, registering, nothing is fixed")
    like(first.detail["error"], why, "the journal says why")


def registers(lab, provider, pay, name):
    lab.ring(pay.session_id)
    is_(lab.poll_session(pay.session_id, "registered", "failed", "canceled").status, "registered", f"{name}: registered")
    is_((provider.stats(reference=pay.session_id)["calls"]["register"], provider.stats(reference=pay.session_id)["payments"]),
        (1, 1), "one Register, one payment")


def goes_on(lab, order):
    pay = create(lab, order, "sandbox")
    is_(lab.row("SELECT * FROM payflow.wait(%s::uuid, '30 seconds')", [pay.session_id]).status, "registered",
        "another provider goes on")


def certificates(lab, authority, stranger, good):
    """Each refused until the options are right, then taken from the next call on.

    protection: libcurl's checks of certificate and name, which http.c leaves on.
    """
    cases = {
        "unknown authority": (authority.certificate("plain"), None, "self-signed certificate in certificate chain|issuer"),
        "another authority": (authority.certificate("other"), stranger.ca_file, "self-signed certificate|issuer|signature"),
        "wrong name": (authority.certificate("wrong", "DNS:other.example,IP:127.0.0.2"), authority.ca_file,
                       "does not match|no alternative"),
        "expired": (authority.certificate("expired", end="20210101000000Z"), authority.ca_file, "expired"),
        "not yet valid": (authority.certificate("early", start="20980101000000Z"), authority.ca_file, "not yet valid"),
        "another's certificate": (stranger.certificate("stranger"), authority.ca_file, "self-signed certificate|issuer"),
    }
    for name, (files, ca_file, why) in cases.items():
        provider = lab.start_provider(*files)
        lab.add_server(name, provider.url, **OPTIONS, **({"ca_file": ca_file} if ca_file else {}))
        pay = create(lab, name, name)
        not_sent(lab, pay, name, why)
        is_(sum(provider.stats()["calls"].values()), 0, "the provider has read nothing")
        if name in ("unknown authority", "another authority", "another's certificate"):
            right = stranger.ca_file if name == "another's certificate" else authority.ca_file
            lab.sql(f"""ALTER SERVER "{name}" OPTIONS ({'SET' if ca_file else 'ADD'} ca_file '{right}')""")
            registers(lab, provider, pay, f"{name}, then ca_file is right")
        else:
            lab.sql(f"""ALTER SERVER "{name}" OPTIONS (SET endpoint '{good.url}')""")
            registers(lab, good, pay, f"{name}, then the endpoint is another")
    goes_on(lab, "beside certificates")


def ca_files(lab, authority, stranger, good):
    """The file itself: missing, no certificate, a new content at the old place; the server setting.

    protection: http.c sets CURLOPT_CA_CACHE_TIMEOUT; by default libcurl keeps what it has read for a day.
    """
    path = os.path.join(authority.folder, "replaced.pem")
    lab.add_server("file", good.url, ca_file=path, **OPTIONS)
    pay = create(lab, "file", "file")
    not_sent(lab, pay, "no such file", "certificate file: .*replaced.pem")
    authority.write("replaced.pem", "this is no certificate\n")
    lab.ring(pay.session_id)
    is_(attempt(lab, pay, 2).outcome, "unsent", "no certificate in it: unsent")
    goes_on(lab, "beside files")

    with open(stranger.ca_file, encoding="utf-8") as file:
        authority.write("replaced.pem", file.read())
    poll(lambda: lab.ring(pay.session_id) and
         any("issuer" in e.detail["error"] or "self-signed" in e.detail["error"]
             for e in lab.journal(pay.session_id, "register")), what="the wrong authority to be read")
    with open(authority.ca_file, encoding="utf-8") as file:
        authority.write("replaced.pem", file.read())
    poll(lambda: lab.ring(pay.session_id) and lab.session(pay.session_id).status == "registered",
         what="the file's new content to be read")
    is_(good.stats(reference=pay.session_id)["payments"], 1, "a new content at the old place is read soon: registered")

    lab.add_server("setting", good.url, **OPTIONS)
    pay = create(lab, "setting", "setting")
    not_sent(lab, pay, "neither option nor setting", "issuer|self-signed")
    lab.sql(f"ALTER SYSTEM SET payflow.ca_file = '{authority.ca_file}'")
    lab.sql("SELECT pg_reload_conf()")
    poll(lambda: lab.ring(pay.session_id) and lab.session(pay.session_id).status == "registered",
         what="the setting to be in force")
    is_(good.stats(reference=pay.session_id)["calls"]["register"], 1, "payflow.ca_file: registered by one call")
    lab.sql("ALTER SYSTEM RESET payflow.ca_file")
    lab.sql("SELECT pg_reload_conf()")


def handshakes(lab, authority, good):
    """What can happen on the way to a safe connection."""
    context = tls_context(authority.certificate("front"))
    held = []

    def mute(connection):
        held.append(connection.dup())
        connection.settimeout(0.1)
        try:
            while connection.recv(65536):
                pass
        except OSError:
            pass
        return False

    knocks = {
        "closed at once": lambda connection: False,
        "closed in the handshake": lambda connection: (connection.recv(100), False)[1],
        "another protocol": lambda connection: (connection.sendall(b"220 mail.example ESMTP\r\n"), False)[1],
        "an alert": lambda connection: (connection.recv(100), connection.sendall(b"\x15\x03\x03\x00\x02\x02\x28"), False)[2],
        "silent": mute,
    }
    for name, knock in knocks.items():
        front = Front(good.url, context)
        front.knock = knock
        lab.add_server(name, front.url, ca_file=authority.ca_file,
                       **{**OPTIONS, "connect_timeout": "1 s" if name == "silent" else "20 s"})
        pay = create(lab, name, name)
        not_sent(lab, pay, name, ".")
        is_(front.requests, [], "nothing was sent")
    for connection in held:
        connection.close()

    # The right one, but without TLS; and TLS where none is expected.
    lab.add_server("no TLS there", lab.url.replace("http:", "https:"), ca_file=authority.ca_file, **OPTIONS)
    not_sent(lab, create(lab, "no TLS there", "no TLS there"), "no TLS there", ".")
    is_(lab.stats(order="no TLS there")["calls"]["register"], 0, "nothing was sent")
    lab.add_server("no TLS here", good.url.replace("https:", "http:"), **OPTIONS)
    pay = create(lab, "no TLS here", "no TLS here")
    first = attempt(lab, pay)
    is_((first.outcome, first.to_status), ("lost", "unknown"), "TLS where http is spoken: lost, unknown")
    goes_on(lab, "beside handshakes")


def kept_connection(lab, authority, good):
    """The same as over TCP: a kept connection that is closed after the next request was read.

    protection: http.c on_request() refuses the second sending of a call that must be sent once.
    """
    front = Front(good.url, tls_context(authority.certificate("kept")))
    front.target = front.target._replace(netloc=lab.url.split("//")[1])
    lab.add_server("kept", front.url, ca_file=authority.ca_file, **OPTIONS)
    one = create(lab, "keeps", "kept")
    is_(lab.poll_session(one.session_id, "registered").status, "registered", "a TLS connection is left open")
    lab.quiet(one.session_id)
    front.plan("register", "kept", close)
    pay = create(lab, "kept", "kept")
    first = attempt(lab, pay)
    posts = front.sent("register", "kept")
    is_((first.outcome, first.to_status, len(posts)), ("lost", "unknown", 1), "closed: one POST within the attempt, unknown")
    ok(posts[0].nth > 1, "it had come over the kept connection")
    is_(lab.poll_session(pay.session_id, "registered").status, "registered", "then registered")
    posts = front.sent("register", "kept")
    is_((len(posts), len({(p.body, p.headers["idempotency-key"]) for p in posts}), lab.stats(order="kept")["payments"]),
        (2, 1, 1), "the same bytes and key, one payment")


with Lab(workers=1) as lab, tempfile.TemporaryDirectory(prefix="pf") as folder:
    os.chmod(folder, 0o755)
    authority, stranger = Authority(folder, "ca"), Authority(folder, "stranger")
    good = lab.start_provider(*authority.certificate("good"))
    certificates(lab, authority, stranger, good)
    ca_files(lab, authority, stranger, good)
    handshakes(lab, authority, good)
    kept_connection(lab, authority, good)
    is_(lab.alerts(), set(), "no alert so far: it may pass")
    lab.finish()
done_testing()
