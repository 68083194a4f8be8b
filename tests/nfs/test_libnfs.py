"""libnfs' programs, unchanged: a client of its own, without a kernel."""

import json
import os
import socket
import subprocess

import pytest
from harness.doors import S3, Http
from harness.metrics import total

from nfs.conftest import Nfs


def url(nfs, path):
    return f"nfs://127.0.0.1/{path}?nfsport={nfs.port}&mountport={nfs.port}&uid=0&gid=0"


def program(*command, ok=True):
    done = subprocess.run([str(part) for part in command], capture_output=True, timeout=300)
    assert not ok or done.returncode == 0, done.stderr.decode()
    return done


def names(nfs, path):
    lines = program("nfs-ls", url(nfs, path)).stdout.decode().splitlines()
    return {line.split(maxsplit=5)[5]: int(line.split()[4]) for line in lines}


def test_what_one_door_writes_the_other_reads(nfs, exported, work):
    http = Http(nfs.http)
    data = os.urandom(5_000_000)
    assert http.object("PUT", exported, "a/from-http", body=data).status == 201
    assert names(nfs, f"{exported}/a/") == {"from-http": len(data)}
    assert program("nfs-cat", url(nfs, f"{exported}/a/from-http")).stdout == data
    (work / "file").write_bytes(data[::-1])
    program("nfs-cp", work / "file", url(nfs, f"{exported}/a/from-nfs"))
    assert http.object("GET", exported, "a/from-nfs").body == data[::-1]
    program("nfs-cp", url(nfs, f"{exported}/a/from-http"), work / "back")
    assert (work / "back").read_bytes() == data


def test_many_names_are_listed(nfs, exported):
    http = Http(nfs.http)
    for number in range(1200):
        assert http.object("PUT", exported, f"many/{number:04}", body=b"x").status == 201
    assert names(nfs, f"{exported}/many/") == {f"{number:04}": 1 for number in range(1200)}


def test_exports_are_for_whom_they_say(nfs, exported):
    def is_mounted(bucket):
        return program("nfs-ls", url(nfs, f"{bucket}/"), ok=False).returncode == 0

    assert is_mounted(exported)
    [shown] = [json.loads(line) for line in nfs.cairn("export", "list", "--json").stdout.splitlines()]
    assert (shown["bucket"], shown["user"], shown["clients"]) == (exported, "root", ["127.0.0.0/8"])
    again = nfs.cairn("export", "add", exported, "--client", "::1", "--as", "root", ok=False)
    assert again.returncode == 1 and "remove it first" in again.stderr
    nfs.cairn("export", "remove", exported)
    assert not is_mounted(exported)
    add = ["export", "add", exported, "--as", "root", "--client"]
    refused = nfs.cairn(*add, "0.0.0.0/0", ok=False)
    assert refused.returncode == 1 and "--any-client" in refused.stderr
    assert nfs.cairn(*add, "10.0.0.1/8", ok=False).returncode == 1
    assert nfs.cairn("export", "add", exported, "--as", "root", ok=False).returncode == 2
    assert nfs.cairn("export", "add", f"{exported}/a", *add[3:], "::1", ok=False).returncode == 1
    assert nfs.cairn("export", "add", f"{exported}/..", *add[3:], "::1", ok=False).returncode == 2
    unknown = ["export", "add", exported, "--as", "nobody", "--client", "::1"]
    assert "nobody" in nfs.cairn(*unknown, ok=False).stderr
    assert nfs.cairn("export", "list", "--json").stdout == ""
    nfs.cairn(*add, "10.0.0.0/8")
    assert not is_mounted(exported)
    nfs.cairn("export", "remove", exported)
    nfs.cairn(*add, "0.0.0.0/0", "--any-client", "--read-only")
    assert is_mounted(exported)
    assert nfs.cairn("export", "remove", "none", ok=False).returncode == 1


def test_exports_survive_a_crash_and_are_whole(nfs, exported):
    nfs.kill()
    assert nfs.fsck()[0] == 0
    nfs.restart()
    assert names(nfs, f"{exported}/") == {}


def test_a_directory_is_exported(nfs, exported):
    http = Http(nfs.http)
    for path in ("a/b/in", "a/out"):
        assert http.object("PUT", exported, path, body=b"x").status == 201
    nfs.cairn("export", "remove", exported)
    nfs.cairn("export", "add", f"{exported}/a/b", "--client", "127.0.0.0/8", "--as", "root")
    shown = json.loads(nfs.cairn("export", "list", "--json").stdout)
    assert shown["bucket"] == f"{exported}/a/b"
    assert names(nfs, f"{exported}/a/b/") == {"in": 1}
    assert program("nfs-ls", url(nfs, f"{exported}/a/"), ok=False).returncode != 0
    assert nfs.cairn("export", "remove", f"{exported}/a/b", ok=False).returncode == 2
    nfs.cairn("export", "remove", exported)


