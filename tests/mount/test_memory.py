"""What a server and a mount keep of files that come and go: nothing, however many there were."""

import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import metrics
from harness.mount import Door, Mount
from harness.server import Server, scratch
from harness.wait import eventually

FILES = int(os.environ.get("CAIRN_TEST_MEMORY_FILES", "6000"))
ROUND = max(1000, min(25_000, FILES // 3))
WORKERS = 4
# Before this, caches fill. The short form does not come so far: it counts leases.
WARM_FILES = 500_000
# What the allocator has more or less, from one moment to another.
GROWTH_BYTES = 48 << 20
# Of the top directory, and of the last one: fewer than one for four files of a round.
LEASES = ROUND // 4


def anonymous(process):
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def leases(server):
    with urllib.request.urlopen(f"{server.http}/metrics") as reply:
        text = reply.read().decode()
    assert "cairn_meta_leases" in text
    return metrics.total(text, "cairn_meta_leases")


def come_and_go(directory):
    directory.mkdir()
    files = [directory / f"file{number}" for number in range(ROUND // WORKERS)]
    for file in files:
        file.write_bytes(b"x" * 100)
    for file in files:
        file.unlink()
    directory.rmdir()


@pytest.fixture
def place():
    with Server() as server:
        Door(server, "bucket").ask("PUT", "")
        yield server, Mount(server, scratch("memory") / "mnt", bucket="bucket")


def test_files_that_come_and_go_leave_nothing(place):
    server, mount = place
    with mount:
        processes = {"server": server.process, "mount": mount.process}
        warm = None
        for number in range(FILES // ROUND):
            directories = [mount.root / f"{number}-{worker}" for worker in range(WORKERS)]
            with ThreadPoolExecutor(WORKERS) as workers:
                list(workers.map(come_and_go, directories))
            eventually(lambda: leases(server) < LEASES, lambda: f"{leases(server):.0f} leases")
            used = {name: anonymous(process) for name, process in processes.items()}
            shown = ", ".join(f"{name} {size >> 20} MiB" for name, size in used.items())
            print(f"{(number + 1) * ROUND} files: {shown}, {leases(server):.0f} leases", flush=True)
            if (number + 1) * ROUND <= WARM_FILES:
                warm = used
            for name, size in used.items():
                assert size - warm[name] < GROWTH_BYTES, f"{name}: {size} bytes"
    eventually(lambda: leases(server) == 0, "the session has ended")
