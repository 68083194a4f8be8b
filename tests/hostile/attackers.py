"""Clients that mean harm, or are merely broken. Each runs until it is told to stop, opens again
what the server closes, and counts what it did: an attack that does nothing shows nothing.
"""

import contextlib
import http.client
import random
import selectors
import socket
import threading
import time

from harness.doors import S3, Http
from harness.rawmount import RawMount
from harness.wait import PATIENCE_SECONDS


class Attacker(threading.Thread):
    def __init__(self, stop):
        super().__init__(daemon=True)
        self.stop, self.acts, self.failure = stop, 0, None

    def run(self):
        while not self.stop.is_set():
            try:
                self.attack()
            except (OSError, http.client.HTTPException):
                self.stop.wait(0.2)  # the server defends itself
            except Exception as error:
                self.failure = error
                raise

    def attack(self):
        raise NotImplementedError


def address(url):
    host, port = url.split("//")[1].split(":")
    return host, int(port)


class Trickle(Attacker):
    """Requests whose heads are whole and whose bodies come a byte every few seconds."""

    def __init__(self, stop, url, heads, pause=3):
        super().__init__(stop)
        self.url, self.heads, self.pause = url, heads, pause

    def attack(self):
        connections = []
        try:
            for make in self.heads:
                connection = socket.create_connection(address(self.url), timeout=30)
                connections.append(connection)
                connection.sendall(make() + b"x")
                self.acts += 1
            while not self.stop.wait(self.pause):
                for connection in connections:
                    connection.sendall(b"x")
        finally:
            for connection in connections:
                connection.close()


def heads_of_http(url, credentials, requests):
    """Heads of requests of the HTTP door: (method, path, announced length)."""
    auth = Http(url, credentials).auth["Authorization"]
    host = url.split("//")[1]

    def head(method, path, length):
        return lambda: (
            f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {auth}\r\n"
            f"Content-Length: {length}\r\n\r\n"
        ).encode()

    return [head(*request) for request in requests]


def heads_of_s3(url, credentials, requests):
    """The same of the S3 door: signed when they are sent."""

    def head(method, path, query, length):
        def make():
            headers = S3(url, credentials).sign(method, path, query, {}, "UNSIGNED-PAYLOAD")
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            target = path + ("?" + "&".join(f"{n}={v}" for n, v in query.items()) if query else "")
            return (
                f"{method} {target} HTTP/1.1\r\n{lines}Content-Length: {length}\r\n\r\n".encode()
            )

        return make

    return [head(*request) for request in requests]


class Silent(Attacker):
    """Many connections that say nothing, or half of a head, or the beginning of a hello."""

    SAID = (b"", b"GET /storage/x HTTP/1.1\r\nHost: x\r\nX-A: ", b"\x16\x03\x01\x02\x00\x01")

    def __init__(self, stop, url, count):
        super().__init__(stop)
        self.url, self.count = url, count

    def attack(self):
        held = []
        try:
            while len(held) < self.count and not self.stop.is_set():
                connection = socket.create_connection(address(self.url), timeout=30)
                held.append(connection)
                connection.sendall(self.SAID[len(held) % len(self.SAID)])
                self.acts += 1
            self._hold(held)
        finally:
            for connection in held:
                connection.close()

    def _hold(self, held):
        """Until the server has closed half of them."""
        with selectors.DefaultSelector() as selector:
            for connection in held:
                selector.register(connection, selectors.EVENT_READ)
            while len(selector.get_map()) > len(held) / 2 and not self.stop.is_set():
                for key, _ in selector.select(timeout=0.5):
                    selector.unregister(key.fileobj)


class Guesser(Attacker):
    """Wrong credentials, with a key id that exists."""

    def __init__(self, stop, server, key_id):
        super().__init__(stop)
        self.server, self.credentials = server, (key_id, "wrong-secret-0123456789")

    def attack(self):
        doors = (Http(self.server.http, self.credentials), S3(self.server.s3, self.credentials))
        while not self.stop.is_set():
            assert doors[0].request("GET", "/storage/").status == 401
            assert doors[1].request("GET", "/").status == 403
            self.acts += 1


class Asker(Attacker):
    """Requests that take long to understand, or that nobody sends."""

    def __init__(self, stop, server):
        super().__init__(stop)
        self.server = server

    def attack(self):
        doors = (Http(self.server.http, None), S3(self.server.s3, None))
        query = "&".join(f"a{at}" for at in range(8000))
        while not self.stop.wait(0.05):
            for door in doors:
                reply = door.connection.send("GET", f"/storage/x?{query}", {}, None)
                assert reply.status in (400, 401, 403), reply
                self.acts += 1


class LyingMount(Attacker):
    """A mount that reads states as old as it can say."""

    def __init__(self, stop, server, credentials, every=2):
        super().__init__(stop)
        self.server, self.credentials, self.every = server, credentials, every

    def attack(self):
        mount = RawMount(self.server.http, self.credentials)
        try:
            mount.attach(random.getrandbits(60) | 1)
            while True:
                mount.renew(reads_from=random.choice((0, 1, 1 << 40)))
                self.acts += 1
                if self.stop.wait(self.every):
                    return
        finally:
            mount.close()


class Withholder(Attacker):
    """Makes, again and again, an object in a directory that a mount of the same user holds and
    gives back to nobody. That waits for the mount, and with it whatever waits for that."""

    NAME = "held-by-nobody-else"

    def __init__(self, stop, server, credentials, bucket):
        super().__init__(stop)
        self.server, self.credentials, self.bucket = server, credentials, bucket
        self.directory = None

    def attack(self):
        mount = RawMount(self.server.http, self.credentials)
        try:
            mount.attach(random.getrandbits(60) | 1)
            self.directory = self.directory or self._find(mount)
            mount.attributes(self.directory)
            making = threading.Thread(target=self._make, args=(str(self.acts),), daemon=True)
            making.start()
            self.acts += 1
            while making.is_alive() and not self.stop.wait(1):
                mount.renew(reads_from=1 << 40)
        finally:
            mount.close()

    def _find(self, mount):
        """The directory of the bucket is one of the first inodes."""
        self._make(self.NAME)
        told = ((inode, mount.list(inode, lease=False)[1]) for inode in range(2, 100))
        return next(inode for inode, names in told if self.NAME.encode() in names)

    def _make(self, key):
        door = Http(self.server.http, self.credentials)
        with contextlib.suppress(OSError, http.client.HTTPException):
            door.object("PUT", self.bucket, key, b"x")
        door.connection.close()


def wait_for(attackers):
    """Until each has done something."""
    end = time.monotonic() + PATIENCE_SECONDS
    for attacker in attackers:
        while attacker.acts == 0:
            assert attacker.failure is None and time.monotonic() < end, attacker
            time.sleep(0.05)
