"""Alert rules and the dashboard in contrib/ name metrics that there are, and rules do what they say."""

import json
import re
import subprocess
import urllib.request

import pytest

from harness.cluster import Cluster
from harness.server import ROOT, Server

RULES = ROOT / "contrib/prometheus/cairn.rules.yml"
TESTS = ROOT / "contrib/prometheus/cairn.test.yml"
DASHBOARD = ROOT / "contrib/grafana/cairn.json"
# Metrics of one role only, by their beginning; all others are of servers and of gateways.
OF_SERVERS = ("cairn_meta_",)
OF_GATEWAYS = ("cairn_peer_", "cairn_session_")
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


def exposed(http):
    """Names of metrics: of those that a server has when nothing was asked yet, their description is enough."""
    with urllib.request.urlopen(f"{http}/metrics") as reply:
        text = reply.read().decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    return names | {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")}


def test_every_metric_that_contrib_names_exists():
    names = named()
    assert len(names) > 20, names
    with Server() as server:
        missing = {name for name in names if not name.startswith(OF_GATEWAYS)} - exposed(server.http)
    assert not missing, f"no server has {missing}"
    with Cluster(chunkservers=1, gateways=1, replicas=1) as cluster:
        gateway = cluster.nodes["g1"].http
        missing = {name for name in names if not name.startswith(OF_SERVERS)} - exposed(gateway)
    assert not missing, f"no gateway has {missing}"


def alerts():
    return re.findall(r"^ +- alert: (\w+)", RULES.read_text(), re.M)


def test_every_alert_is_tested_and_has_a_remedy():
    """Each rule is tested with a healthy and with a sick server, and the book has a row for it."""
    tests, book = TESTS.read_text(), (ROOT / "docs/operating.md").read_text()
    for alert in alerts():
        assert len(re.findall(rf"alertname: {alert}\b", tests)) == 2, alert
        assert f"| `{alert}` |" in book, f"docs/operating.md has no remedy for {alert}"


@pytest.mark.skipif(not PROMTOOL.exists(), reason="no promtool here")
@pytest.mark.parametrize("words", [["check", "rules", RULES], ["test", "rules", TESTS]], ids=["check", "test"])
def test_rules_are_valid_and_alert_when_they_should(words):
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
