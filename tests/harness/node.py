"""One node of a cluster: its directory, its process and its log."""

import os
import re
import shutil
import signal
import subprocess
import time

from harness.server import KEY, SECRET, binary
from harness.stop import go_on, stop
from harness.wait import PATIENCE_SECONDS


class NodeFailed(Exception):
    pass


class Node:
    """`arguments` are those of the role's command after DIR; `within` is put before it."""

    def __init__(self, name, role, directory, log, arguments, within=()):
        self.name, self.role, self.directory, self.log = name, role, directory, log
        self.arguments, self.within = list(arguments), list(within)
        self.env = dict(os.environ, CAIRN_ROOT_KEY=KEY, CAIRN_ROOT_SECRET=SECRET)
        self.id = None  # as `cairn cluster status` calls it
        self.address = self.s3 = self.http = self.nfs = self.cafile = None
        self.program = None  # another one than that under test
        self.process = None
        self.ended = []  # how it ended by itself

    def start(self):
        self.note_end()
        command = [*self.within, self.program or binary(), self.role, str(self.directory), *self.arguments]
        with open(self.log, "ab") as log:
            log.write(b"== started\n")
            output = subprocess.PIPE if self.role == "gateway" else log
            self.process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=output, stderr=log
            )

    def wait_ready(self):
        """Waits for the addresses of a gateway's doors."""
        began, text, output = time.monotonic(), b"", self.process.stdout.fileno()
        os.set_blocking(output, False)
        while len(found := dict(re.findall(rb"^(s3|http) (https?://\S+)$", text, re.M))) < 2:
            if not self.is_running():
                raise NodeFailed(f"{self.name}: exit {self.process.returncode}\n{self.tail()}")
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise NodeFailed(f"{self.name}: not ready in {PATIENCE_SECONDS} s\n{self.tail()}")
            try:
                text += os.read(output, 4096)
            except BlockingIOError:
                time.sleep(0.005)
        self.s3, self.http = found[b"s3"].decode(), found[b"http"].decode()

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def note_end(self):
        """Notes it if the process ended though nobody ended it."""
        if self.process is not None and self.process.poll() is not None:
            code = self.process.returncode
            self.ended.append(f"{self.name} ended by itself: exit {code}\n{self.tail()}")
            self.process = None

    def kill(self):
        """kill -9, and wait until the process is gone."""
        self.note_end()
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stop(self):
        """SIGTERM; returns the exit code."""
        self.note_end()
        if self.process is None:
            return None
        self.process.terminate()
        try:
            code = self.process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"{self.name} did not stop within {PATIENCE_SECONDS} s") from None
        self.process = None
        return code

    def pause(self):
        stop(self.process)

    def resume(self):
        go_on(self.process)

    def wipe(self):
        """Removes all data of a chunkserver that does not run; who it is stays."""
        shutil.rmtree(self.directory / "blocks")
        (self.directory / "format").unlink()

    def panics(self):
        return [line for line in self._lines() if "panicked" in line]

    def tail(self, lines=25):
        return f"--- {self.log.name}\n" + "\n".join(self._lines()[-lines:])

    def _lines(self):
        if not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()
