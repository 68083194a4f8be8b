#!/usr/bin/env python3
"""boto3 with Cairn: objects, conditional writes, a large upload in parts, a presigned URL.

To run it, start `cairn server ./data`, install boto3 (Debian: python3-boto3), and set the credentials that were printed:

    export CAIRN_KEY=CK... CAIRN_SECRET=...
    python3 examples/s3.py                  # CAIRN_S3 names another address than http://127.0.0.1:9000

It makes a bucket `example-s3-...`, and deletes it at its end.
"""

import io
import os
import time
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

s3 = boto3.client(
    "s3",
    endpoint_url=os.environ.get("CAIRN_S3", "http://127.0.0.1:9000"),
    aws_access_key_id=os.environ["CAIRN_KEY"],
    aws_secret_access_key=os.environ["CAIRN_SECRET"],
    region_name="us-east-1",  # any will do
)
bucket = f"example-s3-{time.time_ns()}"
s3.create_bucket(Bucket=bucket)

# An object with a type and metadata. When put_object returns, it is on disk.
s3.put_object(Bucket=bucket, Key="notes/hello.txt", Body=b"hello\n", ContentType="text/plain", Metadata={"mood": "fine"})
found = s3.get_object(Bucket=bucket, Key="notes/hello.txt")
assert found["Body"].read() == b"hello\n" and found["Metadata"] == {"mood": "fine"}

# Only one of all who try makes this object: a lock without a lock server.
s3.put_object(Bucket=bucket, Key="lock", Body=b"me", IfNoneMatch="*")
try:
    s3.put_object(Bucket=bucket, Key="lock", Body=b"you", IfNoneMatch="*")
    raise SystemExit("a second writer has made the object again")
except ClientError as error:
    assert error.response["Error"]["Code"] == "PreconditionFailed", error

# Replaced only if nobody else did meanwhile.
etag = s3.head_object(Bucket=bucket, Key="lock")["ETag"]
s3.put_object(Bucket=bucket, Key="lock", Body=b"still me", IfMatch=etag)

# 20 MiB in parts of 5 MiB, four at the same time.
config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=4)
s3.upload_fileobj(io.BytesIO(bytes(20 << 20)), bucket, "large.bin", Config=config)
assert s3.head_object(Bucket=bucket, Key="large.bin")["ContentLength"] == 20 << 20

# A listing, as if keys were paths.
listing = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
assert [entry["Key"] for entry in listing["Contents"]] == ["large.bin", "lock"]
assert [entry["Prefix"] for entry in listing["CommonPrefixes"]] == ["notes/"]

# An address that works for an hour, for somebody without credentials.
url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "notes/hello.txt"}, ExpiresIn=3600)
assert urllib.request.urlopen(url).read() == b"hello\n"

# Cairn has no versions: what is deleted is gone.
for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": entry["Key"]} for entry in page["Contents"]]})
s3.delete_bucket(Bucket=bucket)
print("done")
