"""A mixed load through all gateways, whose every answer goes into the history.

A client tries again, through the next gateway, until it is answered; each attempt is an operation
of its own in the history.
"""

import hashlib
import http.client
import itertools
import random
import threading

from cluster.history import ABSENT
from harness.doors import S3, Http
from harness.wait import PATIENCE_SECONDS
from kill.model import content, explain

BUCKET = "load"
MIB = 1 << 20
LOST = (OSError, http.client.HTTPException)
READ_SECONDS, WRITE_SECONDS = 1, 8  # one attempt
GIVE_UP_SECONDS = PATIENCE_SECONDS
# What is slow everywhere is given more time, at most so many times as much.
MOST_PATIENCE = 8
PAUSE_SECONDS = 0.15
CLIENTS = 6
# Inline bodies, single blocks, several blocks: size and how often of 100.
SIZES = {
    100: 20, 2000: 18, 12_000: 14, 40_000: 20, 300_000: 16, MIB: 6, 5 * MIB: 3, 9 * MIB: 3,
}  # fmt: skip
SMALL = {100: 40, 12_000: 20, 40_000: 40}
PLAIN = {"get": 50, "put": 30, "head": 8, "delete": 12}
HOT = {
    "get": 35, "put": 12, "head": 7, "delete": 8, "create": 14, "swap": 16, "copy": 4, "move": 4,
}  # fmt: skip
PLAIN_KEYS = [f"plain/{n}" for n in range(40)]
HOT_KEYS = [f"hot/{n}" for n in range(10)]


def pick(rng, weights):
    return rng.choices(list(weights), list(weights.values()))[0]


class Values:
    """Every value is written once only, so that who reads one knows which write it was."""

    def __init__(self):
        self.numbers, self.lock = itertools.count(1), threading.Lock()
        self.by_etag, self.etags = {}, {}

    def make(self, key, size):
        number = next(self.numbers)
        body = content(key, number, size)
        value, etag = f"{key}:{number}", hashlib.md5(body).hexdigest()
        with self.lock:
            self.by_etag[etag], self.etags[value] = value, etag
        return value, body

    def of_body(self, body):
        """The value that a body is; one that nobody made if it is not whole."""
        value = self.by_etag.get(hashlib.md5(body).hexdigest())
        return value or f"WRONG BYTES: {explain(body)}"

    def of_etag(self, etag):
        return self.by_etag.get(etag.strip('"'), f"STRANGE ETAG: {etag}")


class Spent:
    """How long one operation took, with all its attempts."""

    def __init__(self, kind, began, ended, attempts):
        self.kind, self.began, self.ended, self.attempts = kind, began, ended, attempts


