#!/usr/bin/env python3
"""Breaks a cluster again and again under load and checks everything that clients saw.

    target/venv/bin/python tests/cluster/episodes.py [--episodes N] [--seed S] [--only FAULT]

Each episode: one fault strikes a running load, lasts, and ends; then the cluster must become whole
by itself. At the end the history must be linearizable, everything acknowledged must be there
through every gateway, and no block may be left that nothing refers to. The seed decides the load
and the faults; the interleaving is the machine's.
"""

import argparse
import os
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.faults import HURTS, Faults  # noqa: E402
from cluster.history import ABSENT, History  # noqa: E402
from cluster.load import BUCKET, GIVE_UP_SECONDS, MIB, Load  # noqa: E402
from harness import disk, net  # noqa: E402
from harness.cluster import Cluster, ClusterFailed  # noqa: E402
from harness.wait import PATIENCE_SECONDS, comes_true  # noqa: E402

CHUNKSERVERS = 4
DISK_MIB = 1024
CALM_SECONDS = 2
RESUME_SECONDS = 15
LIVE_SECONDS = 30
INLINE_BYTES, BLOCK_BYTES = 16 << 10, 4 * MIB


class Run:
    def __init__(self, cluster, seed, disk_of_c1, only, patience, echo, bucket_by="g1"):
        self.cluster, self.rng, self.echo = cluster, random.Random(seed), echo
        self.resume_seconds, self.live_seconds = patience
        self.history = History()
        cluster.s3(bucket_by).create_bucket(BUCKET)
        self.load = Load(cluster, seed, self.history)
        self.faults, self.hurts = Faults(cluster, self.rng, disk_of_c1), HURTS
        self.deck, self.only = [], only
        self.violations, self.worst = [], {"read": 0.0, "write": 0.0}
        self.told = []  # of each episode that healed

    def episodes(self, count):
        with self.load:
            time.sleep(CALM_SECONDS)
            for number in range(count):
                self.episode(number, self.draw())
                if self.violations:
                    self.echo(f"cluster: violated in episode {number}")
                    break
            self.calm_down()

    def calm_down(self):
        """The last of the load, without a fault."""
        time.sleep(CALM_SECONDS)

    def draw(self):
        """Every fault once, in random order, before any comes again."""
        if not self.deck:
            self.deck = self.only or self.faults.names()
            self.deck = self.rng.sample(self.deck, len(self.deck))
        return self.deck.pop()

    def episode(self, number, name):
        began = self.history.now()
        fault = getattr(self.faults, name)()
        what, seconds = next(fault)
        time.sleep(seconds)
        next(fault, None)
        over = self.history.now()
        try:
            self.cluster.wait_whole()
            # A master that has not noticed yet that another took over may have said so.
            time.sleep(CALM_SECONDS)
            self.cluster.wait_whole()
        except ClusterFailed as error:
            self.violations.append(f"NOT HEALED: {name} of {what}: {error}")
            return
        whole = self.history.now() - over
        # What this fault held up counts here, not in the next episode.
        moment = self.history.now()
        comes_true(lambda: self.load.has_done_all_before(moment), GIVE_UP_SECONDS)
        took = {kind: self.resumed(name, kind, began, over) for kind in ("read", "write")}
        self.told.append({"fault": name, "struck": what, "whole": whole, **took})
        self.violations += self.load.problems() + self.cluster.misbehaviour()
        self.echo(
            f"cluster: {number:3} {name} of {what}: reads within {took['read']:.1f} s, writes "
            f"within {took['write']:.1f} s, whole for good {whole:.1f} s after it ended"
        )

    def resumed(self, name, kind, began, over):
        """After how long the slowest operation of the episode was answered; where the fault may
        hold it up, after how long since it ended."""
        since = over if kind in self.hurts.get(name, ()) else 0.0
        spent = self.load.spent(began, self.history.now(), kind)
        worst = max((s.ended - max(s.began, since) for s in spent), default=0.0)
        worst = max(worst, 0.0)
        if worst > self.resume_seconds:
            self.violations.append(f"SLOW: {name}: a {kind} took {worst:.1f} s")
        self.worst[kind] = max(self.worst[kind], worst)
        return worst

    def finish(self):
        """The last look at everything."""
        self.violations += self.load.problems() + self.load.verify()
        self.violations += self.cluster.misbehaviour() + self.history.violations()
        if not self.violations:
            self.violations += self.orphans()

    def orphans(self):
        """Blocks that nobody refers to: none, once garbage was collected, when every other object
        was deleted; in the long form neither before that, nor when all are. What a gateway wrote
        and did not publish is collected when its session has ended at the latest, so sessions end
        first."""
        by = self.cluster.gateways()[0]
        listed, is_long = self.cluster.s3(by).list(BUCKET), bool(self.live_seconds)
        # That is no violation, and takes long where there are some.
        left = is_long and self.left_over(listed, self.live_seconds)
        if left:
            self.echo(f"cluster: blocks that live sessions left behind: {left}")
        for gateway in self.cluster.gateways():
            self.cluster.restart(gateway)
        problems = [self.left_over(listed, PATIENCE_SECONDS)] if is_long else []
        s3, keys = self.cluster.s3(by), sorted(listed)
        for deleted in [keys[::2], keys[1::2]] if is_long else [keys[::2]]:
            for key in deleted:
                s3.object("DELETE", BUCKET, key)
                del listed[key]
            problems.append(self.left_over(listed, PATIENCE_SECONDS))
        return [f"BLOCKS: {problem}" for problem in problems if problem]

    def left_over(self, listed, seconds):
        """None if in time only the blocks of these objects are left, each in all its replicas; else
        what is."""
        # Copies refer to the blocks of what they are copies of.
        bodies = {etag: size for size, etag in listed.values() if size > INLINE_BYTES}
        expected = sum(-(-size // BLOCK_BYTES) for size in bodies.values())
        wanted = expected * self.cluster.told()["replicas"]
        if comes_true(lambda: sum(self.blocks()) == wanted, seconds, 0.5):
            return None
        found = self.blocks()
        return f"{found} on the disks, {sum(found)} in all, not {wanted}, after {seconds} s"

    def blocks(self):
        nodes = [self.cluster.node_status(name) for name in self.cluster.chunkservers()]
        return [node["blocks"] or 0 for node in nodes]


def surroundings(stack, echo):
    """What this machine allows: network namespaces and a disk of its own for c1, or not."""
    netns, small = True, None
    try:
        with net.Network():
            pass
    except net.Unavailable as error:
        netns = False
        echo(f"cluster: NOT RUN: all faults of the network: {error}")
    try:
        small = stack.enter_context(disk.SmallDisk(DISK_MIB))
    except disk.Unavailable as error:
        echo(f"cluster: NOT RUN: all faults of disks: {error}")
    return netns, small


def run(
    episodes, seed=None, only=None, keep=False, resume_seconds=RESUME_SECONDS,
    live_seconds=LIVE_SECONDS, echo=print,
):  # fmt: skip
    """Returns the list of violations. An operation that takes longer than `resume_seconds` after
    a fault is one; on a machine with other things to do that says little. So long it waits for
    blocks that live sessions may leave behind, to tell of them."""
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    echo(f"cluster: seed {seed}, {episodes} episodes")
    began = time.monotonic()
    with ExitStack() as stack:
        netns, small = surroundings(stack, echo)
        disks = {"c1": small.mount} if small else {}
        cluster = Cluster(CHUNKSERVERS, masters=2, postgres=True, netns=netns, disks=disks)
        with cluster:
            patience = resume_seconds, live_seconds
            test = Run(cluster, seed, small, only, patience, echo)
            try:
                test.episodes(episodes)
                test.finish()
            finally:
                if small:
                    small.heal()
                test.history.write(cluster.work / "history")
            cluster.keep = keep or bool(test.violations)
    report(test, cluster, time.monotonic() - began, seed, echo)
    return test.violations


def report(test, cluster, seconds, seed, echo):
    ops = test.history.ops
    kinds = {what: 0 for what in sorted({op.what.split(" by")[0] for op in ops})}
    for op in ops:
        kinds[op.what.split(" by")[0]] += 1
    unanswered = sum(not op.is_certain for op in ops)
    absent = sum(op.state == ABSENT for op in ops)
    kept = f", kept {cluster.work}" if cluster.keep else ""
    echo(
        f"cluster: {len(ops)} operations, {unanswered} unanswered, {absent} saw nothing, in "
        f"{seconds:.0f} s; slowest read {test.worst['read']:.1f} s, slowest write "
        f"{test.worst['write']:.1f} s; {len(test.violations)} violations (seed {seed}){kept}"
    )
    echo("cluster: " + ", ".join(f"{what} {count}" for what, count in kinds.items()))
    for violation in test.violations[:20]:
        echo(f"cluster: {violation}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", action="append", metavar="FAULT", help="only these faults")
    parser.add_argument("--keep", action="store_true", help="keep directories, logs, the history")
    options = parser.parse_args()
    echo = lambda text: print(text, flush=True)  # noqa: E731
    asked = (options.episodes, options.seed, options.only, options.keep)
    sys.exit(bool(run(*asked, echo=echo)))


if __name__ == "__main__":
    main()
