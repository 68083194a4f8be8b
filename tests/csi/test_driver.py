"""Volumes made, mounted, filled and deleted, by calls of the interface."""

import json
import os
import signal
import socket
import subprocess

import pytest

from harness.csi import Driver, mounts_below
from harness.doors import Http
from harness.server import Server, scratch
from harness.stop import stopped
from harness.wait import PATIENCE_SECONDS, eventually

MIB = 1 << 20


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.fixture
def driver(server):
    work = scratch("csi")
    with Driver(server, work) as running:
        yield running
        assert mounts_below(work) == [], "the test left mounts behind"


class Volume:
    """A volume that is made, staged and published: `with Volume(driver, name) as path:`."""

    def __init__(self, driver, name, mode="MULTI_NODE_MULTI_WRITER", **fields):
        self.client, self.work = driver.client, driver.work
        self.capability = self.client.capability(mode)
        self.id = self.client.create(name, **fields).volume_id
        self.staging = self.work / f"staging-{name}"
        self.staging.mkdir()

    def fields(self, **more):
        more["volume_id"] = self.id
        return more

    def stage(self):
        path = str(self.staging)
        capability = self.capability
        self.client.NodeStageVolume(
            **self.fields(staging_target_path=path, volume_capability=capability)
        )

    def unstage(self):
        self.client.NodeUnstageVolume(**self.fields(staging_target_path=str(self.staging)))

    def publish(self, name, readonly=False):
        target = self.work / name
        self.client.NodePublishVolume(
            **self.fields(
                staging_target_path=str(self.staging),
                target_path=str(target),
                volume_capability=self.capability,
                readonly=readonly,
            )
        )
        return target

    def unpublish(self, target):
        self.client.NodeUnpublishVolume(**self.fields(target_path=str(target)))

    def delete(self):
        self.client.DeleteVolume(volume_id=self.id)

    def __enter__(self):
        self.stage()
        return self

    def __exit__(self, *_):
        self.unstage()
        self.delete()


class Mount:
    """The process that serves a volume on this machine."""

    def __init__(self, driver, volume):
        command = ["pgrep", "-P", str(driver.process.pid), "-f", f"mount.*{volume.id}"]
        self.pid = int(subprocess.run(command, capture_output=True, check=True).stdout)

    def send_signal(self, number):
        os.kill(self.pid, number)


def status(server, bucket):
    return Http(server.http).request("GET", f"/storage/{bucket}").status


def test_a_volume_has_the_bytes_of_its_bucket(server, driver):
    http = Http(server.http)
    http.create_bucket("others")
    with Volume(driver, "bytes") as volume:
        for _ in range(2):
            one, two = volume.publish("one"), volume.publish("two", readonly=True)
        (one / "directory").mkdir()
        (one / "directory/file").write_bytes(b"by a pod")
        assert (two / "directory/file").read_bytes() == b"by a pod"
        with pytest.raises(OSError):
            (two / "other").write_bytes(b"")
        # Only what is in its bucket is there, and no other bucket.
        assert os.listdir(one) == os.listdir(volume.staging) == ["directory"]
        assert {"others", volume.id} <= set(os.listdir(driver.mounts / volume.id))
        eventually(
            lambda: http.object("GET", volume.id, "directory/file").body == b"by a pod",
            "what was written at another door",
        )
        usage = driver.client.NodeGetVolumeStats(volume_id=volume.id, volume_path=str(one)).usage
        assert [one.unit for one in usage] == [1, 2] and usage[0].total > 0
        for target in (one, two, two):
            volume.unpublish(target)
        assert not one.exists() and not two.exists()
    assert status(server, volume.id) == 404
    assert not (driver.mounts / volume.id).exists()


def test_a_quota_is_the_capacity(server, driver):
    capacity = {"capacity_range": {"required_bytes": 4 * MIB}}
    with Volume(driver, "quota", **capacity) as volume:
        target = volume.publish("quota")
        with pytest.raises(OSError):
            with open(target / "file", "wb") as file:
                for _ in range(16):
                    file.write(bytes(MIB))
                    os.fsync(file.fileno())
        (target / "file").unlink()
        usage = driver.client.NodeGetVolumeStats(volume_id=volume.id, volume_path=str(target)).usage
        assert usage[0].total == 4 * MIB
        larger = {"required_bytes": 64 * MIB}
        grown = driver.client.ControllerExpandVolume(volume_id=volume.id, capacity_range=larger)
        assert (grown.capacity_bytes, grown.node_expansion_required) == (64 * MIB, False)

        def fits():
            try:
                with open(target / "file", "wb") as file:
                    file.write(bytes(16 * MIB))
                    os.fsync(file.fileno())
                return True
            except OSError:
                return False

        eventually(fits, "room for more")
        volume.unpublish(target)


