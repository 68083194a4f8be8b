"""A server with an NFS door, and buckets that are exported by it."""

import itertools
import os
import subprocess

import pytest

from harness.doors import S3
from harness.server import KEY, SECRET, Server, binary

numbers = itertools.count(1)


class Nfs(Server):
    """A server whose NFS door stays on the same port when it is started again."""

    def cairn(self, *arguments, ok=True):
        env = {**self.env, "CAIRN_SERVER": self.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
        done = subprocess.run([binary(), *arguments], env=env, capture_output=True, text=True)
        assert not ok or done.returncode == 0, done.stderr
        return done

    @property
    def port(self):
        return self.nfs.rsplit(":", 1)[1]

    def restart(self):
        self.args = ["--nfs", self.nfs]
        return super().restart()


def export_all(http, bucket):
    """Exports a bucket to clients on this machine, who act as whom they say."""
    command = ["export", "add", bucket, "--client", "127.0.0.0/8", "--as", "root"]
    env = {**os.environ, "CAIRN_SERVER": http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
    subprocess.run([binary(), *command, "--squash", "none"], env=env, check=True)


@pytest.fixture
def nfs():
    with Nfs(args=["--nfs", "127.0.0.1:0"]) as server:
        yield server


@pytest.fixture
def exported(nfs):
    """A bucket that clients on this machine change as whom they say."""
    name = f"exported-{next(numbers)}"
    S3(nfs.s3).create_bucket(name)
    export_all(nfs.http, name)
    return name
