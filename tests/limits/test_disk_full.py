"""A disk that fills up: clean errors, reads and deletes go on, writes resume, nothing is lost."""

import os
import shutil
import subprocess
import time

import pytest

from harness.doors import S3, Http
from harness.server import Server, binary, scratch
from harness.wait import PATIENCE_SECONDS
from kill.model import content

MIB = 1 << 20
DISK_MIB = 768
# What the store and the file system keep for themselves, at most: the log, reserves for deletes
# and compaction, and what is left free for metadata.
RESERVED_MIB = 200


@pytest.fixture
def small_disk():
    work = scratch("disk")
    image, mount = work / "image", work / "mount"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(DISK_MIB * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True, text=True)
    if mounted.returncode != 0:
        image.unlink()
        pytest.skip(f"a loop device cannot be mounted here: {mounted.stderr.strip()}")
    yield mount
    subprocess.run(["umount", mount], check=True)
    shutil.rmtree(work)


def full(reply):
    """Whether a reply says, as it should, that the disk is full."""
    if reply.status in (200, 201, 204):
        return False
    assert reply.status == 507, reply
    if reply.body.startswith(b"<"):
        assert reply.code() == "InsufficientStorage", reply
    return True


def fill(server, acknowledged, size, name):
    """Writes through both doors until each has been refused three times in a row."""
    http, s3 = Http(server.http), S3(server.s3)
    refusals, number = 0, 0
    while refusals < 6:
        key = f"{name}/{number}"
        door = (http, s3)[number % 2]
        number += 1
        body = content(key, 1, size)
        reply = door.object("PUT", "full", key, body=body)
        if full(reply):
            refusals += 1
        else:
            refusals = 0
            acknowledged[key] = body
        assert number < 1_000_000 // max(1, size // 1000), "the disk never filled"


def occupy(disk, leave):
    """Takes what is free of the disk but `leave` bytes, as another program might."""
    found = os.statvfs(disk)
    with open(disk / "filler", "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, found.f_bavail * found.f_frsize - leave)


def check(server, acknowledged):
    """Everything acknowledged is there, and nothing that was refused."""
    http, s3 = Http(server.http), S3(server.s3)
    for number, (key, body) in enumerate(sorted(acknowledged.items())):
        reply = (http, s3)[number % 2].object("GET", "full", key)
        assert reply.status == 200 and reply.body == body, (key, reply)
    assert sorted(http.list("full")) == sorted(acknowledged)


def delete(server, acknowledged, some):
    doors = Http(server.http), S3(server.s3)
    for number, key in enumerate(sorted(acknowledged)):
        if some(number):
            reply = doors[number % 2].object("DELETE", "full", key)
            assert reply.status in (200, 204), (key, reply)
            del acknowledged[key]


def writes_resume(server, acknowledged, key, size):
    http, began = Http(server.http), time.monotonic()
    body = content(key, 2, size)
    while full(reply := http.object("PUT", "full", key, body)):
        assert time.monotonic() - began < PATIENCE_SECONDS, f"still full: {reply}"
        time.sleep(0.2)
    acknowledged[key] = body
    return time.monotonic() - began


def test_a_disk_fills_up_and_is_cleared(small_disk, capsys):
    acknowledged = {}
    with Server(small_disk / "data", log=small_disk.parent / "log") as server:
        S3(server.s3).create_bucket("full")
        fill(server, acknowledged, MIB, "large")
        stored = len(acknowledged)
        occupy(small_disk, leave=24 * MIB)
        fill(server, acknowledged, 50_000, "medium")
        fill(server, acknowledged, 5000, "small")
        assert stored >= DISK_MIB - RESERVED_MIB, f"full after only {stored} MiB of {DISK_MIB}"
        check(server, acknowledged)
        assert Http(server.http).request("GET", "/healthz").status == 200

        server.restart()
        check(server, acknowledged)

        delete(server, acknowledged, lambda number: number % 2 == 0)
        (small_disk / "filler").unlink()
        waited = writes_resume(server, acknowledged, "again", 20 * MIB)
        check(server, acknowledged)

        fill(server, acknowledged, 4 * MIB, "second")
        delete(server, acknowledged, lambda number: True)
        waited_again = writes_resume(server, acknowledged, "last", 200 * MIB)
        server.restart()
        check(server, acknowledged)
        server.kill()
        code, output = server.fsck()
        assert code == 0, output
    with capsys.disabled():
        print(f"\ndisk full: {stored} MiB of {DISK_MIB} stored, writes resumed after deletes in "
              f"{waited:.1f} s, {waited_again:.1f} s")  # fmt: skip


def test_a_disk_that_is_too_small(small_disk):
    """Refused in one line, also when that line cannot be written; it starts once there is room."""
    occupy(small_disk, leave=10 * MIB)
    command = [binary(), "server", small_disk / "data", "--s3", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1 and "make room" in done.stderr.strip().splitlines()[-1], done
    with open("/dev/full", "w") as full_device:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=full_device,
                              timeout=PATIENCE_SECONDS)  # fmt: skip
    assert done.returncode == 1, done
    (small_disk / "filler").unlink()
    with Server(small_disk / "data", log=small_disk.parent / "log") as server:
        S3(server.s3).create_bucket("bucket")


def test_uploads_and_appends_on_a_full_disk(small_disk):
    """The log of the server is on the full disk here, and cannot be written either."""
    acknowledged = {}
    with Server(small_disk / "data") as server:
        s3, http = S3(server.s3), Http(server.http)
        s3.create_bucket("full")
        upload = s3.create_upload("full", "parts")
        part = content("parts", 1, 5 * MIB)
        etags = [s3.upload_part("full", "parts", upload, 1, part)]
        acknowledged["appended"] = content("appended", 1, 1000)
        http.object("PUT", "full", "appended", acknowledged["appended"])
        fill(server, acknowledged, MIB, "large")
        query = {"partNumber": "2", "uploadId": upload}
        assert full(s3.object("PUT", "full", "parts", query, content("parts", 2, 40 * MIB)))
        assert full(http.object("POST", "full", "appended", content("appended", 2, 4 * MIB)))
        assert full(http.object("PUT", "full", "large/0", content("large/0", 2, 40 * MIB)))
        with open(small_disk / "filler", "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                pass  # not a byte is left, for the log neither
        http.object("PUT", "full", "large/0", content("large/0", 3, 40 * MIB))
        check(server, acknowledged)
        (small_disk / "filler").unlink()
        reply = s3.complete_upload("full", "parts", upload, etags)
        if not full(reply):  # it moves no bytes, so it may well succeed
            acknowledged["parts"] = part
        check(server, acknowledged)
