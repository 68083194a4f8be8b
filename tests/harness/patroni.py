"""PostgreSQL on three machines, with the configuration that docs/postgres.md shows.

Each machine is a network namespace with etcd, Patroni and PostgreSQL. HAProxy and PgBouncer, which lead
to the primary, are where the clients are: at the address of the bridge.
"""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from harness.net import Unavailable
from harness.ports import free_ports
from harness.server import ROOT
from harness.wait import PATIENCE_SECONDS, eventually

NAMES = ["db1", "db2", "db3"]
DOCUMENTED = {"db1": "10.0.0.11", "db2": "10.0.0.12", "db3": "10.0.0.13"}
PROGRAMS = ["etcd", "patroni", "patronictl", "haproxy", "pgbouncer"]
PASSWORD = "hunter2-of-cairn"
# Standbys are made one step after the other, each of which waits for a turn of Patroni.
SETTLE_SECONDS = 3 * PATIENCE_SECONDS
USER = "postgres"


def require():
    """Says what is missing."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    if missing:
        raise Unavailable(f"{', '.join(missing)}: not installed: run tests/install --patroni")


def documented(file):
    """The content of a file, as docs/postgres.md shows it below its name."""
    text = (ROOT / "docs/postgres.md").read_text()
    after = text.split(f"\n`{file}`", 1)[1]
    return re.search(r"```\w*\n(.*?)```", after, re.S)[1]


class Patroni:
    """`with Patroni(network) as database:` starts it and waits until both standbys are synchronous."""

    def __init__(self, network):
        require()
        self.network = network
        # Of the user of the database, who may not look into the checkout.
        self.work = Path(tempfile.mkdtemp(prefix="cairn-patroni-"))
        shutil.chown(self.work, USER)
        self.addresses = {}
        self.pooler, self.proxy = free_ports(2, network.host)
        self.processes = {}

    @property
    def url(self):
        return f"postgres://cairn:{PASSWORD}@{self.network.host}:{self.pooler}/cairn"

    def __enter__(self):
        try:
            self.addresses = {name: self.network.add(name) for name in NAMES}
            for name in NAMES:
                self.start(name)
            self.wait_whole()
            self._make_database()
            self._start_pooler()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in NAMES:
            self.kill(name)
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.work, ignore_errors=True)

    # Files and programs.

    def _adapted(self, file, name="db1"):
        """A documented file for one machine."""
        text, place = documented(file), self.work / name
        own = {f"{DOCUMENTED['db1']}:{port}": f"OWN:{port}" for port in (2379, 2380, 5432, 8008)}
        lines = text.splitlines()
        for number, line in enumerate(lines):
            # Lines that name all machines are the same on all of them.
            if DOCUMENTED["db2"] not in line and not line.strip().startswith("server "):
                for known, instead in own.items():
                    line = line.replace(known, instead)
                line = re.sub(r"^(name: |ETCD_NAME=)db1$", rf"\1{name}", line)
            lines[number] = line
        bin_dir = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        words = {
            "OWN:": f"{self.addresses[name]}:", **{DOCUMENTED[known]: self.addresses[known] for known in NAMES},
            "10.0.0.0/24": str(self.network.subnet), "/var/lib/postgresql/15/cairn": f"{place}/data",
            "/usr/lib/postgresql/15/bin": bin_dir, "/var/run/postgresql": str(place),
            "/var/log/postgresql": str(place), "/var/lib/etcd/cairn": f"{place}/etcd",
            "/etc/pgbouncer": str(place), "CAIRN-PASSWORD": PASSWORD, "127.0.0.1": self.network.host,
            "6432": str(self.pooler), "5000": str(self.proxy),
        }  # fmt: skip
        text = "\n".join(lines) + "\n"
        for word, instead in words.items():
            text = text.replace(word, instead)
        return text

    def _place(self, name):
        place = self.work / name
        if not place.exists():
            place.mkdir(mode=0o700)
            shutil.chown(place, USER)
        return place

    def _write(self, name, file, text):
        path = self._place(name) / file
        path.write_text(text)
        path.chmod(0o600)
        shutil.chown(path, USER)
        return path

    def _run(self, name, program, command, env=None, user=USER):
        within = self.network.within(name) if name in self.addresses else []
        if user:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *command]
        home = {"HOME": str(self._place(name)), "LC_ALL": "C.UTF-8"}
        path = f"/usr/sbin:/sbin:{os.environ['PATH']}"
        with open(self._place(name) / f"{program}.log", "ab") as log:
            self.processes[name, program] = subprocess.Popen(
                [*within, *map(str, command)], env={"PATH": path, **home, **(env or {})},
                cwd=self._place(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start(self, name):
        """etcd and Patroni of a machine, which starts PostgreSQL."""
        settings = self._adapted("/etc/default/etcd", name).split()
        self._run(name, "etcd", ["etcd"], env=dict(line.split("=", 1) for line in settings))
        config = self._write(name, "config.yml", self._adapted("/etc/patroni/config.yml", name))
        self._run(name, "patroni", ["patroni", config])

    def _start_pooler(self):
        config = self._write("pool", "haproxy.cfg", self._adapted("/etc/haproxy/haproxy.cfg"))
        self._run("pool", "haproxy", ["haproxy", "-db", "-f", config], user=None)
        self._write("db1", "userlist.txt", self._adapted("/etc/pgbouncer/userlist.txt"))
        config = self._write("pool", "pgbouncer.ini", self._adapted("/etc/pgbouncer/pgbouncer.ini"))
        self._run("pool", "pgbouncer", ["pgbouncer", config])
        # HAProxy takes all machines for primaries until it has asked them once.
        eventually(self._leads_to_primary, self.told)

    def _leads_to_primary(self):
        command = ["psql", "-At", "-c", "SELECT pg_is_in_recovery()", self.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        states = [name in self._proxied() for name in NAMES]
        return done.stdout == "f\n" and sum(states) == 1

    def _proxied(self):
        """The machines that HAProxy has for primaries, as it says in its log."""
        log = (self.work / "pool/haproxy.log").read_text(errors="replace")
        down = set(re.findall(r"Server primary/(\w+) is DOWN", log))
        return set(NAMES) - down

    def _make_database(self):
        block = re.search(r"```sql\n(.*?)```", (ROOT / "docs/postgres.md").read_text(), re.S)[1]
        for statement in block.replace("CAIRN-PASSWORD", PASSWORD).strip().splitlines():
            command = ["psql", "-v", "ON_ERROR_STOP=1", "-h", self.addresses[self.primary()]]
            env = {**os.environ, "PGPASSWORD": "SUPERUSER-PASSWORD"}
            command += ["-U", "postgres", "-d", "postgres", "-c", statement]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr

    # How it is.

    def asked(self, name, path):
        """The answer of a machine; none while it gives none."""
        try:
            with urllib.request.urlopen(f"http://{self.addresses[name]}:8008{path}", timeout=3) as reply:
                return json.load(reply)
        except (OSError, ValueError):
            return None

    def members(self, name):
        """{machine: (role, state)} as this machine knows it."""
        told = self.asked(name, "/cluster") or {"members": []}
        return {one["name"]: (one["role"], one["state"]) for one in told["members"]}

    def primary(self):
        """The machine that answers as the primary; none while there is none."""
        for name, address in self.addresses.items():
            try:
                urllib.request.urlopen(f"http://{address}:8008/primary", timeout=3).close()
                return name
            except (OSError, ValueError):
                continue
        return None

    def is_whole(self):
        """Whether there is a primary with two synchronous standbys, and all machines say so: one that was cut
        off goes on telling for a while what was before."""
        views = [self.members(name) for name in self.addresses]
        roles = sorted(role for role, state in views[0].values() if state in ("running", "streaming"))
        return roles == ["leader", "sync_standby", "sync_standby"] and all(view == views[0] for view in views)

    def wait_whole(self):
        eventually(self.is_whole, self.told, SETTLE_SECONDS)

    def told(self):
        logs = {path: path.read_text(errors="replace")[-1500:] for path in self.work.glob("*/*.log")}
        return f"{[self.members(name) for name in self.addresses]}\n" + "\n".join(f"--- {path}\n{text}" for path, text in logs.items())

    # What is done to it.

    def switch_over(self):
        """The primary hands over to a standby; returns the new one."""
        before = self.primary()
        config = self.work / before / "config.yml"
        command = ["patronictl", "-c", config, "switchover", "--master", before, "--force", "cairn"]
        done = subprocess.run(
            [*self.network.within(before), *map(str, command)],
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return self.wait_other(before)

    def wait_other(self, before):
        """Waits for another primary."""
        eventually(lambda: self.primary() not in (None, before), self.told, SETTLE_SECONDS)
        return self.primary()

    def kill(self, name):
        """kill -9 of everything on a machine."""
        if name not in self.addresses:
            return
        done = subprocess.run(
            ["ip", "netns", "pids", self.network.namespace(name)], capture_output=True, text=True, check=False
        )
        for pid in map(int, done.stdout.split()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for program in ("etcd", "patroni"):
            if process := self.processes.pop((name, program), None):
                process.kill()
                process.wait()

    def kill_postgres(self, name):
        """kill -9 of PostgreSQL's first process, which Patroni sees."""
        pid = int((self.work / name / "data/postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
