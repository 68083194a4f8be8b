"""What Linux does with files on a local disk, and what a mount did otherwise once."""

import ctypes
import errno
import fcntl
import multiprocessing
import os
import stat

import pytest

from harness.mount import as_user
from harness.wait import PATIENCE_SECONDS, eventually

CONTEXT = multiprocessing.get_context("spawn")
LIBC = ctypes.CDLL(None, use_errno=True)
USER = 1001
CAPABILITY = bytes([1, 0, 0, 2, 0x80]) + bytes(15)
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16


def allocate(fd, mode, offset, length):
    number = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    LIBC.fallocate.argtypes = number
    if LIBC.fallocate(fd, mode, offset, length) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def by_descriptor(work, flags=os.O_RDWR):
    """Something that is done to a file by a descriptor of its own."""

    def done(path, _):
        fd = os.open(path, flags)
        work(fd)
        os.close(fd)

    return done


def copy(path, source):
    into, out_of = os.open(path, os.O_RDWR), os.open(source, os.O_RDONLY)
    assert os.copy_file_range(out_of, into, 4) == 4


def send(path, source):
    into, out_of = os.open(path, os.O_RDWR), os.open(source, os.O_RDONLY)
    assert os.sendfile(into, out_of, 0, 4) == 4


CHANGES = {
    "write": by_descriptor(lambda fd: os.pwrite(fd, b"x", 1)),
    "append": by_descriptor(lambda fd: os.write(fd, b"x"), os.O_RDWR | os.O_APPEND),
    "cut": by_descriptor(lambda fd: os.ftruncate(fd, 3)),
    "grow": by_descriptor(lambda fd: os.ftruncate(fd, 100_000)),
    "same size": by_descriptor(lambda fd: os.ftruncate(fd, 20_000)),
    "cut when opened": by_descriptor(lambda fd: None, os.O_RDWR | os.O_TRUNC),
    "cut by name": lambda path, _: os.truncate(path, 3),
    "allocate": by_descriptor(lambda fd: allocate(fd, 0, 65_536, 65_536)),
    "allocate within": by_descriptor(lambda fd: allocate(fd, 0, 0, 100)),
    "allocate and keep": by_descriptor(lambda fd: allocate(fd, KEEP_SIZE, 65_536, 65_536)),
    "punch": by_descriptor(lambda fd: allocate(fd, PUNCH_HOLE | KEEP_SIZE, 4096, 4096)),
    "punch behind": by_descriptor(lambda fd: allocate(fd, PUNCH_HOLE | KEEP_SIZE, 1 << 20, 9)),
    "zero": by_descriptor(lambda fd: allocate(fd, ZERO_RANGE, 4096, 4096)),
    "copy": copy,
    "send": send,
}


@pytest.mark.parametrize("mode, left", [(0o6777, 0o777), (0o2666, 0o666)])
@pytest.mark.parametrize("name", CHANGES)
def test_bytes_that_others_change_are_run_by_nobody_as_somebody_else(here, name, mode, left):
    path, source = here / "file", here / "source"
    source.write_bytes(b"source")
    path.write_bytes(b"four" * 5000)
    os.chmod(source, 0o644)
    os.chmod(path, mode)
    os.setxattr(path, "security.capability", CAPABILITY)
    assert as_user(USER, [], lambda: CHANGES[name](path, source)) == 0
    # What was written is written back by now, since it was closed.
    assert stat.S_IMODE(os.stat(path).st_mode) == left
    with pytest.raises(OSError) as caught:
        os.getxattr(path, "security.capability")
    assert caught.value.errno == errno.ENODATA


@pytest.mark.parametrize(
    "work",
    [
        lambda fd: os.pwrite(fd, b"x", 1),
        lambda fd: os.ftruncate(fd, 3),
        lambda fd: allocate(fd, 0, 0, 9),
    ],
    ids=["write", "cut", "allocate"],
)
def test_whoever_writes_by_a_descriptor_of_root_is_not_root(here, work):
    path = here / "file"
    path.write_bytes(b"bytes of root")
    os.chmod(path, 0o6755)
    fd = os.open(path, os.O_RDWR)
    assert as_user(USER, [], lambda: work(fd)) == 0
    os.close(fd)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o755


def test_a_user_takes_no_capability_away_by_hand(here):
    (here / "file").write_bytes(b"x")
    os.chmod(here / "file", 0o777)
    os.setxattr(here / "file", "security.capability", CAPABILITY)
    taken = as_user(USER, [], lambda: os.removexattr(here / "file", "security.capability"))
    assert taken == errno.EPERM
    assert os.getxattr(here / "file", "security.capability") == CAPABILITY


