"""aws-cli, unchanged, in front of the S3 door; what it wrote is read through the HTTP door."""

import hashlib
import os
import urllib.parse

from harness import hashes, tree
from harness.doors import Http

TREE_FILES = int(os.environ.get("CAIRN_TEST_TREE_FILES", 1300))
BIG_BYTES = int(os.environ.get("CAIRN_TEST_BIG_MIB", 256)) << 20


def random_file(path, size, seed=7):
    """A file of `size` bytes that repeats nowhere, and its sha256."""
    digest, written = hashlib.sha256(), 0
    block = bytearray(hashlib.shake_128(str(seed).encode()).digest(1 << 20))
    with open(path, "wb") as file:
        while written < size:
            block[:8] = written.to_bytes(8, "little")
            piece = block[: min(len(block), size - written)]
            file.write(piece)
            digest.update(piece)
            written += len(piece)
    return digest.hexdigest()


def test_sync_of_a_real_tree_comes_back_and_survives_kill_9(server, bucket, shell, work):
    source = tree.build(work / "source", TREE_FILES)
    expected = tree.digests(source)
    assert len(expected) >= TREE_FILES

    shell("aws", "s3", "sync", source, f"s3://{bucket}", "--only-show-errors")
    tree.assert_same(expected, hashes.through(server, "http", bucket))

    again = shell("aws", "s3", "sync", source, f"s3://{bucket}")
    assert again.stdout.strip() == "", f"a second sync had work to do: {again.stdout[:2000]}"

    server.restart()
    tree.assert_same(expected, hashes.through(server, "http", bucket))
    tree.assert_same(expected, hashes.through(server, "s3", bucket))

    back = work / "back"
    shell("aws", "s3", "sync", f"s3://{bucket}", back, "--only-show-errors")
    tree.assert_same(expected, tree.digests(back))

    shell("aws", "s3", "rm", f"s3://{bucket}/hostile", "--recursive", "--only-show-errors")
    kept = {k: v for k, v in expected.items() if not k.startswith("hostile/")}
    assert sorted(Http(server.http).list(bucket)) == sorted(kept)


def test_tree_put_through_http_is_synced_down_by_aws_cli(server, http, shell, work):
    source = tree.build(work / "source", 300)
    expected = tree.digests(source)
    del expected["hostile/a/b"], expected["hostile/日本語/ファイル"]
    http.create_bucket("from-http")
    for key in expected:
        reply = http.object("PUT", "from-http", key, (source / key).read_bytes())
        assert reply.status in (200, 201, 204), (key, reply)
    back = work / "back"
    shell("aws", "s3", "sync", "s3://from-http", back, "--only-show-errors")
    tree.assert_same(expected, tree.digests(back))


def test_cp_of_a_gibibyte_in_parts(server, http, bucket, shell, work):
    digest = random_file(work / "big", BIG_BYTES)
    shell("aws", "s3", "cp", work / "big", f"s3://{bucket}/dir/big", "--only-show-errors")
    assert hashes.http_sha256(http, bucket, "dir/big") == digest
    (work / "big").unlink()
    shell("aws", "s3", "cp", f"s3://{bucket}/dir/big", work / "back", "--only-show-errors")
    with open(work / "back", "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest
    shell("aws", "s3", "rm", f"s3://{bucket}/dir/big")
    assert http.object("HEAD", bucket, "dir/big").status == 404


def test_cp_from_a_pipe_and_to_a_pipe(server, http, any_bucket, shell, work):
    digest = random_file(work / "piped", 20 << 20)
    copy = "cat piped | aws s3 cp - s3://$B/piped && aws s3 cp s3://$B/piped - | sha256sum"
    done = shell("bash", "-c", copy, cwd=work, env={"B": any_bucket})
    assert done.stdout.split()[0] == digest
    assert hashes.http_sha256(http, any_bucket, "piped") == digest


def test_mv_ls_and_presign(server, http, any_bucket, shell, work):
    digest = random_file(work / "file", 100_000)
    shell("aws", "s3", "cp", work / "file", f"s3://{any_bucket}/one + two.bin", "--only-show-errors")
    shell("aws", "s3", "mv", f"s3://{any_bucket}/one + two.bin", f"s3://{any_bucket}/moved/é.bin")
    assert list(http.list(any_bucket)) == ["moved/é.bin"]
    assert "100000 moved/é.bin" in shell("aws", "s3", "ls", "--recursive", f"s3://{any_bucket}").stdout
    assert "PRE moved/" in shell("aws", "s3", "ls", f"s3://{any_bucket}").stdout

    url = shell("aws", "s3", "presign", f"s3://{any_bucket}/moved/é.bin").stdout.strip()
    shell("curl", "-sS", "--fail", "-o", work / "presigned", url)
    assert hashlib.sha256((work / "presigned").read_bytes()).hexdigest() == digest

    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
    signature = query.get("X-Amz-Signature") or query["Signature"]
    wrong = url.replace(urllib.parse.quote(signature, safe=""), signature[:-4] + "0000")
    status = shell("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", wrong).stdout
    assert status == "403"


def test_rb_refuses_a_bucket_with_objects(server, http, shell, work):
    shell("aws", "s3", "mb", "s3://mb-and-rb")
    assert http.object("PUT", "mb-and-rb", "x", b"x").status in (200, 201, 204)
    refused = shell("aws", "s3", "rb", "s3://mb-and-rb", ok=False)
    assert refused.returncode != 0 and "BucketNotEmpty" in refused.stderr
    shell("aws", "s3", "rb", "s3://mb-and-rb", "--force")
    assert http.request("GET", "/storage/mb-and-rb/").status == 404
