#!/usr/bin/env python3
"""Breaks three machines again and again under load and checks everything that clients saw.

    target/venv/bin/python tests/cluster/machine_episodes.py [--episodes N] [--seed S] [--apart]

As `episodes.py`, for three machines that run `cairn node` and nothing else. After the death of a
machine it is measured when a write and an uncached read go on through each of the others, and for
how long reads of what is leased pause. With `--apart` the roles of each machine are three
processes, of which faults strike single ones.

With `--deck-part 3/6` this is the third of six runs that share the episodes: together they have
every fault (`deck.py`), and all that these need must be there. `machine_report.py` judges what
they leave in `--results`.
"""

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster import deck  # noqa: E402
from cluster.episodes import LIVE_SECONDS, RESUME_SECONDS, Run, report  # noqa: E402
from cluster.machine_faults import HURTS, MachineFaults  # noqa: E402
from cluster.machine_report import KINDS, OPERATIONS, file_of, percentile  # noqa: E402
from harness import disk  # noqa: E402
from harness.machines import Machines  # noqa: E402
from harness.wait import comes_true  # noqa: E402

DISK_MIB = 1536
# By then a run has as many operations as its share is, or the machine is too slow for that.
CALM_SECONDS_MAX = 300
# A place for itself has all of n2, and each role of another machine; the master that serves should
# mostly have one.
PLACES = ["n1/disk", "n1/master", "n1/gateway", "n2", "n3/master"]


class MachineRun(Run):
    def __init__(self, cluster, seed, disks, only, patience, echo):
        # The load and its history first; faults of machines are others than those of nodes.
        super().__init__(cluster, seed, None, only, patience, echo, bucket_by="n1")
        slack = max(0, self.resume_seconds - RESUME_SECONDS)
        self.faults = MachineFaults(cluster, self.rng, disks, slack)
        self.hurts, self.faults.replaced = HURTS, self.load.follow
        self.least_operations = 0

    def episode(self, number, name):
        super().episode(number, name)
        self.violations += self.faults.wrong
        self.faults.wrong.clear()

    def calm_down(self):
        """Until the history is as long as its share is to be."""
        super().calm_down()
        if not self.violations:
            is_long = lambda: len(self.history.ops) >= self.least_operations  # noqa: E731
            comes_true(is_long, CALM_SECONDS_MAX, 1)

    def finish(self):
        super().finish()
        for kind, times in self.faults.deaths.times.items():
            slow = [seconds for seconds in times if seconds > self.resume_seconds]
            self.violations += [f"SLOW: a {kind} {seconds:.1f} s after a death" for seconds in slow]

    def results(self):
        """For `machine_report.py`."""
        ops, deaths = self.history.ops, self.faults.deaths
        return {
            "operations": len(ops), "unanswered": sum(not op.is_certain for op in ops),
            "episodes": self.told, "deaths": deaths.times, "pauses": deaths.pauses,
            "violations": len(self.violations),
        }  # fmt: skip


def show_deaths(deaths, echo):
    for kind in KINDS:
        if times := deaths.times[kind]:
            p50, p99 = percentile(times, 50), percentile(times, 99)
            echo(
                f"machines: a {kind} goes on after a death: p50 {p50:.1f} s, p99 {p99:.1f} "
                f"s, most {max(times):.1f} s, {len(times)} measured"
            )
    for after, seconds in deaths.pauses:
        echo(f"machines: leased reads paused for {seconds:.2f} s at most, {after:.1f} s after a death")


def small_disks(stack):
    """By the places that they are for."""
    return {place: stack.enter_context(disk.SmallDisk(DISK_MIB)) for place in PLACES}


def small_disks_or_none(stack, echo):
    try:
        return small_disks(stack)
    except disk.Unavailable as error:
        echo(f"machines: NOT RUN: all faults of disks: {error}")
        return {}


def run(
    episodes, seed=None, only=None, apart=False, keep=False, resume_seconds=RESUME_SECONDS,
    live_seconds=LIVE_SECONDS, part=None, results=None, echo=print,
):  # fmt: skip
    """Returns the list of violations; as `episodes.run`. `part` is that of a deck: its number, and
    how many there are. Raises `net.Unavailable`, and, with a part, `disk.Unavailable`."""
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    hand = deck.deal(episodes, part[1])[part[0] - 1] if part else []
    episodes, apart = (len(hand), deck.is_apart(part[0])) if part else (episodes, apart)
    echo(f"machines: seed {seed}, {episodes} episodes{', roles apart' * apart}")
    if results:
        file_of(results, part[0]).unlink(missing_ok=True)
    began = time.monotonic()
    with ExitStack() as stack:
        disks = small_disks(stack) if part else small_disks_or_none(stack, echo)
        places = {place: one.mount for place, one in disks.items()}
        with Machines(apart=apart, places=places) as cluster:
            by_mount = {one.mount: one for one in disks.values()}
            patience = resume_seconds, live_seconds
            test = MachineRun(cluster, seed, by_mount, only, patience, echo)
            test.deck = hand[::-1]
            test.least_operations = -(-OPERATIONS // part[1]) if part else 0
            try:
                test.episodes(episodes)
                test.finish()
            finally:
                for one in disks.values():
                    one.heal()
                test.history.write(cluster.work / "history")
            cluster.keep = keep or bool(test.violations)
    show_deaths(test.faults.deaths, echo)
    if results:
        results.mkdir(parents=True, exist_ok=True)
        file_of(results, part[0]).write_text(json.dumps(test.results()))
    report(test, cluster, time.monotonic() - began, seed, echo)
    return test.violations


def part_of(text):
    """`3/6` as (3, 6)."""
    part, parts = map(int, text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError(text)
    return part, parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=60, help="of all parts together")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", action="append", metavar="FAULT", help="only these faults")
    parser.add_argument("--apart", action="store_true", help="roles are processes of their own")
    parser.add_argument("--keep", action="store_true", help="keep directories, logs, the history")
    parser.add_argument("--resume-seconds", type=float, default=RESUME_SECONDS)
    parser.add_argument("--deck-part", type=part_of, metavar="K/N", help="the Kth of N runs")
    parser.add_argument("--results", type=Path, metavar="DIR", help="keep what this run found")
    options = parser.parse_args()
    if options.deck_part and (options.only or options.apart):
        parser.error("a part of the deck says itself which faults there are, and of what")
    if options.results and not options.deck_part:
        parser.error("results are kept of parts of the deck")
    echo = lambda text: print(text, flush=True)  # noqa: E731
    violations = run(
        options.episodes, options.seed, options.only, options.apart, options.keep,
        resume_seconds=options.resume_seconds, part=options.deck_part, results=options.results,
        echo=echo,
    )  # fmt: skip
    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
