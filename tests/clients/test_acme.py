"""Certificates from an authority by ACME. The authority is Pebble, Let's Encrypt's small one for
tests, which looks for its proofs as the great one does."""

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import urllib.parse
import urllib.request

import pytest

from harness.ports import free_ports
from harness.server import ROOT, Server, scratch
from harness.wait import eventually

PEBBLE = ROOT / "target/clients/pebble"
NAME = "localhost"
pytestmark = pytest.mark.skipif(not PEBBLE.exists(), reason="Pebble is not there: tests/install")


class Pebble:
    """An authority that asks the names of a certificate for proofs at one port."""

    def __init__(self, work, proofs_at):
        self.work, self.proofs_at = work, proofs_at
        self.port, self.management = free_ports(2)
        self.ca = work / "pebble.pem"
        self.directory = f"https://127.0.0.1:{self.port}/dir"

    def __enter__(self):
        key = self.work / "pebble-key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
             self.ca, "-days", "2", "-subj", "/CN=pebble", "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True, capture_output=True,
        )  # fmt: skip
        config = self.work / "pebble.json"
        config.write_text(json.dumps({"pebble": {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.ca), "privateKey": str(key),
            "httpPort": self.proofs_at, "tlsPort": 1,
        }}))  # fmt: skip
        with open(self.work / "pebble.log", "ab") as log:
            self.process = subprocess.Popen(
                [PEBBLE, "-config", config], stdout=log, stderr=log,
                env={**os.environ, "PEBBLE_VA_NOSLEEP": "1"},
            )  # fmt: skip
        # Both of its addresses: an order that fails is tried again after minutes.
        eventually(lambda: self.get(self.directory) and self.root(), "Pebble answers")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def root(self):
        """The certificate with which this authority signs, made anew at each start."""
        return self.get(f"https://127.0.0.1:{self.management}/roots/0")

    def get(self, url):
        context = ssl.create_default_context(cafile=self.ca)
        with contextlib.suppress(OSError), urllib.request.urlopen(url, context=context) as reply:
            return reply.read().decode()


def arguments(work, pebble, name=NAME):
    return [
        "--acme", name, "--acme-dir", str(work / "acme"), "--acme-accept-terms", "--acme-mail",
        "ops@example.org", "--acme-directory", pebble.directory, "--acme-ca", str(pebble.ca),
        "--redirect", f"[::]:{pebble.proofs_at}",
    ]  # fmt: skip


def serial(server, root):
    """The number of the certificate that a door shows, if the authority has signed it."""
    context = ssl.create_default_context(cadata=root)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    door = http.client.HTTPSConnection(NAME, urllib.parse.urlsplit(server.http).port, context=context)
    with contextlib.suppress(ssl.SSLError), contextlib.closing(door):
        door.request("GET", "/healthz")
        assert door.getresponse().status == 200
        return door.sock.getpeercert()["serialNumber"]


@pytest.fixture
def work():
    made = scratch("acme")
    yield made
    shutil.rmtree(made)


def test_a_server_gets_a_certificate_and_keeps_it(work):
    [port] = free_ports(1)
    with Pebble(work, port) as pebble, Server(args=arguments(work, pebble)) as server:
        eventually(lambda: serial(server, pebble.root()), "a certificate")
        first = serial(server, pebble.root())
        redirected(port, server)
        assert server.stop() == 0
        server.start()
        assert serial(server, pebble.root()) == first, "there is no second order"
        assert server.stop() == 0
        # Another authority: the certificate of the first one is not of use any more.
        with Pebble(work, port) as other:
            server.args = arguments(work, other)
            server.start()
            eventually(lambda: serial(server, other.root()), "a certificate of the other")
        assert server.stop() == 0
        log = server.log_path.read_text()
    kept = {path.name: path.stat().st_mode & 0o777 for path in (work / "acme").iterdir()}
    assert kept == dict.fromkeys(["account.json", "certificate.pem", "order.json"], 0o600)
    account = json.loads((work / "acme/account.json").read_text())
    assert account["credentials"]["key_pkcs8"] not in log and "PRIVATE" not in log


def redirected(port, server):
    door = http.client.HTTPConnection("127.0.0.1", port)
    door.request("GET", "/storage/a?b=c", headers={"Host": f"{NAME}:80"})
    reply = door.getresponse()
    https = urllib.parse.urlsplit(server.http).port
    wanted = f"https://{NAME}:{https}/storage/a?b=c"
    assert (reply.status, reply.headers["Location"]) == (308, wanted)
    reply.read()
    door.request("GET", "/.well-known/acme-challenge/unknown", headers={"Host": NAME})
    assert door.getresponse().status == 308, "no order waits for a proof"


def test_a_proof_that_is_not_accepted_is_said_and_the_store_serves(work):
    [port] = free_ports(1)
    with Pebble(work, port) as pebble:
        with Server(args=arguments(work, pebble, "not-here.invalid")) as server:
            said = "the authority did not accept the proof for not-here.invalid"
            eventually(lambda: said in server.tail(), "the error")
            untrusted = ssl._create_unverified_context()
            with urllib.request.urlopen(server.http + "/healthz", context=untrusted) as reply:
                assert reply.status == 200
