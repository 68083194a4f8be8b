"""Calls that a client sends again, since it has heard nothing: after a crash, and at another gateway."""

import contextlib
import itertools
import os

import pytest
from harness.cluster import Cluster
from harness.doors import S3

from nfs import rpc
from nfs.conftest import export_all

numbers = itertools.count(1)
FILES = int(os.environ.get("CAIRN_TEST_NFS_AGAIN", 20))


def acting(client, top):
    """A call of each sort that acts, by what it is about."""
    for name in ("removed", "moved", "linked"):
        client.made(rpc.create(top, name))
    client.made(rpc.mkdir(top, "directory"))
    linked = client.lookup(top, "linked")
    return {
        "created": rpc.create(top, "created"),
        "made": rpc.mkdir(top, "made"),
        "link": rpc.link(linked, top, "link"),
        "removed": rpc.remove(top, "removed"),
        "moved": rpc.rename(top, "moved", "elsewhere"),
        "directory": rpc.remove(top, "directory", rpc.RMDIR),
    }


def all_go_well(client, calls):
    for name, call in calls.items():
        assert client.ask(call)[0] == 0, name


def test_after_a_crash_a_call_is_done_once(nfs, exported):
    client = rpc.Client(nfs.nfs)
    top = client.mount(f"/{exported}")
    calls = acting(client, top)
    all_go_well(client, calls)
    nfs.kill()
    nfs.restart()
    client = rpc.Client(nfs.nfs)
    # What came in between, at the names that went.
    for name in ("removed", "moved"):
        client.made(rpc.create(top, name))
    client.made(rpc.mkdir(top, "directory"))
    all_go_well(client, calls)
    for name in ("removed", "moved", "elsewhere", "directory", "created", "made", "link"):
        assert client.lookup(top, name), name
    nfs.kill()
    assert nfs.fsck()[0] == 0


def test_calls_that_a_crash_interrupts_are_done_once(nfs, exported):
    """The server dies while calls are at work, of which no reply is heard."""
    client = rpc.Client(nfs.nfs)
    top = client.mount(f"/{exported}")
    for number in range(FILES):
        client.made(rpc.create(top, f"old-{number}"))
    calls = [rpc.rename(top, f"old-{n}", f"new-{n}") for n in range(FILES)]
    calls += [rpc.mkdir(top, f"made-{n}") for n in range(FILES)]
    for call in calls:
        client.send(call)
    client.receive()
    nfs.kill()
    nfs.restart()
    client = rpc.Client(nfs.nfs)
    for call in calls:
        assert client.ask(call)[0] == 0
    for number in range(FILES):
        assert client.lookup(top, f"old-{number}") is None
        assert client.lookup(top, f"new-{number}") and client.lookup(top, f"made-{number}")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(chunkservers=1, replicas=1, gateways=2, nfs=True) as cluster:
        yield cluster
        assert cluster.misbehaviour() == []


@pytest.fixture
def exported_there(cluster):
    """A bucket that is exported, and a gateway that stays."""
    bucket = f"exported-{next(numbers)}"
    S3(cluster["g1"].s3).create_bucket(bucket)
    export_all(cluster["g1"].http, bucket)
    return bucket


def test_a_client_goes_on_at_another_gateway(cluster, exported_there):
    one, other = cluster["g1"], cluster["g2"]
    client = rpc.Client(one.nfs)
    top = client.mount(f"/{exported_there}")
    calls = acting(client, top)
    all_go_well(client, calls)
    file = client.made(rpc.create(top, "file"))
    how, verifier = client.write(file, b"durable", rpc.FILE_SYNC)
    assert how == rpc.FILE_SYNC
    assert client.write(file, b"lost....", rpc.UNSTABLE) == (rpc.UNSTABLE, verifier)
    cluster.kill("g1")
    client = rpc.Client(other.nfs)
    # Handles are the same, bytes that are lost are said to be, and what was done is not done again.
    assert client.commit(file) != verifier
    assert client.read(file) in (b"durable", b"lost....")
    client.made(rpc.create(top, "removed"))
    all_go_well(client, calls)
    assert client.lookup(top, "removed") and client.lookup(top, "elsewhere")
    cluster.start("g1")
    back = rpc.Client(one.nfs)
    assert back.lookup(top, "file") == file
    back.write(file, b"from one", rpc.FILE_SYNC)
    assert client.read(file) == b"from one"
    all_go_well(back, calls)


def test_a_call_waits_for_a_master_that_starts_again(cluster, exported_there):
    client = rpc.Client(cluster["g2"].nfs)
    top = client.mount(f"/{exported_there}")
    client.made(rpc.create(top, "file"))
    moved = rpc.rename(top, "file", "moved")
    cluster.kill("m1")
    client.send(moved)
    with contextlib.closing(rpc.Client(cluster["g2"].nfs)) as impatient:
        impatient.send(moved)
    cluster.start("m1")
    assert client.receive()[0] == 0
    assert client.lookup(top, "moved") and client.lookup(top, "file") is None
    cluster.wait_whole()
    assert rpc.Client(cluster["g1"].nfs).ask(moved)[0] == 0
