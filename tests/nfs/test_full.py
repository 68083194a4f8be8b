"""A full data disk, as a client of NFS sees it: nothing that was committed is lost, and what was refused
was never said to be durable."""

import os

import pytest
from harness.disk import SmallDisk, Unavailable
from harness.doors import S3
from harness.wait import comes_true
from kill.model import content

from nfs import rpc
from nfs.conftest import Nfs, export_all

MIB = 1 << 20
NOSPC = 28
DISK_MIB = 768
# What the store may fill. The rest is taken by somebody else.
FREE_MIB = int(os.environ.get("CAIRN_TEST_NFS_FREE_MIB", 230))
FILE_MIB = 4
# Refused so often in a row, the disk is full.
REFUSALS = 4


@pytest.fixture
def small_disk():
    try:
        with SmallDisk(DISK_MIB) as disk:
            yield disk.mount
    except Unavailable as why:
        pytest.skip(str(why))


def occupy(disk, leave):
    """Takes what is free of the disk but `leave` bytes, as another program might."""
    found = os.statvfs(disk)
    with open(disk / "filler", "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, found.f_bavail * found.f_frsize - leave)


class Files:
    """Files in one directory, written as a client of Linux does it, and what they must hold."""

    def __init__(self, server, bucket):
        self.server, self.bucket, self.acknowledged = server, bucket, {}
        self.connect()

    def connect(self):
        self.client = rpc.Client(self.server.nfs)
        self.top = self.client.mount(f"/{self.bucket}")

    def put(self, name, body, stable):
        """Whether all of it was acknowledged to be durable; otherwise the disk is full."""
        status, reply = self.client.ask(rpc.create(self.top, name))
        assert status in (0, NOSPC), status
        if status == NOSPC:
            return False
        assert reply.number() == 1
        handle = reply.data()
        while True:
            verifiers = set()
            for offset in range(0, len(body), MIB):
                part = body[offset : offset + MIB]
                status, reply = self.client.ask(rpc.write(handle, offset, part, stable))
                assert status in (0, NOSPC), status
                if status == NOSPC:
                    return False
                reply.skip_around()
                assert reply.number() == len(part)
                how, verifier = reply.number(), reply.take(8)
                assert how >= stable
                verifiers |= {verifier} if how == rpc.UNSTABLE else set()
            status, reply = self.client.ask(rpc.commit(handle))
            assert status in (0, NOSPC), status
            if status == NOSPC:
                return False
            reply.skip_around()
            # Otherwise bytes may have been dropped: a client writes all of them again.
            if verifiers <= {reply.take(8)}:
                self.acknowledged[name] = body
                return True

    def fill(self, prefix, size):
        """Until it is full. How many were refused in between."""
        refused, in_a_row, number = 0, 0, 0
        while in_a_row < REFUSALS:
            name, stable = f"{prefix}-{number}", (rpc.UNSTABLE, rpc.FILE_SYNC)[number % 2]
            if self.put(name, content(name, 1, size), stable):
                in_a_row = 0
            else:
                in_a_row, refused = in_a_row + 1, refused + 1
            number += 1
            assert number < 10_000, "the disk is never full"
        return refused

    def check(self):
        """What was acknowledged is there, and is found in the listing."""
        for name, body in self.acknowledged.items():
            handle = self.client.lookup(self.top, name)
            assert handle, name
            read = b"".join(self.client.read(handle, at) for at in range(0, len(body), MIB))
            assert read == body, name
        assert set(self.acknowledged) <= set(self.client.names(self.top))

    def remove(self, name):
        status, _ = self.client.ask(rpc.remove(self.top, name))
        assert status == 0, (name, status)
        self.acknowledged.pop(name, None)


def test_a_disk_fills_up_and_is_cleared(small_disk):
    with Nfs(small_disk / "data", ["--nfs", "127.0.0.1:0"], log=small_disk.parent / "log") as server:
        S3(server.s3).create_bucket("full")
        export_all(server.http, "full")
        files = Files(server, "full")
        occupy(small_disk, FREE_MIB * MIB)
        assert files.fill("large", FILE_MIB * MIB) >= REFUSALS
        files.fill("small", 30_000)
        assert len(files.acknowledged) >= 2 * REFUSALS, "something fits"
        files.check()

        server.restart()
        files.connect()
        files.check()
        # What was refused is removed as what was not.
        names = sorted(files.client.names(files.top))
        assert len(names) > len(files.acknowledged)
        for name in names[::2]:
            files.remove(name)
        for name in names[1::2]:
            if name not in files.acknowledged:
                files.remove(name)
        assert set(files.client.names(files.top)) == set(files.acknowledged)

        attempts = iter(range(10_000))

        def is_written():
            name = f"again-{next(attempts)}"
            return files.put(name, content(name, 1, FILE_MIB * MIB), rpc.UNSTABLE)

        # Once what was deleted is reclaimed.
        assert comes_true(is_written, pause=0.2), server.tail()
        files.check()
        server.kill()
        code, output = server.fsck()
        assert code == 0, output
