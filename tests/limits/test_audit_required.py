"""With --audit-required nothing is changed that cannot be recorded, at any door; deletions by root and
reads go on; and it goes on when there is room again."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import time

import pytest

from harness.doors import S3, Http
from harness.mount import Mount
from harness.server import Server, scratch
from harness.wait import eventually
from nfs import rpc
from nfs.conftest import export_all

MIB = 1 << 20
# The file keeps room for 16 MiB behind its end.
DISK_MIB = 40
EVE = ("EVEKEY0000001", "secret-of-eve-0123456789")


@pytest.fixture
def small_disk():
    work = scratch("audit")
    place = work / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", place]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)
    shutil.rmtree(work)


def fill(path):
    """Takes all that is left of a disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(file, b"x" * 4096):
            pass
    os.close(file)


def recorded(log):
    """The keys of changes that were done, as they are recorded."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [one.get("key") or one.get("resource") for one in lines if one["outcome"] == "done"]


def test_nothing_is_changed_that_is_not_recorded(small_disk):
    log, filler = small_disk / "audit.jsonl", small_disk / "filler"
    args = ["--audit-log", str(log), "--audit-required", "--nfs", "127.0.0.1:0"]
    with Server(args=args) as server:
        root, s3, done = Http(server.http), S3(server.s3), []
        root.create_bucket("bbb", "public")
        body = json.dumps({"user": "eve", "id": EVE[0], "secret": EVE[1]}).encode()
        made = root.request("POST", "/admin/keys", body, {"Content-Type": "application/json"})
        assert made.status == 201, made
        eve = Http(server.http, EVE)
        eve.create_bucket("eves")
        export_all(server.http, "bbb")
        nfs = rpc.Client(server.nfs)
        top = nfs.mount("/bbb")
        assert nfs.ask(rpc.mkdir(top, b"by-nfs"))[0] == 0
        with Mount(server, scratch("mount") / "m", bucket="bbb") as mount:
            mounted = mount.root

            def put(key, door=root):
                reply = door.object("PUT", "bbb", key, body=b"x" * 100)
                if reply.status in (200, 201, 204):
                    done.append(key)
                return reply

            assert put("first").status == 201 and put("by-s3", s3).status == 200
            (mounted / "by-mount").write_bytes(b"x")
            assert eve.object("PUT", "eves", "mine", body=b"x").status == 201
            fill(filler)
            number = 0
            while put(f"n-{number}").status in (201, 204):
                number += 1
                assert number < 10_000
                time.sleep(0.001)
            # Every door says why, and none does it.
            reply = put("refused")
            assert reply.status == 507 and b"audit" in reply.body, reply
            assert put("refused", s3).status == 507
            assert eve.object("DELETE", "eves", "mine").status == 507
            assert eve.request("PUT", "/storage/eves-2").status == 507
            with pytest.raises(OSError) as refused:
                (mounted / "refused").mkdir()
            assert refused.value.errno == errno.ENOSPC, refused.value
            with pytest.raises(OSError) as refused:
                fd = os.open(mounted / "refused", os.O_WRONLY | os.O_CREAT)
                os.write(fd, b"x")
                os.fsync(fd)
            assert refused.value.errno == errno.ENOSPC, refused.value
            assert nfs.ask(rpc.mkdir(top, b"refused"))[0] == errno.ENOSPC
            assert root.object("GET", "bbb", "refused").status == 404
            # Reads go on, and root makes room.
            assert root.object("GET", "bbb", "first").status == 200
            assert root.object("DELETE", "bbb", "first").status == 204
            assert s3.object("DELETE", "bbb", "by-s3").status == 204
            # All that was acknowledged is recorded, though the disk is full.
            eventually(lambda: set(done) <= set(recorded(log)))
            os.unlink(filler)
            eventually(lambda: put("again").status == 201)
            (mounted / "again-dir").mkdir()
            assert nfs.ask(rpc.mkdir(top, b"again-nfs"))[0] == 0
        eventually(lambda: "again" in recorded(log))
        assert not [one for one in recorded(log) if one == "refused"]


def test_it_needs_a_place_for_records():
    from harness.server import ServerFailed

    with pytest.raises(ServerFailed, match="--audit-required needs"):
        Server(args=["--audit-required"]).start()
