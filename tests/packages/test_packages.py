"""Packages install, start nothing, go on through an upgrade, and leave nothing but stores when they are purged."""

import re
import shutil
import subprocess

import pytest

from packages.machine import Machine, packages

SERVERS = [
    "cairn-server.service",
    "cairn-node.service",
    "cairn-master.service",
    "cairn-gateway.service",
    "cairn-chunkserver@a.service",
]
MOUNT = "cairn-mount@a.service"
BACKUP = "cairn-backup.service"
# Of 10, by `systemd-analyze security`. A mount needs CAP_SYS_ADMIN and to be seen by others.
EXPOSURE = {**dict.fromkeys(SERVERS, 3.0), MOUNT: 4.5, BACKUP: 3.0}


@pytest.mark.skipif(not shutil.which("lintian"), reason="no lintian here")
def test_lintian_finds_no_error():
    done = subprocess.run(
        ["lintian", "--no-cfg", "--fail-on", "error", *packages()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_has_the_program_without_symbols_and_another_has_these(tmp_path):
    client, _, symbols = packages()
    for package in (client, symbols):
        subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    program = tmp_path / "usr/bin/cairn"
    for made in (
        "man/man1/cairn.1.gz",
        "man/man1/cairn-mount.1.gz",
        "bash-completion/completions/cairn",
        "zsh/vendor-completions/_cairn",
        "fish/vendor_completions.d/cairn.fish",
    ):
        assert (tmp_path / "usr/share" / made).stat().st_size > 100, made
    sections = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True).stdout
    assert ".debug_line" not in sections and ".symtab" not in sections
    notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    build = re.search(r"Build ID: (\w+)", notes)[1]
    debug = tmp_path / f"usr/lib/debug/.build-id/{build[:2]}/{build[2:]}.debug"
    sections = subprocess.run(["readelf", "-SW", debug], capture_output=True, text=True, check=True).stdout
    assert ".debug_line" in sections


@pytest.mark.parametrize("way", ["purge", "remove and install again"])
def test_a_package_comes_and_goes(way):
    with Machine() as machine:
        machine.install(*packages()[:2])
        assert machine.run("systemctl list-units --all --plain --no-legend 'cairn*'") == ""
        assert "cairn" in machine.run("getent passwd cairn")
        assert machine.run("stat -c '%a %U' /etc/cairn/server.conf") == "600 root\n"
        machine.run("systemd-analyze verify cairn-backup.timer")
        for unit in EXPOSURE:
            machine.run(f"systemd-analyze verify {unit}")
            machine.run(f"systemd-analyze security --threshold={EXPOSURE[unit] * 10:.0f} {unit}")
        machine.run("echo '# mine' >> /etc/cairn/server.conf")
        machine.run("systemctl enable --now cairn-server")
        machine.eventually("curl -sf http://127.0.0.1:8080/readyz", "the server is ready")
        before = machine.run("systemctl show --value -p MainPID cairn-server")
        machine.install(*packages("0.1.0+1")[:2])
        machine.eventually("curl -sf http://127.0.0.1:8080/readyz", "the server is ready after an upgrade")
        assert machine.run("systemctl show --value -p MainPID cairn-server") != before
        assert machine.run("systemctl is-active cairn-master || true") == "inactive\n", "nothing else is started"
        assert "# mine" in machine.run("cat /etc/cairn/server.conf")
        if way == "purge":
            machine.run("apt-get purge -y cairn-server cairn-client")
            left = machine.run("find / -xdev -name '*cairn*' -not -name Pitcairn -not -path '/root/*' -not -path '/proc/*'")
            known = ("/srv", "/var/log/journal", "/run", "/tmp", "/var/lib/apt", "/var/lib/systemd")
            assert [path for path in left.split() if not path.startswith(known)] == []
            assert machine.run("systemctl is-active cairn-server || true").strip() in ("inactive", "failed")
        else:
            machine.run("apt-get remove -y cairn-server cairn-client")
            machine.install(*packages()[:2])
            assert "# mine" in machine.run("cat /etc/cairn/server.conf")
            assert machine.run("systemctl is-enabled cairn-server") == "enabled\n"
        assert machine.run("test -d /srv/cairn/blocks && stat -c %U /srv/cairn/blocks") != ""
