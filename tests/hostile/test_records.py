"""Users who want no record of what they did: the audit stays as it is for others.

CAIRN_TEST_RECORDS_REQUESTS: how many requests one of them sends (1,000; 100,000 in the long form).
"""

import base64
import contextlib
import hashlib
import http.client
import itertools
import json
import os
import socket
import threading
import time

import pytest

from harness.console import Browser
from harness.doors import S3, Http
from harness.server import KEY, SECRET, Server, scratch
from harness.wait import eventually
from hostile.attackers import address
from hostile.test_hostile import MALLORY, prepare

RECORD_BYTES = 20 << 10
KEYS = 1000
REQUESTS = int(os.environ.get("CAIRN_TEST_RECORDS_REQUESTS", 1000))
HOSTILE_CLIENTS = 8
HONEST = ("HONESTKEY00001", "secret-of-an-honest-client")


@pytest.fixture(scope="module")
def audited():
    log = scratch("records") / "audit.jsonl"
    with Server(args=["--audit-log", log]) as server:
        prepare(server)
        yield server, log


def records(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_request_for_many_long_keys_has_a_short_record(audited):
    server, log = audited
    keys = [f"{number:04}" + '"' * 900 for number in range(KEYS)]
    body = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    reply = S3(server.s3, MALLORY).request(
        "POST", "/mallory", {"delete": ""}, f"<Delete>{body}</Delete>".encode()
    )
    assert reply.status == 200, reply
    found = lambda: [one for one in records(log) if one.get("more_keys")]  # noqa: E731
    eventually(found, "the record is in the file")
    assert max(len(line) for line in log.read_text().splitlines()) < RECORD_BYTES
    (record,) = found()
    shown = record["keys"]
    assert shown == keys[: len(shown)] and len(shown) + record["more_keys"] == KEYS
    rest = b"".join(key.encode() + b"\0" for key in keys[len(shown) :])
    assert record["more_keys_sha256"] == hashlib.sha256(rest).hexdigest()


def test_an_upload_that_is_cut_after_its_last_byte_is_made_and_recorded(audited):
    """Nobody has to ask for it with HEAD, which had no record."""
    server, log = audited
    door, size = Http(server.http, MALLORY), 200_000
    tus = {"Tus-Resumable": "1.0.0"}
    begun = door.request("POST", "/tus/mallory/cut", headers={**tus, "Upload-Length": str(size)})
    assert begun.status == 201, begun
    place = begun.headers["Location"]
    auth = base64.b64encode(":".join(MALLORY).encode()).decode()
    with socket.create_connection(address(server.http)) as connection:
        connection.sendall(
            f"PATCH {place} HTTP/1.1\r\nHost: {server.http.split('//')[1]}\r\n"
            f"Authorization: Basic {auth}\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
            "Content-Type: application/offset+octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            f"{size:x}\r\n".encode()
            + b"x" * size
            + b"\r\n"
        )
        time.sleep(0.5)
    made = lambda: door.object("GET", "mallory", "cut").status == 200  # noqa: E731
    eventually(made, "the object is made although its last chunk never came")
    patched = lambda: [one for one in records(log) if one.get("method") == "PATCH"]  # noqa: E731
    eventually(patched, "the request has a record")


class Flood(threading.Thread):
    """Sends requests of a user whose records are as long as it can make them, and of many kinds:
    what is done, what fails and what is refused."""

    def __init__(self, server, turns):
        super().__init__(daemon=True)
        self.s3, self.http = S3(server.s3, MALLORY), Http(server.http, MALLORY)
        self.turns, self.statuses = turns, {}

    def run(self):
        for turn in self.turns:
            with contextlib.suppress(OSError, http.client.HTTPException):
                status = self.ask(turn).status
                self.statuses[status] = self.statuses.get(status, 0) + 1

    def ask(self, turn):
        long = "%22" * 200
        if turn % 4 == 0:
            keys = (f"{turn}-{number}" + "&quot;" * 150 for number in range(60))
            body = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
            body = f"<Delete>{body}</Delete>".encode()
            return self.s3.request("POST", "/mallory", {"delete": ""}, body)
        if turn % 4 == 1:
            return self.http.request("PUT", f"/storage/mallory/{turn % 50}-{long}", b"x")
        if turn % 4 == 2:
            return self.http.request("DELETE", f"/storage/of-others/{turn}-{long}")
        return self.http.request("PATCH", f"/storage/of-others?cache_control={long}")


class Honest(threading.Thread):
    """Puts objects, until it is told to stop, and knows which of them are there."""

    def __init__(self, server, stop):
        super().__init__(daemon=True)
        self.door, self.stop, self.keys = Http(server.http, HONEST), stop, []

    def run(self):
        for number in itertools.count():
            key = f"honest-{number}"
            reply = self.door.object("PUT", "of-others", key, b"x")
            assert reply.status == 201, reply
            self.keys.append(key)
            if self.stop.wait(max(0.02, REQUESTS / 100_000)):
                return


def of_honest(lines):
    """The keys of the honest user's records, and what was lost."""
    found = [json.loads(line) for line in lines]
    honest = [one for one in found if one.get("credential") == HONEST[0]]
    users = {one["user"] for one in honest}
    lost = [one for one in found if "lost" in one and (not one.keys() & {"user"} or one["user"] in users)]
    return [one["key"] for one in honest if one["method"] == "PUT" and "key" in one], lost


def test_many_requests_of_one_user_remove_no_record_of_another():
    log = scratch("flood") / "audit.jsonl"
    # Files that one user turns over again and again.
    args = ["--audit-log", log, "--audit-bucket", "audit", "--console", "127.0.0.1:0"]
    args += ["--log-file-mib", "1", "--log-files", "2", "--log-days", "1"]
    with Server(args=args) as server:
        prepare(server)
        body = json.dumps({"user": "honest", "id": HONEST[0], "secret": HONEST[1]}).encode()
        root, json_type = Http(server.http), {"Content-Type": "application/json"}
        assert root.request("POST", "/admin/keys", body, json_type).status == 201
        Http(server.http, HONEST).create_bucket("of-others")
        stop = threading.Event()
        honest = Honest(server, stop)
        parts = [range(first, REQUESTS, HOSTILE_CLIENTS) for first in range(HOSTILE_CLIENTS)]
        hostile = [Flood(server, part) for part in parts]
        began = time.monotonic()
        for thread in [honest, *hostile]:
            thread.start()
        for thread in hostile:
            thread.join()
        seconds = time.monotonic() - began
        stop.set()
        honest.join()
        statuses = {}
        for thread in hostile:
            for status, count in thread.statuses.items():
                statuses[status] = statuses.get(status, 0) + count
        assert sum(statuses.values()) >= REQUESTS * 0.99, statuses
        assert {200, 201, 403} <= statuses.keys(), statuses
        last = honest.keys[-1]
        browser = Browser(server.console)
        browser.ask("POST", "/login", {"key": KEY, "secret": SECRET})
        page = browser.ask("GET", "/audit?user=honest").body.decode()
        assert last in page, "the records in memory are those of one user alone"
        eventually(lambda: last in log.read_text(), "the last record is in the file")
        # The connection before was idle for as long as the requests took.
        root = Http(server.http)
        stored = lambda: root.list("audit")  # noqa: E731
        in_bucket = lambda: "".join(  # noqa: E731
            root.object("GET", "audit", key).body.decode() for key in stored()
        )
        eventually(lambda: last in in_bucket(), "the last record is in the bucket")
        files = sorted(log.parent.glob("audit.jsonl*"))
        of_files = "".join(file.read_text() for file in files)
        print(
            f"\n{sum(statuses.values())} requests of one user in {seconds:.1f} s: {statuses}; "
            f"{len(honest.keys)} of another; {len(files)} files, {len(of_files) >> 20} MiB"
        )
        for text in (of_files, in_bucket()):
            keys, lost = of_honest(text.splitlines())
            assert sorted(keys) == sorted(honest.keys), set(honest.keys).symmetric_difference(keys)
            assert not lost, lost
