"""The units of contrib/systemd start what an operator has made by the book, with few rights."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "contrib" / "systemd"
COMMANDS = {
    "cairn-chunkserver@.service": ("chunkserver", "/srv/%i/cairn"),
    "cairn-gateway.service": ("gateway", "/srv/cairn-gateway"),
    "cairn-master.service": ("master", "/srv/cairn-master"),
    "cairn-server.service": ("server", "/srv/cairn"),
}
MOUNT = "cairn-mount@.service"
# Of 10, by `systemd-analyze security`; without any restriction it is 9.6. A mount needs CAP_SYS_ADMIN, and has to be
# seen by others.
EXPOSURE = {**dict.fromkeys(COMMANDS, 3.0), MOUNT: 4.6}


def service(name):
    """The section of a unit, option by option; of one that comes more than once all values."""
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read(UNITS / name)
    options = dict(parser["Service"])
    lines = (UNITS / name).read_text().splitlines()
    options["Before"] = [line.partition("=")[2] for line in lines if line.startswith("ExecStartPre=")]
    return options


def test_there_is_a_unit_for_each_server():
    assert {path.name for path in UNITS.glob("*.service")} == {*COMMANDS, MOUNT}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_unit_starts_what_root_has_made(name):
    command, directory = COMMANDS[name]
    options = service(name)
    assert options["ExecStart"] == f"/usr/local/bin/cairn {command} {directory} $CAIRN_OPTIONS"
    # A store is made by the first start of its server: until then there is no directory.
    assert options["ReadWritePaths"] == ("-" if command == "server" else "") + directory
    # `cluster init` and `join`, run by root, leave directories that nobody else may open.
    user = options["User"]
    assert f"+/usr/bin/env chown -R {user}:{user} {directory}" in options["Before"]
    # Somebody makes the user, and the file of options may be missing.
    assert f"u {user} " in (UNITS / "cairn.sysusers").read_text()
    assert options["EnvironmentFile"].startswith("-/etc/cairn/")
    assert (UNITS.parent / f"etc/{command}.conf").exists()


def test_a_mount_is_seen_by_others():
    """Each of these options would give the unit mounts that nobody else sees."""
    own = ("ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectKernelTunables",
           "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ReadWritePaths")  # fmt: skip
    assert not {*own} & {*service(MOUNT)}
    assert service(MOUNT)["ExecStart"].startswith("/usr/local/bin/cairn mount --foreground ")


@pytest.mark.parametrize("name", EXPOSURE)
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_a_unit_has_few_rights(name, tmp_path):
    unit = tmp_path / name.replace("@", "@disk1")
    shutil.copy(UNITS / name, unit)
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE[name] * 10:.0f}", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-600:] + done.stderr
