"""Backups of a store under load, with kills of both sides: byte for byte, and the next one costs what changed."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import threading
import time

from harness.doors import Http
from harness.server import KEY, SECRET, Server, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually

OBJECTS = int(os.environ.get("CAIRN_TEST_OBJECTS", "1500"))
# One object in so many has blocks. The others are in the metadata.
LARGE_EACH = 20
MIB, GIB = 1 << 20, 1 << 30
# All objects with blocks together. It takes two and a half times as much of the disk.
LARGE = int(float(os.environ.get("CAIRN_TEST_BACKUP_GIB", "0.014")) * GIB * LARGE_EACH / OBJECTS)
WRITERS, BUSY = 4, 50


def content(number):
    size = LARGE if number % LARGE_EACH == 0 else 1000 + number % 2000
    return random.Random(number).randbytes(size)


def run(server, *words, ok=True):
    env = {"PATH": os.environ["PATH"], "CAIRN_SERVER": server.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
    words = [binary(), *map(str, words)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=10 * PATIENCE_SECONDS)
    assert not ok or done.returncode == 0, f"{words}: {done.stderr}"
    return done


class Load:
    """Writes, reads and deletes objects of its own, and takes the times of requests."""

    def __init__(self, server):
        self.server, self.times, self.stop, self.failed = server, [], False, 0
        self.threads = [threading.Thread(target=self.work, args=(seed,)) for seed in range(WRITERS)]

    def work(self, seed):
        rng, http = random.Random(seed), Http(self.server.http)
        while not self.stop:
            key, draw = f"load-{seed}-{rng.randrange(BUSY)}", rng.random()
            began = time.monotonic()
            try:
                if draw < 0.4:
                    http.object("PUT", "busy", key, content(rng.randrange(OBJECTS)))
                elif draw < 0.5:
                    http.object("DELETE", "busy", key)
                else:
                    http.object("GET", "busy", key)
                self.times.append((began, time.monotonic() - began))
            except OSError:
                self.failed += 1  # the server was killed
                time.sleep(0.05)
            except Exception as error:
                if "IncompleteRead" not in repr(error) and "RemoteDisconnected" not in repr(error):
                    raise
                self.failed += 1

    def p99_ms(self, since, until):
        times = sorted(took for began, took in self.times if since <= began < until)
        return 1000 * times[len(times) * 99 // 100] if times else float("nan")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        for thread in self.threads:
            thread.join()


def bodies_of(server):
    """Digests of what the load has left, by key."""
    http, found = Http(server.http), {}
    for key in (f"load-{seed}-{number}" for seed in range(WRITERS) for number in range(BUSY)):
        reply = http.object("GET", "busy", key)
        assert reply.status in (200, 404), reply
        if reply.status == 200:
            found[key] = hashlib.sha256(reply.body).digest()
    return found


def size(directory):
    """Bytes and number of the objects of a backup."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files), len(files)


def test_a_store_under_load_is_copied_and_restored():
    work = scratch("backups")
    still = work / "still"
    still.mkdir()
    for number in range(OBJECTS):
        (still / f"{number:06}").write_bytes(content(number))
    with Server() as server:
        for bucket in ("still", "busy"):
            run(server, "bucket", "create", bucket)
        run(server, "put", "-r", "-j", "16", still, "still/")
        shutil.rmtree(still)
        place = work / "backup"
        with Load(server) as load:
            alone = time.monotonic()
            time.sleep(3)
            began = time.monotonic()
            # Killed at one moment and another: each goes on where the one before was.
            for kills in range(1, 4):
                env = {"CAIRN_SERVER": server.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
                words = [binary(), "backup", "create", str(place), "--pack-mib", "1", "--hold", "30s"]
                one = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                wanted = kills * 3
                eventually(lambda: one.poll() is not None or size(place)[1] > wanted, "packs are written")
                if kills == 2:
                    server.restart()
                one.kill()
                one.wait()
            run(server, "backup", "create", place, "--hold", "30s")
            ended = time.monotonic()
        figures = f"p99 alone {load.p99_ms(alone, began):.1f} ms, beside backups {load.p99_ms(began, ended):.1f} ms"
        print(f"{OBJECTS} objects in {ended - began:.1f} s: {figures}; {load.failed} requests failed at the kill")
        busy = bodies_of(server)
        # What the load has changed since.
        run(server, "backup", "create", place)
        first, first_files = size(place)

        # The next one costs what changed.
        changed = [random.Random(f"new {number}").randbytes(30_000) for number in range(20)]
        http = Http(server.http)
        for number, data in enumerate(changed):
            assert http.object("PUT", "still", f"new/{number}", data).status == 201
        began = time.monotonic()
        said = run(server, "backup", "create", place).stderr
        second, second_files = size(place)
        cost, files, data = second - first, second_files - first_files, sum(map(len, changed))
        print(f"the next one: {time.monotonic() - began:.1f} s, {cost / MIB:.2f} MiB for {data / MIB:.2f} MiB in "
              f"{files} objects, after {first / MIB:.1f} MiB in {first_files}: {said.strip()}")  # fmt: skip
        # A list of rows has some hundred, with the content of small objects.
        assert data < cost < data + max(first // 8, 4 * MIB)
        assert files <= 5
        run(server, "backup", "check", place)
        # Holds of backups that were killed end by themselves.
        eventually(lambda: run(server, "backup", "holds").stdout == "", "no hold is left")
        for lock in run(server, "backup", "locks", place, "--json").stdout.splitlines():
            run(server, "backup", "locks", place, "--end", json.loads(lock)["id"])
        run(server, "backup", "prune", place, "--keep-last", "1")
        shutil.copy(server.directory / "secret.key", work / "secret.key")
        server.stop()
        shutil.rmtree(server.directory)
        run(server, "restore", place, work / "new/data", "--secret-key", work / "secret.key")
    with Server(work / "new/data") as restored:
        http = Http(restored.http)
        for number in range(OBJECTS):
            assert http.object("GET", "still", f"{number:06}").body == content(number), number
        for number, data in enumerate(changed):
            assert http.object("GET", "still", f"new/{number}").body == data
        assert bodies_of(restored) == busy
        restored.stop()
        code, said = restored.fsck()
        assert code == 0, said
    shutil.rmtree(work)
