"""The image of containers is read by stock tools, and runs as its user with a root that is read-only."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.server import scratch
from packages.chart import HELM, containers
from packages.image import Container, Image, archive


@pytest.fixture(scope="module")
def path():
    return archive()


@pytest.fixture(scope="module")
def image(path):
    work = scratch("image")
    yield Image(path, work)
    shutil.rmtree(work, ignore_errors=True)


@pytest.mark.skipif(not shutil.which("skopeo"), reason="no skopeo here")
def test_skopeo_reads_the_archive(path, tmp_path):
    done = subprocess.run(["skopeo", "inspect", f"oci-archive:{path}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["Architecture"], said["Os"], len(said["Layers"])) == ("amd64", "linux", 1), said
    assert said["Labels"]["org.opencontainers.image.version"] == "0.1.0"
    # A copy reads each blob, and compares it with its digest.
    copy = ["skopeo", "copy", "--insecure-policy", f"oci-archive:{path}", f"dir:{tmp_path}"]
    subprocess.run(copy, check=True, capture_output=True)


needs_engine = pytest.mark.skipif(not shutil.which("runc") or os.geteuid() != 0, reason="no runc here, or not root")


def put_and_get(container, work):
    """By both doors."""
    source = work / "big.bin"
    source.write_bytes(os.urandom(3_000_000))
    container.cairn("bucket", "create", "photos")
    aws = Path(sys.executable).with_name("aws")
    container.run(aws, "--endpoint-url", "http://127.0.0.1:9000", "s3", "cp", source, "s3://photos/big.bin")
    container.cairn("get", "photos/big.bin", work / "copy.bin")
    assert (work / "copy.bin").read_bytes() == source.read_bytes()


@needs_engine
def test_the_image_runs_as_its_user_with_a_root_that_is_read_only(image, work):
    with Container(image) as container:
        status = (container.proc / "status").read_text().split("\n")
        of = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        assert of["Uid"].split() == ["65532"] * 4 and of["Gid"].split() == ["65532"] * 4
        assert int(of["CapEff"], 16) == 0 and int(of["CapBnd"], 16) == 0 and of["NoNewPrivs"] == "1"
        mounts = [line.split() for line in (container.proc / "mountinfo").read_text().splitlines()]
        root = next(words for words in mounts if words[4] == "/")
        assert "ro" in root[5].split(","), root
        put_and_get(container, work)
        assert (container.work / "data/blocks").is_dir(), "the store is in the directory that was given"


@needs_engine
@pytest.mark.skipif(not HELM.exists(), reason="no helm here")
def test_the_image_runs_as_the_chart_starts_it(image, work):
    (server,) = containers("mode=single")
    assert server["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    with Container(image, server["args"]) as container:
        put_and_get(container, work)
        # What docs/operating.md forwards a port to.
        page = container.run("curl", "-sfL", "http://127.0.0.1:9001/")
        assert "<html" in page.stdout
