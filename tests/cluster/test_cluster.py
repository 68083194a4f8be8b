"""A cluster as its operators and users know it: nodes come, go, fail and are lied to."""

import hashlib
import json
import mmap
import os
import random
import threading
import time

import pytest

from cluster import episodes
from cluster.load import LOST, MIB
from harness import disk, net
from harness.cluster import Cluster
from harness.server import KEY, REGION, SECRET
from harness.wait import PATIENCE_SECONDS
from kill.model import content

EPISODES = int(os.environ.get("CAIRN_TEST_EPISODES", 1))
# Faults that every machine can make; episodes.py by itself draws from all.
FAULTS = ["wipe_chunkserver", "restart_database"]
SEED = int(os.environ.get("CAIRN_TEST_SEED", 2))
ROUNDS = 150
SIZES = [100, 15_000, 40_000, 300_000, 5 * MIB, 9 * MIB]
# After that a client asks the other gateway.
ATTEMPT_SECONDS = 30


@pytest.fixture(scope="module")
def cluster():
    """Four chunkservers, so that one can be taken away for good."""
    with Cluster(chunkservers=4, gateways=2) as running:
        running.s3("g1").create_bucket("shared")
        yield running
        assert not running.misbehaviour()


@pytest.fixture
def whole(cluster):
    cluster.wait_whole()
    return cluster


def put(s3, key, version=1, size=40_000):
    body = content(key, version, size)
    reply = s3.object("PUT", "shared", key, body=body)
    assert reply.status == 200, reply
    return body