class Client:
    """One thread. `gateways` are (name, S3 URL, HTTP URL)."""

    def __init__(self, name, seed, gateways, history, values):
        self.name, self.rng = name, random.Random(f"{seed}/{name}")
        self.history, self.values, self.gateways = history, values, gateways
        self.turn = self.rng.randrange(len(gateways))
        self.doors = {}
        self.last_seen = {}
        self.spent, self.problems = [], []
        self.busy_since = None
        self.copies = {}  # acknowledged: {key: value}
        self.copied = 0
        self.patience = 1

    def door(self, make, seconds):
        """A connection to the gateway whose turn it is."""
        seconds *= self.patience
        name, s3, http_url = self.gateways[self.turn % len(self.gateways)]
        known = self.doors.get((name, make, seconds))
        if known is None:
            known = make(s3 if make is S3 else http_url, timeout=seconds)
            self.doors[name, make, seconds] = known
        return known

    def run(self, ended):
        while not ended.is_set():
            keys, mix = self.rng.choice([(PLAIN_KEYS, PLAIN), (HOT_KEYS, HOT)])
            self.work(pick(self.rng, mix), self.rng.choice(keys), ended)
            self.busy_since = None
            self.turn += self.rng.random() < 0.2

    def work(self, what, key, ended):
        """One operation, tried until it is answered."""
        attempt, kind = getattr(self, what), "read" if what in ("get", "head") else "write"
        self.busy_since = began = self.history.now()
        for attempts in itertools.count(1):
            # Each gateway is asked once before it is given longer.
            late = max(0, attempts - len(self.gateways))
            self.patience = min(1 + late, MOST_PATIENCE)
            if attempt(key):
                self.spent.append(Spent(kind, began, self.history.now(), attempts))
                return
            if self.history.now() - began > GIVE_UP_SECONDS:
                self.problems.append(f"NEVER: {what} {key}: no answer in {GIVE_UP_SECONDS} s")
                return
            self.turn += 1
            if ended.wait(PAUSE_SECONDS):
                return

    # One attempt each: True if it was answered.

    def get(self, key):
        by_http = self.rng.random() < 0.3
        door = self.door(Http if by_http else S3, READ_SECONDS)
        op = self.history.sent(key, self.name, f"GET by {door.connection.url.netloc}")
        reply = self.send(op, lambda: door.object("GET", BUCKET, key), lost_is_nothing=True)
        if reply is None:
            return False
        state = ABSENT if reply.status == 404 else self.values.of_body(reply.body)
        self.saw(op, state)
        return True

    def head(self, key):
        door = self.door(S3, READ_SECONDS)
        op = self.history.sent(key, self.name, f"HEAD by {door.connection.url.netloc}")
        reply = self.send(op, lambda: door.object("HEAD", BUCKET, key), lost_is_nothing=True)
        if reply is None:
            return False
        self.saw(op, ABSENT if reply.status == 404 else self.values.of_etag(reply.headers["ETag"]))
        return True

    def put(self, key):
        return self.write(key, "PUT", {}, {})

    def create(self, key):
        return self.write(key, "PUT if none", {"if-none-match": "*"}, {"state": ABSENT})

    def swap(self, key):
        """A PUT that is to replace what this client saw last, and nothing else."""
        seen = self.last_seen.get(key)
        if seen not in self.values.etags:
            return self.get(key)
        etag = self.values.etags[seen]
        return self.write(key, "PUT if match", {"if-match": f'"{etag}"'}, {"state": seen})

    def write(self, key, what, headers, effect):
        sizes = SIZES if key in PLAIN_KEYS else SMALL
        value, body = self.values.make(key, pick(self.rng, sizes))
        door = self.door(S3, WRITE_SECONDS)
        shown = f"{what} by {door.connection.url.netloc}"
        op = self.history.sent(key, self.name, shown, makes=value, **effect)
        send = lambda: door.object("PUT", BUCKET, key, body=body, headers=headers)  # noqa: E731
        reply = self.send(op, send)
        if reply is None:
            return False
        if reply.status == 200:
            self.saw(op, effect.get("state"))
            self.last_seen[key] = value
        else:
            refused = {"state": ABSENT} if reply.status == 404 else {"state": None}
            refused["other"] = effect["state"] if reply.status == 412 else None
            self.history.answered(op, makes=None, **refused)
        return True

    def delete(self, key):
        door = self.door(S3, WRITE_SECONDS)
        shown = f"DELETE by {door.connection.url.netloc}"
        op = self.history.sent(key, self.name, shown, makes=ABSENT)
        reply = self.send(op, lambda: door.object("DELETE", BUCKET, key))
        if reply is not None:
            self.history.answered(op)
        return reply is not None

    def copy(self, key):
        """To a new key, for each attempt another: then nobody asks what was not answered."""
        self.copied += 1
        target = f"copy/{self.name}/{self.copied}"
        door = self.door(S3, WRITE_SECONDS)
        headers = {"x-amz-copy-source": f"/{BUCKET}/{key}"}
        op = self.history.sent(key, self.name, f"COPY by {door.connection.url.netloc}")
        send = lambda: door.object("PUT", BUCKET, target, headers=headers)  # noqa: E731
        reply = self.send(op, send, lost_is_nothing=True)
        if reply is None:
            return False
        if reply.status == 404:
            self.history.answered(op, state=ABSENT)
            return True
        value = self.values.of_etag(reply.xml().find("{*}ETag").text)
        self.history.answered(op, state=value)
        self.copies[target] = value
        return True

    def move(self, key):
        """To a new key, for each attempt another; what is there then was moved."""
        self.copied += 1
        target = f"moved/{self.name}/{self.copied}"
        door = self.door(Http, WRITE_SECONDS)
        shown = f"MOVE by {door.connection.url.netloc}"
        op = self.history.sent(key, self.name, shown, makes=ABSENT)
        path = f"/storage/{BUCKET}/{key}?move-to={target}"
        reply = self.send(op, lambda: door.request("POST", path))
        if reply is None:
            return False
        if reply.status == 404:
            self.history.answered(op, state=ABSENT, makes=None)
            return True
        value = self.values.of_etag(reply.headers["ETag"])
        self.history.answered(op, state=value)
        self.copies[target] = value
        return True

    def send(self, op, request, lost_is_nothing=False):
        """The reply, or None if there was none that says what became of it."""
        try:
            reply = request()
        except LOST:
            reply = None
        if reply is not None and reply.status in (200, 204, 404, 412):
            return reply
        definite = reply is not None and reply.status < 500
        if definite and reply.status not in (409, 429):
            self.problems.append(f"UNEXPECTED: {op}: {reply}")
        if lost_is_nothing or definite or (reply is not None and reply.status == 507):
            self.history.refused(op)
        return None

    def saw(self, op, state):
        self.history.answered(op, state=state)
        if state is not None:
            self.last_seen[op.key] = state


