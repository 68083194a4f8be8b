"""The deck of faults for machines, and what is asked of the runs that share it."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cluster import deck, machine_episodes, machine_report
from cluster.deaths import LeasedReads
from cluster.machine_faults import OF_ROLES, MachineFaults
from harness import disk
from harness.machines import Machines

EPISODES, PARTS = 60, 6
REPORT = Path(machine_report.__file__)


def test_every_fault_is_dealt_twice():
    hands = deck.deal(EPISODES, PARTS)
    assert [len(hand) for hand in hands] == [EPISODES // PARTS] * PARTS
    counts = Counter(name for hand in hands for name in hand)
    assert set(counts) == set(deck.EVERY) and min(counts.values()) >= 2, counts
    for name in deck.EVERY:
        assert hasattr(MachineFaults, name), name
    together = {name for part, hand in enumerate(hands, 1) if not deck.is_apart(part) for name in hand}
    assert not together & set(OF_ROLES)
    assert together | set(OF_ROLES) == set(deck.EVERY)
    assert deck.deal(EPISODES, PARTS) == hands
    with pytest.raises(AssertionError):
        deck.deal(54, PARTS)


def test_a_part_of_the_deck_fails_without_loop_devices(monkeypatch):
    def none(*_):
        raise disk.Unavailable("none")

    monkeypatch.setattr(disk, "SmallDisk", none)
    with pytest.raises(disk.Unavailable):
        machine_episodes.run(EPISODES, seed=1, part=(1, PARTS))


def test_disks_are_passed_on_to_a_machine_that_takes_the_place_of_another():
    machines = Machines.__new__(Machines)
    machines.places = {"n1": "a", "n1/disk": "b", "n11": "c", "n2/master": "d"}
    machines.pass_on_places("n1", "n4")
    assert machines.places == {"n4": "a", "n4/disk": "b", "n11": "c", "n2/master": "d"}


def test_the_longest_pause_of_leased_reads():
    reads = LeasedReads("n1", None)
    reads.answered = [1.0, 2.0, 2.5, 4.0, 4.25, 9.0]
    assert reads.pause(2.0, 5.0) == (0.5, 1.5)
    assert reads.pause(4.0, 8.0) == (0.25, 3.75)
    assert len(reads.between(2.0, 5.0)) == 3


def results():
    """Of runs in which all went well."""
    found = []
    for hand in deck.deal(EPISODES, PARTS):
        episodes = [{"fault": name, "struck": "n1", "read": 1.0, "write": 2.0, "whole": 3.0} for name in hand]
        found.append({
            "operations": 17_000, "unanswered": 10, "violations": 0, "episodes": episodes,
            "deaths": {"write": [3.5, 4.0], "read": [0.1, 0.2]}, "pauses": [[0.5, 0.02]],
        })  # fmt: skip
    return found


def judged(directory, runs):
    """How the report ends, and what it prints."""
    for part, run in enumerate(runs, 1):
        machine_report.file_of(directory, part).write_text(json.dumps(run))
    command = [sys.executable, "-B", REPORT, directory, "--parts", str(PARTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_the_report_is_a_table(tmp_path):
    code, told = judged(tmp_path, results())
    assert code == 0, told
    lines = told.splitlines()
    assert all(line.startswith("|") and line.count("|") == 6 for line in lines), told
    assert "| operations in the histories | 102,000 | | | |" in lines
    assert "| a write of 70 KB goes on after a machine's death | 12 | 3.50 | 4.00 | 4.00 |" in lines
    assert "| the longest pause of leased reads at a machine's death | 6 | 0.02 | 0.02 | 0.02 |" in lines
    assert "| redundancy is whole, and 2 s later still, after the end of a fault | 60 | 3.00 | 3.00 | 3.00 |" in lines
    assert "| the same after `wipe_master` | 2 | 3.00 | 3.00 | 3.00 |" in lines


def rename_a_fault(runs):
    for run in runs:
        for episode in run["episodes"]:
            episode["fault"] = episode["fault"].replace("kill_master", "kill_gateway")


SHORT = {
    "kill_master: 0 times": rename_a_fault,
    "99,000 operations": lambda runs: [run.update(operations=16_500) for run in runs],
    "p99 not within": lambda runs: runs[2]["deaths"]["write"].append(15.1),
    "an uncached read": lambda runs: [run["deaths"].update(read=[]) for run in runs],
    "1.2 s, 4.0 s after a death": lambda runs: runs[0]["pauses"].append([4.0, 1.2]),
    "never measured": lambda runs: [run.update(pauses=[]) for run in runs],
    "1 violations": lambda runs: runs[5].update(violations=1),
    "part-6.json is not there": lambda runs: runs.pop(),
}


@pytest.mark.parametrize("problem", SHORT)
def test_the_report_fails(tmp_path, problem):
    runs = results()
    SHORT[problem](runs)
    code, told = judged(tmp_path, runs)
    failed = [line for line in told.splitlines() if line.startswith("FAILED")]
    assert code == 1 and any(problem in line for line in failed), told
