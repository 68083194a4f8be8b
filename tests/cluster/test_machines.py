"""Three machines become a cluster with five commands, and any one of them may die."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from cluster import machine_episodes
from cluster.load import LOST
from harness import net
from harness.documents import chapter, commands
from harness.doors import S3
from harness.machines import Machines
from harness.ports import free_ports
from harness.server import KEY, SECRET, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually
from kill.model import content

RESUME_SECONDS = 20
# Some faults of `machine_episodes.py`, which by itself draws from all.
FAULTS = ["kill_serving_machine", "replace_machine"]
SEED = int(os.environ.get("CAIRN_TEST_SEED", 2))
# Of objects, by their keys: one lies in the metadata, one in a block.
SIZES = {"0": 300, "1": 70_000}


class Machine:
    """The directory and the process of a machine. All are on this host, so ports differ."""

    def __init__(self, directory):
        self.directory, self.log = directory, directory.with_suffix(".log")
        self.process = None
        # The chunkservers of two disks take the ports after that of the master.
        ports = free_ports(5)
        while ports[1:3] != [ports[0] + 1, ports[0] + 2]:
            ports = free_ports(5)
        self.port, _, _, s3, http = ports
        self.url = f"http://127.0.0.1:{s3}"
        self.doors = ["--s3", f"127.0.0.1:{s3}", "--http", f"127.0.0.1:{http}"]
        self.s3 = S3(self.url, timeout=40)
        self.env = dict(os.environ, CAIRN_ROOT_KEY=KEY, CAIRN_ROOT_SECRET=SECRET)

    def start(self, *options):
        """`cairn node DIR` with these options."""
        self.spawn([binary(), "node", str(self.directory), *options])

    def spawn(self, command):
        command += self.doors
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def end(self):
        """Told to stop, all its roles stop."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=PATIENCE_SECONDS) == 0, self.tail()
        self.process = None

    def run(self, *command):
        return subprocess.run(
            [binary(), *command], capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )

    def follow(self, command, token):
        """Runs a command of a document that is for this machine; returns the token that it prints,
        if it prints one."""
        for known, own in (("/srv/cairn", str(self.directory)), ("cairn-node-1.…", token)):
            command = command.replace(known, own or known)
        words = re.sub(r"\b10\.0\.0\.\d\b", "127.0.0.1", command).split()
        assert words[0] == "cairn", words
        if words[1] == "node":
            return self.spawn([binary(), *words[1:], "--port", str(self.port)])
        # Once a master serves.
        found = []
        eventually(lambda: found.append(self.run(*words[1:])) or found[-1].returncode == 0, lambda: found[-1])
        printed = found[-1].stdout.split()
        expected = ["cairn", "node", str(self.directory), "--address", "HOST", "--join"]
        assert printed[-7:-1] == expected, printed
        return printed[-1]

    def status(self):
        done = self.run("cluster", "status", str(self.directory), "--json")
        status = json.loads(done.stdout) if done.stdout.startswith("{") else None
        return status if status and status["master"] else None

    def tail(self):
        return self.log.read_text(errors="replace")[-3000:]


@pytest.fixture
def machines():
    work = scratch("machines")
    made = [Machine(work / f"machine{number}") for number in (1, 2, 3, 4)]
    try:
        yield made
    except BaseException:
        print("\n".join(machine.tail() for machine in made))
        raise
    finally:
        for machine in made:
            machine.kill()
    shutil.rmtree(work, ignore_errors=True)


def is_whole(machine, nodes=9):
    status = machine.status()
    if not status or status["members"]["voters"] != 3:
        return False
    up = all(node["up"] for node in status["nodes"]) and len(status["nodes"]) == nodes
    answering = all(one["answers"] for one in status["members"]["masters"])
    health, groups = status["health"], len(status["groups"])
    return up and answering and groups > 0 and health["whole"] == health["writable"] == groups


