"""A directory with very many entries: made, listed while it changes, looked up, removed."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness.mount import Door, Mount
from harness.server import Server, scratch

ENTRIES = int(os.environ.get("CAIRN_TEST_DIRECTORY_ENTRIES", "20000"))
WORKERS = 4
# One of so many is removed.
REMOVED = 5
# Nobody waits that long for one request, however large the directory is.
SLOWEST_S = 60
# What server and mount may have more in memory: for caches, and for each entry.
FIXED_BYTES, ENTRY_BYTES = 1 << 30, 2000


def memory(pid):
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


class Steps:
    """Times of what is done, and of the slowest of it."""

    def __init__(self, pids):
        self.pids = pids
        self.before = {name: memory(pid) for name, pid in pids.items()}

    def each(self, what, work, items):
        """Does something with all, some at a time."""
        slowest = [0.0] * WORKERS

        def some(worker):
            for item in items[worker::WORKERS]:
                began = time.monotonic()
                work(item)
                slowest[worker] = max(slowest[worker], time.monotonic() - began)

        began = time.monotonic()
        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(some, range(WORKERS)))
        self.done(what, len(items), time.monotonic() - began, max(slowest))

    def done(self, what, count, seconds, slowest):
        used = {name: memory(pid) for name, pid in self.pids.items()}
        shown = ", ".join(f"{name} {size >> 20} MiB" for name, size in used.items())
        rate = f"{count / seconds:.0f} a second, slowest {slowest * 1000:.0f} ms"
        print(f"{what} {count}: {seconds:.1f} s, {rate}; {shown}", flush=True)
        assert slowest < SLOWEST_S, what
        for name, size in used.items():
            limit = FIXED_BYTES + ENTRY_BYTES * ENTRIES
            assert size - self.before[name] < limit, f"{what}: {name} uses {size} bytes"


class Churn:
    """Entries that come and go in a directory, until it is told to stop."""

    def __init__(self, path):
        self.path, self.count, self.over = path, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            name = self.path / f"{self.count % 97:02}-comes-{self.count}"
            name.touch()
            if self.count % 3:
                name.unlink()
            self.count += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def listed(path):
    """All names, and the longest that one of them took."""
    names, slowest, began = [], 0.0, time.monotonic()
    with os.scandir(path) as entries:
        for entry in entries:
            names.append(entry.name)
            now = time.monotonic()
            slowest, began = max(slowest, now - began), now
    return names, slowest


def test_a_directory_of_many_entries():
    with Server() as server:
        Door(server, "many").ask("PUT", "")
        work = scratch("many")
        with Mount(server, work / "one", bucket="many") as one:
            with Mount(server, work / "two", bucket="many") as two:
                check(server, one, two)


def check(server, one, two):
    here, there = one.root / "large", two.root / "large"
    here.mkdir()
    names = [f"{number % 89:02}-entry-{number:07}" for number in range(ENTRIES)]
    steps = Steps({"server": server.process.pid, "one": one.process.pid, "two": two.process.pid})

    def make(name):
        os.close(os.open(here / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))

    steps.each("made", make, names)
    for path in (here, there):
        with Churn(two.root / "large") as churn:
            began = time.monotonic()
            found, slowest = listed(path)
            seconds = time.monotonic() - began
        steps.done("listed", len(found), seconds, slowest)
        print(f"  {churn.count} came meanwhile, a part of them stayed")
        stayed = [name for name in found if "-entry-" in name]
        assert len(stayed) == ENTRIES and set(stayed) == set(names), "each once"
        assert len(set(found)) == len(found)
    steps.each("looked up", lambda name: os.stat(there / name), names[:: max(1, ENTRIES // 50_000)])
    steps.each("missed", lambda name: os.path.exists(there / f"{name}-not"), names[:1000])
    found, _ = listed(here)
    # Of all, it would take longer than all the rest.
    gone, stays = found[::REMOVED], set(found) - set(found[::REMOVED])
    steps.each("removed", lambda name: os.unlink(here / name), gone)
    for path in (here, there):
        names = os.listdir(path)
        assert len(names) == len(stays) and set(names) == stays
