"""IPv6 addresses at every door, and wherever a URL or an address is written."""

import http.client
import os
import socket
import subprocess
import urllib.parse

import pytest

from harness.doors import S3, Http
from harness.mount import Mount
from harness.server import KEY, SECRET, Server, binary, scratch
from harness.wait import PATIENCE_SECONDS
from nfs.rpc import Client

HOST = "[::1]"


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.fixture(scope="module")
def server():
    doors = ("--nfs", "--console", "--website")
    args = [word for door in doors for word in (door, f"{HOST}:0")]
    with Server(host=HOST, args=args) as running:
        s3 = S3(running.s3)
        s3.create_bucket("sixth")
        assert s3.object("PUT", "sixth", "first", body=b"by a door").status == 200
        yield running


def cairn(*command, env=None, ok=True):
    done = subprocess.run(
        [binary(), *map(str, command)], env={**os.environ, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET, **(env or {})},
        capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert not ok or done.returncode == 0, done
    return done


def test_doors_answer_and_show_addresses_with_brackets(server):
    for shown in (server.s3, server.http, server.console, server.website):
        assert urllib.parse.urlsplit(shown).hostname == "::1" and "//[::1]:" in shown, shown
    assert server.nfs.startswith("[::1]:")
    body = b"sixth" * 10_000
    for number, door in enumerate((S3(server.s3), Http(server.http))):
        key = f"by-door-{number}"
        assert door.object("PUT", "sixth", key, body=body).status in (200, 201)
        for other in (S3(server.s3), Http(server.http)):
            assert other.object("GET", "sixth", key).body == body


def test_commands_take_them_from_options_the_environment_and_profiles(server, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"by a command")
    cairn("put", file, "sixth/option", "--server", server.http)
    assert "option" in cairn("ls", "sixth", env={"CAIRN_SERVER": server.http}).stdout
    config = tmp_path / "cairn"
    config.mkdir()
    profile = config / "config.toml"
    profile.write_text(f'[default]\nserver = "{server.http}"\nkey = "{KEY}"\nsecret = "{SECRET}"\n')
    profile.chmod(0o600)
    env = {"XDG_CONFIG_HOME": str(tmp_path), "CAIRN_KEY": "", "CAIRN_SECRET": ""}
    assert cairn("get", "sixth/option", "-", env=env).stdout == "by a command"


def test_links_that_are_printed_have_brackets(server):
    share = cairn("share", "add", "sixth/first", "--server", server.http)
    url = next(word for word in share.stdout.split() if word.startswith("http"))
    assert url.startswith(f"{server.http}/"), url
    got = subprocess.run(["curl", "-gfsS", url], capture_output=True, timeout=PATIENCE_SECONDS)
    assert got.returncode == 0 and got.stdout == b"by a door", got


def test_the_console_answers_by_its_address(server):
    url = urllib.parse.urlsplit(server.console)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/login", headers={"Host": url.netloc})
    reply = connection.getresponse()
    text = reply.read()
    assert reply.status == 200 and b"<form" in text, (reply.status, text[:500])
    connection.close()


def test_nfs_clients_come_by_their_network(server):
    cairn("export", "add", "sixth", "--client", "::1/128", "--as", "root", "--squash", "none",
          "--server", server.http)  # fmt: skip
    client = Client(server.nfs)
    client.mount(b"/sixth")
    client.close()


def test_a_mount_reads_and_writes(server):
    work = scratch("mount")
    with Mount(server, work / "at", bucket="sixth") as mount:
        (mount.root / "mounted").write_bytes(b"by a mount" * 1000)
        assert (mount.root / "first").read_bytes() == b"by a door"
    assert S3(server.s3).object("GET", "sixth", "mounted").body == b"by a mount" * 1000
    assert not os.listdir(work / "at")
    os.rmdir(work / "at")


def test_certificates_are_for_addresses(tmp_path):
    cairn("cert", "ca", tmp_path)
    cairn("cert", "server", tmp_path, "::1")
    files = ["--tls-cert", tmp_path / "server.pem", "--tls-key", tmp_path / "server.key"]
    with Server(host=HOST, args=list(map(str, files))) as server:
        assert server.http.startswith("https://[::1]:")
        trust = ["--server", server.http, "--ca", tmp_path / "ca.pem"]
        cairn("bucket", "create", "sixth", *trust)
        assert "sixth" in cairn("bucket", "ls", *trust).stdout


def test_an_address_without_brackets_is_refused_in_words(tmp_path):
    init = cairn("cluster", "init", tmp_path / "m", "--address", "::1:7400", ok=False)
    assert init.returncode == 2 and "[fd00::1]:7400" in init.stderr, init
    assert not (tmp_path / "m").exists()
