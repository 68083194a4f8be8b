"""A mount of a server goes on when the server has become a machine of a cluster, and so do its files."""

import os
import subprocess

from cluster.test_adoption import Adopted
from harness.mount import Mount
from harness.server import scratch
from harness.wait import eventually
from kill.model import content

BIG = content("big", 1, 5_000_000)


def fill(root):
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/big").write_bytes(BIG)
    (root / "deep/small").write_bytes(b"small")
    os.link(root / "deep/big", root / "deep/er/linked")
    os.symlink("../big", root / "deep/er/pointer")
    os.setxattr(root / "deep/small", "user.kind", b"of a test")
    os.chmod(root / "deep/small", 0o640)
    os.utime(root / "deep/small", ns=(1_500_000_000_000_000_000, 1_500_000_001_000_000_000))
    with open(root / "hole", "wb") as file:
        file.seek(8 << 20)
        file.write(b"end")
        os.fsync(file.fileno())
    subprocess.run(["sync", "-f", root], check=True)


def check(root):
    assert (root / "deep/big").read_bytes() == BIG == (root / "deep/er/linked").read_bytes()
    assert os.stat(root / "deep/big").st_nlink == 2
    assert os.stat(root / "deep/big").st_ino == os.stat(root / "deep/er/linked").st_ino
    assert os.readlink(root / "deep/er/pointer") == "../big"
    assert os.getxattr(root / "deep/small", "user.kind") == b"of a test"
    about = os.stat(root / "deep/small")
    assert about.st_mode & 0o777 == 0o640 and about.st_mtime_ns == 1_500_000_001_000_000_000
    hole = (root / "hole").read_bytes()
    assert len(hole) == (8 << 20) + 3 and hole.endswith(b"\0end")
    with open(root / "hole", "rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) > 0
    assert sorted(os.listdir(root)) == ["deep", "hole"]


def test_a_mount_goes_on():
    work = scratch("adopted")
    one = Adopted(work / "one")
    try:
        one.serve()
        one.cli("bucket", "create", "files")
        with Mount(one, work / "mnt", bucket="files") as mount:
            fill(mount.root)
            check(mount.root)
            one.end()
            one.begin()
            one.run_node()
            eventually(lambda: answers(mount.root), mount.tail)
            check(mount.root)
            (mount.root / "deep/later").write_bytes(BIG)
            subprocess.run(["sync", "-f", mount.root], check=True)
        with Mount(one, work / "again", bucket="files") as mount:
            check(mount.root)
            assert (mount.root / "deep/later").read_bytes() == BIG
    finally:
        one.kill()


def answers(root):
    try:
        return bool(os.listdir(root))
    except OSError:
        return False
