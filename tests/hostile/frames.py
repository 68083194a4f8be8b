"""As much of HTTP/2 as it takes to begin many requests on one connection, and to end none."""

import base64
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header that is in no table, as HPACK has it."""
    name, value = name.encode(), value.encode()
    assert len(name) < 127 and len(value) < 127
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def head(method, path, headers=(), authority="x"):
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", authority)]
    return b"".join(literal(name, value) for name, value in [*fields, *headers])


def basic(credentials):
    return ("authorization", "Basic " + base64.b64encode(":".join(credentials).encode()).decode())


class Connection:
    """Requests whose bodies begin with one byte and do not go on."""

    def __init__(self, address, source):
        self.socket = socket.create_connection(address, timeout=30, source_address=(source, 0))
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
        self.next = 1

    def begin(self, block, count, length=b"x"):
        out = b""
        for _ in range(count):
            out += frame(HEADERS, END_HEADERS, self.next, block)
            out += frame(DATA, 0, self.next, length)
            self.next += 2
        self.socket.sendall(out)

    def close(self):
        self.socket.close()
