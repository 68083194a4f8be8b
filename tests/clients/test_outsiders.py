"""What programs of others do that a first test with an SDK does not show: lost answers and second
tries, URLs that boto3 presigns by default, errors that are read closely, questions about features."""

import base64
import hashlib
import http.client
import io
import itertools
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import zlib

import boto3
import pytest
import s3fs
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

from harness.doors import Http
from harness.server import KEY, REGION, SECRET, Server, binary
from harness.wait import PATIENCE_SECONDS

MIB = 1 << 20
made = itertools.count()
PARTS = [b"a" * (5 * MIB), b"b" * MIB]


def connect(url, **config):
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, **config),
    )


@pytest.fixture
def boto(server):
    """As programs make it: without a version of signatures."""
    return connect(server.s3)


def refused(code, call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] == code, caught.value
    return caught.value.response["Error"]


def sha256(data):
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def crc32(data):
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def upload(boto, bucket, key, algorithm, kind=None):
    more = {"ChecksumType": kind} if kind else {}
    begun = boto.create_multipart_upload(
        Bucket=bucket, Key=key, ChecksumAlgorithm=algorithm, **more
    )
    parts = []
    for number, body in enumerate(PARTS, 1):
        put = boto.upload_part(
            Bucket=bucket,
            Key=key,
            UploadId=begun["UploadId"],
            PartNumber=number,
            Body=body,
            ChecksumAlgorithm=algorithm,
        )
        name = f"Checksum{algorithm}"
        parts.append({"PartNumber": number, "ETag": put["ETag"], name: put[name]})
    return {
        "Bucket": bucket,
        "Key": key,
        "UploadId": begun["UploadId"],
        "MultipartUpload": {"Parts": parts},
    }


def test_a_registry_completes_again_when_the_answer_was_lost(boto, bucket):
    named = upload(boto, bucket, "blob", "SHA256")
    one = boto.complete_multipart_upload(**named)
    two = boto.complete_multipart_upload(**named)
    assert (one["ETag"], one["Location"]) == (two["ETag"], two["Location"])
    location = urllib.parse.urlsplit(one["Location"])
    assert (location.scheme, location.path) == ("http", f"/{bucket}/blob")
    other = {"Parts": named["MultipartUpload"]["Parts"][:1]}
    refused("NoSuchUpload", boto.complete_multipart_upload, **{**named, "MultipartUpload": other})
    assert boto.get_object(Bucket=bucket, Key="blob")["Body"].read() == b"".join(PARTS)


def test_a_final_checksum_is_that_of_the_object(boto, bucket):
    whole = b"".join(PARTS)
    sums = base64.b64encode(
        hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in PARTS)).digest()
    ).decode()
    for algorithm, kind, value in [
        ("SHA256", None, sums),
        ("SHA256", None, sums + "-2"),
        ("CRC32", "FULL_OBJECT", crc32(whole)),
    ]:
        named = upload(boto, bucket, "sum", algorithm, kind)
        name = f"Checksum{algorithm}"
        wrong = crc32(b"other") if algorithm == "CRC32" else sha256(b"other")
        refused("BadDigest", boto.complete_multipart_upload, **named, **{name: wrong})
        more = {"ChecksumType": kind, "MpuObjectSize": 6 * MIB} if kind else {}
        done = boto.complete_multipart_upload(**named, **{name: value}, **more)
        assert done[name].split("-")[0] == value.split("-")[0]
    extra = {"ChecksumCRC32": crc32(whole)}
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    boto.upload_fileobj(io.BytesIO(whole), bucket, "file", ExtraArgs=extra, Config=config)
    assert boto.get_object(Bucket=bucket, Key="file")["Body"].read() == whole


def test_copies_get_the_checksums_that_are_asked_for(boto, bucket):
    boto.complete_multipart_upload(**upload(boto, bucket, "src", "SHA256"))
    source = {"Bucket": bucket, "Key": "src"}
    boto.copy_object(Bucket=bucket, Key="copy", CopySource=source)
    head = boto.head_object(Bucket=bucket, Key="copy", ChecksumMode="ENABLED")
    assert head["ChecksumSHA256"] == sha256(b"".join(PARTS))
    for algorithm in ["SHA256", "CRC32", "CRC64NVME"]:
        copied = boto.copy_object(
            Bucket=bucket, Key="c2", CopySource=source, ChecksumAlgorithm=algorithm
        )
        assert f"Checksum{algorithm}" in copied["CopyObjectResult"]
    for threshold in [1 << 30, 5 * MIB]:
        config = TransferConfig(multipart_threshold=threshold, multipart_chunksize=5 * MIB)
        extra = {"ChecksumAlgorithm": "SHA256"}
        boto.copy(source, bucket, "managed", ExtraArgs=extra, Config=config)
        assert boto.get_object(Bucket=bucket, Key="managed")["Body"].read() == b"".join(PARTS)


