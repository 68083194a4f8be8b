"""What a mount that sends what it likes is told, and whom it keeps waiting: at a real server."""

import contextlib
import json
import os
import struct
import threading
import time

import pytest

from harness.doors import S3, Http
from harness.rawmount import (
    ERROR,
    GETATTR,
    OPEN_INODE,
    READDIR,
    REPLY,
    RawMount,
    counted,
    number,
)
from harness.server import Server
from harness.wait import eventually

CHANGE, PUT = 9, 32
ACCESS, SETATTR, STATFS = 97, 384, 464
INODES = range(1, 20)
SMALL, LARGE = b"MARK-INLINE", b"MARK-BLOCK" * 5000
# Says that it reads no former state.
NOW = 1 << 40


class Store:
    def __init__(self, server):
        self.server, self.root = server, Http(server.http)
        self.credentials = {name: self.key(name) for name in ("alice", "bob", "carol")}
        self.alice = self.http("alice")
        self.alice.create_bucket("hidden")
        for key, body in (("small", SMALL), ("large", LARGE)):
            assert self.alice.object("PUT", "hidden", key, body).status == 201

    def key(self, name):
        credentials = f"{name.upper()}KEY000001", f"{name}-secret-0123456789abcd"
        body = json.dumps({"user": name, "id": credentials[0], "secret": credentials[1]})
        headers = {"Content-Type": "application/json"}
        assert self.root.request("POST", "/admin/keys", body.encode(), headers).status == 201
        return credentials

    def http(self, name):
        return Http(self.server.http, self.credentials[name])

    def grant(self, name, rights):
        query = f"/storage/hidden?grant={name}:{rights}"
        assert self.alice.request("PATCH", query).status == 204

    def mount(self, name, session):
        mount = RawMount(self.server.http, self.credentials[name])
        mount.attach(session)
        return mount


@pytest.fixture
def store():
    with Server() as server:
        yield Store(server)


def sets_nothing(mount, inode, sequence):
    fields = number(inode) + b"\0" * 5
    caller = b"\1" + number(mount.user) + b"\1\0\0\0"
    run = number(mount.session) + number(0) + number(sequence) + caller
    return mount.call(CHANGE, run + number(SETATTR) + counted(fields) + b"\0")[1]


def told(mount, lease):
    """Everything that a mount is told of small inodes, whatever it may."""
    for inode in INODES:
        name = number(inode)
        for verb, fields in [
            *[(ACCESS, name + number(wanted)) for wanted in (0, 2, 4)],
            (OPEN_INODE, name + b"\0"),
            (OPEN_INODE, name + b"\1"),
            (GETATTR, name),
            (STATFS, name),
            (READDIR, name + b"\0" + number(1000) + b"\1"),
        ]:
            yield mount.read(verb, fields, lease)[1]


def marks(answers):
    """Of what is hidden: content, names of files, the bucket's name."""
    text = b"".join(answers)
    return {mark for mark in (b"MARK-INLINE", b"MARK-AFTER", b"small", b"hidden") if mark in text}


def test_who_may_write_alone_is_told_nothing(store):
    store.grant("carol", "write")
    store.grant("bob", "read")
    carol, bob = store.mount("carol", 1001), store.mount("bob", 1002)
    for lease in (False, True):
        assert marks(told(bob, lease)) == {b"MARK-INLINE", b"small", b"hidden"}
        # That the bucket is there she may know.
        assert marks(told(carol, lease)) <= {b"hidden"}
    changed = [sets_nothing(carol, inode, inode) for inode in INODES]
    assert marks(changed) == set()
    s3 = S3(store.server.s3, store.credentials["carol"])
    for door in (store.http("carol"), s3):
        assert door.object("GET", "hidden", "small").status == 403


def test_who_has_no_right_is_shown_no_bucket(store):
    bob = store.mount("bob", 1001)
    for lease in (False, True):
        assert marks(told(bob, lease)) == set()