def stubborn(send):
    """The reply to a request that is repeated until it is answered."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            reply = send()
            if reply.status < 500:
                return reply
        except LOST as error:
            reply = error
        assert time.monotonic() < end, reply
        time.sleep(0.1)


class Worker(threading.Thread):
    """Writes and reads back through both gateways, one after the other; notes how long the
    slowest request took, and how many had to be repeated."""

    def __init__(self, cluster, name):
        super().__init__()
        self.doors = [cluster.s3(name, timeout=ATTEMPT_SECONDS) for name in cluster.gateways()]
        self.rng, self.written, self.name_of_keys = random.Random(name), {}, name
        self.done, self.slowest, self.repeated, self.problem = threading.Event(), 0.0, 0, None

    def run(self):
        try:
            while not self.done.is_set():
                self.step()
        except AssertionError as error:
            self.problem = str(error)

    def step(self):
        key = f"{self.name_of_keys}/{self.rng.randrange(30)}"
        body = content(key, self.rng.random(), self.rng.choice(SIZES[:4]))
        reply = self.send(lambda door: door.object("PUT", "shared", key, body=body))
        assert reply.status == 200, reply
        self.written[key] = body
        key = self.rng.choice(list(self.written))
        reply = self.send(lambda door: door.object("GET", "shared", key))
        assert reply.status == 200 and reply.body == self.written[key], f"{key}: {reply}"

    def send(self, request):
        attempts, began = 0, time.monotonic()

        def attempt():
            nonlocal attempts
            attempts += 1
            self.doors.reverse()
            return request(self.doors[0])

        reply = stubborn(attempt)
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.repeated += attempts - 1
        return reply

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        self.done.set()
        self.join()
        assert kind or self.problem is None, self.problem


def test_what_goes_in_by_one_gateway_is_out_by_the_other_at_once(whole):
    doors, rng = [whole.s3("g1"), whole.s3("g2")], random.Random(1)
    for number in range(ROUNDS):
        rng.shuffle(doors)
        one, other = doors
        key = f"at-once/{number % 7}"
        body = put(one, key, number, rng.choice(SIZES[:4]))
        reply = other.object("GET", "shared", key)
        assert reply.status == 200 and reply.body == body, f"round {number}: stale: {reply}"
        if number % 3 == 0:
            assert other.object("DELETE", "shared", key).status == 204
            assert one.object("GET", "shared", key).status == 404, f"round {number}: stale"
            assert key not in one.list("shared", "at-once/")


def test_sizes_and_ranges_through_either_gateway(whole):
    one, other = whole.s3("g1"), whole.http("g2")
    for size in SIZES:
        body = put(one, f"sizes/{size}", size=size)
        assert other.object("GET", "shared", f"sizes/{size}").body == body
        first, last = size // 3, size // 2
        headers = {"range": f"bytes={first}-{last}"}
        reply = other.object("GET", "shared", f"sizes/{size}", headers=headers)
        assert reply.status == 206 and reply.body == body[first : last + 1], size


def test_a_stock_client(whole):
    import boto3
    from botocore.config import Config

    def client(gateway):
        return boto3.client(
            "s3", endpoint_url=whole[gateway].s3, aws_access_key_id=KEY,
            aws_secret_access_key=SECRET, region_name=REGION,
            config=Config(s3={"addressing_style": "path"}),
        )  # fmt: skip

    one, other = client("g1"), client("g2")
    one.create_bucket(Bucket="stock")
    one.put_object(Bucket="stock", Key="small", Body=b"small")
    assert other.get_object(Bucket="stock", Key="small")["Body"].read() == b"small"
    upload = one.create_multipart_upload(Bucket="stock", Key="parts")["UploadId"]
    bodies = [content("parts", n, size) for n, size in enumerate([6 * MIB, 5 * MIB, 1000], 1)]
    parts = []
    for number, body in enumerate(bodies, 1):
        # A part may come through any gateway.
        part = (one, other)[number % 2].upload_part(
            Bucket="stock", Key="parts", UploadId=upload, PartNumber=number, Body=body
        )
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    other.complete_multipart_upload(
        Bucket="stock", Key="parts", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    for any_of_both in (one, other):
        found = any_of_both.get_object(Bucket="stock", Key="parts")["Body"].read()
        assert found == b"".join(bodies)
        listed = any_of_both.list_objects_v2(Bucket="stock")["Contents"]
        assert [entry["Key"] for entry in listed] == ["parts", "small"]


def says_well(cluster, node):
    done = cluster.command("cluster", "status", node.directory, ok=False)
    return done.returncode == 0 and "DOWN" not in done.stdout


def test_status_tells_of_every_node(whole):
    status = whole.told()
    assert len(status["nodes"]) == len(whole.nodes) and status["replicas"] == 3
    assert {node["node"] for node in status["nodes"]} == {n.id for n in whole.nodes.values()}
    for name, node in whole.nodes.items():
        said = whole.node_status(name, status)
        assert said["up"] and said["roles"] == [node.role], said
        # Any node may ask; exit code 0 says that all is well.
        whole.wait(lambda node=node: says_well(whole, node), f"{name} says that all is well")
    assert len(status["sessions"]) == 2
    whole.kill("g2")
    whole.wait(lambda: not whole.is_up("g2"), "g2 is seen down")
    done = whole.command("cluster", "status", whole["m1"].directory, ok=False)
    assert done.returncode == 1 and "DOWN" in done.stdout, done
    whole.start("g2")


def test_a_killed_chunkserver_disturbs_nobody(whole, capsys):
    with Worker(whole, "killed") as worker:
        time.sleep(1)
        for name in ("c1", "c2"):
            whole.kill(name)
            time.sleep(7)
            whole.start(name)
            whole.wait_whole()
    with capsys.disabled():
        print(f"\nkilled chunkserver: slowest request {worker.slowest:.1f} s, "
              f"{worker.repeated} repeated")  # fmt: skip


def test_a_wiped_chunkserver_is_refilled(whole):
    bodies = {f"wiped/{n}": put(whole.s3("g1"), f"wiped/{n}", size=300_000) for n in range(40)}
    for name in whole.chunkservers():
        wiped = whole.node_status(name)["disk"]
        whole.wipe(name)
        # Until the master knows, it may still look whole.
        disk_of = lambda name=name: (whole.node_status(name) or {}).get("disk")  # noqa: E731
        whole.wait(lambda: disk_of() not in (None, wiped), f"the disk of {name} is new")
        whole.wait_whole()
    # Every disk was wiped once: all that is there was copied.
    for key, body in bodies.items():
        assert whole.s3("g2").object("GET", "shared", key).body == body, key


def refused_to_join(cluster, token, *words):
    directory = cluster.work / f"refused-{time.monotonic_ns()}"
    done = cluster.command("cluster", "join", directory, token, ok=False)
    assert done.returncode == 1, done
    assert len(done.stderr.strip().splitlines()) == 1 and "panicked" not in done.stderr, done
    assert any(word in done.stderr for word in words), done.stderr


def test_join_tokens_work_once_and_unaltered(whole):
    before = len(whole.told()["nodes"])
    token = whole.token("gateway")
    altered = token[:-3] + ("A" if token[-3] != "A" else "B") + token[-2:]
    refused_to_join(whole, altered, "token")
    refused_to_join(whole, "cairn-join-1.nonsense", "token")
    done = whole.command("cluster", "join", whole.work / "once", token)
    assert "joined as node" in done
    refused_to_join(whole, token, "token", "used")
    number = done.split("node ")[1].split()[0]
    whole.command("cluster", "remove", whole["m1"].directory, number)
    expired = whole.token("gateway", "--expires", "1")
    time.sleep(2)
    refused_to_join(whole, expired, "expired", "token")
    gateway = whole["g1"].directory
    refused = whole.command("cluster", "token", gateway, "--role", "gateway", ok=False)
    assert refused.returncode == 1 and "not as master" in refused.stderr, refused
    assert len(whole.told()["nodes"]) == before


def start_fails(cluster, *command):
    done = cluster.command(*command, ok=False)
    assert done.returncode == 1 and "panicked" not in done.stderr, done
    return done.stderr.strip().splitlines()[-1]


def test_a_node_with_the_directory_of_another(whole):
    chunkserver = whole["c1"]
    said = start_fails(whole, "gateway", chunkserver.directory, "--s3", "127.0.0.1:0",
                       "--http", "127.0.0.1:0")  # fmt: skip
    assert "holds a chunkserver of a cluster" in said and "cairn chunkserver" in said
    said = start_fails(whole, "chunkserver", chunkserver.directory, "--listen", "127.0.0.1:0")
    assert str(chunkserver.directory) in said and "use" in said
    said = start_fails(whole, "chunkserver", whole.work / "nowhere", "--listen", "127.0.0.1:0")
    assert "cairn cluster join" in said
    whole.wait_whole()


def test_a_rolling_restart_disturbs_nobody(whole, capsys):
    with Worker(whole, "rolling") as worker:
        for name in list(whole.nodes):
            assert whole.restart(name) == 0, whole[name].tail()
            whole.wait(lambda name=name: whole.is_up(name), f"{name} is up")
            whole.wait_whole()
    with capsys.disabled():
        print(f"\nrolling restart: slowest request {worker.slowest:.1f} s, "
              f"{worker.repeated} repeated")  # fmt: skip


def flip(directory, needles):
    """Flips a bit wherever one of the contents lies on a disk; returns how many were found."""
    flipped = 0
    for path in sorted((directory / "blocks").rglob("*")):
        if path.is_file() and path.stat().st_size:
            with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
                for needle in needles:
                    if (at := view.find(needle)) >= 0:
                        view[at + 7] ^= 1
                        flipped += 1
    return flipped


def test_flipped_bits_are_never_served_and_healed(whole):
    names = [f"rotten/{n}" for n in range(12)]
    bodies = {name: put(whole.s3("g1"), name, size=200_000) for name in names}
    needles = [body[100_000:100_064] for body in bodies.values()]
    some = ((name, flip(whole[name].directory, needles)) for name in whole.chunkservers())
    victim, flipped = next((name, count) for name, count in some if count)

    def read_all():
        for gateway in whole.gateways():
            whole.restart(gateway)  # with an empty cache
            for name, body in bodies.items():
                reply = whole.s3(gateway).object("GET", "shared", name)
                assert reply.status == 200, reply
                assert hashlib.sha256(reply.body).digest() == hashlib.sha256(body).digest(), name

    healed = lambda: (whole.node_status(victim) or {}).get("healed") or 0  # noqa: E731
    end = time.monotonic() + PATIENCE_SECONDS
    while not healed():
        read_all()
        assert time.monotonic() < end, "nothing was healed"
    read_all()
    assert healed() <= flipped
    # Each damaged block counts once, however often it was read.
    whole.wait(lambda: whole.node_status(victim)["corrupt"] == healed(), "as many were found as healed")


def scrubbed(cluster, name):
    """Restarts a chunkserver whose last scrub was long ago; how many damaged blocks it found."""
    noted = cluster[name].directory / "scrub"
    noted.write_text("finished 1 blocks 0 damaged 0\n")
    cluster.restart(name)
    cluster.wait(lambda: not noted.read_text().startswith("finished 1 "), f"{name} is scrubbed")
    return int(noted.read_text().split()[-1])


def test_a_scrub_heals_what_nobody_reads(whole):
    def damaged(name):
        """A gateway that has just lost a chunkserver writes to others for a while."""
        needle = put(whole.s3("g1"), f"unread/{time.time()}", size=200_000)[100_000:100_064]
        return flip(whole[name].directory, [needle])

    for name in whole.chunkservers()[:2]:
        whole.wait(lambda name=name: damaged(name), f"a block on {name}")
        found = scrubbed(whole, name)
        assert found > 0
        healed = lambda name=name: (whole.node_status(name) or {}).get("healed")  # noqa: E731
        whole.wait(lambda: healed() == found, "all is healed")
        assert scrubbed(whole, name) == 0
        whole.wait_whole()


def test_a_scrub_that_is_ordered_heals_and_names_objects(whole):
    name, victim = f"ordered/{time.time()}", whole.chunkservers()[0]

    def damaged():
        needle = put(whole.s3("g1"), name, size=200_000)[100_000:100_064]
        return flip(whole[victim].directory, [needle])

    flipped = whole.wait(damaged, f"a block on {victim}")
    for asker in ("m1", "g1"):
        shown = json.loads(whole.command("cluster", "scrub", whole[asker].directory, "--json"))
        nodes = {one["node"]: one for one in shown["nodes"]}
        assert len(nodes) == len(whole.chunkservers()), shown
        assert {one["state"] for one in nodes.values()} == {"ended"} and shown["whole"], shown
        of_victim = nodes[f"{whole[victim].id}"]
        if asker == "m1":
            # Others may have damaged what nobody has read since.
            assert of_victim["damaged"] == of_victim["repaired"] >= flipped, shown
            states = {one["object"]: one["state"] for one in shown["objects"]}
            assert states[f"shared/{name}"] == "repaired", shown
        else:
            assert all(one["damaged"] == 0 for one in nodes.values()), shown
            assert shown["objects"] == [], shown
    looked = json.loads(whole.command("cluster", "scrub", whole["m1"].directory, "--look", "--json"))
    assert looked == shown
    whole.command("cluster", "scrub", whole["m1"].directory, "--stop")
    refused = whole.command("cluster", "scrub", whole[victim].directory, ok=False)
    assert refused.returncode == 1 and "joined as" in refused.stderr, refused
    for command in ("fsck", "scrub"):
        refused = whole.command(command, whole["m1"].directory, ok=False)
        assert refused.returncode == 1 and "cairn cluster scrub" in refused.stderr, refused
        assert "cairn cluster fsck" in refused.stderr, refused


def fscked(cluster):
    """The exit code of an fsck, and what it found."""
    done = cluster.command("cluster", "fsck", cluster["m1"].directory, "--wait", "--json", ok=False)
    assert done.stdout.startswith("{"), done
    return done.returncode, json.loads(done.stdout)


def test_fsck_of_a_serving_cluster(whole):
    name = f"checked/{time.time()}"
    put(whole.s3("g1"), name, size=200_000)
    with Worker(whole, "while-checked"):
        for _ in range(3):
            code, shown = fscked(whole)
            found = shown["findings"], shown["objects"], shown["silent"]
            assert found == ([], [], []), f"{found}"
            assert code == 0 and shown["clean"] and shown["state"] == "ended", shown
            assert shown["rows"] > 0 and shown["blocks"] > 0 and not shown["runs"], shown
    assert shown["node"] == str(whole["m1"].id) and shown["begun"] < shown["ended"], shown
    text = whole.command("cluster", "fsck", whole["g1"].directory, "--look")
    assert "sound" in text and "0 lost, 0 degraded, 0 not compared" in text, text
    assert whole.status()["fsck"]["state"] == "ended"
    begun = whole.command("cluster", "fsck", whole["g1"].directory)
    assert f"fsck ordered by node {whole['g1'].id} at" in begun, begun
    look = lambda: whole.command("cluster", "fsck", whole["g1"].directory, "--look", ok=False)  # noqa: E731
    whole.wait(lambda: "sound" in look().stdout, "it has ended")
    refused = whole.command("cluster", "fsck", whole[whole.chunkservers()[0]].directory, ok=False)
    assert refused.returncode == 1 and "joined as" in refused.stderr, refused


def test_fsck_names_lost_and_degraded_objects():
    with Cluster(chunkservers=2, gateways=1, replicas=2, repair_after=3600) as cluster:
        cluster.s3("g1").create_bucket("shared")
        put(cluster.s3("g1"), "checked")
        assert fscked(cluster)[0] == 0
        for lacking, state in ((1, "degraded"), (2, "lost")):
            victim = cluster.chunkservers()[lacking - 1]
            cluster.kill(victim)
            cluster.wait(lambda victim=victim: not cluster.is_up(victim), f"{victim} is down")
            code, shown = fscked(cluster)
            assert code == 1 and not shown["clean"] and shown[f"{state}_blocks"] == 1, shown
            assert {(one["object"], one["state"]) for one in shown["objects"]} == {("shared/checked", state)}
        text = cluster.command("cluster", "fsck", cluster["m1"].directory, "--look", ok=False)
        assert text.returncode == 1 and "lost: shared/checked: bytes 0 to 40000" in text.stdout, text
        for victim in cluster.chunkservers():
            cluster.start(victim)
        cluster.wait_whole()
        assert fscked(cluster)[0] == 0


def test_a_new_chunkserver_gets_its_share_when_asked(whole):
    for number in range(60):
        put(whole.s3("g1"), f"balanced/{number}", size=300_000)
    whole.add("c5")
    whole.wait_whole()
    master, bytes_of = whole["m1"].directory, lambda: whole.node_status("c5")["live_bytes"]
    shown = whole.command("cluster", "rebalance", master, "--dry-run")
    assert "groups to move" in shown and bytes_of() == 0, shown
    with Worker(whole, "while-balanced"):
        whole.command("cluster", "rebalance", master)
    whole.wait(lambda: bytes_of() > 0, "c5 has its share")
    for number in range(60):
        name, body = f"balanced/{number}", content(f"balanced/{number}", 1, 300_000)
        assert whole.s3("g2").object("GET", "shared", name).body == body, name


def test_a_drained_chunkserver_can_be_removed(whole):
    bodies = {f"drained/{n}": put(whole.s3("g1"), f"drained/{n}", size=100_000) for n in range(40)}
    master, node = whole["m1"].directory, whole["c4"]
    refused = whole.command("cluster", "remove", master, node.id, ok=False)
    assert refused.returncode == 1 and "drain it" in refused.stderr, refused
    with Worker(whole, "while-drained"):
        shown = whole.command("cluster", "drain", master, node.id, "--dry-run")
        assert "would be copied" in shown and whole.node_status("c4")["groups"] > 0, shown
        whole.command("cluster", "drain", master, node.id, "--wait")
        assert whole.node_status("c4")["groups"] == 0
        whole.command("cluster", "remove", master, node.id)
    assert whole.node_status("c4") is None
    # It is no longer let in, and says so or waits; it does no harm.
    time.sleep(1)
    whole.kill("c4")
    del whole.nodes["c4"]
    whole.wait_whole()
    for key, body in bodies.items():
        assert whole.s3("g2").object("GET", "shared", key).body == body, key
    whole.add("c6")
    whole.wait_whole()


def test_a_chunkserver_is_replaced_by_a_new_one(whole):
    bodies = {f"replaced/{n}": put(whole.s3("g1"), f"replaced/{n}", size=100_000) for n in range(40)}
    master, old = whole["m1"].directory, whole["c6"].id
    whole.add("c7")
    new = whole["c7"].id
    refused = whole.command("cluster", "replace", master, old, old, "--yes", ok=False)
    assert refused.returncode == 1 and "takes no blocks" in refused.stderr, refused
    had = whole.node_status("c6")["groups"]
    shown = whole.command("cluster", "replace", master, old, new, "--yes")
    assert f"node {old} is in {had} groups" in shown and f"to node {new}" in shown, shown
    assert whole.node_status("c6") is None and whole.node_status("c7")["groups"] >= had > 0
    whole.kill("c6")
    del whole.nodes["c6"]
    whole.wait_whole()
    for key, body in bodies.items():
        assert whole.s3("g2").object("GET", "shared", key).body == body, key
    whole.add("c8")
    whole.wait_whole()
    # The same without a name for the other one, and with a further node.
    joined = whole.command("cluster", "join", whole.work / "spare", whole.token("gateway"))
    spare = joined.split("node ")[1].split()[0]
    refused = whole.command("cluster", "remove", master, new, spare, "255", "--yes", ok=False)
    assert refused.returncode == 1 and "node 255" in refused.stderr, refused
    assert {new, spare} < {node["node"] for node in whole.told()["nodes"]}
    shown = whole.command("cluster", "remove", master, new, spare, "--yes")
    assert "which move" in shown, shown
    assert not {new, spare} & {node["node"] for node in whole.told()["nodes"]}
    whole.kill("c7")
    del whole.nodes["c7"]
    whole.wait_whole()


def test_faults_of_the_network_and_of_disks_can_be_made():
    """Says aloud which of them the episodes leave out on this machine."""
    missing = []
    for make in (net.Network, lambda: disk.SmallDisk(64)):
        try:
            with make():
                pass
        except (net.Unavailable, disk.Unavailable) as error:
            missing.append(str(error))
    if missing:
        pytest.skip(f"some faults of the episodes: {'; '.join(missing)}")


@pytest.mark.parametrize("fault", FAULTS)
def test_episodes_of_faults_lose_and_show_nothing_wrong(capsys, fault):
    with capsys.disabled():
        print()
        violations = episodes.run(
            EPISODES,
            seed=SEED,
            only=[fault],
            resume_seconds=PATIENCE_SECONDS,
            live_seconds=0,
            echo=lambda text: print(text, flush=True),
        )
    assert not violations
