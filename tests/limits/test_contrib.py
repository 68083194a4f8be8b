"""Alert rules and the dashboard in contrib/ name metrics that there are, and rules do what they say."""

import json
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from harness.cluster import Cluster
from harness.doors import Http
from harness.server import ROOT, Server
from harness.wait import eventually

RULES = ROOT / "contrib/prometheus/cairn.rules.yml"
TESTS = ROOT / "contrib/prometheus/cairn.test.yml"
DASHBOARD = ROOT / "contrib/grafana/cairn.json"
# Metrics of some roles only, by their beginning; all others are of every role.
ROLES = {
    "cairn_meta_": {"server", "master"},
    "cairn_peer_": {"gateway"},
    "cairn_session_": {"gateway"},
    "cairn_cache_": {"server", "gateway"},
    "cairn_bucket_": {"server", "gateway"},
    "cairn_blocks_": {"server", "gateway", "chunkserver"},
    "cairn_disk_": {"server", "master", "chunkserver"},
    "cairn_log_": {"server", "gateway"},
    "cairn_master_": {"master"},
    "cairn_node_hears_master": {"master", "chunkserver"},
    "cairn_node_": {"master"},
    "cairn_groups": {"master"},
}
# Only where a cgroup has a quota: tests/doctor looks at them.
WITH_QUOTA = {"cairn_cpu_periods_total", "cairn_cpu_throttled_periods_total"}
PROMTOOL = ROOT / "target/prometheus/usr/bin/promtool"
NAME = re.compile(r"\b(?:cairn|process)_[a-z_]+\b")


def named():
    """The metrics that rules and the dashboard name."""
    expressions = re.findall(r"^ +expr: (?:\|\n((?: {10,}.*\n)+)|(.*)\n)", RULES.read_text(), re.M)
    texts = [first or second for first, second in expressions]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    texts += [target["expr"] for panel in panels for target in panel["targets"]]
    return {name for text in texts for name in NAME.findall(text)} - WITH_QUOTA


def test_the_dashboard_has_what_alerts_of_a_cluster_tell_of():
    """An alert of nodes, groups or masters leads to a panel. No panel covers another one."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = {name for panel in panels for target in panel["targets"] for name in NAME.findall(target["expr"])}
    alerted = set(NAME.findall(RULES.read_text()))
    of_clusters = {name for name in alerted if name.startswith(("cairn_node_", "cairn_groups", "cairn_master_"))}
    assert len(of_clusters) == 8 and of_clusters <= shown, of_clusters - shown
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert len({panel["id"] for panel in panels}) == len(panels)


def roles_of(name):
    found = (roles for beginning, roles in ROLES.items() if name.startswith(beginning))
    return next(found, {"server", "gateway", "master", "chunkserver"})


def told(http, accept="text/plain"):
    # Names of buckets are for root.
    request = urllib.request.Request(f"{http}/metrics", headers={"Accept": accept, **Http(http).auth})
    with urllib.request.urlopen(request) as reply:
        return reply.read().decode()


def missing(role, http):
    """Metrics that are named of this role and are not there, even if nothing was asked yet."""
    names = set(re.findall(r"^# TYPE (\S+)", told(http), re.M))
    names |= {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")}
    return {name for name in named() if role in roles_of(name)} - names


def check(role, http):
    # A master shows some of them while it serves, which it stops for a moment if its disk is too slow.
    eventually(lambda: not missing(role, http), lambda: f"no {role} has {missing(role, http)}")
    text = told(http)
    for name in ("cairn_build_info", "process_cpu_seconds_total", "process_resident_memory_bytes"):
        assert re.search(rf"^{name}\b", text, re.M), f"{role}: {name}"
    assert told(http, "application/openmetrics-text").endswith("# EOF\n"), role
    if PROMTOOL.exists():
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), role


def readiness(http):
    """The answer of `/readyz`, whatever its status is."""
    try:
        with urllib.request.urlopen(f"{http}/readyz") as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_every_metric_that_contrib_names_exists_and_is_clean():
    assert len(named()) > 25, named()
    with Server() as server:
        Http(server.http).request("PUT", "/storage/bucket")
        check("server", server.http)
    with Cluster(chunkservers=1, gateways=1, replicas=1, status=True) as cluster:
        doors = {name: cluster.nodes[name].http for name in ("g1", "m1", "c1")}
        Http(doors["g1"]).request("PUT", "/storage/bucket")
        for name, role in (("g1", "gateway"), ("m1", "master"), ("c1", "chunkserver")):
            check(role, doors[name])
            # The master knows that the cluster is whole. Other nodes hear of it with their next beat.
            eventually(lambda: readiness(doors[name])[0] == 200, lambda: readiness(doors[name]))
            assert readiness(doors[name])[1]["role"] == role
        # Without a master a chunkserver says why it is not ready.
        cluster.kill("m1")
        eventually(lambda: readiness(doors["c1"])[0] == 503, "the chunkserver is not ready")
        _, reply = readiness(doors["c1"])
        unmet = [condition["name"] for condition in reply["conditions"] if not condition["met"]]
        assert unmet == ["master"] and reply["reasons"] == ["no master answers"], reply


def alerts():
    return re.findall(r"^ +- alert: (\w+)", RULES.read_text(), re.M)


def test_every_alert_is_tested_and_has_a_remedy():
    """Each rule is tested with a healthy and with a sick server, and the book has a row for it."""
    tests, book = TESTS.read_text(), (ROOT / "docs/operating.md").read_text()
    for alert in alerts():
        assert len(re.findall(rf"alertname: {alert}\b", tests)) == 2, alert
        assert f"| `{alert}` |" in book, f"docs/operating.md has no remedy for {alert}"


def test_every_finding_has_a_condition_and_a_remedy():
    """docs/doctor.md says when `cairn doctor` finds something, and the book says what to do."""
    sources = (path for path in (ROOT / "crates/doctor/src/findings").glob("*.rs") if path.name != "tests.rs")
    # What limits the rest is no finding.
    texts = [path.read_text() for path in sources if path.name != "limit.rs"]
    kinds = {kind for text in texts for kind in re.findall(r'kind: "([^"]+)"', text)}
    assert len(kinds) > 15, kinds
    conditions, book = (ROOT / "docs/doctor.md").read_text(), (ROOT / "docs/operating.md").read_text()
    for kind in kinds:
        assert f"`{kind}`" in conditions, f"docs/doctor.md has no condition of {kind}"
        assert f"`{kind}`" in book, f"docs/operating.md has no remedy for {kind}"


@pytest.mark.skipif(not PROMTOOL.exists(), reason="no promtool here")
@pytest.mark.parametrize("words", [["check", "rules", RULES], ["test", "rules", TESTS]], ids=["check", "test"])
def test_rules_are_valid_and_alert_when_they_should(words):
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
