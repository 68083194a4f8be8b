"""The rows that bench/rows makes are a sound store. Its checkpoints, and checks of all rows, are counted."""

import shutil
import subprocess
from pathlib import Path

from harness import metrics
from harness.doors import S3, Http
from harness.server import Server, binary
from harness.wait import eventually

ROWS = 5000
# What one directory of 1,000 files takes.
DIRECTORY_ROWS = 2003
FILES = 1000


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def told(server):
    return Http(server.http).request("GET", "/metrics").body.decode()


def test_made_rows_are_a_sound_store():
    with Server() as server:
        Http(server.http).create_bucket("many", "public")
        assert server.stop() == 0
        base, dump = server.work / "base.dump", server.work / "rows.dump"
        run(binary(), "meta", "dump", server.directory, base)
        said = run(Path(binary()).parent / "examples/rows", "fill", base, dump, "many", ROWS)
        made = dict(line.split() for line in said.splitlines())
        directories = int(made["directories"])
        assert directories == -(-ROWS // DIRECTORY_ROWS) and int(made["files"]) == directories * FILES
        assert int(made["rows"]) >= ROWS and int(made["dump_bytes"]) == dump.stat().st_size
        shutil.rmtree(server.directory / "meta")
        run(binary(), "meta", "load", dump, server.directory)
        code, said = server.fsck()
        assert code == 0, said

        server.start()
        http, s3 = Http(server.http), S3(server.s3)
        for key in ("d0000000/f000", f"d{directories - 1:07}/f999"):
            got = s3.object("GET", "many", key)
            assert got.status == 200 and len(got.body) == 100, got
            assert http.object("GET", "many", key).body == got.body
        assert s3.object("GET", "many", f"d{directories:07}/f000").status == 404
        eventually(lambda: metrics.total(told(server), "cairn_master_scrub_passes_total") > 0)
        before = metrics.total(told(server), "cairn_meta_checkpoints_total")
        assert http.object("PUT", "many", "d0000000/new", b"new").status == 201
        eventually(lambda: metrics.total(told(server), "cairn_meta_checkpoints_total") > before)
        text = told(server)
        assert metrics.total(text, "cairn_meta_checkpoint_bytes_total") > 0
        longest = metrics.total(text, "cairn_meta_checkpoint_longest_seconds")
        assert 0 < longest <= metrics.total(text, "cairn_meta_checkpoint_seconds_total")
        assert server.stop() == 0
        code, said = server.fsck()
        assert code == 0, said
