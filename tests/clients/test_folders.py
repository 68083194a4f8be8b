"""Folders as programs for S3 make, find and remove them, in buckets of both kinds."""

import hashlib
import os
import urllib.parse

import pytest
import s3fs
from botocore.exceptions import ClientError

from clients.test_outsiders import connect, refused
from harness.doors import Http
from harness.server import KEY, REGION, SECRET, Server


@pytest.fixture
def boto(server):
    return connect(server.s3)


def listed(boto, bucket, **more):
    reply = boto.list_objects_v2(Bucket=bucket, **more)
    prefixes = [prefix["Prefix"] for prefix in reply.get("CommonPrefixes", [])]
    return [one["Key"] for one in reply.get("Contents", [])], prefixes


def test_programs_make_directories_in_both_kinds_of_buckets(boto, any_bucket):
    """As consoles and sync programs do."""
    at = {"Bucket": any_bucket}
    typed = {"ContentType": "application/x-directory", "Metadata": {"mode": "16877"}}
    assert boto.put_object(**at, Key="dir/", Body=b"")["ETag"] == f'"{hashlib.md5(b"").hexdigest()}"'
    boto.put_object(**at, Key="deep/er/", Body=b"", **typed)
    boto.put_object(**at, Key="other/file", Body=b"1")
    found = boto.head_object(**at, Key="deep/er/")
    assert (found["ContentLength"], found["ContentType"]) == (0, "application/x-directory")
    assert found["Metadata"] == {"mode": "16877"}
    assert boto.get_object(**at, Key="dir/")["Body"].read() == b""
    refused("404", boto.head_object, **at, Key="other/")
    refused("PreconditionFailed", boto.put_object, **at, Key="dir/", Body=b"", IfNoneMatch="*")
    assert listed(boto, any_bucket) == (["deep/er/", "dir/", "other/file"], [])
    assert listed(boto, any_bucket, Delimiter="/") == ([], ["deep/", "dir/", "other/"])
    # s3fs changes the mode of a directory so.
    source = {**at, "Key": "deep/er/"}
    changed = {"MetadataDirective": "REPLACE", "Metadata": {"mode": "16832"}}
    boto.copy_object(**at, Key="deep/er/", CopySource=source, **changed)
    assert boto.head_object(**at, Key="deep/er/")["Metadata"] == {"mode": "16832"}
    boto.copy_object(**at, Key="copy/", CopySource=source)
    assert boto.head_object(**at, Key="copy/")["Metadata"] == {"mode": "16832"}
    boto.put_object(**at, Key="dir/x", Body=b"1")
    boto.delete_object(**at, Key="dir/")
    assert listed(boto, any_bucket, Prefix="dir/") == (["dir/x"], [])
    boto.delete_objects(**at, Delete={"Objects": [{"Key": key} for key in ("dir/x", "copy/", "deep/er/")]})
    assert listed(boto, any_bucket) == (["other/file"], [])


class Hadoop:
    """S3AFileSystem of Hadoop 3 by its requests, which its page "Controlling the S3A Directory Marker Behavior" describes.
    Of its policies for markers, `delete` removes those above a new file, and `keep`, that of 3.4, leaves them."""

    def __init__(self, boto, bucket, policy):
        self.boto, self.at, self.policy = boto, {"Bucket": bucket}, policy

    def status(self, path):
        """A HEAD of the file, then a listing of two entries."""
        try:
            self.boto.head_object(**self.at, Key=path)
            return "file"
        except ClientError as error:
            assert error.response["Error"]["Code"] == "404", error
        keys, prefixes = self.list(path, MaxKeys=2)
        if keys or prefixes:
            return "empty directory" if (keys, prefixes) == ([f"{path}/"], []) else "directory"
        return None

    def list(self, path, **more):
        return listed(self.boto, self.at["Bucket"], Prefix=f"{path}/", Delimiter="/", **more)

    def below(self, path):
        return listed(self.boto, self.at["Bucket"], Prefix=f"{path}/", MaxKeys=5000)[0]

    def remove(self, keys):
        objects = [{"Key": key} for key in keys]
        done = self.boto.delete_objects(**self.at, Delete={"Objects": objects, "Quiet": True})
        assert "Errors" not in done, done

    def mark(self, path):
        self.boto.put_object(
            **self.at, Key=f"{path}/", Body=b"", ContentType="application/x-directory"
        )

    def mkdirs(self, path):
        if self.status(path) is None:
            self.mark(path)
            self.made(path)

    def create(self, path, body):
        self.boto.put_object(**self.at, Key=path, Body=body)
        self.made(path)

    def made(self, path):
        names = path.split("/")
        above = ["/".join(names[:depth]) + "/" for depth in range(len(names) - 1, 0, -1)]
        if self.policy == "delete" and above:
            self.remove(above)

    def rename(self, source, target):
        keys = self.below(source)
        for key in keys:
            self.boto.copy_object(
                **self.at,
                Key=target + key.removeprefix(source),
                CopySource={**self.at, "Key": key},
                MetadataDirective="REPLACE",
                ContentType="application/x-directory" if key.endswith("/") else "a/b",
            )
        self.remove(keys)
        self.made(target)

    def delete(self, path):
        status = self.status(path)
        if status == "directory":
            self.remove(self.below(path))
        else:
            self.boto.delete_object(**self.at, Key=path if status == "file" else f"{path}/")
        parent = path.rpartition("/")[0]
        # A directory does not go with its last file.
        if parent and self.status(parent) is None:
            self.mark(parent)


