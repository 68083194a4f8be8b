"""A stock gRPC client, with the published interface and the certificate of a node."""

import re
import subprocess
import sys

import grpc
import pytest

from harness.cluster import Cluster
from harness.server import ROOT
from harness.wait import PATIENCE_SECONDS

PROTO = "cairn/admin/v1/admin.proto"


@pytest.fixture(scope="module")
def cluster():
    with Cluster(chunkservers=3, gateways=1) as running:
        yield running


@pytest.fixture(scope="module")
def admin():
    sys.path.insert(0, str(ROOT / "crates/cluster/proto"))
    return grpc.protos_and_services(PROTO)


def client(cluster, name, services):
    """As a node, whose key and certificate it shows."""
    directory = cluster[name].directory
    read = lambda file: (directory / file).read_bytes()  # noqa: E731
    shown = subprocess.run(
        ["openssl", "x509", "-in", cluster["m1"].directory / "node.pem", "-noout", "-ext",
         "subjectAltName"], capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    host = re.search(r"DNS:(master\.\w+\.cairn)", shown)[1]
    credentials = grpc.ssl_channel_credentials(read("ca.pem"), read("node.key"), read("node.pem"))
    options = [("grpc.ssl_target_name_override", host)]
    channel = grpc.secure_channel(cluster["m1"].address, credentials, options=options)
    return services.AdminStub(channel)


def test_status_and_changes(cluster, admin):
    protos, services = admin
    by_master, node = client(cluster, "m1", services), int(cluster["c3"].id)
    status = by_master.GetStatus(protos.GetStatusRequest(), timeout=PATIENCE_SECONDS)
    assert len(status.nodes) == 5
    by_master.DrainNode(protos.DrainNodeRequest(node=node), timeout=PATIENCE_SECONDS)
    nodes = by_master.GetStatus(protos.GetStatusRequest(), timeout=PATIENCE_SECONDS).nodes
    assert [one.id for one in nodes if one.is_draining] == [node]
    by_master.UndrainNode(protos.UndrainNodeRequest(node=node), timeout=PATIENCE_SECONDS)
    with pytest.raises(grpc.RpcError) as failed:
        by_master.DrainNode(protos.DrainNodeRequest(node=99), timeout=PATIENCE_SECONDS)
    assert failed.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_node_that_is_no_master_changes_nothing(cluster, admin):
    protos, services = admin
    by_gateway = client(cluster, "g1", services)
    assert by_gateway.GetStatus(protos.GetStatusRequest(), timeout=PATIENCE_SECONDS).nodes
    with pytest.raises(grpc.RpcError) as failed:
        by_gateway.SetReplicas(protos.SetReplicasRequest(replicas=2), timeout=PATIENCE_SECONDS)
    assert failed.value.code() == grpc.StatusCode.PERMISSION_DENIED
