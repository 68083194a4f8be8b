"""minio's SDKs for Go and JavaScript, unchanged: tests/install builds and installs the programs."""

import os
import subprocess

import pytest

from harness.server import KEY, ROOT, SECRET

CLIENTS = ROOT / "target/clients"


def run(server, program, *command):
    if not program.exists():
        pytest.skip(f"{program} is not there: run tests/install")
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, "CAIRN_S3": server.s3, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.rstrip().endswith("PASS")


def test_minio_go(server):
    program = CLIENTS / "minio-go"
    run(server, program, program)


def test_minio_js(server):
    program = CLIENTS / "minio_js/uploads.mjs"
    run(server, program, "node", program)
