"""Clients that take places: bodies that trickle, at each door, with a key and without, by HTTP/1.1
and HTTP/2. Others are answered all the while, and memory stays within bounds.

CAIRN_TEST_PLACES_SECONDS: how long the doors are held (3).
"""

import contextlib
import http.client
import os
import socket
import time

import pytest

from harness.doors import Http
from harness.server import Server
from hostile import frames
from hostile.attackers import address, heads_of_http, heads_of_s3
from hostile.test_hostile import MALLORY, prepare

SECONDS = float(os.environ.get("CAIRN_TEST_PLACES_SECONDS", 3))
# Each of four doors has some 40 connections.
LIMITS = ["prlimit", "--nofile=220:220"]
DOORS = ["--console", "127.0.0.1:0", "--health", "127.0.0.1:0"]
CONNECTIONS = 60
MALICIOUS, OTHERS, HONEST = "127.0.0.2", "127.0.0.3", "127.0.0.4"


@pytest.fixture(scope="module")
def server():
    with Server(wrapper=LIMITS, args=DOORS) as server:
        prepare(server)
        yield server


def status(url, path, source=HONEST, timeout=5):
    """The status of a request on a connection of its own."""
    host, port = address(url)
    connection = http.client.HTTPConnection(host, int(port), timeout, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def answers(url, source):
    """Whether a door answers a client that tries again where its connection is closed."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return status(url, "/healthz", source, timeout=15) == 200
    return False


def head_of(url, method, path, length, *lines):
    host = url.split("//")[1]
    more = "".join(f"{line}\r\n" for line in lines)
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: {length}\r\n\r\n"
    return lambda: head.encode()


def heads(server, kind):
    """The URL of a door, heads of requests that trickle there, and what is asked meanwhile."""
    form = ("Content-Type: application/x-www-form-urlencoded", f"Origin: {server.console}")
    return {
        "http, nobody": lambda: (
            server.http,
            [head_of(server.http, "PATCH", "/storage/nosuch", 60_000)],
            ("/healthz", 200),
        ),
        "http, a key": lambda: (
            server.http,
            heads_of_http(server.http, MALLORY, [("PUT", "/storage/mallory/x", 1_000_000)]),
            ("/healthz", 200),
        ),
        "console, a page": lambda: (
            server.console,
            [head_of(server.console, "GET", "/login", 500)],
            ("/login", 200),
        ),
        "console, a login": lambda: (
            server.console,
            [head_of(server.console, "POST", "/login", 500, *form)],
            ("/login", 200),
        ),
        "s3, a key": lambda: (
            server.s3,
            heads_of_s3(server.s3, MALLORY, [("PUT", "/mallory/x", {}, 1_000_000)]),
            ("/", 403),
        ),
    }[kind]()


class Holders:
    """Connections that trickle; those that the server ends are opened again."""

    def __init__(self, url, makes, source):
        self.url, self.makes, self.source = url, makes, source
        self.held, self.ended = [], 0

    def fill(self, count):
        for at in range(count - len(self.held)):
            with contextlib.suppress(OSError):
                one = socket.create_connection(address(self.url), 5, (self.source, 0))
                one.sendall(self.makes[at % len(self.makes)]() + b"x")
                one.setblocking(False)
                self.held.append(one)

    def trickle(self):
        """One byte for each, and forgets those that are closed."""
        for one in list(self.held):
            try:
                one.send(b"x")
                closed = one.recv(4096) == b""
            except BlockingIOError:
                closed = False
            except OSError:
                closed = True
            if closed:
                self.ended += 1
                self.held.remove(one)
                one.close()

    def close(self):
        for one in self.held:
            one.close()


KINDS = ["http, nobody", "http, a key", "console, a page", "console, a login", "s3, a key"]


def test_nobody_closes_a_door(server):
    """Two addresses take all that they get at each door; a third one is answered at once."""
    held = []
    for kind in KINDS:
        url, makes, _ = heads(server, kind)
        held += [Holders(url, makes, source) for source in (MALICIOUS, OTHERS)]
    asked = {heads(server, kind)[0]: heads(server, kind)[2] for kind in KINDS}
    slowest, end = 0, time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            for holders in held:
                holders.fill(CONNECTIONS)
                holders.trickle()
            for url, (path, wanted) in asked.items():
                began = time.monotonic()
                assert status(url, path) == wanted, url
                slowest = max(slowest, time.monotonic() - began)
        assert sum(len(holders.held) for holders in held) > 0, "nothing was held"
        # Whoever is at the same address waits until the slowest are ended, and no longer.
        began = time.monotonic()
        while not answers(server.http, MALICIOUS):
            assert time.monotonic() - began < 40
            for holders in held:
                holders.trickle()
            time.sleep(0.2)
        same = time.monotonic() - began
    finally:
        for holders in held:
            holders.close()
    print(f"\nthe longest {slowest:.2f} s, at the same address {same:.1f} s")
    assert slowest < 3 and same < 30


def test_health_checks_have_a_door_of_their_own(server):
    url = server.health
    assert (status(url, "/healthz"), status(url, "/readyz")) == (200, 200)
    assert status(url, "/storage/honest") == 404


@pytest.mark.parametrize("door", ["http, nobody", "http, a key", "console", "s3, nobody"])
def test_requests_of_http2_that_wait_are_small(door):
    """What each of many requests takes whose body does not come."""
    connections, streams = 40, 64
    with Server(args=["--console", "127.0.0.1:0"]) as server:
        prepare(server)
        url, block = {
            "http, nobody": (server.http, frames.head("PATCH", "/storage/nosuch")),
            "http, a key": (
                server.http,
                frames.head("PUT", "/storage/mallory/x", [frames.basic(MALLORY)]),
            ),
            "console": (
                server.console,
                frames.head("GET", "/login", [("content-length", "500")], address_of(server.console)),
            ),
            "s3, nobody": (server.s3, frames.head("PUT", "/mallory/x", [("content-length", "500")])),
        }[door]
        for _ in range(50):
            assert status(server.http, "/healthz") == 200
        before, held = rss(server), []
        for _ in range(connections):
            held.append(frames.Connection(address(url), MALICIOUS))
            held[-1].begin(block, streams)
        time.sleep(1.5)
        grown = rss(server) - before
        assert status(server.http, "/healthz") == 200
        for connection in held:
            connection.close()
    each = grown / (connections * streams)
    print(f"\n{door}: {each / 1024:.1f} KiB for a request that waits")
    assert each < 24 << 10


def address_of(url):
    return url.split("//")[1]


def rss(server):
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_user_is_served_beside_strangers_at_its_address(server):
    """Strangers hold what an address may have; a key at the same address still opens the door."""
    url = server.http
    held = [frames.Connection(address(url), MALICIOUS) for _ in range(5)]
    for connection in held:
        connection.begin(frames.head("PATCH", "/storage/nosuch"), 64)
    door = Http(url)
    assert door.object("PUT", "honest", "beside", b"x" * 1000).status in (201, 204)
    for connection in held:
        connection.close()
