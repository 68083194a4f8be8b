"""A Linux kernel of its own, in QEMU by emulation, that mounts what this machine serves.

It has no disk: an initial RAM disk with busybox, the modules of an NFS client, and a script, or
Python and `agent.py`. The guest reaches the loopback addresses of this machine as 10.0.2.2.
`tests/install` fetches the kernel.
"""

import importlib.util
import os
import pickle
import py_compile
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.server import ROOT
from harness.wait import PATIENCE_SECONDS

GUEST = ROOT / "target/guest"
ready = pytest.mark.skipif(
    not (GUEST / "bin/busybox").exists(), reason="no kernel: see tests/install"
)
# In the order in which they need each other.
MODULES = """virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover
net_failover virtio_net netfs fscache sunrpc grace lockd nfs nfs_acl nfsv3""".split()
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /mnt /tmp
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
for module in {modules}; do insmod /modules/$module.ko; done
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
route add default gw 10.0.2.2
mount -i -t nfs -o {options} 10.0.2.2:/{bucket} /mnt && cd /mnt && sh -ex /script
echo "guest ended: $?"
poweroff -f
"""
# What an operation of an agent may take: emulation is slow, and a server that was killed is waited
# for.
ANSWER_SECONDS = 3 * 60 * 60


def options(port, more=""):
    return (
        f"vers=3,nolock,proto=tcp,mountproto=tcp,port={port},mountport={port},"
        f"addr=10.0.2.2,mountaddr=10.0.2.2{more}"
    )


def archive(files):
    """An archive as the kernel unpacks it: `cpio -H newc`."""
    out = bytearray()
    made = {""}

    def add(name, mode, data=b""):
        parent = name.rpartition("/")[0]
        if parent not in made and mode:
            add(parent, stat.S_IFDIR | 0o755)
        number = len(made)
        made.add(name)
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08X" % field for field in fields))
        out.extend(name.encode() + b"\0")
        out.extend(b"\0" * (-len(out) % 4))
        out.extend(data)
        out.extend(b"\0" * (-len(out) % 4))

    for name, data in files.items():
        add(name, stat.S_IFREG | 0o755, data)
    add("TRAILER!!!", 0)
    return bytes(out)


def start(work, port, bucket, script, more=None, mount=""):
    """Boots a guest that mounts a bucket and runs a script in it, with `more` files."""
    modules = {path.stem: path for path in GUEST.rglob("*.ko")}
    needed = [name for name in MODULES if name in modules]
    init = INIT.format(modules=" ".join(needed), options=options(port, mount), bucket=bucket)
    files = {"init": init.encode(), "script": script.encode()}
    files["bin/busybox"] = (GUEST / "bin/busybox").read_bytes()
    files |= {f"modules/{name}.ko": modules[name].read_bytes() for name in needed}
    initial = work / "initial"
    initial.write_bytes(archive(files | (more or {})))
    [kernel] = GUEST.glob("boot/vmlinuz-*")
    command = ["qemu-system-x86_64", "-m", "1024", "-nographic", "-no-reboot", "-accel", "tcg"]
    command += ["-cpu", "qemu64", "-kernel", kernel, "-initrd", initial]
    command += ["-append", "console=ttyS0 quiet panic=-1"]
    command += ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"]
    log = open(work / "console", "wb")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def console(work):
    return (work / "console").read_text(errors="replace").replace("\r", "")


def finish(guest, work):
    """Waits for the end of the script. What the guest has said."""
    try:
        guest.wait(timeout=PATIENCE_SECONDS)
    finally:
        guest.kill()
    said = console(work)
    assert re.search(r"^guest ended: 0$", said, re.M), said[-5000:]
    return said


def run(work, port, bucket, script):
    return finish(start(work, port, bucket, script), work)


def with_libraries(path):
    """A program or library of this machine with those that it needs, at their places."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    libraries = re.findall(r"(/\S+) \(0x", said)
    return {name.lstrip("/"): Path(name).read_bytes() for name in [str(path), *libraries]}


def programs(*names):
    """Programs of this machine. The shell finds those of busybox first."""
    files = {}
    for name in names:
        files |= with_libraries(os.path.realpath(shutil.which(name)))
        files[f"programs/{name}"] = files.pop(os.path.realpath(shutil.which(name)).lstrip("/"))
    return files


def python(work):
    """Python as it runs here, with no more modules than the agent needs."""
    here = [Path(__file__).parent / "agent.py", ROOT / "tests/harness/side.py"]
    path = os.pathsep.join(str(file.parent) for file in here)
    ask = "import sys, agent; print(*(m.__name__ + '=' + m.__file__ for m in sys.modules.values()"
    ask += " if getattr(m, '__file__', None)), sep='\\n')"
    env = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run([sys.executable, "-B", "-c", ask], env=env, capture_output=True, text=True)
    program = Path(os.path.realpath(sys.executable))
    files = with_libraries(program)
    files["bin/python3"] = files.pop(str(program).lstrip("/"))
    at = "python/lib/" + f"python{sys.version_info.major}.{sys.version_info.minor}"
    for line in said.stdout.split():
        name, _, file = line.partition("=")
        is_package = Path(file).name == "__init__.py"
        if file.endswith(".so"):
            files |= with_libraries(file)
            files[f"{at}/lib-dynload/{Path(file).name}"] = files.pop(file.lstrip("/"))
        elif file.endswith(".py") and name != "__main__":
            inside = name.replace(".", "/") + ("/__init__" if is_package else "")
            compiled = py_compile.compile(file, cfile=str(work / "compiled"), doraise=True)
            files[f"{at}/{inside}.pyc"] = Path(compiled).read_bytes()
    assert f"{at}/agent.pyc" in files, said.stderr
    assert importlib.util.MAGIC_NUMBER == files[f"{at}/agent.pyc"][:4]
    return files


class Guest:
    """`with Guest(...) as guest:` is a guest in which an agent does what it is asked for."""

    def __init__(self, work, port, bucket, more=None, mount=""):
        self.work, self.place, self.mount = work, (port, bucket), mount
        self.more = more or {}
        self.guest = self.stream = None

    def __enter__(self):
        self.work.mkdir(exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(1)
            port = listener.getsockname()[1]
            script = f"export PYTHONHOME=/python HOME=/tmp PATH=/programs:/bin\nexec python3 -c 'import agent; agent.main({port})'\n"
            files = python(self.work) | self.more
            self.guest = start(self.work, *self.place, script, files, self.mount)
            try:
                self.stream = self._accept(listener).makefile("rwb")
            except BaseException:
                self.guest.kill()
                raise
        return self

    def _accept(self, listener):
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end and self.guest.poll() is None:
            try:
                accepted = listener.accept()[0]
                accepted.settimeout(ANSWER_SECONDS)
                return accepted
            except TimeoutError:
                pass
        raise AssertionError(f"the guest did not come: {console(self.work)[-5000:]}")

    def __exit__(self, *_):
        self.stream.close()
        self.guest.kill()
        self.guest.wait()

    def send(self, operation, *args):
        request = pickle.dumps((operation, *args))
        self.stream.write(struct.pack(">Q", len(request)) + request)
        self.stream.flush()

    def receive(self):
        head = self.stream.read(8)
        assert len(head) == 8, f"the guest has gone: {console(self.work)[-5000:]}"
        how, value = pickle.loads(self.stream.read(struct.unpack(">Q", head)[0]))
        assert how != "failed", value
        if how == "error":
            raise OSError(value, os.strerror(value))
        return value

    def do(self, operation, *args):
        """What comes of an operation of the agent; raises what it raised."""
        self.send(operation, *args)
        return self.receive()
