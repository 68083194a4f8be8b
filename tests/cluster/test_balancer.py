"""HAProxy before two gateways: it goes on asking both while reads go on without a master, and leaves out one
that is cut off by itself.

Skipped where HAProxy is not installed (`tests/install --patroni` does).
"""

import shutil
import socket
import subprocess
import time

import pytest

from harness.cluster import Cluster
from harness.doors import Http
from harness.ports import free_ports
from harness.wait import eventually

pytestmark = pytest.mark.skipif(not shutil.which("haproxy"), reason="no haproxy: tests/install --patroni")

# As in docs/clients.md, with checks that come more often.
CONFIG = """
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    default-server check inter 500ms fall 2 rise 2
frontend doors
    bind {bind}
    default_backend gateways
backend gateways
    option httpchk GET /readyz
    server g1 {g1}
    server g2 {g2}
"""
# What is leased is read for as long as a session lasts without a master: 10 s, less than until 503.
LEASED_SECONDS = 5
# A gateway counts its 15 s without a master from the last answer of one, which came some time before its death.
LEAST_SECONDS = 12
GATEWAYS = ("g1", "g2")


class Balancer:
    """`with Balancer(cluster) as balancer:` spreads requests over both gateways in turn."""

    def __init__(self, cluster):
        self.at = f"127.0.0.1:{free_ports(1)[0]}"
        self.config = cluster.work / "haproxy.cfg"
        addresses = {name: cluster[name].http.removeprefix("http://") for name in GATEWAYS}
        self.config.write_text(CONFIG.format(bind=self.at, **addresses))
        self.log = cluster.work / "haproxy.log"

    def __enter__(self):
        with open(self.log, "wb") as log:
            command = ["haproxy", "-db", "-f", self.config]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(self.listens, "HAProxy listens")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def listens(self):
        host, port = self.at.split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def is_out(self, name):
        """Whether it sends nothing to a gateway, as it said last."""
        said = [line for line in self.log.read_text().splitlines() if f"Server gateways/{name} is " in line]
        return bool(said) and " is DOWN" in said[-1]

    def status(self, key="leased"):
        door = Http(f"http://{self.at}", credentials=None)
        try:
            return door.object("GET", "public", key).status
        finally:
            door.connection.close()


@pytest.fixture(scope="module")
def cluster():
    with Cluster(chunkservers=1, gateways=2, masters=3, replicas=1, netns=True) as running:
        http = running.http("g1")
        http.create_bucket("public", visibility="public")
        assert http.object("PUT", "public", "leased", body=b"x" * 100).status in (201, 204)
        yield running


@pytest.fixture
def balancer(cluster):
    with Balancer(cluster) as running:
        eventually(lambda: {running.status() for _ in range(4)} == {200}, "both gateways serve")
        yield running


def test_gateways_stay_in_while_leased_reads_go_on(cluster, balancer):
    masters = cluster.masters()
    for name in masters:
        cluster.kill(name)
    began, statuses = time.monotonic(), []
    while time.monotonic() < began + LEASED_SECONDS:
        statuses.append(balancer.status())
        time.sleep(0.05)
    assert set(statuses) == {200}, statuses
    assert not any(map(balancer.is_out, GATEWAYS))
    reply = cluster.http("g1").request("GET", "/readyz")
    assert reply.status == 200 and b"no master" in reply.body, reply
    eventually(lambda: all(map(balancer.is_out, GATEWAYS)), "both are out in the end")
    assert time.monotonic() > began + LEAST_SECONDS
    assert balancer.status() == 503
    for name in masters:
        cluster.start(name)
    eventually(lambda: balancer.status() == 200, "they are in again")
    eventually(lambda: not any(map(balancer.is_out, GATEWAYS)), "both of them")


def test_a_gateway_that_is_cut_off_is_left_out(cluster, balancer):
    cluster.network.cut("g1")
    eventually(lambda: balancer.is_out("g1"), "it is left out")
    assert {balancer.status() for _ in range(20)} == {200}
    assert not balancer.is_out("g2")
    cluster.heal()
    eventually(lambda: not balancer.is_out("g1"), "it is in again")
