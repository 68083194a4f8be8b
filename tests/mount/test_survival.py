"""Deaths of a mount and of its server, and what is said to who asks for what cannot be."""

import contextlib
import errno
import fcntl
import itertools
import multiprocessing
import os
import random
import select
import shutil
import subprocess
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.disk import SmallDisk, Unavailable
from harness.mount import Door, Mount, environment, is_mounted
from harness.server import Server, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually

ROUNDS = int(os.environ.get("CAIRN_TEST_MOUNT_KILLS", "3"))


@pytest.fixture
def place():
    with Server() as server:
        Door(server, "bucket").ask("PUT", "")
        work = scratch("survival")
        yield server, work
    # A mount that was killed while a file was open stays.
    if is_mounted(work / "mnt"):
        subprocess.run(["umount", "--lazy", work / "mnt"], check=True)


def synced(path, data, flag=os.O_TRUNC):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flag)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


class Syncer(multiprocessing.Process):
    """Appends to files and replaces others, and syncs each change, until it is told to end or its mount
    is gone. Of each file it knows the size and checksum that it was told are durable. A process of
    its own: one that started a server while it has a file open would wait for itself."""

    def __init__(self, root, seed, model):
        super().__init__()
        self.root, self.rng, self.model = root, random.Random(seed), model
        self.tried = "replaced0", model.get("replaced0", (0, 0))
        self.ended, self.result = multiprocessing.Event(), multiprocessing.SimpleQueue()

    def run(self):
        error = None
        try:
            while not self.ended.is_set():
                self.step()
        except OSError as caught:
            error = repr(caught)
        self.result.put((error, self.model, self.tried))

    def step(self):
        name = self.rng.choice(["appended", "replaced"]) + str(self.rng.randrange(4))
        data = self.rng.randbytes(self.rng.choice([10, 5000, 100_000, 3_000_000]))
        size, checksum = self.model.get(name, (0, 0))
        if name.startswith("appended") and size < 10_000_000:
            self.tried = name, (size + len(data), zlib.crc32(data, checksum))
            synced(self.root / name, data, os.O_APPEND)
        else:
            self.tried = name, (len(data), zlib.crc32(data))
            synced(self.root / "new", data, os.O_TRUNC)
            os.rename(self.root / "new", self.root / name)
            directory = os.open(self.root, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        self.model[name] = self.tried[1]

    def there(self):
        """Looks at what is there after a death, and takes it for the model from then on."""
        error, model, (tried, to) = self.result.get()
        self.join()
        # What a dead mount had asked for last may come only when its leases have lapsed, but not
        # after a change that is made to the same.
        (self.root / "after").touch()
        (self.root / "after").unlink()
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.root / tried)
        for name in model.keys() | {tried}:
            before = model.get(name, (0, 0))
            path = self.root / name
            data = path.read_bytes() if name in model or path.exists() else b""
            found = len(data), zlib.crc32(data)
            if found != before:
                # What was not acknowledged may be there: replaced as a whole, appended in part.
                kept = data[:before[0]] if name.startswith("appended") else b""
                assert name == tried and (found == to or zlib.crc32(kept) == before[1]), name
                model[name] = found
        return error, model


def test_what_was_synced_outlives_mounts_and_servers_killed_at_any_moment(place):
    server, work = place
    rng = random.Random(3)
    mount = Mount(server, work / "mnt", bucket="bucket").start()
    models = {mount.root / "one": {}, mount.root / "two": {}}
    for root in models:
        root.mkdir()
    os.sync()
    for number in range(ROUNDS):
        syncers = [Syncer(root, rng.random(), model) for root, model in models.items()]
        for syncer in syncers:
            syncer.start()
        time.sleep(rng.uniform(0.1, 0.6))
        victim = rng.choice(["mount", "server", "both"])
        if victim != "mount":
            server.kill()
        if victim != "server":
            mount.kill()
        if victim != "mount":
            server.start()
        if victim != "server":
            mount = Mount(server, work / "mnt", bucket="bucket").start()
        for syncer in syncers:
            syncer.ended.set()
            error, models[syncer.root] = syncer.there()
            assert (error is None) == (victim == "server"), f"round {number}: {victim}: {error}"
    mount.stop()
    assert server.stop() == 0
    code, report = server.fsck()
    assert code == 0, report


