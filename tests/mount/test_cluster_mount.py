"""Mounts of a cluster: as a gateway, and at gateways, with nothing but an access key."""

import contextlib
import errno
import itertools
import json
import multiprocessing
import os
import random
import re
import subprocess
import time
from types import SimpleNamespace

import pytest

from harness.cluster import Cluster
from harness.doors import S3, Http
from harness.mount import Mount, environment, eventually_refused, is_mounted
from harness.server import binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually

CHANGES = int(os.environ.get("CAIRN_TEST_CLUSTER_MOUNT_CHANGES", "200"))


def test_a_mount_and_a_gateway_show_the_same(monkeypatch):
    with Cluster(chunkservers=3, gateways=1) as cluster:
        http = Http(cluster["g1"].http)
        assert http.request("PUT", "/storage/bucket").status in (200, 201, 204)
        directory = cluster.work / "mounted-node"
        cluster.command("cluster", "join", directory, cluster.token("gateway"))
        big = os.urandom(9 << 20)
        with Mount(None, cluster.work / "mnt", bucket="bucket", node=directory) as mount:
            assert http.request("PUT", "/storage/bucket/a", b"from the gateway").status < 300
            assert (mount.root / "a").read_bytes() == b"from the gateway"
            (mount.root / "big").write_bytes(big)
            assert http.request("GET", "/storage/bucket/big").body == big
            assert http.request("PUT", "/storage/bucket/a", b"again").status < 300
            assert (mount.root / "a").read_bytes() == b"again"
            os.rename(mount.root / "big", mount.root / "renamed")
            assert (mount.root / "renamed").read_bytes() == big
        ends_with_its_user(cluster, directory)


