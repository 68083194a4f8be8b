"""The client of Linux' kernel, in a guest."""

import os
import time

import pytest

from harness.doors import Http
from nfs import guest

ready = pytest.mark.skipif(
    not (guest.GUEST / "bin/busybox").exists(), reason="no kernel: see tests/install"
)
FILES = int(os.environ.get("CAIRN_TEST_NFS_FILES", 100))
KILLS = int(os.environ.get("CAIRN_TEST_NFS_KILLS", 3))

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


@ready
def test_a_kernel_uses_it_as_a_file_system(nfs, exported, work):
    http = Http(nfs.http)
    assert http.object("PUT", exported, "from-http", body=b"from http").status == 201
    guest.run(work, nfs.port, exported, FILE_SYSTEM.format(files=FILES))
    for number in (0, FILES - 1):
        assert http.object("GET", exported, f"many/{number}").body == b"%d\n" % number
    assert len(http.object("GET", exported, "bytes").body) == 8 << 20


WRITING = """
set +x
i=0; while [ $i -lt {files} ]; do
  echo $i > file$i || exit 1
  sync file$i || exit 2
  echo "made $i"
  i=$((i+1))
done
"""


@ready
def test_a_kernel_goes_on_when_the_server_was_killed(nfs, exported, work):
    running = guest.start(work, nfs.port, exported, WRITING.format(files=FILES))
    made = 0
    for kill in range(KILLS):
        wanted = (kill + 1) * FILES // (KILLS + 1)
        while made < wanted and running.poll() is None:
            made = (work / "console").read_text(errors="replace").count("made ")
            time.sleep(0.01)
        nfs.restart()
    guest.finish(running, work)
    http = Http(nfs.http)
    for number in range(FILES):
        assert http.object("GET", exported, f"file{number}").body == b"%d\n" % number
