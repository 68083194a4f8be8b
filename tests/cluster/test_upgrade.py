"""Three machines are upgraded one after another, while clients read and write.

With `$CAIRN_PREVIOUS`, which the long form sets, from that program to the one under test; otherwise
they are restarted in the order of an upgrade.
"""

import json
import os
import re
import subprocess
import time

import pytest

from cluster.history import History
from cluster.load import BUCKET, Load
from harness import net
from harness.machines import Machines
from harness.server import binary
from harness.wait import PATIENCE_SECONDS, eventually

PREVIOUS = os.environ.get("CAIRN_PREVIOUS")
# From the first attempt of an operation to its answer.
ANSWERED_SECONDS = 30
CALM_SECONDS = 1
# What the last step of an upgrade turns on, also under load.
CAPABILITY = "required-fields"


@pytest.fixture
def machines():
    try:
        with Machines(program=PREVIOUS) as running:
            # Commands are of the new program, as an operator's are.
            running.program = None
            yield running
    except net.Unavailable as error:
        pytest.skip(f"three machines: {error}")


def check(machines, name):
    """The exit code and what `cairn cluster upgrade-check` of the new program says."""
    machine = machines[name]
    done = machines.command("cluster", "upgrade-check", machine.directory, "--json", ok=False)
    assert done.stdout.startswith("{"), done
    return done.returncode, json.loads(done.stdout)


def order(machines):
    """The machines in the order in which they are to be upgraded, once all may be stopped."""
    found = []

    def is_ready():
        found.append(check(machines, machines.machines()[0]))
        return found[-1][0] == 0

    eventually(is_ready, f"machines may be stopped: {found[-1:]}")
    hosts = [step["host"] for step in found[-1][1]["order"] if step["host"]]
    return [next(one.name for one in machines.nodes.values() if one.host == host) for host in hosts]


def programs(machines):
    return {node["node"]: node["program"] for node in check(machines, machines.machines()[0])[1]["nodes"]}


def test_machines_are_upgraded_one_by_one_under_load(machines, capsys):
    history = History()
    machines.s3("n1").create_bucket(BUCKET)
    load = Load(machines, 28, history)
    serving = machines.serving().name
    names = order(machines)
    # The status of the old program names no machine that is to be last.
    assert sorted(names) == machines.machines() and (names[-1] == serving or PREVIOUS)
    with load:
        for name in names:
            time.sleep(CALM_SECONDS)
            order(machines)
            machine = machines[name]
            assert machine.stop() == [0], machine.tail()
            machine.program = binary()
            machine.start()
            machines.wait_whole()
        time.sleep(CALM_SECONDS)
        enable = ["cluster", "enable", machines["n1"].directory, CAPABILITY]
        # The master may not have heard yet which programs came back.
        enabled = lambda: machines.command(*enable, ok=False).returncode == 0  # noqa: E731
        eventually(enabled, f"{CAPABILITY} is turned on")
        time.sleep(CALM_SECONDS)
    problems = load.problems() + machines.misbehaviour() + load.verify() + history.violations()
    assert not problems, problems[:5]
    spent = [spent for client in load.clients for spent in client.spent]
    worst = max(spent, key=lambda one: one.ended - one.began)
    with capsys.disabled():
        print(
            f"\nupgrade: {len(spent)} operations, the slowest {worst.ended - worst.began:.1f} s "
            f"with {worst.attempts} attempts"
        )
    # The long form has the machine to itself.
    assert not PREVIOUS or worst.ended - worst.began < ANSWERED_SECONDS, worst.__dict__
    told = programs(machines)
    assert len(told) == 9 and all(program and program["formats"] for program in told.values()), told


def test_a_machine_that_is_missed_keeps_the_others_from_being_stopped(machines):
    code, said = check(machines, "n1")
    eventually(lambda: check(machines, "n1")[0] == 0, f"all may be stopped: {said}")
    machines["n3"].kill()

    def told():
        code, said = check(machines, "n1")
        by_host = {step["host"]: step for step in said["order"] if step["host"]}
        mine = by_host[machines["n1"].host]
        why = " ".join(mine["reasons"])
        # The master that serves takes a while until it counts a node as down.
        return code == 1 and "no majority" in why and "is down" in why and mine

    found = []
    eventually(lambda: found.append(told()) or found[-1], "the first must not be stopped")
    assert not found[-1]["may_stop"]
    shown = machines.command("cluster", "upgrade-check", machines["n1"].directory, ok=False)
    assert shown.returncode == 1 and "NOT NOW" in shown.stdout, shown
    machines["n3"].start()
    machines.wait_whole()
    eventually(lambda: check(machines, "n2")[0] == 0, "all may be stopped again")


# File, its line of the version, the same of a version to come, and the command that reads it.
NEWER = [
    ("format", "cairn 1\n", "cairn 2\n", ["master", "--listen", "127.0.0.1:1"]),
    ("cluster.toml", "version = 1\n", "version = 2\n", ["master", "--listen", "127.0.0.1:1"]),
    ("machine.toml", "version = 1\n", "version = 3\n", ["node"]),
]


@pytest.mark.parametrize("name, now, later, command", NEWER)
def test_a_directory_of_a_newer_format_is_refused(name, now, later, command, tmp_path):
    """A downgrade changes nothing."""
    directory = tmp_path / "node"
    run = lambda *words: subprocess.run(  # noqa: E731
        [binary(), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    made = run("cluster", "init", directory, "--address", "127.0.0.1:7400")
    assert made.returncode == 0, made
    if name == "machine.toml":
        (directory / name).write_text('version = 1\nhost = "127.0.0.1"\nport = 7400\n')
    text = (directory / name).read_text()
    assert now in text
    (directory / name).write_text(text.replace(now, later))
    before = files(directory)
    refused = run(*command, directory)
    assert refused.returncode == 1, refused
    assert re.search(r"version [23].*(newer|wrote it)", refused.stderr), refused
    assert files(directory) == before


def files(directory):
    """All that was there at first, byte by byte; a lock may be taken."""
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {path: path.read_bytes() for path in found}
