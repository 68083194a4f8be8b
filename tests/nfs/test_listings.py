"""Listings that a client began end complete, whatever is removed meanwhile, and wherever it goes on."""

import itertools
import os

import pytest
from harness.cluster import Cluster
from harness.doors import S3

from nfs import rpc
from nfs.conftest import export_all

numbers = itertools.count(1)
# Names that share 200 bytes: too many to be sorted for each part of a listing.
NAMES = int(os.environ.get("CAIRN_TEST_NFS_NAMES", 3000))
ENTRIES_BYTES = 64 << 10


def filled(client, top):
    """A directory with many names, those that begin with `stays` among them."""
    directory = client.made(rpc.mkdir(top, "directory"))
    names = [f"{'x' * 200}-{'goes' if n % 2 else 'stays'}-{n}" for n in range(NAMES)]
    client.all_made(rpc.create(directory, name) for name in names)
    return directory, {name for name in names if "-stays-" in name}


def listed(parts, remove, directory):
    """Lists a directory by raw calls, each part by the next client of `parts`; removes what need not stay, and
    always the name at which the part ended."""
    seen, cookie = [], 0
    for client in parts:
        names, is_end = client.part(directory, cookie, ENTRIES_BYTES)
        names = [(name, at) for name, at in names if name not in (".", "..")]
        if names:
            # A listing goes on after a name that is there no more.
            gone = max((n for n, (name, _) in enumerate(names) if "-goes-" in name), default=None)
            names = names if is_end or gone is None else names[: gone + 1]
            cookie = names[-1][1]
        seen += [name for name, _ in names]
        remove.all_made(rpc.remove(directory, name) for name, _ in names if "-goes-" in name)
        if is_end:
            return seen
    raise AssertionError("the listing has not ended")


def check(seen, stay):
    assert len(seen) == len(set(seen)), "a name is listed twice"
    assert set(seen) >= stay, f"{len(stay - set(seen))} of {len(stay)} names that stay are missed"
    assert len(seen) == NAMES


def test_a_listing_ends_complete_while_names_go(nfs, exported):
    client = rpc.Client(nfs.nfs)
    top = client.mount(f"/{exported}")
    directory, stay = filled(client, top)
    # Meanwhile it lists another directory of many names, part by part.
    other = client.made(rpc.mkdir(top, "other"))
    client.all_made(rpc.create(other, f"name-{number}") for number in range(1500))

    def parts():
        while True:
            yield client
            client.names(other)

    check(listed(parts(), rpc.Client(nfs.nfs), directory), stay)
    assert set(client.names(directory)) == stay
    nfs.kill()
    assert nfs.fsck()[0] == 0


def test_a_listing_goes_on_after_a_restart(nfs, exported):
    client = rpc.Client(nfs.nfs)
    directory, stay = filled(client, client.mount(f"/{exported}"))
    client.close()

    class Restarted:
        """A client, whose server is another process for each of the first parts."""

        def __init__(self):
            self.restarts = 0

        def part(self, *arguments):
            if self.restarts < 3:
                self.restarts += 1
                nfs.kill()
                nfs.restart()
            return rpc.Client(nfs.nfs).part(*arguments)

        def all_made(self, calls):
            rpc.Client(nfs.nfs).all_made(calls)

    restarted = Restarted()
    check(listed(itertools.repeat(restarted), restarted, directory), stay)
    nfs.kill()
    assert nfs.fsck()[0] == 0


@pytest.fixture
def gateways():
    with Cluster(chunkservers=1, replicas=1, gateways=2, nfs=True) as cluster:
        yield cluster
        assert cluster.misbehaviour() == []


def test_a_listing_goes_on_at_another_gateway(gateways):
    bucket = f"exported-{next(numbers)}"
    S3(gateways["g1"].s3).create_bucket(bucket)
    export_all(gateways["g1"].http, bucket)
    clients = [rpc.Client(gateways[name].nfs) for name in ("g1", "g2")]
    directory, stay = filled(clients[0], clients[0].mount(f"/{bucket}"))
    check(listed(itertools.cycle(clients), clients[1], directory), stay)