class Maker(multiprocessing.Process):
    """Makes, changes and removes small files, and syncs none of them. A process of its own: one that
    started a server while it has a file open would wait for itself."""

    def __init__(self, root, seed):
        super().__init__()
        self.root, self.rng, self.model = root, random.Random(seed), {}
        self.ended, self.result = multiprocessing.Event(), multiprocessing.SimpleQueue()

    def run(self):
        try:
            for number in itertools.count():
                if self.ended.is_set():
                    break
                self.step(number)
        except OSError as error:
            self.model = error
        self.result.put(self.model)

    def step(self, number):
        what = self.rng.randrange(4) if self.model else 0
        known = self.rng.choice(sorted(self.model)) if what else None
        if what in (0, 1):
            path = known or f"{number % 7}/{number}"
            data = self.rng.randbytes(self.rng.choice([0, 10, 3000, 40_000]))
            (self.root / path).parent.mkdir(exist_ok=True)
            (self.root / path).write_bytes(data)
            self.model[path] = data
        elif what == 2:
            path = f"{number % 5}/renamed{number}"
            (self.root / path).parent.mkdir(exist_ok=True)
            (self.root / known).rename(self.root / path)
            self.model[path] = self.model.pop(known)
        else:
            (self.root / known).unlink()
            del self.model[known]


def test_what_was_done_outlives_servers_that_are_killed(place):
    server, work = place
    rng = random.Random(4)
    mount = Mount(server, work / "mnt", bucket="bucket").start()
    maker = Maker(mount.root, 5)
    maker.start()
    for _ in range(6):
        time.sleep(rng.random())
        server.restart()
    time.sleep(1)
    maker.ended.set()
    model = maker.result.get()
    maker.join()
    assert isinstance(model, dict), model
    door = Door(server, "bucket")
    for path, data in model.items():
        assert (mount.root / path).read_bytes() == data, path
        assert door.get(path) == data, path
    there = {str(path.relative_to(mount.root)) for path in mount.root.rglob("*") if path.is_file()}
    assert there == set(model)
    mount.stop()
    assert server.stop() == 0
    code, report = server.fsck()
    assert code == 0, report


def test_a_mount_goes_on_when_its_server_is_back(place):
    server, work = place
    with Mount(server, work / "mnt", bucket="bucket") as mount:
        fd = os.open(mount.root / "file", os.O_RDWR | os.O_CREAT)
        os.write(fd, b"before")
        os.fsync(fd)
        # Nothing unsynced: to start a process closes a copy of `fd`, which writes back.
        server.restart()
        os.write(fd, b" and")
        os.write(fd, b" after")
        os.fsync(fd)
        os.close(fd)
    assert Door(server, "bucket").get("file") == b"before and after"


def test_a_removed_file_that_is_open_outlives_its_server_and_then_goes(place):
    server, work = place
    mount = Mount(server, work / "mnt", bucket="bucket").start()
    fd = os.open(mount.root / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 100_000)
    os.fsync(fd)
    os.unlink(mount.root / "file")
    server.restart()
    assert os.pread(fd, 10, 99_995) == b"x" * 5
    os.close(fd)
    mount.stop()
    assert server.stop() == 0
    code, report = server.fsck()
    assert code == 0, report


def test_a_mount_that_was_stopped_past_its_lease_shows_nothing_stale(place):
    server, work = place
    door = Door(server, "bucket")
    mount = Mount(server, work / "mnt", bucket="bucket").start()
    door.put("file", b"old")
    assert (mount.root / "file").read_bytes() == b"old"
    mount.process.send_signal(19)
    try:
        door.put("file", b"newer")
        door.put("made", b"made")
    finally:
        mount.process.send_signal(18)
    assert (mount.root / "file").read_bytes() == b"newer"
    assert (mount.root / "made").read_bytes() == b"made"
    mount.stop()


def test_what_is_closed_while_the_server_is_away_for_longer_than_a_lease(place):
    server, work = place
    mount = Mount(server, work / "mnt", bucket="bucket").start()

    def calls():
        stats = os.getxattr(mount.root.parent, "user.cairn.stats").decode()
        return int(dict(line.split(" ", 1) for line in stats.splitlines())["session_calls"])

    file = os.open(mount.root / "file", os.O_WRONLY | os.O_CREAT)
    os.fsync(file)
    server.process.send_signal(19)
    try:
        os.write(file, b"written")
        # The connection is given up, and the file is written back in a session that will have lapsed.
        time.sleep(6)
        closing = ThreadPoolExecutor().submit(os.close, file)
        time.sleep(8)
    finally:
        server.process.send_signal(18)
    closing.result(timeout=PATIENCE_SECONDS)
    assert (mount.root / "file").read_bytes() == b"written"
    before = calls()
    time.sleep(1)
    assert calls() - before < 20
    mount.stop()


