"""Uploads far larger than the memory the server may use.

CAIRN_TEST_HUGE_GIB sets the size (2 by default; the promise is for 10).
"""

import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import hashes
from harness.doors import S3, Http
from harness.server import SMALL_CACHES, Server

MIB = 1 << 20
HUGE = int(float(os.environ.get("CAIRN_TEST_HUGE_GIB", 2)) * 1024) * MIB
PART = 16 * MIB
RSS_LIMIT = 256 * MIB
NOISE = hashlib.shake_128(b"noise").digest(MIB)


def pieces(first, last):
    """The MiBs [first, last) of a body that repeats nowhere."""
    for number in range(first, last):
        yield number.to_bytes(16, "big") + NOISE[16:]


@pytest.fixture(scope="module")
def expected():
    digest = hashlib.sha256()
    for piece in pieces(0, HUGE // MIB):
        digest.update(piece)
    return digest.hexdigest()


@pytest.fixture
def own_server():
    with Server(args=SMALL_CACHES) as server:
        S3(server.s3).create_bucket("huge")
        server.reset_rss_peak()
        yield server


def report(server, what, seconds):
    peak = server.rss_peak_bytes()
    print(f"{what}: {HUGE / MIB / seconds:.0f} MiB/s, peak RSS {peak / MIB:.0f} MiB")
    assert peak < RSS_LIMIT, f"{what}: peak RSS {peak / MIB:.0f} MiB"


def test_s3_multipart(own_server, expected, capsys):
    server = own_server
    upload = S3(server.s3).create_upload("huge", "object")
    clients = threading.local()

    def send(number):
        if not hasattr(clients, "s3"):
            clients.s3 = S3(server.s3)
        first = number * PART // MIB
        body = b"".join(pieces(first, min(first + PART // MIB, HUGE // MIB)))
        part = clients.s3.upload_part
        return part("huge", "object", upload, number + 1, body, "UNSIGNED-PAYLOAD")

    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        etags = list(pool.map(send, range(-(-HUGE // PART))))
    completing = time.monotonic()
    reply = S3(server.s3).complete_upload("huge", "object", upload, etags)
    assert reply.status == 200 and b"<Error>" not in reply.body, reply
    done = time.monotonic()
    with capsys.disabled():
        print()
        report(server, f"S3 multipart of {HUGE // MIB} MiB", done - began)
    assert done - completing < (completing - began) / 2, "completing an upload moves no bytes"
    server.reset_rss_peak()
    began = time.monotonic()
    assert hashes.http_sha256(Http(server.http), "huge", "object") == expected
    with capsys.disabled():
        report(server, f"HTTP GET of {HUGE // MIB} MiB", time.monotonic() - began)


@pytest.mark.parametrize("length", ["announced", "chunked"])
def test_http_put(own_server, expected, capsys, length):
    server = own_server
    headers = {"Content-Length": str(HUGE)} if length == "announced" else {}
    began = time.monotonic()
    put = Http(server.http, timeout=900).object
    reply = put("PUT", "huge", "object", pieces(0, HUGE // MIB), headers)
    assert reply.status in (200, 201, 204), reply
    with capsys.disabled():
        print()
        what = f"HTTP PUT of {HUGE // MIB} MiB, {length} length"
        report(server, what, time.monotonic() - began)
    server.reset_rss_peak()
    began = time.monotonic()
    assert hashes.s3_sha256(S3(server.s3), "huge", "object") == expected
    with capsys.disabled():
        report(server, f"S3 GET of {HUGE // MIB} MiB", time.monotonic() - began)
