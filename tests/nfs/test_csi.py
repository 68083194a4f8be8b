"""A CSI driver on a machine that has NFS in its kernel: in a guest, called from here."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from harness.csi import SANITY, Client, joined
from harness.doors import Http
from harness.server import KEY, SECRET, binary
from nfs import guest

CSI = """
mkdir -p /csi /tmp/staging /tmp/pods
CAIRN_KEY={key} CAIRN_SECRET={secret} /programs/cairn csi --endpoint unix:///csi/csi.sock --node-id guest \
    --server http://10.0.2.2:{http} --nfs 10.0.2.2:{nfs} --nfs-client 127.0.0.0/8 >/tmp/csi.log 2>&1 &
i=0; while [ ! -S /csi/csi.sock ] && [ $i -lt 100 ]; do sleep 0.2; i=$((i+1)); done
test -S /csi/csi.sock || {{ cat /tmp/csi.log; exit 1; }}
"""
SUITE = """
/programs/csi-sanity --csi.endpoint unix:///csi/csi.sock --csi.mountdir /tmp/target --csi.stagingdir /tmp/stage \
    --ginkgo.no-color --ginkgo.seed 1 2>&1 | tail -c 20000
"""


def stripped(program, work):
    """A program without what only debuggers read: the guest has it in memory."""
    small = work / Path(program).name
    shutil.copy(program, small)
    subprocess.run(["strip", small], check=True)
    return small


def programs(work):
    files = {}
    for program in (binary(), SANITY):
        small = stripped(program, work)
        files |= guest.with_libraries(small)
        files[f"programs/{small.name}"] = files.pop(str(small).lstrip("/"))
    return files


@pytest.fixture
def machine(nfs, exported, work):
    """A guest in which a driver runs."""
    (work / "small").mkdir()
    with guest.Guest(work / "guest", nfs.port, exported, more=programs(work / "small")) as client:
        http = nfs.http.rsplit(":", 1)[1]
        client.do("run", CSI.format(key=KEY, secret=SECRET, http=http, nfs=nfs.port), "/")
        yield client


@pytest.fixture
def driver(machine):
    """A client here of the socket in the guest."""
    with socket.create_server(("127.0.0.1", 0)) as outer, socket.create_server(("127.0.0.1", 0)) as inner:
        machine.do("pass_on", inner.getsockname()[1], b"/csi/csi.sock")
        client = Client(f"127.0.0.1:{outer.getsockname()[1]}")
        client.stubs[0].Probe.future(client.messages.ProbeRequest(), wait_for_ready=True)
        joined(outer.accept()[0], inner.accept()[0])
        yield client


@guest.ready
@pytest.mark.skipif(not os.environ.get("CAIRN_TEST_CSI_GUEST"), reason="takes minutes: tests/run --long csi")
@pytest.mark.skipif(not SANITY.exists(), reason="no csi-sanity: see tests/install")
def test_volumes_are_mounted_by_the_kernel(nfs, machine, driver):
    capability, http = driver.capability(flags=["timeo=600", "noexec"]), Http(nfs.http)
    volume = driver.create("by-nfs", capacity_range={"required_bytes": 8 << 20}).volume_id
    staged = {"volume_id": volume, "staging_target_path": "/tmp/staging"}
    for _ in range(2):
        driver.NodeStageVolume(**staged, volume_capability=capability)
        for name, readonly in (("rw", False), ("ro", True)):
            driver.NodePublishVolume(
                **staged, target_path=f"/tmp/pods/{name}", volume_capability=capability, readonly=readonly
            )
    lines = machine.do("run", "grep csi-by-nfs /proc/mounts", "/")
    assert len(lines.splitlines()) == 3 and all(" nfs " in line for line in lines.splitlines()), lines
    for option in ("vers=3", "nolock", "noexec", "nosuid", "nodev", "timeo=600", f"port={nfs.port}"):
        assert option in lines, lines
    machine.do("run", "echo by a pod > /tmp/pods/rw/file; chown 7:8 /tmp/pods/rw/file; ln -s x /tmp/pods/rw/link", "/")
    assert machine.do("run", "cat /tmp/pods/ro/file; stat -c %u:%g /tmp/pods/ro/file", "/") == "by a pod\n7:8\n"
    machine.do("run", "! touch /tmp/pods/ro/other; ! dd if=/dev/zero of=/tmp/pods/rw/big bs=1M count=32 conv=fsync", "/")
    assert http.object("GET", volume, "file").body == b"by a pod\n"
    usage = driver.NodeGetVolumeStats(volume_id=volume, volume_path="/tmp/pods/rw").usage
    assert usage[0].total == 8 << 20
    for name in ("rw", "ro", "rw"):
        driver.NodeUnpublishVolume(volume_id=volume, target_path=f"/tmp/pods/{name}")
    driver.NodeUnstageVolume(**staged)
    assert machine.do("run", "ls /tmp/pods; grep csi- /proc/mounts || true", "/") == ""
    # A bucket that is not exported cannot be mounted.
    http.create_bucket("not-exported")
    other = {"volume_id": "not-exported", "staging_target_path": "/tmp/staging"}
    assert driver.code("NodeStageVolume", **other, volume_capability=capability) == "NOT_FOUND"
    driver.DeleteVolume(volume_id=volume)
    assert http.request("GET", f"/storage/{volume}").status == 404
    said = machine.do("run", SUITE, "/")
    counted = re.search(r"(\d+) Passed \| (\d+) Failed", said)
    assert counted and counted[2] == "0" and int(counted[1]) >= 43, said
    print(re.search(r"Ran .*", said)[0], counted[0])
