"""rclone, unchanged, with an S3 remote."""

import json

import pytest

from harness import hashes, tree
from harness.server import KEY, REGION, SECRET


@pytest.fixture
def rclone(shell, server):
    remote = {
        "RCLONE_CONFIG": "/dev/null",
        "RCLONE_CONFIG_CAIRN_TYPE": "s3",
        "RCLONE_CONFIG_CAIRN_PROVIDER": "Other",
        "RCLONE_CONFIG_CAIRN_ENDPOINT": server.s3,
        "RCLONE_CONFIG_CAIRN_ACCESS_KEY_ID": KEY,
        "RCLONE_CONFIG_CAIRN_SECRET_ACCESS_KEY": SECRET,
        "RCLONE_CONFIG_CAIRN_REGION": REGION,
    }
    return lambda *arguments, **options: shell("rclone", *arguments, env=remote, **options)


def test_copy_check_sync_lsf_delete(rclone, server, http, any_bucket, work):
    source = tree.build(work / "source", 600)
    # More than rclone sends in one piece by default (200 MiB), so that it goes in parts.
    with open(source / "big", "wb") as file:
        file.truncate(210 << 20)
    expected = tree.digests(source)
    remote = f"cairn:{any_bucket}"
    rclone("copy", source, remote)
    tree.assert_same(expected, hashes.through(server, "http", any_bucket))
    rclone("check", "--download", source, remote)
    rclone("check", source, remote)

    listed = rclone("lsf", "-R", "--files-only", remote).stdout.split("\n")
    assert len([line for line in listed if line]) == len(expected)

    (source / "big").unlink()
    (source / "new").write_bytes(b"new")
    rclone("sync", source, remote)
    expected = tree.digests(source)
    tree.assert_same(expected, hashes.through(server, "http", any_bucket))
    rclone("copy", remote, work / "back")
    tree.assert_same(expected, tree.digests(work / "back"))

    rclone("copyto", f"{remote}/new", f"{remote}/copied")
    assert http.object("GET", any_bucket, "copied").body == b"new"
    rclone("moveto", f"{remote}/copied", f"{remote}/moved")
    assert http.object("HEAD", any_bucket, "copied").status == 404
    rclone("delete", remote)
    assert http.list(any_bucket) == {}


def test_modification_times_are_kept(rclone, any_bucket, work):
    (work / "source").mkdir()
    (work / "source/f").write_bytes(b"old")
    import os

    os.utime(work / "source/f", (1_000_000_000, 1_000_000_000))
    rclone("copy", work / "source", f"cairn:{any_bucket}")
    (entry,) = json.loads(rclone("lsjson", f"cairn:{any_bucket}").stdout)
    assert entry["ModTime"].startswith("2001-09-09T01:46:40")
