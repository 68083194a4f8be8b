"""A PostgreSQL server of a test's own, started from Debian's programs over a scratch directory."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from harness.ports import free_ports

PASSWORD = "hunter2-of-the-database"


def programs():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    assert found, "PostgreSQL is not installed: run tests/install"
    return Path(found[-1])


class Postgres:
    """`with Postgres() as database:` starts it on a free port; it is removed at the end."""

    def __init__(self, address="127.0.0.1"):
        self.address = address
        self.work = Path(tempfile.mkdtemp(prefix="cairn-postgres-"))
        self.user = None
        if os.getuid() == 0:
            self.user = pwd.getpwnam("postgres").pw_name
            shutil.chown(self.work, self.user)
        (self.work / "password").write_text(PASSWORD)
        [self.port] = free_ports(1, address)
        self._run(
            "initdb", "--username=cairn", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale",
            f"--pwfile={self.work}/password", f"--pgdata={self.work}/data",
        )  # fmt: skip
        with open(self.work / "data/pg_hba.conf", "a") as rules:
            rules.write(f"host all all {address}/24 scram-sha-256\n")

    @property
    def url(self):
        return f"postgres://cairn:{PASSWORD}@{self.address}:{self.port}/postgres"

    def _run(self, program, *arguments):
        command = [str(programs() / program), *arguments]
        subprocess.run(
            command, user=self.user, cwd=self.work, check=True, stdout=subprocess.DEVNULL
        )

    def start(self):
        options = f"-p {self.port} -k {self.work} -c listen_addresses={self.address}"
        arguments = [f"--pgdata={self.work}/data", f"--log={self.work}/log", "-o", options, "-w"]
        for _ in range(50):
            try:
                return self._run("pg_ctl", *arguments, "start")
            except subprocess.CalledProcessError:
                # Processes of one that was killed may still hold its memory.
                time.sleep(0.1)
        raise AssertionError((self.work / "log").read_text())

    def kill(self):
        """kill -9 of its first process, which all others follow."""
        pid = int((self.work / "data/postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    def stop(self):
        self._run("pg_ctl", f"--pgdata={self.work}/data", "--mode=immediate", "stop")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if (self.work / "data/postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.work, ignore_errors=True)
