"""Volumes made, mounted, filled and deleted, by calls of the interface."""

import os
import signal
import socket
import subprocess

import pytest

from harness.csi import Driver, mounts_below
from harness.doors import Http
from harness.server import Server, scratch
from harness.wait import eventually

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


def status(server, bucket):
    return Http(server.http).request("GET", f"/storage/{bucket}").status


def test_a_volume_has_the_bytes_of_its_bucket(server, driver):
    http = Http(server.http)
    with Volume(driver, "bytes") as volume:
        for _ in range(2):
            one, two = volume.publish("one"), volume.publish("two", readonly=True)
        (one / "directory").mkdir()
        (one / "directory/file").write_bytes(b"by a pod")
        assert (two / "directory/file").read_bytes() == b"by a pod"
        with pytest.raises(OSError):
            (two / "other").write_bytes(b"")
        # Nothing of other buckets is there, whatever path is tried.
        assert sorted(os.listdir(one / "..")) == sorted(os.listdir(driver.work))
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
        found = subprocess.run(
            ["pgrep", "-P", str(driver.process.pid), "-f", f"mount.*{volume.id}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        os.kill(int(found.stdout), signal.SIGKILL)

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
