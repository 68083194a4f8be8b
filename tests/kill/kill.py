#!/usr/bin/env python3
"""Kills the server again and again under load and checks every acknowledged write.

    target/venv/bin/python tests/kill/kill.py [--rounds N] [--seed S] [--seconds S] [--keep]

Each round: load of both doors, kill -9 at a random point, restart (which in one round of five is
itself killed), then every key is compared with the log of acknowledged writes. The seed decides
the load and the points of the kills; the interleaving of threads is the machine's.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.doors import S3, Http  # noqa: E402
from harness.server import Server, ServerFailed, scratch  # noqa: E402
from kill.load import BUCKET, Worker  # noqa: E402
from kill.model import AckLog, SharedLog  # noqa: E402

THREADS = 8
RESTART_SECONDS = 5.0


class Run:
    def __init__(self, seed, seconds, work):
        self.seed, self.seconds, self.work = seed, seconds, work
        self.rng = random.Random(seed)
        self.server = Server(directory=work / "data")
        self.log = AckLog(work / "acknowledged.log")
        self.shared = SharedLog("shared/log")
        self.violations, self.restarts, self.kills = [], [], 0
        self.workers = [
            Worker(n, seed, self.server, self.log, self.shared) for n in range(THREADS)
        ]

    def begin(self):
        self.server.start()
        S3(self.server.s3).create_bucket(BUCKET)
        reply = Http(self.server.http).object("PUT", BUCKET, self.shared.name, b"")
        assert reply.status in (200, 201, 204), reply

    def round(self, number):
        self.load_and_kill()
        self.restart(again=number % 5 == 4)
        self.verify(everything=number % 10 == 9)

    def load_and_kill(self):
        killing = threading.Event()
        threads = [threading.Thread(target=w.run, args=(killing,)) for w in self.workers]
        for thread in threads:
            thread.start()
        time.sleep(self.rng.uniform(0.05, 2 * self.seconds))
        dead_before = self.server.process.poll()
        killing.set()
        self.server.kill()
        self.kills += 1
        for thread in threads:
            thread.join()
        self.log.flush()
        if dead_before is not None:
            self.violations.append(f"the server died by itself: {self.server.tail()}")
        for worker in self.workers:
            if worker.problem:
                self.violations.append(worker.problem)
                worker.problem = None

    def restart(self, again):
        if again:  # kill the recovery too
            starting = threading.Thread(target=self._start_and_be_killed)
            self.server.process = None
            starting.start()
            time.sleep(self.rng.uniform(0.0, 0.15))
            while self.server.process is None:
                time.sleep(0.001)
            self.server.kill()
            self.kills += 1
            starting.join()
        self.server.start()
        ready = Http(self.server.http).request("GET", "/readyz")
        if ready.status != 200:
            self.violations.append(f"/readyz after restart: {ready}")
        self.restarts.append(self.server.start_seconds)

    def _start_and_be_killed(self):
        try:
            self.server.start()
        except ServerFailed:
            pass

    def verify(self, everything):
        keys = [key for worker in self.workers for key in worker.keys()]
        checked = [key for key in keys if everything or key.touched]
        with ThreadPoolExecutor(6) as pool:
            for problems in pool.map(self._verify_slice, [checked[i::6] for i in range(6)]):
                self.violations += problems
        self._verify_shared()
        self._verify_listings(keys)
        for worker in self.workers:
            worker.settled()

    def _verify_slice(self, keys):
        rng = random.Random(f"{self.seed}/{self.kills}")
        doors = [Http(self.server.http), S3(self.server.s3)]
        problems = []
        for key in keys:
            reply = rng.choice(doors).object("GET", BUCKET, key.name)
            if reply.status not in (200, 404):
                problems.append(f"ERROR: GET {key.name}: {reply}")
            elif problem := key.settle(reply.body if reply.status == 200 else None):
                problems.append(problem)
        return problems

    def _verify_shared(self):
        reply = S3(self.server.s3).object("GET", BUCKET, self.shared.name)
        if problem := self.shared.settle(reply.body if reply.status == 200 else b""):
            self.violations.append(problem)

    def _verify_listings(self, keys):
        """Both listings name what is there, with its size, and nothing else."""
        expected = {key.name: len(key.value) for key in keys if key.value is not None}
        size = len(self.shared.acknowledged) * len(SharedLog.record(0, 0))
        expected[self.shared.name] = size
        by_http = Http(self.server.http).list(BUCKET)
        by_s3 = S3(self.server.s3).list(BUCKET)
        for door, found in (
            ("http", {name: entry["size"] for name, entry in by_http.items()}),
            ("s3", {name: size for name, (size, _) in by_s3.items()}),
        ):
            if found != expected:
                odd = sorted(set(found.items()) ^ set(expected.items()))[:6]
                self.violations.append(f"LISTING by {door}: {odd}")

    def finish(self):
        """The last look: everything by content, then fsck of the killed directory."""
        self.verify(everything=True)
        self.server.kill()
        code, output = self.server.fsck()
        if code != 0:
            self.violations.append(f"fsck: exit {code}: {output[-2000:]}")
        return output


def run(
    rounds, seed=None, seconds=1.0, keep=False, restart_seconds=RESTART_SECONDS, echo=print
):
    """Returns the list of violations. A restart that takes longer than `restart_seconds` is one; on
    a machine with other things to do that says little."""
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    work = scratch("kill")
    echo(f"kill: seed {seed}, {rounds} rounds, {THREADS} threads")
    test = Run(seed, seconds, work)
    began = time.monotonic()
    try:
        test.begin()
        for number in range(rounds):
            test.round(number)
            if test.violations:
                echo(f"kill: violated in round {number}")
                break
            if number % 10 == 9:
                echo(f"kill: {number + 1} rounds, {test.log.count} acknowledged changes")
        output = test.finish()
        if not test.violations:
            echo("kill: fsck: " + (output.strip().splitlines() or ["(silent)"])[-1])
    finally:
        if test.server.process and test.server.process.poll() is None:
            test.server.kill()
    counts = sum((Counter(w.counts) for w in test.workers), Counter())
    shared = len(test.shared.acknowledged)
    if test.restarts and max(test.restarts) > restart_seconds:
        test.violations.append(f"a restart took {max(test.restarts):.2f} s")
    kept = f", kept {work}" if test.violations or keep else ""
    echo(
        f"kill: {test.kills} kills in {time.monotonic() - began:.0f} s, "
        f"{test.log.count + shared} acknowledged changes, {len(test.violations)} violations; "
        f"restart median {statistics.median(test.restarts or [0]):.2f} s, "
        f"worst {max(test.restarts or [0]):.2f} s{kept}"
    )
    echo("kill: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    for violation in test.violations[:20]:
        echo(f"kill: {violation}")
    if not kept:
        shutil.rmtree(work)
    return test.violations


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=float, default=1.0, help="mean of load before a kill")
    parser.add_argument("--keep", action="store_true", help="keep the directory and the log")
    options = parser.parse_args()
    echo = lambda text: print(text, flush=True)  # noqa: E731
    sys.exit(bool(run(options.rounds, options.seed, options.seconds, options.keep, echo=echo)))


if __name__ == "__main__":
    main()
