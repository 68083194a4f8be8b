"""`cairn top` of several gateways, with requests at both doors, and one that waits."""

import json
import os
import socket
import subprocess
import threading
import urllib.parse

import pytest

from harness.cluster import Cluster
from harness.doors import S3, Http
from harness.server import KEY, SECRET, binary
from harness.wait import PATIENCE_SECONDS

BYTES = 10_000


@pytest.fixture(scope="module")
def gateways():
    with Cluster(chunkservers=1, gateways=2, replicas=1) as cluster:
        S3(cluster["g1"].s3).create_bucket("photos")
        assert S3(cluster["g1"].s3).object("PUT", "photos", "cat", body=b"x" * BYTES).status == 200
        yield cluster["g1"], cluster["g2"]
        assert cluster.misbehaviour() == []


def top(gateways, *options):
    env = {**os.environ, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
    done = subprocess.run(
        [binary(), "top", *(gateway.http for gateway in gateways), *options],
        env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


class Load:
    """Gets an object at a door again and again."""

    def __init__(self, get):
        self.get, self.count, self.is_over = get, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.is_over.is_set():
            assert len(self.get().body) == BYTES
            self.count += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def begun(gateway):
    """A PUT whose body does not come."""
    url = urllib.parse.urlsplit(gateway.http)
    stream = socket.create_connection((url.hostname, url.port), PATIENCE_SECONDS)
    lines = [f"{name}: {value}\r\n" for name, value in Http(gateway.http).auth.items()]
    head = f"PUT /storage/photos/late HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: 1000\r\n"
    stream.sendall((head + "".join(lines) + "\r\nabc").encode())
    return stream


def by_name(tallies):
    return {tally["name"]: tally for tally in tallies}


def test_gateways_are_shown_as_one(gateways):
    one, two = gateways
    of_s3, of_http = S3(one.s3), Http(two.http)
    with (
        Load(lambda: of_s3.object("GET", "photos", "cat")) as s3,
        Load(lambda: of_http.object("GET", "photos", "cat")) as http,
        begun(two),
    ):
        told = json.loads(top(gateways, "--json"))
        tables = top(gateways, "--once")
    assert told["seconds"] == 5
    doors = by_name(told["doors"])
    assert set(doors) == {"s3", "http"}, doors
    assert 0 < doors["s3"]["requests"] <= s3.count, (doors, s3.count)
    # The questions are requests as well.
    assert 0 < doors["http"]["requests"] <= http.count + 100, (doors, http.count)
    cat = by_name(told["objects"])["photos/cat"]
    assert cat["requests"] <= doors["s3"]["requests"] + doors["http"]["requests"], told
    assert cat["requests"] > max(doors["s3"]["requests"], doors["http"]["requests"] - 100), told
    assert cat["sent_bytes"] == BYTES * cat["requests"] and cat["failed"] == 0, cat
    assert by_name(told["users"])["root"]["requests"] >= cat["requests"], told
    assert {slow["door"] for slow in told["slowest"]} <= {"s3", "http"}, told
    waits = [one for one in told["in_flight"] if "late" in one["object"]]
    assert len(waits) == 1 and told["waiting"] >= 1, told
    assert (waits[0]["door"], waits[0]["operation"], waits[0]["user"]) == ("http", "PUT", "root"), waits
    assert waits[0]["stage"] == "receive", waits
    for title in ("DOOR", "USER", "BUCKET", "OBJECT", "SLOWEST MS", "WAITS MS"):
        assert title in tables, tables
    waiting = tables.split("WAITS MS")[1]
    assert "http PUT" in waiting and "/storage/photos/late" in waiting and "receive" in waiting, tables
