"""What programs expect of a file system, one thing a test."""

import ctypes
import errno
import os
import random
import socket
import stat
import subprocess
import threading
import time

import pytest

from harness.mount import as_user
from harness.wait import PATIENCE_SECONDS
from harness.server import binary


def fails(expected, work):
    with pytest.raises(OSError) as caught:
        work()
    assert caught.value.errno == expected, caught.value


def test_a_file_that_is_removed_stays_for_who_has_it_open(here):
    fd = os.open(here / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"before")
    os.unlink(here / "file")
    os.write(fd, b" and after")
    os.fsync(fd)
    assert os.pread(fd, 100, 0) == b"before and after"
    assert os.fstat(fd).st_nlink == 0
    assert os.listdir(here) == []
    os.close(fd)


def test_a_file_that_is_renamed_over_stays_for_who_has_it_open(here):
    (here / "old").write_bytes(b"old")
    (here / "new").write_bytes(b"new")
    fd = os.open(here / "old", os.O_RDONLY)
    os.rename(here / "new", here / "old")
    assert os.pread(fd, 100, 0) == b"old"
    assert (here / "old").read_bytes() == b"new"
    os.close(fd)


def test_a_file_replaced_at_another_door_is_read_to_its_end(here, mounts):
    door = mounts[2]
    body = os.urandom(3 << 20)
    door.put(f"{here.name}/big", body)
    fd = os.open(here / "big", os.O_RDONLY)
    read = os.read(fd, 1 << 20)
    door.put(f"{here.name}/big", b"another")
    while chunk := os.read(fd, 1 << 20):
        read += chunk
    assert read == body
    os.close(fd)
    assert (here / "big").read_bytes() == b"another"


def test_holes_are_holes(here):
    fd = os.open(here / "sparse", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x" * 4096, 10 << 20)
    os.ftruncate(fd, 30 << 20)
    assert os.lseek(fd, 0, os.SEEK_DATA) == 10 << 20
    assert os.lseek(fd, 0, os.SEEK_HOLE) == 0
    assert os.lseek(fd, 10 << 20, os.SEEK_HOLE) == (10 << 20) + 4096
    fails(errno.ENXIO, lambda: os.lseek(fd, 11 << 20, os.SEEK_DATA))
    for whence in (os.SEEK_DATA, os.SEEK_HOLE):
        for offset in (-1, 30 << 20):
            fails(errno.ENXIO, lambda: os.lseek(fd, offset, whence))  # noqa: B023
    assert os.lseek(fd, (30 << 20) - 1, os.SEEK_HOLE) == (30 << 20) - 1
    assert os.pread(fd, 10, (10 << 20) - 5) == b"\0" * 5 + b"x" * 5
    assert os.fstat(fd).st_size == 30 << 20
    os.close(fd)


def test_room_is_promised_and_holes_are_punched(here):
    fd = os.open(here / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 100_000)
    assert os.fstat(fd).st_size == 100_000
    os.pwrite(fd, b"x" * 100_000, 0)
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 1000, 50_000)
    assert os.pread(fd, 100_000, 0) == b"x" * 1000 + b"\0" * 50_000 + b"x" * 49_000
    os.close(fd)


KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE = 1, 2, 8, 16, 32


def fallocate(fd, mode, offset, length):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(fd, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def test_ranges_are_zeroed(here):
    fd = os.open(here / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x" * 100_000, 0)
    fallocate(fd, ZERO_RANGE, 1000, 50_000)
    fallocate(fd, ZERO_RANGE | KEEP_SIZE, 90_000, 50_000)
    zeroed = b"x" * 1000 + b"\0" * 50_000 + b"x" * 39_000 + b"\0" * 10_000
    assert os.pread(fd, 200_000, 0) == zeroed
    fallocate(fd, ZERO_RANGE, 120_000, 30_000)
    assert os.fstat(fd).st_size == 150_000
    assert os.pread(fd, 200_000, 0) == zeroed + b"\0" * 50_000
    for mode in (COLLAPSE_RANGE, INSERT_RANGE):
        fails(errno.EOPNOTSUPP, lambda: fallocate(fd, mode, 0, 4096))  # noqa: B023
    os.close(fd)


def test_times_have_nanoseconds(here):
    (here / "file").write_bytes(b"x")
    os.utime(here / "file", ns=(1_000_000_001, 1_700_000_000_123_456_789))
    found = os.stat(here / "file")
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_001, 1_700_000_000_123_456_789)
    os.utime(here / "file", ns=(-1, -4_500_000_000))
    found = os.stat(here / "file")
    assert (found.st_atime_ns, found.st_mtime_ns) == (-1, -4_500_000_000)


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR])
@pytest.mark.parametrize("size", [5, 100_000, 3_000_000])
def test_times_that_were_shown_stay(here, size, flags):
    """As git wants it, which looks before it closes."""
    fd = os.open(here / "file", flags | os.O_CREAT)
    os.write(fd, b"w" * size)
    first = times(os.fstat(fd))
    assert times(os.stat(here / "file")) == first
    os.write(fd, b"w")
    second = times(os.fstat(fd))
    assert second[0] > first[0]
    time.sleep(0.01)
    os.close(fd)
    assert times(os.stat(here / "file")) == second


