"""s3cmd, unchanged."""

import hashlib
import re

import pytest

from harness import hashes, tree
from harness.server import KEY, SECRET


@pytest.fixture
def s3cmd(shell, server, work):
    host = server.s3.split("//")[1]
    config = work / "s3cfg"
    config.write_text(
        f"[default]\naccess_key = {KEY}\nsecret_key = {SECRET}\n"
        f"host_base = {host}\nhost_bucket = {host}\nuse_https = False\n"
    )
    return lambda *arguments: shell("s3cmd", "-c", config, "--no-progress", *arguments)


def test_put_get_ls_info_del(s3cmd, http, any_bucket, work):
    data = hashlib.shake_256(b"s3cmd").digest(1_000_000)
    (work / "file").write_bytes(data)
    s3cmd("put", work / "file", f"s3://{any_bucket}/dir/fi le+%é.bin")
    assert http.object("GET", any_bucket, "dir/fi le+%é.bin").body == data
    assert "1000000" in s3cmd("ls", f"s3://{any_bucket}/dir/").stdout
    info = s3cmd("info", f"s3://{any_bucket}/dir/fi le+%é.bin").stdout
    assert re.search(r"File size:\s+1000000", info)
    assert hashlib.md5(data).hexdigest() in info
    s3cmd("get", f"s3://{any_bucket}/dir/fi le+%é.bin", work / "back")
    assert (work / "back").read_bytes() == data
    s3cmd("del", f"s3://{any_bucket}/dir/fi le+%é.bin")
    assert http.list(any_bucket) == {}


def test_multipart_put(s3cmd, http, any_bucket, work):
    data = hashlib.shake_256(b"s3cmd parts").digest(17 << 20)
    (work / "file").write_bytes(data)
    s3cmd("put", "--multipart-chunk-size-mb=5", work / "file", f"s3://{any_bucket}/parts")
    assert hashes.http_sha256(http, any_bucket, "parts") == hashlib.sha256(data).hexdigest()


def test_sync_both_ways(s3cmd, server, any_bucket, work):
    source = tree.build(work / "source", 200, hostile=False)
    for name in ("spa ce", "plus+", "per%20cent", "ümlaut", "a-", "a.", "a0", "a/b"):
        path = source / "names" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    expected = tree.digests(source)
    s3cmd("sync", f"{source}/", f"s3://{any_bucket}/t/")
    tree.assert_same(expected, hashes.through(server, "http", any_bucket, "t/"))
    assert "upload" not in s3cmd("sync", f"{source}/", f"s3://{any_bucket}/t/").stdout
    (work / "back").mkdir()
    s3cmd("sync", f"s3://{any_bucket}/t/", f"{work}/back/")
    tree.assert_same(expected, tree.digests(work / "back"))
    s3cmd("del", "--recursive", "--force", f"s3://{any_bucket}/t/")
    assert hashes.through(server, "http", any_bucket) == {}


def test_copy_and_move(s3cmd, http, any_bucket, work):
    (work / "file").write_bytes(b"content")
    s3cmd("put", work / "file", f"s3://{any_bucket}/one")
    s3cmd("cp", f"s3://{any_bucket}/one", f"s3://{any_bucket}/two")
    s3cmd("mv", f"s3://{any_bucket}/two", f"s3://{any_bucket}/three")
    assert sorted(http.list(any_bucket)) == ["one", "three"]
    assert http.object("GET", any_bucket, "three").body == b"content"
