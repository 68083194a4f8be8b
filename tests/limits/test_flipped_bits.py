"""Bytes that rot on the disk: that object fails loudly, all others work, fsck names it."""

import hashlib
import http.client
import mmap

import pytest

from harness.doors import S3, Http
from harness.server import Server, ServerFailed
from harness.wait import eventually

SIZES = {"small": 2_000, "medium": 200_000, "large": 6 << 20}


def content(name):
    return hashlib.shake_256(name.encode()).digest(SIZES[name.split("-")[0]])


def flip(directory, needle):
    """Flips one bit of the first place where `needle` lies on the disk."""
    flipped = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.stat().st_size:
            with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
                at = view.find(needle)
                if at >= 0:
                    view[at] ^= 1
                    flipped.append(path)
    return flipped


@pytest.mark.parametrize("victim", ["medium-3", "large-1"])
def test_one_object_rots(victim):
    names = [f"{kind}-{n}" for kind in SIZES for n in range(5)]
    with Server() as server:
        s3 = S3(server.s3)
        s3.create_bucket("rotten")
        for name in names:
            assert s3.object("PUT", "rotten", name, body=content(name)).status == 200
        server.stop()
        middle = len(content(victim)) // 2
        flipped = flip(server.directory, content(victim)[middle : middle + 64])
        assert flipped, "the content lies nowhere on the disk as it is?"

        code, output = server.fsck()
        assert code != 0 and f"rotten/{victim}" in output, output
        for name in names:
            assert name == victim or f"rotten/{name}" not in output, output

        server.start()
        s3 = S3(server.s3)
        for door in (Http(server.http), S3(server.s3)):
            for name in names:
                if name != victim:
                    assert door.object("GET", "rotten", name).body == content(name)
                    continue
                try:
                    reply = door.object("GET", "rotten", name)
                except (OSError, http.client.HTTPException):
                    continue  # broken off in the middle: as loud as it gets once begun
                assert reply.status >= 500, f"{name}: {reply.status}, {len(reply.body)} bytes"
        # What does not touch the rotten bytes works: overwriting and deleting heal.
        assert s3.object("PUT", "rotten", victim, body=b"new").status == 200
        assert Http(server.http).object("GET", "rotten", victim).body == b"new"


def test_rotten_metadata_is_never_silent():
    """A body that is inline in the metadata: right bytes, or an error, or no start; never less."""
    victim = "small-3"
    with Server() as server:
        s3 = S3(server.s3)
        s3.create_bucket("rotten")
        for number in range(5):
            name = f"small-{number}"
            assert s3.object("PUT", "rotten", name, body=content(name)).status == 200
        server.stop()
        assert flip(server.directory, content(victim)[1000:1064])
        try:
            server.start()
        except ServerFailed as error:
            assert "corrupt" in str(error).lower(), error
            return
        try:
            reply = S3(server.s3).object("GET", "rotten", victim)
        except (OSError, http.client.HTTPException):
            return
        assert reply.status >= 500 or (reply.status == 200 and reply.body == content(victim)), reply


def test_fsck_goes_on_beside_rotten_metadata():
    """It names the file, the row, the object and the remedy; the server says so by itself."""
    victim = "small-3"
    with Server() as server:
        s3 = S3(server.s3)
        s3.create_bucket("rotten")
        for number in range(5):
            name = f"small-{number}"
            assert s3.object("PUT", "rotten", name, body=content(name)).status == 200
        server.stop()
        assert flip(server.directory, content(victim)[1000:1064])
        code, output = server.fsck()
        assert code == 1 and "rows.redb: row " in output and "cairn restore" in output, output
        assert f'entry "{victim}" leads to inode' in output and "4 files" in output, output
        for number in range(5):
            assert number == 3 or f"small-{number}" not in output, output
        server.start()
        eventually(lambda: "the metadata are damaged" in server.tail(100_000), "the server says so")
