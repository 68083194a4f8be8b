"""Mounts that hold what they can get: what others need is not theirs."""

import contextlib
import threading

from harness.doors import Http
from harness.rawmount import REQUEST, RawMount, counted, number
from harness.server import SMALL_CACHES, Server

CHANGE, SET_XATTR = 9, 401
BOB, BOBS = ("BOBSKEY0000001", "bobs-secret-0123456789abcd"), "bobs"
CONNECTIONS, REQUESTS, VALUE = 24, 480, 65_000
# Of what is sent, 714 MiB, a user's requests hold 384 MiB, in up to twice as much memory.
HELD, LIMIT = 300 << 20, 1000 << 20


def set_attribute(mount, inode, slot):
    """A change, as bytes: of an attribute that is as long as it can be."""
    caller = b"\1" + number(mount.user) + b"\1\0\0\0"
    fields = number(inode) + counted(b"user.a%d" % slot) + counted(b"x" * VALUE) + b"\0"
    run = number(mount.session) + number(slot) + number(1) + caller
    return run + number(SET_XATTR) + counted(fields) + b"\0"


def ask(mount, inode):
    """Sends as many requests as a connection may have unanswered, and reads no answer."""
    with contextlib.suppress(OSError):  # the server ends it
        for slot in range(REQUESTS):
            mount.count += 1
            mount.frame(REQUEST, CHANGE, mount.count, set_attribute(mount, inode, slot))


def test_requests_that_wait_hold_bounded_memory():
    """A lease that is not given back makes changes wait; more and more of them are sent."""
    with Server(args=SMALL_CACHES) as server:
        root = Http(server.http)
        body = f'{{"user":"bob","id":"{BOB[0]}","secret":"{BOB[1]}"}}'.encode()
        reply = root.request("POST", "/admin/keys", body, {"Content-Type": "application/json"})
        assert reply.status == 201, reply
        bob = Http(server.http, BOB)
        bob.create_bucket(BOBS)
        assert bob.object("PUT", BOBS, "file", b"x").status == 201
        root.create_bucket("honest")
        keeping = RawMount(server.http, BOB)
        keeping.attach(1000)
        inodes = range(2, 10)
        told = {inode: keeping.open(inode)[1] for inode in inodes}
        inode = max(inodes, key=lambda inode: len(told[inode]))
        for at in inodes:
            keeping.list(at)
        server.reset_rss_peak()
        mounts = []
        for session in range(CONNECTIONS):
            mount = RawMount(server.http, BOB)
            mount.attach(2000 + session)
            mounts.append(mount)
        threads = [threading.Thread(target=ask, args=(one, inode)) for one in mounts]
        for thread in threads:
            thread.start()
        for at in range(20):
            assert root.object("PUT", "honest", f"key{at}", b"x").status == 201
        for thread in threads:
            thread.join()
        # And the server goes on.
        assert root.object("PUT", "honest", "last", b"x").status == 201
        peak = server.rss_peak_bytes()
        assert HELD < peak < LIMIT, f"{peak >> 20} MiB"
        for mount in [keeping, *mounts]:
            mount.close()
