"""What others have called their objects says nothing to a terminal but text."""

import os
import pty
import subprocess

from harness.doors import S3, Http
from harness.server import KEY, SECRET, Server, binary
from harness.wait import PATIENCE_SECONDS

HOSTILE = "ok/\x1b]0;owned\x07nl\nFAKE line\u202egpj"


def on_a_terminal(server, *arguments):
    """What a command writes to a terminal that is its stdout and stderr."""
    master, slave = pty.openpty()
    try:
        child = subprocess.Popen(
            [binary(), *arguments, "--server", server.http], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
            env=dict(os.environ, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET),
        )  # fmt: skip
        os.close(slave)
        text = b""
        while True:
            try:
                more = os.read(master, 65536)
            except OSError:  # all ends of the terminal are closed
                break
            if not more:
                break
            text += more
        child.wait(timeout=PATIENCE_SECONDS)
        return text.replace(b"\r\n", b"\n").decode()
    finally:
        os.close(master)


def test_names_on_a_terminal(server, bucket):
    http = Http(server.http)
    assert http.object("PUT", bucket, HOSTILE, b"x").status == 201
    for arguments in (["ls", "-r", bucket], ["ls", f"{bucket}/ok/"], ["ls", "-r", "--json", bucket],
                      ["stat", f"{bucket}/{HOSTILE}"], ["stat", f"{bucket}/missing{HOSTILE}"]):  # fmt: skip
        text = on_a_terminal(server, *arguments)
        assert "FAKE line" in text, (arguments, text)
        assert not any(line.startswith("FAKE") for line in text.splitlines()), (arguments, text)
        for bad in "\x1b\x07\u202e":
            assert bad not in text, (arguments, text)


def test_names_in_a_pipe_are_whole(server, bucket):
    http = Http(server.http)
    assert http.object("PUT", bucket, HOSTILE, b"x").status == 201
    done = subprocess.run(
        [binary(), "ls", "-r", bucket, "--server", server.http], capture_output=True, timeout=PATIENCE_SECONDS,
        stdin=subprocess.DEVNULL, env=dict(os.environ, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET),
    )  # fmt: skip
    assert HOSTILE.encode() in done.stdout, done


def test_names_that_are_no_files_stop_no_download(server, tmp_path):
    """In a bucket that S3 made keys may be anything."""
    s3 = S3(server.s3)
    s3.create_bucket("any-keys")
    bad = ["..", "../up", "a//b", "/top", "dir/.", "n" * 300]
    for key in [*bad, "good", "dir/good"]:
        assert s3.object("PUT", "any-keys", key, body=b"x").status == 200, key
    done = subprocess.run(
        [binary(), "get", "-r", "any-keys", tmp_path / "got", "--server", server.http], capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL, env=dict(os.environ, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET),
    )  # fmt: skip
    assert done.returncode == 1, done
    assert f"{len(bad)} objects were left out, all others are fetched" in done.stderr, done
    assert (tmp_path / "got/good").read_bytes() == (tmp_path / "got/dir/good").read_bytes() == b"x"
    assert sorted(os.listdir(tmp_path)) == ["got"]


def test_a_listing_has_a_header_on_a_terminal_only(server, bucket):
    assert Http(server.http).object("PUT", bucket, "a/b", b"x" * 2048).status == 201
    first, second = on_a_terminal(server, "ls", "-r", "-h", bucket).splitlines()
    assert first.split() == ["SIZE", "MODIFIED", "KEY"] and second.split()[:2] == ["2.00", "KiB"]
    done = subprocess.run(
        [binary(), "ls", bucket, "--server", server.http], capture_output=True, text=True,
        env=dict(os.environ, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET),
    )  # fmt: skip
    assert done.stdout.split() == ["-", "a/"]


def test_a_console_is_no_http_door():
    with Server(args=["--console", "127.0.0.1:0"]) as running:
        done = subprocess.run(
            [binary(), "ls", "--server", running.console], capture_output=True, text=True,
            env=dict(os.environ, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET),
        )  # fmt: skip
        assert done.returncode == 1 and "this is no HTTP door, but a console" in done.stderr, done
