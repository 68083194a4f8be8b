"""How often the client of Linux' kernel asks, as it counts itself.

Attributes are kept for long, so that no clock has a say: a client asks more often by itself."""

import os

import pytest

from harness.cluster import Cluster
from harness.doors import S3, Http
from nfs import guest, rpc
from nfs.conftest import Nfs, export_all

LISTED = int(os.environ.get("CAIRN_TEST_NFS_LISTED", 1000))
FILES = 20
KEPT = ",acregmin=600,acregmax=600,acdirmin=600,acdirmax=600"
EXCLUSIVE = os.O_CREAT | os.O_EXCL


def asked(client, *operation):
    """The calls of an operation, and how many these are."""
    before = client.do("calls")
    client.do(*operation)
    after = client.do("calls")
    spent = {name: count - before.get(name, 0) for name, count in after.items()}
    spent = {name: count for name, count in spent.items() if count}
    print(operation[0], operation[1] if len(str(operation[1])) < 40 else "", spent)
    return spent, sum(spent.values())


@pytest.fixture(params=["server", "gateway"])
def door(request):
    """A door's HTTP and NFS addresses, and the calls of a client for a new small file."""
    if request.param == "server":
        with Nfs(args=["--nfs", "127.0.0.1:0"]) as server:
            yield server, 3
    else:
        with Cluster(chunkservers=1, replicas=1, gateways=1, nfs=True) as cluster:
            yield cluster["g1"], 3
            assert cluster.misbehaviour() == []


@guest.ready
def test_a_client_asks_no_more_than_it_must(door, work):
    door, for_a_new_file = door
    S3(door.s3).create_bucket("bucket")
    export_all(door.http, "bucket")
    http = Http(door.http)
    names = [f"small{number}" for number in range(FILES)]
    for name in ["first", *names]:
        assert http.object("PUT", "bucket", name, body=b"s" * 430).status == 201
    maker = rpc.Client(door.nfs)
    top = maker.mount("/bucket")
    many = maker.made(rpc.mkdir(top, "many"))
    maker.all_made([rpc.create(many, f"file-{number}") for number in range(LISTED)])
    port = door.nfs.rsplit(":", 1)[1]
    with guest.Guest(work / "guest", port, "bucket", mount=KEPT) as client:
        client.do("look", ["first"])
        assert asked(client, "look", names)[1] <= 3 * FILES
        assert asked(client, "look", names)[1] <= FILES
        assert asked(client, "stat", names[0])[1] == 0
        made = [f"made{number}" for number in range(FILES)]
        asked(client, "write", "made", 0, b"m" * 430, EXCLUSIVE)
        spent = [asked(client, "write", name, 0, b"m" * 430, EXCLUSIVE)[1] for name in made]
        assert sum(spent) <= for_a_new_file * FILES, spent
        # As after `ls`, `cd` or a first look.
        client.do("stat", "many")
        assert asked(client, "list_with_attributes", "many")[1] <= 1.2 * LISTED / 100
        assert asked(client, "list_with_attributes", "many")[1] <= 1
