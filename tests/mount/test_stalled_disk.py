"""A disk that stands still for longer than any lease: no mount is to blame, and nothing is lost."""

import contextlib
import multiprocessing
import os
import re
import time
import zlib

import pytest

from harness.disk import SmallDisk, Unavailable
from harness.mount import Door, Mount
from harness.server import Server, scratch
from harness.wait import eventually
from mount.test_own_directories import content
from mount.test_survival import synced

# Longer than a lease, and shorter than a request waits for a server that is there.
STALL_SECONDS = float(os.environ.get("CAIRN_TEST_STALL_SECONDS", 12))
MIB = 1 << 20
DIRTY = 32 * MIB


class Worker(multiprocessing.Process):
    """Makes one thing after the other until it is told to stop, and tells what is in each. A
    process of its own: one that froze a disk while it has a file open would wait for itself."""

    def __init__(self, make):
        super().__init__(daemon=True)
        self.make, self.rounds = make, multiprocessing.Value("q", 0)
        self.ended, self.result = multiprocessing.Event(), multiprocessing.SimpleQueue()

    def run(self):
        made, errors = {}, []
        while not self.ended.is_set():
            try:
                for name, data in self.make(self.rounds.value):
                    made[name] = zlib.crc32(data)
                self.rounds.value += 1
            except OSError as error:
                errors.append(error.errno)
            except Exception as error:
                errors.append(repr(error))
                break
        self.result.put((made, errors))

    def stop(self):
        self.ended.set()
        found = self.result.get()
        self.join()
        return found


def filled(name, number):
    return f"{name}-{number // 50}/{number}"


def fills(root, name):
    """Directories of small files, none of them synced: the mount makes them by itself."""

    def make(number):
        path = root / filled(name, number)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content(number))
        time.sleep(0.002)
        yield filled(name, number), content(number)

    return make


def overflows(root):
    """A file that is written all over without end: what may be kept unwritten is used up."""
    whole, file = bytearray(2 * DIRTY), None

    def make(number):
        nonlocal file
        if file is None:
            file = os.open(root / "big", os.O_WRONLY | os.O_CREAT)
            os.ftruncate(file, len(whole))
        at = number * MIB % len(whole)
        whole[at : at + MIB] = os.urandom(MIB)
        os.pwrite(file, whole[at : at + MIB], at)
        yield "big", whole

    return make


def syncs(root):
    def make(number):
        synced(root / f"synced-{number % 50}", content(number))
        yield f"synced-{number % 50}", content(number)

    return make


def looks(root, name, filler):
    """Looks at what another mount makes, which has to give its directories back."""

    def make(_):
        number = filler.rounds.value - 1
        if number >= 0:
            assert (root / filled(name, number)).read_bytes() == content(number)
        time.sleep(0.05)
        return []

    return make


@pytest.fixture
def world():
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(SmallDisk(2048))
        except Unavailable as error:
            pytest.skip(str(error))
        work = scratch("stalled")
        # Not on the disk that stalls: what cannot log does not go on.
        server = stack.enter_context(Server(disk.mount / "data", log=work / "server.log"))
        Door(server, "bucket").ask("PUT", "")
        options = ["--dirty-mib", str(DIRTY // MIB)]
        mounts = [Mount(server, work / name, options, "bucket") for name in ("one", "two")]
        yield disk, server, *map(stack.enter_context, mounts)
        disk.heal()


def lines_about(what, *logs):
    told = re.compile(what)
    return [line for log in logs for line in log.read_text().splitlines() if told.search(line)]


def stall(disk, writer):
    """Whether there was, in the end, no room for what is written."""
    disk.stick()
    try:
        time.sleep(STALL_SECONDS / 2)
        before = writer.rounds.value
        time.sleep(STALL_SECONDS / 2)
        return writer.rounds.value == before
    finally:
        disk.heal()


def test_a_disk_that_stalls_ends_no_mount(world, capsys):
    disk, server, one, two = world
    seen, writer = Worker(fills(one.root, "seen")), Worker(overflows(two.root))
    own, looker = Worker(fills(one.root, "own")), Worker(looks(two.root, "seen", seen))
    workers = [seen, own, looker, writer, Worker(syncs(two.root))]
    for worker in workers:
        worker.start()
    # With directories that are filled already, and one that is not.
    eventually(lambda: own.rounds.value > 120 and all(w.rounds.value for w in workers), "they work")
    was_full = stall(disk, writer)
    before = [worker.rounds.value for worker in workers]

    def goes_on(worker, rounds):
        return worker.rounds.value > rounds or not worker.is_alive()

    eventually(lambda: all(map(goes_on, workers, before)), "they go on")
    results = [worker.stop() for worker in workers]
    assert was_full
    for path in (one.root / "last", two.root / "big"):
        synced(path, b"", 0)
    logs = server.log_path, one.log_path, two.log_path
    assert lines_about("session ended|a new session begins", *logs) == []
    errors = [error for _, of_one in results for error in of_one]
    assert errors == [] and lines_about("not written back|a request failed", *logs) == []
    # All of it is durable, and not only in the memory of who made it.
    for process in (server, one, two):
        process.kill()
    server.start()
    made = {name: sum for of_one, _ in results for name, sum in of_one.items()}
    with capsys.disabled():
        print(f"\nstalled for {STALL_SECONDS:.0f} s: {len(made)} files, {len(errors)} errors")
    with Mount(server, one.path.with_name("three"), bucket="bucket") as three:
        for name, sum in made.items():
            assert zlib.crc32((three.root / name).read_bytes()) == sum, name
    assert server.stop() == 0
    code, report = server.fsck()
    assert code == 0, report
