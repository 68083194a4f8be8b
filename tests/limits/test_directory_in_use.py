"""What keeps a server from starting is said in one line, and hurts nobody."""

import os
import subprocess

from harness.doors import S3, Http
from harness.server import KEY, SECRET, Server, binary, scratch
from harness.wait import PATIENCE_SECONDS


def start(directory, *arguments):
    """A start that must fail; returns what it wrote to stderr."""
    done = subprocess.run(
        [binary(), "server", str(directory), "--s3", "127.0.0.1:0", "--http", "127.0.0.1:0",
         *arguments],
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL,
        env=dict(os.environ, CAIRN_ROOT_KEY=KEY, CAIRN_ROOT_SECRET=SECRET),
    )  # fmt: skip
    assert done.returncode not in (0, 101, -6), done
    assert "panicked" not in done.stderr, done.stderr
    return done.stderr


def one_line(text, *words):
    """The error is the last line and has the words."""
    line = text.strip().splitlines()[-1]
    for word in words:
        assert word in line, text
    assert len(text.strip().splitlines()) <= 3, text


def test_a_directory_in_use(server, bucket, http):
    one_line(start(server.directory), str(server.directory), "use")
    code, output = server.fsck()
    assert code != 0 and "use" in output, output
    assert http.object("PUT", bucket, "k", b"still here").status in (200, 201)
    assert S3(server.s3).object("GET", bucket, "k").body == b"still here"


def test_a_directory_is_free_after_kill_9():
    with Server() as server:
        server.kill()
        server.start()
        assert Http(server.http).request("GET", "/readyz").status == 200


def test_an_address_in_use(server):
    work = scratch("port")
    address = server.s3.split("//")[1]
    done = subprocess.run(
        [binary(), "server", work / "data", "--s3", address, "--http", "127.0.0.1:0"],
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode not in (0, 101)
    one_line(done.stderr, address, "in use")


def test_a_directory_that_is_a_file():
    work = scratch("file")
    (work / "file").write_text("precious")
    one_line(start(work / "file"), str(work / "file"))
    assert (work / "file").read_text() == "precious"


def test_a_directory_of_something_else():
    work = scratch("foreign")
    (work / "data").mkdir()
    (work / "data/thesis.txt").write_text("precious")
    error = start(work / "data")
    one_line(error, str(work / "data"))
    assert os.listdir(work / "data") == ["thesis.txt"]


def test_stop_by_sigterm_is_clean():
    with Server() as server:
        S3(server.s3).create_bucket("kept")
        assert server.stop() == 0
        server.start()
        assert S3(server.s3).request("HEAD", "/kept").status == 200
