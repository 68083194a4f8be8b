"""Quotas of buckets: what `df` shows of them, and what a file system answers that has used them up."""

import errno
import json
import os
import urllib.error

import pytest

from harness.doors import S3
from harness.mount import Door, Mount
from harness.server import scratch
from harness.wait import eventually

MIB = 1 << 20


def refused(call):
    with pytest.raises(OSError) as error:
        call()
    assert error.value.errno == errno.ENOSPC, error.value


def synced(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        try:
            os.close(fd)
        except OSError:
            pass  # says again what fsync said


def test_a_quota_holds_at_every_door(store, mounts):
    one, two, door = mounts
    s3, bucket = S3(store.s3), one.name

    def quota(bytes=0, files=0):
        change = {"quota_bytes": bytes, "quota_objects": files}
        door.ask("PATCH", "", json.dumps(change).encode())

    before = os.statvfs(one)
    try:
        quota(10 * MIB, 5)
        for root in (one, two):
            shown = os.statvfs(root)
            assert shown.f_blocks * shown.f_frsize == 10 * MIB
            assert shown.f_bavail == shown.f_blocks and shown.f_files == shown.f_ffree == 5
        above = os.statvfs(one.parent)
        assert above.f_blocks > shown.f_blocks
        synced(one / "a", b"a" * (6 * MIB))
        shown = os.statvfs(two)
        assert shown.f_bavail * shown.f_frsize == 4 * MIB and shown.f_ffree == 4
        # Beyond the quota: refused at the latest by who asks whether it is durable.
        refused(lambda: synced(two / "b", b"b" * (5 * MIB)))
        with pytest.raises(urllib.error.HTTPError) as error:
            door.put("c", b"c" * (5 * MIB))
        assert error.value.code == 507
        assert s3.object("PUT", bucket, "d", body=b"d" * (5 * MIB)).status == 507
        assert (one / "a").read_bytes() == b"a" * (6 * MIB)
        # What was refused is not in the way, and what is deleted makes room for all.
        assert door.get("c") is None
        (one / "a").unlink()
        synced(two / "b", b"b" * (5 * MIB))
        assert s3.object("PUT", bucket, "d", body=b"d" * (5 * MIB)).status == 200
        refused(lambda: os.truncate(one / "b", 5 * MIB + 1))
        for number in range(3):
            (one / f"empty-{number}").touch()
        refused(lambda: (two / "one-more").touch())
        refused(lambda: (two / "link").symlink_to("b"))
        (two / "directory").mkdir()
        os.rename(two / "b", two / "directory/b")
        assert door.get("directory/b") == b"b" * (5 * MIB)
    finally:
        quota()
    synced(one / "more", b"m" * (12 * MIB))
    assert os.statvfs(one).f_blocks == pytest.approx(before.f_blocks, rel=0.2)


def test_why_bytes_are_not_written_is_heard_by_all_until_they_are(store):
    """What failed unheard, since nobody asked, is tried again by who does."""
    door = Door(store, "tight")
    door.ask("PUT", "")
    data = os.urandom(20 * MIB)

    def quota(bytes):
        door.ask("PATCH", "", json.dumps({"quota_bytes": bytes}).encode())

    quota(5 * MIB)
    with Mount(store, scratch("tight") / "mnt", bucket="tight") as mount:
        path = mount.root / "file"
        fds = [os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2)]
        assert os.pwrite(fds[0], data, 0) == len(data)
        # In the background, whole blocks.
        eventually(lambda: "not written back" in mount.tail(), "the log says so")
        quota(0)
        os.fsync(fds[0])
        os.fsync(fds[1])
        assert door.get("file") == data
        quota(5 * MIB)
        assert os.pwrite(fds[0], data, len(data)) == len(data)
        for _ in range(2):
            for fd in fds:
                refused(lambda: os.fsync(fd))
        quota(0)
        for fd in fds:
            os.fsync(fd)
            os.close(fd)
        assert door.get("file") == data + data
