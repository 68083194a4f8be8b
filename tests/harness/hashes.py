"""Content hashes of a bucket, read through one door."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

from harness.doors import S3, Http, quote


def stream_sha256(client, target, headers):
    """sha256 of a GET of any size, without holding it."""
    connection = client.connection
    if connection.connection is None:
        connection.connection = connection._open()
    connection.connection.request("GET", target, headers=headers)
    response = connection.connection.getresponse()
    if response.status != 200:
        raise AssertionError(f"GET {target}: {response.status} {response.read()[:300]!r}")
    digest = hashlib.sha256()
    while chunk := response.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def http_sha256(client, bucket, key):
    return stream_sha256(client, f"/storage/{bucket}/{quote(key)}", client.auth)


def s3_sha256(client, bucket, key):
    path = f"/{bucket}/{quote(key)}"
    headers = client.sign("GET", path, {}, {}, hashlib.sha256(b"").hexdigest())
    return stream_sha256(client, path, headers)


def through(server, door, bucket, prefix="", threads=4):
    """{key without prefix: sha256} of every object below a prefix, listed and read by one door."""
    make, read = {
        "http": (lambda: Http(server.http), http_sha256),
        "s3": (lambda: S3(server.s3), s3_sha256),
    }[door]
    keys = sorted(make().list(bucket, prefix))

    def work(slice_of_keys):
        client = make()
        return {key[len(prefix) :]: read(client, bucket, key) for key in slice_of_keys}

    found = {}
    with ThreadPoolExecutor(threads) as pool:
        for part in pool.map(work, [keys[i::threads] for i in range(threads)]):
            found.update(part)
    return found
