"""One `cairn server` process: start, kill, restart, and what the kernel says of it."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from harness.wait import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
KEY = "CAIRNTESTROOTKEY0001"
SECRET = "cairn-test-root-secret-that-is-long-enough"
REGION = "us-east-1"
# The least caches that any machine gets: for tests of what a server takes.
SMALL_CACHES = ["--cache-mib", "64", "--row-cache-mib", "16", "--page-cache-mib", "16", "--memtable-mib", "16"]


def binary():
    """The program under test: $CAIRN_BIN, else the release build, else the debug build."""
    named = os.environ.get("CAIRN_BIN")
    for path in [named] if named else [ROOT / "target/release/cairn", ROOT / "target/debug/cairn"]:
        if Path(path).exists():
            return str(path)
    raise SystemExit("no cairn binary; run: cargo build --release -p cairn")


def scratch(prefix):
    """A new directory on the disk of the checkout (never a tmpfs: syncs must be real)."""
    base = Path(os.environ.get("CAIRN_TEST_DIR", ROOT / "target/test-data"))
    base.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=prefix + "-", dir=base))


class ServerFailed(Exception):
    pass


# Those that run: what they logged belongs to the report of a test that fails.
running = []


class Server:
    """`with Server() as server:` starts on free ports over a directory of its own."""

    def __init__(self, directory=None, args=(), env=None, log=None, wrapper=(), program=None, host="127.0.0.1"):
        self.owns_directory = directory is None
        self.work = scratch("server") if directory is None else Path(directory).parent
        self.directory = self.work / "data" if directory is None else Path(directory)
        self.args = list(args)
        self.wrapper = list(wrapper)  # a program that starts it, with its arguments
        self.program = program  # another one than that under test
        self.host = host  # of the S3 and the HTTP door, as in a URL
        self.env = dict(os.environ, CAIRN_ROOT_KEY=KEY, CAIRN_ROOT_SECRET=SECRET, **(env or {}))
        self.log_path = log or self.directory.with_name(self.directory.name + ".log")
        self.process = None
        self.s3 = self.http = None  # "http://127.0.0.1:PORT" once started
        self.nfs = ""  # "127.0.0.1:PORT" with --nfs
        self.syslog = ""  # the same with --syslog
        self.cafile = None  # the certificate with --tls-cert
        self.website = ""  # "http://127.0.0.1:PORT" with --website
        self.console = ""  # "http://127.0.0.1:PORT" with --console
        self.redirect = ""  # the same with --redirect
        self.health = ""  # the same with --health
        self.start_seconds = None

    def start(self):
        s3 = self.s3.split("//")[1] if self.s3 else f"{self.host}:0"
        http = self.http.split("//")[1] if self.http else f"{self.host}:0"
        command = [*self.wrapper, self.program or binary(), "server", str(self.directory)]
        command += ["--s3", s3, "--http", http, *self.args]
        if self.console:
            command += ["--console", self.console.split("//")[1]]
        elif "--console" not in self.args:
            command += ["--console", "off"]  # one address would be for all servers of all tests
        began = time.monotonic()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self._read_addresses(began)
        self.start_seconds = time.monotonic() - began
        return self

    def _read_addresses(self, began):
        os.set_blocking(self.process.stdout.fileno(), False)
        text = b""
        while True:
            found = dict(re.findall(rb"^(s3|http|nfs|syslog|website|redirect|console|health) (\S+)$", text, re.M))
            optional = ("nfs", "syslog", "website", "redirect", "console", "health")
            wanted = [door for door in optional if "--" + door in self.args]
            if len(found) == 2 + len(wanted):
                self.s3, self.http = found[b"s3"].decode(), found[b"http"].decode()
                self.nfs = found.get(b"nfs", b"").decode()
                self.syslog = found.get(b"syslog", b"").decode()
                self.website = found.get(b"website", b"").decode()
                self.redirect = found.get(b"redirect", b"").decode()
                self.console = found.get(b"console", b"").decode()
                self.health = found.get(b"health", b"").decode()
                return
            if self.process.poll() is not None:
                raise ServerFailed(f"exit {self.process.returncode}: {self.tail()}")
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise ServerFailed(f"not ready after {PATIENCE_SECONDS} s: {self.tail()}")
            chunk = self.process.stdout.read()
            if chunk:
                text += chunk
            else:
                time.sleep(0.002)

    def kill(self):
        """kill -9, and wait until the process is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process is None or self.process.poll() is not None:
            return None
        self.process.terminate()
        try:
            return self.process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"did not stop within {PATIENCE_SECONDS} s of SIGTERM") from None

    def restart(self):
        """kill -9 and start again on the same addresses."""
        if self.process.poll() is None:
            self.kill()
        return self.start()

    def fsck(self):
        """Runs `cairn fsck` over the stopped directory; returns (exit code, output)."""
        done = subprocess.run(
            [binary(), "fsck", str(self.directory)], capture_output=True, text=True, env=self.env
        )
        return done.returncode, done.stdout + done.stderr

    def tail(self, size=2000):
        try:
            return self.log_path.read_text(errors="replace")[-size:]
        except FileNotFoundError:
            return ""

    def _status(self, field):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
        raise KeyError(field)

    def rss_bytes(self):
        """Memory of its own: how much of the program's file is in memory says nothing of it."""
        return self._status("RssAnon")

    def rss_peak_bytes(self):
        return self._status("VmHWM")

    def reset_rss_peak(self):
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def __enter__(self):
        running.append(self)
        return self.start()

    def __exit__(self, kind, value, trace):
        running.remove(self)
        if self.process is not None and self.process.poll() is None:
            self.kill()
        if self.owns_directory and (kind is None or not os.environ.get("CAIRN_TEST_KEEP")):
            shutil.rmtree(self.work, ignore_errors=True)