class Load:
    """`with Load(...) as load:` runs it; then `verify` looks at everything once more."""

    def __init__(self, cluster, seed, history, clients=CLIENTS):
        self.cluster, self.history, self.values = cluster, history, Values()
        self.ended = threading.Event()
        self.clients = [self.client(f"t{n}", seed) for n in range(clients)]
        self.threads = []

    def client(self, name, seed, gateways=None):
        return Client(name, seed, self.doors(gateways), self.history, self.values)

    def doors(self, gateways=None):
        nodes = [self.cluster[gateway] for gateway in gateways or self.cluster.gateways()]
        return [(node.name, node.s3, node.http) for node in nodes]

    def follow(self):
        """The gateways are others than before."""
        for client in self.clients:
            client.gateways = self.doors()

    def __enter__(self):
        for client in self.clients:
            thread = threading.Thread(target=self._run, args=(client,))
            thread.start()
            self.threads.append(thread)
        return self

    def _run(self, client):
        try:
            client.run(self.ended)
        except Exception as error:  # noqa: BLE001: a thread that dies would check nothing
            client.problems.append(f"the test itself: {error!r}")

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def problems(self):
        return [problem for client in self.clients for problem in client.problems]

    def has_done_all_before(self, moment):
        """Whether no operation is under way that began before."""
        since = [client.busy_since for client in self.clients]
        return all(began is None or began > moment for began in since)

    def spent(self, began, ended, kind):
        """Operations of a kind that were under way in a time."""
        every = (spent for client in self.clients for spent in list(client.spent))
        return [s for s in every if s.kind == kind and s.began < ended and s.ended > began]

    def copies(self):
        return {key: value for client in self.clients for key, value in client.copies.items()}

    def verify(self):
        """Every key is read through every gateway; copies are compared at once."""
        problems = []
        for gateway in self.cluster.gateways():
            client = self.client(f"final by {gateway}", 0, [gateway])
            for key in PLAIN_KEYS + HOT_KEYS:
                client.work("get", key, threading.Event())
            s3 = self.cluster.s3(gateway)
            for key, value in self.copies().items():
                try:
                    reply = s3.object("GET", BUCKET, key)
                except LOST as error:
                    problems.append(f"COPY by {gateway}: {key} is not to be read: {error!r}")
                    continue
                if reply.status != 200 or self.values.of_body(reply.body) != value:
                    problems.append(f"COPY by {gateway}: {key} should be {value}: {reply}")
            problems += client.problems
        return problems
