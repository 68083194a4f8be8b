"""Ports for programs that have to be told which one to listen on.

A port that was free a moment ago may be taken when the program starts: by a connection of anybody,
which the kernel gives a port of its range, or by another test. So these are below that range, and
a test that has some holds a lock on all of them. Rust tests draw theirs from those above `LAST`.
"""

import fcntl
import itertools
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST, LAST, EACH = 10_000, 22_000, 32
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOCKS = Path(tempfile.gettempdir()) / "cairn-test-ports"
# Held until this process ends.
held = []


def blocks():
    """Blocks of ports, in random order, each for one process at a time."""
    last = min(LAST, int(RANGE.read_text().split()[0]))
    firsts = list(range(FIRST, last - EACH + 1, EACH))
    random.shuffle(firsts)
    LOCKS.mkdir(mode=0o777, exist_ok=True)
    for first in firsts:
        lock = os.open(LOCKS / str(first), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        held.append(lock)
        yield from range(first, first + EACH)


given = blocks()


def is_free(port, address):
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def free_ports(count, address="127.0.0.1"):
    """So many ports that nobody listens on and that nobody else is given."""
    return list(itertools.islice((port for port in given if is_free(port, address)), count))
