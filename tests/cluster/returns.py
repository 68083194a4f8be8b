#!/usr/bin/env python3
"""Kills one, two or all of three machines at random moments under load, again and again.

    target/venv/bin/python tests/cluster/returns.py [--rounds N] [--seed S] [--all]

Those that died start again in any order. Once a majority runs, a write must be acknowledged within
20 s, and all machines must become whole. At the end everything that was acknowledged must be there,
through every gateway. Objects of 12 kB lie in the metadata, so the logs of the masters go round:
a load of 10 s fills a file of the log. With `--all` every round kills all three.
"""

import argparse
import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.load import LOST  # noqa: E402
from harness.machines import Machines  # noqa: E402
from kill.model import content  # noqa: E402

BUCKET = "returns"
SERVES_SECONDS = 20
LOAD_SECONDS = 10, 14
WRITERS = 12
SIZES = [12_000, 12_000, 12_000, 100, 70_000]
ATTEMPT_SECONDS = 5
# Between two machines that are started.
START_PAUSES = [0, 0, 0.5, 3]


def path(key):
    return f"/storage/{BUCKET}/{key}"


class Writers:
    """Threads that write objects of their own through all machines, and keep what was acknowledged."""

    def __init__(self, cluster):
        self.cluster, self.acknowledged, self.lock = cluster, {}, threading.Lock()
        self.ended, self.threads, self.runs = threading.Event(), [], 0

    def __enter__(self):
        self.runs += 1
        self.ended.clear()
        self.threads = [threading.Thread(target=self.write, args=(number,)) for number in range(WRITERS)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def write(self, number):
        names = self.cluster.machines()
        http = self.cluster.http(names[number % len(names)], timeout=ATTEMPT_SECONDS)
        count = 0
        while not self.ended.is_set():
            count += 1
            key, size = f"{self.runs}/{number}-{count}", SIZES[count % len(SIZES)]
            try:
                reply = http.request("PUT", path(key), content(key, size, size))
            except LOST:
                time.sleep(0.05)
                continue
            if reply.status == 201:
                with self.lock:
                    self.acknowledged[key] = size
            else:
                time.sleep(0.05)


def strike(cluster, rng, count):
    """Kills so many machines within a moment; returns their names."""
    dying = rng.sample(cluster.machines(), count)
    for name in dying:
        cluster[name].kill()
        time.sleep(rng.choice([0, 0, 0.02, 0.3]))
    return dying


def start(cluster, rng, names):
    """Starts them in any order; returns when a majority ran."""
    ran = time.monotonic()
    away = len(names)
    for name in rng.sample(names, len(names)):
        cluster[name].start()
        away -= 1
        if away * 2 < len(cluster.machines()) <= (away + 1) * 2:
            ran = time.monotonic()
        time.sleep(rng.choice(START_PAUSES))
    return ran


def until_written(cluster, number, names=None, size=100):
    """The seconds until a write is acknowledged through each machine that runs, or each of `names`."""
    began = time.monotonic()
    for name in names or cluster.machines():
        if not cluster[name].processes:
            continue
        http = cluster.http(name, timeout=ATTEMPT_SECONDS)
        key = f"after/{number}-{name}"
        while time.monotonic() < began + 6 * SERVES_SECONDS:
            try:
                if http.request("PUT", path(key), content(key, size, size)).status == 201:
                    break
            except LOST:
                pass
            time.sleep(0.1)
        else:
            return time.monotonic() - began
    return time.monotonic() - began


def wrong_objects(cluster, acknowledged):
    """Sentences about objects that are not what was acknowledged, read through one machine each."""
    names, wrong = cluster.machines(), []
    doors = {name: cluster.http(name, timeout=60) for name in names}
    for number, (key, size) in enumerate(acknowledged.items()):
        name = names[number % len(names)]
        reply = doors[name].request("GET", path(key))
        if reply.status != 200 or reply.body != content(key, size, size):
            wrong.append(f"LOST OR WRONG: {key} through {name}: {reply.status}")
    return wrong


def run(rounds, seed, always_all=False, echo=print):
    """Returns sentences about what went wrong."""
    rng, violations, times = random.Random(seed), [], []
    with Machines() as cluster:
        reply = cluster.http("n1", timeout=ATTEMPT_SECONDS).request("PUT", f"/storage/{BUCKET}")
        assert reply.status == 201, reply
        writers = Writers(cluster)
        for number in range(1, rounds + 1):
            count = 3 if always_all else rng.choice([1, 2, 3, 3])
            with writers:
                time.sleep(rng.uniform(*LOAD_SECONDS))
                dead = strike(cluster, rng, count)
                if count < 3:
                    time.sleep(rng.uniform(0, 5))
            ran = start(cluster, rng, dead)
            until_written(cluster, number)
            took = time.monotonic() - ran
            times.append(took)
            echo(f"returns: round {number} of seed {seed}: {count} died, serves after {took:.1f} s, "
                 f"{len(writers.acknowledged)} acknowledged")  # fmt: skip
            if took > SERVES_SECONDS:
                violations.append(f"LATE: round {number} of seed {seed}: {took:.1f} s")
            cluster.wait_whole()
        violations += wrong_objects(cluster, writers.acknowledged)
        violations += cluster.misbehaviour()
        cluster.keep = bool(violations)
    times.sort()
    echo(f"returns: {rounds} rounds of seed {seed}: p50 {times[len(times) // 2]:.1f} s, most {times[-1]:.1f} s")
    return violations


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="kill all three, always")
    arguments = parser.parse_args()
    violations = run(arguments.rounds, arguments.seed, arguments.all)
    print("\n".join(violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
