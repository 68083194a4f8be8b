"""Control groups of a test's own: a quota of CPU, a limit of memory, a disk that is throttled."""

import itertools
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
numbers = itertools.count(1)


class Unavailable(Exception):
    """Control groups cannot be made here."""


class Cgroup:
    """`with Cgroup("cpu") as group:` has no limits at first; who is in it leaves at the end."""

    def __init__(self, controller):
        name = f"cairn-test-{os.getpid()}-{next(numbers)}"
        self.is_first = (ROOT / controller / "cgroup.procs").exists()
        self.parent = ROOT / controller if self.is_first else ROOT
        self.controller, self.path = controller, self.parent / name

    def __enter__(self):
        try:
            if not self.is_first:
                named = {"blkio": "io"}.get(self.controller, self.controller)
                (ROOT / "cgroup.subtree_control").write_text(f"+{named}")
            self.path.mkdir()
        except OSError as error:
            raise Unavailable(f"a control group cannot be made: {error}") from None
        return self

    def __exit__(self, *_):
        for pid in (self.path / "cgroup.procs").read_text().split():
            try:
                (self.parent / "cgroup.procs").write_text(pid)
            except OSError:
                pass  # it has ended
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.05)

    def add(self, *pids):
        for pid in pids:
            (self.path / "cgroup.procs").write_text(str(pid))

    def cpu(self, cores):
        """So many cores for all in it."""
        quota = int(PERIOD_US * cores)
        if self.is_first:
            (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.path / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.path / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    def memory(self, limit_bytes):
        """So many bytes for all in it, with the pages of files that they read and write."""
        name = "memory.limit_in_bytes" if self.is_first else "memory.max"
        (self.path / name).write_text(str(limit_bytes))

    def writes_a_second(self, directory, count):
        """So many writes to the disk that a directory is on."""
        device = os.stat(directory).st_dev
        disk = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
        if (disk / "partition").exists():
            disk = disk.parent
        number = (disk / "dev").read_text().strip()
        if self.is_first:
            (self.path / "blkio.throttle.write_iops_device").write_text(f"{number} {count}")
        else:
            (self.path / "io.max").write_text(f"{number} wiops={count}")