def test_a_single_write_is_durable_where_that_is_asked(place):
    server, work = place
    mount = Mount(server, work / "mnt", bucket="bucket").start()
    file = os.open(mount.root / "file", os.O_WRONLY | os.O_CREAT)
    os.pwritev(file, [b"durable"], 0, os.RWF_DSYNC)
    mount.kill()
    with contextlib.suppress(OSError):
        os.close(file)
    server.kill()
    server.start()
    assert Door(server, "bucket").get("file") == b"durable"


def test_a_dead_mount_point_is_taken_away(place):
    server, work = place
    path = work / "mnt"
    path.mkdir()
    command = [binary(), "mount", server.http, str(path)]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True,
                         timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, run.stderr
    assert (path / "bucket").is_dir()
    found = subprocess.run(["pgrep", "-f", f"{path} --foreground"], capture_output=True, text=True)
    for pid in found.stdout.split():
        os.kill(int(pid), 9)
    # By the process that looks after it.
    eventually(lambda: not is_mounted(path), "it is taken away")
    mount = Mount(server, path, bucket="bucket").start()
    mount.kill()
    with pytest.raises(OSError) as caught:
        os.stat(mount.root)
    assert caught.value.errno == errno.ENOTCONN
    # By whoever mounts there next.
    mount.start()
    assert mount.root.is_dir()
    subprocess.run(["umount", str(path)], check=True)
    assert mount.process.wait(timeout=PATIENCE_SECONDS) == 0
    assert not is_mounted(path)


def refused(args, **env):
    run = subprocess.run([binary(), "mount", *map(str, args)], env=dict(environment(), **env),
                         capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert run.returncode != 0
    assert len(run.stderr.strip().splitlines()) == 1, run.stderr
    return run.stderr


def test_what_cannot_be_mounted_is_said_in_one_line(place):
    server, work = place
    path = work / "mnt"
    assert "no such directory" in refused([server.http, path])
    path.mkdir()
    (path / "file").touch()
    assert "not empty" in refused([server.http, path])
    (path / "file").unlink()
    assert "refused" in refused([server.http, path], CAIRN_SECRET="wrong-secret-wrong-secret")
    nowhere = "http://127.0.0.1:9"
    assert nowhere in refused([nowhere, path])
    assert "this is an S3 door" in refused([server.s3, path])
    assert refused([server.http, path], CAIRN_KEY="", CAIRN_SECRET="")
    assert not is_mounted(path)


MASKED = ["unshare", "-m", "sh", "-c", 'mount --bind /dev/null /dev/fuse && exec "$@"', "sh"]
UNABLE = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]


@pytest.mark.parametrize("wrapper", [MASKED, UNABLE], ids=["without the device", "without rights"])
@pytest.mark.parametrize("options", [[], ["-f"]], ids=["behind", "in front"])
def test_what_the_kernel_does_not_mount_is_said_in_one_line(place, wrapper, options):
    server, work = place
    path = work / "mnt"
    path.mkdir()
    command = [*wrapper, binary(), "mount", server.http, path, *options]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and not is_mounted(path)
    assert run.stderr.startswith("cairn: ") and run.stderr.count("\n") == 1, run.stderr
    # Where that is installed it says why by itself.
    if wrapper is MASKED or not shutil.which("fusermount3"):
        assert "install fuse3" in run.stderr, run.stderr


def test_what_is_usual_fills_no_log(place):
    server, work = place
    Door(server, "bucket").put("file", b"x")
    with Mount(server, work / "mnt", bucket="bucket") as mount:
        with open(mount.root / "file", "rb") as file:
            poll = select.poll()
            poll.register(file, select.POLLIN)
            assert poll.poll(60_000) and file.read() == b"x"
        subprocess.run(["umount", mount.path], check=True)
        assert mount.process.wait(timeout=PATIENCE_SECONDS) == 0
        text = mount.tail(100_000)
        assert "unmounted" in text and "WARN" not in text and "ERROR" not in text, text


