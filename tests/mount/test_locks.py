"""Locks hold between the programs of all mounts, and end with who held them."""

import contextlib
import errno
import fcntl
import multiprocessing
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time

import pytest

from harness.mount import Door, Mount
from harness.server import Server, scratch
from harness.stop import go_on, stop
from harness.wait import PATIENCE_SECONDS, eventually

STEPS = 300
BYTES = 8
CONTEXT = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def opened(path, flags=os.O_RDWR):
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def tries(fd, kind, start=0, length=0, lock=fcntl.lockf):
    """Whether a lock is had at once."""
    kind = kind if kind == fcntl.LOCK_UN else kind | fcntl.LOCK_NB
    try:
        lock(fd, kind) if lock == fcntl.flock else lock(fd, kind, length, start)
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return False
    return True


def holder(fd):
    """Kind, start and length of a lock that one on the whole file would wait for."""
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, start, length, _ = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else (kind, start, length)


def test_ranges_are_as_on_one_machine(mounts):
    """Two mounts are two processes: random locks and unlocks beside a table of bytes."""
    one, two, _ = mounts
    (one / "ranges").write_bytes(b"x" * BYTES)
    rng = random.Random(5)
    with opened(one / "ranges") as first, opened(two / "ranges") as second:
        table = [[None] * BYTES, [None] * BYTES]
        for number in range(STEPS):
            who = rng.randrange(2)
            fd, mine, other = (first, second)[who], table[who], table[1 - who]
            start = rng.randrange(BYTES)
            end = rng.randrange(start, BYTES) + 1
            kind = rng.choice([fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN])
            got = tries(fd, kind, start, end - start)
            allowed = kind == fcntl.LOCK_UN or all(
                held is None or held == kind == fcntl.LOCK_SH for held in other[start:end]
            )
            assert got == allowed, f"step {number}: {table}"
            if got:
                mine[start:end] = [None if kind == fcntl.LOCK_UN else kind] * (end - start)


def test_who_holds_a_lock_is_told(mounts):
    one, two, _ = mounts
    (one / "told").write_bytes(b"x" * 100)
    with opened(one / "told") as first, opened(two / "told") as second:
        assert holder(second) is None
        fcntl.lockf(first, fcntl.LOCK_EX, 10, 20)
        assert holder(second) == (fcntl.F_WRLCK, 20, 10)
        assert holder(first) is None, "its own"


