"""The units of contrib/systemd start what an operator has made by the book, with few rights."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.server import KEY, SECRET, binary
from harness.wait import PATIENCE_SECONDS

UNITS = Path(__file__).resolve().parents[2] / "contrib" / "systemd"
COMMANDS = {
    "cairn-chunkserver@.service": ("chunkserver", "/srv/%i/cairn"),
    "cairn-gateway.service": ("gateway", "/srv/cairn-gateway"),
    "cairn-master.service": ("master", "/srv/cairn-master"),
    "cairn-node.service": ("node", "/srv/cairn-node"),
    "cairn-server.service": ("server", "/srv/cairn"),
}
MOUNT = "cairn-mount@.service"
BACKUP = "cairn-backup.service"
# Of 10, by `systemd-analyze security`; without any restriction it is 9.6. A mount needs CAP_SYS_ADMIN, and has to be
# seen by others.
EXPOSURE = {**dict.fromkeys(COMMANDS, 3.0), MOUNT: 4.6, BACKUP: 3.0}


def service(name):
    """The section of a unit, option by option; of one that comes more than once all values."""
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read(UNITS / name)
    options = dict(parser["Service"])
    lines = (UNITS / name).read_text().replace("\\\n", " ").splitlines()
    options["Before"] = [line.partition("=")[2] for line in lines if line.startswith("ExecStartPre=")]
    options["Starts"] = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    return options


def test_there_is_a_unit_for_each_server():
    assert {path.name for path in UNITS.glob("*.service")} == {*COMMANDS, MOUNT, BACKUP}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_unit_starts_what_root_has_made(name):
    command, directory = COMMANDS[name]
    options = service(name)
    assert options["ExecStart"] == f"/usr/local/bin/cairn {command} {directory} $CAIRN_OPTIONS"
    # A store is made by the first start of its server: until then there is no directory. Disks of a machine are
    # anywhere below /srv.
    writable = {"server": f"-{directory}", "node": "/srv"}
    assert options["ReadWritePaths"] == writable.get(command, directory)
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


class Systemd:
    """The commands of a unit, started as systemd does: words that are variables are split, `${}` is one word."""

    def __init__(self, variables):
        self.variables = variables

    def words(self, command):
        for word in shlex.split(command):
            if re.fullmatch(r"\$\w+", word):
                yield from self.variables.get(word[1:], "").split()
            else:
                yield re.sub(r"\$\{(\w+)\}", lambda name: self.variables.get(name[1], ""), word)

    def start(self, commands):
        for command in commands:
            words = [word.replace("/usr/local/bin/cairn", binary()) for word in self.words(command)]
            environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **self.variables}
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
            assert done.returncode == 0, done.stderr


def test_the_unit_of_backups_makes_them_and_removes_old_ones(server, tmp_path):
    example = (UNITS.parent / "etc/backup-example.conf").read_text()
    variables = dict(re.findall(r"^#?(\w+)=(.*)$", example, re.M))
    assert variables.pop("CAIRN_KEEP").startswith("--keep-last 3 ")
    (tmp_path / "pass").write_text("correct horse\n")
    (tmp_path / "pass").chmod(0o600)
    variables |= {
        "CAIRN_BACKUP": str(tmp_path / "backup"), "CAIRN_SERVER": server.http, "CAIRN_KEY": KEY,
        "CAIRN_SECRET": SECRET, "CAIRN_OPTIONS": f"--passphrase-file {tmp_path}/pass",
        "CAIRN_CREATE_OPTIONS": f"--keys {server.directory}",
    }  # fmt: skip
    commands = service(BACKUP)["Starts"]
    for keep, states in (("", 1), ("", 2), ("--keep-last 1", 1)):
        Systemd(variables | {"CAIRN_KEEP": keep}).start(commands)
        assert len(list((tmp_path / "backup/states").iterdir())) == states


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_understands_the_units_of_backups(tmp_path):
    """It looks for programs where the units expect them."""
    for name in (BACKUP, "cairn-backup.timer"):
        text = (UNITS / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/local/bin/cairn", binary()))
    units = [str(path) for path in tmp_path.iterdir()]
    command = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "cairn-backup" not in done.stderr, done.stderr
