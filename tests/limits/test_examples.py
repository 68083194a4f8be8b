"""The programs in examples/ run as their heads say."""

import os
import subprocess
import sys

import pytest

from harness.server import KEY, ROOT, SECRET, binary
from harness.wait import PATIENCE_SECONDS

EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(work):
    """Runs a command as a reader would: `cairn` and this Python are in the PATH."""
    (work / "bin").mkdir()
    (work / "bin/cairn").symlink_to(binary())
    path = f"{work}/bin:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(work), "TMPDIR": str(work), "LC_ALL": "C.UTF-8"}

    def run(command, **more):
        done = subprocess.run(
            [str(word) for word in command], cwd=work, env={**env, **more}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0 and done.stdout.endswith("done\n"), f"{command}: {done.returncode}\n{done.stdout}"

    return run


@pytest.mark.parametrize("command", [["python3", "s3.py"], ["bash", "http.sh"], ["bash", "mount.sh"]], ids=lambda it: it[1])
def test_an_example_runs_against_a_server(server, run, command):
    program, name = command
    run([program, EXAMPLES / name], CAIRN_SERVER=server.http, CAIRN_S3=server.s3, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET)


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own wants root")
def test_three_machines_on_one(run):
    """Its addresses and ports are fixed, so it has a loopback interface of its own."""
    run(["unshare", "-n", "bash", "-c", f"ip link set lo up && {EXAMPLES}/three-machines.sh"])


def test_every_example_is_listed_and_run():
    listed = (EXAMPLES / "README.md").read_text()
    tests = (ROOT / "tests/limits/test_examples.py").read_text()
    for file in EXAMPLES.iterdir():
        assert file.name == "README.md" or f"]({file.name})" in listed and file.name in tests, file.name
