"""Nodes of this version and of the one before: they understand each other, or say what to upgrade.

`$CAIRN_PREVIOUS` names the other program; without it there is nothing to compare with. The long form
builds the commit of `tests/previous` and sets it.
"""

import os
import re
import subprocess

import pytest

from harness.cluster import Cluster
from harness.doors import S3
from harness.server import KEY, SECRET, Server, binary
from harness.wait import PATIENCE_SECONDS, eventually

PREVIOUS = os.environ.get("CAIRN_PREVIOUS")
pytestmark = pytest.mark.skipif(not PREVIOUS, reason="no other version: CAIRN_PREVIOUS")
# In the words of this version, and of the ones before.
REFUSED = re.compile(r"speaks versions \d+ to \d+ of the protocol.*upgrade|upgrade the older")


def content(text):
    """Of a size that goes to chunkservers."""
    return (text * 8000).encode()


def put(door, key, text):
    assert door.object("PUT", "shared", key, body=content(text)).status == 200


def get(door, key, text):
    reply = door.object("GET", "shared", key)
    assert (reply.status, reply.body) == (200, content(text)), reply


def test_chunkservers_are_upgraded_one_by_one():
    with Cluster(chunkservers=3, gateways=1) as cluster:
        s3 = cluster.s3("g1")
        s3.create_bucket("shared")
        put(s3, "one", "first")
        for name in ["c1", "c2", "c3"]:
            node = cluster[name]
            assert node.stop() == 0
            node.program = PREVIOUS
            cluster.start(name)
            cluster.wait_whole()
            put(s3, name, name)
            get(s3, "one", "first")
        for name in ["c1", "c2", "c3"]:
            get(s3, name, name)


def refused(node):
    """What a gateway says that is not understood."""

    def said():
        return REFUSED.search(node.log.read_text(errors="replace"))

    eventually(said, f"{node.name} says what to upgrade")
    return said()[0]


@pytest.mark.parametrize("older", ["g1", "m1"])
def test_gateways_and_masters_are_upgraded_together(older):
    with Cluster(chunkservers=1, gateways=1, replicas=1) as cluster:
        s3 = cluster.s3("g1")
        s3.create_bucket("shared")
        put(s3, "one", "first")
        cluster["g1"].stop()
        cluster["m1"].stop()
        cluster[older].program = PREVIOUS
        cluster["m1"].start()
        cluster["g1"].start()
        print(refused(cluster["g1"]))
        cluster[older].program = None
        cluster[older].kill()
        cluster["g1"].kill()
        if older == "m1":
            cluster["m1"].start()
        cluster.start("g1")
        cluster.wait_whole()
        get(cluster.s3("g1"), "one", "first")


def mounted(program, server, place):
    """Mounts for as long as it takes to be refused; what it says."""
    place.mkdir()
    command = [program, "mount", "--server", server.http, "--foreground", str(place)]
    env = dict(os.environ, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET)
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("older", ["mount", "server"])
def test_a_mount_of_another_version_is_refused(older, tmp_path):
    with Server(program=PREVIOUS if older == "server" else None) as server:
        said = mounted(binary() if older == "server" else PREVIOUS, server, tmp_path / "at")
        # A mount of before says that no master answered; the server has the words.
        text = said if older == "server" else server.log_path.read_text()
        assert REFUSED.search(text), f"{said}\n{text}"


def test_a_store_of_the_version_before_is_opened():
    with Server(program=PREVIOUS) as server:
        S3(server.s3).create_bucket("shared")
        put(S3(server.s3), "one", "first")
        assert server.stop() == 0
        server.program = None
        server.start()
        get(S3(server.s3), "one", "first")
        put(S3(server.s3), "two", "second")