def send(method, url, headers=None, data=b"bytes"):
    """As curl does: without a content type of its own."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_SECONDS)
    body = data if method == "PUT" else None
    connection.request(method, f"{parts.path}?{parts.query}", body=body, headers=headers or {})
    answer = connection.getresponse()
    got = answer.status, answer.headers, answer.read()
    connection.close()
    return got


def test_urls_as_boto3_presigns_them(boto, bucket):
    def put(key, params, headers, status=200):
        url = boto.generate_presigned_url(
            "put_object", Params={"Bucket": bucket, "Key": key, **params}, ExpiresIn=600
        )
        assert "AWSAccessKeyId" in url, "this botocore signs in another way"
        assert send("PUT", url, headers)[0] == status, key

    put("plain", {}, {})
    put("type", {"ContentType": "text/x-a"}, {"Content-Type": "text/x-a"})
    assert boto.head_object(Bucket=bucket, Key="type")["ContentType"] == "text/x-a"
    put("type", {"ContentType": "text/x-a"}, {"Content-Type": "text/y"}, 403)
    md5 = base64.b64encode(hashlib.md5(b"bytes").digest()).decode()
    put("md5", {"ContentMD5": md5}, {"Content-MD5": md5})
    put("meta", {"Metadata": {"who": "me"}}, {"x-amz-meta-who": "me"})
    assert boto.head_object(Bucket=bucket, Key="meta")["Metadata"] == {"who": "me"}
    put("meta", {"Metadata": {"who": "me"}}, {"x-amz-meta-who": "you"}, 403)
    put("acl", {"ACL": "private"}, {"x-amz-acl": "private"})

    def ask(method, operation, **params):
        params = {"Bucket": bucket, **params}
        return send(method, boto.generate_presigned_url(operation, Params=params, ExpiresIn=600))

    begun = boto.create_multipart_upload(Bucket=bucket, Key="mp")["UploadId"]
    status, headers, _ = ask("PUT", "upload_part", Key="mp", UploadId=begun, PartNumber=1)
    assert status == 200 and "ETag" in headers
    status, _, body = ask("GET", "list_objects_v2", Prefix="p", MaxKeys=5)
    assert status == 200 and b"<Key>plain</Key>" in body
    status, headers, _ = ask("GET", "get_object", Key="plain", ResponseContentType="a/b")
    assert headers["Content-Type"] == "a/b"
    assert ask("DELETE", "delete_object", Key="plain")[0] == 204


def test_s3fs_creates_exclusively(server, boto, bucket):
    fs = s3fs.S3FileSystem(
        key=KEY,
        secret=SECRET,
        client_kwargs={"endpoint_url": server.s3, "region_name": REGION},
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    fs.pipe_file(f"{bucket}/once", b"1", mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{bucket}/once", b"2", mode="create")
    with pytest.raises(FileExistsError):
        with fs.open(f"{bucket}/once", "xb") as file:
            file.write(b"3")
    assert fs.cat_file(f"{bucket}/once") == b"1"
    file = fs.open(f"{bucket}/once", "rb")
    assert file.details["size"] == 1
    boto.put_object(Bucket=bucket, Key="once", Body=b"another one")
    with pytest.raises(OSError) as caught:
        file.read()
    assert type(caught.value).__name__ == "FileExpired", repr(caught.value)


def test_the_kind_of_a_bucket_is_chosen(server, boto):
    environment = {**os.environ, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}

    def cairn(*args):
        command = [binary(), "bucket", *args, "--server", server.http]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    name = f"chosen-{next(made)}"
    assert cairn("create", name, "--kind", "objects").returncode == 0
    boto.put_object(Bucket=name, Key="a", Body=b"")
    boto.put_object(Bucket=name, Key="a/b", Body=b"")
    assert "kind           objects\n" in cairn("stat", name).stdout
    rows = [line.split() for line in cairn("ls").stdout.splitlines()]
    assert rows[0][-1] == "KIND" and [row[-1] for row in rows if row[0] == name] == ["objects"]
    assert cairn("create", f"{name}x", "--kind", "tables").returncode == 2
    reply = Http(server.http).request("PUT", f"/storage/{name}x?kind=tables")
    assert reply.status == 400 and "use files" in reply.json()["message"], reply
    assert Http(server.http).request("PUT", f"/storage/{name}x?kind=files").status == 201
    assert Http(server.http).request("GET", f"/storage/{name}x").json()["kind"] == "files"


def test_programs_that_take_stock(boto, bucket):
    for call, code in [
        ("get_bucket_cors", "NoSuchCORSConfiguration"),
        ("get_bucket_policy", "NoSuchBucketPolicy"),
        ("get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration"),
        ("get_bucket_website", "NoSuchWebsiteConfiguration"),
        ("get_public_access_block", "NoSuchPublicAccessBlockConfiguration"),
        ("get_object_lock_configuration", "ObjectLockConfigurationNotFoundError"),
        ("get_bucket_replication", "ReplicationConfigurationNotFoundError"),
        ("get_bucket_encryption", "ServerSideEncryptionConfigurationNotFoundError"),
    ]:
        refused(code, getattr(boto, call), Bucket=bucket)
    assert "LoggingEnabled" not in boto.get_bucket_logging(Bucket=bucket)
    assert "TopicConfigurations" not in boto.get_bucket_notification_configuration(Bucket=bucket)
    assert "Status" not in boto.get_bucket_accelerate_configuration(Bucket=bucket)
    assert boto.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    boto.put_object(Bucket=bucket, Key="k", Body=b"x")
    versions = boto.list_object_versions(Bucket=bucket)["Versions"]
    assert [(one["Key"], one["VersionId"], one["IsLatest"]) for one in versions] == [
        ("k", "null", True)
    ]
    boto.delete_object(Bucket=bucket, Key="k", VersionId="null")
    boto.create_multipart_upload(Bucket=bucket, Key="left")
    boto.delete_bucket(Bucket=bucket)


def test_forms_and_encryption_are_refused_clearly(boto, bucket):
    form = boto.generate_presigned_post(bucket, "in/${filename}", ExpiresIn=600)
    fields = {**form["fields"], "file": "hello"}
    boundary = "x-boundary"
    body = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    request = urllib.request.Request(
        form["url"],
        data=f"{body}--{boundary}--\r\n".encode(),
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 501 and b"NotImplemented" in caught.value.read()
    url = boto.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "k"})
    status, headers, _ = send("OPTIONS", url, {"Origin": "https://app.example"})
    assert status == 400 and "Access-Control-Allow-Origin" not in headers
    for call, more in [(boto.put_object, {"Body": b"x"}), (boto.create_multipart_upload, {})]:
        told = refused(
            "NotImplemented", call, Bucket=bucket, Key="k", ServerSideEncryption="AES256", **more
        )
        assert "x-amz-server-side-encryption" in told["Message"]
    assert "Contents" not in boto.list_objects_v2(Bucket=bucket)


def test_storage_classes_as_the_switch_says(boto, bucket):
    put = {"Bucket": bucket, "Key": "k", "Body": b"x"}
    refused("InvalidStorageClass", boto.put_object, **put, StorageClass="STANDARD_IA")
    with Server(args=["--s3-storage-classes", "standard"]) as server:
        boto = connect(server.s3)
        boto.create_bucket(Bucket=bucket)
        boto.put_object(**put, StorageClass="STANDARD_IA")
        listed = boto.list_objects_v2(Bucket=bucket)["Contents"]
        assert [one["StorageClass"] for one in listed] == ["STANDARD"]
        assert boto.head_object(Bucket=bucket, Key="k").get("StorageClass") in (None, "STANDARD")
        refused("InvalidStorageClass", boto.put_object, **put, StorageClass="UNHEARD_OF")


def test_features_that_are_asked_for_fill_no_log(boto, bucket):
    with Server() as server:
        boto = connect(server.s3)
        boto.create_bucket(Bucket=bucket)
        for _ in range(20):
            refused("NotImplemented", boto.put_bucket_policy, Bucket=bucket, Policy="{}")
        assert "request failed" not in server.log_path.read_text()
        metrics = Http(server.http).request("GET", "/metrics").body.decode()
        lines = [line for line in metrics.splitlines() if line.startswith("cairn_requests_total{")]
        assert any('status="501"' in line and line.endswith(" 20") for line in lines), lines
        assert not any('status="5xx"' in line for line in lines), lines