def put_until_done(machine, key, body):
    """Seconds until a write is acknowledged."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_SECONDS:
        try:
            if machine.s3.object("PUT", "machines", key, body=body).status == 200:
                return time.monotonic() - began
        except LOST:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{key}: {machine.tail()}")


def five_commands():
    """Those of README.md, each with the place of its machine."""
    text = chapter("README.md", "## Many machines")
    found, places = list(commands(text)), re.findall(r"# on 10\.0\.0\.(\d)", text)
    assert len(found) == len(places) == 5, found
    return [(int(place) - 1, command) for place, command in zip(places, found)]


def test_both_documents_have_the_same_commands():
    others = list(commands(chapter("docs/cluster.md", "### Three machines")))
    assert others[:5] == [command for _, command in five_commands()]


def test_three_machines_from_five_commands(machines, capsys):
    one, token = machines[0], None
    three = machines[:3]
    for place, command in five_commands():
        token = machines[place].follow(command, token)
    waited = one.run("cluster", "status", str(one.directory), "--wait", "--json")
    assert waited.returncode == 0, waited
    settled = json.loads(waited.stdout)
    assert settled["members"]["voters"] == 3 and not settled["few_copies"], settled
    eventually(lambda: is_whole(one), "all nine nodes are up, and three masters vote")
    said = one.run("cluster", "status", str(one.directory)).stdout
    assert "WARNING" not in said, said
    check_refused_drain(one)
    check_inflight(one)
    one.s3.create_bucket("machines")
    bodies = {key: content("m", int(key), size) for key, size in SIZES.items()}
    for key, body in bodies.items():
        put_until_done(one, key, body)
    # The machine whose master serves dies, all its roles at once.
    served = one.status()["master"]
    serving = [machine for machine in three if own_master(machine) == served][0]
    left = [machine for machine in three if machine is not serving]
    serving.kill()
    took = put_until_done(left[0], "after", content("m", "after", 70_000))
    for key, body in bodies.items():
        reply = left[1].s3.object("GET", "machines", key)
        assert reply.status == 200 and reply.body == body, reply
    with capsys.disabled():
        print(f"\nmachines: a write {took:.1f} s after the serving machine died")
    assert took < RESUME_SECONDS
    # From then on the directory says all but the doors' addresses.
    serving.start()
    eventually(lambda: is_whole(serving), "the machine is back")
    # By a connection of its own: that of before has ended.
    reply = S3(serving.url, timeout=40).object("GET", "machines", "after")
    assert reply.status == 200 and reply.body == content("m", "after", 70_000), reply
    check_another_disk(serving)
    check_another_machine(left[0], serving, machines[3])


def check_refused_drain(machine):
    """What a dry run refuses is refused, in words that are true."""
    drain = ("cluster", "drain", str(machine.directory), node_of(machine.directory / "disk"))
    for command in (drain, (*drain, "--dry-run")):
        refused = machine.run(*command)
        assert refused.returncode == 1 and "want 3 replicas" in refused.stderr, refused
        assert "meanwhile" not in refused.stderr, refused
    assert not any(node["draining"] for node in machine.status()["nodes"])


def check_inflight(machine):
    told = machine.run("inflight", str(machine.directory), "--json")
    roles = [json.loads(line)["role"] for line in told.stdout.splitlines()]
    assert told.returncode == 0 and roles == ["master", "chunkserver", "gateway"], told
    shown = machine.run("inflight", str(machine.directory))
    assert shown.returncode == 0 and f"gateway {machine.directory}/gateway" in shown.stdout, shown


def check_another_machine(told, lost, new):
    """A machine takes the place of one that is lost, and one command removes the nodes of that."""
    token = told.follow("cairn cluster token /srv/cairn --machine", None)
    new.follow("cairn node /srv/cairn --address 10.0.0.4 --join cairn-node-1.…", token)
    eventually(lambda: is_whole(told, 12), "the new machine has joined")
    assert all(node["node"].isdecimal() for node in told.status()["nodes"]), told.status()
    lost.kill()
    disk = lost.directory.with_suffix(".disk2")
    nodes = [node_of(place) for place in (lost.directory / "master", disk, lost.directory / "gateway")]
    words = list(commands(chapter("docs/cluster.md", "### Three machines")))[5].split()
    assert words == ["cairn", "cluster", "remove", "/srv/cairn", "1", "2", "3"], words
    done = told.run("cluster", "remove", str(told.directory), *nodes, "--yes")
    assert done.returncode == 0 and f"node {nodes[1]} is in" in done.stdout, done
    eventually(lambda: is_whole(told), "the cluster is whole without the lost machine")
    assert not set(nodes) & {node["node"] for node in told.status()["nodes"]}
    for key, size in SIZES.items():
        eventually(lambda key=key, size=size: reads(new.s3, key, content("m", int(key), size), "machines"), key)


def check_another_disk(machine):
    """A further disk of a machine is one zone with the first, and takes its place."""
    directory, disk = str(machine.directory), machine.directory.with_suffix(".disk2")
    add = ("cluster", "add-disk", directory, str(disk))
    told = machine.run(*add, "--dry-run")
    assert told.returncode == 0 and "free" in told.stdout, told
    assert "on the same disk" in told.stderr and not disk.exists(), told
    done = machine.run(*add)
    assert done.returncode == 0 and "joined as node" in done.stdout, done
    again = machine.run(*add)
    assert again.returncode == 1 and "already" in again.stderr, again
    machine.end()
    machine.start()
    eventually(lambda: is_whole(machine, 10), "the chunkserver of the new disk is up")
    old, new = node_of(machine.directory / "disk"), node_of(disk)
    zones = {node["node"]: node["zone"] for node in machine.status()["nodes"]}
    assert zones[old] == zones[new] == "127.0.0.1", zones
    assert not any({old, new} <= group for group in groups(machine)), "two replicas on a machine"
    done = machine.run("cluster", "rebalance", directory)
    assert done.returncode == 0, done
    done = machine.run("cluster", "replace", directory, old, new, "--yes")
    assert done.returncode == 0 and "no disk of this machine" in done.stdout, done
    assert machine.process.poll() is None, machine.tail()
    machine.end()
    machine.start()
    eventually(lambda: is_whole(machine), "the machine is whole with the new disk")
    assert all(new in group for group in groups(machine)), groups(machine)
    # The status may still be that of before the restart: the door opens a moment later.
    eventually(lambda: reads(S3(machine.url, timeout=40), "1", content("m", 1, 70_000), "machines"), "a read")


def groups(machine):
    return [set(group["in_sync"]) for group in machine.status()["groups"]]


def own_master(machine):
    return node_of(machine.directory / "master")


def node_of(directory):
    text = (directory / "cluster.toml").read_text()
    node = [line for line in text.splitlines() if line.startswith("node = ")][0]
    return str(int(node.split('"')[1], 16))


def test_machines_reach_each_other_by_ipv6():
    """By addresses alone, as `--address`, tokens, doors and the status have them."""
    try:
        with Machines(ipv6=True) as machines:
            check_ipv6(machines)
    except net.Unavailable as error:
        pytest.skip(f"machines with IPv6: {error}")


def check_ipv6(machines):
    addresses = {node["node"]: node["address"] for node in machines.told()["nodes"]}
    for machine in machines.nodes.values():
        assert addresses[machine.node("master")] == f"[{machine.host}]:7400"
        assert addresses[machine.node("chunkserver")] == f"[{machine.host}]:7401"
    one, two, three = machines.machines()
    machines.s3(one).create_bucket("sixth")
    body = content("m", "sixth", 70_000)
    assert machines.s3(one).object("PUT", "sixth", "key", body=body).status == 200
    # Those that are left find each other again.
    machines[one].kill()
    eventually(lambda: reads(machines.s3(three), "key", body), "a read after a death")
    machines[one].start()
    machines.wait_whole()
    told = machines.command("cluster", "token", machines[two].directory, "--machine")
    assert "cairn node" in told and "--join cairn-node-1." in told
    assert not machines.misbehaviour()


def reads(s3, key, body, bucket="sixth"):
    try:
        reply = s3.object("GET", bucket, key)
    except LOST:
        return False
    return reply.status == 200 and reply.body == body


def test_episodes_of_machines_lose_and_show_nothing_wrong(capsys):
    with capsys.disabled():
        print()
        try:
            violations = machine_episodes.run(
                len(FAULTS),
                seed=SEED,
                only=FAULTS,
                resume_seconds=PATIENCE_SECONDS,
                live_seconds=0,
                echo=lambda text: print(text, flush=True),
            )
        except net.Unavailable as error:
            pytest.skip(f"episodes of machines: {error}")
    assert not violations
