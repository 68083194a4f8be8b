"""Clients that hang up before they are answered: what they sent is there whole, or not at all."""

import random
import socket
import time
import urllib.parse

from harness import presign
from harness.doors import Http
from harness.server import Server
from harness.wait import PATIENCE_SECONDS
from kill.model import content
from limits.test_bad_input import BASIC

KEYS, ROUNDS, SIZE = 40, 12, 40_000
# Long enough for the server to delete what it takes for garbage.
GARBAGE_SECONDS = 12


def put_and_hang_up(url, path, headers, body, pause):
    parts = urllib.parse.urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as sock:
        head = f"PUT {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{headers}"
        sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if pause is None:
            sock.recv(1)
        else:
            time.sleep(pause)


def test_what_was_sent_by_who_hung_up_is_whole_or_not_there():
    rng = random.Random(7)
    with Server() as server:
        http = Http(server.http)
        http.create_bucket("left")
        for number in range(KEYS * ROUNDS):
            key = f"k{number % KEYS}"
            body = content(key, number, SIZE)
            # Of some the answer has begun, whatever else the machine does.
            pause = rng.choice([0, 0, 0.0002, 0.0005, 0.001, 0.002]) if number % KEYS else None
            if number % 2:
                path, headers = f"/storage/left/{key}", BASIC
                put_and_hang_up(server.http, path, headers, body, pause)
            else:
                host = urllib.parse.urlsplit(server.s3).netloc
                path = presign.presigned(host, "PUT", f"/left/{key}")
                put_and_hang_up(server.s3, path, "", body, pause)
        time.sleep(GARBAGE_SECONDS)
        found = 0
        for number in range(KEYS):
            key = f"k{number}"
            reply = http.object("GET", "left", key)
            if reply.status == 404:
                continue
            found += 1
            every = range(number, KEYS * ROUNDS, KEYS)
            assert reply.status == 200 and any(reply.body == content(key, n, SIZE) for n in every)
        assert found > 0