def test_who_looks_at_a_file_does_not_wait_until_nobody_writes(here):
    ended, until = threading.Event(), time.monotonic() + PATIENCE_SECONDS

    def write():
        with open(here / "log", "wb", buffering=0) as log:
            # Who waits for its end would wait for ever.
            while not ended.is_set() and time.monotonic() < until:
                log.write(b"x" * 100)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        sizes = []
        while len(sizes) < 20 or sizes[-1] == sizes[0]:
            time.sleep(0.01)
            if (here / "log").exists():
                sizes.append(os.stat(here / "log").st_size)
        assert sizes == sorted(sizes)
        assert writer.is_alive()
    finally:
        ended.set()
        writer.join()


def times(found):
    return found.st_mtime_ns, found.st_ctime_ns


def test_modes_of_directories_change_no_mtime(here):
    (here / "file").write_bytes(b"")
    for mode in (0o700, 0o755, 0o711):
        before = os.stat(here).st_mtime_ns
        os.listdir(here)
        os.chmod(here, mode)
        assert os.stat(here).st_mtime_ns == before


@pytest.mark.parametrize("how", ["rmdir", "rename"])
def test_a_directory_that_is_removed_stays_for_who_is_in_it(here, how):
    (here / "gone").mkdir()
    fd = os.open(here / "gone", os.O_RDONLY)
    if how == "rmdir":
        (here / "gone").rmdir()
    else:
        (here / "other").mkdir()
        (here / "other").rename(here / "gone")
    found = os.fstat(fd)
    assert (found.st_nlink, stat.S_ISDIR(found.st_mode)) == (0, True)
    assert os.listdir(fd) == []
    for make in (
        lambda: os.mkdir("sub", dir_fd=fd),
        lambda: os.open("file", os.O_CREAT | os.O_RDWR, dir_fd=fd),
    ):
        fails(errno.ENOENT, make)
    assert os.stat("..", dir_fd=fd).st_ino == os.stat(here).st_ino
    os.close(fd)


def test_setgid_directories_pass_their_group_on(here):
    (here / "shared").mkdir()
    os.chown(here / "shared", 0, 1234)
    os.chmod(here / "shared", 0o2775)
    (here / "shared" / "sub").mkdir()
    (here / "shared" / "file").write_bytes(b"")
    assert os.stat(here / "shared/sub").st_gid == os.stat(here / "shared/file").st_gid == 1234
    assert os.stat(here / "shared/sub").st_mode & stat.S_ISGID


def test_modes_groups_and_sticky_directories_hold_for_other_users(here):
    os.chmod(here, 0o755)
    for mount in (here.parents[0], here.parents[1]):
        assert os.stat(mount).st_mode & 0o005
    (here / "secret").write_bytes(b"x")
    os.chmod(here / "secret", 0o600)
    assert as_user(1001, [], lambda: open(here / "secret").close()) == errno.EACCES
    (here / "team").write_bytes(b"x")
    os.chown(here / "team", 0, 2002)
    os.chmod(here / "team", 0o660)
    assert as_user(1001, [], lambda: open(here / "team", "r+").close()) == errno.EACCES
    assert as_user(1001, [2002], lambda: open(here / "team", "r+").close()) == 0
    (here / "tmp").mkdir()
    os.chmod(here / "tmp", 0o1777)
    assert as_user(1001, [], lambda: (here / "tmp/mine").write_bytes(b"x")) == 0
    assert os.stat(here / "tmp/mine").st_uid == 1001
    assert as_user(1002, [], lambda: os.unlink(here / "tmp/mine")) == errno.EPERM
    assert as_user(1002, [], lambda: os.chmod(here / "tmp/mine", 0o777)) == errno.EPERM
    assert as_user(1001, [], lambda: os.unlink(here / "tmp/mine")) == 0


