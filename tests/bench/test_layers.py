"""`cairn bench meta`, `blocks` and `doors`: the layers alone, and what they leave behind."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from harness import metrics
from harness.doors import S3, Http
from harness.postgres import Postgres, programs
from harness.server import KEY, SECRET, Server, binary, scratch
from harness.wait import PATIENCE_SECONDS

SHORT = ["--duration", "200ms", "--rounds", "1"]


@pytest.fixture
def here():
    return scratch("layers")


def bench(here, *words, env=None):
    """Returns {(target, load, in flight): cell}."""
    result = here / "result.json"
    command = [binary(), "bench", *words, here, *SHORT, "--json", result]
    done = subprocess.run(
        list(map(str, command)), env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads(result.read_text())["cells"]
    result.unlink()
    assert not list(here.iterdir()), "it leaves something behind"
    for cell in cells:
        assert cell["rate"]["median"] > 0 and not cell["errors"], cell
    return {
        (cell["target"], cell["what"], int(cell["axis"]["value"])): cell for cell in cells
    }


def test_metadata_alone(here):
    found = bench(here, "meta", "--in-flight", "1,8")
    loads = {(target, what) for target, what, _ in found}
    creates = {"create, in one directory", "create, in 1000 directories"}
    lookups = {"lookup, in memory", "lookup of what is not there"}
    wanted = {("master", what) for what in creates | lookups} | {("disk", what) for what in creates}
    assert loads == wanted
    assert {in_flight for _, _, in_flight in found} == {1, 8}


def test_metadata_in_a_database(here):
    with Postgres() as database:
        before = schemas(database)
        env = dict(os.environ, CAIRN_META=database.url)
        found = bench(here, "meta", "--loads", "create,miss", "--in-flight", "4", env=env)
        assert len(found) == 3
        assert schemas(database) == before


def schemas(database):
    command = [programs() / "psql", "-At", "-c", "SELECT nspname FROM pg_namespace", database.url]
    return sorted(subprocess.run(command, capture_output=True, check=True).stdout.split())


def test_blocks_alone(here):
    found = bench(here, "blocks", "--sizes", "1,16k,4m", "--in-flight", "1,3", "--most", "20m")
    whats = {what for _, what, _ in found}
    assert whats == {f"{act}, {size}" for act in ("put, synced", "get")
                     for size in ("1 B", "16 KiB", "4 MiB")}  # fmt: skip
    assert {target for target, _, _ in found} == {"files", "blocks"}
    for (_, what, _), cell in found.items():
        size = {"1 B": 1, "16 KiB": 16 << 10, "4 MiB": 4 << 20}[what.split(", ")[-1]]
        assert abs(cell["bytes_per_second"]["median"] / cell["rate"]["median"] / size - 1) < 1e-6


@pytest.mark.parametrize(
    "words, says",
    [
        (["blocks", "--sizes", "5m"], "4m"),
        (["blocks", "--sizes", "0"], "4m"),
        (["meta", "--loads", "nonsense"], "nonsense"),
        (["meta", "--in-flight", "0"], "1,2,4"),
    ],
)
def test_what_makes_no_sense_is_refused(here, words, says):
    done = subprocess.run([binary(), "bench", *words, here], capture_output=True, text=True)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert not list(here.iterdir())


def test_a_database_that_is_not_there(here):
    command = [binary(), "bench", "meta", here, "--meta", "postgres://cairn:hidden@127.0.0.1:1/x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1 and "127.0.0.1" in done.stderr, done.stderr
    assert "hidden" not in done.stderr + done.stdout
    assert not list(here.iterdir())


def test_an_interrupted_run_removes_what_it_made(here):
    command = [binary(), "bench", "meta", here, "--duration", "60s"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(here.glob("cairn-bench-*/meta")):
        time.sleep(0.01)
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 1 and "signal" in err, err
    assert not list(here.iterdir())


class Doors(Server):
    """The doors over nothing."""

    def start(self):
        self.log_path.parent.mkdir(exist_ok=True)
        command = [binary(), "bench", "doors", "--s3", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self._read_addresses(time.monotonic())
        return self


def test_doors_alone():
    with Doors() as doors:
        http, s3 = Http(doors.http), S3(doors.s3)
        s3.create_bucket("bench")
        small, large = b"kept" * 100, b"not kept" * (1 << 20)
        for door in (http, s3):
            for body, comes_back in ((small, small), (large, bytes(len(large)))):
                put = door.object("PUT", "bench", "a", body=body)
                assert put.status in (200, 201, 204), put
                got = door.object("GET", "bench", "a")
                assert got.body == comes_back
                assert "read" not in metrics.stages(got)
        assert Http(doors.http, credentials=None).object("GET", "bench", "a").status == 401
        env = dict(doors.env, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET)
        command = [binary(), "bench", "s3", doors.s3, "--ops", "put,get,delete", *SHORT,
                   "-c", "2"]  # fmt: skip
        done = subprocess.run(command, env=env, capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS)
        assert done.returncode == 0 and re.search(r"get", done.stdout), done.stderr
        assert not doors.directory.exists()
        assert doors.stop() == 0
