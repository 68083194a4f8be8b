"""kill -9 under load, and a restart with many objects."""

import os
import time

from harness import flood
from harness.doors import S3, Http
from harness.server import SMALL_CACHES, Server
from harness.wait import PATIENCE_SECONDS, eventually
from kill import kill

ROUNDS = int(os.environ.get("CAIRN_TEST_KILLS", 8))
OBJECTS = int(os.environ.get("CAIRN_TEST_OBJECTS", 20_000))
MIB = 1 << 20
IDLE_BYTES = 64 * MIB


def test_kills_under_load_lose_and_tear_nothing(capsys):
    with capsys.disabled():
        print()
        echo = lambda text: print(text, flush=True)  # noqa: E731
        violations = kill.run(ROUNDS, restart_seconds=PATIENCE_SECONDS, echo=echo)
    assert not violations


def load(server, objects):
    """PUTs that many small objects through the HTTP door; returns the size of each."""
    body = b"small object " * 40
    targets = (f"/storage/many/d{n % 100:02}/object-{n:06}" for n in range(objects))
    flood.puts(server.http, targets, body, Http(server.http).auth["Authorization"])
    return len(body)


def test_a_restart_with_many_objects_is_whole_and_idles_small(capsys):
    with Server(args=SMALL_CACHES) as server:
        S3(server.s3).create_bucket("many")
        began = time.monotonic()
        size = load(server, OBJECTS)
        loaded = time.monotonic() - began
        time.sleep(3)
        after_load = server.rss_bytes()
        server.restart()
        restart = server.start_seconds
        assert Http(server.http).request("GET", "/readyz").status == 200
        eventually(lambda: server.rss_bytes() < IDLE_BYTES, "the server idles small")
        idle = server.rss_bytes()
        listed = Http(server.http).list("many")
        assert len(listed) == OBJECTS
        assert all(entry["size"] == size for entry in listed.values())
        after_listing = server.rss_bytes()
        server.kill()
        code, output = server.fsck()
        assert code == 0, output
    with capsys.disabled():
        print(
            f"\n{OBJECTS} objects: loaded in {loaded:.0f} s, restart after kill -9 {restart:.2f} s,"
            f" RSS idle {idle / MIB:.0f} MiB, after the load {after_load / MIB:.0f} MiB,"
            f" after a listing of all {after_listing / MIB:.0f} MiB"
        )
