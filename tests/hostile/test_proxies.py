"""Behind nginx: with --trusted-proxy each client counts as itself, in places, records and limits of
guesses. Without it all of them are one address, and users with a key are served all the same. Nobody
else is believed."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time

import pytest

from harness.doors import Http
from harness.ports import free_ports
from harness.server import Server, scratch
from harness.wait import eventually
from hostile.attackers import address
from hostile.test_hostile import MALLORY, prepare

SECONDS = float(os.environ.get("CAIRN_TEST_PROXY_SECONDS", 5))
ATTACKER, HONEST = "127.0.0.12", "127.0.0.13"
LIMITS = ["prlimit", "--nofile=260:260"]

CONFIG = """
daemon off; master_process off; error_log {work}/error.log; pid {work}/pid;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {work}/body; proxy_temp_path {work}/proxy; fastcgi_temp_path {work}/f;
  uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;
  upstream cairn {{ server {to}; keepalive 16; keepalive_timeout 2s; }}
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 0;
    location / {{
      proxy_pass http://cairn; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $host:$server_port;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_request_buffering off; proxy_read_timeout 60s; proxy_bind 127.0.0.11;
    }}
  }}
}}
"""


@contextlib.contextmanager
def nginx(server):
    """nginx before the HTTP door; the URL by which it is reached."""
    work = scratch("nginx")
    (port,) = free_ports(1)
    config = work / "nginx.conf"
    config.write_text(CONFIG.format(work=work, to=server.http.split("//")[1], port=port))
    process = subprocess.Popen(
        ["nginx", "-c", str(config), "-e", str(work / "error.log")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(url))
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(work, ignore_errors=True)


def asked(url, path, source="127.0.0.1", method="GET", body=None, timeout=10, **headers):
    host, port = address(url)
    connection = http.client.HTTPConnection(host, port, timeout, source_address=(source, 0))
    with contextlib.closing(connection):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        reply = connection.getresponse()
        return reply.status, reply.read()


def answers(url):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return asked(url, "/healthz")[0] == 200
    return False


def sources(log, resource):
    """Where the requests came from whose records name this."""

    def found():
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line) for line in lines if resource in line]

    eventually(found)
    return {one["source"] for one in found()}


@contextlib.contextmanager
def served(*args, wrapper=()):
    work = scratch("proxied")
    log = work / "audit.log"
    with Server(wrapper=wrapper, args=["--audit-log", str(log), *args]) as server:
        prepare(server)
        yield server, log
    shutil.rmtree(work, ignore_errors=True)


def put(url, server, name, source, **headers):
    auth = Http(server.http).auth["Authorization"]
    path = f"/storage/honest/{name}"
    return asked(url, path, source, "PUT", b"x", Authorization=auth, **headers)[0]


def test_records_name_the_client_and_believe_nobody_else():
    with served("--trusted-proxy", "127.0.0.11") as (server, log), nginx(server) as url:
        assert put(url, server, "by-proxy", HONEST) == 201
        assert sources(log, "by-proxy") == {HONEST}
        # What the client says before the proxy does is worth nothing.
        assert put(url, server, "lied", HONEST, X_Forwarded_For="192.0.2.1") == 201
        assert sources(log, "lied") == {HONEST}
        # Nor is what somebody says who is no proxy.
        assert put(server.http, server, "direct", HONEST, X_Forwarded_For="192.0.2.1") == 201
        assert sources(log, "direct") == {HONEST}
        # A client of a proxy on this machine is not this machine.
        assert asked(url, "/metrics", HONEST)[0] == 401


def test_without_the_option_a_proxy_is_the_client():
    with served() as (server, log), nginx(server) as url:
        assert put(url, server, "by-proxy", HONEST, X_Forwarded_For="192.0.2.1") == 201
        assert sources(log, "by-proxy") == {"127.0.0.11"}


def proxied_by_header(server, header, source="127.0.0.11"):
    """The status of a request that comes after these bytes, or None where the connection ends."""
    auth = Http(server.http).auth["Authorization"]
    with socket.create_connection(address(server.http), 10, (source, 0)) as connection:
        head = (
            f"PUT /storage/honest/by-header HTTP/1.1\r\nHost: x\r\nAuthorization: {auth}\r\n"
            "Content-Length: 1\r\nConnection: close\r\n\r\nx"
        )
        connection.sendall(header + head.encode())
        with contextlib.suppress(OSError):
            reply = connection.recv(4096)
            return int(reply.split()[1]) if reply.startswith(b"HTTP/") else None
        return None


def header_of(source):
    addresses = socket.inet_aton(source) + socket.inet_aton("127.0.0.1") + struct.pack("!HH", 4711, 80)
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack("!H", len(addresses)) + addresses


def test_the_proxy_protocol_is_understood_of_trusted_proxies_alone():
    with served("--trusted-proxy", "127.0.0.11/32") as (server, log):
        assert proxied_by_header(server, header_of("192.0.2.7")) in (201, 204)
        assert sources(log, "by-header") == {"192.0.2.7"}
        # Without a header it is a proxy that speaks for itself.
        assert proxied_by_header(server, b"") == 204
        eventually(lambda: "127.0.0.11" in sources(log, "by-header"))
        # Of others it is no request.
        assert proxied_by_header(server, header_of("192.0.2.8"), HONEST) in (400, None)
        # Damaged ones end their connection, and nothing else.
        for bad in (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x02ab",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff" + b"x" * 70_000,
            b"\r\n\r\n\0\r\nQUIT\n\x99\x11\x00\x00",
        ):
            assert proxied_by_header(server, bad) is None
        assert asked(server.http, "/healthz")[0] == 200
        assert "192.0.2.8" not in sources(log, "by-header")


class Holder(threading.Thread):
    """Requests of one client that wait through the proxy: their bodies trickle."""

    def __init__(self, url, stop, count, head):
        super().__init__(daemon=True)
        self.url, self.stop, self.count, self.head, self.acts = url, stop, count, head, 0

    def run(self):
        held = []
        while not self.stop.is_set():
            while len(held) < self.count and not self.stop.is_set():
                with contextlib.suppress(OSError):
                    one = socket.create_connection(address(self.url), 5, (ATTACKER, 0))
                    one.sendall(self.head + b"x")
                    one.setblocking(False)
                    held.append(one)
                    self.acts += 1
            for one in list(held):
                try:
                    one.send(b"x")
                    closed = one.recv(4096) == b""
                except BlockingIOError:
                    closed = False
                except OSError:
                    closed = True
                if closed:
                    held.remove(one)
                    one.close()
            self.stop.wait(0.5)
        for one in held:
            one.close()


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "not trusted"])
def test_one_client_of_a_proxy_does_not_starve_the_others(trusted):
    """A client of the proxy holds all that it gets: with a key where each client is known, and else
    without one. Another one, with a key, is served."""
    # Where a proxy is one address, it needs the connections of all its clients.
    args, wrapper = (["--trusted-proxy", "127.0.0.11"], LIMITS) if trusted else ([], ())
    with served(*args, wrapper=wrapper) as (server, _), nginx(server) as url:
        auth = f"Authorization: {Http(server.http, MALLORY).auth['Authorization']}\r\n"
        head = (
            f"PUT /storage/mallory/x HTTP/1.1\r\nHost: x\r\n{auth if trusted else ''}"
            "Content-Length: 1000000\r\n\r\n"
        ).encode()
        stop = threading.Event()
        holder = Holder(url, stop, 300, head)
        holder.start()
        try:
            time.sleep(1)
            slowest, done, end = 0, 0, time.monotonic() + SECONDS
            while time.monotonic() < end:
                began = time.monotonic()
                assert put(url, server, f"n-{done}", HONEST, timeout=30) == 201
                slowest = max(slowest, time.monotonic() - began)
                done += 1
            print(f"{done} requests beside {holder.acts} held, the slowest {slowest:.2f} s")
            assert holder.acts > 100 and done > 3
            # Where each client is known, nobody waits for another one's place.
            assert slowest < 20, slowest
        finally:
            stop.set()
            holder.join()
