"""A cluster on this machine beside nginx; started by bench/cluster.

One master with its metadata in its directory, three chunkservers, two gateways: one without a
cache of blocks, one with. Rounds, medians and ratios as in compare.py.
"""

import argparse
import os
import re
import subprocess
import sys
import time

from compare import BUCKET, FILES, LOAD, MIB, ROOT, WORK, Row, output, settle, spread, versions

sys.path.append(str(ROOT / "tests"))

from harness.cluster import Cluster  # noqa: E402
from harness.doors import Http  # noqa: E402
from harness.server import Server  # noqa: E402

NGINX, PROXY = 18091, 18092
CONTROL = ROOT / "target/dist/examples/control_bench"


class Bench:
    def __init__(self, seconds):
        self.seconds = seconds
        self.cluster = Cluster(chunkservers=3, gateways=3)
        self.server = Server()
        self.nginx = None

    def __enter__(self):
        self.make_files()
        text = (ROOT / "bench/proxy.conf").read_text().replace("@WORK@", str(WORK))
        text = text.replace("@NGINX@", str(NGINX)).replace("@PROXY@", str(PROXY))
        (WORK / "proxy.conf").write_text(text)
        path = os.environ["PATH"] + ":/usr/sbin"
        self.nginx = subprocess.Popen(["nginx", "-c", WORK / "proxy.conf"], env={"PATH": path})
        self.server.start()
        self.fill(Http(self.server.http))
        self.start_cluster()
        return self

    def make_files(self):
        (WORK / "root").mkdir(parents=True, exist_ok=True)
        for name, size in FILES.items():
            (WORK / "root" / name).write_bytes(os.urandom(size))

    def fill(self, http):
        http.create_bucket(BUCKET, "public")
        for file in FILES:
            body = (WORK / "root" / file).read_bytes()
            assert http.object("PUT", BUCKET, file, body).status == 201

    def start_cluster(self):
        self.cluster.__enter__()
        self.cluster["g1"].arguments += ["--cache-mib", "0"]
        for name in self.cluster.chunkservers():
            door = self.cluster[name].http.removeprefix("http://")
            self.cluster[name].arguments += ["--http", door]
        for name in ["g1", *self.cluster.chunkservers()]:
            self.cluster.restart(name)
        self.cluster.wait_whole()
        http = self.cluster.http("g1")
        self.fill(http)
        http.create_bucket("single", "public")
        assert http.request("PATCH", "/storage/single?replicas=1").status == 204
        time.sleep(3)

    def __exit__(self, *trace):
        self.cluster.__exit__(*trace)
        self.server.__exit__(*trace)
        self.nginx.terminate()
        self.nginx.wait()

    def url(self, who, file):
        return {
            "nginx": f"http://127.0.0.1:{NGINX}/{file}",
            "proxy": f"http://127.0.0.1:{PROXY}/{file}",
            "server": f"{self.server.http}/storage/{BUCKET}/{file}",
            "uncached": f"{self.cluster['g1'].http}/storage/{BUCKET}/{file}",
            "cached": f"{self.cluster['g2'].http}/storage/{BUCKET}/{file}",
            "redirect": f"{self.cluster['g2'].http}/storage/{BUCKET}/155k?redirect",
        }[who]

    def get(self, who, file):
        url = self.url(who, file)
        text = output("wrk", "-t2", "-c10", f"-d{self.seconds}s", url)
        assert "Non-2xx" not in text and "Socket errors" not in text, text
        return float(re.search(r"Requests/sec: +([\d.]+)", text)[1])

    def put(self, bucket):
        http = self.cluster.http("g1")
        auth = "Authorization: " + http.auth["Authorization"]
        address = self.cluster["g1"].http.removeprefix("http://")
        path = f"/storage/{bucket}/put-{time.monotonic_ns()}"
        text = output(LOAD, "PUT", address, path, 16, self.seconds, MIB, "-", auth)
        settle()
        return float(text.split()[0])

    def master_calls(self):
        """Calls of the gateway with a cache to the master, but for renewals, so far."""
        text = self.cluster.http("g2").request("GET", "/metrics").body.decode()
        return float(re.search(r"^cairn_session_calls_total ([\d.]+)", text, re.M)[1])


def rows(bench):
    get = lambda who, file: lambda: bench.get(who, file)  # noqa: E731
    names = ("proxy", "nginx", "server", "uncached", "cached")
    return [
        Row("GET 155 KB, c=10", {who: get(who, "155k") for who in names}, "proxy",
            {"uncached": 1.2}),
        Row("GET 155 KB, c=10", {who: get(who, "155k") for who in ("server", "cached")}, "server",
            {"cached": 0.9}),
        Row("GET 430 B, c=10", {who: get(who, "430") for who in names}, "proxy", {}),
        Row("redirects, c=10", {"nginx": get("nginx", "redirect"), "cached": get("redirect", "")},
            "nginx", {"cached": 0.5}),
        Row("PUT 1 MiB, c=16", {"single": lambda: bench.put("single"),
                                "three": lambda: bench.put(BUCKET)}, "single", {"three": 0.27}),
    ]  # fmt: skip


def table(measured):
    lines = ["| | contender | a second, median (worst to best) | ratio |", "|---|---|---|---|"]
    for row in measured:
        for who in row.contenders:
            lines.append(f"| {row.what} | {who} | {row.cell(who)} | {row.ratio(who)} |")
    return "\n".join(lines)


def control(cluster, gateway, rounds, seconds):
    """Lookups and creates over the network, by a gateway that does not run."""
    cluster.kill(gateway)
    found = {}
    for _ in range(rounds):
        text = output(CONTROL, cluster[gateway].directory, seconds)
        for flight, what, rate in re.findall(r"^ +(\d+)  (.*?) {2,}(\d+)$", text, re.M):
            found.setdefault((what, int(flight)), []).append(float(rate))
    lines = ["| over the network | in flight | a second, median (worst to best) |", "|---|---|---|"]
    lines += [f"| {what} | {flight} | {spread(found[what, flight])} |" for what, flight in found]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args()
    with Bench(options.seconds) as bench:
        measured = rows(bench)
        bench.get("cached", "155k")
        before = bench.master_calls()
        bench.get("cached", "155k")
        calls = bench.master_calls() - before
        for number in range(options.rounds):
            for row in measured:
                row.measure(number)
        inside = control(bench.cluster, "g3", options.rounds, options.seconds)
    with Cluster(gateways=1, postgres=True) as cluster:
        postgres = control(cluster, "g1", options.rounds, options.seconds)
    print(f"\n{versions()}; calls to the master while cached objects were read: {calls:.0f}\n")
    print(f"{table(measured)}\n\n{inside}\n\nWith PostgreSQL:\n\n{postgres}")


if __name__ == "__main__":
    main()
