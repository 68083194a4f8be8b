"""Nodes in network namespaces of their own, on one bridge, by IPv4 or IPv6, and the faults of such a network.

Packets are dropped on the bridge, between the nodes, as a real network would: neither end is told.
Needs root, iproute2 and nftables; `Unavailable` says what of it is missing.
"""

import ipaddress
import itertools
import os
import random
import re
import signal
import subprocess

OURS = re.compile(r"cairn-?_?(\d+)x\d+")
runs = itertools.count(1)


class Unavailable(Exception):
    """Namespaces cannot be made here."""


def run(*command, stdin=None):
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed: run tests/install") from error
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()} {stdin or ''}")
    return done.stdout


def several(nodes):
    """A list of nodes, or one, as a list."""
    return [nodes] if isinstance(nodes, str) else list(nodes)


def is_dead(name):
    """Whether a name is of a run that is gone."""
    found = OURS.match(name)
    return found is not None and not os.path.exists(f"/proc/{found[1]}")


def remove_namespace(name):
    for pid in run("ip", "netns", "pids", name).split():
        os.kill(int(pid), signal.SIGKILL)
    run("ip", "netns", "delete", name)


def remove_leftovers():
    """What former runs left behind that were killed."""
    for line in run("ip", "netns", "list").splitlines():
        if is_dead(line):
            remove_namespace(line.split()[0])
    for line in run("ip", "-brief", "link", "show", "type", "bridge").splitlines():
        if is_dead(line):
            run("ip", "link", "delete", line.split()[0])
    for line in run("nft", "list", "tables", "bridge").splitlines():
        if is_dead(line.split()[-1]):
            run("nft", "delete", "table", "bridge", line.split()[-1])


def free_subnet(ipv6=False):
    taken = run("ip", "-6" if ipv6 else "-4", "-oneline", "addr")
    while ipv6:
        prefix = f"fd{random.randrange(256):02x}:{random.randrange(1, 1 << 16):x}:ca1:1"
        if f" {prefix}:" not in taken:
            return ipaddress.ip_network(f"{prefix}::/64")
    while True:
        prefix = f"10.{random.randrange(100, 250)}.{random.randrange(256)}"
        if f" {prefix}." not in taken:
            return ipaddress.ip_network(f"{prefix}.0/24")


class Network:
    """`with Network() as network:` makes the bridge; `add` puts a node on it."""

    def __init__(self, ipv6=False):
        self.name = f"{os.getpid()}x{next(runs)}"
        self.bridge, self.table = f"cairn{self.name}", f"cairn_{self.name}"
        self.addresses, self.rules = {}, []
        if os.getuid() != 0:
            raise Unavailable("network namespaces need root")
        remove_leftovers()
        self.subnet, self.ipv6 = free_subnet(ipv6), ipv6
        # Where programs outside of all namespaces are: clients and the database.
        self.host = str(self.subnet[1])

    def __enter__(self):
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            self._give(["ip"], self.host, self.bridge)
            run("ip", "link", "set", self.bridge, "up")
            self._apply()
        except Unavailable:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Removes everything, as far as it was made."""
        steps = [lambda: run("nft", "delete", "table", "bridge", self.table)]
        inside = map(self.namespace, self.addresses)
        steps += [lambda name=name: remove_namespace(name) for name in inside]
        steps += [lambda: run("ip", "link", "delete", self.bridge)]
        for step in steps:
            try:
                step()
            except Unavailable:
                pass  # it was never made

    def namespace(self, node):
        return f"cairn-{self.name}-{node}"

    def add(self, node):
        """A namespace for a node; returns its address."""
        address, inside = str(self.subnet[10 + len(self.addresses)]), self.namespace(node)
        self.addresses[node] = address
        link = f"c{self.name}-{node}"
        run("ip", "netns", "add", inside)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", inside)
        run("ip", "link", "set", link, "master", self.bridge, "up")
        self._give(["ip", "-n", inside], address, "eth0")
        run("ip", "-n", inside, "link", "set", "eth0", "up")
        run("ip", "-n", inside, "link", "set", "lo", "up")
        return address

    def _give(self, command, address, link):
        """Gives a link an address, at once: nobody else has it."""
        more = ["nodad"] if self.ipv6 else []
        length = self.subnet.prefixlen
        run(*command, "addr", "add", f"{address}/{length}", "dev", link, *more)

    def within(self, node):
        """What to put before a command so that it runs in the namespace of a node."""
        return ["ip", "netns", "exec", self.namespace(node)]

    # Faults. They add up, until `heal`.

    def cut(self, node, also_from=()):
        """Nothing passes between a node, or several, and other nodes; clients still reach it."""
        self._drop_between(several(node), self._others(node) + list(also_from))

    def cut_one_way(self, source, target):
        """What `source` sends does not arrive at `target`; the other way is open."""
        self._drop(several(source), several(target))

    def halves(self, some, others):
        self._drop_between(some, others)

    def lossy(self, node, percent):
        """So many percent of the packets between a node, or several, and other nodes are lost."""
        by_chance = f"numgen random mod 100 < {percent}"
        self._drop_between(several(node), self._others(node), by_chance)

    def heal(self):
        self.rules = []
        self._apply()

    def _others(self, nodes):
        return [node for node in self.addresses if node not in several(nodes)]

    def _drop_between(self, some, others, when=""):
        self._drop(some, others, when)
        self._drop(others, some, when)

    def _drop(self, sources, targets, when=""):
        source, target = self._set(sources), self._set(targets)
        family = "ip6" if self.ipv6 else "ip"
        self.rules.append(f"{family} saddr {source} {family} daddr {target} {when} drop")
        self._apply()

    def _set(self, nodes):
        found = (self.host if node == "host" else self.addresses[node] for node in nodes)
        return "{ " + ", ".join(found) + " }"

    def _apply(self):
        """Replaces all rules at once."""
        rules = "\n".join(self.rules)
        chains = "".join(
            f"chain {hook} {{\n type filter hook {hook} priority 0\n{rules}\n}}\n"
            for hook in ("forward", "input", "output")
        )
        empty = f"add table bridge {self.table}\ndelete table bridge {self.table}\n"
        run("nft", "-f", "-", stdin=f"{empty}table bridge {self.table} {{\n{chains}}}\n")
