"""A mount of a cluster, beside a gateway of it."""

import os

from harness.cluster import Cluster
from harness.doors import Http
from harness.mount import Mount


def test_a_mount_and_a_gateway_show_the_same(monkeypatch):
    with Cluster(chunkservers=3, gateways=1) as cluster:
        http = Http(cluster["g1"].http)
        assert http.request("PUT", "/storage/bucket").status in (200, 201, 204)
        directory = cluster.work / "mounted-node"
        cluster.command("cluster", "join", directory, cluster.token("gateway"))
        big = os.urandom(9 << 20)
        with Mount(None, cluster.work / "mnt", bucket="bucket", node=directory) as mount:
            assert http.request("PUT", "/storage/bucket/a", b"from the gateway").status < 300
            assert (mount.root / "a").read_bytes() == b"from the gateway"
            (mount.root / "big").write_bytes(big)
            assert http.request("GET", "/storage/bucket/big").body == big
            assert http.request("PUT", "/storage/bucket/a", b"again").status < 300
            assert (mount.root / "a").read_bytes() == b"again"
            os.rename(mount.root / "big", mount.root / "renamed")
            assert (mount.root / "renamed").read_bytes() == big
