"""Memory stays bounded under many uploads and downloads at once, slow ones among them."""

import socket
import threading
import time
import urllib.parse

from harness.doors import S3, Http
from harness.server import SMALL_CACHES, Server
from harness.wait import comes_true
from kill.model import content

MIB = 1 << 20
UPLOADS, SIZE = 64, 24 * MIB
SLOW = 200
LIMIT = 512 * MIB
# What stays of it: the cache of 64 MiB, and what else a server that did much has.
KEPT = 160 * MIB


def test_many_uploads_and_slow_readers(capsys):
    body = content("body", 1, SIZE)
    with Server(args=SMALL_CACHES) as server:
        S3(server.s3).create_bucket("many")
        server.reset_rss_peak()
        began = time.monotonic()
        failed = []

        def upload(number):
            door = (Http(server.http), S3(server.s3))[number % 2]
            options = {} if number % 2 == 0 else {"payload_hash": "UNSIGNED-PAYLOAD"}
            reply = door.object("PUT", "many", f"up-{number}", body=body, **options)
            if reply.status not in (200, 201, 204):
                failed.append(reply)

        threads = [threading.Thread(target=upload, args=(n,)) for n in range(UPLOADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        uploading = server.rss_peak_bytes()
        seconds = time.monotonic() - began

        # Readers that ask for much and take nothing.
        server.reset_rss_peak()
        parts, auth = urllib.parse.urlsplit(server.http), Http(server.http).auth["Authorization"]
        slow = []
        for number in range(SLOW):
            sock = socket.create_connection((parts.hostname, parts.port))
            target = f"/storage/many/up-{number % UPLOADS}"
            head = f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: {auth}\r\n\r\n"
            sock.sendall(head.encode())
            slow.append(sock)
        time.sleep(2)
        assert Http(server.http).object("GET", "many", "up-0").body == body
        reading = server.rss_peak_bytes()
        for sock in slow:
            sock.close()
        http, kept = Http(server.http), []

        def is_back():
            # Memory goes back while the server has something to do.
            assert http.object("GET", "many", "up-0").status == 200
            kept.append(server.rss_bytes())
            return kept[-1] < KEPT

        went_back = comes_true(is_back, seconds=60, pause=0.5)
    with capsys.disabled():
        print(
            f"\n{UPLOADS} uploads of {SIZE // MIB} MiB at once: {UPLOADS * SIZE / MIB / seconds:.0f}"
            f" MiB/s, peak RSS {uploading / MIB:.0f} MiB; {SLOW} readers that stopped: peak RSS "
            f"{reading / MIB:.0f} MiB; {kept[-1] / MIB:.0f} MiB of its own are left"
        )
    assert uploading < LIMIT and reading < LIMIT
    assert went_back, f"{kept[-1] / MIB:.0f} MiB of its own are left"
