"""Directories that one mount fills by itself: nobody at any door can tell."""

import hashlib
import os
import random
import signal
import subprocess
import threading
import time

from harness.mount import Mount

FILES = int(os.environ.get("CAIRN_TEST_MOUNT_FILES", "1500"))


def content(number):
    return hashlib.sha256(b"%d" % number).digest() * (number % 40)


def test_others_see_each_file_as_soon_as_it_is_closed(mounts):
    one, two, door = mounts
    made, failed, done = [], [], threading.Event()

    def fill():
        for directory in range(FILES // 100):
            path = one / f"filled-{directory}"
            path.mkdir()
            for number in range(100):
                (path / f"{number}").write_bytes(content(number))
                made.append((path.name, number))
        done.set()

    def look(seed, read):
        rng = random.Random(seed)
        while not done.is_set() and not failed:
            time.sleep(rng.random() / 50)
            if not made:
                continue
            directory, number = made[-1 - rng.randrange(min(5, len(made)))]
            found = read(directory, number)
            if found != content(number):
                failed.append((seed, directory, number, found))

    def at_two(directory, number):
        names = os.listdir(two / directory)
        return (two / directory / f"{number}").read_bytes() if f"{number}" in names else None

    looks = {1: at_two, 2: lambda directory, number: door.get(f"{directory}/{number}")}
    threads = [threading.Thread(target=fill)]
    threads += [threading.Thread(target=look, args=args) for args in looks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for root in (one, two):
        for directory, number in made:
            assert (root / directory / f"{number}").read_bytes() == content(number)


def test_a_tree_is_unpacked_as_it_was_packed(mounts, tmp_path):
    one, two, _ = mounts
    source = tmp_path / "source"
    for directory in range(20):
        path = source / f"{directory % 4}" / f"{directory}"
        path.mkdir(parents=True)
        for number in range(30):
            file = path / f"file {number}"
            file.write_bytes(content(directory * number))
            file.chmod(0o640 if number % 2 else 0o755)
            os.utime(file, ns=(10**18 + number, 10**18 + directory))
        (path / "link").symlink_to("file 1")
    archive = tmp_path / "archive.tar"
    subprocess.run(["tar", "--format=pax", "-cf", archive, "-C", tmp_path, "source"], check=True)
    subprocess.run(["tar", "-xf", archive, "-C", one], check=True)
    for root in (two, one):
        subprocess.run(["diff", "-r", source, root / "source"], check=True)
        for path in source.rglob("*"):
            found, expected = (root / path.relative_to(tmp_path)).lstat(), path.lstat()
            assert found.st_mode == expected.st_mode, path
            if path.is_file() and not path.is_symlink():
                assert found.st_mtime_ns == expected.st_mtime_ns, path


def test_what_fsync_promised_outlives_a_mount_that_was_killed(store, mounts, tmp_path):
    one, two, _ = mounts
    work = tmp_path / "third"
    for round in range(3):
        with Mount(store, work, bucket=one.name) as third:
            path = third.root / f"killed-{round}"
            path.mkdir()
            synced, stop = [], time.monotonic() + 0.3 + round / 10
            number = 0
            while time.monotonic() < stop or not synced:
                (path / f"{number}").write_bytes(content(number))
                if number % 50 == 49:
                    fd = os.open(path / f"{number}", os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)
                    synced.append(number)
                number += 1
            third.process.send_signal(signal.SIGKILL)
            third.process.wait()
        # In time, what was done is a prefix of what was done: all before the last fsync, and no gap.
        names = sorted(int(name) for name in os.listdir(two / f"killed-{round}"))
        assert names == list(range(len(names))) and len(names) > synced[-1]
        for known in range(synced[-1] + 1):
            found = (two / f"killed-{round}" / f"{known}").read_bytes()
            assert found == content(known), (round, known)


def test_a_server_that_is_killed_forgets_nothing(store, mounts):
    one, two, _ = mounts
    path = one / "survives"
    path.mkdir()
    made = []

    def fill():
        for number in range(FILES):
            (path / f"{number}").write_bytes(content(number))
            made.append(number)

    filler = threading.Thread(target=fill)
    filler.start()
    for _ in range(3):
        time.sleep(0.2)
        store.kill()
        store.start()
    filler.join()
    assert len(made) == FILES
    assert sorted(int(name) for name in os.listdir(two / "survives")) == made
    for number in made:
        assert (two / "survives" / f"{number}").read_bytes() == content(number)
