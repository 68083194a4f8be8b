"""What programs expect of a file system, one thing a test."""

import errno
import os
import socket
import stat
import subprocess

import pytest

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
    assert os.pread(fd, 10, (10 << 20) - 5) == b"\0" * 5 + b"x" * 5
    assert os.fstat(fd).st_size == 30 << 20
    os.close(fd)


def test_room_is_promised_and_holes_are_punched(here):
    fd = os.open(here / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 100_000)
    assert os.fstat(fd).st_size == 100_000
    os.pwrite(fd, b"x" * 100_000, 0)
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    punch = libc.fallocate
    punch.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    assert punch(fd, 3, 1000, 50_000) == 0
    assert os.pread(fd, 100_000, 0) == b"x" * 1000 + b"\0" * 50_000 + b"x" * 49_000
    os.close(fd)


def test_times_have_nanoseconds(here):
    (here / "file").write_bytes(b"x")
    os.utime(here / "file", ns=(1_000_000_001, 1_700_000_000_123_456_789))
    found = os.stat(here / "file")
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_001, 1_700_000_000_123_456_789)


def test_setgid_directories_pass_their_group_on(here):
    (here / "shared").mkdir()
    os.chown(here / "shared", 0, 1234)
    os.chmod(here / "shared", 0o2775)
    (here / "shared" / "sub").mkdir()
    (here / "shared" / "file").write_bytes(b"")
    assert os.stat(here / "shared/sub").st_gid == os.stat(here / "shared/file").st_gid == 1234
    assert os.stat(here / "shared/sub").st_mode & stat.S_ISGID


def as_user(uid, groups, work):
    """The errno of what another user does, 0 if it worked."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            work()
            code = 0
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


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
    # Nothing here would obey it.
    fails(errno.EOPNOTSUPP, lambda: os.setxattr(here / "file", "system.other", b"x"))


def test_names_have_255_bytes(here):
    (here / ("n" * 255)).write_bytes(b"x")
    fails(errno.ENAMETOOLONG, lambda: (here / ("n" * 256)).write_bytes(b"x"))
    os.mkdir(os.fsencode(here) + b"/\xff\xfe")
    assert b"\xff\xfe" in os.listdir(os.fsencode(here))


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
    # Into what is not empty, and of a part: the kernel does it, and it is right too.
    with open(here / "source", "rb") as source, open(here / "copy", "r+b") as copy:
        assert os.copy_file_range(source.fileno(), copy.fileno(), 1000, 5, 10) == 1000
    assert (other / "copy").read_bytes() == changed[:10] + data[5:1005] + changed[1010:]
