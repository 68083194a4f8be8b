"""Calls of a user who has a limit wait, however many of them come at once."""

import time

from harness.doors import S3
from harness.wait import eventually
from nfs import rpc

OK, JUKEBOX = 0, 10_008
RATE, CALLS = 10, 64


def test_calls_at_once_come_at_the_rate_of_a_limit(nfs):
    S3(nfs.s3).create_bucket("bucket")
    nfs.cairn("key", "create", "alice")
    nfs.cairn("bucket", "set", "bucket", "--grant", "alice:read")
    nfs.cairn("export", "add", "bucket", "--client", "127.0.0.0/8", "--as", "alice")
    nfs.cairn("user", "limit", "alice", "--requests", str(RATE))
    client = rpc.Client(nfs.nfs)
    top = client.mount("/bucket")
    began = time.monotonic()
    for _ in range(CALLS):
        client.send(rpc.call(rpc.NFS, rpc.GETATTR, rpc.data(top)))
    replies = []
    for _ in range(CALLS):
        status, _ = client.receive()
        replies.append((time.monotonic() - began, status))
    statuses = [status for _, status in replies]
    assert set(statuses) <= {OK, JUKEBOX}, statuses
    # Those of a second at once, the others one by one, and those beyond 5 seconds not at all.
    for at in (1, 2, 3, 4):
        early = [status for when, status in replies if when <= at and status == OK]
        assert len(early) <= RATE * (1 + at) + 1, replies
    done = statuses.count(OK)
    assert 5 * RATE <= done <= 6 * RATE + 1, replies
    assert replies[-1][0] >= 4, replies
    # A client that was refused asks again.
    eventually(lambda: client.ask(rpc.call(rpc.NFS, rpc.GETATTR, rpc.data(top)))[0] == OK, "a later call is done")
