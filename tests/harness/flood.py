"""Many small PUTs over many connections, faster than a client library of Python could."""

import re
import selectors
import socket
import urllib.parse

from harness.wait import PATIENCE_SECONDS


def complete(data):
    """The status of a response that is whole, or None."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
    if len(body) < int(length[1] if length else 0):
        return None
    return int(head[9:12])


def puts(url, targets, body, auth, connections=64):
    """PUTs `body` to every target; every answer must be a success."""
    parts = urllib.parse.urlsplit(url)
    head = f"Host: {parts.netloc}\r\nAuthorization: {auth}\r\nContent-Length: {len(body)}\r\n\r\n"
    tail = b" HTTP/1.1\r\n" + head.encode() + body
    waiting, selector = iter(targets), selectors.DefaultSelector()

    def next_on(sock):
        target = next(waiting, None)
        if target is None:
            selector.unregister(sock)
            sock.close()
        else:
            sock.sendall(b"PUT " + target.encode() + tail)

    for _ in range(connections):
        sock = socket.create_connection((parts.hostname, parts.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ, bytearray())
        next_on(sock)
    while selector.get_map():
        ready = selector.select(timeout=PATIENCE_SECONDS)
        assert ready, f"no answer for {PATIENCE_SECONDS} s"
        for event, _ in ready:
            received = event.fileobj.recv(65536)
            assert received, f"connection closed after {bytes(event.data)!r}"
            event.data.extend(received)
            status = complete(bytes(event.data))
            if status is not None:
                assert status in (200, 201, 204), bytes(event.data)
                event.data.clear()
                next_on(event.fileobj)
