"""`python -m steps`: what tests/run does once everything is installed."""

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from steps import jobs, long, short

EXAMPLES = """examples:
  tests/run                          every test, random campaigns in their short form
  tests/run mount kill/test_kill.py  only these Python folders or files
  tests/run --rust                   only the Rust tests
  tests/run --long                   the long form, all parts; goes on where it was ended
  tests/run --long seeds episodes    two parts of it
  tests/run --list                   the parts of the long form
"""


def claim():
    """Two runs in one checkout would remove each other's data. The lock ends with the process."""
    place = jobs.ROOT / "target/test-lock"
    place.parent.mkdir(exist_ok=True)
    lock = open(place, "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("tests/run: another run is going on in this checkout; wait for it or end it")
    return lock


def clean():
    """A run that was killed may have left a disk or a mount behind, even a stuck one."""
    data = jobs.ROOT / "target/test-data"
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    for _, where, *_ in reversed(mounts):
        where = where.encode().decode("unicode_escape")
        if where.startswith(f"{data}/"):
            subprocess.run(["fsfreeze", "-u", where], stderr=subprocess.DEVNULL)
            subprocess.run(["umount", "-l", where])
    shutil.rmtree(data, ignore_errors=True)
    shutil.rmtree(jobs.LOGS, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(
        prog="tests/run", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wanted", nargs="*", help="folders or files below tests/, or parts")
    parser.add_argument("--rust", action="store_true", help="only the Rust tests")
    parser.add_argument("--long", action="store_true", help="the long form")
    parser.add_argument("--list", action="store_true", help="list the parts of the long form")
    arguments = parser.parse_args()
    if arguments.list:
        return long.show()
    # With its assertions; $CAIRN_BIN is another one to test.
    os.environ.setdefault("CAIRN_BIN", str(jobs.ROOT / "target/debug/cairn"))
    _lock = claim()  # until the end of the run
    clean()
    if arguments.long:
        return long.run(arguments.wanted)
    installed = float(os.environ.get("INSTALLED_SECONDS", 0))
    return short.run(arguments.wanted, arguments.rust, installed)


sys.exit(main())
