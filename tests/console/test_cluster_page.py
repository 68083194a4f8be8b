"""The page of a cluster in Debian's Chromium: a chunkserver dies and heals, and one is drained from a gateway."""

from types import SimpleNamespace

from console.profiles import Profile, expect
from harness.cluster import Cluster
from harness.ports import free_ports

OBJECTS = 20


def test_a_chunkserver_dies_and_heals_and_another_is_drained(chromium):
    with Cluster(chunkservers=4, gateways=0, replicas=2) as cluster:
        gateway = cluster.make("g1")
        console = f"127.0.0.1:{free_ports(1)[0]}"
        gateway.arguments += ["--console", console]
        cluster.join("g1", cluster.token("gateway"))
        gateway.start()
        gateway.wait_ready()
        cluster.s3("g1").create_bucket("shared")
        for number in range(OBJECTS):
            cluster.s3("g1").object("PUT", "shared", f"{number}", body=b"x" * 100_000)
        store = SimpleNamespace(console=f"http://{console}", s3=gateway.s3, http=gateway.http)
        profile = Profile(chromium, store)
        profile.log_in()
        page = profile.page
        expect(page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
        page.goto("/store/cluster")

        def row(name):
            node = cluster.nodes[name]
            rows = page.get_by_role("region", name="Nodes").get_by_role("row")
            return rows.filter(has_text=node.address), node.id

        nodes, _ = row("c1")
        expect(nodes.get_by_text("up", exact=True)).to_be_visible()
        profile.picture("store-nodes")
        cluster.kill("c1")
        expect(nodes.get_by_text("down", exact=True)).to_be_visible()
        profile.picture("store-down")
        cluster.nodes["c1"].start()
        expect(nodes.get_by_text("up", exact=True)).to_be_visible()
        cluster.wait_whole()
        expect(page.get_by_text("lacks replicas", exact=True)).to_have_count(0)
        drained, id = row("c2")
        page.get_by_role("button", name=f"Drain node {id}…").click()
        page.get_by_role("button", name="Drain it").click()
        expect(drained.get_by_text("drains", exact=True)).to_be_visible()
        cluster.wait(lambda: cluster.node_status("c2")["groups"] == 0, "the blocks have moved")
        page.get_by_role("button", name=f"Cancel the drain of node {id}").click()
        expect(drained.get_by_text("up", exact=True)).to_be_visible()
        for number in range(OBJECTS):
            assert cluster.s3("g1").object("GET", "shared", f"{number}").status == 200
        profile.close()
