"""Users who want no record of what they did: the audit stays as it is for others."""

import base64
import hashlib
import json
import socket
import time

import pytest

from harness.doors import S3, Http
from harness.server import Server, scratch
from harness.wait import eventually
from hostile.attackers import address
from hostile.test_hostile import MALLORY, prepare

RECORD_BYTES = 20 << 10
KEYS = 1000


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
