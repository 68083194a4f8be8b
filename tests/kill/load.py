"""The mixed load of one thread over both doors, until the store dies under it."""

import base64
import hashlib
import http.client
import random

from harness.doors import S3, Http
from kill.model import Key, SharedLog, content

BUCKET = "killed"
MIB = 1 << 20
DEAD = (OSError, http.client.HTTPException)
# What a thread does next, and how often of 100.
MIX = {
    "put_small": 30, "put_fresh": 22, "put_medium": 14, "append": 9, "append_shared": 6,
    "copy": 6, "delete": 6, "delete_batch": 2, "put_big": 2, "multipart": 3,
}  # fmt: skip


class Unexpected(Exception):
    """The store lived and yet refused a valid request."""


class Upload:
    """A multipart upload that may go on after a restart."""

    def __init__(self, key, upload, pieces):
        self.key, self.id, self.pieces, self.etags = key, upload, pieces, []


class Worker:
    def __init__(self, number, seed, server, log, shared):
        self.number, self.server, self.log, self.shared = number, server, log, shared
        self.rng = random.Random(f"{seed}/{number}")
        self.small = self._keys("small", 20)
        self.medium = self._keys("medium", 8)
        self.appended = self._keys("append", 3)
        self.copies = self._keys("copy", 4)
        self.big = self._keys("big", 1)
        self.parts = self._keys("parts", 1)
        self.fresh = []
        self.upload = None
        self.appends = 0
        self.counts = dict.fromkeys(MIX, 0)
        self.problem = None

    def _keys(self, kind, count):
        return [Key(f"{kind}/t{self.number}/{n}") for n in range(count)]

    def keys(self):
        groups = (self.small, self.medium, self.appended, self.copies, self.big, self.parts)
        return [key for group in (*groups, self.fresh) for key in group]

    def run(self, killing):
        """Works until the connection breaks, which is well once `killing` is set."""
        self.http, self.s3 = Http(self.server.http), S3(self.server.s3)
        names, weights = list(MIX), list(MIX.values())
        try:
            while True:
                (name,) = self.rng.choices(names, weights)
                getattr(self, name)()
                self.counts[name] += 1
        except DEAD as error:
            if not killing.is_set():
                self.problem = f"thread {self.number}: {name}: {error!r} before the kill"
        except Unexpected as error:
            self.problem = f"thread {self.number}: {name}: {error}"

    # A change: note it as in flight, send it, and only then take it as acknowledged.

    def change(self, key, value, how, send):
        key.flying, key.touched = (value,), True
        reply = send()
        if reply.status not in (200, 201, 204) or b"<Error>" in reply.body[:400]:
            raise Unexpected(f"{how} {key.name}: {reply}")
        key.value, key.flying = value, ()
        self.log.write(key.name, key.version, value, how)

    def put(self, key, size):
        key.version += 1
        value = content(key.name, key.version, size)
        door = self.rng.choice(["http", "s3"])
        if door == "http":
            self.change(key, value, door, lambda: self.http.object("PUT", BUCKET, key.name, value))
        else:
            send = self.s3.object
            self.change(key, value, door, lambda: send("PUT", BUCKET, key.name, body=value))

    def put_small(self):
        self.put(self.rng.choice(self.small), self.rng.choice([100, 430, 2000, 10_000]))

    def put_fresh(self):
        number = len(self.fresh)
        self.fresh.append(Key(f"fresh/{number % 16}/t{self.number}-{number}"))
        self.put(self.fresh[-1], self.rng.randrange(100, 3000))

    def put_medium(self):
        self.put(self.rng.choice(self.medium), self.rng.randrange(16_000, 300_000))

    def put_big(self):
        self.put(self.rng.choice(self.big), 8 * MIB)

    def append(self):
        key = self.rng.choice(self.appended)
        if key.value is None or len(key.value) > MIB:
            return self.put(key, 200)
        key.version += 1
        piece = content(key.name, key.version, self.rng.choice([150, 3000, 20_000, 150_000]))
        send = self.http.object
        value = key.value + piece
        self.change(key, value, "append", lambda: send("POST", BUCKET, key.name, piece))

    def append_shared(self):
        log = self.shared
        self.appends += 1
        record = SharedLog.record(self.number, self.appends)
        with log.lock:
            log.flying.add(record)
        reply = self.http.object("POST", BUCKET, log.name, record)
        if reply.status not in (200, 201, 204):
            raise Unexpected(f"append {log.name}: {reply}")
        with log.lock:
            log.flying.discard(record)
            log.acknowledged.add(record)

    def copy(self):
        sources = [k for k in self.small + self.medium + self.big if k.value is not None]
        if not sources:
            return
        source, target = self.rng.choice(sources), self.rng.choice(self.copies)
        headers = {"x-amz-copy-source": f"/{BUCKET}/{source.name}"}
        send = self.s3.object
        target.version += 1
        self.change(
            target,
            source.value,
            "copy",
            lambda: send("PUT", BUCKET, target.name, headers=headers),
        )

    def delete(self):
        key = self.rng.choice(self.keys())
        if key in self.parts:
            return
        key.version += 1
        if self.rng.random() < 0.5 and key.value is not None:
            send = self.http.object
        else:
            send = self.s3.object
        self.change(key, None, "delete", lambda: send("DELETE", BUCKET, key.name))

    def delete_batch(self):
        keys = self.rng.sample(self.keys(), 8)
        for key in keys:
            key.version += 1
            key.flying, key.touched = (None,), True
        names = "".join(f"<Object><Key>{key.name}</Key></Object>" for key in keys)
        body = f"<Delete>{names}</Delete>".encode()

        headers = {"content-md5": base64.b64encode(hashlib.md5(body).digest()).decode()}
        reply = self.s3.request("POST", f"/{BUCKET}", {"delete": ""}, body, headers)
        if reply.status != 200 or b"<Error>" in reply.body:
            raise Unexpected(f"delete batch: {reply}")
        for key in keys:
            key.value, key.flying = None, ()
            self.log.write(key.name, key.version, None, "delete_batch")

    def multipart(self):
        """Goes on with the upload that a kill interrupted, or begins one."""
        if self.upload is None:
            key = self.rng.choice(self.parts)
            key.version += 1
            sizes = [5 * MIB] * self.rng.randrange(1, 3) + [self.rng.randrange(100, MIB)]
            pieces = [content(key.name, f"{key.version}.{n}", s) for n, s in enumerate(sizes)]
            upload = self.s3.create_upload(BUCKET, key.name)
            self.upload = Upload(key, upload, pieces)
        up = self.upload
        while len(up.etags) < len(up.pieces):
            number = len(up.etags)
            piece = up.pieces[number]
            up.etags.append(self.s3.upload_part(BUCKET, up.key.name, up.id, number + 1, piece))
        complete = self.s3.complete_upload
        value = b"".join(up.pieces)
        self.change(
            up.key, value, "complete", lambda: complete(BUCKET, up.key.name, up.id, up.etags)
        )
        self.upload = None

    def settled(self):
        """After a kill: was the completion that was in flight carried out?"""
        if self.upload and self.upload.key.value == b"".join(self.upload.pieces):
            self.upload = None
