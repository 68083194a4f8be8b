"""Honest clients at every door, while others do their worst: nothing fails, and nobody waits long.

CAIRN_TEST_HOSTILE_SECONDS: how long (20; a soak is 600, and also says how long requests take and
how much memory the server has).
"""

import os
import resource
import socket
import ssl
import subprocess
import threading
import time

import pytest

from harness.doors import S3, Http
from harness.mount import Mount
from harness.server import KEY, Server, scratch
from harness.wait import PATIENCE_SECONDS, eventually
from hostile import attackers
from hostile.attackers import (
    Asker,
    Guesser,
    LyingMount,
    Silent,
    Trickle,
    Withholder,
    heads_of_http,
    heads_of_s3,
    wait_for,
)

SECONDS = float(os.environ.get("CAIRN_TEST_HOSTILE_SECONDS", 20))
IS_LONG = SECONDS >= 300
QUIET_SECONDS = 60 if IS_LONG else 0
CONNECTIONS = 1500
LIMIT = 512 << 20
MALLORY, NOBODY = ("MALLORYKEY0001", "mallory-secret-0123456789"), ("NOBODYKEY00001", "n" * 24)


class Honest(threading.Thread):
    """One client that does the same again and again, and checks what it gets."""

    def __init__(self, stop, name, act):
        super().__init__(daemon=True)
        self.stop, self.name, self.act = stop, name, act
        self.times, self.failures = [], []

    def run(self):
        number = 0
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                self.act(number)
            except Exception as error:
                self.failures.append(f"{self.name} {number}: {error!r}")
            self.times.append(time.monotonic() - began)
            number += 1


def at_s3(server):
    door = S3(server.s3)

    def act(number):
        key, body = f"s3-{number % 20}", os.urandom(1000 if number % 3 else 600_000)
        reply = door.object("PUT", "honest", key, body=body)
        assert reply.status == 200, reply
        reply = door.object("GET", "honest", key)
        assert reply.status == 200 and reply.body == body, reply
        keys = "".join(f"<Object><Key>gone-{at}</Key></Object>" for at in range(100))
        body = f"<Delete>{keys}</Delete>".encode()
        reply = door.request("POST", "/honest", {"delete": ""}, body)
        assert reply.status == 200, reply

    return act


def at_http(server):
    def act(number):
        door = Http(server.http)  # a new connection each time
        key, body = f"http-{number % 20}", os.urandom(1000 if number % 3 else 600_000)
        reply = door.object("PUT", "honest", key, body=body)
        assert reply.status in (201, 204), reply
        reply = door.object("GET", "honest", key)
        assert reply.status == 200 and reply.body == body, reply
        reply = door.object("POST", "honest", f"log-{number % 7}-{os.getpid()}", body=body)
        assert reply.status == 200, reply
        door.connection.close()

    return act


def at_mount(root):
    def act(number):
        path, data = root / f"file-{number % 20}", os.urandom(20_000)
        path.write_bytes(data)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        assert path.read_bytes() == data
        path.rename(root / f"moved-{number % 20}")
        assert f"moved-{number % 20}" in os.listdir(root)

    return act


def work(server, root, seconds):
    """What honest clients saw in that time."""
    stop = threading.Event()
    acts = {"s3": at_s3(server), "http": at_http(server), "mount": at_mount(root)}
    clients = [Honest(stop, name, act) for name, act in acts.items()]
    for client in clients:
        client.start()
    time.sleep(seconds)
    busy = lambda: all(len(client.times) >= 3 for client in clients)  # noqa: E731
    eventually(busy, "all honest clients do something")
    stop.set()
    for client in clients:
        client.join(timeout=PATIENCE_SECONDS)
        assert not client.is_alive(), f"{client.name} does not come back"
    return clients


