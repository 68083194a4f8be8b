"""A Debian machine of its own: a container of systemd-nspawn over a fresh root, with its own network.

`with Machine(root) as machine:` boots it; `machine.run("…")` runs a line of a shell there, as root.
The root below is not changed: what the machine writes goes to a directory that is removed.
"""

import shutil
import subprocess
import time
from pathlib import Path

from harness.server import ROOT, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually

# Made by `tests/install --packages`: without Cairn, and with stock clients besides.
PLAIN = ROOT / "target/debian"
CLIENTS = ROOT / "target/debian-clients"
PACKAGES = ROOT / "target/test-packages"
# Of machines in the book, all of them this one.
ADDRESSES = [f"10.0.0.{number}" for number in range(1, 6)]


class Failed(Exception):
    pass


def packages(release="0.1.0"):
    """The packages of the program under test; returns their paths: client, server, symbols."""
    out = PACKAGES / release
    names = ("cairn-client", "cairn-server", "cairn-client-dbgsym")
    paths = [out / f"{name}_{release}_amd64.deb" for name in names]
    program = Path(binary())
    if not all(path.exists() and path.stat().st_mtime > program.stat().st_mtime for path in paths):
        made("dist", "--release", release, "--out", out)
    return paths


def made(chore, *words):
    command = ["cargo", "xtask", chore, "--program", binary(), *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{command}: {done.stdout}{done.stderr}")


class Machine:
    def __init__(self, root=PLAIN):
        self.root, self.work = root, scratch("machine")
        self.place = self.work / "root"
        self.env = {}
        self.process = self.leader = None

    def __enter__(self):
        for name in ("root", "upper", "within"):
            (self.work / name).mkdir()
        layers = f"lowerdir={self.root},upperdir={self.work}/upper,workdir={self.work}/within"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, self.place], check=True)
        try:
            # Stores of the machine: a file system of their own, as overlays give no direct access to disks.
            (self.work / "srv").mkdir()
            self._boot()
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def _boot(self):
        log = open(self.work / "boot.log", "wb")
        name = self.work.name.replace("_", "")
        self.process = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "-D", self.place, "-M", name, "--register=no", "--keep-unit",
             "--boot", "--private-network", "--link-journal=no", "--resolv-conf=off", "--console=pipe",
             f"--bind={self.work}/srv:/srv", "--bind=/dev/fuse"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        eventually(self._is_up, "the machine has booted", 120)
        addresses = "; ".join(f"ip address add {address}/32 dev lo" for address in ADDRESSES)
        self.run(addresses)

    def _is_up(self):
        if self.process.poll() is not None:
            raise Failed((self.work / "boot.log").read_text(errors="replace")[-3000:])
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if not children:
            return False
        self.leader = children[0]
        done = self.run("systemctl is-system-running", ok=False)
        return done.stdout.strip() in ("running", "degraded")

    def run(self, command, ok=True, seconds=PATIENCE_SECONDS):
        """Runs a line of a shell; returns what it printed, or, unless `ok`, how it went."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {"PATH": path, "HOME": "/root", "LC_ALL": "C.UTF-8", **self.env}
        words = ["nsenter", "-t", self.leader, "--all", "--wd=/root", "bash", "-c", f"cd /root; {command}"]
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )  # fmt: skip
        if ok and done.returncode != 0:
            journal = self.run("journalctl -n 40 --no-pager -o cat", ok=False).stdout if command else ""
            raise Failed(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}\n-- journal\n{journal}")
        return done.stdout if ok else done

    def put(self, path, *sources):
        """Copies files into a directory of the machine."""
        for source in sources:
            data = Path(source).read_bytes()
            words = ["nsenter", "-t", self.leader, "--all", "tee", f"{path}/{Path(source).name}"]
            subprocess.run(words, input=data, stdout=subprocess.DEVNULL, check=True)

    def install(self, *paths):
        """Installs packages, as an operator would: with apt, which resolves what they depend on."""
        self.put("/root", *paths)
        names = " ".join(f"./{path.name}" for path in paths)
        return self.run(f"apt-get install -y {names}")

    def eventually(self, command, what):
        eventually(lambda: self.run(command, ok=False).returncode == 0, what)

    def __exit__(self, kind, *_):
        if self.process:
            if self.process.poll() is None and self.leader:
                self.run("systemctl poweroff", ok=False)
            try:
                self.process.wait(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        # The kernel may keep the file system busy for a moment.
        end = time.monotonic() + PATIENCE_SECONDS
        while subprocess.run(["umount", self.place], capture_output=True).returncode != 0:
            if time.monotonic() > end:
                subprocess.run(["umount", "-l", self.place], capture_output=True)
                break
            time.sleep(0.1)
        if kind is None:
            shutil.rmtree(self.work, ignore_errors=True)
