"""Who is refused what, and how the request came, is in the log of the node that decided."""

import json

from harness.cluster import Cluster
from harness.doors import Http
from harness.wait import eventually


def test_a_master_knows_how_a_request_came_to_a_gateway(monkeypatch):
    monkeypatch.setenv("CAIRN_LOG", "info,cairn_auth=debug")
    with Cluster(chunkservers=1, gateways=1, replicas=1) as cluster:
        root = cluster.http("g1")
        assert root.create_bucket("guarded").status == 201
        body = json.dumps({"user": "stranger"}).encode()
        made = root.request("POST", "/admin/keys", body, {"Content-Type": "application/json"})
        assert made.status == 201, made
        key = made.json()
        stranger = Http(cluster["g1"].http, (key["id"], key["secret"]))
        # The master runs what changes metadata.
        assert stranger.request("DELETE", "/storage/guarded").status == 403
        found = wait_for(cluster["m1"], "s3:DeleteBucket")
        assert "source=127.0.0.1" in found and "tls=false" in found, found
        assert f"credential={key['id']}" in found and "bucket guarded" in found, found
        nobody = Http(cluster["g1"].http, None)
        assert nobody.request("PUT", "/storage/made").status == 401
        found = wait_for(cluster["m1"], "s3:CreateBucket")
        assert "principal=Anonymous" in found and "credential=" not in found, found
        assert "source=127.0.0.1" in found, found


def wait_for(node, action):
    """The line about the refusal of an action."""

    def found():
        lines = node.log.read_text(errors="replace").splitlines()
        return [line for line in lines if "denied" in line and action in line]

    eventually(found, f"a refusal of {action} in {node.log}")
    return found()[0]
