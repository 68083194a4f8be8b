"""Clients that ask for all they can and take nothing: the server's memory is bounded, another client is answered, and
nothing that it was told is lost."""

import contextlib
import itertools
import os
import random
import socket
import threading
import time

from harness.wait import eventually

from nfs import rpc

SECONDS = float(os.environ.get("CAIRN_TEST_NFS_HOSTILE", 4))
# What docs/nfs.md says that calls, replies and unstable bytes may take, and as much again.
RSS_BYTES = 2 * (128 + 64 + 128 + 16) << 20
MIB = 1 << 20


class Hostile(threading.Thread):
    """Does one thing from an address of its own until it is stopped."""

    addresses = itertools.count(2)

    def __init__(self, address, work):
        super().__init__(daemon=True)
        host, port = address.rsplit(":", 1)
        self.door, self.work = (host, int(port)), work
        self.source = f"127.0.0.{next(self.addresses)}"
        self.is_stopped = threading.Event()
        self.held = []

    def run(self):
        while not self.is_stopped.is_set():
            # Closed, or not taken any more: so it comes again.
            with contextlib.suppress(OSError):
                self.work(self)
        for connection in self.held:
            connection.close()

    def connect(self):
        connection = socket.create_connection(self.door, 1, source_address=(self.source, 0))
        self.held.append(connection)
        if len(self.held) > 300:
            self.held.pop(0).close()
        return connection

    def flood(self, call):
        """Calls without end, whose replies are thrown away."""
        connection = self.connect()

        def drain():
            with contextlib.suppress(OSError):
                while connection.recv(1 << 16):
                    pass

        threading.Thread(target=drain, daemon=True).start()
        while not self.is_stopped.is_set():
            connection.sendall(b"".join(framed(call()) for _ in range(16)))


def framed(call):
    return rpc.number(1 << 31 | len(call)) + call


def attacks(top, file, files):
    read = rpc.call(rpc.NFS, rpc.READ, rpc.data(file) + rpc.long(0) + rpc.number(MIB))

    def write():
        offset, bytes_ = random.randrange(1 << 30), b"x" * 60_000
        where = rpc.data(random.choice(files)) + rpc.long(offset)
        return rpc.call(rpc.NFS, rpc.WRITE, where + rpc.number(len(bytes_)) + rpc.number(0) + rpc.data(bytes_))

    def listing(cookie):
        wanted = rpc.data(top) + rpc.long(cookie) + rpc.long(0) + rpc.number(MIB) * 2
        return rpc.call(rpc.NFS, 17, wanted)

    def silent(hostile):
        hostile.connect().sendall(framed(read) * 100)

    def partial(hostile):
        hostile.connect().sendall(rpc.number(1 << 31 | MIB) + b"x" * (MIB - 1))

    def again(hostile):
        with hostile.connect() as connection:
            connection.sendall(framed(rpc.mkdir(top, f"directory-{random.random()}")) * 8)

    yield from (silent, partial, again)
    for call in [
        lambda: rpc.remove(top, f"none-{random.random()}"),
        write,
        lambda: listing(0),
        lambda: listing(random.randrange(1 << 62)),
        lambda: rpc.call(rpc.NFS, rpc.GETATTR, rpc.data(os.urandom(44))),
        lambda: rpc.call(rpc.NFS, rpc.WRITE, os.urandom(200)),
    ]:
        yield lambda hostile, call=call: hostile.flood(call)


def test_hostile_clients_cost_others_time_and_nothing_else(nfs, exported):
    client = rpc.Client(nfs.nfs)
    top = client.mount(f"/{exported}")
    big, mine = client.made(rpc.create(top, "big")), client.made(rpc.create(top, "mine"))
    client.write(big, b"x" * MIB, rpc.FILE_SYNC)
    shared = client.made(rpc.mkdir(top, "shared"))
    files = [client.made(rpc.create(shared, f"file-{number}")) for number in range(50)]
    for number in range(1000):
        client.send(rpc.create(shared, f"name-{number}"))
        client.receive()
    hostile = [Hostile(nfs.nfs, work) for work in attacks(shared, big, files)]
    for one in hostile:
        one.start()
    end, peak, answered = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end or answered < 3:
        answered += 1
        bytes_ = str(answered).encode()
        client.write(mine, bytes_, rpc.FILE_SYNC)
        assert client.read(mine) == bytes_
        client.made(rpc.create(top, f"mine-{answered}"))
        peak = max(peak, nfs.rss_bytes())
    for one in hostile:
        one.is_stopped.set()
    for one in hostile:
        one.join()
    print(f"{answered} rounds, {peak >> 20} MiB")
    assert peak < RSS_BYTES
    eventually(lambda: nfs.rss_bytes() < RSS_BYTES // 2, "memory is given back")
    nfs.kill()
    assert nfs.fsck()[0] == 0
    nfs.restart()
    client = rpc.Client(nfs.nfs)
    assert client.read(mine) == str(answered).encode()
    for number in range(1, answered + 1):
        assert client.lookup(top, f"mine-{number}"), number
