"""A stopped server becomes the first machine of a cluster in place, however often that is interrupted. Until that is
finalized it can go back, with everything that was written before."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest

from cluster.load import LOST
from cluster.test_machines import Machine, is_whole
from harness.doors import S3, Http
from harness.presign import presigned
from harness.server import KEY, SECRET, binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually
from kill.model import content

# In the metadata, in one block, in several.
SIZES = {"empty": 0, "small": 300, "block": 70_000, "blocks": 9_000_000, "deep/er/block": 70_001}
BODIES = {key: content("a", key, size) if size else b"" for key, size in SIZES.items()}
LATER = content("later", 1, 80_000)
# Between two rounds of the collector of garbage.
COLLECTOR_SECONDS = 10
# What is there when the command is killed, in the order in which it appears.
SEEN = ["adoption.toml", "adoption.dump", "master/ca.pem", "gateway/cluster.toml", "master/meta/rows.redb"]


class Adopted(Machine):
    """The directory of a server, which becomes a machine at the same doors."""

    def cli(self, *words, ok=True):
        env = dict(os.environ, CAIRN_SERVER=self.http, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET)
        done = subprocess.run(
            [binary(), *map(str, words)], env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert not ok or done.returncode == 0, done
        return done

    @property
    def http(self):
        return f"http://{self.doors[3]}"

    def adopt(self, *options, ok=True):
        return self.cli("cluster", "adopt", self.directory, *options, ok=ok)

    def begin(self):
        return self.adopt("--address", "127.0.0.1", "--port", self.port)

    def serve(self):
        self.spawn([binary(), "server", str(self.directory), "--console", "off"])
        self.wait()

    def run_node(self):
        self.start()
        self.wait()

    def wait(self):
        def serves():
            assert self.process.poll() is None, self.tail()
            try:
                return S3(self.url, timeout=40).request("GET", "/").status == 200
            except LOST:
                return False

        eventually(serves, self.tail)
        self.s3 = S3(self.url, timeout=40)

    def refused(self, *words):
        done = self.cli(*words, self.directory, *self.doors, ok=False)
        assert done.returncode == 1 and "cairn cluster adopt" in done.stderr, done
        return done.stderr


@pytest.fixture
def work():
    place = scratch("adoption")
    made = []
    try:
        yield place, made
    except BaseException:
        print("\n".join(machine.tail() for machine in made))
        raise
    finally:
        for machine in made:
            machine.kill()
    shutil.rmtree(place, ignore_errors=True)


def filled(work):
    """A server that runs, with what its clients hold."""
    place, made = work
    one = Adopted(place / "one")
    made.append(one)
    one.serve()
    one.s3.create_bucket("kept")
    for key, body in BODIES.items():
        headers = {"x-amz-meta-of": key, "content-type": "text/of-a-test"}
        assert one.s3.object("PUT", "kept", key, body=body, headers=headers).status == 200
    Http(one.http).create_bucket("files")
    assert Http(one.http).object("PUT", "files", "a/b", b"in a directory").status < 300
    key = one.cli("key", "create", "alice").stdout
    one.alice = re.search(r"access key\s+(\S+)", key)[1], re.search(r"secret key\s+(\S+)", key)[1]
    one.cli("bucket", "set", "kept", "--grant", "alice:read")
    one.cli("bucket", "set", "files", "--grant", "alice:read,write")
    one.cli("export", "add", "files", "--client", "10.0.0.0/8", "--as", "alice", "--owner", "1000:1000")
    one.share = one.cli("share", "add", "kept/block").stdout.split()[-1]
    one.presigned = one.url + presigned(one.url.split("//")[1], "GET", "/kept/blocks")
    one.exports = one.cli("export", "list").stdout
    return one


def fetched(url):
    with urllib.request.urlopen(url, timeout=60) as reply:
        return reply.read()


def check(machine, of=None):
    """Everything that the server had, by the doors of a machine."""
    for key, body in BODIES.items():
        for credentials in ((KEY, SECRET), of.alice if of else (KEY, SECRET)):
            reply = S3(machine.url, credentials, timeout=40).object("GET", "kept", key)
            assert reply.status == 200 and reply.body == body, (key, reply)
            assert reply.headers["x-amz-meta-of"] == key and reply.headers["content-type"] == "text/of-a-test"
        reply = Http(f"http://{machine.doors[3]}", timeout=40).object("GET", "kept", key)
        assert reply.status == 200 and reply.body == body, (key, reply)
    http = Http(f"http://{machine.doors[3]}", timeout=40)
    assert set(BODIES) <= set(http.list("kept"))
    assert http.object("GET", "files", "a/b").body == b"in a directory"


def check_held(one):
    """What clients got from the server goes on at the same doors."""
    assert fetched(one.share) == BODIES["block"] and fetched(one.presigned) == BODIES["blocks"]
    assert one.exports == one.cli("export", "list").stdout


def killed_adoptions(one):
    """Each time a little later; then once between two renames."""
    command = [binary(), "cluster", "adopt", str(one.directory), "--address", "127.0.0.1", "--port", str(one.port)]
    for name in SEEN:
        # The former round left some files, which are made anew.
        former = stamp(one.directory / name)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and stamp(one.directory / name) in (None, former):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
        state = (one.directory / "adoption.toml").read_text()
        if 'step = "adopted"' not in state:
            one.refused("server")
            one.refused("node")
    one.begin()
    unmove(one.directory)
    assert "--undo" in one.refused("server") and "--undo" in one.refused("node")
    one.begin()


def stamp(path):
    """Another one when a file is made anew; None if it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def unmove(directory):
    """As after a crash right after the first rename."""
    state = directory / "adoption.toml"
    state.write_text(state.read_text().replace('"adopted"', '"moving"'))
    (directory / "machine.toml").unlink()
    for name in ("blocks", "scrub"):
        if (directory / "disk" / name).exists():
            (directory / "disk" / name).rename(directory / name)


