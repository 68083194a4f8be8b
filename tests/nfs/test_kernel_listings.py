"""Listings by the client of Linux' kernel, in a guest, end complete: whatever is removed meanwhile, by the client itself
and by others, after restarts and at another gateway."""

import os

import pytest

from harness.cluster import Cluster
from harness.doors import S3
from nfs import guest, rpc
from nfs.conftest import export_all
from nfs.proxy import Proxy

# Names that share 200 bytes.
NAMES = int(os.environ.get("CAIRN_TEST_NFS_NAMES", 5000))
# Of so many names, the client that lists removes one, and another client one.
GOES = int(os.environ.get("CAIRN_TEST_NFS_GOES", 4))
FAILOVERS = int(os.environ.get("CAIRN_TEST_NFS_LISTING_FAILOVERS", 0))
RESTARTS = 3
# A listing is taken in so many parts. Between two of them the kernel forgets what it has read ahead.
PARTS = 8
GUEST, OTHERS = "goes", "taken"


def fate(number):
    return {0: GUEST, 1: OTHERS}.get(number % GOES, "stays")


def name_of(number):
    return f"{'x' * 200}-{fate(number)}-{number}"


def numbers_of(what):
    return [number for number in range(NAMES) if fate(number) == what]


class Others:
    """Other clients, which fill the directory, and remove names of it some at a time."""

    def __init__(self, address, bucket):
        client = rpc.Client(address)
        self.directory = client.made(rpc.mkdir(client.mount(f"/{bucket}"), "directory"))
        client.all_made(rpc.create(self.directory, name_of(number)) for number in range(NAMES))
        client.close()
        self.left = numbers_of(OTHERS)
        # Names that go before they are listed make the last parts short.
        self.step = len(self.left) // (PARTS // 2) + 1

    def remove_some(self, address):
        gone, self.left = self.left[-self.step :], self.left[: -self.step]
        client = rpc.Client(address)
        client.all_made(rpc.remove(self.directory, name_of(number)) for number in gone)
        client.close()


def listed(client, word=None, between=lambda done: None):
    """The numbers of all names, in the order of a listing that removes those with a word in them."""
    client.do("begin", "directory")
    seen, done = [], 0
    while part := client.do("go_on", NAMES // PARTS, word):
        seen += part
        done += 1
        between(done)
        client.do("forget")
    return seen


def check(client, seen):
    """Looks at what a listing had in which names went, and what is there afterwards."""
    stays = set(numbers_of("stays"))
    assert len(seen) == len(set(seen)), "a name is listed twice"
    missed = (stays | set(numbers_of(GUEST))) - set(seen)
    assert not missed, f"{len(missed)} of {NAMES} names are missed, such as {min(missed)}"
    client.do("forget")
    assert sorted(listed(client)) == sorted(stays)


@guest.ready
def test_a_kernel_lists_all_names_while_names_go(nfs, exported, work):
    others = Others(nfs.nfs, exported)
    with guest.Guest(work / "guest", nfs.port, exported) as client:

        def between(done):
            if done <= RESTARTS:
                nfs.restart()
            others.remove_some(nfs.nfs)

        seen = listed(client, f"-{GUEST}-", between)
        assert not others.left, "the listing had too few parts"
        check(client, seen)
    nfs.kill()
    assert nfs.fsck()[0] == 0


@guest.ready
@pytest.mark.skipif(FAILOVERS == 0, reason="takes minutes: tests/run --long nfs3")
def test_a_kernel_lists_all_names_at_another_gateway(work):
    with Cluster(chunkservers=1, replicas=1, gateways=2, nfs=True) as cluster:
        S3(cluster["g1"].s3).create_bucket("bucket")
        export_all(cluster["g1"].http, "bucket")
        others = Others(cluster["g1"].nfs, "bucket")
        with Proxy(cluster["g1"].nfs) as proxy:
            with guest.Guest(work / "guest", proxy.port, "bucket") as client:

                def between(done):
                    one, other = ("g1", "g2") if done % 2 else ("g2", "g1")
                    if done <= FAILOVERS:
                        proxy.target = cluster[other].nfs
                        cluster.kill(one)
                        cluster.start(one)
                        cluster.wait_whole()
                    others.remove_some(cluster[other].nfs)

                seen = listed(client, f"-{GUEST}-", between)
                assert not others.left, "the listing had too few parts"
                check(client, seen)
        assert cluster.misbehaviour() == []
