"""Metadata begin anew with one master: the others were lost, or a dump was loaded. Those that come back
never serve again, and nothing that is acknowledged from then on is lost."""

import os
import time

import pytest

from cluster.test_masters import Writer, start_refused, status_text, verify
from harness.cluster import Cluster
from harness.postgres import Postgres
from harness.wait import PATIENCE_SECONDS

SUPERSEDED = "has begun without it"


def stop_all(cluster, names):
    for name in names:
        cluster[name].stop()


def end_by_themselves(cluster, names):
    """Masters that were given up end, having served nobody, and do not start again."""
    for name in names:
        node = cluster.nodes.pop(name)
        assert node.process.wait(PATIENCE_SECONDS) == 1, name
        text = node.log.read_text()
        since = text[text.rindex("== started") :]
        assert SUPERSEDED in since and "this master serves" not in since, since
        assert SUPERSEDED in start_refused(node)


def test_one_that_is_left_goes_on_alone():
    with Cluster(masters=3, chunkservers=2, gateways=2, replicas=2) as cluster:
        cluster.s3("g1").create_bucket("left")
        with Writer(cluster, "left", "before") as writer:
            time.sleep(1)
        # What was acknowledged is on a majority; the survivor may be the third.
        survivor = cluster.serving().name
        gone = [name for name in cluster.masters() if name != survivor]
        numbers = ",".join(cluster[name].id for name in gone)
        for name in [*gone, survivor]:
            cluster.kill(name)
        directory = cluster[survivor].directory
        told = cluster.command("cluster", "recover", directory, ok=False)
        assert told.returncode == 1 and "Nothing was changed" in told.stdout, told
        assert "its log ends at term" in told.stdout and "What may be lost" in told.stdout, told
        assert f"--accept-loss {numbers}" in told.stdout and "switched off" in told.stdout, told
        # Without --accept-loss the others still follow it.
        for name in cluster.masters():
            cluster.start(name)
        cluster.wait_whole()
        for name in [*gone, survivor]:
            cluster.kill(name)
        for wrong in (cluster[gone[0]].id, f"{numbers},{cluster[survivor].id}"):
            command = ["cluster", "recover", directory, "--accept-loss", wrong]
            refused = cluster.command(*command, ok=False)
            assert refused.returncode == 1 and numbers in refused.stderr, refused
        done = cluster.command("cluster", "recover", directory, "--accept-loss", numbers)
        assert "is the only master now" in done and "switched off" in done, done
        # All come back at the same time: the two are a majority of what they know.
        for name in [*gone, survivor]:
            cluster[name].start()
        with Writer(cluster, "left", "meanwhile") as meanwhile:
            second = cluster[gone[1]]
            end_by_themselves(cluster, [gone[0]])
            # The other one would be the next to go on alone.
            second.process.wait(PATIENCE_SECONDS)
            command = ["cluster", "recover", second.directory]
            refused = cluster.command(*command, "--accept-loss", cluster[survivor].id, ok=False)
            assert refused.returncode == 1 and "began without this master" in refused.stderr, refused
            end_by_themselves(cluster, [gone[1]])
            cluster.wait_whole()
            time.sleep(1)
        assert meanwhile.acknowledged, meanwhile.failures
        for gateway in ("g1", "g2"):
            cluster.restart(gateway)
        cluster.wait_whole()
        verify(cluster, "left", writer)
        verify(cluster, "left", meanwhile)
        code, text = status_text(cluster, "g1")
        assert "one copy of the metadata" in text, text
        for name in ("m4", "m5"):
            cluster.add(name)
        cluster.wait_voters(cluster.masters())
        with Writer(cluster, "left", "after") as writer:
            time.sleep(1)
        verify(cluster, "left", writer)
        assert not cluster.misbehaviour()


def test_former_masters_that_served_meanwhile_stop():
    """Nothing can keep them from serving while they do not reach the survivor. As soon as they do they
    end, and all nodes go by the survivor."""
    with Cluster(masters=3, chunkservers=1, gateways=1, replicas=1) as cluster:
        cluster.s3("g1").create_bucket("apart")
        gone, numbers = ["m2", "m3"], ",".join(cluster[name].id for name in ("m2", "m3"))
        for name in cluster.masters():
            cluster.kill(name)
        cluster.command("cluster", "recover", cluster["m1"].directory, "--accept-loss", numbers)
        for name in gone:
            cluster.start(name)
        cluster.wait(lambda: cluster.status("g1"), "one of them serves")
        assert cluster.told()["master"] != cluster["m1"].id
        cluster.start("m1")
        for name in gone:
            node = cluster.nodes.pop(name)
            assert node.process.wait(PATIENCE_SECONDS) == 1
            assert SUPERSEDED in start_refused(node)
        cluster.wait_whole()
        assert cluster.told()["master"] == cluster["m1"].id
        with Writer(cluster, "apart", "after") as writer:
            time.sleep(2)
        assert writer.acknowledged, writer.failures
        verify(cluster, "apart", writer)
        assert not cluster.misbehaviour()


