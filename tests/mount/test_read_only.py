"""A bucket and a store that are read-only: every door says so in words, reads go on, and nothing is written after."""

import errno
import json
import os
import subprocess
import threading
import urllib.error

import boto3
import botocore.exceptions
import pytest

from harness.mount import environment
from harness.server import KEY, REGION, SECRET, binary


@pytest.fixture
def s3(store):
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
    return boto3.client("s3", endpoint_url=store.s3, **keys)


def order(store, *words):
    command = [binary(), "read-only", *words, "--server", store.http]
    return subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("whole", [False, True], ids=["bucket", "store"])
def test_every_door_refuses_in_words_and_reads_go_on(store, mounts, s3, whole):
    one, two, door = mounts
    bucket = one.name
    of, new = () if whole else (bucket,), f"new-{whole}"
    place = {"Bucket": bucket, "Key": f"upload-{whole}"}
    (one / "kept.txt").write_bytes(b"kept")
    upload = s3.create_multipart_upload(**place)["UploadId"]
    part = {"UploadId": upload, "PartNumber": 1}
    tag = s3.upload_part(**place, **part, Body=b"x" * 100)["ETag"]
    assert order(store, "show", *of) == "off"

    # A directory that the mount fills on its own meanwhile.
    directory, made, failed = one / f"filled-{whole}", [], []
    directory.mkdir()
    under_way = threading.Event()

    def fill():
        for number in range(1_000_000):
            try:
                (directory / f"{number}").write_bytes(b"%d" % number)
            except OSError as error:
                failed.append(error.errno)
                return
            made.append(number)
            if number == 50:
                under_way.set()

    filling = threading.Thread(target=fill)
    filling.start()
    under_way.wait()
    order(store, "on", *of)
    then = sorted(os.listdir(two / directory.name))
    filling.join()
    assert failed == [errno.EROFS]
    assert sorted(os.listdir(two / directory.name)) == then
    # The last one may have been made, and not written.
    assert {str(number) for number in made} <= set(then) and len(then) <= len(made) + 1

    for change in [
        lambda: (one / new).write_bytes(b"x"),
        lambda: (two / "kept.txt").write_bytes(b"x"),
        lambda: (one / new).mkdir(),
        lambda: (two / "kept.txt").unlink(),
        lambda: (one / "kept.txt").rename(one / "other"),
        lambda: (one / "kept.txt").chmod(0o600),
        lambda: os.setxattr(two / "kept.txt", "user.a", b"1"),
    ]:
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert (one / "kept.txt").read_bytes() == (two / "kept.txt").read_bytes() == b"kept"

    completed = {"MultipartUpload": {"Parts": [{"ETag": tag, "PartNumber": 1}]}}
    changes = [
        lambda: s3.put_object(Bucket=bucket, Key=new, Body=b"x"),
        lambda: s3.delete_object(Bucket=bucket, Key="kept.txt"),
        lambda: s3.put_object_tagging(Bucket=bucket, Key="kept.txt", Tagging={"TagSet": []}),
        lambda: s3.upload_part(**place, **part | {"PartNumber": 2}, Body=b"x"),
        lambda: s3.complete_multipart_upload(**place, UploadId=upload, **completed),
        lambda: s3.abort_multipart_upload(**place, UploadId=upload),
        lambda: s3.delete_bucket(Bucket=bucket),
    ]
    if whole:
        changes.append(lambda: s3.create_bucket(Bucket="another"))
    for change in changes:
        with pytest.raises(botocore.exceptions.ClientError) as refused:
            change()
        said = refused.value.response
        assert said["ResponseMetadata"]["HTTPStatusCode"] == 403 and said["Error"]["Code"] == "AccessDenied"
        assert "takes no changes now" in said["Error"]["Message"], said
    assert s3.get_object(Bucket=bucket, Key="kept.txt")["Body"].read() == b"kept"
    assert len(s3.list_parts(**place, UploadId=upload)["Parts"]) == 1

    for method, key in [("PUT", new), ("POST", "kept.txt?append"), ("DELETE", "kept.txt")]:
        with pytest.raises(urllib.error.HTTPError) as refused:
            door.ask(method, key, b"x")
        assert refused.value.code == 403
        assert json.load(refused.value)["error"] == "read_only"
    assert door.get("kept.txt") == b"kept"

    assert order(store, "show", *of) == "on"
    order(store, "off", *of)
    (one / new).write_bytes(b"x")
    (two / "kept.txt").write_bytes(b"kept")
    s3.complete_multipart_upload(**place, UploadId=upload, **completed)
    assert door.get(place["Key"]) == b"x" * 100