def test_a_right_that_is_withdrawn_is_gone_in_an_open_mount(store):
    store.grant("bob", "read")
    bob = store.mount("bob", 1001)
    assert b"MARK-INLINE" in marks(told(bob, False))
    store.grant("bob", "none")
    assert store.alice.object("POST", "hidden", "small", b"MARK-AFTER").status == 200
    for _ in range(3):
        assert marks(told(bob, False)) == set()
        assert bob.renew(NOW)[0] == REPLY


@contextlib.contextmanager
def renewing(mount):
    """It renews, and does nothing else that it is asked."""
    stop = threading.Event()

    def renew():
        with contextlib.suppress(OSError):
            while not stop.wait(0.5):
                mount.renew(NOW)

    thread = threading.Thread(target=renew)
    thread.start()
    yield
    stop.set()
    thread.join()
    mount.close()


def test_a_recall_that_is_not_acknowledged_holds_up_one_change_for_a_time(store):
    """The change of what the mount holds waits for it until the mount ends; no other one does."""
    assert store.alice.request("PATCH", "/storage/hidden?visibility=public").status == 204
    store.root.create_bucket("roots")
    assert store.root.object("PUT", "roots", "old", b"x").status == 201
    bob = store.mount("bob", 1001)
    held = [inode for inode in INODES if b"MARK-INLINE" in bob.open(inode)[1]]
    assert len(held) == 1
    done = []

    def overwrite():
        done.append(store.http("alice").object("PUT", "hidden", "small", b"new").status)

    with renewing(bob):
        waiting = threading.Thread(target=overwrite)
        waiting.start()
        time.sleep(1)
        assert not done
        for act in [
            lambda: store.root.object("PUT", "roots", "new", b"x"),
            lambda: store.root.object("PUT", "roots", "large", LARGE),
            lambda: store.root.object("PUT", "roots", "old", b"y"),
            lambda: store.root.object("POST", "roots", "log", b"y"),
            lambda: store.root.object("DELETE", "roots", "old"),
            lambda: store.root.request("PUT", "/storage/another"),
            lambda: store.http("carol").request("PUT", "/storage/carols"),
        ]:
            assert act().status in (200, 201, 204)
        assert not done, "they waited as long as it did"
        waiting.join()
    assert done == [204]


def test_a_key_that_is_removed_ends_its_mount_whatever_others_guess(store):
    bob, key = store.mount("bob", 1001), store.credentials["bob"][0]

    def guess(count):
        wrong = Http(store.server.http, (key, "wrong-secret-0123456789"))
        for _ in range(count):
            assert wrong.request("GET", "/healthz").status == 401

    def is_ended():
        try:
            return bob.renew(NOW)[0] == ERROR
        except OSError:
            return True

    threads = [threading.Thread(target=guess, args=(21,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert not is_ended()
        time.sleep(0.2)
    assert store.root.request("DELETE", f"/admin/keys/{key}").status == 204
    guesses = threading.Thread(target=guess, args=(2,))
    guesses.start()
    eventually(is_ended, "the mount ends")
    guesses.join()
    # Nor does it come in again, and nobody does without a key.
    for credentials in (store.credentials["bob"], ("", "")):
        with pytest.raises(ConnectionError, match="401"):
            RawMount(store.server.http, credentials)


def put_block(mount, data):
    head = number(mount.session) + b"\0\0" + number(mount.session) + number(1)
    head += number(mount.session) + number(7) + number(0)
    return mount.call(PUT, struct.pack("<I", len(head)) + head + data)


def test_blocks_are_taken_from_those_who_may_write(store):
    nobody, alice = store.mount("bob", 1001), store.mount("alice", 1002)
    kind, said = put_block(nobody, os.urandom(100_000))
    assert kind == ERROR and b"may write in no bucket" in said
    assert put_block(alice, os.urandom(100_000))[0] == REPLY
