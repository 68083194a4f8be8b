"""A write is visible through every door when it is acknowledged, whole, and is never taken back."""

import random
import threading
import time

from harness.doors import S3, Http
from harness.wait import comes_true
from kill.model import content, explain

SECONDS = 6
SIZES = [100, 3000, 40_000, 700_000, 5 << 20]


class Track:
    """Of one key: the version acknowledged last, and the version sent last."""

    def __init__(self, name, size):
        self.name, self.size = name, size
        self.acknowledged = self.sent = 0


def read_version(body):
    """The version of a body that must be whole."""
    found = explain(body)
    assert found.split(",")[1] == " whole", f"torn: {found}"
    return int(body.split(b"\n", 2)[1])


def write(track, door, bucket, stop):
    while not stop.is_set():
        track.sent += 1
        body = content(track.name, track.sent, track.size)
        reply = door.object("PUT", bucket, track.name, body=body)
        assert reply.status in (200, 201, 204), reply
        track.acknowledged = track.sent


def read(tracks, doors, bucket, stop, seed, seen):
    rng = random.Random(seed)
    while not stop.is_set():
        track, door = rng.choice(tracks), rng.choice(doors)
        atleast = track.acknowledged
        if atleast == 0:
            continue
        reply = door.object("GET", bucket, track.name)
        assert reply.status == 200, reply
        version = read_version(reply.body)
        assert atleast <= version <= track.sent, f"{track.name}: {version}, not {atleast}"
        seen.append(version)


def in_threads(works, stop=None):
    """Runs callables side by side and raises what the first of them raised."""
    errors = []

    def run(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)
            if stop:
                stop.set()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def timed(stop, enough=lambda: True):
    """After some time, and when enough was done, all end; also when one of them has failed."""

    def wait():
        time.sleep(SECONDS)
        comes_true(lambda: stop.is_set() or enough())
        stop.set()

    return wait


def test_overwrites_are_seen_whole_and_at_once(server, bucket):
    stop = threading.Event()
    tracks = [Track(f"key-{n}", size) for n, size in enumerate(SIZES)]
    seen = []
    enough = lambda: len(seen) > 20 and all(track.acknowledged > 2 for track in tracks)  # noqa: E731
    works = [timed(stop, enough)]
    for number, track in enumerate(tracks):
        door = (Http(server.http), S3(server.s3))[number % 2]
        works.append(lambda track=track, door=door: write(track, door, bucket, stop))
    for seed in range(4):
        doors = Http(server.http), S3(server.s3)
        works.append(lambda doors=doors, seed=seed: read(tracks, doors, bucket, stop, seed, seen))
    in_threads(works, stop)
    assert enough()


def test_one_key_by_many_writers_is_always_one_of_theirs(server, bucket):
    """Writers of one key race; the store keeps one whole body, and both doors the same."""
    stop = threading.Event()

    def race(number, door):
        version = 0
        while not stop.is_set():
            version += 1
            body = content("contested", version * 10 + number, SIZES[version % 4])
            assert door.object("PUT", bucket, "contested", body=body).status in (200, 201, 204)

    def look(door):
        while not stop.is_set():
            reply = door.object("GET", bucket, "contested")
            if reply.status != 404:
                read_version(reply.body)

    works = [timed(stop)]
    works += [lambda n=n: race(n, (Http(server.http), S3(server.s3))[n % 2]) for n in range(4)]
    works += [lambda: look(Http(server.http)), lambda: look(S3(server.s3))]
    in_threads(works, stop)
    bodies = [door.object("GET", bucket, "contested").body for door in (Http(server.http), S3(server.s3))]
    assert bodies[0] == bodies[1]


def test_if_none_match_has_one_winner(server, bucket):
    for round_number in range(20):
        key, won = f"once-{round_number}", []
        barrier = threading.Barrier(8)

        def create(number, key=key, won=won, barrier=barrier):
            door = (Http(server.http), S3(server.s3))[number % 2]
            barrier.wait()
            body, headers = f"writer {number}".encode(), {"If-None-Match": "*"}
            reply = door.object("PUT", bucket, key, body=body, headers=headers)
            assert reply.status in (200, 201, 204, 409, 412), reply
            if reply.status < 300:
                won.append(body)

        in_threads([lambda n=n: create(n) for n in range(8)])
        assert len(won) == 1
        assert Http(server.http).object("GET", bucket, key).body == won[0]


def test_listings_never_miss_what_stays(server, bucket):
    """While keys come and go around them, those that stay are in every listing, once."""
    stop, s3 = threading.Event(), S3(server.s3)
    stays = [f"dir{n % 5}/stay-{n:04}" for n in range(1500)]
    for key in stays:
        assert s3.object("PUT", bucket, key, body=b"x").status == 200

    def churn(number):
        door, version = (Http(server.http), S3(server.s3))[number % 2], 0
        while not stop.is_set():
            version += 1
            key = f"dir{version % 5}/stay-{version % 1500:04}-{number}"
            assert door.object("PUT", bucket, key, body=b"y").status in (200, 201, 204)
            assert door.object("DELETE", bucket, key).status == 204

    def look(door):
        while not stop.is_set():
            assert not set(stays) - set(door.list(bucket))

    works = [timed(stop)] + [lambda n=n: churn(n) for n in range(3)]
    works += [lambda: look(Http(server.http)), lambda: look(S3(server.s3))]
    in_threads(works, stop)