def test_an_adopted_server_is_the_first_of_three_machines(work):
    place, made = work
    one = filled(work)
    refused = one.adopt("--address", "127.0.0.1", ok=False)
    assert refused.returncode == 1 and "in use" in refused.stderr, refused
    one.end()
    names = sorted(os.listdir(one.directory))
    shown = one.adopt("--address", "127.0.0.1", "--dry-run").stdout
    assert "nothing was changed" in shown and sorted(os.listdir(one.directory)) == names, shown
    killed_adoptions(one)
    assert "adopted already" in one.begin().stdout
    refused = one.cli("server", one.directory, *one.doors, ok=False)
    assert refused.returncode == 1 and "cairn node" in refused.stderr, refused
    one.run_node()
    check(one, one)
    check_held(one)
    assert one.s3.object("PUT", "kept", "later", body=LATER).status == 200
    for number in (2, 3):
        token = one.cli("cluster", "token", one.directory, "--machine").stdout.split()[-1]
        other = Machine(place / f"machine{number}")
        made.append(other)
        other.start("--address", "127.0.0.1", "--port", str(other.port), "--join", token)
        put_under_load(one, number)
    eventually(lambda: is_whole(one), lambda: one.cli("cluster", "status", one.directory, ok=False).stdout)
    one.cli("cluster", "replicas", one.directory, "3", "--minimum", "2")
    for machine in made:
        check(machine, one)
    check_held(one)
    one.cli("cluster", "finalize", one.directory)
    left = {"adoption.toml", "adoption.dump", "meta", "secret.key"} & set(os.listdir(one.directory))
    assert not left and "cluster adopt" not in one.cli("backup", "holds").stdout
    refused = one.adopt("--undo", ok=False)
    assert refused.returncode == 1 and "no way back" in refused.stderr, refused
    # The machine of before dies: the others have everything.
    one.kill()
    for machine in made[1:]:
        put_until_done_in(machine, "kept", "after")
        check(machine, one)


def put_under_load(one, number):
    for at in range(20):
        put_until_done_in(one, "kept", f"load-{number}-{at}")


