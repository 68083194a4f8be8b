"""Downloads that last long get all bytes of one state, whatever happens to the object meanwhile."""

import http.client
import time
import urllib.parse

from harness import presign
from harness.cluster import Cluster
from harness.doors import S3
from harness.server import Server
from harness.wait import PATIENCE_SECONDS
from kill.model import content
from limits.test_bad_input import BASIC

# Of more than one of the parts that the places of its bytes are kept in.
SIZE = 150 << 20
FIRST = 1 << 20
# Long enough for what is deleted to be collected.
GARBAGE_SECONDS = 12


def get(url, path, headers=()):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", path, headers=dict(headers))
    return connection.getresponse()


def check(s3_url, http_url):
    s3 = S3(s3_url, timeout=PATIENCE_SECONDS)
    s3.create_bucket("long")
    body = content("long", 1, SIZE)
    reading = []
    for key in ("deleted", "replaced"):
        assert s3.object("PUT", "long", key, body=body).status == 200
        host = urllib.parse.urlsplit(s3_url).netloc
        reading.append(get(s3_url, presign.presigned(host, "GET", f"/long/{key}")))
        name, _, value = BASIC.strip().partition(": ")
        reading.append(get(http_url, f"/storage/long/{key}", {name: value}))
    begun = [reply.read(FIRST) for reply in reading]
    assert s3.object("DELETE", "long", "deleted").status == 204
    assert s3.object("PUT", "long", "replaced", body=b"short").status == 200
    time.sleep(GARBAGE_SECONDS)
    for reply, first in zip(reading, begun):
        # Two bodies are too long to be shown.
        is_same = first + reply.read() == body
        assert reply.status == 200 and is_same, reply.headers
    assert s3.object("GET", "long", "replaced").body == b"short"


def test_of_a_server():
    with Server() as server:
        check(server.s3, server.http)


def test_of_a_gateway():
    with Cluster(chunkservers=1, gateways=1, replicas=1) as cluster:
        check(cluster["g1"].s3, cluster["g1"].http)
