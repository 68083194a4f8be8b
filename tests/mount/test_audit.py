"""The audit of a server has what programs do on a mount, with who asked, and nothing of what they read."""

import json
import os
import time

import pytest

from harness.mount import Door, Mount
from harness.server import Server, scratch
from harness.wait import eventually


def found(look):
    eventually(look)
    return look()


@pytest.fixture(scope="module")
def audited():
    work = scratch("audit")
    path = work / "audit.jsonl"
    with Server(args=["--audit-log", str(path)]) as server:
        Door(server, "audited").ask("PUT", "")
        with Mount(server, work / "mount", bucket="audited") as mount:

            def records(operation, name):
                lines = path.read_text().splitlines()
                all_of_mount = [one for one in map(json.loads, lines) if one["door"] == "mount"]
                return [
                    one
                    for one in all_of_mount
                    if one["operation"] == operation and one.get("resource", "").split(" to ")[0].endswith(name)
                ]

            yield mount.root, records, path


def test_changes_of_a_mount_have_one_record_each(audited):
    root, records, path = audited
    (root / "directory").mkdir()
    for number in range(20):
        # Some of these the mount makes on its own, and posts them later.
        (root / "directory" / f"file{number}").write_bytes(b"planted-content")
    os.rename(root / "directory/file0", root / "directory/renamed")
    os.unlink(root / "directory/file1")
    os.sync()
    [made] = found(lambda: records("mkdir", "/directory"))
    assert made["outcome"] == "done" and made["name"] == "root" and made["source"] == "127.0.0.1"
    assert made["uid"] == os.getuid() and made["request"].count(".") == 2
    for number in range(20):
        assert len(found(lambda: records("create", f"/file{number}"))) == 1
    assert len(found(lambda: records("rename", "/file0"))) == 1
    assert len(found(lambda: records("unlink", "/file1"))) == 1
    assert "planted-content" not in path.read_text()


def test_reads_of_a_mount_have_none(audited):
    root, _, path = audited
    (root / "read").write_bytes(b"x" * 100_000)
    os.sync()
    eventually(lambda: '/read"' in path.read_text())
    time.sleep(1)  # The rest of it comes with the next lines.
    before = path.read_text()
    for _ in range(3):
        assert len((root / "read").read_bytes()) == 100_000
        os.listdir(root)
        os.stat(root / "read")
    (root / "last").mkdir()
    eventually(lambda: '/last"' in path.read_text())
    new = [json.loads(line) for line in path.read_text()[len(before) :].splitlines()]
    operations = [one["operation"] for one in new]
    assert set(operations) <= {"mkdir", "write", "append", "extend", "setattr"} and "mkdir" in operations, new
