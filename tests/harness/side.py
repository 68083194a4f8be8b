"""One of two trees in which the same is done, to see whether the same comes of it.

It uses what Python has alone: it also runs in a guest."""

import os

NAMES = [f"n{i}" for i in range(6)]
DIRECTORIES = ["", "d1", "d1/e", "d2"]


def attempt(work):
    """What came of it, in words that do not depend on where it was done."""
    try:
        return "ok", work()
    except OSError as error:
        return "error", error.errno


class Side:
    """A tree, with files that stay open."""

    def __init__(self, root):
        self.root = str(root)
        self.open = {}

    def path(self, name):
        return os.path.join(self.root, name)

    def do(self, operation, *args):
        return attempt(lambda: getattr(self, operation)(*args))

    def write(self, name, offset, data, flags):
        fd = os.open(self.path(name), os.O_WRONLY | flags, 0o644)
        try:
            return os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    def append(self, name, data):
        fd = os.open(self.path(name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        try:
            return os.write(fd, data)
        finally:
            os.close(fd)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def truncate(self, name, size):
        os.truncate(self.path(name), size)

    def mkdir(self, name):
        os.mkdir(self.path(name))

    def rmdir(self, name):
        os.rmdir(self.path(name))

    def unlink(self, name):
        os.unlink(self.path(name))

    def rename(self, source, target):
        os.rename(self.path(source), self.path(target))

    def link(self, source, target):
        os.link(self.path(source), self.path(target))

    def symlink(self, target, name):
        os.symlink(target, self.path(name))

    def chmod(self, name, mode):
        os.chmod(self.path(name), mode)

    def utime(self, name, nanos):
        os.utime(self.path(name), ns=(nanos, nanos))

    def stat(self, name):
        found = os.lstat(self.path(name))
        is_directory = os.path.isdir(self.path(name)) and not os.path.islink(self.path(name))
        size = 0 if is_directory else found.st_size
        return oct(found.st_mode), size, found.st_nlink

    def list(self, name):
        return sorted(os.listdir(self.path(name)))

    def hold(self, name):
        old = self.open.pop(name, None)
        if old is not None:
            os.close(old)
        self.open[name] = os.open(self.path(name), os.O_RDWR)

    def use(self, name, offset, data):
        fd = self.open.get(name)
        if fd is None:
            return None
        os.pwrite(fd, data, offset)
        return os.pread(fd, 1 << 20, 0), os.fstat(fd).st_size, os.fstat(fd).st_nlink

    def close(self):
        for fd in self.open.values():
            os.close(fd)


def draw(rng):
    """An operation and its arguments."""
    def name():
        return os.path.join(rng.choice(DIRECTORIES), rng.choice(NAMES))
    data = rng.randbytes(rng.choice([1, 100, 5000, 20_000, 70_000]))
    offset = rng.choice([0, 10, 4096, 17_000, 100_000])
    flags = rng.choice([os.O_CREAT, 0, os.O_CREAT | os.O_EXCL, os.O_TRUNC])
    return rng.choice([
        ("write", name(), offset, data, flags), ("write", name(), offset, data, os.O_CREAT),
        ("append", name(), data), ("read", name()), ("read", name()),
        ("truncate", name(), rng.choice([0, 5, 16_384, 90_000])),
        ("mkdir", rng.choice(DIRECTORIES[1:])), ("mkdir", name()),
        ("rmdir", rng.choice(DIRECTORIES[1:])), ("rmdir", name()), ("unlink", name()),
        ("rename", name(), name()), ("rename", rng.choice(DIRECTORIES[1:]), name()),
        ("link", name(), name()), ("symlink", rng.choice(NAMES), name()),
        ("chmod", name(), rng.choice([0o600, 0o644, 0o755, 0o4711])),
        ("utime", name(), rng.randrange(1 << 60)), ("stat", name()), ("stat", name()),
        ("list", rng.choice(DIRECTORIES)), ("hold", name()), ("use", name(), offset, data),
    ])


def shown(operation):
    """The same with the sizes of bytes alone."""
    return [arg if not isinstance(arg, bytes) else len(arg) for arg in operation]