def test_appending_can_be_switched_off_and_on(here, mounts):
    other = mounts[1] / here.name / "file"
    fd = os.open(here / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    os.write(fd, b"12345")
    fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_APPEND)
    assert os.pwrite(fd, b"Z", 0) == 1
    os.fsync(fd)
    assert (here / "file").read_bytes() == other.read_bytes() == b"Z2345"
    fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    os.write(fd, b"6")
    assert other.read_bytes() == b"Z23456"
    os.close(fd)
    # Of one that was opened for writing at any place, beside an appender elsewhere.
    fd = os.open(here / "file", os.O_RDWR)
    assert os.pread(fd, 10, 0) == b"Z23456"
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    with open(other, "ab") as appender:
        appender.write(b"there")
    os.write(fd, b"here")
    os.close(fd)
    for path in (here / "file", other):
        assert path.read_bytes() == b"Z23456therehere"


def lock_again_and_again(path, rounds):
    for _ in range(rounds):
        first = os.open(path, os.O_RDWR)
        fcntl.flock(first, fcntl.LOCK_EX)
        second = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise AssertionError("two have the lock")
        except BlockingIOError:
            pass
        os.close(first)
        os.close(second)


def test_a_lock_by_flock_is_held_by_one_and_goes_with_its_descriptor(here):
    (here / "file").write_bytes(b"")
    # In a process of its own, which is ended if it waits for ever.
    program = CONTEXT.Process(target=lock_again_and_again, args=(here / "file", 60))
    program.start()
    program.join(timeout=PATIENCE_SECONDS)
    is_stuck = program.exitcode is None
    program.kill()
    assert not is_stuck and program.exitcode == 0


def test_closing_any_descriptor_gives_locks_back(here, mounts):
    (here / "file").write_bytes(b"x")
    other = os.open(mounts[1] / here.name / "file", os.O_RDWR)
    fd = os.open(here / "file", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    with pytest.raises(OSError):
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(os.open(here / "file", os.O_RDONLY))
    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    os.close(other)


def work_in(path, ready, gone):
    os.chdir(path)
    ready.set()
    while not gone.is_set():
        try:
            os.mkdir("s")
            os.rmdir("s")
        except OSError:
            # It is gone.
            break
    assert gone.wait(PATIENCE_SECONDS)
    assert os.stat(".").st_nlink == 0
    os.stat("..")
    os.chdir("..")


def test_a_directory_that_is_removed_stays_for_who_works_in_it(here):
    for number in range(5):
        path = here / f"d{number}"
        path.mkdir()
        ready, gone = CONTEXT.Event(), CONTEXT.Event()
        program = CONTEXT.Process(target=work_in, args=(path, ready, gone))
        program.start()
        try:
            assert ready.wait(PATIENCE_SECONDS)

            def is_removed():
                try:
                    path.rmdir()
                except OSError as error:
                    assert error.errno == errno.ENOTEMPTY
                    return False
                return True

            eventually(is_removed, "it is removed")
            gone.set()
            program.join(timeout=PATIENCE_SECONDS)
            assert program.exitcode == 0
        finally:
            program.kill()


def test_a_file_takes_any_number_of_holes(here):
    step, count = 4096, 2100
    fd = os.open(here / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"d" * (step * count))
    os.fsync(fd)
    for at in range(0, step * count, 2 * step):
        allocate(fd, PUNCH_HOLE | KEEP_SIZE, at, step)
    os.close(fd)
    assert (here / "file").read_bytes() == (bytes(step) + b"d" * step) * (count // 2)


class Entry(ctypes.Structure):
    _fields_ = [
        ("ino", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("length", ctypes.c_uint16),
        ("kind", ctypes.c_uint8),
        ("name", ctypes.c_char * 256),
    ]


def numbers(path):
    """Numbers of inodes by name, as readdir(3) says."""
    LIBC.opendir.restype = LIBC.readdir64.restype = ctypes.c_void_p
    LIBC.readdir64.argtypes = LIBC.closedir.argtypes = [ctypes.c_void_p]
    stream = LIBC.opendir(os.fsencode(path))
    found = {}
    while entry := LIBC.readdir64(stream):
        entry = ctypes.cast(entry, ctypes.POINTER(Entry)).contents
        found[entry.name] = entry.ino
    LIBC.closedir(stream)
    return found


def test_the_entry_of_the_parent_has_its_number(here):
    (here / "d").mkdir()
    found = numbers(here / "d")
    assert found == {b".": os.stat(here / "d").st_ino, b"..": os.stat(here).st_ino}


def test_the_kernel_shows_what_is_mounted(here):
    with open("/proc/mounts") as lines:
        types = {line.split()[1]: line.split()[2] for line in lines}
    at = next(path for path in here.parents if str(path) in types)
    assert types[str(at)] == "fuse.cairn"
