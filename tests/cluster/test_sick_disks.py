"""A disk fails under one machine of three: the part that has it says so or stops, the others go on."""

import os
import time
from contextlib import ExitStack

import pytest

from cluster.returns import BUCKET, Writers, path, until_written, wrong_objects
from harness.disk import SmallDisk, Unavailable
from harness.machines import Machines
from harness.wait import eventually
from kill.model import content

DISK_MIB = 1024
# Writers go on long before that on a quiet machine.
GOES_ON_SECONDS = 40
# In a block, unlike what is small.
SIZE = 70_000
FAULTS = {"errors": SmallDisk.die, "read-only": SmallDisk.make_read_only}
CASES = [("disk", "errors"), ("disk", "read-only"), ("master", "errors"), ("master", "read-only")]
SHORT = [CASES[0], CASES[3]]
# What a line of the log of the machine says.
SHOWN = ("Input/output error", "Read-only file system", "os error 5", "os error 30")


@pytest.fixture
def disk():
    with ExitStack() as stack:
        try:
            mounted = stack.enter_context(SmallDisk(DISK_MIB))
        except Unavailable as error:
            pytest.skip(str(error))
        yield mounted


@pytest.mark.parametrize("part, fault", CASES if os.environ.get("CAIRN_TEST_SICK_DISKS") == "all" else SHORT)
def test_a_disk_fails_under_load(disk, part, fault):
    """The part is that of n1, whose master serves."""
    with Machines(places={f"n1/{part}": disk.mount}) as cluster:
        cluster.http("n2").request("PUT", f"/storage/{BUCKET}")
        writers = Writers(cluster)
        before, node = len(cluster["n1"].lines()), cluster["n1"].node("chunkserver")
        with writers:
            time.sleep(3)
            early = dict(writers.acknowledged)
            FAULTS[fault](disk)
            time.sleep(1)
            seconds = until_written(cluster, "failing", ["n2", "n3"], SIZE)
            assert seconds < GOES_ON_SECONDS, f"{seconds:.1f} s: {cluster.tails()}"
            eventually(lambda: names_it(cluster["n1"], before), cluster["n1"].tail)
            if part == "disk":
                is_named(cluster, node)
            time.sleep(2)
        assert wrong_through(cluster, ["n2", "n3"], early) == []
        cluster["n1"].stop()
        disk.revive()
        cluster["n1"].start()
        cluster.wait_whole()
        assert wrong_objects(cluster, writers.acknowledged) == []


def names_it(machine, before):
    return any(shown in line for line in machine.lines()[before:] for shown in SHOWN)


def is_named(cluster, node):
    """The status of the cluster, its exit code and the doctor say whose disk it is, and n1 goes on."""

    def failure():
        return [one["failure"] for one in cluster.told()["nodes"] if one["node"] == node][0]

    eventually(failure, cluster.tails)
    assert any("the disk takes no writes" in line for line in cluster["n1"].lines())
    done = cluster.command("cluster", "status", cluster["n2"].directory, ok=False)
    assert done.returncode == 1, done.stdout
    assert f"DISK FAILS: the disk of node {node} takes no writes" in done.stdout
    assert until_written(cluster, "beside", ["n1"], SIZE) < GOES_ON_SECONDS
    done = cluster.command("doctor", cluster["n2"].directory, "--seconds", 1, ok=False)
    assert f"node {node}: " in done.stdout and "take no writes" in done.stdout, done.stdout + done.stderr


def wrong_through(cluster, names, acknowledged):
    """The keys of a sample of these objects that cannot be read through these machines."""
    doors = [cluster.http(name, timeout=60) for name in names]
    sample = [(key, size) for key, size in acknowledged.items() if size == SIZE][:100]
    assert sample
    return [
        key
        for number, (key, size) in enumerate(sample)
        if doors[number % len(doors)].request("GET", path(key)).body != content(key, size, size)
    ]