def test_a_volume_is_deleted_with_all_that_is_in_it(server, driver):
    """Also with what has no key: links, pipes, sockets, names that are too long."""
    with Volume(driver, "full") as volume:
        target = volume.publish("full")
        for number in range(40):
            (target / f"file{number}").write_bytes(b"x")
        deep = target / "a/b/c"
        deep.mkdir(parents=True)
        (deep / "link").symlink_to("/etc/passwd")
        (target / "dangling").symlink_to("nowhere")
        os.mkfifo(deep / "pipe")
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(deep / "socket"))
        long = target
        for _ in range(6):
            long = long / ("d" * 250)
            long.mkdir()
        (long / "file").write_bytes(b"y")
        (target / "empty").mkdir()
        volume.unpublish(target)
    assert status(server, volume.id) == 404


def test_a_volume_that_is_kept_stays(server, driver):
    retain = {"parameters": {"onDelete": "retain"}}
    with Volume(driver, "kept", **retain) as volume:
        target = volume.publish("kept")
        (target / "file").write_bytes(b"kept")
        volume.unpublish(target)
    assert volume.id == "csi-kept--keep"
    assert Http(server.http).object("GET", volume.id, "file").body == b"kept"
    assert driver.client.code("CreateVolume", name="kept", volume_capabilities=[
        driver.client.capability()]) == "ALREADY_EXISTS"  # fmt: skip


def test_a_bucket_of_others_is_mounted_and_never_deleted(server, driver):
    http = Http(server.http)
    assert http.request("PUT", "/storage/photos").status == 201
    assert http.object("PUT", "photos", "cat", body=b"cat").status == 201
    client, staging = driver.client, driver.work / "staging"
    staging.mkdir()
    place = {"volume_id": "photos", "staging_target_path": str(staging)}
    client.NodeStageVolume(**place, volume_capability=client.capability("MULTI_NODE_READER_ONLY"))
    assert (staging / "cat").read_bytes() == b"cat"
    with pytest.raises(OSError):
        (staging / "dog").write_bytes(b"")
    client.NodeUnstageVolume(**place)
    client.DeleteVolume(volume_id="photos")
    assert http.object("GET", "photos", "cat").body == b"cat"
    listed = [entry.volume.volume_id for entry in client.ListVolumes().entries]
    assert "photos" not in listed


def test_a_mount_whose_process_was_killed_is_made_again(driver):
    with Volume(driver, "killed") as volume:
        before = volume.publish("before")
        (before / "file").write_bytes(b"x")
        os.sync()
        Mount(driver, volume).send_signal(signal.SIGKILL)

        def dead():
            try:
                os.listdir(before)
            except OSError:
                return True
            return False

        eventually(dead, "the death of the mount")
        # The pods that use it have to be started again; a new one has it at once.
        after = volume.publish("after")
        assert (after / "file").read_bytes() == b"x"
        again = volume.publish("before")
        assert (again / "file").read_bytes() == b"x"
        for target in (before, after):
            volume.unpublish(target)


def test_a_driver_that_is_started_again_goes_on(driver):
    with Volume(driver, "again") as volume:
        target = volume.publish("again")
        (target / "file").write_bytes(b"x")
        driver.process.send_signal(signal.SIGKILL)
        driver.process.wait()
        # Its mounts are processes of their own.
        assert (target / "file").read_bytes() == b"x"
        driver.start()
        volume.client = driver.client
        volume.stage()
        assert (volume.publish("again") / "file").read_bytes() == b"x"
        volume.unpublish(target)


def test_a_volume_that_does_not_answer_holds_up_only_its_own_calls():
    """The kernel waits for a process that is stopped as it does for a server of NFS that is away."""
    work = scratch("csi")
    with Server() as server, Driver(server, work) as driver:
        volume = Volume(driver, "away")
        volume.stage()
        targets = [volume.publish("one"), volume.publish("two")]
        waiting = []

        def waits():
            waiting.append(subprocess.Popen(["stat", targets[0]], stdout=subprocess.DEVNULL))
            try:
                waiting[-1].wait(5)
            except subprocess.TimeoutExpired:
                return True
            return False

        with stopped(Mount(driver, volume)):
            eventually(waits, "the kernel knows nothing any more, and waits")
            calls = [
                driver.client.begin("NodeGetVolumeStats", volume_id=volume.id, volume_path=str(target))
                for target in targets
                for _ in range(os.cpu_count() + 8)
            ]
            # One for each of two pods waits. The others are told to come again.
            eventually(lambda: sum(call.done() for call in calls) >= len(calls) - 2)
            assert driver.client.Probe().ready.value
            missing = {"volume_id": "csi-b", "volume_path": "/nonexistent/b"}
            assert driver.client.code("NodeGetVolumeStats", **missing) == "NOT_FOUND"
            pending = [call for call in calls if not call.done()]
            assert len(pending) == 2
            assert {call.code().name for call in calls if call not in pending} == {"ABORTED"}
        for process in waiting:
            process.wait(PATIENCE_SECONDS)
        eventually(lambda: all(call.done() for call in calls), "calls end when it answers again")