def test_what_is_written_after_a_load_is_there_though_nodes_know_later_groups():
    with Cluster(masters=1, chunkservers=1, gateways=1, replicas=1) as cluster:
        cluster.s3("g1").create_bucket("loaded")
        with Writer(cluster, "loaded", "before") as before:
            time.sleep(1)
        master = cluster["m1"]
        dump = cluster.work / "dump"
        assert master.stop() == 0
        cluster.command("meta", "dump", master.directory, dump)
        master.start()
        cluster.wait_whole()
        # A chunkserver joins, and groups are formed that the dump does not know.
        known = {group["group"] for group in cluster.told()["groups"]}
        later = cluster.add("c2")

        def formed():
            groups = cluster.told()["groups"]
            on_it = [group for group in groups if later.id in group["in_sync"]]
            return [group for group in on_it if group["takes_writes"]]

        new = cluster.wait(formed, "the new chunkserver has a group")
        assert not known & {group["group"] for group in new}
        with Writer(cluster, "loaded", "later"):
            time.sleep(1)
        cluster.kill("m1")
        with Writer(cluster, "loaded", "after") as after:
            (master.directory / "meta").rename(master.directory / "meta.lost")
            cluster.command("meta", "load", dump, master.directory)
            cluster.start("m1")
            cluster.wait(lambda: after.acknowledged, "writes go on")
            time.sleep(2)
        cluster.kill("c2")
        verify(cluster, "loaded", before)
        verify(cluster, "loaded", after)
        # No number is given twice.
        del cluster.nodes["c2"]
        third = cluster.add("c3")
        assert int(third.id, 16) > int(later.id, 16)
        cluster.wait_whole()
        ids = {group["group"] for group in cluster.told()["groups"]} - known
        assert not ids & {group["group"] for group in new}
        verify(cluster, "loaded", after)
        assert not cluster.misbehaviour()


def test_a_dump_is_not_loaded_beside_masters_that_run():
    with Cluster(masters=3, chunkservers=1, gateways=1, replicas=1) as cluster:
        cluster.s3("g1").create_bucket("loaded")
        dump = cluster.work / "dump"
        cluster["m1"].stop()
        cluster.command("meta", "dump", cluster["m1"].directory, dump)
        (cluster["m1"].directory / "meta").rename(cluster["m1"].directory / "meta.lost")
        numbers = ",".join(cluster[name].id for name in ("m2", "m3"))
        load = ["meta", "load", dump, cluster["m1"].directory]
        for option in ([], ["--give-up", numbers]):
            refused = cluster.command(*load, *option, ok=False)
            assert refused.returncode == 1 and "runs, and has metadata" in refused.stderr, refused
        for name in ("m2", "m3"):
            cluster.kill(name)
        refused = cluster.command(*load, ok=False)
        assert refused.returncode == 1 and f"--give-up {numbers}" in refused.stderr, refused
        cluster.command(*load, "--give-up", numbers)
        for name in ("m1", "m2", "m3"):
            cluster[name].start()
        end_by_themselves(cluster, ["m2", "m3"])
        cluster.wait_whole()
        with Writer(cluster, "loaded", "after") as writer:
            time.sleep(1)
        verify(cluster, "loaded", writer)
        assert not cluster.misbehaviour()


def set_place(node, place):
    """Has a directory say where its metadata are."""
    path = node.directory / "format"
    lines = path.read_text().splitlines()[:3]
    path.write_text("\n".join([*lines, *place]) + "\n")


@pytest.mark.parametrize("path", ["embedded raft", "raft postgres raft"])
def test_a_cluster_moves_between_engines(path):
    first, *others = path.split()
    with Postgres() as database, Cluster(
        masters=1, chunkservers=1, gateways=1, replicas=1, engine=first
    ) as cluster:
        cluster.s3("g1").create_bucket("moved")
        master, dump = cluster["m1"], cluster.work / "dump"
        in_database = dict(os.environ, CAIRN_META=database.url)
        plain, writers, former = list(master.arguments), [], first
        for engine in others:
            with Writer(cluster, "moved", f"in-{former}") as writer:
                time.sleep(1)
            writers.append(writer)
            assert master.stop() == 0
            match former:
                case "postgres":
                    cluster.command("meta", "dump", dump, env=in_database)
                case _:
                    cluster.command("meta", "dump", master.directory, dump)
            if former == "embedded":
                refused = cluster.command("meta", "load", dump, master.directory, ok=False)
                assert refused.returncode == 1 and "already" in refused.stderr, refused
            if former != "postgres":
                (master.directory / "meta").rename(master.directory / f"meta.{former}")
            set_place(master, [f"meta {engine}"])
            match engine:
                case "postgres":
                    cluster.command("meta", "load", dump, env=in_database)
                    master.arguments = [*plain, "--meta", database.url]
                case _:
                    cluster.command("meta", "load", dump, master.directory)
                    master.arguments = plain
            cluster.start("m1")
            cluster.wait_whole()
            for writer in writers:
                verify(cluster, "moved", writer)
            former = engine
        for name in ("m2", "m3"):
            cluster.add(name)
        cluster.wait_voters(["m1", "m2", "m3"])
        with Writer(cluster, "moved", "after") as writer:
            time.sleep(1)
        verify(cluster, "moved", writer)
        assert not cluster.misbehaviour()
