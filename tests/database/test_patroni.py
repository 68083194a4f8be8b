"""Metadata in a PostgreSQL that Patroni keeps on three machines: its primary dies, is cut off and hands
over while clients write, and nothing acknowledged is lost or read in an older state."""

import os
import threading
import time

import pytest

from cluster.load import LOST
from harness.cluster import Cluster
from harness.net import Unavailable
from harness.patroni import Patroni, require
from harness.wait import eventually

ROUNDS = int(os.environ.get("CAIRN_TEST_PATRONI_ROUNDS", "1"))
WRITERS, SLOTS = 4, 5
# In the metadata, and in blocks.
SIZES = [200, 15_000, 40_000]
# Longer than a gateway waits for a master.
ANSWER_SECONDS = 90


def content(key, number):
    return f"{key} {number} ".encode().ljust(SIZES[number % len(SIZES)], b"x")


def number_of(key, body):
    words = body.split(b" ", 2)
    assert words[0].decode() == key and body == content(key, int(words[1])), f"{key}: {body[:60]}"
    return int(words[1])


class Writer(threading.Thread):
    """Puts its keys again and again, and reads each at the other gateway."""

    def __init__(self, cluster, name):
        super().__init__()
        self.name = name
        self.doors = [cluster.s3(gateway, timeout=ANSWER_SECONDS) for gateway in cluster.gateways()]
        self.acknowledged, self.unknown = {}, {}
        self.generation, self.writes, self.reads, self.failed = 0, 0, 0, 0
        self.problems, self.done = [], threading.Event()

    def run(self):
        number = 0
        while not self.done.is_set():
            number += 1
            key = f"{self.name}/{self.generation}/{number % SLOTS}"
            try:
                self.put(key, number)
                self.read(key)
            except LOST:
                self.failed += 1
            except AssertionError as error:
                self.problems.append(str(error))

    def put(self, key, number):
        # Until it is acknowledged: it may be done, also later.
        self.unknown[key] = number
        status = None
        try:
            status = self.doors[number % 2].object("PUT", "bucket", key, body=content(key, number)).status
        finally:
            if status == 200:
                del self.unknown[key]
                self.acknowledged[key] = number
                self.writes += 1
            else:
                self.failed += 1
                self.generation += 1  # these keys are written no more

    def read(self, key):
        if key in self.unknown:
            return
        reply = self.doors[(self.acknowledged[key] + 1) % 2].object("GET", "bucket", key)
        if reply.status == 503:
            self.failed += 1
            return
        assert reply.status == 200, f"{key}: LOST: {reply.status}"
        seen = number_of(key, reply.body)
        assert seen == self.acknowledged[key], f"{key}: STALE: {seen}, not {self.acknowledged[key]}"
        self.reads += 1

    def verify(self, doors):
        """Everything acknowledged is there, at both gateways."""
        for key, number in self.acknowledged.items():
            allowed = {number, self.unknown.get(key, number)}
            for door in doors:
                reply = door.object("GET", "bucket", key)
                assert reply.status == 200, f"{key}: LOST: {reply.status}"
                assert number_of(key, reply.body) in allowed, f"{key}: STALE: {reply.body[:60]}, of {allowed}"


def kill(database, _):
    """A machine dies, and comes back when another one is the primary."""
    before = database.primary()
    database.kill(before)
    database.wait_other(before)
    yield
    database.start(before)


def cut(database, network):
    """A machine is cut off from all others and from clients."""
    before = database.primary()
    network.cut(before, also_from=["host"])
    database.wait_other(before)
    yield
    network.heal()


def end(database, _):
    """PostgreSQL dies, and Patroni starts it again or another machine takes over."""
    database.kill_postgres(database.primary())
    yield


def switch(database, _):
    database.switch_over()
    yield


def test_primaries_die_are_cut_off_and_hand_over(capsys):
    try:
        require()
    except Unavailable as missing:
        pytest.skip(str(missing))
    with Cluster(
        masters=2, chunkservers=1, gateways=2, replicas=1, postgres=Patroni, netns=True
    ) as cluster:
        database = cluster.database
        cluster.s3("g1").create_bucket("bucket")
        writers = [Writer(cluster, f"w{number}") for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        count = lambda: sum(writer.writes for writer in writers)  # noqa: E731
        try:
            eventually(lambda: count() > 50, cluster.tails)
            for fault in [switch, kill, end, cut] * ROUNDS:
                database.wait_whole()
                before, began = database.primary(), time.monotonic()
                steps = fault(database, cluster.network)
                next(steps)
                # What is answered from here on is from after the fault.
                now = count()
                eventually(lambda now=now: count() > now + 50, cluster.tails)
                took = time.monotonic() - began
                next(steps, None)
                with capsys.disabled():
                    print(f"{fault.__name__}: {before} to {database.primary()}, 50 writes after {took:.1f} s")
                problems = [problem for writer in writers for problem in writer.problems]
                assert not problems, problems
            database.wait_whole()
        finally:
            for writer in writers:
                writer.done.set()
            for writer in writers:
                writer.join()
        # Other processes, other caches.
        for name in [*cluster.masters(), *cluster.gateways()]:
            cluster.restart(name)
        cluster.wait_whole()
        for writer in writers:
            assert not writer.problems, writer.problems
            writer.verify([cluster.s3(gateway, timeout=ANSWER_SECONDS) for gateway in cluster.gateways()])
        assert not cluster.misbehaviour()
        total = [sum(getattr(writer, name) for writer in writers) for name in ("writes", "reads", "failed")]
        with capsys.disabled():
            print("{} writes acknowledged, {} reads, {} requests failed: 0 lost, 0 stale".format(*total))
