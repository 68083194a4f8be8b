"""Groups of users are those of the server's machine, of which a call can name 16 only."""

import os
import shutil
import subprocess

import pytest
from harness.doors import S3

from nfs import rpc
from nfs.conftest import Nfs

# A user of every Debian, who is in no other group there.
NAME, UID = "daemon", 1
GROUPS = range(5001, 5031)
OK, ACCES = 0, 13


def can_have_files_of_its_own():
    alone = ["unshare", "--mount", "true"]
    return os.geteuid() == 0 and subprocess.run(alone, capture_output=True).returncode == 0


def read(client, file, groups):
    """The status of a READ by that user, who says to be in these groups."""
    credentials = [0, UID, UID, len(groups), *groups]
    credentials = rpc.number(credentials[0]) + rpc.data("test") + b"".join(map(rpc.number, credentials[1:]))
    head = [next(rpc.xids), 0, 2, rpc.NFS, 3, rpc.READ, 1]
    call = b"".join(map(rpc.number, head)) + rpc.data(credentials) + rpc.number(0) * 2
    return client.ask(call + rpc.data(file) + rpc.long(0) + rpc.number(100))[0]


@pytest.mark.skipif(not can_have_files_of_its_own(), reason="needs root and namespaces")
@pytest.mark.parametrize("looks_up", [True, False])
def test_groups_are_those_of_the_machine(work, looks_up):
    table = work / "group"
    shutil.copy("/etc/group", table)
    with open(table, "a") as file:
        file.writelines(f"cairn{gid}:x:{gid}:{NAME}\n" for gid in GROUPS)
    bind = f'mount --bind "{table}" /etc/group && exec "$@"'
    wrapper = ["unshare", "--mount", "sh", "-c", bind, "sh"]
    args = ["--nfs", "127.0.0.1:0", *(["--nfs-groups"] if looks_up else [])]
    with Nfs(args=args, wrapper=wrapper) as server:
        S3(server.s3).create_bucket("photos")
        to = ["--client", "127.0.0.0/8", "--as", "root", "--squash", "none"]
        server.cairn("export", "add", "photos", *to)
        client = rpc.Client(server.nfs)
        top = client.mount("/photos")
        open_to_all = rpc.number(1) + rpc.number(0o755) + rpc.number(0) * 5
        assert client.ask(rpc.call(rpc.NFS, 2, rpc.data(top) + open_to_all + rpc.number(0)))[0] == OK
        for gid, claimed in [(GROUPS[-1], []), (6000, [6000])]:
            file = client.made(rpc.create(top, f"file-{gid}"))
            client.write(file, b"bytes", rpc.FILE_SYNC)
            # Mode 0640, and the group.
            what = rpc.number(1) + rpc.number(0o640) + rpc.number(0) + rpc.number(1) + rpc.number(gid)
            what += rpc.number(0) * 3 + rpc.number(0)
            assert client.ask(rpc.call(rpc.NFS, 2, rpc.data(file) + what))[0] == OK
            is_member = looks_up if gid in GROUPS else not looks_up
            assert read(client, file, claimed) == (OK if is_member else ACCES), gid
        client.close()
