"""What is acknowledged at one door is seen at every other: two mounts and the HTTP door."""

import os
import random
import threading

import pytest

OPERATIONS = int(os.environ.get("CAIRN_TEST_MOUNT_CHANGES", "2500"))


def read(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def test_every_change_is_seen_at_once_from_the_other_sides(mounts):
    one, two, door = mounts
    rng = random.Random(11)
    model = {}
    for number in range(OPERATIONS):
        where = rng.choice([one, two, door])
        key = f"key{rng.randrange(6)}"
        if rng.random() < 0.2:
            if key not in model:
                continue
            del model[key]
            door.delete(key) if where is door else (where / key).unlink()
        else:
            model[key] = rng.randbytes(rng.choice([1, 300, 20_000, 200_000]))
            door.put(key, model[key]) if where is door else (where / key).write_bytes(model[key])
        for root in (one, two):
            # The one that changed, and any other: both may be in the kernel's memory.
            for looked in {key, f"key{rng.randrange(6)}"}:
                expected = model.get(looked)
                shown = f"change {number} of {key}, {looked} at {root}"
                assert read(root / looked) == expected, shown
                assert size_of(root / looked) == (len(expected) if expected else None), shown
        assert door.get(key) == model.get(key), f"change {number} of {key} at the door"


def test_an_open_file_shows_what_is_written_elsewhere(mounts):
    one, two, _ = mounts
    (one / "growing").write_bytes(b"a" * 10)
    with open(two / "growing", "rb", buffering=0) as reader:
        for count in range(1, 30):
            assert reader.read() == (b"a" * 10 if count == 1 else b"%d" % (count - 1))
            with open(one / "growing", "ab") as writer:
                writer.write(b"%d" % count)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
@pytest.mark.parametrize("size", [10, 20_000, 5_000_000])
def test_what_is_opened_is_read_even_if_it_goes_before_the_first_read(mounts, flags, size):
    one, two, door = mounts

    def replace():
        (two / "new").write_bytes(b"new")
        os.rename(two / "new", two / "file")

    for go in [lambda: door.delete("file"), (two / "file").unlink, replace]:
        data = os.urandom(size)
        door.put("file", data)
        fd = os.open(one / "file", flags)
        try:
            go()
            with open(fd, "rb", closefd=False) as file:
                assert file.read() == data
            assert os.fstat(fd).st_nlink == 0
        finally:
            os.close(fd)
        assert read(one / "file") == (b"new" if go is replace else None)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
@pytest.mark.parametrize("before", [b"", b"abc"])
@pytest.mark.parametrize("reads_before", [False, True])
def test_the_first_read_after_a_change_is_right(mounts, flags, before, reads_before):
    one, two, _ = mounts
    (one / "changing").write_bytes(before)
    fd = os.open(two / "changing", flags)
    if reads_before:
        assert os.pread(fd, 100, 0) == before
    with open(one / "changing", "r+b", buffering=0) as writer:
        for data in (b"longer than before", b"of the same length", b"xyz"):
            writer.truncate(0)
            writer.seek(0)
            writer.write(data)
            os.fsync(writer.fileno())
            assert os.pread(fd, 100, 0) == data
    os.close(fd)


def test_a_change_that_hides_behind_its_time_is_seen(mounts):
    one, two, _ = mounts
    for number in range(20):
        data = b"%04d" % number
        (one / "hidden").write_bytes(data)
        os.utime(one / "hidden", ns=(10**18, 10**18))
        assert (two / "hidden").read_bytes() == data
        with open(two / "hidden", "rb") as reader, open(one / "hidden", "r+b") as writer:
            writer.write(b"more")
            writer.flush()
            os.fsync(writer.fileno())
            os.utime(one / "hidden", ns=(10**18, 10**18))
            assert os.pread(reader.fileno(), 100, 0) == b"more"
        assert os.stat(two / "hidden").st_mtime_ns == 10**18


def test_appenders_on_two_mounts_lose_nothing(mounts):
    one, two, _ = mounts
    (one / "log").write_bytes(b"")

    def append(root, tag):
        fd = os.open(root / "log", os.O_WRONLY | os.O_APPEND)
        for number in range(60):
            os.write(fd, f"{tag}{number:04}\n".encode())
        os.close(fd)

    threads = [threading.Thread(target=append, args=args) for args in [(one, "a"), (two, "b")]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for root in (one, two):
        lines = (root / "log").read_text().splitlines()
        assert sorted(lines) == sorted(f"{tag}{n:04}" for tag in "ab" for n in range(60))


def test_two_mounts_work_in_one_directory(mounts):
    one, two, _ = mounts
    (one / "shared").mkdir()
    failed = []

    def work(root, tag):
        try:
            for number in range(60):
                path = root / "shared" / f"{tag}{number}"
                path.write_text(tag)
                path.rename(path.with_suffix(".x"))
                assert path.with_suffix(".x").read_text() == tag
                assert not path.exists()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=args)
               for args in [(one, "a"), (two, "b"), (one, "c"), (two, "d")]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    names = sorted(f"{tag}{n}.x" for tag in "abcd" for n in range(60))
    assert sorted(os.listdir(one / "shared")) == sorted(os.listdir(two / "shared")) == names


def calls(root):
    """How often a mount has asked the server."""
    lines = os.getxattr(root.parent, "user.cairn.stats").decode().splitlines()
    return int(dict(line.split()[:2] for line in lines)["session_calls"])


def test_of_a_new_directory_is_known_what_is_not_there(mounts):
    one, two, door = mounts
    (one / "new").mkdir()
    assert not (one / "new/0").exists()
    before = calls(one)
    for number in range(100):
        assert not (one / f"new/{number}").exists()
        (one / f"new/{number}").touch()
    # To make it, and now and then to have what was made durable.
    assert calls(one) - before < 150
    for number in range(100, 200):
        # Others make it, and it is seen at once.
        name = f"new/{number}"
        assert not (one / name).exists()
        if number % 2:
            (two / name).touch()
        else:
            door.put(name, b"x")
        assert (one / name).exists()
        if number % 10 == 0:
            # Empty once more, and so it begins again.
            for entry in os.listdir(two / "new"):
                (two / "new" / entry).unlink()
            assert not (one / name).exists() and os.listdir(one / "new") == []


def test_what_was_written_is_read_without_asking(mounts):
    one, two, _ = mounts
    (one / "mine").mkdir()
    written = {f"mine/{size}": os.urandom(size) for size in (0, 430, 4096, 20_000, 100_000, 1 << 20)}
    for path, content in written.items():
        (one / path).write_bytes(content)
    directory = os.open(one / "mine", os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    before = calls(one)
    for path, content in written.items():
        assert (one / path).read_bytes() == content
    # But perhaps to have it durable.
    assert calls(one) - before < len(written)
    for path, content in written.items():
        (two / path).write_bytes(content[::-1])
        assert (one / path).read_bytes() == content[::-1]


def test_what_was_written_far_behind_is_read_here(mounts):
    one, two, _ = mounts
    content = os.urandom(1 << 20)
    file = os.open(one / "far", os.O_RDWR | os.O_CREAT)
    for number in range(65):
        os.pwrite(file, content, number << 20)
    os.fsync(file)
    os.pwrite(file, b"end", 66 << 20)
    assert os.lseek(file, 65 << 20, os.SEEK_DATA) == 66 << 20
    assert os.pread(file, 10, 66 << 20) == b"end"
    os.close(file)
    for root in (one, two):
        assert (root / "far").read_bytes() == content * 65 + bytes(1 << 20) + b"end"


def test_names_that_are_kept_are_not_stale(mounts):
    one, two, door = mounts
    (one / "listed").mkdir()
    rng, names = random.Random(12), set()
    for number in range(OPERATIONS // 2):
        where = rng.choice([one, two, door])
        name = f"name{rng.randrange(8)}"
        before = (two / "listed").stat()
        if name in names:
            path = f"listed/{name}"
            door.delete(path) if where is door else (where / path).unlink()
        elif where is door:
            door.put(f"listed/{name}", b"x")
        else:
            (where / "listed" / name).touch()
        names ^= {name}
        if number % 3 == 0:
            # Whoever goes by the time alone sees no change.
            os.utime(two / "listed", ns=(before.st_atime_ns, before.st_mtime_ns))
        for root in (one, two):
            assert set(os.listdir(root / "listed")) == names, f"change {number} at {root}"
            assert {entry.name for entry in os.scandir(root / "listed") if entry.stat()} == names


def test_renames_from_two_mounts_lose_no_file(mounts):
    one, two, _ = mounts
    for root, name in ((one, "x"), (two, "y")):
        (root / name).mkdir()
    (one / "x" / "ball").write_bytes(b"ball")

    def throw(root, source, target):
        for _ in range(80):
            try:
                os.rename(root / source / "ball", root / target / "ball")
            except FileNotFoundError:
                pass

    threads = [threading.Thread(target=throw, args=args)
               for args in [(one, "x", "y"), (two, "y", "x")]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for root in (one, two):
        found = [root / name / "ball" for name in "xy" if (root / name / "ball").exists()]
        assert len(found) == 1 and found[0].read_bytes() == b"ball"
