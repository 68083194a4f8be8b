#!/usr/bin/env python3
"""A mount beside the local file system, in one run, alternating.

    python3 bench/mount.py MOUNTED LOCAL [--rounds N]

MOUNTED is a directory of a mount, LOCAL one on the disk of the server's data. Prints for each row
the median of both and their ratio; writers write 128 KiB at a time and end with fsync.
"""

import argparse
import os
import shutil
import statistics
import threading
import time
from pathlib import Path

BLOCK = os.urandom(128 << 10)
MIB = 1 << 20


def write(path, size):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(size // len(BLOCK)):
        os.write(fd, BLOCK)
    os.fsync(fd)
    os.close(fd)


def writers(count):
    def run(root):
        paths = [root / f"w{number}" for number in range(count)]
        threads = [threading.Thread(target=write, args=(path, 128 * MIB)) for path in paths]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = count * 128 / (time.perf_counter() - began)
        for path in paths:
            path.unlink()
        return rate
    return run


def read_again(root):
    path = root / "read"
    if not path.exists():
        write(path, 128 * MIB)
        path.read_bytes()
    began = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.read(MIB):
            pass
    return 128 / (time.perf_counter() - began)


def small(size):
    def run(root):
        path = root / f"small{size}"
        if not path.exists():
            path.write_bytes(b"x" * size)
        best = []
        for _ in range(2000):
            began = time.perf_counter_ns()
            fd = os.open(path, os.O_RDONLY)
            os.read(fd, size)
            os.close(fd)
            best.append(time.perf_counter_ns() - began)
        return statistics.mean(best) / 1000
    return run


def stat(root):
    path = root / "small430"
    if not path.exists():
        path.write_bytes(b"x" * 430)
    began = time.perf_counter_ns()
    for _ in range(5000):
        os.stat(path)
    return (time.perf_counter_ns() - began) / 5000 / 1000


def create(root):
    directory = root / "made"
    directory.mkdir()
    began = time.perf_counter()
    for number in range(200):
        (directory / str(number)).write_bytes(b"x" * 4096)
    rate = 200 / (time.perf_counter() - began)
    shutil.rmtree(directory)
    return rate


def list_long(root):
    directory = root / "many"
    if not directory.exists():
        directory.mkdir()
        for number in range(2000):
            os.close(os.open(directory / str(number), os.O_WRONLY | os.O_CREAT))
    began = time.perf_counter()
    with os.scandir(directory) as entries:
        for entry in entries:
            entry.stat()
    return (time.perf_counter() - began) * 1000


def random_reads(root):
    read_again(root)
    fd = os.open(root / "read", os.O_RDONLY)
    began = time.perf_counter()
    for number in range(5000):
        os.pread(fd, 4096, number * 7919 % 32768 * 4096)
    os.close(fd)
    return 5000 / (time.perf_counter() - began)


ROWS = [
    ("one writer, MiB/s", writers(1)), ("two writers, MiB/s", writers(2)),
    ("read again, MiB/s", read_again), ("random 4 KiB reads, /s", random_reads),
    ("open, read 430 B, close, us", small(430)), ("open, read 93 KB, close, us", small(93_000)),
    ("stat, us", stat), ("create 4 KB files, /s", create), ("list 2,000 with stat, ms", list_long),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mounted", type=Path)
    parser.add_argument("local", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{'':32}{'mount':>12}{'local':>12}{'ratio':>8}")
    for name, row in ROWS:
        seen = [(row(args.mounted), row(args.local)) for _ in range(args.rounds)]
        mounted, local = (statistics.median(side) for side in zip(*seen))
        print(f"{name:32}{mounted:12.1f}{local:12.1f}{mounted / local:8.2f}", flush=True)


if __name__ == "__main__":
    main()
