"""The image of containers: unpacked, and started by runc as the engines of Docker and Kubernetes do it."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

from harness.server import KEY, REGION, SECRET, binary, scratch
from harness.wait import PATIENCE_SECONDS, comes_true, eventually
from packages.machine import PACKAGES, Failed, made


def archive(release="0.1.0"):
    """The image of the program under test; returns its path."""
    path = PACKAGES / f"image/cairn_{release}_amd64.oci.tar"
    if not path.exists() or path.stat().st_mtime <= Path(binary()).stat().st_mtime:
        made("image", "--release", release, "--out", path.parent)
    return path


class Image:
    """An OCI archive of one layer, unpacked: its configuration, and a directory with its files."""

    def __init__(self, path, into):
        self.blobs, self.root = into / "archive", into / "rootfs"
        with tarfile.open(path) as files:
            files.extractall(self.blobs, filter="data")
        index = json.loads((self.blobs / "index.json").read_text())
        manifest = json.loads(self._blob(index["manifests"][0]).read_text())
        self.config = json.loads(self._blob(manifest["config"]).read_text())["config"]
        self.root.mkdir()
        for layer in manifest["layers"]:
            # As an engine does it: with owners and modes.
            words = ["tar", "--extract", "--gzip", "--numeric-owner", "--preserve-permissions"]
            subprocess.run([*words, "-C", self.root, "--file", self._blob(layer)], check=True)

    def _blob(self, described):
        return self.blobs / "blobs" / described["digest"].replace(":", "/")


class Container:
    """`with Container(image, directory) as container:` runs what the image says, or other arguments of its program.

    Its root is read-only, it has no capability and a network of its own, and `/data` is a directory.
    """

    def __init__(self, image, arguments=None):
        self.image, self.work = image, scratch("container")
        self.arguments = image.config["Cmd"] if arguments is None else arguments
        self.name = self.work.name
        self.log_path = self.work / "log"

    def _bundle(self):
        data = self.work / "data"
        data.mkdir(mode=0o700)
        user, group = map(int, self.image.config["User"].split(":"))
        shutil.chown(data, user, group)
        nothing = {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")}
        spaces = [{"type": kind} for kind in ("pid", "mount", "network", "ipc", "uts")]
        bundle = {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": user, "gid": group},
                "args": [*self.image.config["Entrypoint"], *self.arguments],
                "env": [*self.image.config["Env"], f"CAIRN_ROOT_KEY={KEY}", f"CAIRN_ROOT_SECRET={SECRET}"],
                "cwd": self.image.config["WorkingDir"],
                "noNewPrivileges": True,
                "capabilities": nothing,
            },
            "root": {"path": str(self.image.root), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {"destination": "/data", "type": "bind", "source": str(data), "options": ["rbind", "rw"]},
            ],
            "linux": {"namespaces": spaces},
        }
        (self.work / "config.json").write_text(json.dumps(bundle))

    def __enter__(self):
        self._bundle()
        with open(self.log_path, "wb") as log:
            command = ["runc", "run", "--bundle", self.work, self.name]
            self.engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            eventually(self._is_up, "the container serves")
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def _is_up(self):
        if self.engine.poll() is not None:
            raise Failed(self.log_path.read_text(errors="replace")[-3000:])
        return self.run("curl", "-sf", "http://127.0.0.1:8080/readyz", ok=False).returncode == 0

    @property
    def proc(self):
        """Of the program's process."""
        done = subprocess.run(["runc", "state", self.name], capture_output=True, text=True, check=False)
        return Path("/proc", str(json.loads(done.stdout)["pid"] if done.returncode == 0 else 0))

    def run(self, *command, ok=True):
        """Runs a program of this machine in the network of the container."""
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.work),
            "CAIRN_KEY": KEY,
            "CAIRN_SECRET": SECRET,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
        }
        words = ["nsenter", f"--net={self.proc}/ns/net", *map(str, command)]
        done = subprocess.run(words, env=env, cwd=self.work, capture_output=True, text=True, check=False)
        if ok and done.returncode != 0:
            raise Failed(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def cairn(self, *words):
        return self.run(binary(), *words).stdout

    def __exit__(self, kind, *_):
        subprocess.run(["runc", "kill", self.name, "TERM"], capture_output=True, check=False)
        if not comes_true(lambda: self.engine.poll() is not None, PATIENCE_SECONDS):
            self.engine.kill()
        subprocess.run(["runc", "delete", "--force", self.name], capture_output=True, check=False)
        if kind is None:
            shutil.rmtree(self.work, ignore_errors=True)
