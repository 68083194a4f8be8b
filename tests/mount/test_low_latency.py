"""Processors stay awake while a program makes one request after another, and no longer."""

import os
import struct
import threading
import time
from pathlib import Path

import pytest

from harness.mount import Door, Mount
from harness.server import scratch
from harness.wait import PATIENCE_SECONDS, eventually

DEVICE = Path("/dev/cpu_dma_latency")


def latency():
    """Microseconds that processors may take to wake, as all processes together wish."""
    with open(DEVICE, "rb", buffering=0) as device:
        return struct.unpack("=i", device.read(4))[0]


@pytest.mark.skipif(not DEVICE.exists(), reason="this kernel has no PM QoS")
def test_processors_are_awake_while_requests_come(store):
    before = latency()
    if before == 0:
        pytest.skip("somebody else keeps them awake")
    Door(store, "awake").ask("PUT", "")
    with Mount(store, scratch("awake") / "mnt", ["--low-latency"], bucket="awake") as mount:
        path = mount.root / "file"
        path.write_bytes(b"some")
        seen, ended = [], threading.Event()

        def watch():
            while not ended.is_set():
                seen.append(latency())
                time.sleep(0.001)

        watcher = threading.Thread(target=watch)
        watcher.start()
        until = time.monotonic() + PATIENCE_SECONDS
        while 0 not in seen and time.monotonic() < until:
            for _ in range(1000):
                os.close(os.open(path, os.O_RDONLY))
        ended.set()
        watcher.join()
        assert 0 in seen
        eventually(lambda: latency() == before)
        assert path.read_bytes() == b"some"
        mount.kill()
        assert latency() == before