@pytest.mark.parametrize("policy", ["keep", "delete"])
def test_the_calls_of_hadoop_work_in_both_kinds(boto, any_bucket, policy):
    fs = Hadoop(boto, any_bucket, policy)
    assert fs.status("data") is None
    fs.mkdirs("data/raw")
    fs.mkdirs("data/raw")
    assert (fs.status("data"), fs.status("data/raw")) == ("directory", "empty directory")
    fs.create("data/raw/one", b"1")
    fs.create("data/raw/deep/er/two", b"22")
    fs.mkdirs("data/raw/hollow")
    found = [fs.status(f"data/raw{path}") for path in ("", "/one", "/deep", "/hollow", "/none")]
    assert found == ["directory", "file", "directory", "empty directory", None]
    # Whether there is a marker of what mkdirs made is up to the policy.
    keys, prefixes = fs.list("data/raw")
    assert sorted({*keys} - {"data/raw/"}) == ["data/raw/one"]
    assert prefixes == ["data/raw/deep/", "data/raw/hollow/"]
    fs.rename("data/raw", "data/done")
    assert (fs.status("data/raw"), fs.status("data/done/hollow")) == (None, "empty directory")
    assert boto.get_object(Bucket=any_bucket, Key="data/done/deep/er/two")["Body"].read() == b"22"
    fs.delete("data/done/deep/er/two")
    assert fs.status("data/done/deep/er") == "empty directory"
    fs.delete("data/done/deep/er")
    assert fs.status("data/done/deep") == "empty directory"
    fs.delete("data/done")
    assert fs.status("data") == "empty directory"
    fs.delete("data")
    assert listed(boto, any_bucket) == ([], [])


def in_s3fs(server, bucket):
    """What s3fs of Python shows of a bucket while it is used."""
    fs = s3fs.S3FileSystem(
        key=KEY,
        secret=SECRET,
        client_kwargs={"endpoint_url": server.s3, "region_name": REGION},
        use_listings_cache=False,
        skip_instance_cache=True,
    )

    def shown(path):
        found = fs.ls(f"{bucket}/{path}", detail=True)
        return sorted((one["name"].removeprefix(bucket), one["type"], one["size"]) for one in found)

    fs.makedirs(f"{bucket}/new/sub", exist_ok=True)
    fs.pipe_file(f"{bucket}/new/sub/file", b"1")
    fs.pipe_file(f"{bucket}/new/marked/file", b"22")
    assert fs.isdir(f"{bucket}/new") and fs.isdir(f"{bucket}/new/marked") and fs.isdir(f"{bucket}/new/hollow")
    assert fs.isfile(f"{bucket}/new/sub/file") and not fs.exists(f"{bucket}/none")
    assert fs.cat_file(f"{bucket}/new/sub/file") == b"1"
    yield shown("new"), shown("new/sub"), shown("new/marked")
    yield sorted(name.removeprefix(bucket) for name in fs.find(f"{bucket}/new"))
    walked = [(path, *map(sorted, names)) for path, *names in fs.walk(f"{bucket}/new")]
    yield sorted((path.removeprefix(bucket), *names) for path, *names in walked)
    fs.mv(f"{bucket}/new/sub/file", f"{bucket}/new/moved")
    assert fs.cat_file(f"{bucket}/new/moved") == b"1" and not fs.exists(f"{bucket}/new/sub/file")
    yield shown("new")
    fs.rm(f"{bucket}/new", recursive=True)
    assert not fs.exists(f"{bucket}/new") and not fs.exists(f"{bucket}/new/hollow")


