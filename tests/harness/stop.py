"""Processes that are stopped for a while: they neither answer nor know that time passes."""

import contextlib
import signal
from pathlib import Path

from harness.wait import eventually


def stop(process):
    """Returns when all threads stand still: after the signal alone they may still answer a request."""
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: all(is_stopped(task) for task in tasks(process)), "the process is stopped")


def go_on(process):
    process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def stopped(process):
    stop(process)
    try:
        yield
    finally:
        go_on(process)


def tasks(process):
    return list(Path(f"/proc/{process.pid}/task").iterdir())


def is_stopped(task):
    try:
        # proc_pid_stat(5): the state comes after the name, which may have parentheses and spaces.
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return True