def test_nodes_act_as_a_user_with_rights_in_volumes_only(server):
    root = Http(server.http)
    credentials = ("NODES", "secret-of-the-nodes-0123456789")
    key = json.dumps({"user": "nodes", "id": credentials[0], "secret": credentials[1]})
    headers = {"Content-Type": "application/json"}
    assert root.request("POST", "/admin/keys", key.encode(), headers).status == 201
    root.create_bucket("private")
    one, other = scratch("csi"), scratch("csi")
    maker = Driver(server, one, "--part", "controller", "--mount-user", "nodes")
    mounter = Driver(server, other, "--part", "node", credentials=credentials)
    with maker as controller, mounter as node:
        retain = {"parameters": {"onDelete": "retain"}}
        volume = Volume(controller, "granted", **retain)
        # Nobody else made a right for the nodes.
        controller.client.create("granted", **retain)
        grants = root.request("GET", f"/storage/{volume.id}").json()["grants"]
        assert [grant["user"] for grant in grants] == ["nodes"]
        volume.client = node.client
        volume.stage()
        target = volume.publish("granted")
        (target / "file").write_bytes(b"by a node")
        # As kubelet does it for fsGroup.
        os.chown(target, 0, 4321)
        assert os.stat(target).st_gid == 4321
        usage = node.client.NodeGetVolumeStats(volume_id=volume.id, volume_path=str(target)).usage
        assert usage[0].total > 0
        place = {"volume_id": "private", "staging_target_path": str(one / "staging-granted")}
        wanted = node.client.capability()
        volume.unpublish(target)
        volume.unstage()
        assert node.client.code("NodeStageVolume", **place, volume_capability=wanted) == "NOT_FOUND"
        nodes = Http(server.http, credentials)
        assert nodes.object("GET", volume.id, "file").body == b"by a node"
        volume.client = controller.client
        volume.delete()
        # The bucket stays, and nodes have no rights in it any more.
        assert nodes.object("GET", volume.id, "file").status == 403
        assert root.object("GET", volume.id, "file").body == b"by a node"
        assert mounts_below(one) == [] and mounts_below(other) == []


def test_what_makes_no_sense_changes_nothing(driver):
    client, work = driver.client, driver.work
    capability = client.capability()
    bad = {
        "relative": "INVALID_ARGUMENT",
        "/": "INVALID_ARGUMENT",
        f"{work}/../other": "INVALID_ARGUMENT",
        "/nonexistent/staging": "NOT_FOUND",
        str(work / "missing"): "INVALID_ARGUMENT",
    }
    for path, code in bad.items():
        stage = {"volume_id": "csi-a", "staging_target_path": path, "volume_capability": capability}
        assert client.code("NodeStageVolume", **stage) == code, path
    (work / "link").symlink_to("/etc")
    place = {"volume_id": "csi-a", "target_path": str(work / "link")}
    assert client.code("NodeUnpublishVolume", **place) == "INVALID_ARGUMENT"
    for volume in ("../../etc", "/etc", "a/b", "UPPER"):
        stage = {"volume_id": volume, "staging_target_path": str(work), "volume_capability": capability}
        assert client.code("NodeStageVolume", **stage) == "NOT_FOUND", volume
    # Something else is mounted there, and stays; a directory with files stays, too.
    assert client.code("NodeUnpublishVolume", volume_id="csi-a", target_path="/proc") == "FAILED_PRECONDITION"
    (work / "full").mkdir()
    (work / "full/file").write_bytes(b"x")
    place = {"volume_id": "csi-a", "target_path": str(work / "full")}
    assert client.code("NodeUnpublishVolume", **place) == "INTERNAL"
    assert (work / "full/file").exists()
    (work / "staging").mkdir()
    for flags in (["suid"], ["allow_other"], ["context=x"]):
        wanted = client.capability(flags=flags)
        stage = {"volume_id": "csi-a", "staging_target_path": str(work / "staging"), "volume_capability": wanted}
        assert client.code("NodeStageVolume", **stage) == "INVALID_ARGUMENT", flags
    stage = {"volume_id": "csi-missing", "staging_target_path": str(work / "staging")}
    assert client.code("NodeStageVolume", **stage, volume_capability=capability) == "NOT_FOUND"
    assert client.code("CreateSnapshot", name="a", source_volume_id="b") == "UNIMPLEMENTED"


def test_a_socket_is_private_and_is_removed(server):
    work = scratch("csi")
    with Driver(server, work) as driver:
        assert oct(driver.socket.stat().st_mode & 0o777) == "0o600"
        second = Driver(server, work)
        with pytest.raises(AssertionError, match="another process serves there"):
            second.start()
        second.log.close()
        driver.stop()
        assert not driver.socket.exists()
