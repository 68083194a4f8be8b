"""Ends of mounts: each has a limit, whatever becomes of the server and wherever else the mount is."""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import time

import pytest

from harness.mount import Door, Mount, is_mounted
from harness.server import Server, scratch
from harness.wait import eventually

ROUNDS = int(os.environ.get("CAIRN_TEST_MOUNT_ENDS", "1"))
MOUNTS = 3
# The last changes wait for a server for 90 s, and a mount that is stuck is killed 30 s after that.
LIMIT_S = 150


@pytest.fixture(scope="module", autouse=True)
def namespace():
    """Other tests begin namespaces, which have copies of all mounts that are seen there."""
    new_mounts = 0x20000
    assert ctypes.CDLL(None).unshare(new_mounts) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@pytest.fixture
def place():
    with Server() as server:
        Door(server, "bucket").ask("PUT", "")
        yield server, scratch("ends")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_mount_ends_whose_server_ends_at_the_same_moment(place, end):
    server, work = place
    rng = random.Random(7)
    for number in range(ROUNDS):
        with contextlib.ExitStack() as stack:
            mounts = [Mount(server, work / f"{number}-{one}", bucket="bucket") for one in range(MOUNTS)]
            for mount in mounts:
                stack.enter_context(mount)
                for file in range(20):
                    (mount.root / f"{mount.path.name}-{file}").write_bytes(b"x" * 1000)
            moment = rng.randrange(MOUNTS)
            unmounts = []
            for at, mount in enumerate(mounts):
                if at == moment:
                    server.process.send_signal(end)
                unmounts.append(subprocess.Popen(["umount", mount.path]))
                time.sleep(rng.choice([0, 0.002, 0.01, 0.05]))
            began = time.monotonic()
            # It comes again at once in every second round, and else when all have ended without it.
            if number % 2 == 0:
                server.process.wait()
                server.start()
            for unmount, mount in zip(unmounts, mounts):
                assert unmount.wait(LIMIT_S) == 0
                mount.process.wait(LIMIT_S)
            print(f"ended after {time.monotonic() - began:.1f} s", flush=True)
        if number % 2:
            server.process.wait()
            server.start()


def test_who_asks_twice_waits_for_nothing_that_cannot_be_written_back(place):
    server, work = place
    with Mount(server, work / "mnt", bucket="bucket") as mount:
        files = [open(mount.root / f"file{number}", "wb", buffering=0) for number in range(10)]
        for file in files:
            file.write(b"x" * 1000)
        server.kill()
        began = time.monotonic()
        mount.process.terminate()
        eventually(lambda: "unmounting" in mount.tail(), "it is told to end")
        time.sleep(1)
        mount.process.terminate()
        # Each of the files would wait for a server for half a minute.
        mount.process.wait(LIMIT_S)
        # Lines about each file that is lost may follow.
        assert "told to end at once" in mount.tail(100_000)
        print(f"ended after {time.monotonic() - began:.1f} s", flush=True)
        for file in files:
            with contextlib.suppress(OSError):
                file.close()


def test_a_mount_that_another_namespace_has_says_so_and_ends_with_it(place):
    server, work = place
    for end in ["copy", "signal"]:
        with Mount(server, work / end, bucket="bucket") as mount:
            (mount.root / end).write_bytes(b"x")
            elsewhere = ["unshare", "--mount", "--propagation", "private", "sleep", "infinity"]
            copy = subprocess.Popen(elsewhere)
            try:
                own = os.stat("/proc/self/ns/mnt").st_ino
                eventually(lambda: os.stat(f"/proc/{copy.pid}/ns/mnt").st_ino != own, "the namespace")
                subprocess.run(["umount", mount.path], check=True)
                assert not is_mounted(mount.path)
                eventually(lambda: "another mount namespace" in mount.tail(), "it says so")
                assert mount.process.poll() is None
                there = f"/proc/{copy.pid}/root{mount.root}/{end}"
                with open(there, "rb") as file:
                    assert file.read() == b"x"
                if end == "signal":
                    mount.process.terminate()
                    assert mount.process.wait(LIMIT_S) == 0
            finally:
                copy.kill()
                copy.wait()
            assert mount.process.wait(LIMIT_S) == 0
