"""Nodes, mounts and stores of this version and of the one before: they understand each other.

`crates/cluster/tests/it/other_versions_are_refused_in_words.rs` has those that do not.

`$CAIRN_PREVIOUS` names the other program; without it there is nothing to compare with. The long form
builds the commit of `tests/previous` and sets it.
"""

import json
import os
import subprocess

import pytest

from harness.cluster import Cluster
from harness.doors import S3
from harness.mount import Mount
from harness.server import Server, ServerFailed, binary
from harness.wait import eventually

PREVIOUS = os.environ.get("CAIRN_PREVIOUS")
pytestmark = pytest.mark.skipif(not PREVIOUS, reason="no other version: CAIRN_PREVIOUS")


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


@pytest.mark.parametrize("older", ["g1", "m1"])
def test_gateways_and_masters_are_upgraded_one_by_one(older):
    with Cluster(chunkservers=1, gateways=1, replicas=1) as cluster:
        s3 = cluster.s3("g1")
        s3.create_bucket("shared")
        put(s3, "one", "first")
        cluster["g1"].stop()
        cluster["m1"].stop()
        cluster[older].program = PREVIOUS
        cluster["m1"].start()
        cluster.start("g1")
        cluster.wait_whole()
        get(cluster.s3("g1"), "one", "first")
        put(cluster.s3("g1"), "two", "second")
        cluster[older].program = None
        cluster.restart(older)
        cluster.wait_whole()
        get(cluster.s3("g1"), "two", "second")


@pytest.mark.parametrize("older", ["mount", "server"])
def test_a_mount_of_the_version_before_reads_and_writes(older, tmp_path):
    with Server(program=PREVIOUS if older == "server" else None) as server:
        S3(server.s3).create_bucket("shared")
        put(S3(server.s3), "one", "first")
        program = PREVIOUS if older == "mount" else None
        with Mount(server, tmp_path / "at", bucket="shared", program=program) as mount:
            assert (mount.root / "one").read_bytes() == content("first")
            (mount.root / "two").write_bytes(content("second"))
        get(S3(server.s3), "two", "second")


def test_a_store_of_the_version_before_is_opened():
    with Server(program=PREVIOUS) as server:
        S3(server.s3).create_bucket("shared")
        put(S3(server.s3), "one", "first")
        assert server.stop() == 0
        server.program = None
        server.start()
        get(S3(server.s3), "one", "first")
        put(S3(server.s3), "two", "second")


def test_a_capability_waits_for_the_last_old_node_and_locks_it_out():
    """Skipped where the other version has the capability itself."""
    name = "required-fields"
    with Cluster(chunkservers=2, gateways=1, replicas=1) as cluster:
        s3, directory = cluster.s3("g1"), str(cluster["m1"].directory)
        s3.create_bucket("shared")
        old = cluster["c1"]
        assert old.stop() == 0
        old.program = PREVIOUS
        cluster.start("c1")
        cluster.wait_whole()
        put(s3, "one", "first")
        refused = cluster.command("cluster", "enable", directory, name, ok=False)
        if refused.returncode == 0:
            pytest.skip("the other version has it")
        assert f"nodes {old.id}, which lack it" in refused.stderr, refused
        # Until then the programs before may be at any node.
        assert cluster["m1"].stop() == 0
        cluster["m1"].program = PREVIOUS
        cluster.start("m1")
        get(s3, "one", "first")
        for node in ["m1", "c1"]:
            cluster[node].stop()
            cluster[node].program = None
            cluster.start(node)
        cluster.wait_whole()
        # The master may not have heard yet which programs came back.
        enabled = lambda: cluster.command("cluster", "enable", directory, name, ok=False).returncode == 0
        cluster.wait(enabled, "it is turned on")
        assert old.stop() == 0
        old.program = PREVIOUS
        old.start()
        said = f"chunkserver {old.id}"
        eventually(lambda: f"lacks {name}" in cluster["m1"].tail(), "it is refused")
        assert said in cluster["m1"].tail()
        put(s3, "two", "second")
        # A master cannot go back either: it does not read the map, and changes nothing.
        assert cluster["m1"].stop() == 0
        cluster["m1"].program = PREVIOUS
        cluster["m1"].start()
        eventually(lambda: "format of a metadata row" in cluster["m1"].tail(), "it refuses the map")
        cluster["m1"].kill()
        cluster["m1"].program = old.program = None
        old.kill()
        cluster.start("m1")
        cluster.start("c1")
        cluster.wait_whole()
        get(s3, "one", "first")
        get(s3, "two", "second")


