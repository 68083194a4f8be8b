"""`cairn doctor` names a planted bottleneck first, and nothing where nothing is wrong.

A few of the plants run by default; all of them, and twenty looks at healthy systems, with
CAIRN_TEST_DOCTOR=all. CAIRN_TEST_DOCTOR_SECONDS is how long the doctor looks.
"""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from doctor.looks import (
    AUTH, LOOKS, TARGET, asked, calm, doctor, first, limited, loaded, long, mounted, prepared,
    read_directly,
)  # fmt: skip
from harness.cluster import Cluster
from harness.disk import SmallDisk, Unavailable
from harness.ports import free_ports
from harness.postgres import Postgres
from harness.server import Server, binary, scratch


def test_a_healthy_server_raises_no_alarm():
    with Server() as server:
        url = prepared(server.http)
        with asked(url, clients=1):
            light = calm(server.http)
        with loaded(url):
            full = calm(server.http)
        with asked(server.http + TARGET, "PUT", size=20_000, clients=8):
            writing = calm(server.http)
    for report in (light, full, writing):
        assert report["findings"] == [], report
        assert report["requests"] > 0
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


@contextlib.contextmanager
def slow_disk():
    """A disk of its own, stuck most of the time."""
    try:
        with SmallDisk(1024) as disk:
            yield disk
    except Unavailable as error:
        pytest.skip(str(error))


def test_a_slow_replica():
    with slow_disk() as disk, Cluster(gateways=1, disks={"c2": disk.mount}) as cluster:
        gateway, slow = cluster["g1"].http, cluster["c2"].id
        prepared(gateway)
        with asked(gateway + TARGET, "PUT", size=50_000):
            disk.slow_down()
            try:
                by_url, by_directory = doctor(gateway), doctor(cluster["g1"].directory)
            finally:
                disk.heal()
    for report in (by_url, by_directory):
        assert first(report)["kind"] == "slow replica", report
        assert f"node {slow} " in first(report)["what"], report


def gateway_with(cluster, *options):
    """One more gateway, with these options."""
    node = cluster.make("g1")
    node.arguments += options
    cluster.join("g1", cluster.token("gateway"))
    node.start()
    node.wait_ready()
    return node


def test_a_single_connection_to_each_chunkserver():
    with Cluster(chunkservers=3, gateways=0) as cluster:
        gateway = gateway_with(cluster, "--peer-connections", "1").http
        prepared(gateway)
        with asked(gateway + TARGET, "PUT", size=50_000, clients=16):
            found = first(doctor(gateway))
    assert found["kind"] == "few connections", found
    assert "1 connection " in found["what"]
    assert "--peer-connections" in found["remedy"]


@long
def test_one_reader_thread_of_a_mount():
    with Server() as server, mounted(server, "--threads", "1") as (mount, paths):
        with read_directly(paths):
            report = doctor(mount)
    found = first(report)
    assert found["kind"] == "one thread", report
    assert "for a mount" in found["what"] and "--threads" in found["remedy"], found
    assert "fuser-0" in found["evidence"][0], found


@long
def test_a_gateway_without_a_cache():
    with Cluster(chunkservers=3, gateways=0) as cluster:
        node = gateway_with(cluster, "--cache-mib", "0")
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


def healthy(*targets, limits):
    """So many looks without a finding, and each says that one of these is the limit."""
    for look in range(LOOKS):
        report = doctor(*targets)
        assert report["findings"] == [], (look, report)
        assert report["requests"] > 100, (look, report)
        assert report["limit"]["kind"] in limits, (look, report)


def writing():
    """Options for a load of writes."""
    return ["-X", "PUT", "--body", "100k", "-H", f"Authorization: {AUTH['Authorization']}"]


@long
def test_a_healthy_server_that_reads():
    with Server() as server, loaded(prepared(server.http), connections=16):
        healthy(server.http, limits=["cpu"])


@long
def test_a_healthy_server_that_writes():
    with Server() as server:
        url = prepared(server.http)
        with loaded(url, connections=16, options=writing()):
            healthy(server.http, limits=["cpu", "disk"])


@long
def test_a_healthy_cluster():
    # With one master names would have one copy, and that is a finding.
    with Cluster(chunkservers=3, gateways=1, masters=3) as cluster:
        gateway = cluster["g1"]
        url = prepared(gateway.http)
        with loaded(url, connections=8), loaded(url, connections=8, options=writing()):
            healthy(gateway.directory, limits=["cpu", "disk"])


@long
def test_a_healthy_mount():
    with Server() as server, mounted(server) as (mount, paths), read_directly(paths):
        healthy(mount, server.http, limits=["cpu"])