def test_fifos_and_sockets_are_kept_and_devices_refused(here):
    os.mkfifo(here / "fifo")
    assert stat.S_ISFIFO(os.stat(here / "fifo").st_mode)
    with socket.socket(socket.AF_UNIX) as listening:
        here_fd = os.open(here, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{here_fd}/socket")
        os.close(here_fd)
    assert stat.S_ISSOCK(os.stat(here / "socket").st_mode)
    fails(errno.EPERM, lambda: os.mknod(here / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3)))


def test_extended_attributes(here):
    (here / "file").write_bytes(b"x")
    os.setxattr(here / "file", "user.color", b"blue")
    assert os.getxattr(here / "file", "user.color") == b"blue"
    assert os.listxattr(here / "file") == ["user.color"]
    fails(errno.EEXIST, lambda: os.setxattr(here / "file", "user.color", b"", os.XATTR_CREATE))
    os.removexattr(here / "file", "user.color")
    fails(errno.ENODATA, lambda: os.getxattr(here / "file", "user.color"))
    os.setxattr(here / "file", "security.capability", bytes([1, 0, 0, 2]) + bytes(16))
    fd = os.open(here / "file", os.O_WRONLY)
    os.write(fd, b"y")
    os.close(fd)
    fails(errno.ENODATA, lambda: os.getxattr(here / "file", "security.capability"))
    # Nothing here would obey it.
    fails(errno.EOPNOTSUPP, lambda: os.setxattr(here / "file", "system.other", b"x"))


def test_names_have_255_bytes(here):
    (here / ("n" * 255)).write_bytes(b"x")
    fails(errno.ENAMETOOLONG, lambda: (here / ("n" * 256)).write_bytes(b"x"))


def test_a_name_that_other_doors_cannot_show_is_refused(here):
    (here / "plain").write_bytes(b"x")
    name = os.fsencode(here) + b"/a\xffb"
    for make in (
        lambda: os.mkdir(name),
        lambda: open(name, "wb"),
        lambda: os.mknod(name),
        lambda: os.symlink("plain", name),
        lambda: os.link(here / "plain", name),
        lambda: os.rename(here / "plain", name),
    ):
        fails(errno.EILSEQ, make)
    assert os.listdir(here) == ["plain"]
    fails(errno.ENOENT, lambda: os.stat(name))
    os.symlink(b"\xff", here / "link")
    assert os.readlink(os.fsencode(here / "link")) == b"\xff"


def test_buckets_are_not_made_or_crossed_by_a_mount(here, mounts, store):
    top = here.parents[1]
    fails(errno.EACCES, lambda: (top / "new-bucket").mkdir())
    from harness.mount import Door
    Door(store, "other-bucket").ask("PUT", "")
    (here / "file").write_bytes(b"x")
    fails(errno.EXDEV, lambda: os.rename(here / "file", top / "other-bucket/file"))


def test_a_directory_is_listed_whole_while_it_changes(here):
    for number in range(1500):
        (here / f"stays{number:04}").touch()
    seen = []
    with os.scandir(here) as entries:
        for position, entry in enumerate(entries):
            seen.append(entry.name)
            if position % 100 == 0:
                (here / f"comes{position:04}").touch()
                (here / f"comes{position:04}").unlink()
    stays = [name for name in seen if name.startswith("stays")]
    assert len(stays) == len(set(stays)) == 1500


def test_mapped_files_are_shared(here):
    import mmap
    (here / "file").write_bytes(b"\0" * 8192)
    with open(here / "file", "r+b") as file, mmap.mmap(file.fileno(), 8192) as mapped:
        mapped[4000:4200] = b"y" * 200
        mapped.flush()
        assert os.pread(file.fileno(), 200, 4000) == b"y" * 200
    assert (here / "file").read_bytes()[4000:4200] == b"y" * 200


def test_what_was_cut_off_does_not_come_back(here):
    fd = os.open(here / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"old" * 7000, 10)
    os.fsync(fd)
    other = os.open(here / "file", os.O_WRONLY | os.O_TRUNC)
    os.pwrite(other, b"new" * 20_000, 4096)
    os.close(other)
    os.pwrite(fd, b"x" * 100, 0)
    os.fsync(fd)
    assert os.pread(fd, 4096, 0) == b"x" * 100 + b"\0" * 3996
    os.close(fd)


def bytes_written(root):
    stats = subprocess.run([binary(), "stats", root], capture_output=True, text=True, check=True)
    return int(dict(line.split(" ", 1) for line in stats.stdout.splitlines())["bytes_written"])


