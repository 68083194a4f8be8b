#!/usr/bin/env python3
"""Damages the files of one master of three under load, again and again.

    target/venv/bin/python tests/cluster/rot.py [--rounds N] [--seed S]

Each round flips bits of files of one master, or cuts one file short, while the machine runs or while
it is stopped. Half of the flips choose a file by its size, half by its name. The master must say so
if the bytes were in use, must fill itself again from the others without a hand, and no reply may be
wrong meanwhile. At the end everything that was acknowledged must be there, through every gateway,
and the metadata of each master must be readable as a whole.

The keys of a machine and its file `format` are not among these files: see `named`.
"""

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.load import LOST  # noqa: E402
from cluster.returns import BUCKET, Writers, path  # noqa: E402
from harness.machines import Machines  # noqa: E402
from kill.model import content  # noqa: E402

LOAD_SECONDS = 3
# A pass of the scrub begins so long after the one before, where there is little to read; it reads
# all rows twice, and rests four times as long as that takes.
NOTICED_SECONDS, BYTES_A_SECOND, RESTS = 40, 32 << 20, 4
HEALED_SECONDS = 90
READ_SECONDS = 60
FLIPS = 10
# Machine keys, `format` and what says who the machine is are named, not healed.
NAMED = [
    "node.key", "node.pem", "ca.key", "ca.pem", "cluster.toml", "secret.key", "format", "lock",
]  # fmt: skip
SAID = "damaged", "does not check out"
SAMPLE = 20


def files_of(machine):
    """The files of the master that heal, by their paths."""
    root = machine.directory / "master"
    files = [path for path in root.rglob("*") if path.is_file() and path.name not in NAMED]
    return sorted(path for path in files if path.stat().st_size)


