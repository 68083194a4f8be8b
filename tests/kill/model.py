"""What a client may expect of a store that is killed: the log of acknowledged writes.

Every key has one value that was acknowledged last and at most one change in flight. After a kill
the store must hold one of the two, whole. The log is also written to a file, one JSON line a
change, so that a violation can be read up afterwards.
"""

import hashlib
import json
import random
import threading

RECORD_BYTES = 96


def content(key, version, size):
    """Bytes that say which write they are, and whether they are whole."""
    head = f"{key}\n{version}\n{size}\n".encode()
    noise = random.Random(f"{key}:{version}").randbytes(max(0, size - len(head) - 32))
    data = head + noise
    return data + hashlib.sha256(data).digest()


def explain(data):
    """Which write a body is, for the report of a violation."""
    if data is None:
        return "absent"
    whole = len(data) >= 32 and hashlib.sha256(data[:-32]).digest() == data[-32:]
    head = data[:200].split(b"\n")[:3]
    return f"{len(data)} bytes, {'whole' if whole else 'NOT WHOLE'}, says {head}"


def fingerprint(data):
    return None if data is None else hashlib.sha256(data).hexdigest()


class Key:
    """A key that one thread changes."""

    def __init__(self, name):
        self.name = name
        self.value = None  # acknowledged: None is absent
        self.flying = ()  # (value,) while a change is in flight or its outcome is unknown
        self.version = 0
        self.touched = False

    def allowed(self):
        return [self.value, *self.flying]

    def settle(self, found):
        """Checks what a restarted store holds; returns a violation or None."""
        whats = [fingerprint(value) for value in self.allowed()]
        if fingerprint(found) not in whats:
            kind = "LOST" if found is None else "TORN OR STALE"
            wanted = " or ".join(explain(value) for value in self.allowed())
            return f"{kind}: {self.name} is {explain(found)}; allowed: {wanted}"
        self.value, self.flying, self.touched = found, (), False
        return None


class SharedLog:
    """A key to which all threads append records at once."""

    def __init__(self, name):
        self.name = name
        self.acknowledged, self.flying = set(), set()
        self.lock = threading.Lock()

    @staticmethod
    def record(thread, number):
        text = f"{thread:03d} {number:012d} ".encode()
        mark = hashlib.sha256(text).hexdigest().encode()
        return (text + mark).ljust(RECORD_BYTES - 1, b".") + b"\n"

    def settle(self, data):
        found = [data[at : at + RECORD_BYTES] for at in range(0, len(data), RECORD_BYTES)]
        if len(set(found)) != len(found):
            return f"TWICE: {self.name} holds a record twice"
        if lost := self.acknowledged - set(found):
            return f"LOST: {self.name} lacks {len(lost)} acknowledged appends, as {min(lost)!r}"
        if strange := set(found) - self.acknowledged - self.flying:
            return f"TORN: {self.name} holds {min(strange)!r}, which nobody appended"
        self.acknowledged, self.flying = set(found), set()
        return None


class AckLog:
    """Acknowledged changes, in a file outside of the store."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1 << 16)
        self.lock = threading.Lock()
        self.count = 0

    def write(self, key, version, value, how):
        line = {"key": key, "version": version, "sha256": fingerprint(value), "how": how}
        line["size"] = None if value is None else len(value)
        with self.lock:
            self.file.write(json.dumps(line) + "\n")
            self.count += 1

    def flush(self):
        with self.lock:
            self.file.flush()
