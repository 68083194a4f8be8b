"""A cluster of many processes: masters m1, m2, chunkservers c1, c2, ..., gateways g1, g2, ...

With `netns` each has a network namespace of its own, so that the network can be broken; without,
all are on 127.0.0.1, which needs no rights.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time

from harness.doors import S3, Http
from harness.net import Network
from harness.node import Node
from harness.ports import free_ports
from harness.postgres import Postgres
from harness.server import binary, scratch
from harness.wait import PATIENCE_SECONDS

PORT, S3_PORT, HTTP_PORT = 7400, 9000, 8000


class ClusterFailed(Exception):
    pass


class Cluster:
    """`with Cluster() as cluster:` starts all of it and waits until it is whole.

    `disks` maps names of nodes to directories, for those that are to be elsewhere. With `nfs` all
    gateways have an NFS door; that is for clusters without `netns`. With `status` masters and chunkservers
    have a door of status, at `node.http`. `postgres` is True, or what makes another database on the network
    (harness/patroni.py). Without it the masters keep the metadata together, or,
    with `engine="embedded"`, the only one has them alone.
    """

    def __init__(self, chunkservers=3, gateways=2, masters=1, postgres=False, netns=False,
                 repair_after=5, disks=None, replicas=3, nfs=False, status=False, engine=None):  # fmt: skip
        self.work = scratch("cluster")
        self.network = Network() if netns else None
        self.names = [f"m{n + 1}" for n in range(masters)]
        self.others = [f"c{n + 1}" for n in range(chunkservers)]
        self.others += [f"g{n + 1}" for n in range(gateways)]
        self.has_postgres, self.repair_after = postgres, repair_after
        self.disks, self.replicas, self.has_nfs = disks or {}, replicas, nfs
        self.has_status, self.engine = status, engine
        self.nodes, self.database = {}, None
        self.keep = bool(os.environ.get("CAIRN_TEST_KEEP"))
        self.open = contextlib.ExitStack()

    def __enter__(self):
        try:
            if self.network:
                self.open.enter_context(self.network)
            if self.has_postgres:
                self.database = self._database()
                self.open.enter_context(self.database)
            self._init()
            # The other masters first: whoever joins later knows all of them.
            for name in self.names[1:]:
                self.add(name)
            if len(self.names) in (3, 5) and not self.has_postgres:
                self.wait_voters(self.names)
            self.add_all(self.others)
            self.wait_whole()
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def _database(self):
        if self.has_postgres is not True:
            return self.has_postgres(self.network)
        return Postgres(self.network.host if self.network else "127.0.0.1")

    def __exit__(self, kind, *_):
        self.heal()
        for node in self.nodes.values():
            node.kill()
        self.open.close()
        if kind is None and not self.keep:
            shutil.rmtree(self.work, ignore_errors=True)

    # Making it.

    def _init(self):
        first = self.make("m1")
        meta = ["--meta", self.database.url] if self.database else []
        meta += ["--engine", self.engine] if self.engine else []
        self.command("cluster", "init", first.directory, "--address", first.address,
                     "--replicas", self.replicas, *meta, env=first.env)  # fmt: skip
        first.id = "1"
        first.start()
        self.wait(lambda: self.status("m1"), "the first master serves")

    def make(self, name):
        """A node that has neither joined nor started."""
        role = {"m": "master", "c": "chunkserver", "g": "gateway"}[name[0]]
        directory = self.disks.get(name, self.work) / name
        within = []
        if self.network:
            host, ports = self.network.add(name), [PORT, S3_PORT, HTTP_PORT]
            within = self.network.within(name)
        else:
            host, ports = "127.0.0.1", free_ports(4)
        address, s3, http, *more = (f"{host}:{port}" for port in ports)
        node = Node(name, role, directory, self.work / f"{name}.log", [], within)
        node.arguments = {
            "master": ["--listen", address, "--repair-after", str(self.repair_after)],
            "chunkserver": ["--listen", address],
            "gateway": ["--s3", s3, "--http", http],
        }[role]
        if self.database and role == "master":
            node.arguments += ["--meta", self.database.url]
        if self.has_status and role != "gateway":
            node.arguments += ["--status", http]
        if self.has_nfs and role == "gateway":
            node.nfs = more[0]
            node.arguments += ["--nfs", node.nfs]
        node.address, node.s3, node.http = address, f"http://{s3}", f"http://{http}"
        self.nodes[name] = node
        return node

    def add(self, name):
        """Lets one more node in and starts it."""
        self.add_all([name])
        return self.nodes[name]

    def add_all(self, names):
        """Lets these nodes in, and waits until all of them are up."""
        for node in map(self.make, names):
            self.join(node.name, self.token(node.role))
            node.start()
        for name in names:
            if self.nodes[name].role == "gateway":
                self.nodes[name].wait_ready()
            else:
                self.wait(lambda: self.is_up(name), f"{name} is up")

    def token(self, role, *options):
        return self.command("cluster", "token", self.serving().directory, "--role", role, *options)

    def join(self, name, token):
        node = self.nodes[name]
        said = self.command("cluster", "join", node.directory, token)
        node.id = re.search(r"joined as node (\S+)", said)[1]

    # Commands.

    def command(self, *command, ok=True, env=None):
        """Runs `cairn` with a command; returns what it says, or, unless `ok`, how it went."""
        done = subprocess.run(
            [binary(), *map(str, command)], env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        if not ok:
            return done
        if done.returncode != 0:
            raise ClusterFailed(f"cairn {command}: {done.stdout}{done.stderr}\n{self.tails()}")
        return done.stdout.strip()

    def status(self, *names):
        """`cairn cluster status`, asked as one of the nodes after the other; None if no master
        answers any."""
        # Gateways joined last and know all masters.
        for name in names or [*self.gateways(), *self.masters()]:
            if self.nodes[name].id is None:
                continue
            directory = self.nodes[name].directory
            done = self.command("cluster", "status", directory, "--json", ok=False)
            if done.stdout.startswith("{"):
                status = json.loads(done.stdout)
                if status["master"]:
                    return status
        return None

    def voters(self):
        """Names of the masters that vote and answer, once one serves."""
        masters = self.told()["members"]["masters"]
        voting = {one["node"] for one in masters if one["as"] == "voter" and one["answers"]}
        return [name for name in self.masters() if self.nodes[name].id in voting]

    def wait_voters(self, names):
        self.wait(lambda: self.voters() == sorted(names), f"{names} vote")

    def told(self):
        """The status, once a master answers."""
        return self.wait(self.status, "a master answers")

    def node_status(self, name, status=None):
        """What the status says of one node."""
        status = status or self.told()
        found = [node for node in status["nodes"] if node["node"] == self.nodes[name].id]
        return found[0] if found else None

    def serving(self):
        """The master that serves, once one does."""

        def found():
            status = self.status()
            masters = [self.nodes[name] for name in self.masters()]
            return [node for node in masters if status and node.id == status["master"]]

        return self.wait(found, "a master serves")[0]

    def is_up(self, name):
        status = self.status()
        node = status and self.node_status(name, status)
        return bool(node and node["up"])

    def is_whole(self):
        """Whether all that should run is up, and all groups are whole and take writes."""
        status = self.status()
        if not status:
            return False
        health, groups = status["health"], len(status["groups"])
        known = {node["node"]: node["up"] for node in status["nodes"]}
        all_up = all(known.get(node.id) for node in self.nodes.values() if node.id)
        return all_up and groups > 0 and health["whole"] == health["writable"] == groups

    def wait_whole(self):
        self.wait(self.is_whole, "the cluster is whole")

    def wait(self, condition, what):
        """Returns what it waited for."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            for node in self.nodes.values():
                node.note_end()
            if time.monotonic() > end:
                shown = json.dumps(self.status(), indent=1)
                text = f"not after {PATIENCE_SECONDS} s: {what}\n{shown}\n{self.tails()}"
                raise ClusterFailed(text)
            time.sleep(0.2)
        return found

    # Nodes and what is done to them.

    def __getitem__(self, name):
        return self.nodes[name]

    def of_role(self, letter):
        return [name for name in self.nodes if name[0] == letter]

    def masters(self):
        return self.of_role("m")

    def chunkservers(self):
        return self.of_role("c")

    def gateways(self):
        return self.of_role("g")

    def start(self, name):
        self.nodes[name].start()
        if self.nodes[name].role == "gateway":
            self.nodes[name].wait_ready()

    def kill(self, name):
        self.nodes[name].kill()

    def restart(self, name):
        """SIGTERM and start; returns the exit code."""
        code = self.nodes[name].stop()
        self.start(name)
        return code

    def wipe(self, name):
        """A chunkserver loses its disk and comes back with an empty one."""
        self.nodes[name].kill()
        self.nodes[name].wipe()
        self.nodes[name].start()

    def heal(self):
        """Ends what was done to the network and to processes; what was killed starts again."""
        if self.network and self.network.addresses:
            self.network.heal()
        for node in self.nodes.values():
            if node.is_running():
                node.resume()

    def s3(self, name, **options):
        return S3(self.nodes[name].s3, **options)

    def http(self, name, **options):
        return Http(self.nodes[name].http, **options)

    # For the report of a failure.

    def misbehaviour(self):
        """What no node may ever do: end by itself, or panic."""
        found = []
        for node in self.nodes.values():
            node.note_end()
            found += node.ended + [f"{node.name}: {line}" for line in node.panics()]
        return found

    def tails(self):
        return f"in {self.work}:\n" + "\n".join(node.tail() for node in self.nodes.values())