def flip(file, offset, bit):
    with open(file, "r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 1 << bit]))


class Rot:
    """The damage of one round: returns what it did, and whether it must be noticed."""

    def __init__(self, rng):
        self.rng = rng

    def flips(self, machine, count=FLIPS):
        done, files = [], files_of(machine)
        for number in range(count):
            sizes = [file.stat().st_size for file in files] if number % 2 else None
            file = self.rng.choices(files, sizes)[0]
            offset, bit = self.rng.randrange(file.stat().st_size), self.rng.randrange(8)
            flip(file, offset, bit)
            done.append(f"{file.name}:{offset}.{bit}")
        return " ".join(done), False

    def many_flips(self, machine):
        """So many that some are in rows, and in records that are needed."""
        for file in files_of(machine):
            if file.name.startswith(("rows", "log-")):
                data = file.read_bytes()
                used = [at for at in range(0, len(data), 512) if any(data[at : at + 512])]
                for at in self.rng.sample(used, min(len(used), 40)):
                    flip(file, at + self.rng.randrange(512), self.rng.randrange(8))
        return "40 flips in rows and in each log", True

    def truncation(self, machine):
        file = self.rng.choice([file for file in files_of(machine) if file.name.startswith(("rows", "log-"))])
        size = self.rng.randrange(file.stat().st_size)
        with open(file, "r+b") as opened:
            opened.truncate(size)
        return f"{file.name} cut to {size}", False


def has_said(machine, before):
    return any(said in line for line in machine.lines()[before:] for said in SAID)


def patience(machine):
    rows = machine.directory / "master" / "meta" / "rows.redb"
    size = rows.stat().st_size if rows.exists() else 0
    return NOTICED_SECONDS + 2 * size / BYTES_A_SECOND * (RESTS + 2)


def wait_healed(cluster, is_healed):
    end = time.monotonic() + HEALED_SECONDS
    while time.monotonic() < end:
        if is_healed():
            return True
        time.sleep(0.5)
    return False


def is_whole(cluster):
    status = cluster.status()
    masters = status["members"]["masters"] if status and status["members"] else []
    return cluster.is_whole() and not any(one.get("damage") for one in masters)


def wrong_reads(cluster, writers, rng):
    """Reads some of what was acknowledged while the cluster heals. Errors are allowed, other bytes
    and missing objects are not."""
    with writers.lock:
        known = list(writers.acknowledged.items())
    wrong = []
    for key, size in rng.sample(known, min(SAMPLE, len(known))):
        for name in cluster.machines():
            if not cluster[name].processes:
                continue
            try:
                reply = cluster.http(name, timeout=5).request("GET", path(key))
            except LOST:
                continue
            body_is_wrong = reply.status == 200 and reply.body != content(key, size, size)
            if body_is_wrong or reply.status == 404:
                wrong.append(f"WRONG: {key} through {name}: {reply.status}")
    return wrong


def round_of(cluster, writers, rng, damage, is_stopped, machine):
    """Returns a sentence about the round, and sentences about what went wrong."""
    before, node = len(machine.lines()), machine.node("master")
    with writers:
        time.sleep(LOAD_SECONDS)
        if is_stopped:
            rng.choice([machine.kill, machine.stop])()
        did, must_notice = damage(machine)
        began = time.monotonic()
        if is_stopped:
            machine.start()
        wrong = wrong_reads(cluster, writers, rng)
        limit = patience(machine) if must_notice else NOTICED_SECONDS
        while time.monotonic() < began + limit and not has_said(machine, before):
            time.sleep(0.2)
        noticed = time.monotonic() - began
        wrong += wrong_reads(cluster, writers, rng)
    is_noticed = has_said(machine, before)
    if must_notice and not is_noticed:
        wrong.append(f"NOT NOTICED: {did} on {machine.name}")
    if not wait_healed(cluster, lambda: is_whole(cluster)):
        wrong.append(f"NOT HEALED: {did} on {machine.name}\n{machine.tail(40)}")
    machine.note_end()
    if machine.ended:
        wrong.append(f"ENDED: {did}: {machine.ended}")
    took, now = time.monotonic() - began, machine.node("master")
    said = f"noticed after {noticed:.1f} s" if is_noticed else "not noticed"
    number = f"node {node} is node {now}" if now != node else f"node {node} stays"
    how = "stopped" if is_stopped else "running"
    return f"{machine.name} {how}: {did}: {said}, whole after {took:.1f} s, {number}", wrong


def wrong_objects(cluster, acknowledged):
    """Sentences about objects that are not what was acknowledged, read through one machine each. One
    that cannot be read now is read again for a while."""
    names, wrong = cluster.machines(), []
    doors = {name: cluster.http(name, timeout=60) for name in names}
    for number, (key, size) in enumerate(acknowledged.items()):
        name = names[number % len(names)]
        end = time.monotonic() + READ_SECONDS
        while True:
            reply = doors[name].request("GET", path(key))
            if reply.status < 500 or time.monotonic() > end:
                break
            time.sleep(0.5)
        if reply.status != 200 or reply.body != content(key, size, size):
            wrong.append(f"LOST OR WRONG: {key} through {name}: {reply.status} {reply.body[:200]}")
    return wrong


def settle(cluster):
    """Starts each machine again, whose master then checks all that it has."""
    names = cluster.machines()
    for name in names:
        cluster[name].stop()
        cluster[name].start()
        wait_healed(cluster, lambda: is_whole(cluster))
    sizes = [(cluster[name].directory / "master/meta/rows.redb").stat().st_size for name in names]
    time.sleep(5 + 2 * max(sizes) / BYTES_A_SECOND)
    if wait_healed(cluster, lambda: is_whole(cluster)):
        return []
    return ["NOT HEALED at the end\n" + "\n".join(cluster[name].tail() for name in names)]


def unreadable(cluster):
    """Sentences about masters whose metadata cannot be read as a whole. Stops all machines."""
    wrong = []
    for name in cluster.machines():
        cluster[name].stop()
    for name in cluster.machines():
        place = cluster[name].directory / "master"
        done = cluster.command("meta", "dump", place, cluster.work / f"{name}.dump", ok=False)
        if done.returncode != 0:
            wrong.append(f"UNREADABLE: {name}: {done.stderr}")
    return wrong


def plan(rng, rounds):
    """The rounds: a kind of damage, and whether the machine is stopped meanwhile."""
    kinds = ["many_flips", "flips", "truncation", "flips"]
    return [(kinds[number % len(kinds)], rng.random() < 0.5) for number in range(rounds)]


def run(rounds, seed, echo=print, settles=True):
    """`rounds` is a number, or a list of kinds of damage, whether the machine is stopped, and
    whether it is the one that serves. `settles`: each machine starts once more at the end, and checks
    all that it has. Returns sentences about what went wrong."""
    rng, violations = random.Random(seed), []
    if isinstance(rounds, int):
        rounds = [(*one, rng.random() < 0.5) for one in plan(rng, rounds)]
    with Machines() as cluster:
        reply = cluster.http("n1", timeout=5).request("PUT", f"/storage/{BUCKET}")
        assert reply.status == 201, reply
        writers, rot = Writers(cluster), Rot(rng)
        for number, (kind, is_stopped, serves) in enumerate(rounds, 1):
            machine = cluster.serving() if serves else cluster[rng.choice(cluster.machines())]
            said, wrong = round_of(cluster, writers, rng, getattr(rot, kind), is_stopped, machine)
            echo(f"rot: round {number} of seed {seed}: {said}")
            violations += wrong
            if wrong:
                break
        violations += wrong_objects(cluster, writers.acknowledged)
        echo(f"rot: {len(writers.acknowledged)} objects were acknowledged")
        violations += settle(cluster) if settles else []
        violations += unreadable(cluster)
    return violations


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    violations = run(arguments.rounds, arguments.seed, lambda text: print(text, flush=True))
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