def test_an_export_is_writable_by_those_whom_its_command_names(nfs, work):
    (work / "file").write_bytes(b"x")

    def writes(bucket, uid):
        target = url(nfs, f"{bucket}/by-{uid}").replace("uid=0&gid=0", f"uid={uid}&gid={uid}")
        return program("nfs-cp", work / "file", target, ok=False).returncode == 0

    nfs.cairn("key", "create", "kim")
    to = ["--client", "127.0.0.0/8", "--as", "kim"]
    for bucket in ("owned", "squashed", "late", "unnamed", "had"):
        nfs.cairn("bucket", "create", bucket)
        nfs.cairn("bucket", "set", bucket, "--grant", "kim:read,write")
    assert nfs.cairn("export", "add", "owned", *to, "--owner", "1000:1000").stderr == ""
    assert writes("owned", 1000) and not writes("owned", 1001)
    # The directory that a key makes belongs to whom the one above does.
    nfs.cairn("put", str(work / "file"), "owned/2026/a")
    assert writes("owned/2026", 1000) and not writes("owned/2026", 1001)
    squash = ["--squash", "all", "--squash-to", "1234:1234"]
    assert nfs.cairn("export", "add", "squashed", *to, *squash).stderr == ""
    assert writes("squashed", 0) and writes("squashed", 1000)
    # This machine knows nobody of this name: the command says what to do.
    said = nfs.cairn("export", "add", "late", *to).stderr
    assert "no client can write at the top of late" in said, said
    assert "cairn export set late --owner UID:GID" in said and not writes("late", 1000)
    nfs.cairn("export", "set", "late", "--owner", "1000:1000")
    assert writes("late", 1000)
    nfs.cairn("bucket", "set", "unnamed", "--grant", "kim:read")
    said = nfs.cairn("export", "add", "unnamed", *to, "--owner", "1000:1000").stderr
    assert "cairn bucket set unnamed --grant kim:read,write" in said, said
    # An owner that a directory has is not taken from it.
    nfs.cairn("export", "add", "had", *to, "--owner", "7:7")
    nfs.cairn("export", "remove", "had")
    said = nfs.cairn("export", "add", "had", *to, "--owner", "8:8").stderr
    assert "had belonged to 7:7 before" in said and "export set had --owner 8:8" in said, said
    rows = [line.split() for line in nfs.cairn("export", "list").stdout.splitlines()]
    owners = {row[0]: row[-1] for row in rows[1:]}
    assert (owners["had"], owners["late"], owners["squashed"]) == ("7:7", "1000:1000", "1234:1234")
    nfs.cairn("key", "create", "daemon")
    nfs.cairn("bucket", "create", "known")
    nfs.cairn("bucket", "set", "known", "--grant", "daemon:read,write")
    nfs.cairn("export", "add", "known", "--client", "127.0.0.0/8", "--as", "daemon")
    assert writes("known", 1) and not writes("known", 1000)
    assert nfs.cairn("export", "set", "none", "--owner", "1:1", ok=False).returncode == 1


def can_bind(port):
    with socket.socket() as one, socket.socket(type=socket.SOCK_DGRAM) as other:
        try:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.mark.skipif(not can_bind(111), reason="port 111 is taken, or not for this user")
def test_the_portmapper_tells_the_port():
    with Nfs(args=["--nfs", "127.0.0.1:0", "--nfs-portmap", "127.0.0.1:111"]) as server:
        S3(server.s3).create_bucket("photos")
        to = ["--client", "127.0.0.0/8", "--as", "root", "--squash", "none"]
        server.cairn("export", "add", "photos", *to)
        assert Http(server.http).object("PUT", "photos", "a", body=b"x").status == 201
        listed = program("nfs-ls", "nfs://127.0.0.1/photos/?uid=0&gid=0").stdout
        assert listed.decode().split()[-1] == "a"


def test_calls_are_counted(nfs, exported):
    assert names(nfs, f"{exported}/") == {}
    text = Http(nfs.http).request("GET", "/metrics").body.decode()
    calls = "cairn_requests_total"
    assert total(text, calls, door="nfs", verb="mount_mnt", status="2xx") >= 1
    assert total(text, calls, door="nfs", verb="readdirplus", status="2xx") >= 1
    assert total(text, "cairn_request_seconds_sum", door="nfs", verb="readdirplus") > 0
    assert total(text, "cairn_stage_seconds_sum", door="nfs", stage="meta") > 0
