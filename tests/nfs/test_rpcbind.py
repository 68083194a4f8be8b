"""The rpcbind of a machine tells clients where the door is: the real one, in a network and a /run of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness.doors import S3, Http
from harness.wait import eventually

from nfs import rpc
from nfs.conftest import Nfs

TESTS = Path(__file__).resolve().parents[1]
SOCKET = "/run/rpcbind.sock"
RPCBIND = (100_000, 4)
SET = 1
DOOR = {("100003", "3", "tcp"), ("100005", "3", "tcp"), ("100005", "3", "udp")}


def can_be_alone():
    alone = ["unshare", "--net", "--mount", "true"]
    return (
        os.geteuid() == 0
        and all(map(shutil.which, ["rpcbind", "rpcinfo", "ip"]))
        and subprocess.run(alone, capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not can_be_alone(), reason="needs root, namespaces, rpcbind and iproute2")
def test_the_door_is_registered_and_nothing_else_is_touched():
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    alone = ["unshare", "--net", "--mount", sys.executable, "-B", "-m", "nfs.test_rpcbind"]
    done = subprocess.run(alone, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def rpcbind():
    process = subprocess.Popen(["rpcbind", "-f"])
    eventually(lambda: Path(SOCKET).exists() and not lookup(), "rpcbind answers")
    yield
    process.terminate()
    process.wait()
    Path(SOCKET).unlink(missing_ok=True)


def lookup():
    """What is registered besides rpcbind itself, with the port; an error is also something."""
    shown = subprocess.run(["rpcinfo", "-p", "127.0.0.1"], capture_output=True, text=True)
    if shown.returncode != 0:
        return {"error": shown.stderr}
    lines = [line.split() for line in shown.stdout.splitlines()[1:]]
    return {tuple(line[:3]): line[3] for line in lines if line[0] != "100000"}


def register(program, version, transport, address):
    """As another server would."""
    with socket.socket(socket.AF_UNIX) as rpcbind:
        rpcbind.connect(SOCKET)
        texts = b"".join(map(rpc.data, [transport, address, ""]))
        call = [1, 0, 2, *RPCBIND, SET, 0, 0, 0, 0, program, version]
        call = b"".join(map(rpc.number, call)) + texts
        rpcbind.sendall(rpc.number(1 << 31 | len(call)) + call)
        reply = rpcbind.recv(100)
    assert reply[-4:] == rpc.number(1), reply


def door(nfs):
    return dict.fromkeys(DOOR, nfs.port)


def start(address="127.0.0.1:0"):
    return Nfs(args=["--nfs", address, "--nfs-portmap", "127.0.0.1:111"])


def clients_find_the_door_until_it_ends():
    other = (300_000, 1, "tcp")
    with rpcbind(), start() as nfs:
        register(*other, "127.0.0.1.9.9")
        kept = {("300000", "1", "tcp"): str(9 * 256 + 9)}
        eventually(lambda: lookup() == {**door(nfs), **kept}, "it is registered")
        S3(nfs.s3).create_bucket("photos")
        to = ["--client", "127.0.0.0/8", "--as", "root", "--squash", "none"]
        nfs.cairn("export", "add", "photos", *to)
        assert Http(nfs.http).object("PUT", "photos", "a", body=b"x").status == 201
        url = "nfs://127.0.0.1/photos/?uid=0&gid=0"
        listed = subprocess.run(["nfs-ls", url], capture_output=True, text=True)
        assert listed.stdout.split()[-1] == "a", listed.stderr
        assert nfs.stop() == 0
        assert lookup() == kept


def what_a_crash_leaves_is_taken_over():
    with rpcbind(), start() as nfs:
        eventually(lambda: lookup() == door(nfs), "it is registered")
        nfs.kill()
        assert lookup() == door(nfs)
        address = nfs.nfs
        nfs.args = ["--nfs", address, "--nfs-portmap", "127.0.0.1:111"]
        nfs.start()
        assert nfs.stop() == 0
        assert lookup() == {}


def another_server_stays():
    with rpcbind():
        register(rpc.NFS, 3, "tcp", "127.0.0.1.9.9")
        with start() as nfs:
            eventually(lambda: "another server, at 127.0.0.1.9.9" in nfs.tail(), "it says why")
            kept = {("100003", "3", "tcp"): str(9 * 256 + 9)}
            assert lookup() == kept
            assert nfs.stop() == 0
            assert lookup() == kept


def without_rpcbind_the_port_is_ours():
    with start() as nfs:
        asked = ["rpcinfo", "-T", "tcp", "127.0.0.1", str(rpc.NFS), "3"]
        assert subprocess.run(asked, capture_output=True).returncode == 0
        assert nfs.stop() == 0


if __name__ == "__main__":
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/run/rpcbind").mkdir()
    clients_find_the_door_until_it_ends()
    what_a_crash_leaves_is_taken_over()
    another_server_stays()
    without_rpcbind_the_port_is_ours()
