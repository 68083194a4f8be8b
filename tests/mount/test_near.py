"""A mount on the machine of its server reads from the server's files, or else from the server."""

import os
import random
import subprocess
from contextlib import contextmanager
from pathlib import Path

from harness.mount import Door, Mount
from harness.server import Server

MIB = 1 << 20
SIZE = 24 * MIB


def sent(server):
    """Bytes that the server has written, to sockets too."""
    lines = Path(f"/proc/{server.process.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


@contextmanager
def served(files):
    """A server that has these files, and the door by which they came."""
    with Server() as server:
        door = Door(server, "bucket")
        door.ask("PUT", "")
        for name, data in files.items():
            door.put(name, data)
        yield server, door


def read_by(server, mount, path):
    """What the mount shows, and what the server has sent for it."""
    before = sent(server)
    with mount:
        found = (mount.root / path).read_bytes()
    return found, sent(server) - before


def test_bytes_do_not_cross_the_socket(tmp_path):
    data = random.Random(1).randbytes(SIZE)
    with served({"file": data}) as (server, door):
        found, by_server = read_by(server, Mount(server, tmp_path / "one", bucket="bucket"), "file")
        assert found == data
        assert by_server < SIZE / 8, by_server
        # What is written after it was looked for is found, too.
        data = data[::-1]
        with Mount(server, tmp_path / "two", bucket="bucket") as mount:
            root = mount.root
            assert (root / "file").read_bytes() == data[::-1]
            door.put("file", data)
            assert (root / "file").read_bytes() == data


def test_files_that_cannot_be_read_are_asked_for(tmp_path):
    data = random.Random(2).randbytes(SIZE)
    with served({"file": data}) as (server, _):
        away = server.directory / "away"
        segments = server.directory / "blocks"
        # The server has its files open; nobody else finds them.
        segments.rename(away)
        try:
            mount = Mount(server, tmp_path / "one", bucket="bucket")
            found, by_server = read_by(server, mount, "file")
        finally:
            away.rename(segments)
        assert found == data
        assert by_server >= SIZE, by_server


def test_a_broken_file_is_an_error_of_that_file_only(tmp_path):
    rng = random.Random(3)
    files = {f"file-{number}": rng.randbytes(MIB) for number in range(8)}
    with served(files) as (server, _):
        for segment in (server.directory / "blocks").glob("*.seg"):
            content = segment.read_bytes()
            at = content.find(files["file-3"][500_000:500_064])
            if at >= 0:
                with open(segment, "r+b") as file:
                    os.pwrite(file.fileno(), b"broken", at)
        with Mount(server, tmp_path / "one", bucket="bucket") as mount:
            root = mount.root
            for name, data in files.items():
                shown = subprocess.run(["cat", root / name], capture_output=True)
                if name == "file-3":
                    assert shown.returncode != 0 and b"Input/output error" in shown.stderr
                else:
                    assert shown.stdout == data
