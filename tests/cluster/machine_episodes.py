#!/usr/bin/env python3
"""Breaks three machines again and again under load and checks everything that clients saw.

    target/venv/bin/python tests/cluster/machine_episodes.py [--episodes N] [--seed S] [--apart]

As `episodes.py`, for three machines that run `cairn node` and nothing else. After the death of a
machine it is measured when a write and an uncached read go on through each of the others. With
`--apart` the roles of each machine are three processes, of which faults strike single ones, and the
same is measured after the death of the master that serves. `--times` collects what was measured.
"""

import argparse
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.episodes import LIVE_SECONDS, RESUME_SECONDS, Run, report  # noqa: E402
from cluster.machine_faults import FELT, HURTS, MachineFaults  # noqa: E402
from harness import disk  # noqa: E402
from harness.machines import Machines  # noqa: E402

DISK_MIB = 1536


class MachineRun(Run):
    def __init__(self, cluster, seed, disks, only, patience, echo):
        # The load and its history first; faults of machines are others than those of nodes.
        super().__init__(cluster, seed, None, only, patience, echo, bucket_by="n1")
        self.faults, self.hurts = MachineFaults(cluster, self.rng, *disks), HURTS
        self.faults.replaced = self.load.follow

    def episode(self, number, name):
        if name not in self.faults.names():
            # Of a disk whose machine was replaced.
            name = "kill_serving_machine"
        super().episode(number, name)
        self.violations += self.faults.wrong
        self.faults.wrong = []

    def finish(self):
        super().finish()
        for kind, times in self.faults.deaths.items():
            slow = [seconds for seconds in times if seconds > self.resume_seconds]
            self.violations += [f"SLOW: {FELT[kind]}: {seconds:.1f} s" for seconds in slow]


def percentile(times, percent):
    """The least of `times` that so many percent do not exceed."""
    ordered = sorted(times)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def keep_times(path, seed, deaths):
    """Those of all runs that have the file, each seed once."""
    former = path.read_text().splitlines() if path.exists() else []
    lines = [line for line in former if line.split()[0] != str(seed)]
    lines += [f"{seed} {kind} {seconds:.3f}" for kind in FELT for seconds in deaths[kind]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_times(path)


def read_times(path):
    words = [line.split() for line in path.read_text().splitlines()]
    return {kind: [float(seconds) for _, of, seconds in words if of == kind] for kind in FELT}


def show_deaths(deaths, what, echo):
    for kind, shown in FELT.items():
        if times := deaths[kind]:
            p50, p99 = percentile(times, 50), percentile(times, 99)
            echo(
                f"machines: {what}: {shown}: p50 {p50:.1f} s, p99 {p99:.1f} s, most "
                f"{max(times):.1f} s, {len(times)} measured"
            )


def small_disks(stack, echo):
    """One for n1's chunkserver and one for all of n2, or none."""
    try:
        return [stack.enter_context(disk.SmallDisk(DISK_MIB)) for _ in range(2)]
    except disk.Unavailable as error:
        echo(f"machines: NOT RUN: all faults of disks: {error}")
        return []


def run(
    episodes, seed=None, only=None, apart=False, keep=False, resume_seconds=RESUME_SECONDS,
    live_seconds=LIVE_SECONDS, times=None, echo=print,
):  # fmt: skip
    """Returns the list of violations; as `episodes.run`. Raises `net.Unavailable`."""
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    echo(f"machines: seed {seed}, {episodes} episodes{', roles apart' * apart}")
    began = time.monotonic()
    with ExitStack() as stack:
        disks = small_disks(stack, echo)
        places = dict(zip(["n1/disk", "n2"], [one.mount for one in disks]))
        with Machines(apart=apart, places=places) as cluster:
            patience = resume_seconds, live_seconds
            test = MachineRun(cluster, seed, disks, only, patience, echo)
            try:
                test.episodes(episodes)
                test.finish()
            finally:
                for one in disks:
                    one.heal()
                test.history.write(cluster.work / "history")
            cluster.keep = keep or bool(test.violations)
    deaths = test.faults.deaths
    show_deaths(deaths, "this run", echo)
    if times:
        show_deaths(keep_times(times, seed, deaths), "all runs", echo)
    report(test, cluster, time.monotonic() - began, seed, echo)
    return test.violations


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", action="append", metavar="FAULT", help="only these faults")
    parser.add_argument("--apart", action="store_true", help="roles are processes of their own")
    parser.add_argument("--keep", action="store_true", help="keep directories, logs, the history")
    parser.add_argument("--resume-seconds", type=float, default=RESUME_SECONDS)
    parser.add_argument("--times", type=Path, help="a file that collects times of all runs")
    options = parser.parse_args()
    echo = lambda text: print(text, flush=True)  # noqa: E731
    violations = run(
        options.episodes, options.seed, options.only, options.apart, options.keep,
        resume_seconds=options.resume_seconds, times=options.times, echo=echo,
    )  # fmt: skip
    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
