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
# Of 10, by `systemd-analyze security`; without any restriction it is 9.6.
EXPOSURE = 3.0


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
    assert {path.name for path in UNITS.glob("*.service")} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_unit_starts_what_root_has_made(name):
    command, directory = COMMANDS[name]
    options = service(name)
    assert options["ExecStart"] == f"/usr/local/bin/cairn {command} {directory} $CAIRN_OPTIONS"
    assert options["ReadWritePaths"] == directory
    # `cluster init` and `join`, run by root, leave directories that nobody else may open.
    user = options["User"]
    assert f"+/usr/bin/env chown -R {user}:{user} {directory}" in options["Before"]
    # Somebody makes the user, and the file of options may be missing.
    assert f"u {user} " in (UNITS / "cairn.sysusers").read_text()
    assert options["EnvironmentFile"].startswith("-/etc/cairn/")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_a_unit_has_few_rights(name, tmp_path):
    unit = tmp_path / name.replace("@", "@disk1")
    shutil.copy(UNITS / name, unit)
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE * 10:.0f}", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-600:] + done.stderr
