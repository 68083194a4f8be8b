"""Three machines and more, each in a network namespace: `cairn node DIR` and nothing else.

Has what `Cluster` has, as far as loads, faults and episodes need it. Here one name is a machine: a
master, a chunkserver and a gateway. With `apart` these are three processes over the same directory,
each in a namespace of its own.
"""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from harness.cluster import ClusterFailed
from harness.doors import S3, Http
from harness.net import Network
from harness.server import KEY, SECRET, binary, scratch
from harness.stop import go_on, stop
from harness.wait import PATIENCE_SECONDS

PORT, S3_PORT, HTTP_PORT = 7400, 9000, 8080
PAUSE_SECONDS = 0.2
# The directory of each role, in the order in which they start.
PLACES = {"master": "master", "chunkserver": "disk", "gateway": "gateway"}
ROLES = list(PLACES)
REPAIR_AFTER = 5


def url_host(host):
    """As it stands in a URL and before a port."""
    return f"[{host}]" if ":" in host else host


def role_namespace(name, role):
    """Short: names of links have at most 15 characters."""
    return f"{name}{role[0]}"


class Machine:
    """Its directory, its processes (one, called `node`, or one for each role) and their logs."""

    def __init__(self, name, directory, host, within, work):
        self.name, self.directory, self.work = name, Path(directory), work
        self.host, self.namespaces = host, [name]
        # The address of each role, and what puts a command into its namespace.
        self.hosts, self.within = dict.fromkeys(ROLES, host), dict.fromkeys(["node", *ROLES], within)
        self.env = dict(os.environ, CAIRN_ROOT_KEY=KEY, CAIRN_ROOT_SECRET=SECRET)
        self.program = None  # another one than that under test
        self.is_apart = False
        self.processes, self.ended = {}, []

    @property
    def s3(self):
        return f"http://{url_host(self.hosts['gateway'])}:{S3_PORT}"

    @property
    def http(self):
        return f"http://{url_host(self.hosts['gateway'])}:{HTTP_PORT}"

    @property
    def doors(self):
        shown = url_host(self.hosts["gateway"])
        return ["--s3", f"{shown}:{S3_PORT}", "--http", f"{shown}:{HTTP_PORT}"]

    def start(self, *options):
        """What does not run. `options` are those of the first start."""
        self.note_end()
        for role in ROLES if self.is_apart else ["node"]:
            if role not in self.processes:
                self.spawn(role, options)

    def spawn(self, role, options=()):
        program = self.program or binary()
        shown = {role: url_host(host) for role, host in self.hosts.items()}
        places = {role: self.directory / place for role, place in PLACES.items()}
        arguments = {
            "node": lambda: [self.directory, *options, *self.doors],
            "master": lambda: [places[role], "--listen", f"{shown[role]}:{PORT}", "--repair-after", REPAIR_AFTER],
            "chunkserver": lambda: [places[role], "--listen", f"{shown[role]}:{PORT + 1}"],
            "gateway": lambda: [places[role], *self.doors],
        }[role]()
        with open(self.log(role), "ab") as log:
            log.write(b"== started\n")
            log.flush()
            self.processes[role] = subprocess.Popen(
                [*self.within[role], program, role, *map(str, arguments)], env=self.env,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def log(self, role):
        return self.work / f"{self.name}-{role}.log"

    def namespace_of(self, role):
        """That of a role that is a process of its own; a master stays where the machine was."""
        own = role_namespace(self.name, role)
        return own if own in self.namespaces else self.name

    def node(self, role):
        """The number of one of its nodes, as `cairn cluster status` shows it."""
        text = (self.directory / PLACES[role] / "cluster.toml").read_text()
        return str(int(re.search(r"^node = .([0-9a-f]+).", text, re.M)[1], 16))

    def note_end(self):
        """Notes those that ended though nobody ended them."""
        for role, process in list(self.processes.items()):
            if process.poll() is not None:
                del self.processes[role]
                code = process.returncode
                self.ended.append(f"{self.name} {role} ended by itself: exit {code}\n{self.tail()}")

    def kill(self, *roles):
        """kill -9 of all its processes, or of these; returns when they are gone."""
        self.note_end()
        dying = [self.processes.pop(role) for role in roles or list(self.processes)]
        for process in dying:
            process.kill()
        for process in dying:
            process.wait()

    def stop(self):
        """SIGTERM; returns the exit codes."""
        self.note_end()
        for process in self.processes.values():
            process.terminate()
        codes = [process.wait(timeout=PATIENCE_SECONDS) for process in self.processes.values()]
        self.processes = {}
        return codes

    def pause(self, *roles):
        for role in roles or list(self.processes):
            stop(self.processes[role])

    def resume(self):
        for process in self.processes.values():
            if process.poll() is None:
                go_on(process)

    def wipe_disk(self):
        """Removes all blocks of a chunkserver that does not run."""
        disk = self.directory / "disk"
        shutil.rmtree(disk / "blocks")
        (disk / "format").unlink()

    def lose(self, role):
        """Removes all that is in the directory of a role that does not run."""
        for entry in (self.directory / PLACES[role]).iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def discard(self):
        """Removes all of a machine that does not run; disks of their own are empty then."""
        for role in ROLES:
            self.lose(role)
        shutil.rmtree(self.directory)

    def lines(self):
        logs = [self.log(role) for role in ("node", *ROLES)]
        return [line for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines()]

    def tail(self, lines=25):
        return f"--- {self.name}\n" + "\n".join(self.lines()[-lines:])


class Machines:
    """`with Machines() as machines:` makes a cluster of n1, n2 and n3 and waits until it is whole.

    `places` maps names to directories for those that are to be elsewhere, and `NAME/master`,
    `NAME/disk` and `NAME/gateway` to those for single roles. `program` is another one than that under test.
    """

    def __init__(self, count=3, apart=False, places=None, program=None, ipv6=False):
        self.network = Network(ipv6=ipv6)
        self.work = scratch("machines")
        self.count, self.apart, self.places = count, apart, dict(places or {})
        self.program, self.nodes, self.made = program, {}, 0
        self.keep = bool(os.environ.get("CAIRN_TEST_KEEP"))

    def __enter__(self):
        try:
            self.network.__enter__()
            first = self.make()
            first.start("--address", first.host)
            for _ in range(self.count - 1):
                self.join(self.make())
            self.wait_whole()
            if self.apart:
                self.come_apart()
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def __exit__(self, kind, *_):
        for machine in self.nodes.values():
            machine.resume()
            machine.kill()
        self.network.close()
        if kind is None and not self.keep:
            shutil.rmtree(self.work, ignore_errors=True)

    def make(self):
        """A machine that has neither joined nor started."""
        self.made += 1
        name = f"n{self.made}"
        host = self.network.add(name)
        directory = self.places.get(name, self.work) / name
        machine = Machine(name, directory, host, self.network.within(name), self.work)
        machine.program = self.program
        for place in PLACES.values():
            if disk := self.places.get(f"{name}/{place}"):
                (disk / place).mkdir(mode=0o700, exist_ok=True)
                directory.mkdir(mode=0o700, exist_ok=True)
                (directory / place).symlink_to(disk / place)
        self.nodes[name] = machine
        return machine

    def join(self, machine):
        machine.start("--address", machine.host, "--join", self.token())
        self.wait(lambda: self.knows(machine), f"{machine.name} is up")

    def knows(self, machine):
        if not (machine.directory / "gateway" / "cluster.toml").exists():
            return False
        status = self.status()
        up = {node["node"] for node in status["nodes"] if node["up"]} if status else set()
        return all(machine.node(role) in up for role in ROLES)

    def come_apart(self):
        """From now on the roles of each machine are processes of their own."""
        for machine in self.nodes.values():
            self.take_apart(machine)
            self.wait_whole()

    def take_apart(self, machine):
        machine.stop()
        for role in ("chunkserver", "gateway"):
            namespace = role_namespace(machine.name, role)
            machine.hosts[role] = self.network.add(namespace)
            machine.within[role] = self.network.within(namespace)
            machine.namespaces.append(namespace)
        machine.is_apart = True
        machine.start()

    def token(self):
        found = self.wait(lambda: self.asked("cluster", "token", "--machine"), "a token")
        return found.split()[-1]

    # Commands.

    def command(self, *command, ok=True):
        """Runs `cairn` outside of all machines; returns what it says, or, unless `ok`, how it went."""
        done = subprocess.run(
            [self.program or binary(), *map(str, command)], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        if not ok:
            return done
        if done.returncode != 0:
            raise ClusterFailed(f"cairn {command}: {done.stdout}{done.stderr}\n{self.tails()}")
        return done.stdout.strip()

    def asked(self, noun, verb, *more):
        """The output of a command for which the directory of any machine that runs will do."""
        for machine in self.nodes.values():
            if machine.processes and (machine.directory / "master" / "cluster.toml").exists():
                done = self.command(noun, verb, machine.directory, *more, ok=False)
                if done.returncode == 0:
                    return done.stdout.strip()
        return None

    def status(self):
        for machine in self.nodes.values():
            if not (machine.directory / "master" / "cluster.toml").exists():
                continue
            done = self.command("cluster", "status", machine.directory, "--json", ok=False)
            if done.stdout.startswith("{"):
                status = json.loads(done.stdout)
                if status["master"]:
                    return status
        return None

    def told(self):
        return self.wait(self.status, "a master answers")

    def node_status(self, name):
        """What the status says of the chunkserver of a machine."""
        status, wanted = self.told(), self.nodes[name].node("chunkserver")
        return [node for node in status["nodes"] if node["node"] == wanted][0]

    def serving(self):
        """The machine whose master serves."""

        def found():
            status = self.status()
            machines = self.nodes.values()
            return [one for one in machines if status and one.node("master") == status["master"]]

        return self.wait(found, "a master serves")[0]

    def is_whole(self):
        status = self.status()
        if not status or not status["members"]:
            return False
        masters = status["members"]["masters"]
        votes = [one for one in masters if one["as"] == "voter" and one["answers"]]
        health, groups = status["health"], len(status["groups"])
        up = [node for node in status["nodes"] if node["up"]]
        count = len(self.nodes)
        all_up = len(up) == len(status["nodes"]) == 3 * count
        whole = health["whole"] == health["writable"] == groups > 0
        return all_up and whole and len(votes) == min(count, 3)

    def wait_whole(self):
        self.wait(self.is_whole, "the machines are whole")

    def wait(self, condition, what):
        end = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            for machine in self.nodes.values():
                machine.note_end()
            if time.monotonic() > end:
                shown = json.dumps(self.status(), indent=1)
                raise ClusterFailed(f"not after {PATIENCE_SECONDS} s: {what}\n{shown}\n{self.tails()}")
            time.sleep(PAUSE_SECONDS)
        return found

    # Machines and what is done to them.

    def __getitem__(self, name):
        return self.nodes[name]

    def machines(self):
        return list(self.nodes)

    # A machine is all of these.
    gateways = masters = chunkservers = machines

    def restart(self, name):
        self.nodes[name].stop()
        self.nodes[name].start()
        self.wait_whole()

    def replace(self, name):
        """A machine is lost for good with its disks, and another one with empty ones takes its
        place."""
        lost = self.nodes.pop(name)
        lost.kill()
        nodes = {role: lost.node(role) for role in ROLES}
        lost.discard()
        self.pass_on_places(name, f"n{self.made + 1}")
        new = self.make()
        self.join(new)
        if self.apart:
            self.take_apart(new)
        disk = nodes["chunkserver"]
        self.wait(lambda: self.changed("drain", disk), f"node {disk} drains")
        for role in ("chunkserver", "gateway", "master"):
            self.remove(nodes[role])
        return new

    def pass_on_places(self, lost, new):
        split = [(*key.partition("/"), place) for key, place in self.places.items()]
        self.places = {
            f"{new if name == lost else name}{slash}{part}": place for name, slash, part, place in split
        }

    def replace_role(self, name, role):
        """The directory of a master or gateway that does not run is lost: its node is removed, and
        a new one joins in its place."""
        machine = self.nodes[name]
        lost = machine.node(role)
        machine.lose(role)
        self.remove(lost)
        wanted = ("cluster", "token", "--role", role)
        token = self.wait(lambda: self.asked(*wanted), f"a token for a {role}")
        self.command("cluster", "join", machine.directory / PLACES[role], token)
        machine.start()

    def remove(self, node):
        self.wait(lambda: self.changed("remove", node), f"node {node} is removed")

    def changed(self, verb, node):
        status = self.status()
        if status and node not in [one["node"] for one in status["nodes"]]:
            return True
        return self.asked("cluster", verb, node) is not None

    def s3(self, name, **options):
        return S3(self.nodes[name].s3, **options)

    def http(self, name, **options):
        return Http(self.nodes[name].http, **options)

    # For the report of a failure.

    def misbehaviour(self):
        """What no process may ever do: end by itself, or panic."""
        found = []
        for machine in self.nodes.values():
            machine.note_end()
            found += machine.ended
            found += [f"{machine.name}: {line}" for line in machine.lines() if "panicked" in line]
        return found

    def tails(self):
        return f"in {self.work}:\n" + "\n".join(one.tail() for one in self.nodes.values())
