#!/usr/bin/env python3
"""Judges all runs of `machine_episodes.py` that are parts of one deck, and prints one table.

    target/venv/bin/python tests/cluster/machine_report.py DIR --parts 6
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.deck import EVERY, TIMES  # noqa: E402
from cluster.episodes import RESUME_SECONDS  # noqa: E402

KINDS = ("write", "read")
OPERATIONS = 100_000
# How long reads of what a gateway has leased may pause when a machine dies.
PAUSE_SECONDS = 1.0
SHOWN = {
    "write": "a write of 70 KB goes on after a machine's death",
    "read": "an uncached read goes on after a machine's death",
}


def file_of(directory, part):
    return directory / f"part-{part}.json"


def percentile(times, percent):
    """The least of `times` that so many percent do not exceed."""
    ordered = sorted(times)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


class Summary:
    """Of the results of several runs."""

    def __init__(self, runs):
        self.episodes = [episode for run in runs for episode in run["episodes"]]
        self.operations = sum(run["operations"] for run in runs)
        self.unanswered = sum(run["unanswered"] for run in runs)
        self.violations = sum(run["violations"] for run in runs)
        self.deaths = {kind: [s for run in runs for s in run["deaths"][kind]] for kind in KINDS}
        # Of each: after how long it began, and how long it was.
        self.pauses = [pause for run in runs for pause in run["pauses"]]
        self.faults = Counter(episode["fault"] for episode in self.episodes)

    def table(self):
        lines = ["| | number | p50, s | p99, s | most, s |", "|---|---|---|---|---|"]
        lines.append(f"| operations in the histories | {self.operations:,} | | | |")
        lines.append(f"| of these without an answer | {self.unanswered:,} | | | |")
        lines.append(f"| violations | {self.violations} | | | |")
        lines += [row(SHOWN[kind], self.deaths[kind]) for kind in KINDS]
        longest = [seconds for _, seconds in self.pauses]
        lines.append(row("the longest pause of leased reads at a machine's death", longest))
        for kind in KINDS:
            slowest = [episode[kind] for episode in self.episodes]
            lines.append(row(f"the slowest {kind} of an episode", slowest))
        wholes = [episode["whole"] for episode in self.episodes]
        lines.append(row("redundancy is whole, and 2 s later still, after the end of a fault", wholes))
        for name in sorted(self.faults):
            wholes = [one["whole"] for one in self.episodes if one["fault"] == name]
            lines.append(row(f"the same after `{name}`", wholes))
        return "\n".join(lines)

    def problems(self):
        """What the runs together should have shown, and did not."""
        found = []
        if self.violations:
            found.append(f"{self.violations} violations")
        for name in EVERY:
            if (count := self.faults[name]) < TIMES:
                found.append(f"{name}: {count} times, not {TIMES}")
        if self.operations < OPERATIONS:
            found.append(f"{self.operations:,} operations, not {OPERATIONS:,}")
        for kind, times in self.deaths.items():
            if not times or percentile(times, 99) > RESUME_SECONDS:
                found.append(f"{SHOWN[kind]}: p99 not within {RESUME_SECONDS} s: {sorted(times)}")
        long = [pause for pause in self.pauses if pause[1] > PAUSE_SECONDS]
        if long or not self.pauses:
            shown = ", ".join(f"{seconds:.1f} s, {after:.1f} s after a death" for after, seconds in long)
            found.append(f"leased reads paused for more than {PAUSE_SECONDS} s: {shown or 'never measured'}")
        return found


def row(what, times):
    if not times:
        return f"| {what} | 0 | | | |"
    shown = [percentile(times, 50), percentile(times, 99), max(times)]
    return f"| {what} | {len(times)} | " + " | ".join(f"{seconds:.2f}" for seconds in shown) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--parts", type=int, required=True)
    options = parser.parse_args()
    files = [file_of(options.directory, part) for part in range(1, options.parts + 1)]
    missing = [str(file) for file in files if not file.exists()]
    summary = Summary([json.loads(file.read_text()) for file in files if file.exists()])
    print(summary.table(), flush=True)
    problems = [f"{file} is not there: its run has not ended" for file in missing]
    problems += summary.problems()
    for problem in problems:
        print(f"FAILED: {problem}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
