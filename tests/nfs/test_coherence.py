"""One tree at all doors: the client of Linux' kernel over NFS, a mount, S3 and HTTP."""

import contextlib
import os
import random
import signal
import time

import pytest

from harness.doors import S3, Http
from harness.mount import Mount
from nfs import guest

CHANGES = int(os.environ.get("CAIRN_TEST_NFS_CHANGES", 150))
DELAYS = int(os.environ.get("CAIRN_TEST_NFS_DELAYS", 0))
# Decides what is changed: so a long run can be parted.
FIRST = int(os.environ.get("CAIRN_TEST_NFS_FIRST", 0))
# Names are asked for each time; what is in a file is asked for at each open in any case.
STRICT = ",lookupcache=none,acdirmax=0"
# A second mount, with default options, in the same guest.
AGAIN = """
mkdir /default
mount -i -t nfs -o nosharecache,{options} 10.0.2.2:/{bucket} /default
"""


class Kernel:
    def __init__(self, client, root=""):
        self.client, self.root = client, root

    def put(self, key, data):
        self.client.do("put", self.root + key, data)

    def delete(self, key):
        self.client.do("unlink", self.root + key)

    def rename(self, source, target):
        self.client.do("rename", self.root + source, self.root + target)

    def look(self, keys):
        found = self.client.do("look", [self.root + key for key in keys])
        return {key: found[self.root + key] for key in keys}

    def sizes(self, keys):
        return {key: self.client.do("size", self.root + key) for key in keys}


class Fuse:
    def __init__(self, root):
        self.root = root

    def put(self, key, data):
        (self.root / key).write_bytes(data)

    def delete(self, key):
        (self.root / key).unlink()

    def rename(self, source, target):
        (self.root / source).rename(self.root / target)

    def look(self, keys):
        return {key: self._read(self.root / key) for key in keys}

    def _read(self, path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


class Door:
    """S3 or HTTP."""

    def __init__(self, door, bucket):
        self.door, self.bucket = door, bucket

    def _ask(self, method, key, **body):
        reply = self.door.object(method, self.bucket, key, **body)
        assert reply.status in (200, 201, 204, 404), reply
        return reply

    def put(self, key, data):
        assert self._ask("PUT", key, body=data).status != 404

    def delete(self, key):
        assert self._ask("DELETE", key).status != 404

    def look(self, keys):
        replies = {key: self._ask("GET", key) for key in keys}
        return {key: None if one.status == 404 else one.body for key, one in replies.items()}


@pytest.fixture
def sides(nfs, exported, work):
    with Mount(nfs, work / "mnt", bucket=exported) as fuse:
        with guest.Guest(work / "guest", nfs.port, exported, mount=STRICT) as client:
            script = AGAIN.format(options=guest.options(nfs.port), bucket=exported)
            client.do("run", script)
            sides = {
                "NFS": Kernel(client),
                "mount": Fuse(fuse.root),
                "S3": Door(S3(nfs.s3), exported),
                "HTTP": Door(Http(nfs.http), exported),
            }
            yield sides, Kernel(client, "/default/")


@guest.ready
def test_what_changes_at_one_door_is_seen_at_all(sides):
    sides, default = sides
    rng, model = random.Random(5 + FIRST), {}
    for number in range(CHANGES):
        where = rng.choice(list(sides))
        side, data = sides[where], rng.randbytes(rng.choice([1, 300, 20_000, 200_000]))
        # Names beginning with `kept` never go.
        key = rng.choice(["key", "kept"]) + str(rng.randrange(6))
        shown = f"change {number} of {key} by {where}"
        way = rng.choice(["put", "put", "delete", "rename"])
        other = f"key{rng.randrange(6)}"
        if way == "put" or key.startswith("kept") or key not in model:
            model[key] = data
            side.put(key, data)
        elif way == "rename" and hasattr(side, "rename") and other != key:
            model[other] = model.pop(key)
            side.rename(key, other)
        else:
            del model[key]
            side.delete(key)
        looked = {key, other, f"key{rng.randrange(6)}"}
        expected = {key: model.get(key) for key in looked}
        for name, at in sides.items():
            differ = [key for key, got in at.look(looked).items() if got != expected[key]]
            assert not differ, f"{shown}: {differ} at {name}"
        if key.startswith("kept"):
            assert default.look([key])[key] == model[key], f"{shown}: at default options"


@guest.ready
def test_a_client_that_stands_still_delays_nobody_and_undoes_nothing(nfs, exported, work):
    http = Door(Http(nfs.http), exported)
    with guest.Guest(work / "guest", nfs.port, exported) as client:
        client.do("put", "file", b"old")
        client.do("hold", "file")
        # It keeps these bytes to itself, for some seconds.
        assert client.do("use", "file", 0, b"late")[0] == b"late"
        client.guest.send_signal(signal.SIGSTOP)
        http.put("file", b"between")
        assert http.look(["file"]) == {"file": b"between"}
        client.guest.send_signal(signal.SIGCONT)
        with contextlib.suppress(OSError):
            client.do("close")
        assert client.do("look", ["file"]) == {"file": b"between"}
        assert http.look(["file"]) == {"file": b"between"}


@pytest.mark.skipif(not DELAYS, reason="it waits for minutes, and shows times: for the long form")
@guest.ready
def test_how_late_names_are_seen_with_default_options(sides):
    sides, default = sides
    http, fuse = sides["HTTP"], sides["mount"]
    ways = {
        "a new name": (None, lambda key: http.put(key, b"new"), b"new"),
        "a name that goes": (b"old", lambda key: http.delete(key), None),
        "a name for another file": (b"old", lambda key: http.put(key, b"others"), b"others"),
        "a file moved over it": (b"old", lambda key: fuse.rename(f"{key}-moved", key), b"moved"),
    }
    for number in range(DELAYS):
        for what, (before, change, after) in ways.items():
            for how, look in (("open", default.look), ("stat", default.sizes)):
                key = f"{number}-{how}-{what.replace(' ', '-')}"
                http.put(f"{key}-moved", b"moved")
                if before is not None:
                    http.put(key, before)
                # Of a name that it has looked up once Linux is not sure: the directory had changed.
                for _ in range(3):
                    known = look([key])[key]
                change(key)
                changed = time.monotonic()
                wanted = after if how == "open" or after is None else len(after)
                while (found := look([key])[key]) != wanted:
                    assert found == known and time.monotonic() - changed < 120, (what, found)
                    time.sleep(0.1)
                print(f"{what}, {how}: seen after {time.monotonic() - changed:.1f} s")
