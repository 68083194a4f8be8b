"""One to five gateways, each with a small share of a CPU, so that nothing but them is busy; started
by bench/cluster scaling.

Each round measures each number of gateways; the ratio is to so many times the median of one.
"""

import argparse
import re
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compare import BUCKET, FILES, LOAD, MIB, ROOT, output, settle, spread

sys.path.append(str(ROOT / "tests"))

from harness.cluster import Cluster  # noqa: E402

GATEWAYS = 5
PERIOD_US, TARGET = 50_000, 0.95
# Percent of a CPU for each gateway.
SHARE = {"HEAD": 4, "GET 155 KB": 4, "PUT 1 MiB": 4}


class Quota:
    """A control group of one process, by either version of them."""

    def __init__(self, name):
        v1 = Path("/sys/fs/cgroup/cpu")
        self.is_v1 = v1.is_dir()
        self.group = (v1 if self.is_v1 else Path("/sys/fs/cgroup")) / name
        if not self.is_v1:
            Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+cpu")
        self.group.mkdir(exist_ok=True)

    def add(self, pid):
        (self.group / "cgroup.procs").write_text(str(pid))

    def limit(self, percent):
        quota = PERIOD_US * percent // 100
        if self.is_v1:
            (self.group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.group / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    def free(self):
        if self.is_v1:
            (self.group / "cpu.cfs_quota_us").write_text("-1")
        else:
            (self.group / "cpu.max").write_text("max")

    def remove(self):
        self.free()
        parent = self.group.parent / "cgroup.procs"
        for pid in (self.group / "cgroup.procs").read_text().split():
            parent.write_text(pid)
        self.group.rmdir()


class Scaling:
    def __init__(self, seconds):
        self.seconds, self.number = seconds, 0
        self.cluster = Cluster(chunkservers=3, gateways=GATEWAYS)
        self.quotas = []

    def __enter__(self):
        self.cluster.__enter__()
        http = self.cluster.http("g1")
        http.create_bucket(BUCKET, "public")
        assert http.object("PUT", BUCKET, "155k", bytes(FILES["155k"])).status == 201
        for name in self.names(GATEWAYS):
            self.quotas.append(Quota(f"cairn-bench-{name}"))
            self.quotas[-1].add(self.cluster[name].process.pid)
        return self

    def __exit__(self, *trace):
        for quota in self.quotas:
            quota.remove()
        self.cluster.__exit__(*trace)

    def names(self, count):
        return self.cluster.gateways()[:count]

    def measure(self, what, count):
        """Requests a second of so many gateways together."""
        for quota in self.quotas:
            quota.limit(SHARE[what])
        with ThreadPoolExecutor(count) as pool:
            rates = list(pool.map(lambda name: self.one(what, name), self.names(count)))
        for quota in self.quotas:
            quota.free()
        if what.startswith("PUT"):
            settle()
        print(f"  {what}: {count} gateways {sum(rates):.0f}/s", flush=True)
        return sum(rates)

    def one(self, what, name):
        url = f"{self.cluster[name].http}/storage/{BUCKET}/155k"
        address, _, path = url.removeprefix("http://").partition("/")
        if what.startswith("GET"):
            text = output("wrk", "-t1", "-c4", f"-d{self.seconds}s", url)
            assert "Non-2xx" not in text and "Socket errors" not in text, text
            return float(re.search(r"Requests/sec: +([\d.]+)", text)[1])
        if what == "HEAD":
            return float(output(LOAD, "HEAD", address, "/" + path, 4, self.seconds, 0).split()[0])
        self.number += 1
        auth = "Authorization: " + self.cluster.http(name).auth["Authorization"]
        path = f"/storage/{BUCKET}/put-{self.number}-{name}"
        text = output(LOAD, "PUT", address, path, 4, self.seconds, MIB, "-", auth)
        return float(text.split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args()
    found = {}
    with Scaling(options.seconds) as bench:
        for what in SHARE:
            for count in range(1, GATEWAYS + 1):
                bench.measure(what, count)  # warms caches and connections up
        for _ in range(options.rounds):
            for what in SHARE:
                for count in range(1, GATEWAYS + 1):
                    found.setdefault((what, count), []).append(bench.measure(what, count))
    print("\n| | gateways | a second, median (worst to best) | of linear |\n|---|---|---|---|")
    for (what, count), rates in found.items():
        linear = count * statistics.median(found[what, 1])
        ratio = statistics.median(rates) / linear
        met = "met" if ratio >= TARGET else f"**missed by {1 - ratio / TARGET:.0%}**"
        shown = "" if count == 1 else f"{ratio:.2f} (target {TARGET}: {met})"
        print(f"| {what}, {SHARE[what]} % of a CPU each | {count} | {spread(rates)} | {shown} |")


if __name__ == "__main__":
    main()