@pytest.mark.parametrize("lock", [fcntl.flock, fcntl.lockf])
def test_who_waits_gets_it_when_it_is_free(mounts, lock):
    one, two, _ = mounts
    name = f"waited-{lock.__name__}"
    (one / name).write_bytes(b"")
    with opened(one / name) as first, opened(two / name) as second:
        lock(first, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            lock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        waiter = threading.Thread(target=lock, args=(second, fcntl.LOCK_EX))
        waiter.start()
        time.sleep(0.5)
        assert waiter.is_alive()
        # What was written under the lock is there for who gets it next.
        os.write(first, b"before")
        lock(first, fcntl.LOCK_UN)
        waiter.join(timeout=PATIENCE_SECONDS)
        assert not waiter.is_alive()
        assert os.pread(second, 100, 0) == b"before"
        with pytest.raises(BlockingIOError):
            lock(first, fcntl.LOCK_SH | fcntl.LOCK_NB)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
def test_closing_unlocks(mounts, flags):
    one, two, _ = mounts
    (one / "closed").write_bytes(b"x")
    with opened(two / "closed") as second:
        for lock in (fcntl.flock, fcntl.lockf):
            with opened(one / "closed", flags) as first:
                lock(first, fcntl.LOCK_SH)
                assert not tries(second, fcntl.LOCK_EX, lock=lock)
            # Of a file that was only read, the kernel tells when it is closed, a moment later.
            eventually(lambda: tries(second, fcntl.LOCK_EX, lock=lock))
            lock(second, fcntl.LOCK_UN)


def take_both(path):
    """As some programs do that do not know which one the others look at."""
    with opened(path) as fd, opened(path) as other:
        fcntl.flock(fd, fcntl.LOCK_EX)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        fcntl.lockf(other, fcntl.LOCK_SH)
        fcntl.flock(fd, fcntl.LOCK_UN)
        fcntl.lockf(fd, fcntl.LOCK_UN)


def test_flock_and_fcntl_know_nothing_of_each_other(mounts):
    one, two, _ = mounts
    (one / "both").write_bytes(b"x")
    program = CONTEXT.Process(target=take_both, args=(one / "both",))
    program.start()
    program.join(timeout=PATIENCE_SECONDS)
    program.kill()
    assert program.exitcode == 0
    with opened(one / "both") as first, opened(two / "both") as second:
        for held, free in ((fcntl.flock, fcntl.lockf), (fcntl.lockf, fcntl.flock)):
            held(first, fcntl.LOCK_EX)
            assert tries(second, fcntl.LOCK_EX, lock=free)
            assert not tries(second, fcntl.LOCK_EX, lock=held)
            # Giving one back does not give back the other.
            free(first, fcntl.LOCK_UN)
            assert not tries(second, fcntl.LOCK_EX, lock=held)
            free(second, fcntl.LOCK_UN)
            held(first, fcntl.LOCK_UN)
            assert tries(second, fcntl.LOCK_EX, lock=held)
            held(second, fcntl.LOCK_UN)


# Of the description that is open, by fcntl: Python does not name it.
F_OFD_SETLK = 37


def test_locks_of_descriptions_are_as_by_fcntl(mounts):
    one, two, _ = mounts
    (one / "described").write_bytes(b"x")
    with opened(one / "described") as first, opened(two / "described") as second:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.fcntl(first, F_OFD_SETLK, lock)
        fcntl.flock(first, fcntl.LOCK_UN)
        assert tries(second, fcntl.LOCK_SH, lock=fcntl.flock)
        assert not tries(second, fcntl.LOCK_SH)


def test_who_waits_can_be_interrupted_and_killed(mounts):
    one, two, _ = mounts
    (one / "stuck").write_bytes(b"")
    program = (
        "import fcntl, signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3));"
        "f = open(sys.argv[1], 'r+'); print('asks', flush=True); fcntl.lockf(f, fcntl.LOCK_EX)"
    )
    with opened(one / "stuck") as first:
        fcntl.lockf(first, fcntl.LOCK_EX)
        for number, status in ((signal.SIGUSR1, 3), (signal.SIGKILL, -signal.SIGKILL)):
            child = subprocess.Popen(
                [sys.executable, "-c", program, two / "stuck"], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            assert child.stdout.readline() == "asks\n"
            # It waits soon, and ends by the signal even if it does not yet.
            time.sleep(0.5)
            assert child.poll() is None
            child.send_signal(number)
            assert child.wait(timeout=PATIENCE_SECONDS) == status


def count(path, times):
    """Adds to a number in a file, under a lock."""
    for _ in range(times):
        with opened(path) as fd:
            fcntl.lockf(fd, fcntl.LOCK_EX)
            number = int(os.pread(fd, 20, 0) or b"0")
            os.pwrite(fd, b"%d" % (number + 1), 0)


def test_counting_from_two_mounts_misses_nothing(mounts):
    one, two, _ = mounts
    (one / "counter").write_bytes(b"0")
    workers = [
        CONTEXT.Process(target=count, args=(root / "counter", 50)) for root in (one, two, one, two)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=PATIENCE_SECONDS)
        assert worker.exitcode == 0
    assert (two / "counter").read_text() == "200"


def insert(path, tag, times):
    database = sqlite3.connect(path, timeout=PATIENCE_SECONDS)
    for number in range(times):
        with database:
            database.execute("insert into lines values (?)", (f"{tag}{number}",))
    database.close()


def test_sqlite_from_two_mounts(mounts):
    one, two, _ = mounts
    database = sqlite3.connect(one / "shared.db")
    database.execute("create table lines (text)")
    database.close()
    workers = [
        CONTEXT.Process(target=insert, args=(root / "shared.db", tag, 25))
        for root, tag in ((one, "a"), (two, "b"))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=PATIENCE_SECONDS)
        assert worker.exitcode == 0
    for root in (one, two):
        database = sqlite3.connect(root / "shared.db")
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
        assert database.execute("select count(*) from lines").fetchone() == (50,)
        database.close()


@pytest.fixture
def pair():
    with Server() as server:
        Door(server, "bucket").ask("PUT", "")
        work = scratch("locks")
        with Mount(server, work / "one", bucket="bucket") as one:
            with Mount(server, work / "two", bucket="bucket") as two:
                yield server, one, two


def test_the_locks_of_a_mount_that_died_go_after_its_lease(pair):
    _, one, two = pair
    (two.root / "f").write_bytes(b"")
    holder_script = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'r+');"
        "fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", holder_script, one.root / "f"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    with opened(two.root / "f") as fd:
        assert not tries(fd, fcntl.LOCK_EX)
        one.kill()
        fcntl.lockf(fd, fcntl.LOCK_EX)
    child.kill()
    child.wait()


def fails(attempt):
    try:
        attempt()
    except OSError as error:
        assert error.errno == errno.EIO, error
        return True
    return False


def test_who_lost_its_locks_can_do_nothing_with_the_file(pair):
    """A mount that was frozen past its lease: somebody else has the lock now."""
    _, one, two = pair
    (two.root / "f").write_bytes(b"first")
    first = os.open(one.root / "f", os.O_RDWR)
    with opened(two.root / "f") as second:
        fcntl.lockf(first, fcntl.LOCK_EX)
        os.pwrite(first, b"LATE!", 0)
        stop(one.process)
        fcntl.lockf(second, fcntl.LOCK_EX)
        os.pwrite(second, b"other", 0)
        os.fsync(second)
        go_on(one.process)
        # Until it knows.
        eventually(lambda: fails(lambda: os.pread(first, 5, 0)))
        for attempt in (
            lambda: os.fsync(first),
            lambda: os.pwrite(first, b"x", 0),
            lambda: os.pread(first, 5, 0),
            lambda: fcntl.lockf(first, fcntl.LOCK_EX | fcntl.LOCK_NB),
            lambda: os.close(first),
        ):
            with pytest.raises(OSError) as failed:
                attempt()
            assert failed.value.errno == errno.EIO
        assert os.pread(second, 10, 0) == b"other"
    assert (two.root / "f").read_bytes() == b"other"
    assert (one.root / "f").read_bytes() == b"other", "opened again, all is well"


def test_locks_outlive_the_server(pair):
    server, one, two = pair
    (two.root / "f").write_bytes(b"")
    with opened(one.root / "f") as first, opened(two.root / "f") as second:
        fcntl.lockf(first, fcntl.LOCK_EX)
        server.restart()
        assert not tries(second, fcntl.LOCK_EX)
        fcntl.lockf(first, fcntl.LOCK_UN)
        assert tries(second, fcntl.LOCK_EX)
