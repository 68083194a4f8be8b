"""No command makes something new where something is: it says what that is and what to run, and changes nothing."""

import hashlib
import os
import shutil
import subprocess
import time

import pytest

from cluster.load import LOST
from cluster.test_machines import Machine
from harness.doors import S3
from harness.server import KEY, SECRET, Server, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually
from kill.model import content

# More than the metadata take: it is in a block.
BODY = content("d", 1, 70_000)
# Files up to this size are compared byte by byte at each refusal, larger ones before and after all of them.
SMALL_BYTES = 1 << 20
DOORS = ["--s3", "127.0.0.1:0", "--http", "127.0.0.1:0"]


def run(*command):
    env = dict(os.environ, CAIRN_ROOT_KEY=KEY, CAIRN_ROOT_SECRET=SECRET, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET)
    return subprocess.run(
        [binary(), *map(str, command)], env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def done(*command):
    ended = run(*command)
    assert ended.returncode == 0, ended
    return ended.stdout


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree(directory, whole=False):
    """All that is there: names, kinds, owners, times and bytes."""
    found = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        about = path.lstat()
        is_read = path.is_file() and (whole or about.st_size <= SMALL_BYTES)
        found[str(path)] = (
            about.st_mode, about.st_uid, about.st_size, about.st_ino, about.st_mtime_ns,
            about.st_ctime_ns, digest(path) if is_read else None,
        )  # fmt: skip
    return found


def copy(source, target):
    """With holes where zeros are."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)
    return target


class Made:
    """A directory of each kind, made by the commands that make it."""

    def __init__(self, work):
        self.work = work
        self.dump, self.backup = work / "metadata.dump", work / "backup"
        with Server(work / "server") as server:
            S3(server.s3).create_bucket("kept")
            assert S3(server.s3).object("PUT", "kept", "one", body=BODY).status == 200
            done("meta", "dump", "--server", server.http, self.dump)
            done("backup", "create", "--server", server.http, self.backup)
            assert server.stop() == 0
        self.machine = Machine(work / "machine")
        self.machine.start("--address", "127.0.0.1", "--port", str(self.machine.port), "--replicas", "1")
        eventually(lambda: machine_serves(self.machine), self.machine.tail)
        self.machine.s3.create_bucket("kept")
        eventually(lambda: stored(self.machine.s3), self.machine.tail)
        self.machine.end()
        self.directories = {"server": work / "server", "machine": work / "machine", "backup": self.backup}
        for role, part in (("master", "master"), ("chunkserver", "disk"), ("gateway", "gateway")):
            self.directories[role] = copy(work / "machine" / part, work / role)
        self.make_damaged()
        self.make_others()

    def make_damaged(self):
        bare = copy(self.directories["server"], self.work / "without-format")
        (bare / "format").unlink()
        disk = copy(self.directories["chunkserver"], self.work / "node-without-format")
        (disk / "format").unlink()
        master = copy(self.directories["master"], self.work / "without-identity")
        (master / "cluster.toml").unlink()
        replaced = copy(self.directories["server"], self.work / "overwritten")
        (replaced / "member").write_text("cairn-member 1\nnode 1\n")
        for one in (bare, disk, master, replaced):
            self.directories[one.name] = one

    def make_others(self):
        foreign = self.work / "foreign"
        foreign.mkdir()
        (foreign / "thesis.txt").write_text("precious")
        self.directories["foreign"] = foreign

    def commands(self, directory):
        """Each command that could make something new in a directory."""
        another = next(one for one in (self.work / "machine", self.work / "nothing") if one != directory)
        return {
            "server": ["server", directory, *DOORS, "--console", "off"],
            "node": ["node", directory, "--address", "127.0.0.1", *DOORS],
            "init": ["cluster", "init", directory, "--address", "127.0.0.1:7400"],
            "init-embedded": ["cluster", "init", directory, "--address", "127.0.0.1:7400", "--engine", "embedded"],
            "join": ["cluster", "join", directory, "cairn-join-1.none"],
            "add-disk": ["cluster", "add-disk", another, directory],
            "adopt": ["cluster", "adopt", directory, "--address", "127.0.0.1"],
            "master": ["master", directory, "--listen", "127.0.0.1:0"],
            "chunkserver": ["chunkserver", directory, "--listen", "127.0.0.1:0"],
            "gateway": ["gateway", directory, *DOORS],
            "load": ["meta", "load", self.dump, directory],
            "restore": ["restore", self.backup, directory],
            "backup": ["backup", "create", "--server", "http://127.0.0.1:9", directory],
        }


# What each refusal names, and the commands that are for the directory.
ROWS = {
    "server": ("`cairn server {}`", {"server", "adopt"}),
    "machine": ("`cairn node {}`", {"node", "add-disk"}),
    "backup": ("`cairn restore {} NEW_DIR`", {"backup"}),
    "master": ("`cairn master {}`", {"master"}),
    "chunkserver": ("`cairn chunkserver {}`", {"chunkserver", "add-disk"}),
    "gateway": ("`cairn gateway {}`", {"gateway"}),
    "without-format": ("put that file back", set()),
    "node-without-format": ("put that file back", set()),
    "without-identity": ("put that file back", set()),
    "overwritten": ("cairn restore BACKUP {}", set()),
    "foreign": ("holds thesis.txt and is not a Cairn data directory", set()),
}
# These are the right kind, and hold what the command would have to replace.
OCCUPIED = {("server", "load"), ("server", "restore")}
# It is another store than that of the dump.
OTHERS = {("master", "load")}

@pytest.fixture(scope="module")
def made():
    work = scratch("directories")
    made = Made(work)
    yield made
    made.machine.kill()
    shutil.rmtree(work, ignore_errors=True)


def machine_serves(machine):
    status = machine.status()
    return status and len(status["nodes"]) == 3 and all(node["up"] for node in status["nodes"])


def stored(s3):
    return s3.object("PUT", "kept", "one", body=BODY).status == 200


def reads(s3):
    try:
        return holds(s3)
    except LOST:
        return False


def holds(s3):
    reply = s3.object("GET", "kept", "one")
    return reply.status == 200 and reply.body == BODY


@pytest.mark.parametrize("kind", ROWS)
def test_a_directory_that_holds_something_else_is_left_as_it_is(made, kind):
    directory = made.directories[kind]
    remedy, own = ROWS[kind]
    whole = tree(directory, whole=True)
    names = sorted(os.listdir(made.work))
    for name, command in made.commands(directory).items():
        if name in own:
            continue
        before = tree(directory)
        ended = run(*command)
        said = ended.stderr.strip().splitlines()[-1]
        assert ended.returncode == 1 and ended.stdout == "", (name, ended)
        assert "panicked" not in ended.stderr and (str(directory) in said or (kind, name) in OTHERS), (name, ended)
        if (kind, name) in OCCUPIED:
            assert "holds the metadata of a store already: move that directory away" in said, (name, said)
        elif (kind, name) in OTHERS:
            assert "another store than this directory's: load its own" in said, (name, said)
        else:
            assert remedy.format(directory) in said, (name, said)
        assert tree(directory) == before, name
    assert tree(directory, whole=True) == whole
    assert sorted(os.listdir(made.work)) == names


def test_the_named_commands_go_on(made):
    with Server(copy(made.directories["server"], made.work / "served")) as server:
        assert holds(S3(server.s3))
    restored = made.work / "restored"
    done("restore", made.backup, restored, "--secret-key", made.directories["server"] / "secret.key")
    with Server(restored) as server:
        assert holds(S3(server.s3))
    made.machine.start()
    again = S3(made.machine.url, timeout=40)
    eventually(lambda: machine_serves(made.machine) and reads(again), made.machine.tail)
    made.machine.end()


def test_a_store_whose_metadata_were_replaced_gets_them_back(made):
    bricked = copy(made.directories["overwritten"], made.work / "brought-back")
    (bricked / "meta").rename(made.work / "replaced-meta")
    (bricked / "member").unlink()
    done("meta", "load", made.dump, bricked)
    with Server(bricked) as server:
        assert holds(S3(server.s3))


def test_a_backup_of_nowhere_makes_nothing(made):
    missing = made.work / "missing"
    for command in (["backup", "list", missing], ["restore", missing, made.work / "new"]):
        ended = run(*command)
        assert ended.returncode == 1, ended
        assert not missing.exists() and not (made.work / "new").exists()


def test_a_new_file_system_is_empty(made):
    fresh = made.work / "fresh"
    (fresh / "lost+found").mkdir(parents=True)
    with Server(fresh) as server:
        S3(server.s3).create_bucket("kept")


def test_what_was_interrupted_at_its_beginning_goes_on(made):
    begun = made.work / "begun"
    begun.mkdir()
    for name in ("format", "secret.key"):
        shutil.copy2(made.directories["server"] / name, begun / name)
    refused = run("cluster", "init", begun, "--address", "127.0.0.1:7400")
    assert refused.returncode == 1 and f"`cairn server {begun}`" in refused.stderr, refused
    with Server(begun) as server:
        S3(server.s3).create_bucket("kept")
    first = made.work / "first"
    done("cluster", "init", first, "--address", "127.0.0.1:7400")
    for name in ("cluster.toml", "node.pem", "ca.pem", "ca.key"):
        (first / name).unlink()
    refused = run("server", first, *DOORS)
    assert refused.returncode == 1 and f"`cairn cluster init {first} " in refused.stderr, refused
    said = done("cluster", "init", first, "--address", "127.0.0.1:7400")
    assert "A new cluster." in said and (first / "cluster.toml").exists(), said


def test_a_machine_that_died_in_its_first_start_goes_on(made):
    machine = Machine(made.work / "died")
    options = ["--address", "127.0.0.1", "--port", str(machine.port), "--replicas", "1"]
    for milliseconds in (20, 60, 150, 300, 600):
        machine.start(*options)
        time.sleep(milliseconds / 1000)
        machine.kill()
    machine.start(*options)
    try:
        eventually(lambda: machine_serves(machine), machine.tail)
        machine.end()
    finally:
        machine.kill()


def test_a_join_that_failed_leaves_no_machine_and_is_made_again(made):
    first, second = Machine(made.work / "alone"), Machine(made.work / "late")
    own = ["--address", "127.0.0.1", "--port", str(first.port), "--replicas", "1"]
    first.start(*own)
    try:
        eventually(lambda: machine_serves(first), first.tail)
        said = done("cluster", "token", first.directory, "--machine")
        token = next(word for word in said.split() if word.startswith("cairn-node-1."))
        first.end()
        join = ["--address", "127.0.0.2", "--port", str(second.port), "--join", token]
        refused = run("node", second.directory, *join, *DOORS)
        assert refused.returncode == 1 and "joining: " in refused.stderr, refused
        assert not (second.directory / "machine.toml").exists()
        first.start(*own)
        eventually(lambda: machine_serves(first), first.tail)
        second.start(*join)
        eventually(lambda: len(first.status()["nodes"]) == 6, second.tail)
        # The others see it before it has noted that.
        eventually((second.directory / "machine.toml").exists, second.tail)
    finally:
        second.kill()
        first.kill()
