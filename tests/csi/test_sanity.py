"""csi-sanity, the suite of Kubernetes for drivers, over mounts."""

import re
import subprocess

import pytest

from harness.csi import SANITY, Driver, mounts_below
from harness.doors import Http
from harness.server import Server, scratch

ready = pytest.mark.skipif(not SANITY.exists(), reason="no csi-sanity: see tests/install")
# Fewer would mean that the suite skips what the driver says it can do.
PASSED = 43


def buckets(server):
    listed = Http(server.http).request("GET", "/storage/?prefix=csi-")
    return re.findall(rb'"name":"([^"]+)"', listed.body)


@ready
def test_the_suite_of_kubernetes_passes():
    work = scratch("csi")
    with Server() as server, Driver(server, work) as driver:
        command = [SANITY, "--csi.endpoint", driver.endpoint, "--ginkgo.no-color", "--ginkgo.seed", "1"]
        command += ["--csi.mountdir", work / "target", "--csi.stagingdir", work / "staging"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        counted = re.search(r"(\d+) Passed \| (\d+) Failed", done.stdout)
        assert counted and int(counted[1]) >= PASSED and counted[2] == "0", done.stdout[-2000:]
        print(re.search(r"Ran .*", done.stdout)[0], counted[0])
        assert mounts_below(work) == [] and buckets(server) == []
