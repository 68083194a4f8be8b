"""The console over TLS in Debian's Chromium: by a certificate of its own, and behind a proxy that has the certificate."""

import io
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.conftest import SITE
from console.profiles import Profile, becomes_true, expect
from harness.doors import S3
from harness.ports import free_ports
from harness.server import Server, binary
from harness.wait import eventually

NAMES = [f"{door}.{SITE}" for door in ("console", "s3", "files")]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificates")
    for command in (["ca", directory], ["server", directory, *NAMES, "127.0.0.1"]):
        subprocess.run([binary(), "cert", *command], check=True, capture_output=True)
    return directory


def use(profile, s3, tmp_path, data):
    """Does what has to do with each door, and returns the cookies of the console."""
    page = profile.page
    profile.log_in()
    expect(page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    reply = page.goto("/")
    policy = reply.header_value("content-security-policy")
    assert f"connect-src 'self' {data};" in policy and f"img-src 'self' {data};" in policy, policy
    profile.make_bucket("secure")
    files = {"trip/note.txt": b"by the sea", "trip/long.bin": bytes(20 << 20)}
    for name, body in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(body)
    # A whole file, and one of two parts.
    page.locator("cairn-drop input[webkitdirectory]").set_input_files(tmp_path / "trip")
    expect(page.get_by_text("2 files uploaded")).to_be_visible()
    page.get_by_role("link", name="trip/").click()
    page.get_by_role("link", name="note.txt").click()
    expect(page.frame_locator("iframe").get_by_text("by the sea")).to_be_visible()
    assert page.frames[1].url.startswith(f"{data}/secure/trip/note.txt?")
    page.go_back()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as zip").click()
    archive = zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert {f"trip/{name}": archive.read(name) for name in archive.namelist()} == files
    # Events come by the same way.
    page.get_by_role("link", name="Back to the folder").click()
    expect(page.get_by_role("link", name="note.txt")).to_be_visible()
    assert s3.object("PUT", "secure", "trip/by-another.txt", body=b"x").status == 200
    expect(page.get_by_role("link", name="by-another.txt")).to_be_visible()
    becomes_true(page, "isSecureContext")
    return download.value.url, profile.context.cookies(profile.store.console)


def is_of_this_host_alone(cookie):
    wanted = {"name": "__Host-cairn", "secure": True, "httpOnly": True, "sameSite": "Strict", "path": "/"}
    return all(cookie[name] == value for name, value in wanted.items()) and cookie["domain"] == NAMES[0]


def test_a_console_with_a_certificate(chromium, certificates, tmp_path):
    port = free_ports(1)[0]
    origin = f"https://{NAMES[0]}:{port}"
    args = ["--console", f"0.0.0.0:{port}", "--console-url", origin]
    args += ["--tls-cert", str(certificates / "server.pem"), "--tls-key", str(certificates / "server.key")]
    with Server(args=args) as server:
        s3 = S3(server.s3, cafile=certificates / "ca.pem")
        data, files = (f"https://{NAMES[0]}:{door.rsplit(':', 1)[1]}" for door in (server.s3, server.http))
        profile = Profile(chromium, SimpleNamespace(console=origin), ignore_https_errors=True)
        zipped, cookies = use(profile, s3, tmp_path, data)
        assert zipped.startswith(f"{files}/s/")
        assert len(cookies) == 1 and is_of_this_host_alone(cookies[0]), cookies
        profile.close()


NGINX = """
daemon off;
user root;
worker_processes 1;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {work}/bodies;
    proxy_temp_path {work}/replies;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    ssl_certificate {certificates}/server.pem;
    ssl_certificate_key {certificates}/server.key;
    client_max_body_size 0;
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;
    proxy_request_buffering off;
{servers}
}}
"""
DOOR = "    server {{ listen 127.0.0.1:{port} ssl; server_name {name}; location / {{ proxy_pass {door}; }} }}"


class Proxy:
    """nginx, which has the certificate, before three doors without TLS."""

    def __init__(self, work, certificates, port, doors):
        servers = [DOOR.format(port=port, name=name, door=door) for name, door in zip(NAMES, doors)]
        text = NGINX.format(work=work, certificates=certificates, servers="\n".join(servers))
        (work / "nginx.conf").write_text(text)
        self.command = ["nginx", "-p", str(work), "-e", str(work / "error.log"), "-c", str(work / "nginx.conf")]
        self.pid = work / "pid"

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL)
        eventually(lambda: self.process.poll() is not None or self.pid.exists(), "nginx runs")
        assert self.process.poll() is None, self.process.returncode
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def test_a_console_behind_a_proxy_with_a_certificate(chromium, certificates, tmp_path):
    port = free_ports(1)[0]
    console, data, files = (f"https://{name}:{port}" for name in NAMES)
    args = ["--console", "127.0.0.1:0", "--console-url", console]
    args += ["--console-s3-url", data, "--console-http-url", files]
    work = tmp_path / "proxy"
    work.mkdir()
    with Server(args=args) as server, Proxy(work, certificates, port, [server.console, server.s3, server.http]):
        profile = Profile(chromium, SimpleNamespace(console=console), ignore_https_errors=True)
        zipped, cookies = use(profile, S3(server.s3), tmp_path, data)
        assert zipped.startswith(f"{files}/s/")
        assert len(cookies) == 1 and is_of_this_host_alone(cookies[0]), cookies
        profile.close()
