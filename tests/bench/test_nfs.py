"""`cairn bench nfs`: all loads in small, on two exports of a server, of which nothing is left."""

import json
import subprocess

import pytest

from harness.doors import S3, Http
from harness.server import Server, binary, scratch
from harness.wait import PATIENCE_SECONDS
from nfs.conftest import export_all

BUCKETS = ("one", "other")
LOADS = {
    "GETATTR", "LOOKUP", "READ of 430 B", "READ of 93 KiB", "CREATE", "READ in sequence",
    "WRITE in sequence, and COMMIT",
}  # fmt: skip


@pytest.fixture(scope="module")
def exports():
    with Server(args=["--nfs", "127.0.0.1:0"]) as server:
        for bucket in BUCKETS:
            S3(server.s3).create_bucket(bucket)
            export_all(server.http, bucket)
        port = server.nfs.rsplit(":", 1)[1]
        yield server, {name: f"nfs://127.0.0.1/{name}?nfsport={port}" for name in BUCKETS}


def bench(*words):
    command = [binary(), "bench", "nfs", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def test_two_servers_are_compared(exports):
    server, urls = exports
    result = scratch("nfs") / "result.json"
    done = bench(
        urls["one"], "--name", "one", "--compare", f"other={urls['other']}", "-d", "200ms", "-r", 1,
        "--connections", "1,2", "--files", 5, "--size", "4m", "--json", result,
        "--pid", f"one={server.process.pid}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cells = json.loads(result.read_text())["cells"]
    assert {cell["what"] for cell in cells} == LOADS
    assert len(cells) == len(LOADS) * len(BUCKETS) * 2
    for cell in cells:
        assert cell["rate"]["median"] > 0 and not cell["errors"], cell
        assert (cell["server_cores"] is not None) == (cell["target"] == "one")
        if "in sequence" in cell["what"]:
            assert cell["latency"]["count"] == 4
    for bucket in BUCKETS:
        assert Http(server.http).list(bucket) == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://127.0.0.1/x"], "write nfs://HOST/PATH"),
        (["nfs://127.0.0.1/x", "--sizes", "2m"], "from 1 byte to 1m"),
        (["nfs://127.0.0.1/x", "--loads", "stream-read"], "give stream-write before stream-read"),
        (["nfs://127.0.0.1/x", "--pid", "7"], "write NAME=PID"),
    ],
)
def test_senseless_command_lines(words, said):
    done = bench(*words)
    assert done.returncode == 2 and said in done.stderr, done


def test_what_is_not_exported_is_said(exports):
    server, urls = exports
    done = bench(urls["one"].replace("/one", "/none"))
    assert done.returncode == 1 and "MOUNT: the server says" in done.stderr, done