def in_arrow(server, bucket):
    """What pyarrow shows of a bucket while it is used."""
    from pyarrow import fs as arrow

    fs = arrow.S3FileSystem(
        endpoint_override=urllib.parse.urlsplit(server.s3).netloc,
        scheme="http",
        access_key=KEY,
        secret_key=SECRET,
        region=REGION,
    )

    def write(path, body):
        with fs.open_output_stream(f"{bucket}/{path}") as stream:
            stream.write(body)

    def read(path):
        with fs.open_input_stream(f"{bucket}/{path}") as stream:
            return stream.read()

    def kind(path):
        return fs.get_file_info(f"{bucket}/{path}").type

    def below(path):
        found = fs.get_file_info(arrow.FileSelector(f"{bucket}/{path}", recursive=True))
        return sorted((one.path.removeprefix(bucket), one.type.name, one.size) for one in found)

    fs.create_dir(f"{bucket}/new/arrow/sub", recursive=True)
    assert kind("new/arrow") == kind("new/arrow/sub") == kind("new/hollow") == arrow.FileType.Directory
    assert kind("none") == arrow.FileType.NotFound
    write("new/arrow/sub/file", b"1")
    write("new/marked/file", b"22")
    assert kind("new/arrow/sub/file") == arrow.FileType.File and read("new/marked/file") == b"22"
    yield below("new")
    fs.move(f"{bucket}/new/arrow/sub/file", f"{bucket}/new/moved")
    fs.copy_file(f"{bucket}/new/moved", f"{bucket}/new/copied")
    assert read("new/moved") == read("new/copied") == b"1"
    assert kind("new/arrow/sub") == arrow.FileType.Directory
    yield below("new")
    fs.delete_dir_contents(f"{bucket}/new/marked")
    assert kind("new/marked") == arrow.FileType.Directory
    yield below("new")
    fs.delete_dir(f"{bucket}/new/arrow")
    fs.delete_file(f"{bucket}/new/copied")
    assert kind("new/arrow") == kind("new/copied") == arrow.FileType.NotFound
    yield below("new")
    fs.delete_dir(f"{bucket}/new")
    assert kind("new") == arrow.FileType.NotFound


def in_both_kinds(server, boto, make_bucket, program):
    """Has a program do the same in a bucket of each kind, each with a folder that another program has made; what it
    shows is the same."""
    shown = []
    for kind in ("objects", "files"):
        bucket = make_bucket(kind)
        for key in ("new/hollow/", "new/marked/"):
            boto.put_object(Bucket=bucket, Key=key, Body=b"", ContentType="application/x-directory")
        shown.append(list(program(server, bucket)))
    assert shown[0] == shown[1]


def test_s3fs_makes_and_removes_directories_in_both_kinds(server, boto, make_bucket):
    in_both_kinds(server, boto, make_bucket, in_s3fs)


@pytest.mark.skipif(not os.environ.get("CAIRN_TEST_ARROW"), reason="large: tests/run --long folders")
def test_pyarrow_makes_and_removes_directories_in_both_kinds(server, boto, make_bucket):
    in_both_kinds(server, boto, make_bucket, in_arrow)


def test_a_key_that_no_file_can_have_is_refused_with_the_kind(boto, make_bucket):
    at = {"Bucket": make_bucket("files")}
    boto.put_object(**at, Key="a", Body=b"")
    boto.put_object(**at, Key="d/", Body=b"")
    for code, key, body in [
        ("InvalidArgument", "d/", b"bytes"),
        ("InvalidArgument", "x//y", b""),
        ("InvalidArgument", "x//", b""),
        ("KeyConflict", "a/b", b""),
        ("KeyConflict", "a/", b""),
        ("KeyConflict", "d", b""),
    ]:
        error = refused(code, boto.put_object, **at, Key=key, Body=body)
        assert "is of kind files" in error["Message"] and "--kind objects" in error["Message"]
    refused("InvalidArgument", boto.create_multipart_upload, **at, Key="d/")
    assert listed(boto, at["Bucket"]) == (["a", "d/"], [])


def test_an_empty_object_of_parts_is_copied_to_a_directory():
    with Server() as server:
        boto = connect(server.s3)
        Http(server.http).create_bucket("files")
        at = {"Bucket": "files", "Key": "empty"}
        begun = boto.create_multipart_upload(**at, Metadata={"mode": "16877"})["UploadId"]
        etag = boto.upload_part(**at, UploadId=begun, PartNumber=1, Body=b"")["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        boto.complete_multipart_upload(**at, UploadId=begun, MultipartUpload=parts)
        for key in ("dir/", "dir/"):
            boto.copy_object(Bucket="files", Key=key, CopySource={**at})
            found = boto.head_object(Bucket="files", Key=key)
            assert (found["ContentLength"], found["Metadata"]) == (0, {"mode": "16877"})
            assert boto.get_object(Bucket="files", Key=key)["Body"].read() == b""
        boto.put_object(Bucket="files", Key="dir/file", Body=b"1")
        assert listed(boto, "files") == (["dir/", "dir/file", "empty"], [])
        assert boto.get_object(**at)["Body"].read() == b""
        # The directory holds nothing of the body that the object has.
        server.kill()
        assert server.fsck()[0] == 0
