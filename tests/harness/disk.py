"""Small disks on loop devices, that can be full, slow or stuck."""

import fcntl
import os
import struct
import subprocess
import threading

from harness.server import scratch

MIB = 1 << 20
RESERVE_BYTES = 1 << 20
STUCK_SECONDS, FREE_SECONDS = 0.3, 0.1
# From linux/fs.h (the ioctl of ext4 has the number of XFS): what is in the log is not written.
SHUTDOWN, WITHOUT_LOG = 0x8004587D, 2


class Unavailable(Exception):
    """A loop device cannot be mounted here."""


class SmallDisk:
    """`with SmallDisk(mib) as disk:` mounts an ext4 of that size at `disk.mount`."""

    def __init__(self, mib):
        work = scratch("disk")
        self.image, self.mount = work / "image", work / "mount"
        self.mount.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(mib * MIB)
        self.slow = None

    def __enter__(self):
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", self.image], check=True)
        command = ["mount", "-o", "loop", self.image, self.mount]
        mounted = subprocess.run(command, capture_output=True, text=True)
        if mounted.returncode != 0:
            self.image.unlink()
            raise Unavailable(f"a loop device cannot be mounted: {mounted.stderr.strip()}")
        return self

    def __exit__(self, *_):
        self.heal()
        subprocess.run(["umount", self.mount], check=True)
        self.image.unlink()

    @property
    def filler(self):
        return self.mount / "filler"

    def fill(self):
        """Takes what is free of the disk, but a little, as another program might."""
        found = os.statvfs(self.mount)
        with open(self.filler, "wb") as filler:
            size = found.f_bavail * found.f_frsize - RESERVE_BYTES
            os.posix_fallocate(filler.fileno(), 0, size)

    def stick(self):
        """Whatever is written waits until `heal`; reads go on."""
        self._freeze(True)

    def slow_down(self):
        """Stuck most of the time, in short pulses, until `heal`: a disk that is dying. Works
        wherever a file system can be mounted, unlike limits by control groups."""
        self.slow = threading.Event()
        self.pulses = threading.Thread(target=self._pulse, args=(self.slow,))
        self.pulses.start()

    def _pulse(self, ended):
        while not ended.wait(FREE_SECONDS):
            self._freeze(True)
            ended.wait(STUCK_SECONDS)
            self._freeze(False)

    def die(self):
        """Each call fails with EIO from now on, and what was not synced is lost: until `revive`."""
        directory = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(directory)

    def revive(self):
        """Mounts it again, when nobody uses it any more, by a loop device of its own: in the namespaces
        of other machines the former mount is still there, and would be shared as it is."""
        subprocess.run(["umount", self.mount], check=True)
        attach = ["losetup", "--find", "--show", self.image]
        device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run(["mount", device, self.mount], check=True)
        # Detached once nothing is mounted from it.
        subprocess.run(["losetup", "--detach", device], check=True)

    def make_read_only(self):
        """As the kernel does after an error of the file system: an abort of its journal."""
        subprocess.run(["mount", "-o", "remount,abort", self.mount], capture_output=True, check=True)

    def _freeze(self, on):
        subprocess.run(["fsfreeze", "-f" if on else "-u", self.mount], capture_output=True)

    def heal(self):
        if self.slow:
            self.slow.set()
            self.pulses.join()
            self.slow = None
        self._freeze(False)
        self.filler.unlink(missing_ok=True)
