"""Looking at a store that is under load."""

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import threading
import urllib.parse

import pytest

from harness.cgroup import Cgroup, Unavailable
from harness.doors import Http
from harness.mount import Mount
from harness.server import binary, scratch
from harness.wait import PATIENCE_SECONDS

SECONDS = os.environ.get("CAIRN_TEST_DOCTOR_SECONDS", "5")
LOOKS = 5
BUCKET, KEY = "doctor", "a"
TARGET = f"/storage/{BUCKET}/{KEY}"

long = pytest.mark.skipif(
    os.environ.get("CAIRN_TEST_DOCTOR") != "all", reason="CAIRN_TEST_DOCTOR=all runs it"
)


def doctor(*targets, env=None):
    """What it finds and the kind of the limit. What the hypervisor takes, and quotas that others set
    on this machine, are no test's fault."""
    command = [binary(), "doctor", *map(str, targets), "--seconds", SECONDS, "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        env={**os.environ, **(env or {})},
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["findings"] else 0), done
    report["findings"] = [one for one in report["findings"] if is_of_test(one)]
    return report


def calm(*targets):
    """The first of some looks that finds nothing, or the last: on a machine that has other things to
    do one look may find what is true of that moment."""
    for _ in range(LOOKS):
        report = doctor(*targets)
        if not report["findings"]:
            break
    return report


def is_of_test(finding):
    if finding["kind"].startswith("cpu quota"):
        return f"/cairn-test-{os.getpid()}-" in finding["evidence"][0]
    return finding["kind"] != "stolen cpu"


def first(report):
    assert report["findings"], report
    return report["findings"][0]


@contextlib.contextmanager
def asked(url, method="GET", size=0, clients=4, keep_alive=True, context=None):
    """Clients that ask again and again, meanwhile."""
    ended = threading.Event()
    where, body = urllib.parse.urlsplit(url), bytes(size) or None

    def connect():
        if where.scheme == "https":
            return http.client.HTTPSConnection(where.hostname, where.port, context=context)
        return http.client.HTTPConnection(where.hostname, where.port)

    def ask(number):
        connection, target = connect(), where.path + (f"-{number}" if body else "")
        while not ended.is_set():
            try:
                connection.request(method, target, body=body, headers=AUTH if body else {})
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()
            if not keep_alive:
                connection.close()
                connection = connect()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def meanwhile(command):
    """A program that makes load, and has to go on with it."""
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        assert load.poll() is None, f"{command[0]} has ended by itself"
    finally:
        load.terminate()
        load.wait()


def loaded(url, connections=8, options=()):
    """More than Python can ask: all that the machine can do."""
    return meanwhile([binary(), "bench", "http", url, "-c", str(connections), "-d", "900s", *options])


AUTH = {}


def prepared(url, size=100_000, **options):
    door = Http(url, **options)
    AUTH.update(door.auth)
    door.create_bucket(BUCKET, visibility="public")
    put = door.object("PUT", BUCKET, KEY, body=bytes(size))
    assert put.status in (201, 204), put
    return url + TARGET


def group(controller):
    try:
        return Cgroup(controller).__enter__()
    except Unavailable as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def limited(controller):
    made = group(controller)
    try:
        yield made
    finally:
        made.__exit__()


def read_directly(paths):
    """Processes that read files of a mount past the kernel's cache, again and again: of what the
    mount has in memory, so that it is all that they wait for. There are more readers than cores by
    far: with few, cores are idle while a reader is being woken up."""
    return meanwhile(["fio", "--name=readers", "--filename=" + ":".join(map(str, paths)),
                      "--rw=read", "--bs=128k", "--direct=1", "--numjobs=16",
                      "--time_based", "--runtime=900"])  # fmt: skip


@contextlib.contextmanager
def mounted(server, *options):
    """A mount, and files in it that fit into its memory and were read once."""
    name, work = "mounted", scratch("mount")
    Http(server.http).create_bucket(name)
    with Mount(server, work / "mount", args=options, bucket=name) as mount:
        paths = [mount.root / str(number) for number in range(4)]
        for path in paths:
            path.write_bytes(os.urandom(4 << 20))
            path.read_bytes()
        yield mount.path, paths
    shutil.rmtree(work)
