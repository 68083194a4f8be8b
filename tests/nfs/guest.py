"""A Linux kernel of its own, in QEMU by emulation, that mounts what this machine serves.

It has no disk: an initial RAM disk with busybox, the modules of an NFS client, and a script. The
guest reaches the loopback addresses of this machine as 10.0.2.2. `tests/install` fetches the kernel.
"""

import re
import stat
import subprocess

from harness.server import ROOT
from harness.wait import PATIENCE_SECONDS

GUEST = ROOT / "target/guest"
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


def options(port):
    return (
        f"vers=3,nolock,proto=tcp,mountproto=tcp,port={port},mountport={port},"
        "addr=10.0.2.2,mountaddr=10.0.2.2"
    )


def archive(files):
    """An archive as the kernel unpacks it: `cpio -H newc`."""
    out = bytearray()

    def add(number, name, mode, data=b""):
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08X" % field for field in fields))
        out.extend(name.encode() + b"\0")
        out.extend(b"\0" * (-len(out) % 4))
        out.extend(data)
        out.extend(b"\0" * (-len(out) % 4))

    number = 1
    for directory in ("bin", "modules"):
        add(number, directory, stat.S_IFDIR | 0o755)
        number += 1
    for name, data in files.items():
        add(number, name, stat.S_IFREG | 0o755, data)
        number += 1
    add(0, "TRAILER!!!", 0)
    return bytes(out)


def start(work, port, bucket, script):
    """Boots a guest that mounts a bucket and runs a script in it."""
    modules = {path.stem: path for path in GUEST.rglob("*.ko")}
    needed = [name for name in MODULES if name in modules]
    init = INIT.format(modules=" ".join(needed), options=options(port), bucket=bucket)
    files = {"init": init.encode(), "script": script.encode()}
    files["bin/busybox"] = (GUEST / "bin/busybox").read_bytes()
    files |= {f"modules/{name}.ko": modules[name].read_bytes() for name in needed}
    initial = work / "initial"
    initial.write_bytes(archive(files))
    [kernel] = GUEST.glob("boot/vmlinuz-*")
    command = ["qemu-system-x86_64", "-m", "512", "-nographic", "-no-reboot", "-accel", "tcg"]
    command += ["-cpu", "qemu64", "-kernel", kernel, "-initrd", initial]
    command += ["-append", "console=ttyS0 quiet panic=-1"]
    command += ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"]
    log = open(work / "console", "wb")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def finish(guest, work):
    """Waits for the end of the script. What the guest has said."""
    try:
        guest.wait(timeout=PATIENCE_SECONDS)
    finally:
        guest.kill()
    said = (work / "console").read_text(errors="replace").replace("\r", "")
    assert re.search(r"^guest ended: 0$", said, re.M), said[-5000:]
    return said


def run(work, port, bucket, script):
    return finish(start(work, port, bucket, script), work)
