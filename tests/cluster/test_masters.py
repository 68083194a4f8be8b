"""Three masters keep the metadata together: any may die, and nothing acknowledged is lost."""

import re
import shutil
import subprocess
import threading
import time

import pytest

from cluster.load import LOST
from harness.cluster import Cluster
from harness.server import binary
from harness.wait import PATIENCE_SECONDS
from kill.model import content

RESUME_SECONDS = 15
ATTEMPT_SECONDS = 40
# Inline in the metadata, and in blocks.
SIZES = [200, 15_000, 40_000]


class Writer(threading.Thread):
    """Puts objects, one after another, and notes those that were acknowledged, and when."""

    def __init__(self, cluster, bucket, name):
        super().__init__()
        self.s3 = cluster.s3("g1", timeout=ATTEMPT_SECONDS)
        self.bucket, self.prefix = bucket, name
        self.acknowledged, self.times, self.failures = {}, [], []
        self.done = threading.Event()

    def run(self):
        number = 0
        while not self.done.is_set():
            number += 1
            key = f"{self.prefix}/{number}"
            body = content(key, number, SIZES[number % len(SIZES)])
            began = time.monotonic()
            try:
                reply = self.s3.object("PUT", self.bucket, key, body=body)
            except LOST as error:
                self.failures.append(f"{key}: {error}")
                continue
            if reply.status == 200:
                self.acknowledged[key] = body
                self.times.append((began, time.monotonic()))
            else:
                self.failures.append(f"{key}: {reply.status}")
                time.sleep(0.1)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()

    def resumed(self, since):
        """Seconds from `since` until a write that began later was acknowledged."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            ended = [ended for began, ended in self.times if began > since]
            # Those that wait when the master dies end with the next one.
            ended += [ended for began, ended in self.times if began <= since < ended - 1]
            if ended:
                return min(ended) - since
            time.sleep(0.05)
        raise AssertionError(f"no write after {PATIENCE_SECONDS} s: {self.failures[-3:]}")


def verify(cluster, bucket, writer):
    s3 = cluster.s3("g1", timeout=ATTEMPT_SECONDS)
    listed = cluster.s3("g1", timeout=ATTEMPT_SECONDS).list(bucket, writer.prefix)
    for key, body in writer.acknowledged.items():
        assert key in listed, f"{key}: acknowledged, and not listed"
        reply = s3.object("GET", bucket, key)
        assert reply.status == 200 and reply.body == body, f"{key}: {reply}"


def status_text(cluster, name):
    done = cluster.command("cluster", "status", cluster[name].directory, ok=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster():
    with Cluster(masters=3, chunkservers=2, gateways=1, replicas=2) as running:
        running.s3("g1").create_bucket("masters")
        yield running
        assert not running.misbehaviour()


def test_one_voter_became_three(cluster):
    status = cluster.told()
    assert status["metadata_copies"] == "members"
    members = status["members"]
    assert members["majority"] and members["voters"] == 3
    assert sorted(one["as"] for one in members["masters"]) == ["voter"] * 3
    assert [one["node"] for one in members["masters"] if one["serves"]] == [status["master"]]
    code, text = status_text(cluster, "g1")
    assert code == 0 and "WARNING" not in text and "serves" in text, text


def test_masters_die_one_after_another(cluster, capsys):
    took = []
    for round in range(3):
        with Writer(cluster, "masters", f"round-{round}") as writer:
            time.sleep(1)
            serving = cluster.serving()
            since = time.monotonic()
            cluster.kill(serving.name)
            took.append(writer.resumed(since))
            time.sleep(2)
            now = cluster.serving()
            assert now.id != serving.id
            cluster.start(serving.name)
            cluster.wait_voters(cluster.masters())
            cluster.wait(lambda name=serving.name: follows(cluster, name), "it follows")
        assert len(writer.acknowledged) > 10, writer.failures[-3:]
        verify(cluster, "masters", writer)
    with capsys.disabled():
        shown = ", ".join(f"{seconds:.1f}" for seconds in took)
        print(f"\nmasters: writes resumed after {shown} s")
    assert max(took) < RESUME_SECONDS, took


def follows(cluster, name):
    masters = cluster.told()["members"]["masters"]
    own = [one for one in masters if one["node"] == cluster[name].id]
    return own and own[0]["answers"] and not own[0]["leads"] and own[0]["lag"] == 0


def test_a_majority_that_is_lost_is_told_of_and_comes_back(cluster):
    names = cluster.masters()
    for name in names[1:]:
        cluster.kill(name)

    def told():
        code, text = status_text(cluster, names[0])
        return code == 1 and "NO MAJORITY" in text and text

    text = cluster.wait(told, "the status says that there is no majority")
    missing = ", ".join(cluster[name].id for name in names[1:])
    assert f"1 of 3 voters answer" in text and f"missing: node {missing}" in text, text
    refused = cluster.command("cluster", "recover", cluster[names[0]].directory, ok=False)
    assert refused.returncode == 1 and "in use" in refused.stderr, refused
    for name in names[1:]:
        cluster.start(name)
    cluster.wait_whole()
    cluster.wait_voters(names)


def test_a_master_that_lost_its_votes_fills_itself_again(cluster):
    serving = cluster.serving().name
    lost = [name for name in cluster.masters() if name != serving][0]
    cluster.kill(lost)
    node = cluster[lost]
    former, note = node.id, node.directory / "member"
    kept = note.read_bytes()
    shutil.rmtree(node.directory / "meta")
    # Without the note that it has voted it asks as a new one does, which is refused.
    note.unlink()
    refused = start_refused(node)
    assert "must not vote again" in refused, refused
    note.write_bytes(kept)
    master = cluster[serving].directory
    done = cluster.command("cluster", "remove", master, cluster[serving].id, ok=False)
    assert done.returncode == 1 and "no majority" in done.stderr, done
    cluster.start(lost)
    cluster.wait(lambda: number_of(node) != former, "it has a new number")
    node.id = number_of(node)
    cluster.wait_voters([*cluster.masters()])
    assert len(cluster.voters()) == 3
    assert former not in {one["node"] for one in cluster.told()["members"]["masters"]}
    cluster.wait(lambda: status_text(cluster, serving)[0] == 0, "all is well")
    with Writer(cluster, "masters", "replaced") as writer:
        time.sleep(1)
        since = time.monotonic()
        cluster.kill(serving)
        assert writer.resumed(since) < RESUME_SECONDS
        time.sleep(1)
    cluster.start(serving)
    verify(cluster, "masters", writer)


def test_the_master_that_serves_is_removed(cluster):
    cluster.wait_whole()
    cluster.wait_voters(cluster.masters())
    serving = cluster.serving()
    with Writer(cluster, "masters", "removed") as writer:
        time.sleep(1)
        since = time.monotonic()
        cluster.command("cluster", "remove", serving.directory, serving.id)
        cluster.kill(serving.name)
        del cluster.nodes[serving.name]
        assert writer.resumed(since) < RESUME_SECONDS
        time.sleep(1)
    assert cluster.serving().id != serving.id
    assert serving.id not in {one["node"] for one in cluster.told()["members"]["masters"]}
    cluster.add("m5")
    cluster.wait_voters([*cluster.masters()])
    assert len(cluster.voters()) == 3
    verify(cluster, "masters", writer)


def number_of(node):
    """The number of a node as its directory has it."""
    text = (node.directory / "cluster.toml").read_text()
    return str(int(re.search(r"^node = .([0-9a-f]+).", text, re.M)[1], 16))


def start_refused(node):
    """What a process says that ends by itself."""
    command = [binary(), "master", str(node.directory), *node.arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1, done
    return done.stdout + done.stderr


def test_a_voter_that_is_away_is_no_copy():
    with Cluster(masters=3, chunkservers=3, gateways=1, replicas=3) as cluster:
        assert not cluster.told()["few_copies"]
        serving = cluster.serving().name
        away = [name for name in cluster.masters() if name != serving][0]
        cluster.kill(away)

        def few():
            status = cluster.told()
            return status["few_copies"] and status

        status = cluster.wait(few, "the status says that there are few copies")
        assert status["metadata_copies_number"] == 2 and status["members"]["voters"] == 3, status
        _, text = status_text(cluster, "g1")
        assert "have 2 copies, and blocks have 3" in text, text
        cluster.start(away)
        cluster.wait(lambda: not cluster.told()["few_copies"], "there are enough copies again")
