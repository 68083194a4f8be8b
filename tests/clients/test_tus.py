"""Resumable uploads (tus 1.0) by a client that is cut off, of a server that is killed.

CAIRN_TEST_TUS_KILLS is how often (4 by default).
"""

import hashlib
import http.client
import os
import socket
import urllib.parse
from base64 import b64encode

from harness.doors import S3
from harness.server import KEY, SECRET, Server
from harness.wait import eventually

KILLS = int(os.environ.get("CAIRN_TEST_TUS_KILLS", 4))
MIB = 1 << 20
HEADERS = {
    "Authorization": "Basic " + b64encode(f"{KEY}:{SECRET}".encode()).decode(),
    "Tus-Resumable": "1.0.0",
}


def call(server, method, path, headers=(), body=None):
    address = urllib.parse.urlsplit(server.http)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
    try:
        connection.request(method, path, body, {**HEADERS, **dict(headers)})
        reply = connection.getresponse()
        reply.read()
        return reply
    finally:
        connection.close()


def begin(server, path, length):
    reply = call(server, "POST", path, {"Upload-Length": str(length), "Content-Length": "0"})
    assert reply.status == 201, reply.status
    return reply.getheader("Location")


def offset_of(server, upload):
    reply = call(server, "HEAD", upload)
    assert reply.status == 200, reply.status
    return int(reply.getheader("Upload-Offset"))


def send_some(server, upload, offset, data, count):
    """Announces all that is left, and sends a part of it; returns the socket."""
    address = urllib.parse.urlsplit(server.http)
    sender = socket.create_connection((address.hostname, address.port), timeout=120)
    lines = [f"PATCH {upload} HTTP/1.1", f"Host: {address.netloc}"]
    lines += [f"{name}: {value}" for name, value in HEADERS.items()]
    lines += [f"Upload-Offset: {offset}", "Content-Type: application/offset+octet-stream"]
    lines += [f"Content-Length: {len(data) - offset}", "", ""]
    sender.sendall("\r\n".join(lines).encode())
    sender.sendall(data[offset : offset + count])
    return sender


def test_an_upload_outlives_servers_that_are_killed():
    with Server() as server:
        S3(server.s3).create_bucket("inbox")
        # Each life of the server gets one whole stretch of 16 MiB, and a half.
        data = hashlib.shake_256(b"tus").digest((16 * KILLS + 13) * MIB)
        upload = begin(server, "/tus/inbox/big.bin", len(data))
        acknowledged = 0
        for _ in range(KILLS):
            offset = offset_of(server, upload)
            assert offset >= acknowledged
            sender = send_some(server, upload, offset, data, 24 * MIB)
            eventually(lambda: offset_of(server, upload) >= min(offset + 16 * MIB, len(data)))
            acknowledged = offset_of(server, upload)
            server.restart()
            sender.close()
        offset = offset_of(server, upload)
        assert acknowledged <= offset < len(data)
        headers = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
        assert call(server, "PATCH", upload, headers, data[offset:]).status == 204
        assert S3(server.s3).object("GET", "inbox", "big.bin").body == data
        server.restart()
        assert offset_of(server, upload) == len(data)
        assert S3(server.s3).object("GET", "inbox", "big.bin").body == data
        server.stop()
        code, said = server.fsck()
        assert code == 0, said
