"""What a server and a mount keep of files that come and go: nothing, however many there were.

The short form looks at gauges, which are exact. The long form (`tests/run --long memory`) goes on until all caches are
full, and looks at the memory of both processes."""

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
# With fewer files in all, caches do not fill, and the memory of processes says nothing.
FULL_FILES = 1_000_000
# What the last half may take more than the first one, in percent.
GROWTH_PERCENT = 10
# Rows of the top directory, and of the last one: fewer than one for four files of a round.
FEW_ROWS = ROUND // 4
# Of the root, the bucket, and the directories of one round.
FEW_INODES = 2 + WORKERS
LARGE_FILES = 50

SERVER = ["--cache-mib", "8", "--row-cache-mib", "16", "--page-cache-mib", "16", "--memtable-mib", "16"]
MOUNT = ["--cache-mib", "8", "--meta-cache-mib", "8"]
# What may be there while nothing is going on: of the server, and of the mount.
LEFT_AT_SERVER = {
    "cairn_meta_leases": FEW_ROWS,
    "cairn_meta_recalls": 0,
    "cairn_meta_delegated_directories": 0,
    "cairn_meta_delegated_files": 0,
    "cairn_mount_disclosed_ids": 0,
}
LEFT_AT_MOUNT = {
    "files_open": 0,
    "bytes_dirty": 0,
    "inodes_known": FEW_INODES,
    "removed_directories": 0,
    "session_rows": FEW_ROWS,
    "session_directories": 0,
    "session_posted": 0,
    "session_kept": 256,  # from then on the mount asks whether they are durable
}
# Caches, and buffers with a bound: docs/operating.md has it.
BYTES_OF_SERVER = ["meta_cache_bytes", "meta_lease_bytes", "meta_memtable_bytes", "memo_bytes", "cache_bytes"]
BYTES_OF_MOUNT = ["session_bytes", "memo_bytes", "cache_bytes", "bytes_dirty"]


def anonymous(process):
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def of_server(server, names):
    with urllib.request.urlopen(f"{server.http}/metrics") as reply:
        text = reply.read().decode()
    for name in names:
        assert f"\n{name} " in text, name
    return {name: int(metrics.total(text, name)) for name in names}


def of_mount(mount, names):
    lines = os.getxattr(mount.path, "user.cairn.stats").decode().splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    return {name: int(found[name]) for name in names}


def is_left(server, mount):
    """{gauge: (what there is, what there may be)} of all that is too much."""
    there = of_server(server, LEFT_AT_SERVER) | of_mount(mount, LEFT_AT_MOUNT)
    allowed = LEFT_AT_SERVER | LEFT_AT_MOUNT
    return {name: (there[name], allowed[name]) for name in there if there[name] > allowed[name]}


def come_and_go(directory):
    directory.mkdir()
    files = [directory / f"file{number}" for number in range(ROUND // WORKERS)]
    for file in files:
        file.write_bytes(b"x" * 100)
    for file in files:
        file.unlink()
    directory.rmdir()


def show(files, server, mount, used):
    known = [f"cairn_{name}" for name in BYTES_OF_SERVER]
    accounted = of_server(server, known) | {f"mount_{k}": v for k, v in of_mount(mount, BYTES_OF_MOUNT).items()}
    parts = [f"{name} {size >> 20} MiB" for name, size in used.items()]
    parts += [f"{name} {size >> 10} KiB" for name, size in accounted.items() if size]
    print(f"{files} files: {', '.join(parts)}", flush=True)


@pytest.fixture
def place():
    with Server(args=SERVER) as server:
        Door(server, "bucket").ask("PUT", "")
        yield server, Mount(server, scratch("memory") / "mnt", args=MOUNT, bucket="bucket")


def test_files_that_come_and_go_leave_nothing(place):
    server, mount = place
    rounds = []
    with mount:
        processes = {"server": server.process, "mount": mount.process}
        for number in range(FILES // ROUND):
            directories = [mount.root / f"{number}-{worker}" for worker in range(WORKERS)]
            with ThreadPoolExecutor(WORKERS) as workers:
                list(workers.map(come_and_go, directories))
            eventually(lambda: not is_left(server, mount), lambda: is_left(server, mount))
            rounds.append({name: anonymous(process) for name, process in processes.items()})
            show((number + 1) * ROUND, server, mount, rounds[-1])
    eventually(lambda: of_server(server, LEFT_AT_SERVER)["cairn_meta_leases"] == 0, "the session has ended")
    if FILES >= FULL_FILES:
        half = len(rounds) // 2
        for name in processes:
            first, last = (max(used[name] for used in part) for part in (rounds[:half], rounds[half:]))
            assert last <= first * (100 + GROWTH_PERCENT) / 100, f"{name}: {first} bytes, and later {last}"


def test_files_that_were_read_are_forgotten_with_the_session(place):
    """Large ones: a server remembers which blocks it told a mount of."""
    server, mount = place
    door = Door(server, "bucket")
    names = [f"file{number}" for number in range(LARGE_FILES)]
    for name in names:
        door.put(name, name.encode() * 10_000)
    with mount:
        for name in names:
            assert (mount.root / name).read_bytes() == name.encode() * 10_000
        known = of_server(server, LEFT_AT_SERVER)
        assert known["cairn_mount_disclosed_ids"] >= LARGE_FILES
        assert known["cairn_meta_leases"] >= LARGE_FILES
    gone = {name: 0 for name in LEFT_AT_SERVER}
    eventually(lambda: of_server(server, LEFT_AT_SERVER) == gone, lambda: of_server(server, LEFT_AT_SERVER))
