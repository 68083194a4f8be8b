"""A cache of blocks on a local disk: it outlives the mount, and is never wrong."""

import os
import random
import subprocess

import pytest

from harness.mount import Door, Mount, environment
from harness.server import Server, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually

MIB = 1 << 20


@pytest.fixture
def place():
    with Server() as server:
        door = Door(server, "bucket")
        door.ask("PUT", "")
        yield server, door, scratch("disk-cache")


def mounted(server, work, name="mnt"):
    args = ["--disk-cache", str(work / "cache"), "--disk-cache-mib", "256", "--cache-mib", "1"]
    return Mount(server, work / name, bucket="bucket", args=args)


def stats(mount):
    shown = subprocess.run(
        [binary(), "stats", str(mount.path)], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[0]: int(line.split()[1]) for line in shown.splitlines()[1:]}


def read_again(path):
    """What the kernel has forgotten of it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return b"".join(iter(lambda: os.read(fd, MIB), b""))
    finally:
        os.close(fd)


def test_what_was_read_is_there_after_a_restart(place):
    server, door, work = place
    rng = random.Random(5)
    contents = {f"file-{n}": rng.randbytes(rng.choice([20_000, 300_000, 5 * MIB])) for n in range(20)}
    for name, data in contents.items():
        door.put(name, data)
    with mounted(server, work) as mount:
        for name, data in contents.items():
            assert read_again(mount.root / name) == data
        assert stats(mount)["disk_cache_misses"] > 0

        def all_is_kept():
            """Behind the reader's back; what comes too fast is kept when it is read again."""
            for name in contents:
                read_again(mount.root / name)
            return stats(mount)["disk_cache_bytes"] > sum(map(len, contents.values()))

        eventually(all_is_kept)
        beside = mounted(server, work, "beside")
        command = [binary(), "mount", server.http, str(work), "--nonempty", "-f", *beside.args]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS)
        assert done.returncode == 1 and "in use" in done.stderr, done.stderr
    with mounted(server, work) as mount:
        for name, data in contents.items():
            assert read_again(mount.root / name) == data
        found = stats(mount)
        # What came too fast was not kept.
        assert found["disk_cache_hits"] > 4 * found["disk_cache_misses"], found
        # New contents are new blocks: nothing old is ever shown.
        for name in list(contents)[:10]:
            contents[name] = rng.randbytes(400_000)
            door.put(name, contents[name])
        for name, data in contents.items():
            assert (mount.root / name).read_bytes() == data
        mount.kill()
    # Segments that were cut off, and one that rots.
    segments = sorted((work / "cache/cairn-blocks/kept").glob("*.seg"))
    with open(segments[0], "r+b") as file:
        for _ in range(20):
            file.seek(rng.randrange(100_000, 10 * MIB))
            file.write(b"rotten")
    with mounted(server, work) as mount:
        for name, data in contents.items():
            assert read_again(mount.root / name) == data


def test_what_makes_no_sense_is_refused(place):
    server, _, work = place
    point = work / "mnt"
    point.mkdir()
    cases = [
        (["--disk-cache-mib", "1000"], 2, "--disk-cache"),
        (["--disk-cache", str(work), "--disk-cache-mib", "1"], 2, "256"),
        (["--disk-cache", "/proc/none"], 1, "/proc/none"),
    ]
    for args, code, says in cases:
        command = [binary(), "mount", server.http, str(point), "-f", *args]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS)
        assert done.returncode == code and says in done.stderr, done.stderr
