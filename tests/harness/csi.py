"""A driver of the Container Storage Interface, and a client of its published interface."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import grpc

from harness.server import KEY, ROOT, SECRET, binary
from harness.wait import PATIENCE_SECONDS

SANITY = ROOT / "target/clients/csi-sanity"


def interface():
    """Messages and services of the interface."""
    place = str(ROOT / "crates/csi/proto")
    if place not in sys.path:
        sys.path.insert(0, place)
    return grpc.protos_and_services("csi.proto")


def mounts_below(path):
    """Where something is mounted below a path."""
    lines = Path("/proc/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{path}/")]


class Client:
    """`client.CreateVolume(name=...)` makes a call, and returns what is answered."""

    def __init__(self, address):
        self.messages, services = interface()
        # As clients in Go say it; this one would say the path of the socket, which is no host.
        options = [("grpc.default_authority", "localhost")]
        channel = grpc.insecure_channel(address, options=options)
        self.stubs = [
            services.IdentityStub(channel),
            services.ControllerStub(channel),
            services.NodeStub(channel),
        ]

    def __getattr__(self, name):
        stub = next(stub for stub in self.stubs if hasattr(stub, name))
        request = getattr(self.messages, f"{name}Request")

        def call(**fields):
            return getattr(stub, name)(request(**fields), timeout=PATIENCE_SECONDS)

        return call

    def begin(self, name, **fields):
        """Makes a call and does not wait for its answer, which is a future of gRPC."""
        stub = next(stub for stub in self.stubs if hasattr(stub, name))
        request = getattr(self.messages, f"{name}Request")(**fields)
        return getattr(stub, name).future(request, timeout=PATIENCE_SECONDS)

    def capability(self, mode="MULTI_NODE_MULTI_WRITER", flags=()):
        return self.messages.VolumeCapability(
            mount=self.messages.VolumeCapability.MountVolume(mount_flags=flags),
            access_mode=self.messages.VolumeCapability.AccessMode(mode=mode),
        )

    def create(self, name, **fields):
        return self.CreateVolume(name=name, volume_capabilities=[self.capability()], **fields).volume

    def code(self, call, /, **fields):
        """The code with which a call fails, or OK."""
        try:
            getattr(self, call)(**fields)
            return "OK"
        except grpc.RpcError as error:
            return error.code().name


class Driver:
    """`with Driver(server, work, *options) as driver:` runs one over mounts."""

    def __init__(self, server, work, *options, credentials=(KEY, SECRET)):
        self.server, self.work, self.options = server, work, options
        self.credentials = credentials
        self.socket, self.mounts = work / "csi.sock", work / "mounts"
        self.log = open(work / "csi.log", "ab")
        self.process = self.client = None

    @property
    def endpoint(self):
        return f"unix://{self.socket}"

    def __enter__(self):
        return self.start()

    def start(self):
        command = [binary(), "csi", "--endpoint", self.endpoint, "--node-id", "here", "--with", "mount"]
        command += ["--server", self.server.http, "--mounts", str(self.mounts), *self.options]
        env = {**os.environ, **dict(zip(("CAIRN_KEY", "CAIRN_SECRET"), self.credentials))}
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log
        )
        line = self.process.stdout.readline()
        assert line.startswith(b"csi.cairn.store at "), (self.work / "csi.log").read_text()
        self.client = Client(f"unix:{self.socket}")
        return self

    def stop(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE_SECONDS) == 0

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        for at in reversed(mounts_below(self.work)):
            subprocess.run(["umount", "-l", at])
        self.log.close()


def joined(one, other):
    """Passes bytes on between two connections, in both directions, until one of them ends."""

    def pour(source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(2)
            except OSError:
                pass

    for pair in ((one, other), (other, one)):
        threading.Thread(target=pour, args=pair, daemon=True).start()
