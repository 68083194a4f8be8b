"""Quotas hold for what is unfinished, for users over all their buckets, and while many upload at
once. What belongs to others costs nobody anything."""

import base64
import contextlib
import http.client
import json
import subprocess
import threading
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor

import boto3
import botocore
import pytest
from botocore.config import Config

from harness.doors import Http
from harness.server import Server, binary
from hostile.attackers import address

MIB = 1 << 20
UPLOADS = 64
# As docs/http.md says: a portion, and what each upload is let in for without being asked.
BEYOND = 64 * MIB + UPLOADS * MIB
EVE, BOB = ("CKEVE", "secret-of-eve-0123456789"), ("CKBOB", "secret-of-bob-0123456789")


@pytest.fixture(scope="module")
def server():
    with Server(args=["--console", "127.0.0.1:0", "--audit-bucket", "audit"]) as server:
        for name, (key, secret) in (("eve", EVE), ("bob", BOB)):
            root(server, "POST", "/admin/keys", user=name, id=key, secret=secret)
        yield server


def asked(server, who, method, path, body=b"", **headers):
    """The status and the body of a reply; `who` is a key and its secret, or None for root."""
    key, secret = who or (server.env["CAIRN_ROOT_KEY"], server.env["CAIRN_ROOT_SECRET"])
    host, port = address(server.http)
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    login = base64.b64encode(f"{key}:{secret}".encode()).decode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Authorization": f"Basic {login}", **named})
        reply = connection.getresponse()
        return reply.status, reply.read()


def root(server, method, path, **fields):
    body = json.dumps(fields).encode() if fields else b""
    status, reply = asked(server, None, method, path, body, Content_Type="application/json")
    assert status < 300, (method, path, status, reply)
    return json.loads(reply) if reply else None


def user(server, name):
    return next(one for one in root(server, "GET", "/admin/users")["users"] if one["name"] == name)


def bucket(server, name):
    return json.loads(
        asked(server, None, "GET", f"/storage/{name}")[1]
    )


def s3_of(server, who):
    return boto3.client(
        "s3",
        endpoint_url=server.s3,
        aws_access_key_id=who[0],
        aws_secret_access_key=who[1],
        region_name="us-east-1",
        config=Config(
            retries={"max_attempts": 0},
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=UPLOADS,
        ),
    )


def make(server, who, name, **quotas):
    assert asked(server, who, "PUT", f"/storage/{name}")[0] == 201
    if quotas:
        root(server, "PATCH", f"/storage/{name}", **quotas)


def refused(call):
    with pytest.raises(botocore.exceptions.ClientError) as error:
        call()
    return error.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_parts_count_as_they_come(server):
    make(server, EVE, "parts", quota_bytes=20 * MIB)
    s3 = s3_of(server, EVE)
    upload = s3.create_multipart_upload(Bucket="parts", Key="k")["UploadId"]
    part = dict(Bucket="parts", Key="k", UploadId=upload)
    tags = [s3.upload_part(**part, PartNumber=n, Body=b"x" * (6 * MIB))["ETag"] for n in (1, 2, 3)]
    assert refused(lambda: s3.upload_part(**part, PartNumber=4, Body=b"x" * (6 * MIB))) == 507
    # One of the same number takes the place of the other.
    s3.upload_part(**part, PartNumber=3, Body=b"x" * MIB)
    assert bucket(server, "parts")["upload_bytes"] == 13 * MIB
    tags[2] = s3.upload_part(**part, PartNumber=3, Body=b"x" * (6 * MIB))["ETag"]
    named = [{"PartNumber": n, "ETag": tag} for n, tag in zip((1, 2, 3), tags, strict=True)]
    s3.complete_multipart_upload(**part, MultipartUpload={"Parts": named})
    shown = bucket(server, "parts")
    assert (shown["bytes"], shown["upload_bytes"], shown["uploads"]) == (18 * MIB, 0, 0)
    # An object that is replaced makes room.
    assert asked(server, EVE, "PUT", "/storage/parts/k", b"y" * (19 * MIB))[0] == 204
    upload = s3.create_multipart_upload(Bucket="parts", Key="k")["UploadId"]
    s3.upload_part(Bucket="parts", Key="k", UploadId=upload, PartNumber=1, Body=b"x" * MIB)
    s3.abort_multipart_upload(Bucket="parts", Key="k", UploadId=upload)
    assert bucket(server, "parts")["upload_bytes"] == 0
    assert user(server, "eve")["uploads"] == 0


