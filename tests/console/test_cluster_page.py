"""The pages of a cluster in Debian's Chromium, from a gateway: a chunkserver dies and heals, one is drained and
removed, and a scrub names objects that are damaged or lack replicas."""

import os
import re

from console.profiles import Profile, client_of, damaged, expect, gateway_of
from harness.cluster import Cluster

OBJECTS = 20


def in_store(chromium, store):
    profile = Profile(chromium, store)
    profile.log_in()
    expect(profile.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    return profile


def row_of(page, cluster, name):
    rows = page.get_by_role("region", name="Nodes").get_by_role("row")
    return rows.filter(has_text=cluster.nodes[name].address)


def is_audited(page, action, resource):
    """Whether the audit says that root did it, in the console."""
    page.goto(f"/audit?action={action}&outcome=done")
    row = page.get_by_role("row").filter(has_text="root").filter(has_text="console")
    expect(row.filter(has_text=resource).first).to_be_visible()


def test_a_chunkserver_dies_and_heals_and_another_is_drained_and_removed(chromium):
    with Cluster(chunkservers=4, gateways=0, replicas=2) as cluster:
        store = gateway_of(cluster, "g1")
        cluster.s3("g1").create_bucket("shared")
        for number in range(OBJECTS):
            cluster.s3("g1").object("PUT", "shared", f"{number}", body=b"x" * 100_000)
        profile = in_store(chromium, store)
        page = profile.page
        page.goto("/store/cluster")
        nodes = row_of(page, cluster, "c1")
        expect(nodes.get_by_text("up", exact=True)).to_be_visible()
        # The one master has one copy of the names, and blocks have two.
        expect(page.get_by_text("few copies", exact=True)).to_be_visible()
        profile.picture("store-nodes")
        cluster.kill("c1")
        expect(nodes.get_by_text("down", exact=True)).to_be_visible()
        profile.picture("store-down")
        cluster.nodes["c1"].start()
        expect(nodes.get_by_text("up", exact=True)).to_be_visible()
        cluster.wait_whole()
        expect(page.get_by_text("lacks replicas", exact=True)).to_have_count(0)
        drain_and_cancel(page, cluster, "c3")
        drain_and_remove(profile, cluster, "c2")
        for number in range(OBJECTS):
            assert cluster.s3("g1").object("GET", "shared", f"{number}").status == 200
        is_audited(page, "DrainNode", f"drain node {cluster['c2'].id}")
        is_audited(page, "RemoveNode", f"remove node {cluster['c2'].id}")
        profile.complaints.clear()
        profile.close()


def drain_and_cancel(page, cluster, name):
    id = cluster[name].id
    page.get_by_role("button", name=f"Drain node {id}…").click()
    expect(page.get_by_role("heading", name=f"Drain node {id}?")).to_be_visible()
    page.get_by_role("button", name="Drain it").click()
    expect(row_of(page, cluster, name).get_by_text("drains", exact=True)).to_be_visible()
    page.get_by_role("button", name=f"Cancel the drain of node {id}").click()
    expect(row_of(page, cluster, name).get_by_text("up", exact=True)).to_be_visible()
    cluster.wait_whole()


def drain_and_remove(profile, cluster, name):
    page, id = profile.page, cluster[name].id
    page.get_by_role("button", name=f"Remove node {id}…").click()
    # It has blocks: what moves is said, and nothing is removed.
    expect(page.get_by_text("So it is drained first")).to_be_visible()
    # A group that moves may be empty.
    moved = page.locator("main li").filter(has_text=re.compile("to node .*[KM]iB"))
    expect(moved.first).to_be_visible()
    expect(page.get_by_text("It takes less than a minute")).to_be_visible()
    expect(page.get_by_role("button", name="Remove it")).to_have_count(0)
    profile.picture("store-forecast")
    page.get_by_role("button", name="Drain it").click()
    expect(row_of(page, cluster, name).get_by_text("drains", exact=True)).to_be_visible()
    cluster.wait(lambda: cluster.node_status(name)["groups"] == 0, "the blocks have moved")
    # The button comes by itself, once the node is empty.
    page.get_by_role("button", name=f"Remove node {id}…").click()
    expect(page.get_by_role("heading", name=f"Remove node {id}?")).to_be_visible()
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("heading", name="Cluster", level=1)).to_be_visible()
    expect(row_of(page, cluster, name)).to_have_count(0)
    # The master sees soon that the map is another one.
    cluster.wait(lambda: cluster.node_status(name) is None, f"{name} is forgotten")


def test_a_scrub_of_a_cluster_names_objects_that_are_damaged_or_lack_replicas(chromium):
    # What lacks replicas is not repaired while it is looked at.
    with Cluster(chunkservers=3, gateways=0, replicas=2, repair_after=3600) as cluster:
        store = gateway_of(cluster, "g1")
        client = client_of(store)
        client.create_bucket(Bucket="shared")
        body = os.urandom(200_000)
        client.put_object(Bucket="shared", Key="damaged.bin", Body=body)
        for number in range(OBJECTS):
            client.put_object(Bucket="shared", Key=f"whole {number}.bin", Body=os.urandom(100_000))
        victim = next(name for name in cluster.chunkservers() if damaged(cluster[name], body[:4096]))
        profile = in_store(chromium, store)
        page = profile.page
        page.goto("/store/cluster")
        page.get_by_role("button", name="Scrub now").click()
        expect(page.get_by_role("heading", name="Scrub", level=1)).to_be_visible()
        scrubbed = page.get_by_role("region", name="Scrubs of chunkservers").get_by_role("row")
        expect(scrubbed.filter(has_text="ended")).to_have_count(3)
        row = page.get_by_role("row").filter(has=page.get_by_role("cell", name="shared/damaged.bin"))
        expect(row.get_by_text("repaired", exact=True)).to_be_visible()
        expect(page.get_by_text("whole 0.bin")).to_have_count(0)
        profile.picture("store-cluster-scrub")
        cluster.kill(victim)
        cluster.wait(lambda: not cluster.is_up(victim), f"{victim} is down")
        page.get_by_role("button", name="List them now").click()
        expect(page.get_by_text("degraded", exact=True).first).to_be_visible()
        expect(row.get_by_text("degraded", exact=True)).to_be_visible()
        expect(page.get_by_text("did not say which blocks it found damaged")).to_be_visible()
        expect(scrubbed.get_by_text("does not answer", exact=True)).to_be_visible()
        profile.picture("store-cluster-degraded")
        page.get_by_role("button", name="Check now").click()
        checked = page.get_by_role("region", name="Metadata and replicas")
        expect(checked.get_by_text("The last one reached its end.")).to_be_visible()
        expect(checked.get_by_text("The metadata fits together.")).to_be_visible()
        expect(checked.get_by_text("Ordered by root at node")).to_be_visible()
        lacking = checked.get_by_role("row").filter(has=page.get_by_role("cell", name="shared/damaged.bin"))
        expect(lacking.get_by_text("degraded", exact=True)).to_be_visible()
        profile.picture("store-cluster-fsck")
        is_audited(page, "OrderScrub", "begin")
        is_audited(page, "OrderScrub", "check")
        profile.complaints.clear()
        profile.close()
