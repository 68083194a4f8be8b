"""Users with limits of requests and bytes, as stock clients meet them."""

import hashlib
import http.client
import itertools
import json
import os
import subprocess
import threading
import time
import urllib.parse

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from harness.doors import Http
from harness.server import KEY, REGION, SECRET, binary
from harness.wait import eventually

MIB = 1 << 20
numbers = itertools.count(1)


def cairn(server, *arguments):
    env = {**os.environ, "CAIRN_SERVER": server.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
    done = subprocess.run([binary(), *arguments], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def limited(server, bucket, *limits):
    """The access key of a new user with limits, who may change a bucket."""
    name = f"limited-{next(numbers)}"
    made = json.loads(cairn(server, "key", "create", name, "--json"))
    cairn(server, "bucket", "set", bucket, "--grant", f"{name}:read,write")
    cairn(server, "user", "limit", name, *limits)
    return made["id"], made["secret"]


def client(server, credentials, **retries):
    return boto3.client(
        "s3",
        endpoint_url=server.s3,
        region_name=REGION,
        aws_access_key_id=credentials[0],
        aws_secret_access_key=credentials[1],
        config=Config(s3={"addressing_style": "path"}, retries=retries),
    )


def test_boto_slows_down_when_it_is_asked_to(server, bucket):
    credentials = limited(server, bucket, "--requests", "3")
    once = client(server, credentials, total_max_attempts=1)
    once.put_object(Bucket=bucket, Key="k", Body=b"x")
    with pytest.raises(ClientError) as caught:
        for _ in range(1000):
            once.head_bucket(Bucket=bucket)
            once.get_object(Bucket=bucket, Key="k")
    refused = caught.value.response
    assert refused["ResponseMetadata"]["HTTPStatusCode"] == 503, refused
    assert refused["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1", refused
    with pytest.raises(ClientError) as caught:
        for _ in range(1000):
            once.get_object(Bucket=bucket, Key="k")
    assert caught.value.response["Error"]["Code"] == "SlowDown", caught.value
    # With the retries of boto each request succeeds.
    for mode in ("standard", "legacy"):
        patient, attempts = client(server, credentials, mode=mode, total_max_attempts=20), 0
        for _ in range(1000):
            got = patient.get_object(Bucket=bucket, Key="k")
            assert got["Body"].read() == b"x"
            attempts += got["ResponseMetadata"]["RetryAttempts"]
            if attempts >= 2:
                break
        assert attempts >= 2, mode


def test_bytes_go_at_the_rate_of_a_limit(server, bucket):
    credentials = limited(server, bucket, "--bandwidth", "1m")
    boto = client(server, credentials)
    data = hashlib.shake_256(b"paced").digest(4 * MIB)
    for transfer in (
        lambda: boto.put_object(Bucket=bucket, Key="k", Body=data),
        lambda: boto.get_object(Bucket=bucket, Key="k")["Body"].read(),
    ):
        began = time.monotonic()
        transfer()
        # One of four is there at once.
        assert time.monotonic() - began >= 2
    assert client(server, (KEY, SECRET)).get_object(Bucket=bucket, Key="k")["Body"].read() == data


class Reader(threading.Thread):
    """Gets an object, again if it was refused, and counts the bytes."""

    def __init__(self, server, target, headers):
        super().__init__(daemon=True)
        self.url, self.target, self.headers = urllib.parse.urlsplit(server.http), target, headers
        self.count, self.is_let_in, self.is_over = 0, False, False
        self.connection = None

    def run(self):
        while not self.is_over:
            self.connection = http.client.HTTPConnection(self.url.hostname, self.url.port)
            self.connection.request("GET", self.target, headers=self.headers)
            reply = self.connection.getresponse()
            if reply.status == 200:
                break
            assert reply.status == 429, reply.status
            time.sleep(0.1)
        self.is_let_in = True
        while not self.is_over:
            part = reply.read1(1 << 16)
            assert part, "the limit is not held: the object has been sent"
            self.count += len(part)
        self.connection.close()


def test_many_bodies_share_a_limit(server, bucket):
    root = Http(server.http)
    assert root.object("PUT", bucket, "large", b"x" * (16 * MIB)).status in (200, 201)
    headers = Http(server.http, limited(server, bucket, "--bandwidth", "1m")).auth
    readers = [Reader(server, f"/storage/{bucket}/large", headers) for _ in range(50)]
    for reader in readers:
        reader.start()
    eventually(lambda: all(reader.is_let_in for reader in readers), "all have begun")
    before, seconds = [reader.count for reader in readers], 6
    began = time.monotonic()
    time.sleep(seconds)
    sent = [reader.count - count for reader, count in zip(readers, before)]
    took = time.monotonic() - began
    for reader in readers:
        reader.is_over = True
    for reader in readers:
        reader.join()
    # What was on its way when this began came as well, and a part of a second is not paid yet.
    assert 0.5 * took <= sum(sent) / MIB <= took + 2, (sum(sent), sent)
    part = sum(sent) / len(sent)
    assert min(sent) >= part / 4 and max(sent) <= 4 * part, sent