def test_a_length_that_is_said_is_refused_before_the_body(server):
    make(server, EVE, "said", quota_bytes=4 * MIB)
    host, port = address(server.http)
    login = base64.b64encode(":".join(EVE).encode()).decode()
    for method, path, more in (
        ("PUT", "/storage/said/x", {}),
        ("POST", "/tus/said/x", {"Upload-Length": str(8 * MIB), "Tus-Resumable": "1.0.0"}),
    ):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.putrequest(method, path)
        length = 0 if more else 8 * MIB
        head = {"Authorization": f"Basic {login}", "Content-Length": str(length), **more}
        for name, value in head.items():
            connection.putheader(name, value)
        connection.endheaders()  # and no byte of a body
        assert connection.getresponse().status == 507, path
        connection.close()


class Chunked:
    """One PUT of unknown length; how far it came."""

    def __init__(self, size):
        self.left, self.sent = size, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.left <= 0:
            raise StopIteration
        self.left -= MIB
        self.sent += MIB
        return b"z" * MIB


def put_chunked(server, name, at):
    body = Chunked(12 * MIB)
    with contextlib.suppress(OSError, http.client.HTTPException):
        asked(server, EVE, "PUT", f"/storage/{name}/chunked-{at}", body, Transfer_Encoding="chunked")


def put_said(server, name, at):
    with contextlib.suppress(OSError, http.client.HTTPException):
        asked(server, EVE, "PUT", f"/storage/{name}/said-{at}", b"s" * (6 * MIB))


def put_part(server, name, at):
    s3 = s3_of(server, EVE)
    with contextlib.suppress(botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError):
        upload = s3.create_multipart_upload(Bucket=name, Key=f"part-{at}")["UploadId"]
        for number in (1, 2):
            s3.upload_part(
                Bucket=name, Key=f"part-{at}", UploadId=upload, PartNumber=number, Body=b"p" * (5 * MIB)
            )


def put_tus(server, name, at):
    head = dict(Tus_Resumable="1.0.0")
    with contextlib.suppress(OSError, http.client.HTTPException, StopIteration):
        host, port = address(server.http)
        login = base64.b64encode(":".join(EVE).encode()).decode()
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        send = {"Authorization": f"Basic {login}", "Tus-Resumable": "1.0.0"}
        connection.request("POST", f"/tus/{name}/tus-{at}", headers={**send, "Upload-Length": str(8 * MIB)})
        reply = connection.getresponse()
        reply.read()
        place = reply.getheader("Location")
        if place is None:
            return
        more = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
        connection.request("PATCH", place, b"t" * (4 * MIB), {**send, **more})
        connection.getresponse().read()
    del head


def stored(server):
    return root(server, "GET", "/admin/status")["blocks"]["live_bytes"]


@pytest.mark.parametrize("whose", ["bucket", "user"])
def test_64_uploads_at_once_hold_to_a_quota(server, whose):
    name, quota = f"many-{whose}", 64 * MIB
    make(server, EVE, name)
    before = user(server, "eve")
    used = before["bytes"] + before["upload_bytes"]
    if whose == "bucket":
        root(server, "PATCH", f"/storage/{name}", quota_bytes=quota)
    else:
        root(server, "PATCH", "/admin/users/eve", quota_bytes=used + quota)
    at_first, most, done = stored(server), 0, threading.Event()
    kinds = [put_chunked, put_said, put_part, put_tus]
    with ThreadPoolExecutor(UPLOADS) as pool:
        work = [pool.submit(kinds[at % 4], server, name, at) for at in range(UPLOADS)]
        while not all(one.done() for one in work):
            shown = bucket(server, name)
            most = max(most, stored(server) - at_first)
            assert shown["bytes"] + shown["upload_bytes"] <= quota, shown
            time.sleep(0.05)
        for one in work:
            one.result()
    done.set()
    shown = bucket(server, name)
    total = shown["bytes"] + shown["upload_bytes"]
    # It was used, and held.
    assert quota / 2 <= total <= quota, shown
    assert most <= quota + BEYOND, most
    after = user(server, "eve")
    assert after["bytes"] + after["upload_bytes"] - used == total
    root(server, "PATCH", "/admin/users/eve", quota_bytes=0)


