"""Fixtures shared by all test programs, and the closing line `N passed, N failed`."""

import itertools
import os
import subprocess
import sys

import pytest

from harness import mount as mount_module
from harness import server as server_module
from harness.doors import S3, Http
from harness.server import KEY, REGION, SECRET, Server, scratch

sys.dont_write_bytecode = True
numbers = itertools.count(1)
LOG_BYTES = 20_000


@pytest.fixture(scope="session")
def server():
    """One server for all client tests: they share it as its users would."""
    with Server(args=["--s3-public-acl", "accept"]) as running:
        yield running


@pytest.fixture
def http(server):
    return Http(server.http)


@pytest.fixture
def s3(server):
    return S3(server.s3)


@pytest.fixture
def make_bucket(s3, http):
    """Makes a new bucket of a kind, at the door that makes buckets of this kind."""

    def make(kind):
        name = f"bucket-{next(numbers)}"
        {"objects": s3, "files": http}[kind].create_bucket(name)
        return name

    return make


@pytest.fixture
def bucket(make_bucket):
    """A new bucket made through S3 (so `a` and `a/b` may coexist)."""
    return make_bucket("objects")


@pytest.fixture(params=["objects", "files"])
def any_bucket(request, make_bucket):
    """A new bucket, of each kind in turn."""
    return make_bucket(request.param)


@pytest.fixture
def work():
    """A scratch directory, removed when the test passed."""
    import shutil

    directory = scratch("work")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


class Shell:
    """Runs stock programs with credentials for the server under test in their environment."""

    def __init__(self, server, home):
        self.server = server
        path = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
        self.env = {
            "PATH": path,
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": server.s3,
        }

    def __call__(self, *command, ok=True, **options):
        done = subprocess.run(
            [str(part) for part in command],
            env={**self.env, **options.pop("env", {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            **options,
        )
        if ok:
            assert done.returncode == 0, (
                f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
        return done


@pytest.fixture
def shell(server, work):
    home = work / "home"
    home.mkdir()
    return Shell(server, home)


class Times:
    """Prints how each test ended and how long it took, as the test command reads it."""

    def __init__(self, terminal):
        self.terminal, self.seconds, self.outcomes = terminal, {}, {}

    def pytest_report_teststatus(self, report):
        if report.passed and report.when != "call":
            return "", "", ""
        return report.outcome, "", report.outcome.upper()

    def pytest_runtest_logreport(self, report):
        test = report.nodeid
        self.seconds[test] = self.seconds.get(test, 0) + report.duration
        if report.outcome != "passed":
            self.outcomes[test] = {"failed": "FAILED"}.get(report.outcome, report.outcome)
        if report.when == "teardown":
            outcome = self.outcomes.get(test, "ok")
            self.terminal.ensure_newline()
            self.terminal.write_line(f"{self.seconds[test]:8.2f} s {outcome:7} {test}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the end of the logs of servers and mounts that run to the report of a failure: the files
    go with the fixture."""
    report = yield
    if report.failed:
        for one in [*server_module.running, *mount_module.running]:
            report.sections.append((f"the end of {one.log_path}", one.tail(LOG_BYTES)))
    return report


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    config.pluginmanager.register(Times(terminal), "times")
