"""libnfs' programs, unchanged: a client of its own, without a kernel."""

import json
import os
import subprocess

from harness.doors import Http


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
    assert nfs.cairn("export", "add", f"{exported}/a", *add[3:], "::1", ok=False).returncode == 2
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
