"""boto3, unchanged; what it wrote is read through the HTTP door wherever bytes matter."""

import base64
import hashlib
import http.client
import io
import os
import re
import socket
import urllib.parse
import zlib

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from harness.doors import S3, Http
from harness.server import KEY, REGION, SECRET, Server
from harness.wait import PATIENCE_SECONDS

MIB = 1 << 20


def connect(url, style="path", credentials=(KEY, SECRET), **config):
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=credentials[0],
        aws_secret_access_key=credentials[1],
        config=Config(s3={"addressing_style": style}, retries={"total_max_attempts": 1}, **config),
    )


@pytest.fixture
def boto(server):
    return connect(server.s3, signature_version="s3v4")


def refused(code, call, **arguments):
    """The call must fail with this error code; returns the whole error."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] == code, caught.value
    return caught.value.response


def content(name, size):
    return hashlib.shake_256(name.encode()).digest(size)


def digest_of(algorithm, data):
    """The header value of a checksum, by means independent of botocore where there are any."""
    if algorithm == "CRC32":
        raw = zlib.crc32(data).to_bytes(4, "big")
    elif algorithm in ("CRC32C", "CRC64NVME"):
        from awscrt import checksums

        function, size = {
            "CRC32C": (checksums.crc32c, 4),
            "CRC64NVME": (checksums.crc64nvme, 8),
        }[algorithm]
        raw = function(data).to_bytes(size, "big")
    elif algorithm.startswith("XXHASH"):
        from awscrt.checksums import XXHash

        made = {"XXHASH64": XXHash.new_xxhash64, "XXHASH3": XXHash.new_xxhash3_64,
                "XXHASH128": XXHash.new_xxhash3_128}[algorithm]()
        made.update(data)
        raw = made.finalize()
    else:
        raw = hashlib.new(algorithm.lower(), data).digest()
    return base64.b64encode(raw).decode()


ALGORITHMS = [
    "CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "SHA512", "MD5", "XXHASH64", "XXHASH3", "XXHASH128",
]


# ---------------------------------------------------------------- buckets


def test_buckets(boto):
    boto.create_bucket(Bucket="life-of-a-bucket")
    boto.head_bucket(Bucket="life-of-a-bucket")
    assert "life-of-a-bucket" in [b["Name"] for b in boto.list_buckets()["Buckets"]]
    assert boto.get_bucket_location(Bucket="life-of-a-bucket")["LocationConstraint"] is None
    boto.put_object(Bucket="life-of-a-bucket", Key="k", Body=b"x")
    refused("BucketNotEmpty", boto.delete_bucket, Bucket="life-of-a-bucket")
    boto.delete_object(Bucket="life-of-a-bucket", Key="k")
    boto.delete_bucket(Bucket="life-of-a-bucket")
    refused("404", boto.head_bucket, Bucket="life-of-a-bucket")
    refused("NoSuchBucket", boto.list_objects_v2, Bucket="life-of-a-bucket")
    refused("NoSuchBucket", boto.put_object, Bucket="life-of-a-bucket", Key="k", Body=b"x")
    refused("InvalidBucketName", boto.create_bucket, Bucket="Upper.Case")


def test_a_bucket_made_twice(boto, bucket):
    # As in us-east-1: the owner may create it again; nothing in it changes.
    boto.put_object(Bucket=bucket, Key="k", Body=b"x")
    boto.create_bucket(Bucket=bucket)
    refused("BucketAlreadyOwnedByYou", boto.create_bucket, Bucket=bucket, ACL="public-read")
    assert boto.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


# ---------------------------------------------------------------- objects


def test_put_get_head_delete(boto, bucket, http):
    data = content("object", 100_000)
    put = boto.put_object(
        Bucket=bucket,
        Key="k",
        Body=data,
        Metadata={"color": "blue", "empty": ""},
        ContentType="text/x-test",
        CacheControl="max-age=7",
        ContentDisposition="attachment",
        ContentEncoding="identity",
        ContentLanguage="de",
    )
    assert put["ETag"] == f'"{hashlib.md5(data).hexdigest()}"'
    got = boto.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == data
    for reply in (got, boto.head_object(Bucket=bucket, Key="k")):
        assert reply["ETag"] == put["ETag"]
        assert reply["ContentLength"] == len(data)
        assert reply["Metadata"] == {"color": "blue", "empty": ""}
        assert reply["ContentType"] == "text/x-test"
        assert reply["CacheControl"] == "max-age=7"
        assert reply["ContentDisposition"] == "attachment"
        assert reply["ContentLanguage"] == "de"
        assert reply["AcceptRanges"] == "bytes"
    through_http = http.object("GET", bucket, "k")
    assert through_http.body == data
    assert through_http.headers["Content-Type"] == "text/x-test"
    boto.delete_object(Bucket=bucket, Key="k")
    boto.delete_object(Bucket=bucket, Key="k")
    refused("NoSuchKey", boto.get_object, Bucket=bucket, Key="k")
    refused("404", boto.head_object, Bucket=bucket, Key="k")


@pytest.mark.parametrize("size", [0, 1, 4095, 65_536, 131_073, 4 * MIB, 4 * MIB + 1, 9 * MIB])
def test_every_size_comes_back(boto, bucket, http, size):
    data = content("size", size)
    boto.put_object(Bucket=bucket, Key="k", Body=data)
    assert boto.get_object(Bucket=bucket, Key="k")["Body"].read() == data
    assert http.object("GET", bucket, "k").body == data


def test_ranges(boto, bucket):
    data = content("range", 5 * MIB + 17)
    boto.put_object(Bucket=bucket, Key="k", Body=data)
    size = len(data)
    spans = [(0, 0), (0, size - 1), (4 * MIB - 1, 4 * MIB), (4095, 4097), (size - 1, size - 1)]
    for first, last in spans:
        reply = boto.get_object(Bucket=bucket, Key="k", Range=f"bytes={first}-{last}")
        assert reply["Body"].read() == data[first : last + 1]
        assert reply["ContentRange"] == f"bytes {first}-{last}/{size}"
    assert boto.get_object(Bucket=bucket, Key="k", Range="bytes=-5")["Body"].read() == data[-5:]
    tail = boto.get_object(Bucket=bucket, Key="k", Range=f"bytes={size - 3}-{size + 100}")
    assert tail["Body"].read() == data[-3:]
    refused("InvalidRange", boto.get_object, Bucket=bucket, Key="k", Range=f"bytes={size}-")


def test_conditional_reads_and_response_overrides(boto, bucket):
    etag = boto.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    modified = boto.head_object(Bucket=bucket, Key="k")["LastModified"]
    get = boto.get_object
    assert get(Bucket=bucket, Key="k", IfMatch=etag)["Body"].read() == b"x"
    refused("PreconditionFailed", get, Bucket=bucket, Key="k", IfMatch='"no"')
    refused("304", get, Bucket=bucket, Key="k", IfNoneMatch=etag)
    refused("304", get, Bucket=bucket, Key="k", IfModifiedSince=modified)
    early = modified.replace(year=2001)
    refused("PreconditionFailed", get, Bucket=bucket, Key="k", IfUnmodifiedSince=early)
    reply = get(
        Bucket=bucket,
        Key="k",
        ResponseContentType="text/override",
        ResponseContentDisposition="attachment; filename=f",
        ResponseCacheControl="no-store",
    )
    assert reply["ContentType"] == "text/override"
    assert reply["ContentDisposition"] == "attachment; filename=f"
    assert reply["CacheControl"] == "no-store"


def test_conditional_writes(boto, bucket, http):
    put = boto.put_object
    refused("NoSuchKey", put, Bucket=bucket, Key="k", Body=b"0", IfMatch='"no"')
    first = put(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    refused("PreconditionFailed", put, Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")
    refused("PreconditionFailed", put, Bucket=bucket, Key="k", Body=b"2", IfMatch='"no"')
    assert http.object("GET", bucket, "k").body == b"1"
    put(Bucket=bucket, Key="k", Body=b"2", IfMatch=first)
    assert http.object("GET", bucket, "k").body == b"2"
    refused("PreconditionFailed", put, Bucket=bucket, Key="k", Body=b"3", IfMatch=first)
    upload = boto.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    named = {"Bucket": bucket, "Key": "k", "UploadId": upload}
    part = boto.upload_part(**named, PartNumber=1, Body=b"part")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    complete = boto.complete_multipart_upload
    refused("PreconditionFailed", complete, **named, MultipartUpload=parts, IfNoneMatch="*")
    assert http.object("GET", bucket, "k").body == b"2"
    complete(**named, MultipartUpload=parts)
    assert http.object("GET", bucket, "k").body == b"part"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_checksums_are_verified_stored_and_returned(boto, bucket, http, algorithm):
    data = content(algorithm, 200_000)
    field, value = f"Checksum{algorithm}", digest_of(algorithm, data)
    put = boto.put_object(Bucket=bucket, Key="sent", Body=data, **{field: value})
    assert put[field] == value
    # botocore computes no MD5.
    made = {field: value} if algorithm == "MD5" else {"ChecksumAlgorithm": algorithm}
    trailer = boto.put_object(Bucket=bucket, Key="trailer", Body=io.BytesIO(data), **made)
    assert trailer[field] == value
    for key in ("sent", "trailer"):
        head = boto.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        assert head[field] == value
        assert boto.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")[field] == value
        assert field not in boto.head_object(Bucket=bucket, Key=key)
        attributes = boto.get_object_attributes(
            Bucket=bucket, Key=key, ObjectAttributes=["Checksum", "ETag", "ObjectSize"]
        )
        assert attributes["Checksum"][field] == value
        assert attributes["ObjectSize"] == len(data)
        assert http.object("GET", bucket, key).body == data
    wrong = {field: digest_of(algorithm, b"something else")}
    error = refused("BadDigest", boto.put_object, Bucket=bucket, Key="sent", Body=b"new", **wrong)
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert http.object("GET", bucket, "sent").body == data
    copied = boto.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/sent")
    assert copied["CopyObjectResult"].get(field) == value


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_checksums_of_parts(boto, bucket, http, algorithm):
    named = {"Bucket": bucket, "Key": "k"}
    made = boto.create_multipart_upload(**named, ChecksumAlgorithm=algorithm)
    assert made["ChecksumAlgorithm"] == algorithm
    named["UploadId"] = made["UploadId"]
    field = f"Checksum{algorithm}"
    pieces, parts = [content("p1" + algorithm, 5 * MIB), content("p2", 1000)], []
    for number, piece in enumerate(pieces, 1):
        sent = {field: digest_of(algorithm, piece)}
        part = boto.upload_part(**named, PartNumber=number, Body=piece, **sent)
        assert part[field] == sent[field]
        parts.append({"PartNumber": number, "ETag": part["ETag"], **sent})
    bad = {field: digest_of(algorithm, b"no")}
    refused("BadDigest", boto.upload_part, **named, PartNumber=3, Body=b"3", **bad)
    done = boto.complete_multipart_upload(**named, MultipartUpload={"Parts": parts})
    whole = b"".join(pieces)
    if algorithm == "CRC64NVME":  # AWS: of the full object, always
        assert done[field] == digest_of(algorithm, whole)
    else:
        raw = b"".join(base64.b64decode(p[field]) for p in parts)
        assert done[field] == digest_of(algorithm, raw) + "-2"
    # botocore compares the bytes with the checksum of the part.
    got = boto.get_object(Bucket=bucket, Key="k", PartNumber=2, ChecksumMode="ENABLED")
    assert (got[field], got["ChecksumType"]) == (parts[1][field], done["ChecksumType"])
    assert got["Body"].read() == pieces[1]
    assert http.object("GET", bucket, "k").body == whole
    # Once bytes were added, it is no object of these parts any more.
    assert http.request("POST", f"/storage/{bucket}/k?append", b"more\n").status in (200, 201, 204)
    head = boto.head_object(Bucket=bucket, Key="k", PartNumber=1, ChecksumMode="ENABLED")
    assert field not in head and head["ContentLength"] == len(whole) + 5


def test_content_md5(boto, bucket, http):
    good = base64.b64encode(hashlib.md5(b"body").digest()).decode()
    boto.put_object(Bucket=bucket, Key="k", Body=b"body", ContentMD5=good)
    put = boto.put_object
    refused("BadDigest", put, Bucket=bucket, Key="k", Body=b"other", ContentMD5=good)
    refused("InvalidDigest", put, Bucket=bucket, Key="k", Body=b"body", ContentMD5="nonsense")
    assert http.object("GET", bucket, "k").body == b"body"


def test_anonymous_reads_of_a_public_bucket(server, http, boto):
    http.create_bucket("public-one", "public")
    boto.put_object(Bucket="public-one", Key="a/b", Body=b"x")
    nobody = S3(server.s3, credentials=None)
    assert nobody.object("GET", "public-one", "a/b").body == b"x"
    assert nobody.object("HEAD", "public-one", "a/b").status == 200
    assert nobody.object("PUT", "public-one", "a/b", body=b"y").status == 403
    assert nobody.object("DELETE", "public-one", "a/b").status == 403
    assert nobody.request("GET", "/").status == 403
    assert boto.get_object(Bucket="public-one", Key="a/b")["Body"].read() == b"x"


# ---------------------------------------------------------------- copies, deletes, tags


def test_copy(boto, bucket, http):
    data = content("copy", 6 * MIB)
    boto.put_object(Bucket=bucket, Key="from é+%20", Body=data, Metadata={"a": "1"})
    source = {"Bucket": bucket, "Key": "from é+%20"}
    boto.copy_object(Bucket=bucket, Key="to", CopySource=source)
    assert boto.head_object(Bucket=bucket, Key="to")["Metadata"] == {"a": "1"}
    boto.copy_object(
        Bucket=bucket,
        Key="to",
        CopySource=source,
        MetadataDirective="REPLACE",
        Metadata={"b": "2"},
        ContentType="text/replaced",
    )
    head = boto.head_object(Bucket=bucket, Key="to")
    assert head["Metadata"] == {"b": "2"} and head["ContentType"] == "text/replaced"
    boto.put_object(Bucket=bucket, Key="from é+%20", Body=b"changed")
    boto.delete_object(Bucket=bucket, Key="from é+%20")
    assert http.object("GET", bucket, "to").body == data
    boto.create_bucket(Bucket=bucket + "-other")
    boto.copy({"Bucket": bucket, "Key": "to"}, bucket + "-other", "across")
    assert http.object("GET", bucket + "-other", "across").body == data
    copy = boto.copy_object
    refused("NoSuchKey", copy, Bucket=bucket, Key="x", CopySource=f"{bucket}/absent")
    refused("InvalidRequest", copy, Bucket=bucket, Key="to", CopySource=f"{bucket}/to")
    etag = boto.head_object(Bucket=bucket, Key="to")["ETag"]
    named = {"Bucket": bucket, "Key": "x", "CopySource": f"{bucket}/to"}
    refused("PreconditionFailed", copy, **named, CopySourceIfNoneMatch=etag)
    refused("PreconditionFailed", copy, **named, CopySourceIfMatch='"no"')
    copy(**named, CopySourceIfMatch=etag)


def test_delete_objects(boto, bucket):
    keys = [f"d/{n}" for n in range(1000)] + ["a", "a/b", "a//b", "sp ace", "é&<>\"'"]
    for key in keys[::100] + keys[1000:]:
        boto.put_object(Bucket=bucket, Key=key, Body=b"")
    some = [{"Key": key} for key in keys[:1000]]
    assert len(boto.delete_objects(Bucket=bucket, Delete={"Objects": some})["Deleted"]) == 1000
    rest = {"Objects": [{"Key": key} for key in keys[1000:]], "Quiet": True}
    reply = boto.delete_objects(Bucket=bucket, Delete=rest)
    assert "Deleted" not in reply and "Errors" not in reply
    assert "Contents" not in boto.list_objects_v2(Bucket=bucket)
    too_many = {"Objects": [{"Key": key} for key in keys[:1001]]}
    refused("MalformedXML", boto.delete_objects, Bucket=bucket, Delete=too_many)


def test_tagging(boto, bucket):
    tags = [{"Key": "team", "Value": "blue + green = /_.:@-"}, {"Key": "é", "Value": ""}]
    boto.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="from=put")
    named = {"Bucket": bucket, "Key": "k"}
    assert boto.get_object_tagging(**named)["TagSet"] == [{"Key": "from", "Value": "put"}]
    assert boto.head_object(**named).get("TagCount", 1) == 1
    boto.put_object_tagging(**named, Tagging={"TagSet": tags})
    found = boto.get_object_tagging(**named)["TagSet"]
    assert sorted(found, key=str) == sorted(tags, key=str)
    boto.delete_object_tagging(**named)
    assert boto.get_object_tagging(**named)["TagSet"] == []
    refused("NoSuchTagSet", boto.get_bucket_tagging, Bucket=bucket)
    boto.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags[:1]})
    assert boto.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags[:1]
    boto.delete_bucket_tagging(Bucket=bucket)
    eleven = {"TagSet": [{"Key": str(n), "Value": ""} for n in range(11)]}
    error = refused_any(boto.put_object_tagging, **named, Tagging=eleven)
    assert error in ("BadRequest", "InvalidTag")


def refused_any(call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"]


# ---------------------------------------------------------------- multipart


def test_multipart_with_the_transfer_manager(boto, bucket, http, tmp_path):
    data = content("managed", 40 * MIB + 123)
    (tmp_path / "in").write_bytes(data)
    boto.upload_file(str(tmp_path / "in"), bucket, "k")
    assert http.object("GET", bucket, "k").body == data
    boto.download_file(bucket, "k", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == data


def test_multipart_by_hand(boto, bucket, http):
    named = {"Bucket": bucket, "Key": "k"}
    made = boto.create_multipart_upload(**named, Metadata={"m": "1"}, ContentType="text/parts")
    upload = {**named, "UploadId": made["UploadId"]}
    pieces = {1: content("one", 5 * MIB), 2: content("two", 6 * MIB), 7: content("seven", 10)}
    etags = {}
    for number in (7, 2, 1):
        boto.upload_part(**upload, PartNumber=number, Body=content("replaced", 100))
        etags[number] = boto.upload_part(**upload, PartNumber=number, Body=pieces[number])["ETag"]
    boto.upload_part(**upload, PartNumber=9, Body=b"never used")
    listed = boto.list_parts(**upload)
    assert [p["PartNumber"] for p in listed["Parts"]] == [1, 2, 7, 9]
    page = boto.list_parts(**upload, MaxParts=2)
    assert page["IsTruncated"] and page["NextPartNumberMarker"] == 2
    rest = boto.list_parts(**upload, PartNumberMarker=2)["Parts"]
    assert [p["PartNumber"] for p in rest] == [7, 9]
    uploads = boto.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [(u["Key"], u["UploadId"]) for u in uploads] == [("k", made["UploadId"])]
    assert http.object("GET", bucket, "k").status == 404

    parts = [{"PartNumber": n, "ETag": etags[n]} for n in (1, 2, 7)]
    complete = boto.complete_multipart_upload
    disordered = {"Parts": parts[::-1]}
    refused("InvalidPartOrder", complete, **upload, MultipartUpload=disordered)
    unknown = {"Parts": parts[:1] + [{"PartNumber": 3, "ETag": etags[2]}]}
    refused("InvalidPart", complete, **upload, MultipartUpload=unknown)
    wrong = {"Parts": [{"PartNumber": 1, "ETag": etags[2]}]}
    refused("InvalidPart", complete, **upload, MultipartUpload=wrong)
    small = {"Parts": [{"PartNumber": n, "ETag": etags[n]} for n in (1, 2)] + [parts[2]]}
    done = complete(**upload, MultipartUpload=small)
    md5s = b"".join(hashlib.md5(pieces[n]).digest() for n in (1, 2, 7))
    assert done["ETag"] == f'"{hashlib.md5(md5s).hexdigest()}-3"'
    whole = b"".join(pieces[n] for n in (1, 2, 7))
    assert http.object("GET", bucket, "k").body == whole

    head = boto.head_object(**named)
    assert head["Metadata"] == {"m": "1"} and head["ContentType"] == "text/parts"
    second = boto.get_object(**named, PartNumber=2)
    assert second["PartsCount"] == 3 and second["Body"].read() == pieces[2]
    assert "Uploads" not in boto.list_multipart_uploads(Bucket=bucket)
    attributes = boto.get_object_attributes(
        **named, ObjectAttributes=["ETag", "ObjectSize", "ObjectParts", "StorageClass"]
    )
    assert attributes["ObjectParts"]["TotalPartsCount"] == 3
    assert attributes["ObjectSize"] == len(whole)
    refused("NoSuchUpload", boto.upload_part, **upload, PartNumber=1, Body=b"late")
    again = boto.abort_multipart_upload
    try:
        again(**upload)
    except ClientError as error:
        assert error.response["Error"]["Code"] == "NoSuchUpload"


def test_multipart_refusals(boto, bucket, http):
    named = {"Bucket": bucket, "Key": "k"}
    upload = {**named, "UploadId": boto.create_multipart_upload(**named)["UploadId"]}
    small = boto.upload_part(**upload, PartNumber=1, Body=b"too small")["ETag"]
    last = boto.upload_part(**upload, PartNumber=2, Body=b"last")["ETag"]
    parts = [{"PartNumber": 1, "ETag": small}, {"PartNumber": 2, "ETag": last}]
    complete = boto.complete_multipart_upload
    refused("EntityTooSmall", complete, **upload, MultipartUpload={"Parts": parts})
    refused("InvalidArgument", boto.upload_part, **upload, PartNumber=0, Body=b"")
    refused("InvalidArgument", boto.upload_part, **upload, PartNumber=10_001, Body=b"")
    boto.upload_part(**upload, PartNumber=10_000, Body=b"the highest")
    nowhere = {**named, "UploadId": "no-such-upload"}
    refused("NoSuchUpload", boto.upload_part, **nowhere, PartNumber=1, Body=b"x")
    refused("NoSuchUpload", boto.list_parts, **nowhere)
    boto.abort_multipart_upload(**upload)
    refused("NoSuchUpload", complete, **upload, MultipartUpload={"Parts": parts})
    assert http.object("GET", bucket, "k").status == 404


def test_upload_part_copy(boto, bucket, http):
    data = content("source", 12 * MIB)
    boto.put_object(Bucket=bucket, Key="source", Body=data)
    named = {"Bucket": bucket, "Key": "k"}
    upload = {**named, "UploadId": boto.create_multipart_upload(**named)["UploadId"]}
    spans, parts = [(1, 6 * MIB), (6 * MIB + 7, 12 * MIB - 1)], []
    for number, (first, last) in enumerate(spans, 1):
        part = boto.upload_part_copy(
            **upload,
            PartNumber=number,
            CopySource={"Bucket": bucket, "Key": "source"},
            CopySourceRange=f"bytes={first}-{last}",
        )["CopyPartResult"]
        # No bytes are moved, so no MD5 is known; then the ETag must not look like one.
        md5 = hashlib.md5(data[first : last + 1]).hexdigest()
        assert md5 in part["ETag"] or not re.fullmatch('"[0-9a-f]{32}"', part["ETag"])
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    boto.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    boto.delete_object(Bucket=bucket, Key="source")
    expected = b"".join(data[first : last + 1] for first, last in spans)
    assert http.object("GET", bucket, "k").body == expected


# ---------------------------------------------------------------- listings

KEYS = ["a", "a-", "a-/x", "a.", "a/", "a//b", "a/b", "a/b/c", "a0", "b/../c", "b/./c", "b/.", "é",
        "\U0001f5fb", "z/" + "k" * 1000, "%41", "+", " ", "x\ny", "q/" * 100 + "leaf"]  # fmt: skip


@pytest.fixture
def listing(boto, bucket):
    for key in KEYS:
        boto.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


def in_byte_order(keys):
    return sorted(keys, key=lambda key: key.encode())


@pytest.mark.parametrize("page", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("version", ["list_objects", "list_objects_v2"])
def test_listing_is_complete_and_in_byte_order(boto, listing, version, page):
    pages = boto.get_paginator(version).paginate(Bucket=listing, PaginationConfig={"PageSize": page})
    found = [entry["Key"] for p in pages for entry in p.get("Contents", [])]
    assert found == in_byte_order(KEYS)


@pytest.mark.parametrize("page", [1, 2, 1000])
@pytest.mark.parametrize("prefix", ["", "a", "a/", "a//", "b/", "q/q/", "none", "é"])
def test_listing_with_delimiter(boto, listing, prefix, page):
    expected = []
    for key in in_byte_order(KEYS):
        if key.startswith(prefix):
            head, slash, _ = key[len(prefix) :].partition("/")
            item = (prefix + head + "/", True) if slash else (key, False)
            if item not in expected:
                expected.append(item)
    pages = boto.get_paginator("list_objects_v2").paginate(
        Bucket=listing, Prefix=prefix, Delimiter="/", PaginationConfig={"PageSize": page}
    )
    found = []
    for reply in pages:
        items = [(entry["Key"], False) for entry in reply.get("Contents", [])]
        items += [(entry["Prefix"], True) for entry in reply.get("CommonPrefixes", [])]
        assert len(items) <= page and reply["KeyCount"] == len(items)
        found += sorted(items, key=lambda item: item[0].encode())
    assert found == expected


def test_listing_starts_after_any_key(boto, listing):
    for after in [*KEYS, "", "a/a", "zzz", "a/b/"]:
        reply = boto.list_objects_v2(Bucket=listing, StartAfter=after)
        found = [entry["Key"] for entry in reply.get("Contents", [])]
        bound = after.encode()
        assert found == [k for k in in_byte_order(KEYS) if k.encode() > bound], after


def test_listing_with_another_delimiter(boto, listing):
    reply = boto.list_objects_v2(Bucket=listing, Delimiter="b")
    prefixes = [entry["Prefix"] for entry in reply["CommonPrefixes"]]
    assert prefixes == in_byte_order({k[: k.index("b") + 1] for k in KEYS if "b" in k})


def test_listing_says_what_an_object_is(boto, bucket):
    put = boto.put_object(Bucket=bucket, Key="k", Body=b"12345")
    (entry,) = boto.list_objects_v2(Bucket=bucket, FetchOwner=True)["Contents"]
    assert entry["Size"] == 5 and entry["ETag"] == put["ETag"]
    assert entry["StorageClass"] == "STANDARD" and entry["Owner"]["ID"]
    empty = boto.list_objects_v2(Bucket=bucket, MaxKeys=0)
    assert empty["KeyCount"] == 0 and not empty["IsTruncated"]


def test_every_hostile_key_reads_back_and_is_deleted(boto, listing, http):
    for key in KEYS:
        assert boto.get_object(Bucket=listing, Key=key)["Body"].read() == key.encode()
    for key in KEYS:
        boto.delete_object(Bucket=listing, Key=key)
    assert "Contents" not in boto.list_objects_v2(Bucket=listing)
    boto.delete_bucket(Bucket=listing)


def test_keys_that_are_refused(boto, bucket):
    refused("KeyTooLongError", boto.put_object, Bucket=bucket, Key="k" * 1025, Body=b"")
    refused("KeyTooLongError", boto.put_object, Bucket=bucket, Key="é" * 513, Body=b"")
    boto.put_object(Bucket=bucket, Key="k" * 1024, Body=b"x")
    assert refused_any(boto.put_object, Bucket=bucket, Key="nul\0", Body=b"")
    assert boto.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


def test_a_posix_bucket_refuses_a_beside_a_slash_b(boto, http):
    http.create_bucket("posix-kind")
    boto.put_object(Bucket="posix-kind", Key="a", Body=b"1")
    with pytest.raises(ClientError) as caught:
        boto.put_object(Bucket="posix-kind", Key="a/b", Body=b"2")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 409
    assert [e["Key"] for e in boto.list_objects_v2(Bucket="posix-kind")["Contents"]] == ["a"]


# ---------------------------------------------------------------- presigned, styles, absent


def curl(method, url, body=None, headers=None):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS)
    connection.request(method, f"{parts.path}?{parts.query}", body, headers or {})
    response = connection.getresponse()
    return response.status, response.read()


@pytest.mark.parametrize("signature", ["s3v4", "s3"])
def test_presigned_urls(server, bucket, signature):
    # "s3" (version 2) is what boto3 and aws-cli 1 make by default in us-east-1.
    boto = connect(server.s3, signature_version=signature)
    params = {"Bucket": bucket, "Key": "pre signed+é"}
    put = boto.generate_presigned_url("put_object", params, ExpiresIn=60)
    assert curl("PUT", put, b"by url")[0] == 200
    get = boto.generate_presigned_url("get_object", params, ExpiresIn=60)
    assert curl("GET", get) == (200, b"by url")
    assert curl("PUT", get, b"no")[0] == 403
    assert curl("GET", get.replace("pre", "prf"))[0] == 403
    named = {**params, "ResponseContentType": "text/overridden"}
    url = boto.generate_presigned_url("get_object", named, ExpiresIn=60)
    assert curl("GET", url)[0] == 200
    assert curl("GET", url.replace("overridden", "forged"))[0] == 403
    delete = boto.generate_presigned_url("delete_object", params, ExpiresIn=60)
    assert curl("DELETE", delete)[0] == 204
    assert curl("GET", get)[0] == 404


def test_virtual_host_style(monkeypatch):
    resolve = socket.getaddrinfo  # not every libc knows *.localhost

    def local(host, *rest, **options):
        return resolve("127.0.0.1" if host.endswith(".localhost") else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local)
    with Server(args=["--domain", "localhost"]) as server:
        port = urllib.parse.urlsplit(server.s3).port
        boto = connect(f"http://localhost:{port}", style="virtual")
        boto.create_bucket(Bucket="hosted.bucket")
        boto.create_bucket(Bucket="hosted")
        seen = []
        boto.meta.events.register("before-send.s3", lambda request, **_: seen.append(request.url))
        boto.put_object(Bucket="hosted", Key="dir/ké y", Body=b"virtual")
        assert seen[-1].startswith(f"http://hosted.localhost:{port}/dir/")
        assert boto.get_object(Bucket="hosted", Key="dir/ké y")["Body"].read() == b"virtual"
        assert boto.list_objects_v2(Bucket="hosted")["KeyCount"] == 1
        path = connect(server.s3)
        assert path.get_object(Bucket="hosted", Key="dir/ké y")["Body"].read() == b"virtual"
        assert Http(server.http).object("GET", "hosted", "dir/ké y").body == b"virtual"
        url = boto.generate_presigned_url("get_object", {"Bucket": "hosted", "Key": "dir/ké y"})
        assert curl("GET", url)[0] == 200


def test_wrong_credentials(server, bucket):
    bad_secret = connect(server.s3, credentials=(KEY, "wrong"))
    refused("SignatureDoesNotMatch", bad_secret.list_objects_v2, Bucket=bucket)
    bad_key = connect(server.s3, credentials=("AKIANOBODY", SECRET))
    refused("InvalidAccessKeyId", bad_key.list_objects_v2, Bucket=bucket)


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "Enabled"}}),
        ("put_bucket_policy", {"Policy": "{}"}),
        ("put_bucket_encryption", {"ServerSideEncryptionConfiguration": {"Rules": [
            {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}}),
        ("put_object_acl", {"Key": "k", "ACL": "public-read"}),
        ("select_object_content", {"Key": "k", "Expression": "*", "ExpressionType": "SQL",
            "InputSerialization": {"CSV": {}}, "OutputSerialization": {"CSV": {}}}),
        ("restore_object", {"Key": "k", "RestoreRequest": {"Days": 1}}),
    ],
)  # fmt: skip
def test_what_is_not_there_says_so(boto, bucket, name, arguments):
    boto.put_object(Bucket=bucket, Key="k", Body=b"x")
    error = refused("NotImplemented", getattr(boto, name), Bucket=bucket, **arguments)
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 501


@pytest.mark.parametrize(
    "arguments",
    [
        {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32},
        {"ServerSideEncryption": "aws:kms"},
        {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": "2030-01-01"},
        {"ACL": "public-read"},
        {"WebsiteRedirectLocation": "/elsewhere"},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_headers_whose_promise_is_not_kept_are_refused(server, bucket, arguments, http):
    if "SSECustomerKey" in arguments:  # boto3 refuses to send it without TLS
        key = b"k" * 32
        headers = {
            "x-amz-server-side-encryption-customer-algorithm": "AES256",
            "x-amz-server-side-encryption-customer-key": base64.b64encode(key).decode(),
            "x-amz-server-side-encryption-customer-key-MD5": base64.b64encode(
                hashlib.md5(key).digest()
            ).decode(),
        }
        reply = S3(server.s3).object("PUT", bucket, "k", body=b"x", headers=headers)
        assert (reply.status, reply.code()) == (501, "NotImplemented")
    else:
        put = connect(server.s3).put_object
        refused("NotImplemented", put, Bucket=bucket, Key="k", Body=b"x", **arguments)
    assert http.object("GET", bucket, "k").status == 404


def test_rules_for_pages_go_in_and_out_and_hold_for_presigned_urls(boto, bucket):
    refused("NoSuchCORSConfiguration", boto.get_bucket_cors, Bucket=bucket)
    rules = [
        {
            "ID": "app",
            "AllowedOrigins": ["https://*.example.com"],
            "AllowedMethods": ["GET", "PUT"],
            "AllowedHeaders": ["*"],
            "ExposeHeaders": ["ETag"],
            "MaxAgeSeconds": 600,
        },
        {"AllowedOrigins": ["*"], "AllowedMethods": ["HEAD"]},
    ]
    boto.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": rules})
    assert boto.get_bucket_cors(Bucket=bucket)["CORSRules"] == rules
    url = boto.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "k"})
    parts = urllib.parse.urlsplit(url)

    def ask(method, headers, body=None):
        connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_SECONDS)
        connection.request(method, f"{parts.path}?{parts.query}", body=body, headers=headers)
        reply = connection.getresponse()
        reply.read()
        connection.close()
        return reply

    page = {"Origin": "https://app.example.com"}
    wanted = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-a"}
    told = ask("OPTIONS", {**page, **wanted})
    assert (told.status, told.headers["Access-Control-Allow-Headers"]) == (200, "x-a")
    put = ask("PUT", page, b"bytes")
    assert (put.status, put.headers["Access-Control-Allow-Origin"]) == (200, page["Origin"])
    assert put.headers["Access-Control-Expose-Headers"] == "ETag" and put.headers["ETag"]
    assert ask("OPTIONS", {"Origin": "https://evil.org", **wanted}).status == 403
    boto.delete_bucket_cors(Bucket=bucket)
    assert ask("OPTIONS", {**page, **wanted}).status == 403


def test_presigned_post_is_not_implemented(server, boto, bucket):
    form = boto.generate_presigned_post(bucket, "posted")
    boundary = "boundary"
    body = b""
    for name, value in {**form["fields"], "file": "content"}.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        body += head.encode()
    body += f"--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    status, text = curl("POST", form["url"], body, headers)
    assert (status, b"NotImplemented" in text) == (501, True), text
    refused("NoSuchKey", boto.get_object, Bucket=bucket, Key="posted")


def test_all_of_it_is_there_after_kill_9(server, boto, bucket, http):
    objects = {f"dir{n % 7}/key-{n}": os.urandom([0, 100, 20_000, 300_000][n % 4]) for n in range(60)}
    for key, data in objects.items():
        boto.put_object(Bucket=bucket, Key=key, Body=data, Metadata={"n": key[-1]}, Tagging="a=b")
    upload = boto.create_multipart_upload(Bucket=bucket, Key="open")["UploadId"]
    named = {"Bucket": bucket, "Key": "open", "UploadId": upload}
    part = boto.upload_part(**named, PartNumber=1, Body=b"before the kill")
    server.restart()
    for key, data in objects.items():
        assert http.object("GET", bucket, key).body == data
        assert boto.head_object(Bucket=bucket, Key=key)["Metadata"] == {"n": key[-1]}
    tags = boto.get_object_tagging(Bucket=bucket, Key="dir0/key-0")["TagSet"]
    assert tags == [{"Key": "a", "Value": "b"}]
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    boto.complete_multipart_upload(**named, MultipartUpload=parts)
    assert http.object("GET", bucket, "open").body == b"before the kill"
