"""Mounts of a server: mount, kill, unmount; and the same bytes asked for at another door."""

import base64
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from harness.server import KEY, SECRET, binary
from harness.wait import PATIENCE_SECONDS, eventually


def environment(key=KEY, secret=SECRET):
    return dict(os.environ, CAIRN_KEY=key, CAIRN_SECRET=secret)


def is_mounted(path):
    mounts = Path("/proc/mounts").read_text().splitlines()
    return any(line.split()[1] == str(path) for line in mounts)


# Those that run, as of servers.
running = []


class Mount:
    """`with Mount(server, path) as root:` is a directory of the store."""

    def __init__(self, server, path, args=(), bucket=None, key=(KEY, SECRET),
                 node=None, program=None):  # fmt: skip
        self.server, self.path, self.args = server, Path(path), list(args)
        self.log_path = self.path.with_name(self.path.name + ".log")
        self.bucket, self.env, self.node = bucket, environment(*key), node
        self.program = program  # another one than that under test
        self.process = None

    @property
    def root(self):
        return self.path / self.bucket if self.bucket else self.path

    def start(self):
        """In the foreground, so that there is a process to kill."""
        if not is_mounted(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        where = ["--node", str(self.node)] if self.node else [self.server.http]
        command = [self.program or binary(), "mount", *where, str(self.path), "-f", *self.args]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, text=True,
            )
        line = self.process.stdout.readline()
        assert line.startswith("mounted "), self.tail()
        return self

    def kill(self):
        """kill -9; the mount point stays, dead, until somebody takes it away."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=PATIENCE_SECONDS)
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True)

    def tail(self, size=2000):
        return self.log_path.read_text(errors="replace")[-size:]

    def __enter__(self):
        running.append(self)
        return self.start()

    def __exit__(self, *_):
        running.remove(self)
        self.stop()


class Door:
    """The HTTP door, with nothing in between."""

    def __init__(self, server, bucket):
        self.url = f"{server.http}/storage/{bucket}"
        pair = base64.b64encode(f"{KEY}:{SECRET}".encode()).decode()
        self.headers = {"Authorization": f"Basic {pair}"}

    def ask(self, method, key, body=None):
        url = f"{self.url}/{key}" if key else self.url
        request = urllib.request.Request(url, data=body, method=method, headers=self.headers)
        with urllib.request.urlopen(request) as reply:
            return reply.read()

    def put(self, key, body):
        self.ask("PUT", key, body)

    def get(self, key):
        try:
            return self.ask("GET", key)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def delete(self, key):
        self.ask("DELETE", key)


def as_user(uid, groups, work):
    """The errno of what another user does, 0 if it worked."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            work()
            code = 0
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def eventually_refused(directory):
    """Waits until a mount whose key was removed shows nothing any more."""
    def is_refused():
        try:
            os.stat(directory / f"new{os.urandom(4).hex()}")
        except FileNotFoundError:
            return False
        except OSError:
            return True

    eventually(is_refused, "the mount is refused")