def ends_with_its_user(cluster, directory):
    """A mount that is a gateway by itself: no door looks after its credentials."""
    made = json.loads(cairn(cluster, "key", "create", "dora", "--json"))
    cairn(cluster, "bucket", "set", "bucket", "--grant", "dora:read")
    path, key = cluster.work / "doras", (made["id"], made["secret"])
    with Mount(None, path, bucket="bucket", key=key, node=directory) as mount:
        assert (mount.root / "a").read_bytes() == b"again"
        cairn(cluster, "user", "disable", "dora")
        assert mount.process.wait(timeout=PATIENCE_SECONDS) == 1
        assert "have been revoked" in mount.tail() and not is_mounted(path)
    command = [binary(), "mount", "--node", directory, path]
    run = subprocess.run(command, env=environment(*key), capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and "credentials" in run.stderr, run.stderr


@pytest.fixture(scope="module")
def cluster():
    with Cluster(chunkservers=3, gateways=2) as running:
        yield running
        assert running.misbehaviour() == []


@pytest.fixture
def bucket(cluster, request):
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[5:60].strip("-")
    Http(cluster["g1"].http).create_bucket(name)
    return name


def at(cluster, *gateways):
    """What a mount is told to mount: one or more gateways."""
    return SimpleNamespace(http=",".join(cluster[name].http for name in gateways))


def cairn(cluster, *args):
    command = [binary(), *args, "--server", cluster["g1"].http]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True,
                         timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, run.stderr
    return run.stdout


def body_of(reply):
    assert reply.status in (200, 404), reply
    return reply.body if reply.status == 200 else None


def read(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def test_mounts_at_two_gateways_and_other_doors_show_the_same(cluster, bucket):
    work = scratch("cluster-mounts")
    http, s3 = Http(cluster["g2"].http), S3(cluster["g1"].s3)
    rng = random.Random(7)
    with Mount(at(cluster, "g1"), work / "one", bucket=bucket) as one, \
            Mount(at(cluster, "g2"), work / "two", bucket=bucket) as two:  # fmt: skip
        roots, model = (one.root, two.root), {}
        for number in range(CHANGES):
            where, key = rng.choice([*roots, http, s3]), f"key{rng.randrange(5)}"
            if where in roots and key in model and rng.random() < 0.3:
                (where / key).unlink()
                del model[key]
            else:
                model[key] = rng.randbytes(rng.choice([1, 300, 20_000, 200_000]))
                if where in roots:
                    (where / key).write_bytes(model[key])
                else:
                    assert where.object("PUT", bucket, key, body=model[key]).status < 300
            shown = f"change {number} of {key}"
            for root in roots:
                for looked in {key, f"key{rng.randrange(5)}"}:
                    assert read(root / looked) == model.get(looked), f"{shown}, {looked}: {root}"
            for door in (http, s3):
                assert body_of(door.object("GET", bucket, key)) == model.get(key), shown
        # Blocks, many, of a mount and of a door.
        big = os.urandom(9 << 20)
        (one.root / "big").write_bytes(big)
        assert s3.object("GET", bucket, "big").body == big
        assert (two.root / "big").read_bytes() == big
        os.rename(two.root / "big", two.root / "renamed")
        assert read(one.root / "big") is None and (one.root / "renamed").read_bytes() == big


def test_wrong_credentials_are_refused_with_a_clear_message(cluster):
    path = scratch("refused") / "mnt"
    path.mkdir()
    command = [binary(), "mount", cluster["g1"].http, str(path)]
    for key in (("CKNOBODYKNOWSIT00000", "x" * 40), None):
        env = environment(*key) if key else {**os.environ, "CAIRN_KEY": "", "CAIRN_SECRET": ""}
        run = subprocess.run(command, env=env, capture_output=True, text=True,
                             timeout=PATIENCE_SECONDS)
        assert run.returncode != 0
        assert "CAIRN_KEY and CAIRN_SECRET" in run.stderr, run.stderr
    assert not os.path.ismount(path)


def test_a_user_sees_and_changes_what_its_rights_allow(cluster, bucket):
    Http(cluster["g1"].http).object("PUT", bucket, "file", b"before")
    made = json.loads(cairn(cluster, "key", "create", "alice", "--json"))
    key = made.get("id") or made.get("key") or made.get("access_key")
    work = scratch("cluster-rights")
    mount = Mount(at(cluster, "g2"), work / "mnt", key=(key, made["secret"])).start()
    path = mount.path / bucket
    assert os.listdir(mount.path) == []
    for refused in (lambda: os.listdir(path), lambda: (path / "file").read_bytes(),
                    lambda: (path / "new").write_bytes(b"x")):  # fmt: skip
        with pytest.raises(OSError) as caught:
            refused()
        assert caught.value.errno in (errno.EACCES, errno.EPERM), caught.value
    cairn(cluster, "bucket", "set", bucket, "--grant", "alice:read")
    assert os.listdir(mount.path) == [bucket] and (path / "file").read_bytes() == b"before"
    with pytest.raises(OSError):
        (path / "file").write_bytes(b"x")
    # Taken back, at the other gateway: from the kernel's memory too.
    cairn(cluster, "bucket", "set", bucket, "--grant", "alice:none")
    with pytest.raises(OSError):
        (path / "file").read_bytes()
    assert body_of(Http(cluster["g1"].http).object("GET", bucket, "file")) == b"before"
    # Without its key it gets nothing any more.
    cairn(cluster, "bucket", "set", bucket, "--grant", "alice:read")
    assert (path / "file").read_bytes() == b"before"
    cairn(cluster, "key", "rm", key)
    eventually_refused(path)
    mount.kill()
    mount.stop()


class Writer(multiprocessing.Process):
    """Writes files, syncs them, and tells of each that it was told is durable. In a process of its
    own: one that starts another while it has a file open would wait for itself."""

    def __init__(self, root, prefix="file"):
        super().__init__()
        self.root, self.prefix = root, prefix
        self.ended, self.count = multiprocessing.Event(), multiprocessing.Value("i", 0)
        self.result = multiprocessing.SimpleQueue()

    def run(self):
        rng, model = random.Random(1), {}
        try:
            for number in itertools.count():
                if self.ended.is_set():
                    break
                data = rng.randbytes(rng.choice([10, 5_000, 100_000, 1_000_000]))
                name = f"{self.prefix}{number % 40}"
                fd = os.open(self.root / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                try:
                    os.write(fd, data)
                    os.fsync(fd)
                finally:
                    os.close(fd)
                model[name] = data
                # Renamed and not synced: done all the same.
                os.rename(self.root / name, self.root / f"{name}.done")
                model[f"{name}.done"] = model.pop(name)
                self.count.value = number
        except OSError as error:
            model = repr(error)
        self.result.put(model)

    def goes_on(self):
        """Waits until it has written some more."""
        before = self.count.value
        eventually(lambda: self.count.value >= before + 5, "it writes on")

    def stop(self):
        self.ended.set()
        model = self.result.get()
        self.join()
        assert isinstance(model, dict), model
        return model


@pytest.mark.parametrize("killed", ["gateway", "master", "chunkserver"])
def test_a_mount_goes_on_when_a_node_was_killed(cluster, bucket, killed):
    name = {"gateway": "g1", "master": "m1", "chunkserver": "c1"}[killed]
    work = scratch(f"killed-{killed}")
    with Mount(at(cluster, "g1"), work / "mnt", bucket=bucket) as mount:
        writer = Writer(mount.root)
        writer.start()
        for _ in range(2):
            writer.goes_on()
            cluster.kill(name)
            time.sleep(1)
            cluster.start(name)
        writer.goes_on()
        model = writer.stop()
        cluster.wait_whole()
        http = Http(cluster["g2"].http)
        for key, data in model.items():
            assert (mount.root / key).read_bytes() == data, key
            assert body_of(http.object("GET", bucket, key)) == data, key
        assert sorted(os.listdir(mount.root)) == sorted(model)
        assert "LOST" not in mount.tail(1 << 20)


def test_a_mount_uses_another_gateway_when_one_is_gone(cluster, bucket):
    work = scratch("two-gateways")
    with Mount(at(cluster, "g1", "g2"), work / "mnt", bucket=bucket) as mount:
        writer = Writer(mount.root)
        writer.start()
        writer.goes_on()
        cluster.kill("g1")
        try:
            writer.goes_on()
            model = writer.stop()
            http = Http(cluster["g2"].http)
            for key, data in model.items():
                assert (mount.root / key).read_bytes() == data, key
                assert body_of(http.object("GET", bucket, key)) == data, key
        finally:
            cluster.start("g1")


def test_nothing_is_left_of_mounts_that_were_killed(cluster, bucket):
    """Blocks that were written and not published go when the session has ended; so no block is
    left when all that was published is deleted."""
    work = scratch("left-over")
    mounts = [Mount(at(cluster, "g1"), work / f"mnt{n}", bucket=bucket).start() for n in range(3)]
    writers = [Writer(mount.root, f"by{number}-") for number, mount in enumerate(mounts)]
    for writer in writers:
        writer.start()
    for number, (mount, writer) in enumerate(zip(mounts, writers)):
        writer.goes_on()
        big = os.open(mount.root / f"big{number}", os.O_WRONLY | os.O_CREAT)
        for _ in range(24):
            os.write(big, os.urandom(1 << 20))
        mount.kill()
        with contextlib.suppress(OSError):
            os.close(big)
        writer.result.get()
        writer.join()
        subprocess.run(["umount", "-l", str(mount.path)], check=True)
    http = Http(cluster["g1"].http)
    for line in cairn(cluster, "bucket", "ls", "--json").splitlines():
        name = json.loads(line)["name"]
        for key in http.list(name):
            assert http.object("DELETE", name, key).status < 300

    def blocks():
        nodes = cluster.told()["nodes"]
        return sum(node.get("blocks") or 0 for node in nodes)

    eventually(lambda: blocks() == 0, "no block is left")
