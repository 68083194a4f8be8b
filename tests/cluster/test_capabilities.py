"""Capabilities: turned on when all nodes have them, and programs without them are refused from then on.

`test_versions.py` has the same with the program of a version before.
"""

import json
import subprocess

import pytest

from harness.cluster import Cluster
from harness.doors import S3
from harness.mount import Mount
from harness.rawmount import RawMount
from harness.server import KEY, SECRET, Server, binary
from harness.wait import eventually

NAME = "required-fields"


@pytest.fixture(scope="module")
def cluster():
    with Cluster(chunkservers=1, gateways=1, replicas=1) as running:
        running.s3("g1").create_bucket("shared")
        yield running


def test_it_is_turned_on_when_all_nodes_have_it(cluster, tmp_path):
    directory, gateway = str(cluster["m1"].directory), cluster["g1"]
    assert cluster.command("cluster", "enable", directory).split()[:2] == [NAME, "off"]
    check = json.loads(cluster.command("cluster", "upgrade-check", directory, "--json", ok=False).stdout)
    assert check["capabilities"] == {NAME: {"on": False, "lacking": []}}
    cluster["c1"].stop()
    eventually(lambda: not cluster.is_up("c1"), "its silence is noticed")
    refused = cluster.command("cluster", "enable", directory, NAME, ok=False).stderr
    assert f"start nodes {cluster['c1'].id}, which are not up" in refused, refused
    cluster.start("c1")
    cluster.wait_whole()
    # A mount that says nothing of capabilities is in until then, and one of this program stays.
    former = RawMount(gateway.http, (KEY, SECRET))
    former.attach(0x5EED)
    with Mount(gateway, tmp_path / "at", bucket="shared") as mount:
        (mount.root / "before").write_bytes(b"x" * 70000)
        assert f"{NAME} is on" in cluster.command("cluster", "enable", directory, NAME)
        (mount.root / "after").write_bytes(b"y" * 70000)
        assert (mount.root / "before").read_bytes() == b"x" * 70000
        with pytest.raises(ConnectionError):
            eventually(lambda: former.renew() and False, "it is cut off")
    assert cluster.s3("g1").object("GET", "shared", "after").body == b"y" * 70000
    with pytest.raises(ConnectionError):
        RawMount(gateway.http, (KEY, SECRET)).attach(0x5EED1)
    assert f"lacks {NAME}" in gateway.tail()
    assert "is on already" in cluster.command("cluster", "enable", directory, NAME)
    # All that are there start again with it.
    for name in ["m1", "c1", "g1"]:
        cluster.restart(name)
    cluster.wait_whole()
    assert cluster.s3("g1").object("GET", "shared", "before").body == b"x" * 70000
    shown = cluster.command("cluster", "upgrade-check", directory, ok=False).stdout
    assert f"capability {NAME}: on" in shown


def test_no_name_of_a_capability_is_taken_for_one(cluster):
    directory = str(cluster["m1"].directory)
    said = cluster.command("cluster", "enable", directory, "x", ok=False).stderr
    assert "is no capability of this program" in said


def enable(server, *words):
    command = [binary(), "meta", "enable", str(server.directory), *words]
    return subprocess.run(command, capture_output=True, text=True, env=server.env)


def test_one_server_turns_it_on_while_it_does_not_run(cluster, tmp_path):
    with Server() as server:
        refused = enable(server, NAME)
        assert refused.returncode == 1 and "in use by another cairn" in refused.stderr, refused
        former = RawMount(server.http, (KEY, SECRET))
        former.attach(0x5EED)
        assert former.renew()
        assert server.stop() == 0
        assert enable(server).stdout.split()[:2] == [NAME, "off"]
        assert f"{NAME} is on" in enable(server, NAME).stdout
        assert "is on already" in enable(server, NAME).stdout
        server.start()
        with pytest.raises(ConnectionError):
            RawMount(server.http, (KEY, SECRET)).attach(0x5EED1)
        assert f"lacks {NAME}" in server.tail()
        S3(server.s3).create_bucket("shared")
        with Mount(server, tmp_path / "at", bucket="shared") as mount:
            (mount.root / "one").write_bytes(b"x" * 70000)
        assert S3(server.s3).object("GET", "shared", "one").body == b"x" * 70000
        assert server.stop() == 0
        code, said = server.fsck()
        assert code == 0, said
        assert enable(server).stdout.split()[:2] == [NAME, "on"]
    refused = subprocess.run(
        [binary(), "meta", "enable", str(cluster["m1"].directory), NAME], capture_output=True, text=True
    )
    assert refused.returncode == 1 and "cairn cluster enable" in refused.stderr, refused
