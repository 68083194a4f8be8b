"""Syslog over TCP: both framings, a stock sender, and a server that is stopped."""

import json
import resource
import select
import shutil
import signal
import socket
import ssl
import subprocess

import pytest
from harness.doors import Http
from harness.server import Server, binary
from harness.wait import eventually

from logs import sink
from logs.certificates import Certificates


@pytest.fixture
def server():
    args = ["--syslog", "127.0.0.1:0", "--syslog-user", "root"]
    with Server(args=args) as running:
        yield running


def connect(server):
    host, port = server.syslog.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


def messages(server, source):
    try:
        return [line["message"] for line in sink.lines(server).get(source, [])]
    except AssertionError:  # there is no bucket yet
        return []


def test_both_framings_are_taken_in_order(server):
    expected = [f"message {n}" for n in range(500)]
    with connect(server) as sender:
        for n, text in enumerate(expected):
            line = f"<165>1 2026-11-26T13:31:57Z box app {n} - - {text}".encode()
            sender.sendall(line + b"\n" if n % 2 else b"%d %s" % (len(line), line))
        sender.sendall(b"<13>of former times")
    eventually(lambda: len(messages(server, "box")) == 500, "all come")
    assert messages(server, "box") == expected
    eventually(lambda: messages(server, "127.0.0.1") == ["of former times"], "the last comes, too")


def test_what_is_no_syslog_ends_its_connection_only(server):
    with connect(server) as bad, connect(server) as good:
        bad.sendall(b"<13>1 - box - - - - first\n99999999 x")
        assert bad.recv(1) == b""
        good.sendall(b"<13>1 - box - - - - second\n")
        eventually(lambda: sorted(messages(server, "box")) == ["first", "second"], "both come")


def test_a_stop_stores_what_has_come_whole(server):
    with connect(server) as sender:
        sender.sendall(b"<13>1 - box - - - - whole\n<13>1 - box - - - - half")
        eventually(lambda: messages(server, "box") == ["whole"], "it comes")
        assert server.stop() == 0
    server.start()
    assert messages(server, "box") == ["whole"]


def test_logger_sends(server):
    host, port = server.syslog.rsplit(":", 1)
    command = ["logger", "--server", host, "--port", port, "--tcp", "--rfc5424=notime", "--octet-count"]
    subprocess.run([*command, "it works"], check=True, timeout=60)
    found = lambda: [line for lines in sink.lines(server).values() for line in lines]  # noqa: E731
    eventually(lambda: any(messages(server, source) for source in [socket.gethostname()]), "it comes")
    assert [line["message"] for line in found()] == ["it works"]


def test_one_sender_leaves_connections_to_others(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    held = []
    try:
        held += [connect(server) for _ in range(900)]
        is_closed = lambda: len(select.select(held, [], [], 0)[0]) >= 100  # noqa: E731
        eventually(is_closed, "what is beyond its share is closed")
        host, port = server.syslog.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 30, ("127.0.0.2", 0)) as other:
            other.sendall(b"<13>1 - other - - - - it works\n")
            eventually(lambda: messages(server, "other") == ["it works"], "another one comes in")
    finally:
        for sender in held:
            sender.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_token_that_has_expired_stores_nothing():
    with Server(args=["--syslog", "127.0.0.1:0", "--syslog-user", "alice"]) as server:
        root, kind = Http(server.http), {"Content-Type": "application/json"}
        ask = lambda path, **body: root.request("POST", path, json.dumps(body).encode(), kind).json()  # noqa: E731
        key = ask("/admin/keys", user="alice")["id"]
        token = ask("/admin/tokens", user="alice", expires_s=1)["token"]
        assert root.request("DELETE", f"/admin/keys/{key}").status == 204
        bearer = {"Authorization": f"Bearer {token}"}
        status = lambda: Http(server.http).request("GET", "/storage/", None, bearer).status  # noqa: E731
        eventually(lambda: status() == 401, "it expires")
        with connect(server) as sender:
            sender.sendall(b"<13>1 - box - - - - x\n")
            eventually(lambda: "a token that is good" in server.tail(), "it is said why")
            assert root.request("GET", "/storage/logs-alice").status == 404


def shaken(server, certificates, name):
    """A connection over TLS, with a certificate or without."""
    context = ssl.create_default_context(cafile=certificates.work / "cert.pem")
    if name:
        context.load_cert_chain(certificates.work / f"{name}.pem", certificates.work / f"{name}.key")
    return context.wrap_socket(connect(server), server_hostname="127.0.0.1")


def send_as(server, certificates, name, message):
    with shaken(server, certificates, name) as sender:
        line = f"<13>1 - {name} - - - - {message}".encode()
        sender.sendall(b"%d %s" % (len(line), line))
        sender.unwrap().close()


def is_refused(server, certificates, name):
    try:
        with shaken(server, certificates, name) as sender:
            sender.sendall(b"<13>1 - refused - - - - no\n")
            return sender.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def test_only_senders_with_a_certificate_send(work):
    certificates = Certificates(work)
    # From anywhere: certificates are enough.
    args = ["0.0.0.0:0" if word == "127.0.0.1:0" else word for word in certificates.args()]
    with Server(args=args) as server:
        server.cafile = work / "cert.pem"
        server.syslog = server.syslog.replace("0.0.0.0", "127.0.0.1")
        send_as(server, certificates, "sender", "first")
        eventually(lambda: messages(server, "sender") == ["first"], "it comes")
        for other in ("stranger", None):
            assert is_refused(server, certificates, other)
        with connect(server) as plain:
            plain.sendall(b"<13>1 - plain - - - - no\n")
            while plain.recv(100):  # perhaps an alert
                pass
        # Another authority from here on.
        shutil.copy(work / "others.pem", work / "senders.pem")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "certificate reloaded" in server.tail(), "it is read again")
        assert is_refused(server, certificates, "sender")
        send_as(server, certificates, "stranger", "second")
        eventually(lambda: messages(server, "stranger") == ["second"], "it comes")
        assert set(sink.lines(server)) == {"sender", "stranger"}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--syslog-tls"], "--tls-cert"),
        (["--syslog-client-ca", "senders.pem"], "--syslog-tls"),
        (["--syslog", "0.0.0.0:0"], "--syslog-client-ca"),
    ],
)
def test_options_that_would_let_anybody_in_are_refused(work, args, why):
    door = [] if "--syslog" in args else ["--syslog", "127.0.0.1:0"]
    command = [binary(), "server", work / "data", *door, "--syslog-user", "root", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and why in done.stderr, done.stderr