def test_a_user_has_so_many_buckets_and_uploads(server):
    root(server, "PATCH", "/admin/users/bob", quota_buckets=3, quota_uploads=2, quota_objects=2)
    for at in range(3):
        make(server, BOB, f"bobs-{at}")
    status, text = asked(server, BOB, "PUT", "/storage/bobs-4")
    assert status == 507 and b"3 buckets" in text
    s3 = s3_of(server, BOB)
    uploads = [s3.create_multipart_upload(Bucket="bobs-0", Key="k")["UploadId"] for _ in range(2)]
    assert refused(lambda: s3.create_multipart_upload(Bucket="bobs-1", Key="k")) == 507
    for upload in uploads:
        s3.abort_multipart_upload(Bucket="bobs-0", Key="k", UploadId=upload)
    for at in range(2):
        assert asked(server, BOB, "PUT", f"/storage/bobs-{at}/x", b"x")[0] == 201
    assert asked(server, BOB, "PUT", "/storage/bobs-2/x", b"x")[0] == 507
    assert asked(server, BOB, "DELETE", "/storage/bobs-0/x")[0] == 204
    assert asked(server, BOB, "DELETE", "/storage/bobs-0")[0] == 204
    shown = user(server, "bob")
    assert (shown["buckets"], shown["objects"], shown["uploads"]) == (2, 1, 0)
    # Who has more keeps them.
    root(server, "PATCH", "/admin/users/bob", quota_buckets=1)
    assert asked(server, BOB, "PUT", "/storage/bobs-2/y", b"x")[0] == 201
    assert asked(server, BOB, "PUT", "/storage/bobs-5")[0] == 507


def test_names_of_the_store_are_roots(server):
    for name in ("localhost", "audit"):
        status, text = asked(server, BOB, "PUT", f"/storage/{name}")
        assert status == 403 and b"reserved" in text, (status, text)
    assert refused(lambda: s3_of(server, BOB).create_bucket(Bucket="localhost")) == 403


def test_listings_do_not_grow_with_what_others_own(server):
    root(server, "PATCH", "/admin/users/eve", quota_buckets=3000)
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda n: asked(server, EVE, "PUT", f"/storage/aa-{n}")[0], range(1500))
        assert set(made) == {201}
    # Bob's buckets are on the first page, behind 1,500 of others by name.
    status, text = asked(server, BOB, "GET", "/storage/?limit=1000")
    names = [one["name"] for one in json.loads(text)["buckets"]]
    assert status == 200 and names == ["bobs-1", "bobs-2"] and json.loads(text)["next"] is None
    # What is given to him is listed, too, and no longer when it is taken back.
    asked(server, EVE, "PATCH", "/storage/aa-7?grant=bob:read")
    names = [one["Name"] for one in s3_of(server, BOB).list_buckets()["Buckets"]]
    assert names == ["aa-7", "bobs-1", "bobs-2"]
    asked(server, EVE, "PATCH", "/storage/aa-7?grant=bob:none")
    names = [one["Name"] for one in s3_of(server, BOB).list_buckets()["Buckets"]]
    assert names == ["bobs-1", "bobs-2"]


def test_the_command_sets_and_shows_them(server):
    key, secret = server.env["CAIRN_ROOT_KEY"], server.env["CAIRN_ROOT_SECRET"]
    env = {"CAIRN_KEY": key, "CAIRN_SECRET": secret, "CAIRN_SERVER": server.http, "PATH": "/usr/bin"}
    run = lambda *args: subprocess.run([binary(), *args], env=env, capture_output=True, text=True)
    assert run("user", "set", "bob", "--quota", "5m").returncode == 0
    shown = [json.loads(line) for line in run("user", "ls", "--json").stdout.splitlines()]
    assert next(one for one in shown if one["name"] == "bob")["quota_bytes"] == 5 * MIB
    assert "of 5" in run("user", "ls").stdout
    assert run("user", "set", "bob").returncode == 2
    refused = run("user", "set", "root", "--quota", "1g")
    assert refused.returncode == 1 and "root has no quotas" in refused.stderr
    server.restart()
    shown = user(server, "bob")
    assert (shown["quota_bytes"], shown["buckets"]) == (5 * MIB, 2)
