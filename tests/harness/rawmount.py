"""A connection of a mount that sends what it likes: docs/protocol.md, byte by byte.

It keeps to the framing, so that its requests are understood, and to nothing else: it renews what
it pleases, and what is asked of it (a recall) it answers and does not acknowledge.
"""

import base64
import socket
import struct
import threading

from harness.wait import PATIENCE_SECONDS

REQUEST, REPLY, ERROR, PING, PONG = 1, 2, 3, 5, 6
ATTACH, RENEW, READ, PUT, GET = 1, 2, 3, 32, 33
GETATTR, READDIR, OPEN_INODE = 1096, 1112, 1066


def number(value):
    """As postcard writes it: LEB128."""
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def counted(data):
    return number(len(data)) + data


class RawMount:
    def __init__(self, url, credentials, timeout=PATIENCE_SECONDS):
        host, port = url.split("//")[1].split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.count, self.buffer, self.session = 0, b"", None
        self.lock = threading.Lock()
        token = base64.b64encode(":".join(credentials).encode()).decode()
        self.socket.sendall(
            f"GET /mount HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Basic {token}\r\n"
            "Connection: upgrade\r\nUpgrade: cairn-mount/2\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self.buffer:
            self._receive()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(head.split(b"\r\n")[0].decode())
        self.user = int(head.lower().split(b"cairn-user: ")[1].split(b"\r")[0])
        self._greet()

    def _greet(self):
        """Cluster 0, node 0, as a gateway, with a window of 64 calls and 4 MiB."""
        fields = b"\1\x10" + bytes(16) + b"\3\1\3" + b"\4\1\x40" + b"\5\4" + number(4 << 20)
        hello = b"\1" + fields
        self.socket.sendall(b"CairnWir" + struct.pack("<HHI", 2, 2, len(hello)) + hello)
        self._need(struct.unpack("<I", self._need(16)[12:])[0])

    def _receive(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("closed")
        self.buffer += data

    def _need(self, length):
        while len(self.buffer) < length:
            self._receive()
        taken, self.buffer = self.buffer[:length], self.buffer[length:]
        return taken

    def frame(self, kind, method, call, payload=b""):
        head = struct.pack("<IBBHQIIQ", len(payload), kind, 0, method, call, 0, 0, 0)
        self.socket.sendall(head + payload)

    def call(self, method, payload=b""):
        """The kind of the answer, and its bytes."""
        self.count += 1
        self.frame(REQUEST, method, self.count, payload)
        while True:
            length, kind, _, asked, call = struct.unpack("<IBBHQ", self._need(32)[:16])
            answer = self._need(length)
            if kind == PING:
                self.frame(PONG, 0, call)
            elif kind == REQUEST:
                self.frame(REPLY, 0, call)  # a recall that is never acknowledged
            elif call == self.count:
                return kind, answer

    def attach(self, session):
        self.session = session
        return self.call(ATTACH, number(session))

    def renew(self, reads_from=0):
        return self.call(RENEW, number(self.session) + number(reads_from))

    def read(self, verb, fields, lease=True):
        caller = b"\1" + number(self.user) + b"\1\0\0\0"
        fields = caller + number(verb) + counted(fields) + bytes([lease])
        return self.call(READ, number(self.session) + fields)

    def list(self, inode, lease=True):
        """Entries of a directory."""
        return self.read(READDIR, number(inode) + b"\0" + number(1000) + b"\0", lease)

    def attributes(self, inode):
        """Of a file or directory, leased."""
        return self.read(GETATTR, number(inode))

    def open(self, inode):
        """A file, leased."""
        return self.read(OPEN_INODE, number(inode) + b"\1")

    def close(self):
        self.socket.close()
