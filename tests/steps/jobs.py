"""Jobs of the test command: one program each, several side by side, their tests and times read
from what they print."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "target/test-logs"
PYTHON = ROOT / "target/venv/bin/python"
# What hangs is killed, so that the end of the output says where.
TIMEOUT_SECONDS = 20 * 60
SIDE_BY_SIDE = 3
# The last lines of the log of a job that failed, for who has the output only.
TAIL_LINES = 150

RUST_TEST = re.compile(r"^test (.+) \.\.\. (ok|FAILED|ignored)(?:, .*?)?(?: <([\d.]+)s>)?$")
PYTHON_TEST = re.compile(r"^ *([\d.]+) s (ok|FAILED|skipped) +(.+)$")


@dataclass
class Test:
    name: str
    outcome: str
    seconds: float


@dataclass
class Job:
    name: str
    command: list
    directory: Path = ROOT
    env: dict = field(default_factory=dict)
    timeout: int = TIMEOUT_SECONDS
    is_shown: bool = False  # all of its output
    seconds: float = 0.0
    code: int | None = None
    tests: list = field(default_factory=list)

    @property
    def log(self):
        return LOGS / (re.sub(r"\W+", "-", self.name) + ".log")

    @property
    def is_ok(self):
        return self.code == 0

    def run(self):
        """Runs it to its end in a process group of its own, its output in its log."""
        LOGS.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with open(self.log, "wb") as log:
            process = subprocess.Popen(
                [str(word) for word in self.command], cwd=self.directory, env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                self.code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                log.write(f"\nkilled after {self.timeout} s\n".encode())
                self.code = -9
        self.seconds = time.monotonic() - began
        self.tests = list(read_tests(self.log.read_text(errors="replace")))

    def report(self):
        lines = [f"== {self.name}: {self.seconds:.1f} s, exit {self.code}"]
        for test in sorted(self.tests, key=lambda test: -test.seconds):
            lines.append(f"{test.seconds:10.2f} s {test.outcome:7} {test.name}")
        if self.is_ok and self.is_shown:
            lines += self.log.read_text(errors="replace").splitlines()
        if not self.is_ok:
            lines += [f"-- the end of {self.log}"]
            lines += self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        print("\n".join(lines), flush=True)


def read_tests(text):
    for line in text.splitlines():
        if found := RUST_TEST.match(line):
            outcome = {"ignored": "skipped"}.get(found[2], found[2])
            yield Test(found[1], outcome, float(found[3] or 0))
        elif found := PYTHON_TEST.match(line):
            yield Test(found[3], found[2], float(found[1]))


def run_all(jobs, before, width=SIDE_BY_SIDE):
    """Runs jobs side by side, first those that took longest before."""
    waiting = sorted(jobs, key=lambda job: -before.get(job.name, 1e9))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                if not waiting:
                    return
                job = waiting.pop(0)
            job.run()
            with lock:
                job.report()

    threads = [threading.Thread(target=work) for _ in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def step(name, *command):
    """Runs one command alone, its output shown; ends the run if it fails."""
    print(f"== {name}: {' '.join(command)}", flush=True)
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{name} failed")
    return time.monotonic() - began


def test_programs():
    """Builds all Rust tests; returns (seconds, [(crate, target, program)])."""
    command = ["cargo", "test", "--workspace", "--no-run"]
    print(f"== build: {' '.join(command)}", flush=True)
    began = time.monotonic()
    command.append("--message-format=json-render-diagnostics")
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit("build failed")
    programs = []
    for message in map(json.loads, done.stdout.splitlines()):
        if message.get("executable") and message["profile"]["test"]:
            crate = Path(message["manifest_path"]).parent
            target = message["target"]
            name = "unit" if "test" not in target["kind"] else target["name"]
            programs.append((crate, name, message["executable"]))
    return time.monotonic() - began, programs


def rust(crate, target, program, *arguments, env=None, timeout=TIMEOUT_SECONDS):
    """Cargo runs tests in the directory of their crate, too."""
    # The times of tests are not stable yet in Rust's own test programs.
    report = ["-Zunstable-options", "--report-time"]
    env = {"RUSTC_BOOTSTRAP": "1", "CARGO_MANIFEST_DIR": str(crate), **(env or {})}
    command = [program, *report, *arguments]
    return Job(f"rust {crate.name} {target}", command, crate, env, timeout)


def python(file, *arguments, env=None, timeout=TIMEOUT_SECONDS):
    command = [PYTHON, "-B", "-m", "pytest", "-q", "-c", "tests/pytest.ini", f"tests/{file}"]
    return Job(str(file), [*command, *arguments], ROOT, env or {}, timeout)
