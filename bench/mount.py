"""A mount beside the local file system and GlusterFS, alternating; started by bench/mount.

All of them keep their data below one directory, on a disk or in memory, and are used through the
kernel of this machine. Writers write 128 KiB at a time and end with fsync.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from compare import ROOT, output, settle

sys.path.append(str(ROOT / "tests"))

from harness.cluster import Cluster  # noqa: E402
from harness.mount import Door, Mount  # noqa: E402
from harness.server import Server  # noqa: E402

MIB = 1 << 20
BLOCK = os.urandom(128 << 10)
FILE_MIB, FILES, ENTRIES = 128, 1000, 10_000


# ---------------------------------------------------------------- contenders


class Local:
    """The file system that the others keep their data on."""

    def __init__(self, data):
        self.root = data / "local"

    def start(self):
        self.root.mkdir(parents=True)
        return self

    def forget(self):
        pass

    def stop(self):
        pass


def begin(mount):
    """Mounts, for the first time; where everything is put then."""
    directory = mount.start().root / "d"
    directory.mkdir()
    return directory


class Cairn:
    """A server and a mount of it, as they are by default, or with options."""

    def __init__(self, data, name="cairn", options=()):
        self.server = Server(data / name / "data")
        self.mount = Mount(self.server, data / name / "mounted", options, bucket="bench")

    def start(self):
        self.server.work.mkdir()
        self.server.start()
        Door(self.server, "bench").ask("PUT", "")
        self.root = begin(self.mount)
        return self

    def forget(self):
        """Neither process remembers anything."""
        self.mount.stop()
        self.server.kill()
        self.server.start()
        self.mount.start()

    def stop(self):
        self.mount.stop()
        self.server.kill()


class Pair:
    """A cluster that keeps all on two chunkservers, and a mount that is a gateway of it."""

    def __init__(self, data):
        self.data = data / "cairn-pair"
        disks = {name: self.data for name in ("m1", "c1", "c2")}
        self.cluster = Cluster(chunkservers=2, gateways=1, disks=disks, replicas=2)
        self.node = self.data / "gateway"
        self.mount = Mount(None, self.data / "mounted", bucket="bench", node=self.node)

    def start(self):
        self.cluster.__enter__()
        Door(self.cluster["g1"], "bench").ask("PUT", "")
        self.cluster.command("cluster", "join", self.node, self.cluster.token("gateway"))
        self.root = begin(self.mount)
        return self

    def forget(self):
        """No process remembers anything."""
        self.mount.stop()
        for name in ("c1", "c2", "m1"):
            self.cluster.kill(name)
            self.cluster.start(name)
        self.cluster.wait_whole()
        self.mount.start()

    def stop(self):
        self.mount.stop()
        self.cluster.__exit__(None)


class ReadOnly:
    """What another contender holds, mounted once more for who only reads."""

    def __init__(self, cairn):
        self.cairn = cairn
        options = ["--read-only", "--local-locks"]
        path = cairn.mount.path.with_name("read-only")
        self.mount = Mount(cairn.server, path, options, bucket="bench")

    def start(self):
        self.mount.start()
        self.root = self.mount.root / "d"
        return self

    def forget(self):
        """The other one and their server were forgotten just before."""
        self.mount.stop()
        self.mount.start()

    def stop(self):
        self.mount.stop()


class Gluster:
    """A volume of some bricks on this machine, as it is by default."""

    # The daemon was not there before.
    has_begun = False

    def __init__(self, data, name, bricks, *kind):
        self.name, self.kind = "cairn-bench-" + name, kind
        self.bricks = [data / name / f"brick{number}" for number in range(bricks)]
        self.mounted = data / name / "mounted"
        self.root = self.mounted / "d"

    def start(self):
        if subprocess.run(["pgrep", "-x", "glusterd"], capture_output=True).returncode != 0:
            output("glusterd")
            Gluster.has_begun = True
            time.sleep(3)
        for path in [*self.bricks, self.mounted]:
            path.mkdir(parents=True)
        bricks = [f"{os.uname().nodename}:{brick}" for brick in self.bricks]
        self.remove()
        gluster("volume", "create", self.name, *self.kind, *bricks, "force")
        gluster("volume", "start", self.name)
        output("mount", "-t", "glusterfs", f"localhost:/{self.name}", self.mounted)
        self.root.mkdir()
        return self

    def forget(self):
        output("umount", self.mounted)
        output("mount", "-t", "glusterfs", f"localhost:/{self.name}", self.mounted)

    def remove(self):
        for verb in (["stop", self.name, "force"], ["delete", self.name]):
            command = ["gluster", "--mode=script", "volume", *verb]
            subprocess.run(command, capture_output=True)

    def stop(self):
        subprocess.run(["umount", "-l", self.mounted], capture_output=True)
        self.remove()


def gluster(*arguments):
    return output("gluster", "--mode=script", *arguments)


# ---------------------------------------------------------------- rows: of a root, a figure


def write(path, size):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(size // len(BLOCK)):
        os.write(fd, BLOCK)
    os.fsync(fd)
    os.close(fd)


def processor_seconds():
    """What all processors of the machine have worked so far."""
    user, nice, system, _idle, _waiting, *interrupts = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split("\n")[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def writers(count, clock=time.perf_counter):
    def run(root):
        paths = [root / f"w{number}" for number in range(count)]
        threads = [threading.Thread(target=write, args=(path, FILE_MIB * MIB)) for path in paths]
        began = clock()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = count * FILE_MIB / (clock() - began)
        for path in paths:
            path.unlink()
        return rate
    return run


def read(root):
    began = time.perf_counter()
    with open(root / "read", "rb", buffering=0) as file:
        while file.read(MIB):
            pass
    return FILE_MIB / (time.perf_counter() - began)


def random_reads(root):
    read(root)
    fd = os.open(root / "read", os.O_RDONLY)
    began = time.perf_counter()
    for number in range(5000):
        os.pread(fd, 4096, number * 7919 % (FILE_MIB * 256) * 4096)
    os.close(fd)
    return 5000 / (time.perf_counter() - began)


def microseconds(count, act):
    began = time.perf_counter_ns()
    for _ in range(count):
        act()
    return (time.perf_counter_ns() - began) / count / 1000


def open_read_close(name, size):
    def act(path):
        fd = os.open(path, os.O_RDONLY)
        os.read(fd, size)
        os.close(fd)
    return lambda root: microseconds(2000, lambda: act(root / name))


def stat(root):
    return microseconds(5000, lambda: os.stat(root / "430"))


def create(root):
    directory = root / "made"
    directory.mkdir()
    began = time.perf_counter()
    for number in range(FILES):
        (directory / str(number)).write_bytes(BLOCK[:4096])
    rate = FILES / (time.perf_counter() - began)
    shutil.rmtree(directory)
    return rate


def list_long(root):
    began = time.perf_counter()
    with os.scandir(root / "many") as entries:
        for entry in entries:
            entry.stat()
    return (time.perf_counter() - began) * 1000


class Row(NamedTuple):
    name: str
    run: Callable
    # What a ratio to the local file system must reach, or, of times, must not exceed: negative.
    target: float | None = None
    # All is forgotten first.
    cold: bool = False
    writes: bool = False


ROWS = [
    Row("one writer, MiB/s", writers(1), 0.5, writes=True),
    Row("two writers, MiB/s", writers(2), writes=True),
    Row("four writers, MiB/s", writers(4), writes=True),
    Row("one writer, MiB a CPU-second", writers(1, processor_seconds), writes=True),
    Row("two writers, MiB a CPU-second", writers(2, processor_seconds), writes=True),
    Row("four writers, MiB a CPU-second", writers(4, processor_seconds), writes=True),
    Row("read cold, MiB/s", read, 0.6, cold=True),
    Row("read again, MiB/s", read, 0.8),
    Row("random 4 KiB reads, warm, a second", random_reads, 0.8),
    Row("open, read 430 B, close, warm, us", open_read_close("430", 430), -1.5),
    Row("open, read 93 KB, close, warm, us", open_read_close("93k", 93_000), -1.5),
    Row("stat, warm, us", stat, -1.2),
    Row("create, write 4 KB, close, a second", create, writes=True),
    Row("list 10,000 with attributes, cold, ms", list_long, -3.0, cold=True),
    Row("list 10,000 with attributes, warm, ms", list_long, -1.5),
]


def prepare(contender):
    root = contender.root
    write(root / "read", FILE_MIB * MIB)
    (root / "430").write_bytes(BLOCK[:430])
    (root / "93k").write_bytes(BLOCK[:93_000])
    (root / "many").mkdir()
    for number in range(ENTRIES):
        os.close(os.open(root / "many" / str(number), os.O_WRONLY | os.O_CREAT))


def measure(contender, row):
    if row.cold:
        contender.forget()
        settle()
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    return row.run(contender.root)


def spread(numbers):
    middle, digits = statistics.median(numbers), 1 if max(numbers) < 100 else 0
    return f"{middle:,.{digits}f} ({min(numbers):,.{digits}f} to {max(numbers):,.{digits}f})"


def shown(row, name, seen, local):
    if not seen:
        return "", ""
    ratio = statistics.median(seen) / statistics.median(local)
    target = row.target if name.startswith("Cairn") and "replica" not in name else None
    met = target and (ratio >= target if target > 0 else ratio <= -target)
    verdict = "" if target is None else f" (target {abs(target)}: {'met' if met else '**missed**'})"
    return spread(seen), f"{ratio:.2f}{verdict}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "target/bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="contenders, by a part of their name")
    parser.add_argument("--without", default="", help="likewise, who is left out")
    args = parser.parse_args()
    work = args.data / "mounts"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    cairn = Cairn(work)
    every = {
        "local": Local(work),
        "Cairn": cairn,
        "Cairn, low latency": Cairn(work, "cairn-awake", ["--low-latency"]),
        "Cairn, read only": ReadOnly(cairn),
        "Cairn, replica 2": Pair(work),
        "Gluster, one brick": Gluster(work, "one", 1),
        "Gluster, two bricks": Gluster(work, "two", 2),
        "Gluster, replica 2": Gluster(work, "pair", 2, "replica", "2"),
    }
    chosen = {name: it for name, it in every.items() if name == "local" or args.only in name}
    if args.without:
        chosen = {name: it for name, it in chosen.items()
                  if name == "local" or args.without not in name}
    try:
        for contender in chosen.values():
            contender.start()
            if not isinstance(contender, ReadOnly):
                prepare(contender)
        print("| | " + " | ".join(f"{name} | of local" for name in chosen) + " |")
        print("|---|" + "---|---|" * len(chosen))
        for row in ROWS:
            seen = {name: [] for name in chosen}
            for _ in range(args.rounds):
                for name, contender in chosen.items():
                    if not (row.writes and isinstance(contender, ReadOnly)):
                        seen[name].append(measure(contender, row))
            local = seen["local"]
            cells = [" | ".join(shown(row, name, each, local)) for name, each in seen.items()]
            print(f"| {row.name} | " + " | ".join(cells) + " |", flush=True)
    finally:
        for contender in reversed(chosen.values()):
            contender.stop()
        if Gluster.has_begun:
            subprocess.run(["pkill", "-x", "glusterd"])
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