def test_read_only_mounts_change_nothing(place):
    server, work = place
    with Mount(server, work / "mnt", ["--read-only"], bucket="bucket"):
        with pytest.raises(OSError) as caught:
            (work / "mnt/bucket/file").write_bytes(b"x")
        assert caught.value.errno == errno.EROFS


def counts(path):
    """What a mount was asked, and what it asked its server, by name."""
    run = subprocess.run([binary(), "stats", str(path)], capture_output=True, text=True, check=True)
    words = [line.split() for line in run.stdout.splitlines()]
    return {name: int(count) for name, count, *_ in words if count.isdigit()}


def test_read_only_mounts_with_local_locks_open_nothing(place):
    server, work = place
    door = Door(server, "bucket")
    old = b"old" * 30_000
    door.put("file", old)
    options = ["--read-only", "--local-locks"]
    with Mount(server, work / "mnt", options, bucket="bucket") as mount:
        path = mount.root / "file"
        assert path.read_bytes() == old
        before = counts(mount.path)
        for _ in range(100):
            assert path.read_bytes() == old
        after = counts(mount.path)
        for name in "open", "read", "flush", "release", "getattr", "lookup":
            assert after.get(name, 0) - before.get(name, 0) < 10, (name, before, after)
        with open(path, "rb", buffering=0) as kept, open(path, "rb") as other:
            fcntl.flock(kept, fcntl.LOCK_EX)
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for version in range(20):
                new = b"%d" % version * 50_000
                door.put("file", new)
                assert path.read_bytes() == new
            assert kept.read() == old
            os.fsync(kept)
        door.delete("file")
        with pytest.raises(FileNotFoundError):
            path.read_bytes()
    alone = [binary(), "mount", server.http, str(work / "mnt"), "--local-locks"]
    run = subprocess.run(alone, env=environment(), capture_output=True, text=True)
    assert run.returncode == 2 and "--read-only" in run.stderr


def test_a_corrupt_block_is_an_error_of_its_file_only(place):
    server, work = place
    mount = Mount(server, work / "mnt", bucket="bucket").start()
    synced(mount.root / "good", b"g" * 1_000_000)
    marker = os.urandom(64)
    synced(mount.root / "bad", marker * 16_000)
    for segment in server.directory.glob("**/*.seg"):
        data = bytearray(segment.read_bytes())
        at = data.find(marker)
        if at >= 0:
            with open(segment, "r+b") as file:
                file.seek(at + 10)
                file.write(b"\xff\x00\xff\x00")
    mount.stop()
    mount = Mount(server, work / "mnt", bucket="bucket").start()
    with pytest.raises(OSError) as caught:
        (mount.root / "bad").read_bytes()
    assert caught.value.errno == errno.EIO
    assert (mount.root / "good").read_bytes() == b"g" * 1_000_000
    mount.stop()


def test_warm_reads_ask_the_server_nothing(place):
    server, work = place
    with Mount(server, work / "mnt", bucket="bucket"):
        path = work / "mnt/bucket/small"
        path.write_bytes(b"x" * 430)
        for _ in range(3):
            assert path.read_bytes() == b"x" * 430

        def asks_nothing():
            """Once what was written is durable, of which the server is told behind our back."""
            before = counts(work / "mnt")["session_calls"]
            for _ in range(200):
                assert path.read_bytes() == b"x" * 430
            return counts(work / "mnt")["session_calls"] == before

        eventually(asks_nothing)


def test_a_full_store_is_said_at_fsync_and_keeps_what_was_synced():
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(SmallDisk(300))
        except Unavailable as error:
            pytest.skip(str(error))
        server = stack.enter_context(Server(directory=disk.mount / "data"))
        Door(server, "bucket").ask("PUT", "")
        work = scratch("full")
        mount = stack.enter_context(Mount(server, work / "mnt", bucket="bucket"))
        model = {}
        with pytest.raises(OSError) as caught:
            for number in range(100):
                data = os.urandom(8 << 20)
                synced(mount.root / f"file{number}", data)
                model[number] = data
        assert caught.value.errno == errno.ENOSPC
        assert model
        for number, data in model.items():
            assert (mount.root / f"file{number}").read_bytes() == data
        for number in range(len(model) + 1):
            (mount.root / f"file{number}").unlink(missing_ok=True)

        def takes_more():
            try:
                synced(mount.root / "again", b"x" * 1_000_000)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return False
            return True

        eventually(takes_more, "there is room")