def put_until_done_in(machine, bucket, key):
    def is_put():
        try:
            return S3(machine.url, timeout=40).object("PUT", bucket, key, body=LATER).status == 200
        except LOST:
            return False

    eventually(is_put, machine.tail)


def test_an_adoption_is_undone(work):
    one = filled(work)
    one.end()
    one.begin()
    one.run_node()
    check(one, one)
    for key in ("new", "small", "block"):
        assert one.s3.object("PUT", "kept", key, body=LATER).status == 200
    assert one.s3.object("DELETE", "kept", "blocks").status == 204
    one.end()
    shown = one.adopt("--undo", "--dry-run").stdout
    for name in ("kept/new", "kept/small", "kept/block", "kept/blocks"):
        assert re.search(rf"^    {name}$", shown, re.M), shown
    assert "GONE" not in shown
    refused = one.adopt("--undo", ok=False)
    assert refused.returncode == 1 and "--accept-loss" in refused.stderr, refused
    # A refusal changes nothing.
    one.run_node()
    assert one.s3.object("GET", "kept", "new").body == LATER
    one.end()
    one.adopt("--undo", "--accept-loss")
    fsck = one.cli("fsck", "--json", one.directory, ok=False)
    assert fsck.returncode == 0 and json.loads(fsck.stdout)["unknown_blocks"] == 0, fsck
    assert not {"adoption.toml", "machine.toml", "master", "disk", "gateway"} & set(os.listdir(one.directory))
    one.serve()
    check(one, one)
    check_held(one)
    assert set(Http(one.http).list("kept")) == set(BODIES)
    one.end()
    # And again, with a crash on the way back.
    one.begin()
    unmove(one.directory)
    state = one.directory / "adoption.toml"
    state.write_text(state.read_text().replace('"moving"', '"undoing"'))
    assert "--undo" in one.refused("server") and "--undo" in one.refused("node")
    assert "--undo" in one.adopt(ok=False).stderr
    one.adopt("--undo")
    one.serve()
    check(one, one)


def segments(directory):
    return {path.name: path.stat().st_size for path in directory.rglob("*.seg")}


def test_a_way_back_without_the_metadata_of_the_server_changes_nothing(work):
    one = filled(work)
    one.end()
    one.begin()
    meta, away, state = one.directory / "meta", one.directory.with_name("away"), one.directory / "adoption.toml"
    unmove(one.directory)
    before = segments(one.directory)
    assert before
    for step in ("moving", "undoing"):
        state.write_text(re.sub('step = "[a-z]+"', f'step = "{step}"', state.read_text()))
        meta.rename(away)
        # Absent, and as where a disk is not mounted.
        for make in (lambda: None, meta.mkdir):
            make()
            for options in (["--dry-run"], ["--accept-loss"]):
                refused = one.adopt("--undo", *options, ok=False)
                assert refused.returncode == 1 and "Nothing was changed" in refused.stderr, refused
                assert f'step = "{step}"' in state.read_text() and segments(one.directory) == before
                assert (one.directory / "master/meta").exists()
        assert not os.listdir(meta)
        meta.rmdir()
        away.rename(meta)
    one.adopt("--undo")
    one.serve()
    check(one, one)


def test_blocks_beside_an_older_copy_of_the_metadata_stay(work):
    one = filled(work)
    one.end()
    meta, older = one.directory / "meta", one.directory.with_name("older")
    shutil.copytree(meta, older)
    one.serve()
    assert one.s3.object("PUT", "kept", "newer", body=LATER).status == 200
    one.end()
    shutil.rmtree(meta)
    older.rename(meta)

    def unknown():
        return json.loads(one.cli("fsck", "--json", one.directory, ok=False).stdout)["unknown_blocks"]

    before = unknown()
    assert before > 0
    one.begin()
    one.run_node()
    assert one.s3.object("PUT", "kept", "later", body=LATER).status == 200
    one.end()
    one.adopt("--undo", "--accept-loss")
    # Those of the cluster are gone.
    assert unknown() == before