def hostile(stop, server):
    """All of them, started."""
    own, open_, https = "/storage/mallory", "/storage/honest", server.http
    uploads = [("PUT", f"{own}/{at}", 1_000_000) for at in range(256)]
    appends = [("POST", f"{own}/log", 4 << 20) for _ in range(40)]
    settings = [("PATCH", path, 60_000) for path in (own, open_) for _ in range(10)]
    deletes = [
        ("POST", f"/{bucket}", {"delete": ""}, 2 << 20)
        for bucket in ("mallory", "honest", "nosuch")
        for _ in range(20)
    ]
    parts = [("PUT", f"/mallory/s3-{at}", {}, 1_000_000) for at in range(100)]
    all_of_them = [
        Trickle(stop, https, heads_of_http(https, MALLORY, uploads)),
        Trickle(stop, https, heads_of_http(https, MALLORY, appends)),
        Trickle(stop, https, heads_of_http(https, MALLORY, settings)),
        Trickle(stop, server.s3, heads_of_s3(server.s3, MALLORY, deletes)),
        Trickle(stop, server.s3, heads_of_s3(server.s3, MALLORY, parts)),
        Silent(stop, server.http, CONNECTIONS // 2),
        Silent(stop, server.s3, CONNECTIONS // 2),
        Guesser(stop, server, KEY),
        Asker(stop, server),
        *[LyingMount(stop, server, MALLORY) for _ in range(10)],
        *[LyingMount(stop, server, NOBODY) for _ in range(2)],
        Withholder(stop, server, MALLORY, "mallory"),
    ]
    for attacker in all_of_them:
        attacker.start()
    wait_for(all_of_them)
    return all_of_them


def prepare(server):
    root = Http(server.http)
    root.create_bucket("honest", "public")
    for user, (key, secret) in (("mallory", MALLORY), ("nobody", NOBODY)):
        body = f'{{"user":"{user}","id":"{key}","secret":"{secret}"}}'.encode()
        headers = {"Content-Type": "application/json"}
        reply = root.request("POST", "/admin/keys", body, headers)
        assert reply.status == 201, reply
    Http(server.http, MALLORY).create_bucket("mallory")
    # Inodes that the mounts can name.
    for number in range(10):
        assert root.object("PUT", "honest", f"first-{number}", b"x").status == 201


def percentile(clients, name):
    times = sorted(next(client for client in clients if client.name == name).times)
    return times[min(len(times) - 1, len(times) * 99 // 100)]


def test_honest_clients_do_not_notice(capsys):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    place, stop = scratch("hostile"), threading.Event()
    with Server() as server, Mount(server, place / "mount", bucket="honest") as mount:
        prepare(server)
        quiet = work(server, mount.root, QUIET_SECONDS) if IS_LONG else []
        server.reset_rss_peak()
        attacking = hostile(stop, server)
        clients = work(server, mount.root, SECONDS)
        stop.set()
        peak = server.rss_peak_bytes()
        for attacker in attacking:
            attacker.join(timeout=PATIENCE_SECONDS)
        # And afterwards all is as before.
        after = work(server, mount.root, 1)
    failures = [failure for client in clients + after for failure in client.failures]
    assert not failures, failures[:10]
    assert [attacker for attacker in attacking if attacker.failure] == []
    with capsys.disabled():
        counts = {client.name: len(client.times) for client in clients}
        worst = max(max(client.times) for client in clients)
        print(f"\nhostile, {SECONDS:.0f} s: {counts} rounds of honest clients, the longest "
              f"{worst:.2f} s; peak RSS {peak >> 20} MiB")  # fmt: skip
    if IS_LONG:
        assert peak < LIMIT
        for client in quiet:
            p99, before = percentile(clients, client.name), percentile(quiet, client.name)
            assert p99 < 10 * before, f"{client.name}: {p99:.3f} s, and {before:.3f} s before"


def connected(server):
    where = attackers.address(server.http)
    return socket.create_connection(where, timeout=PATIENCE_SECONDS)


def test_few_descriptors_are_divided_among_the_doors():
    """A process that may open few files: one door that is full leaves the other as it was."""
    limits = ["prlimit", "--nofile=200:200"]
    with Server(wrapper=limits) as server:
        held = []
        for _ in range(260):
            held.append(connected(server))
        assert S3(server.s3).request("GET", "/").status == 200
        for connection in held:
            connection.close()


def test_silent_connections_keep_no_handshake_waiting(work):
    """Connections that say nothing, half of a hello, or all of it and no more."""
    certificate, key = work / "cert.pem", work / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1",
         "-addext", "basicConstraints=critical,CA:FALSE"],
        check=True, capture_output=True,
    )  # fmt: skip
    hello = first_bytes_of_a_handshake()
    with Server(args=["--tls-cert", certificate, "--tls-key", key]) as server:
        held = []
        for number in range(240):
            held.append(connected(server))
            held[-1].sendall((b"", hello[:7], hello)[number % 3])
        for _ in range(10):
            door = Http(server.http, cafile=str(certificate))
            assert door.request("GET", "/storage/").status == 200
            door.connection.close()
        for connection in held:
            connection.close()


def first_bytes_of_a_handshake():
    out, context = ssl.MemoryBIO(), ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


@pytest.fixture(autouse=True)
def _limits():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
