"""`cairn doctor` names a planted bottleneck first, and nothing where nothing is wrong.

A few of the plants run by default; all of them with CAIRN_TEST_DOCTOR=all. CAIRN_TEST_DOCTOR_SECONDS is
how long the doctor looks.
"""

import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

import pytest

from harness.cgroup import Cgroup, Unavailable
from harness.cluster import Cluster, free_ports
from harness.doors import Http
from harness.postgres import Postgres
from harness.server import Server, binary, scratch

SECONDS = os.environ.get("CAIRN_TEST_DOCTOR_SECONDS", "5")
BUCKET, KEY = "doctor", "a"
TARGET = f"/storage/{BUCKET}/{KEY}"

long = pytest.mark.skipif(
    os.environ.get("CAIRN_TEST_DOCTOR") != "all", reason="CAIRN_TEST_DOCTOR=all runs it"
)


def doctor(*targets, env=None):
    """What it finds and the kind of the limit. What the hypervisor takes is no test's fault."""
    command = [binary(), "doctor", *map(str, targets), "--seconds", SECONDS, "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})}
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["findings"] else 0), done
    report["findings"] = [one for one in report["findings"] if one["kind"] != "stolen cpu"]
    return report


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
def loaded(url, connections=8, keep_alive="on"):
    """More than Python can ask: all that the machine can do."""
    command = [binary(), "bench", "http", url, "-c", str(connections), "-d", "60s"]
    command += ["--keep-alive", keep_alive]
    with open(os.devnull, "w") as nowhere:
        bench = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
    try:
        yield
    finally:
        bench.terminate()
        bench.wait()


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


def test_a_healthy_server_raises_no_alarm():
    with Server() as server:
        url = prepared(server.http)
        with asked(url, clients=1):
            light = doctor(server.http)
        with loaded(url):
            full = doctor(server.http)
        with asked(server.http + TARGET, "PUT", size=20_000, clients=8):
            writing = doctor(server.http)
    for report in (light, full, writing):
        assert report["findings"] == [], report
        assert report["requests"] > 100
        assert report["limit"]["kind"] in ("client", "cpu", "disk"), report
    assert full["limit"]["kind"] == "cpu", full


def test_a_cpu_quota():
    with limited("cpu") as small, Server() as server:
        url = prepared(server.http)
        small.cpu(0.2)
        small.add(server.process.pid)
        with asked(url):
            found = first(doctor(server.http))
    assert found["kind"] == "cpu quota", found
    assert "0.20 cores" in found["what"]
    assert f"cairn ({server.process.pid})" in found["evidence"][-1]


def test_a_slow_disk():
    with limited("blkio") as slow, Server() as server:
        prepared(server.http)
        slow.writes_a_second(server.directory, 10)
        slow.add(server.process.pid)
        with asked(server.http + TARGET, "PUT", size=100, clients=2):
            found = first(doctor(server.http))
        slow.writes_a_second(server.directory, 0)
    assert found["kind"] == "slow disk", found


def nginx_before(url, work, port):
    """nginx that makes a new connection for each request, as it does unless told otherwise."""
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: tests/install")
    (work / "nginx.conf").write_text(f"""
        daemon off; master_process off; error_log {work}/error.log; pid {work}/pid;
        events {{}}
        http {{
            access_log off; client_body_temp_path {work}/body; proxy_temp_path {work}/proxy;
            fastcgi_temp_path {work}/f; uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;
            server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {url}; }} }}
        }}""")
    proxy = subprocess.Popen([program, "-p", work, "-c", work / "nginx.conf"])
    while proxy.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return proxy
        time.sleep(0.02)
    raise AssertionError((work / "error.log").read_text())


def test_a_proxy_that_keeps_no_connections():
    work, [port] = scratch("nginx"), free_ports(1)
    with Server() as server:
        prepared(server.http, size=400)
        proxy = nginx_before(server.http, work, port)
        try:
            with loaded(f"http://127.0.0.1:{port}{TARGET}"):
                found = first(doctor(server.http))
        finally:
            proxy.terminate()
            proxy.wait()
    shutil.rmtree(work)
    assert found["kind"] == "connections not kept", found
    assert "nginx" in found["remedy"]


def test_rsa_handshakes_on_every_request():
    work = scratch("rsa")
    certificate, key = work / "certificate.pem", work / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
         certificate, "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
         "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
        check=True, capture_output=True,
    )  # fmt: skip
    with Server(args=["--tls-cert", certificate, "--tls-key", key]) as server:
        url = prepared(server.http, size=400, cafile=certificate)
        context = ssl.create_default_context(cafile=certificate)
        with asked(url, clients=2, keep_alive=False, context=context):
            found = first(doctor(server.http, env={"CAIRN_CA": str(certificate)}))
    shutil.rmtree(work)
    assert found["kind"] == "full tls handshakes", found


@long
def test_a_gateway_without_a_cache():
    with Cluster(chunkservers=3, gateways=0) as cluster:
        node = cluster.make("g1")
        node.arguments += ["--cache-mib", "0"]
        cluster.join("g1", cluster.token("gateway"))
        node.start()
        node.wait_ready()
        url = prepared(node.http, size=1_000_000)
        with asked(url):
            by_url, by_directory = doctor(node.http), doctor(node.directory)
    for report in (by_url, by_directory):
        assert first(report)["kind"] == "block cache", report
        assert "switched off" in first(report)["what"]


@long
def test_a_cpu_quota_on_a_gateway():
    with limited("cpu") as small, Cluster(chunkservers=3, gateways=1) as cluster:
        url = prepared(cluster["g1"].http)
        small.cpu(0.2)
        small.add(cluster["g1"].process.pid)
        with asked(url):
            found = first(doctor(cluster["g1"].http))
    assert found["kind"] == "cpu quota", found


@long
def test_a_cpu_quota_on_postgresql():
    with limited("cpu") as small, Postgres() as database:
        with Server(args=["--meta", database.url]) as server:
            prepared(server.http)
            pids = (database.work / "data/postmaster.pid").read_text().split()[0]
            children = subprocess.run(
                ["pgrep", "-P", pids], capture_output=True, text=True
            ).stdout.split()  # fmt: skip
            small.cpu(0.02)
            small.add(pids, *children)
            with asked(server.http + TARGET, "PUT", size=100, clients=8):
                found = first(doctor(server.http))
            small.cpu(1)
    assert found["kind"] == "cpu quota of postgresql", found


def test_nobody_answers():
    [port] = free_ports(1)
    done = subprocess.run(
        [binary(), "doctor", f"http://127.0.0.1:{port}", "--seconds", "1"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "not seen: http://127.0.0.1" in done.stdout and "refused" in done.stdout, done.stdout
