"""Files in thousands of pieces: whoever may only read one copies its bytes, and its owner writes on."""

import json
import os
import subprocess

import boto3
import pytest
from botocore.config import Config

from harness.doors import Http
from harness.metrics import total
from harness.mount import Door, Mount, environment
from harness.server import Server, binary, scratch

MIB = 1 << 20
# More than a body that is shared may have; a chunk of 64 MiB has at most 1,024.
CHUNKS, RUNS = 4, 1010
SIZE = 192 * MIB + RUNS * 1024 - 924


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def data(server):
    """The owner's bucket on a mount, and the HTTP door of it."""
    door = Door(server, "data")
    door.ask("PUT", "")
    with Mount(server, scratch("pieces") / "mount", bucket="data") as mount:
        yield mount.root, door


@pytest.fixture(scope="module")
def eve(server, data):
    """S3 as a user who may read the bucket."""
    key = json.loads(cairn(server, "key", "create", "eve", "--json"))
    cairn(server, "bucket", "set", "data", "--grant", "eve:read")
    s3 = boto3.client(
        "s3", endpoint_url=server.s3, aws_access_key_id=key["id"], aws_secret_access_key=key["secret"],
        region_name="us-east-1", config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
    )
    s3.create_bucket(Bucket="eves")
    return s3


def cairn(server, *args):
    done = subprocess.run([binary(), *args, "--server", server.http], env=environment(),
                          capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def make(path):
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    for chunk in range(CHUNKS):
        for at in range(RUNS):
            os.pwrite(fd, b"x" * 100, (chunk << 26) + at * 1024)
        os.fsync(fd)
    os.close(fd)
    assert os.stat(path).st_size == SIZE


def write_on(path, door):
    """What an owner does to a file: a byte in place, and an append by another door."""
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"y", 5)
    os.fsync(fd)
    os.close(fd)
    door.ask("POST", f"{path.name}?append", b"end\n")
    with open(path, "rb") as file:
        assert file.read(102) == b"xxxxxy" + b"x" * 94 + b"\0\0"
        file.seek(-6, os.SEEK_END)
        assert file.read() == b"xxend\n"


def check(read):
    """Checks a copy, by a function from first and last byte to bytes."""
    assert read(0, 1025) == b"x" * 100 + bytes(924) + b"xx"
    assert read(SIZE - 101, SIZE - 1) == b"\0" + b"x" * 100


def blocks(server):
    return total(Http(server.http).request("GET", "/metrics").body.decode(), "cairn_blocks")


def test_copies_by_a_reader_cost_the_owner_nothing(server, data, eve):
    root, door = data
    make(root / "file")
    before = blocks(server)
    eve.copy_object(Bucket="eves", Key="copy", CopySource="data/file")
    copied = SIZE // (4 * MIB)
    assert blocks(server) - before >= copied
    upload = {"Bucket": "eves", "Key": "parts"}
    upload["UploadId"] = eve.create_multipart_upload(**upload)["UploadId"]
    part = eve.upload_part_copy(
        **upload, PartNumber=1, CopySource="data/file", CopySourceRange=f"bytes=0-{6 * MIB - 1}"
    )["CopyPartResult"]
    assert blocks(server) - before >= copied + 2
    parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
    eve.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})

    def read(key):
        def read(first, last):
            return eve.get_object(Bucket="eves", Key=key, Range=f"bytes={first}-{last}")["Body"].read()
        return read

    write_on(root / "file", door)
    check(read("copy"))
    assert read("parts")(0, 102) == b"x" * 100 + b"\0\0\0"


def test_cp_copies_the_bytes(server, data):
    root, door = data
    make(root / "source")
    before = blocks(server)
    subprocess.run(["cp", "--sparse=never", root / "source", root / "target"], check=True)
    assert blocks(server) - before >= SIZE // (4 * MIB)
    write_on(root / "source", door)
    with open(root / "target", "rb") as copy:
        check(lambda first, last: os.pread(copy.fileno(), last + 1 - first, first))
    write_on(root / "target", door)
