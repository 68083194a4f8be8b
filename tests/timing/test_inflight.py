"""What waits says so: `cairn inflight` and the log, while it waits."""

import contextlib
import json
import os
import subprocess
import threading

import pytest

from harness.cluster import Cluster
from harness.doors import S3, Http
from harness.mount import Mount
from harness.rawmount import RawMount
from harness.server import KEY, SECRET, Server, binary
from harness.stop import stopped
from harness.wait import PATIENCE_SECONDS, eventually


def ask(target, *options):
    return subprocess.run(
        [binary(), "inflight", str(target), *options],
        capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def report(target):
    done = ask(target, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def found(target, is_meant):
    """The first request in flight that is meant, once there is one."""
    seen = []

    def look():
        seen.extend(one for one in report(target)["requests"] if is_meant(one))
        return seen

    eventually(look, f"it is in flight: {target}")
    return seen[0]


def waits_for(one, text):
    return any(text in wait["what"] for wait in one["waits_for"])


@contextlib.contextmanager
def running(work, *args):
    thread = threading.Thread(target=work, args=args)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def store():
    with Server() as server:
        Http(server.http).create_bucket("bucket")
        assert Http(server.http).object("PUT", "bucket", "dir/old", b"x").status == 201
        yield server


@pytest.fixture
def mount(store, work):
    with Mount(store, work / "a mount") as mounted:
        yield mounted


def test_a_stuck_mount_names_operation_path_process_and_server(store, mount):
    directory = mount.path / "bucket" / "dir"
    assert os.stat(directory / "old").st_size == 1
    assert report(mount.path)["requests"] == []
    assert "nothing waits" in ask(mount.path).stdout
    with stopped(store.process):
        stat = subprocess.Popen(["stat", str(directory / "new")], stderr=subprocess.DEVNULL)
        one = found(mount.path, lambda one: one["object"] == "/bucket/dir/new")
        assert (one["door"], one["operation"], one["stage"]) == ("fuse", "lookup", "meta")
        assert one["process"] == {"pid": stat.pid, "name": "stat"}
        assert waits_for(one, f"server {store.http}")
        # Also by a path within it, and as a table.
        table = ask(directory).stdout
        for text in ("fuse lookup", "/bucket/dir/new", f"process {stat.pid} (stat)", store.http):
            assert text in table
        eventually(lambda: "a request waits" in mount.tail(1 << 20), "it is warned of")
        warning = next(
            line for line in mount.tail(1 << 20).splitlines() if "a request waits" in line
        )
        for text in ("WARN", "lookup", "/bucket/dir/new", str(stat.pid), store.http):
            assert text in warning
    assert stat.wait(timeout=PATIENCE_SECONDS) == 1
    eventually(lambda: report(mount.path)["requests"] == [], "nothing waits any more")


def test_a_server_that_is_lost_and_found_is_said_once(store, mount):
    def said(text):
        return [line for line in mount.tail(1 << 20).splitlines() if text in line]

    store.kill()
    eventually(lambda: said("does not answer"), "it is said that the server is lost")
    store.start()
    eventually(lambda: said("answers again"), "it is said that the server is found")
    lost, again = said("does not answer"), said("answers again")
    assert len(lost) == len(again) == 1
    assert "WARN" in lost[0] and "INFO" in again[0]
    assert all(f"server {store.http}" in line for line in (lost[0], again[0]))


def test_who_is_stopped_is_told_so(mount):
    with stopped(mount.process):
        done = ask(mount.path)
    assert done.returncode == 1 and "it is stopped" in done.stderr


def test_who_is_not_there_is_told_so(store, work):
    assert report(store.directory)["role"] == "server"
    store.kill()
    for target in (store.directory, work, work / "none"):
        done = ask(target)
        assert done.returncode == 1 and "no process of Cairn serves it" in done.stderr


def test_a_change_that_waits_for_a_recall_names_the_session(store, mount):
    raw = RawMount(store.http, (KEY, SECRET))
    raw.attach(0x1001)
    for inode in range(1, 20):
        raw.list(inode)
        raw.attributes(inode)

    def create():
        with open(mount.path / "bucket" / "dir" / "made", "wb"):
            pass

    with running(create):
        asking = found(mount.path, lambda one: one["operation"] == "create")
        assert asking["object"] == "/bucket/dir/made"
        assert waits_for(asking, f"server {store.http}")
        one = found(store.directory, lambda one: waits_for(one, "recall not acknowledged"))
        assert waits_for(one, "session 1001 (a mount of user")
        assert one["door"] == "session" and one["client"].startswith("a mount at")
        assert one["trace"] == asking["trace"] is not None
        raw.close()


def test_a_put_whose_chunkserver_is_stopped_names_it():
    with Cluster(chunkservers=1, gateways=1, replicas=1) as cluster:
        gateway, chunkserver = cluster["g1"], cluster["c1"]
        S3(gateway.s3).create_bucket("bucket")
        done = []

        def put():
            body = os.urandom(1 << 20)
            done.append(S3(gateway.s3).object("PUT", "bucket", "key", body=body).status)

        putting = threading.Thread(target=put)
        with stopped(chunkserver.process):
            putting.start()
            name = f"chunkserver node {chunkserver.id} at {chunkserver.address}"
            one = found(gateway.directory, lambda one: waits_for(one, name))
            assert (one["door"], one["operation"]) == ("s3", "PutObject")
            assert (one["object"], one["stage"]) == ("/bucket/key", "peer")
            assert one["user"] is not None
            assert report(cluster["m1"].directory)["role"] == "master"
        putting.join()
        assert done == [200]


def test_the_trace_of_a_request_reaches_the_master_and_the_chunkservers():
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-00"}

    def is_traced(one):
        return one["trace"] == trace

    with Cluster(chunkservers=2, gateways=1, replicas=2) as cluster:
        gateway, master = cluster["g1"], cluster["m1"]
        first, second = cluster["c1"], cluster["c2"]
        S3(gateway.s3).create_bucket("bucket")

        def put(key, length):
            body = os.urandom(length)
            reply = S3(gateway.s3).object("PUT", "bucket", key, body=body, headers=headers)
            assert reply.status == 200, reply

        put("key", 100)
        # The master waits for a session that does not acknowledge a recall.
        raw = RawMount(gateway.http, (KEY, SECRET))
        raw.attach(0x1001)
        for inode in range(1, 20):
            raw.list(inode)
            raw.attributes(inode)
        with running(put, "key", 100):
            one = found(master.directory, lambda one: is_traced(one) and one["age_ms"] > 1000)
            assert (one["door"], one["operation"], one["stage"]) == ("session", "put_object", "meta")
            assert one["client"].endswith(f"node {gateway.id}")
            assert waits_for(one, "recall not acknowledged by session 1001")
            found(gateway.directory, is_traced)
            raw.close()
        log = master.tail(1 << 20).splitlines()
        slow = [line for line in log if "slow request of a session" in line and trace in line]
        assert any("put_object" in line for line in slow), log[-20:]
        # One chunkserver waits for the other: either may be the first of a chain.
        with contextlib.ExitStack() as puts:
            with stopped(second.process):
                for number in range(16):
                    puts.enter_context(running(put, f"long/{number}", 1 << 20))
                one = found(first.directory, is_traced)
                assert (one["door"], one["operation"]) == ("blocks", "PUT")
                assert waits_for(one, f"chunkserver node {second.id}")
