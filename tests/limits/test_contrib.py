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

RULES = ROOT / "contrib/prometheus/cairn.rules.yml"
TESTS = ROOT / "contrib/prometheus/cairn.test.yml"
DASHBOARD = ROOT / "contrib/grafana/cairn.json"
# Metrics of some roles only, by their beginning; all others are of every role.
ROLES = {
    "cairn_meta_": {"server", "master"},
    "cairn_peer_": {"gateway"},
    "cairn_session_": {"gateway"},
    "cairn_cache_": {"server", "gateway"},
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


def roles_of(name):
    found = (roles for beginning, roles in ROLES.items() if name.startswith(beginning))
    return next(found, {"server", "gateway", "master", "chunkserver"})


def told(http, accept="text/plain"):
    request = urllib.request.Request(f"{http}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request) as reply:
        return reply.read().decode()


def check(role, http):
    """Every metric that is named of this role is there, even where nothing was asked yet."""
    text = told(http)
    names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    names |= {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")}
    missing = {name for name in named() if role in roles_of(name)} - names
    assert not missing, f"no {role} has {missing}"
    for name in ("cairn_build_info", "process_cpu_seconds_total", "process_resident_memory_bytes"):
        assert re.search(rf"^{name}\b", text, re.M), f"{role}: {name}"
    assert told(http, "application/openmetrics-text").endswith("# EOF\n"), role
    if PROMTOOL.exists():
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), role


def test_every_metric_that_contrib_names_exists_and_is_clean():
    assert len(named()) > 25, named()
    with Server() as server:
        Http(server.http).request("PUT", "/storage/bucket")
        check("server", server.http)
    with Cluster(chunkservers=1, gateways=1, replicas=1, status=True) as cluster:
        for name, role in (("g1", "gateway"), ("m1", "master"), ("c1", "chunkserver")):
            check(role, cluster.nodes[name].http)
            with urllib.request.urlopen(f"{cluster.nodes[name].http}/readyz") as reply:
                ready = json.load(reply)
            assert ready["ready"] and ready["role"] == role, ready
        # Without a master a chunkserver says why it is not ready.
        cluster.kill("m1")
        reply = cluster.wait(lambda: unready(cluster.nodes["c1"].http), "the chunkserver is not ready")
        unmet = [condition["name"] for condition in reply["conditions"] if not condition["met"]]
        assert unmet == ["master"] and reply["reasons"] == ["no master answers"], reply


def unready(http):
    try:
        urllib.request.urlopen(f"{http}/readyz").close()
    except urllib.error.HTTPError as error:
        return json.load(error)
    return None


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