def run_command(address, env, *words):
    """What a command of this version prints, run as root at a door."""
    login = {"CAIRN_KEY": env["CAIRN_ROOT_KEY"], "CAIRN_SECRET": env["CAIRN_ROOT_SECRET"]}
    env = {**os.environ, **login, "CAIRN_SERVER": address}
    done = subprocess.run([binary(), *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, (words, done)
    return done.stdout


def root_of(address, env):
    lines = run_command(address, env, "user", "ls", "--json").splitlines()
    return next(user for user in map(json.loads, lines) if user["name"] == "root")


def change(s3, tag):
    """Three objects and an unfinished upload more, one object and one bucket less."""
    for number in range(3):
        put(s3, f"{tag}-{number}", tag)
    assert s3.object("DELETE", "shared", f"{tag}-1").status == 204
    s3.create_bucket(f"short-{tag}")
    assert s3.request("DELETE", f"/short-{tag}").status == 204
    s3.create_upload("shared", f"{tag}-upload")


def test_sums_of_users_are_counted_anew_after_the_version_before():
    """The version before counts nothing, or not in the same way, while it has the store."""
    with Server() as server:
        S3(server.s3).create_bucket("shared")
        change(S3(server.s3), "new")
        for tag, program in (("old", PREVIOUS), ("newer", None), ("older", PREVIOUS), ("last", None)):
            assert server.stop() == 0
            server.program = program
            server.start()
            change(S3(server.s3), tag)
        sums = root_of(server.http, server.env)
        assert (sums["buckets"], sums["objects"], sums["uploads"]) == (1, 10, 5), sums
        assert server.stop() == 0
        code, said = server.fsck()
        assert code == 0, said


def test_sums_of_users_are_counted_anew_after_a_master_of_the_version_before():
    with Cluster(chunkservers=1, gateways=1, replicas=1) as cluster:
        cluster.s3("g1").create_bucket("shared")
        change(cluster.s3("g1"), "new")
        master = cluster["m1"]
        for tag, program in (("old", PREVIOUS), ("newer", None)):
            assert master.stop() == 0
            master.program = program
            master.start()
            cluster.wait_whole()
            change(cluster.s3("g1"), tag)
        sums = root_of(cluster["g1"].http, cluster["g1"].env)
        assert (sums["buckets"], sums["objects"], sums["uploads"]) == (1, 6, 3), sums
        cluster.command("cluster", "fsck", str(master.directory), "--wait")


def test_a_store_whose_capability_is_on_is_refused_by_the_version_before():
    """Skipped where the other version has the capability itself."""
    with Server() as server:
        S3(server.s3).create_bucket("shared")
        put(S3(server.s3), "one", "first")
        # Until then the version before still starts.
        assert server.stop() == 0
        server.program = PREVIOUS
        server.start()
        get(S3(server.s3), "one", "first")
        assert server.stop() == 0
        enable = ["meta", "enable", str(server.directory), "required-fields"]
        if subprocess.run([PREVIOUS, *enable], capture_output=True).returncode == 0:
            pytest.skip("the other version has it")
        subprocess.run([binary(), *enable], check=True, capture_output=True)
        with pytest.raises(ServerFailed, match="format of a metadata row"):
            server.start()
        server.program = None
        server.start()
        get(S3(server.s3), "one", "first")