def test_another_cluster_does_not_finalize(work):
    place, made = work
    one, two = Adopted(place / "one"), Adopted(place / "two")
    for machine in (one, two):
        made.append(machine)
        machine.serve()
        machine.end()
        machine.begin()
    two.run_node()
    state = one.directory / "adoption.toml"
    for step in ("adopted", "finalizing"):
        state.write_text(re.sub('step = "[a-z]+"', f'step = "{step}"', state.read_text()))
        refused = two.cli("cluster", "finalize", one.directory, "--without-hold", ok=False)
        assert refused.returncode == 1 and "another store" in refused.stderr, refused
        assert f'step = "{step}"' in state.read_text() and (one.directory / "meta").exists()
    # The machine of an adoption may be gone: its hold can be ended all the same.
    hold = re.search(r"\b(ad09[0-9a-f]{12})\b", two.cli("backup", "holds").stdout)[1]
    refused = two.cli("backup", "holds", "--end", hold, ok=False)
    assert refused.returncode == 1 and "--of-adoption" in refused.stderr, refused
    two.cli("backup", "holds", "--end", hold, "--of-adoption")
    assert hold not in two.cli("backup", "holds").stdout
    refused = two.cli("cluster", "finalize", two.directory, ok=False)
    assert refused.returncode == 1 and "--without-hold" in refused.stderr, refused
    two.cli("cluster", "finalize", two.directory, "--without-hold")
    assert not (two.directory / "meta").exists()


def test_blocks_that_are_freed_too_early_are_missed(work):
    """Planted: a program ends the hold, and the collector does its work."""
    one = filled(work)
    one.end()
    one.begin()
    one.run_node()

    def blocks():
        found = []

        def are_known():
            status = one.status()
            found.append(sum(node["blocks"] or 0 for node in status["nodes"]) if status else 0)
            return found[-1] > 0

        eventually(are_known, one.tail)
        return found[-1]

    before = blocks()
    hold = re.search(r"\b(ad09[0-9a-f]{12})\b", one.cli("backup", "holds").stdout)[1]
    assert one.s3.object("DELETE", "kept", "blocks").status == 204
    # Two rounds of the collector.
    end = time.monotonic() + 2 * COLLECTOR_SECONDS
    while time.monotonic() < end:
        assert blocks() >= before, "the hold keeps them"
    refused = one.cli("backup", "holds", "--end", hold, ok=False)
    assert refused.returncode == 1 and "cairn cluster finalize" in refused.stderr, refused
    assert Http(one.http).request("DELETE", f"/admin/holds/{hold}").status < 300
    eventually(lambda: blocks() < before, "freed blocks are deleted")
    one.end()
    shown = one.adopt("--undo", "--dry-run").stdout
    assert re.search(r"\d+ blocks that the server names are GONE", shown), shown
    refused = one.adopt("--undo", ok=False)
    assert refused.returncode == 1, refused


def test_options_of_a_server_become_those_of_a_machine(work):
    one = filled(work)
    one.end()
    options, made = one.directory.with_name("server.toml"), one.directory.with_name("node.toml")
    options.write_text("[server]\n")
    made.write_text("of somebody else")
    refused = one.adopt("--address", "127.0.0.1", "--options", options, "--node-options", made, ok=False)
    assert refused.returncode == 1 and "node.toml: is there already" in refused.stderr, refused
    made.unlink()
    options.write_text('[server]\ns3 = "127.0.0.1:9100"\ncache-mib = 77\ndurability = "async"\nscrub-days = 3\n')
    shown = one.adopt("--address", "127.0.0.1", "--options", options, "--node-options", made).stdout
    assert "durability:" in shown, shown
    text = made.read_text()
    for line in ('s3 = "127.0.0.1:9100"', 'http = "127.0.0.1:8080"', "cache-mib = 77", "scrub-days = 3"):
        assert line in text, text
    assert one.cli("config", "check", made).returncode == 0
    one.adopt("--undo")
