"""A client of NFS version 3 that asks for what a test says, and can send a call again."""

import itertools
import socket
import struct

from harness.wait import PATIENCE_SECONDS

NFS, MOUNT = 100_003, 100_005
GETATTR, LOOKUP, READ, WRITE, CREATE, MKDIR = 1, 3, 6, 7, 8, 9
REMOVE, RMDIR, RENAME, LINK, READDIR, COMMIT = 12, 13, 14, 15, 16, 21
UNSTABLE, FILE_SYNC = 0, 2
xids = itertools.count(1000)


def number(value):
    return struct.pack(">I", value)


def long(value):
    return struct.pack(">Q", value)


def data(value):
    value = value.encode() if isinstance(value, str) else value
    return number(len(value)) + value + b"\0" * (-len(value) % 4)


MODE_ONLY = number(1) + number(0o755) + number(0) * 5


def call(program, procedure, arguments):
    """A call by root, as bytes without a record mark."""
    credentials = number(0) + data("test") + number(0) * 3
    head = [next(xids), 0, 2, program, 3, procedure, 1]
    return b"".join(map(number, head)) + data(credentials) + number(0) * 2 + arguments


def create(directory, name):
    """A file that must not be there."""
    return call(NFS, CREATE, data(directory) + data(name) + number(1) + MODE_ONLY)


def mkdir(directory, name):
    return call(NFS, MKDIR, data(directory) + data(name) + MODE_ONLY)


def remove(directory, name, procedure=REMOVE):
    return call(NFS, procedure, data(directory) + data(name))


def rename(directory, source, target):
    return call(NFS, RENAME, data(directory) + data(source) + data(directory) + data(target))


def link(file, directory, name):
    return call(NFS, LINK, data(file) + data(directory) + data(name))


def write(file, offset, bytes_, stable):
    arguments = data(file) + long(offset) + number(len(bytes_)) + number(stable)
    return call(NFS, WRITE, arguments + data(bytes_))


def commit(file):
    return call(NFS, COMMIT, data(file) + long(0) + number(0))


class Reply:
    """What comes behind the status of a reply."""

    def __init__(self, bytes_):
        self.rest = bytes_

    def take(self, count):
        taken, self.rest = self.rest[:count], self.rest[count:]
        assert len(taken) == count, "the reply ends too early"
        return taken

    def number(self):
        return struct.unpack(">I", self.take(4))[0]

    def data(self):
        length = self.number()
        return self.take(length + -length % 4)[:length]

    def skip_attributes(self):
        if self.number():
            self.take(84)

    def skip_around(self):
        if self.number():
            self.take(24)
        self.skip_attributes()


class Client:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), PATIENCE_SECONDS)

    def close(self):
        self.socket.close()

    def send(self, call):
        self.socket.sendall(number(1 << 31 | len(call)) + call)

    def receive(self):
        """The status of the next reply, and what is behind it."""
        length = struct.unpack(">I", self._read(4))[0] & ~(1 << 31)
        reply = Reply(self._read(length))
        assert [reply.number() for _ in range(6)][1:] == [1, 0, 0, 0, 0]
        return reply.number(), reply

    def _read(self, count):
        read = b""
        while len(read) < count:
            part = self.socket.recv(count - len(read))
            if not part:
                raise ConnectionError("closed")
            read += part
        return read

    def ask(self, call):
        self.send(call)
        return self.receive()

    def mount(self, path):
        status, reply = self.ask(call(MOUNT, 1, data(path)))
        assert status == 0, status
        return reply.data()

    def made(self, call):
        """The handle of what a call has made."""
        status, reply = self.ask(call)
        assert (status, reply.number()) == (0, 1), status
        return reply.data()

    def all_made(self, calls, at_once=32):
        """Asks for many, of which some are under way at a time."""
        for number, call in enumerate([*calls, *[None] * at_once]):
            if call is not None:
                self.send(call)
            if at_once <= number:
                status, _ = self.receive()
                assert status == 0, status

    def lookup(self, directory, name):
        """A handle, or None."""
        status, reply = self.ask(call(NFS, LOOKUP, data(directory) + data(name)))
        assert status in (0, 2), status
        return reply.data() if status == 0 else None

    def write(self, file, bytes_, stable):
        """How it became, and the verifier."""
        status, reply = self.ask(write(file, 0, bytes_, stable))
        assert status == 0, status
        reply.skip_around()
        assert reply.number() == len(bytes_)
        return reply.number(), reply.take(8)

    def commit(self, file):
        """The verifier."""
        status, reply = self.ask(commit(file))
        assert status == 0, status
        reply.skip_around()
        return reply.take(8)

    def part(self, directory, cookie, most):
        """A part of a listing after a cookie: names with their cookies, and whether it is the last part."""
        arguments = data(directory) + long(cookie) + long(0) + number(most)
        status, reply = self.ask(call(NFS, READDIR, arguments))
        assert status == 0, status
        reply.skip_attributes()
        reply.take(8)
        names = []
        while reply.number():
            reply.take(8)
            name = reply.data().decode()
            names.append((name, int.from_bytes(reply.take(8), "big")))
        return names, bool(reply.number())

    def names(self, directory):
        """All names in a directory, but for its own and that of the one above."""
        names, cookie, is_end = [], 0, False
        while not is_end:
            part, is_end = self.part(directory, cookie, 64 << 10)
            names += [name for name, _ in part]
            cookie = part[-1][1] if part else cookie
        return [name for name in names if name not in (".", "..")]

    def read(self, file, offset=0):
        status, reply = self.ask(call(NFS, READ, data(file) + long(offset) + number(1 << 20)))
        assert status == 0, status
        reply.skip_attributes()
        reply.take(8)
        return reply.data()