def test_a_copy_moves_no_bytes_and_is_a_file_of_its_own(mounts, here):
    data = os.urandom(5_000_000)
    (here / "source").write_bytes(data)
    mounted = mounts[0].parent
    before = bytes_written(mounted)
    subprocess.run(["cp", here / "source", here / "copy"], check=True)
    assert bytes_written(mounted) == before
    other = mounts[1] / here.name
    assert (other / "copy").read_bytes() == data
    with open(here / "copy", "r+b") as copy:
        copy.seek(1_000_000)
        copy.write(b"changed")
    changed = data[:1_000_000] + b"changed" + data[1_000_007:]
    assert (other / "copy").read_bytes() == changed
    assert (other / "source").read_bytes() == data


def test_copies_of_parts_move_no_bytes(mounts, here):
    """Random ones, within a file and from one to another, some not written back yet."""
    rng = random.Random(3)
    other = mounts[1] / here.name
    files = {name: bytearray(rng.randbytes(3_000_000)) for name in ("a", "b")}
    fds = {name: os.open(here / name, os.O_RDWR | os.O_CREAT) for name in files}
    for name, data in files.items():
        os.pwrite(fds[name], data, 0)
        os.fsync(fds[name])
    written = bytes_written(mounts[0].parent)
    for number in range(120):
        source, target = rng.choice("ab"), rng.choice("ab")
        if number % 10 == 0:
            at, part = rng.randrange(3_000_000), rng.randbytes(rng.choice([7, 5000, 100_000]))
            os.pwrite(fds[source], part, at)
            overlay(files[source], at, part)
            written += len(part)
        start, at = rng.randrange(len(files[source]) + 10), rng.randrange(4_000_000)
        part = files[source][start : start + rng.choice([1, 100, 70_000, 2_000_000])]
        length = len(part) or 1
        def copy():
            return os.copy_file_range(fds[source], fds[target], length, start, at)  # noqa: B023
        if source == target and part and start < at + length and at < start + length:
            fails(errno.EINVAL, copy)
            continue
        assert copy() == len(part)
        if part:
            overlay(files[target], at, part)
        assert os.pread(fds[target], len(part) + 200, max(at - 100, 0)) == bytes(
            files[target][max(at - 100, 0) : max(at - 100, 0) + len(part) + 200]
        ), number
        if number % 20 == 0:
            os.fsync(fds[target])
            assert (other / target).read_bytes() == files[target], number
    assert bytes_written(mounts[0].parent) == written
    for name, fd in fds.items():
        os.close(fd)
        assert (other / name).read_bytes() == files[name]


def overlay(data, at, part):
    data.extend(bytes(max(0, at + len(part) - len(data))))
    data[at : at + len(part)] = part


def test_copies_of_parts_keep_holes_and_change_times_and_modes(here):
    (here / "target").write_bytes(b"t" * 300_000)
    fd, target = (os.open(here / name, os.O_RDWR | os.O_CREAT) for name in ("source", "target"))
    os.pwrite(fd, b"s" * 100_000, 1 << 20)
    os.ftruncate(fd, 5 << 20)
    for name in ("source", "target"):
        os.utime(here / name, ns=(5, 5))
    os.chmod(here / "target", 0o6777)
    os.chmod(here / "source", 0o644)
    def copy():
        source = os.open(here / "source", os.O_RDONLY)
        copied = os.open(here / "target", os.O_WRONLY)
        assert os.copy_file_range(source, copied, 4 << 20, 1 << 19, 100_000) == 4 << 20
    before = time.time_ns()
    assert as_user(1001, [], copy) == 0
    found = os.stat(here / "target")
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == ((4 << 20) + 100_000, 0o777)
    assert before - 10**9 < found.st_mtime_ns == found.st_ctime_ns
    assert found.st_atime_ns == os.stat(here / "source").st_mtime_ns == 5
    data = 100_000 + (1 << 19)
    assert os.lseek(target, 50_000, os.SEEK_HOLE) == 100_000
    assert os.lseek(target, 100_000, os.SEEK_DATA) == data
    assert os.lseek(target, data, os.SEEK_HOLE) == data + 100_000
    assert os.pread(target, 20, data - 10) == b"\0" * 10 + b"s" * 10
    os.close(fd)
    os.close(target)


def test_parts_are_copied_into_another_bucket_too(here, mounts, store):
    from harness.mount import Door
    Door(store, "copied-to").ask("PUT", "")
    data = os.urandom(200_000)
    (here / "file").write_bytes(data)
    with open(here / "file", "rb") as source:
        with open(here.parents[1] / "copied-to/file", "wb") as target:
            target.write(b"12345")
            target.flush()
            assert os.copy_file_range(source.fileno(), target.fileno(), 1000, 7, 3) == 1000
    assert (here.parents[1] / "copied-to/file").read_bytes() == b"123" + data[7:1007]
