"""Runs in a guest, and does there what a test asks for.

The working directory is the mount. Requests and replies are pickles, each behind its length."""

import mmap
import os
import pickle
import random
import re
import socket
import struct
import subprocess
import threading
import traceback

from side import Side, draw, shown

# A file that was unlinked while it is open has another name until it is closed: an NFS client does
# so by itself, and others can see it.
WITHOUT = ("hold", "use")
FILE_BYTES = 128 << 10
PART_BYTES = 20_000


def pour(source, target):
    while data := source.recv(1 << 16):
        target.sendall(data)


class Here(Side):
    def calls(self):
        """How often each procedure has been called, over all mounts."""
        with open("/proc/self/mountstats") as file:
            operations = file.read().split("per-op statistics")[1:]
        found = {}
        for part in operations:
            for name, count in re.findall(r"^\s+([A-Z]+): (\d+) ", part, re.M):
                found[name] = found.get(name, 0) + int(count)
        return {name: count for name, count in found.items() if count}

    def run(self, command, within="."):
        """Runs a command of the shell; what it says."""
        done = subprocess.run(
            ["sh", "-ec", command], cwd=self.path(within), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"exit {done.returncode}: {said[-3000:]}"
        return said

    def pass_on(self, port, path):
        """Joins a connection to a test, at a port there, with a socket of this machine."""
        outer = socket.create_connection((b"10.0.2.2", port))
        inner = socket.socket(socket.AF_UNIX)
        inner.connect(path)
        for source, target in ((outer, inner), (inner, outer)):
            threading.Thread(target=pour, args=(source, target), daemon=True).start()
        return True

    def forget(self):
        """Has the kernel forget what it knows of files."""
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")

    def put(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def look(self, names):
        """Opens, reads and closes each; None for what is not there."""
        found = {}
        for name in names:
            try:
                found[name] = self.read(name)
            except FileNotFoundError:
                found[name] = None
        return found

    def size(self, name):
        """Without opening it; None for what is not there."""
        try:
            return os.lstat(self.path(name)).st_size
        except FileNotFoundError:
            return None

    def list_with_attributes(self, name):
        """As `ls -l` does: names in parts, and after each part the attributes."""
        with os.scandir(self.path(name)) as entries:
            return sum(1 for entry in entries if entry.stat(follow_symlinks=False))

    def begin(self, name):
        """Begins to list a directory, of which `go_on` takes parts."""
        self.listing = os.scandir(self.path(name))

    def go_on(self, most, word):
        """Takes the next names of the listing that was begun, and removes those with this word in them. The numbers
        at the ends of the names; none at the end of the listing."""
        numbers = []
        while len(numbers) < most and (entry := next(self.listing, None)):
            if word and word in entry.name:
                os.unlink(entry.path)
            numbers.append(int(entry.name.rpartition("-")[2]))
        return numbers

    def model(self, name, seed, count):
        """Does the same here and in memory, and sees that the same comes of it."""
        os.mkdir(self.path(name))
        os.mkdir(f"/tmp/{name}")
        here, model, rng = Side(self.path(name)), Side(f"/tmp/{name}"), random.Random(seed)
        done = 0
        while done < count:
            operation = draw(rng)
            if operation[0] in WITHOUT:
                continue
            got, expected = here.do(*operation), model.do(*operation)
            assert got == expected, difference(seed, done, operation, got, expected)
            done += 1
        self.forget()
        assert tree(here.root) == tree(model.root), f"seed {seed}: what is there in the end"
        return done

    def exercise(self, name, seed, count):
        """Does to a file what fsx does: all that can be done to its bytes, beside bytes in memory."""
        rng, expected = random.Random(seed), bytearray()
        file = os.open(self.path(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        ways = ["read"] * 4 + ["write"] * 4 + ["cut", "map", "map", "open", "sync", "forget"]
        for number in range(count):
            way = rng.choice(ways)
            at, size = rng.randrange(FILE_BYTES), rng.randrange(1, PART_BYTES)
            if way == "read":
                got = os.pread(file, size, at)
                assert got == expected[at : at + size], f"seed {seed}, {number}: read {size} at {at}"
            elif way == "write":
                expected.extend(bytes(max(0, at - len(expected))))
                data = rng.randbytes(size)
                assert os.pwrite(file, data, at) == size
                expected[at : at + size] = data
            elif way == "cut":
                os.ftruncate(file, at)
                del expected[at:]
                expected.extend(bytes(at - len(expected)))
            elif way == "map" and expected:
                at %= len(expected)
                with mmap.mmap(file, len(expected)) as mapped:
                    got = mapped[at : at + size]
                    assert got == expected[at : at + size], f"seed {seed}, {number}: mapped at {at}"
                    expected[at : at + size] = mapped[at : at + size] = rng.randbytes(len(got))
            elif way == "open":
                os.close(file)
                file = os.open(self.path(name), os.O_RDWR)
            elif way in ("sync", "forget"):
                os.fsync(file)
                if way == "forget":
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.fstat(file).st_size == len(expected), f"seed {seed}, {number}: {way}"
        os.close(file)
        return count


def difference(seed, number, operation, got, expected):
    def short(what):
        return repr(what)[:200]

    return f"seed {seed}, {number}: {shown(operation)}: {short(got)} and not {short(expected)}"


def tree(root):
    """All that is there: names with their attributes and bytes."""
    side, found = Side(root), {}
    for directory, directories, names in os.walk(root):
        for name in [*directories, *names]:
            path = os.path.relpath(os.path.join(directory, name), root)
            at = os.path.join(root, path)
            if os.path.islink(at):
                content = os.readlink(at)
            else:
                content = side.read(path) if name in names else None
            found[path] = side.stat(path), content
    return found


def serve(host, here):
    stream = host.makefile("rwb")
    while head := stream.read(8):
        operation, *args = pickle.loads(stream.read(struct.unpack(">Q", head)[0]))
        try:
            reply = here.do(operation, *args)
        except Exception:
            reply = "failed", traceback.format_exc()
        reply = pickle.dumps(reply)
        stream.write(struct.pack(">Q", len(reply)) + reply)
        stream.flush()


def main(port):
    # As bytes: for a name Python would need more modules.
    serve(socket.create_connection((b"10.0.2.2", port)), Here("/mnt"))
