"""The client of Linux' kernel, in a guest: as a file system, also while servers are killed."""

import os
import random
import time

from harness.cluster import Cluster
from harness.doors import S3, Http
from nfs import guest
from nfs.conftest import export_all
from nfs.proxy import Proxy

FILES = int(os.environ.get("CAIRN_TEST_NFS_FILES", 100))
OPERATIONS = int(os.environ.get("CAIRN_TEST_NFS_OPERATIONS", 1000))
KILLS = int(os.environ.get("CAIRN_TEST_NFS_KILLS", 3))
FAILOVERS = int(os.environ.get("CAIRN_TEST_NFS_FAILOVERS", 2))
# The number of the first round, which decides what is done in it: so a long run can be parted.
FIRST = int(os.environ.get("CAIRN_TEST_NFS_FIRST", 0))
# Of a model, in the middle of which a server dies.
ROUND_OPERATIONS = 150

FILE_SYSTEM = """
echo one > first; test "$(cat first)" = one
mkdir directory; mv first directory/second; ln directory/second directory/third
ln -s second directory/link; test "$(cat directory/link)" = one
test "$(stat -c %h directory/third)" = 2
chmod 640 directory/second; chown 12:13 directory/second
test "$(stat -c %a:%u:%g directory/third)" = 640:12:13
truncate -s 100 directory/second; test "$(wc -c < directory/third)" = 100
mkfifo fifo; test -p fifo; rm fifo
echo a >> appended; echo b >> appended; test "$(cat appended)" = "$(printf 'a\\nb')"
tail -f /dev/null < appended & rm appended; kill %1
! rmdir directory; ! mkdir directory; ! cat none
rm directory/second directory/third directory/link; rmdir directory
dd if=/dev/urandom of=/tmp/bytes bs=1M count=8
cp /tmp/bytes bytes; sync; echo 3 > /proc/sys/vm/drop_caches; cmp /tmp/bytes bytes
mkdir many
i=0; while [ $i -lt {files} ]; do echo $i > many/$i; i=$((i+1)); done
test "$(ls many | wc -l)" = {files}
df -P . ; test "$(cat from-http)" = "from http"
"""


@guest.ready
def test_a_kernel_uses_it_as_a_file_system(nfs, exported, work):
    http = Http(nfs.http)
    assert http.object("PUT", exported, "from-http", body=b"from http").status == 201
    guest.run(work, nfs.port, exported, FILE_SYSTEM.format(files=FILES))
    for number in (0, FILES - 1):
        assert http.object("GET", exported, f"many/{number}").body == b"%d\n" % number
    assert len(http.object("GET", exported, "bytes").body) == 8 << 20


@guest.ready
def test_a_kernel_does_what_it_does_in_memory(nfs, exported, work):
    with guest.Guest(work / "guest", nfs.port, exported) as client:
        for seed in (FIRST + 1, FIRST + 2):
            assert client.do("model", f"model{seed}", seed, OPERATIONS // 2)
            assert client.do("exercise", f"file{seed}", seed, OPERATIONS // 2)
    nfs.kill()
    assert nfs.fsck()[0] == 0


def work_meanwhile(client, number, act):
    """A round of the model, in the middle of which something is done."""
    name = f"round{number}"
    client.send("model", name, number, ROUND_OPERATIONS)
    time.sleep(random.Random(number).uniform(0, 0.8))
    act()
    client.receive()


@guest.ready
def test_a_kernel_goes_on_when_the_server_was_killed(nfs, exported, work):
    """No error, nothing lost and nothing done twice, or the model would differ."""
    with guest.Guest(work / "guest", nfs.port, exported) as client:
        for kill in range(FIRST, FIRST + KILLS):
            work_meanwhile(client, kill, nfs.restart)
    nfs.kill()
    assert nfs.fsck()[0] == 0


@guest.ready
def test_a_kernel_goes_on_at_another_gateway(work):
    with Cluster(chunkservers=1, replicas=1, gateways=2, nfs=True) as cluster:
        S3(cluster["g1"].s3).create_bucket("bucket")
        export_all(cluster["g1"].http, "bucket")
        with Proxy(cluster["g1"].nfs) as proxy:
            with guest.Guest(work / "guest", proxy.port, "bucket") as client:
                for number in range(FIRST, FIRST + FAILOVERS):
                    one, other = ("g1", "g2") if number % 2 == 0 else ("g2", "g1")

                    def fail_over(one=one, other=other):
                        proxy.target = cluster[other].nfs
                        cluster.kill(one)

                    work_meanwhile(client, number, fail_over)
                    cluster.start(one)
                    cluster.wait_whole()
        assert cluster.misbehaviour() == []
