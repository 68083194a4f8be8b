"""Sizes of caches follow the memory of the control group of a server, and options win."""

import re
import subprocess

import pytest

from harness.cgroup import Cgroup, Unavailable
from harness.doors import Http
from harness.server import Server, binary, scratch

MIB = 1 << 20


@pytest.fixture
def small():
    """A command that starts a program in a group that may have 512 MiB."""
    try:
        with Cgroup("memory") as group:
            group.memory(512 * MIB)
            yield ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group.path / "cgroup.procs")]
    except Unavailable as error:
        pytest.skip(str(error))


def sizes(server):
    text = Http(server.http).request("GET", "/metrics").body.decode()
    parts = re.findall(r'^cairn_memory_part_limit_bytes\{part="([a-z-]+)"\} (\d+)$', text, re.M)
    [limit] = re.findall(r"^cairn_memory_limit_bytes (\d+)$", text, re.M)
    [blocks] = re.findall(r"^cairn_cache_limit_bytes (\d+)$", text, re.M)
    return int(limit) // MIB, {part: int(size) // MIB for part, size in parts}, int(blocks) // MIB


def test_sizes_are_shares_of_what_the_group_may_have(small):
    with Server(wrapper=small) as server:
        limit, parts, blocks = sizes(server)
        assert limit == 512
        assert parts == {"blocks": 128, "rows": 32, "leases": 64, "pages": 32, "memtable": 16}
        assert blocks == 128, "the cache has the size that is told"
        [line] = [line for line in server.tail(100_000).splitlines() if "sizes of memory" in line]
        assert "blocks 128" in line and "control group" in line, line
        Http(server.http).create_bucket("bucket")
        assert Http(server.http).object("PUT", "bucket", "key", body=b"x" * MIB).status in (201, 204)


def test_options_win(small):
    with Server(wrapper=small, args=["--cache-mib", "7", "--row-cache-mib", "9"]) as server:
        _, parts, blocks = sizes(server)
        assert (parts["blocks"], parts["rows"], parts["pages"], blocks) == (7, 9, 32, 7)


def test_more_than_the_group_may_have_is_refused(small):
    directory = scratch("sizes") / "data"
    command = [*small, binary(), "server", str(directory), "--cache-mib", "500", "--lease-mib", "13"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "513 MiB" in done.stderr and "512 MiB" in done.stderr, done
    assert not directory.exists()
    directory.parent.rmdir()
