"""Two builds beside each other; started by bench/pairs.

Each pair runs a load with one program and then with the other, the first one in turn. The table shows the
median of NEW / OLD over the pairs, and its quartiles; of times, OLD / NEW: more than 1 is better.
"""

import argparse
import os
import shutil
import statistics
from pathlib import Path

import cluster
import compare
import mount
from compare import BUCKET, MIB, WORK


class Servers(compare.Bench):
    """The loads of bench/run: a plain server and one with TLS."""

    def __init__(self, name, seconds):
        super().__init__(seconds)
        self.name = name

    def start_cairn(self, name, args=()):
        return super().start_cairn(f"{name}-{self.name}", args)

    def start(self):
        self.make_files()
        self.plain = self.start_cairn("plain")
        tls = ["--tls-cert", str(WORK / "cert.pem"), "--tls-key", str(WORK / "key.pem")]
        self.tls = self.start_cairn("tls", tls)

    def put(self, who, size):
        """Removes the store at once: those of all pairs would fill the disk."""
        rate = super().put(who, size)
        shutil.rmtree(self.writes.work)
        compare.settle()
        return rate

    def get_of_page(self, who):
        """The bucket has no rules of CORS."""
        return self.wrk(self.url(who, "430"), 10, "Origin: https://site.example")

    def loads(self):
        return {
            "GET 155 KB, HTTP, c=10": lambda: self.get("http", "155k"),
            "GET 155 KB, S3, c=10": lambda: self.get("s3", "155k"),
            "GET 1 MiB, HTTP, c=10": lambda: self.get("http", "1m"),
            "GET 20 MiB, HTTP, c=10": lambda: self.get("http", "20m"),
            "GET 430 B, HTTP, c=10": lambda: self.get("http", "430"),
            "GET 430 B, S3, c=10": lambda: self.get("s3", "430"),
            "GET 430 B of a page of another site, HTTP, c=10": lambda: self.get_of_page("http"),
            "GET 430 B of a page of another site, S3, c=10": lambda: self.get_of_page("s3"),
            "HEAD, HTTP, c=10": lambda: self.head("http", "155k"),
            "GET 430 B, TLS handshake each, c=10": lambda: self.get_tls("http", "430"),
            "PUT 1 MiB, HTTP, synced, c=16": lambda: self.put("http", MIB),
            "PUT 10 KB, HTTP, synced, c=16": lambda: self.put("http", 10_000),
            "PUT 10 KB, S3, synced, c=16": lambda: self.put("s3", 10_000),
        }


class Mounts(mount.Cairn):
    """The loads of bench/mount: a server and a mount of it."""

    def __init__(self, name, _seconds):
        self.data = WORK / f"mounts-{name}"
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        super().__init__(self.data)

    def start(self):
        super().start()
        mount.prepare(self)

    def stop(self):
        super().stop()
        shutil.rmtree(self.data, ignore_errors=True)

    def loads(self):
        return {row.name: lambda row=row: self.measure(row) for row in mount.ROWS}

    def measure(self, row):
        """More is better, of times, too."""
        figure = mount.measure(self, row)
        return 1 / figure if (row.target or 0) < 0 else figure


class Clusters(cluster.Bench):
    """The loads of bench/cluster: three chunkservers, a gateway with a cache and one without."""

    def __init__(self, _name, seconds):
        super().__init__(seconds)

    def start(self):
        self.make_files()
        self.start_cluster()

    def stop(self):
        self.cluster.__exit__(None)

    def put(self, bucket):
        """Goes on with an empty cluster: the objects of all pairs would fill the disk."""
        rate = super().put(bucket)
        self.stop()
        self.start_cluster()
        return rate

    def loads(self):
        return {
            "GET 155 KB, not cached, c=10": lambda: self.get("uncached", "155k"),
            "GET 155 KB, cached, c=10": lambda: self.get("cached", "155k"),
            "GET 430 B, cached, c=10": lambda: self.get("cached", "430"),
            "PUT 1 MiB, one copy, c=16": lambda: self.put("single"),
            "PUT 1 MiB, three copies, c=16": lambda: self.put(BUCKET),
        }


class Side:
    """One program."""

    def __init__(self, name, program, bench):
        self.program, self.bench = str(Path(program).resolve(strict=True)), bench
        self.name = name

    def run(self, act):
        os.environ["CAIRN_BIN"] = self.program
        return act()

    def measure(self, load):
        return self.run(self.bench.loads()[load])


def pair(load, sides, turn):
    """NEW / OLD of one pair."""
    order = sides if turn % 2 == 0 else sides[::-1]
    rates = {side.name: side.measure(load) for side in order}
    return rates["new"] / rates["old"]


def main():
    benches = {"run": Servers, "mount": Mounts, "cluster": Clusters}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--of", choices=benches, default="run", help="which benchmark's loads")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=3, help="of each load of servers and clusters")
    parser.add_argument("--only", default="", help="only loads with this in their name")
    arguments = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    make = benches[arguments.of]
    programs = {"old": arguments.old, "new": arguments.new}
    sides = [Side(name, it, make(name, arguments.seconds)) for name, it in programs.items()]
    try:
        for side in sides:
            side.run(side.bench.start)
        print("| load | NEW / OLD, median | quartiles |\n|---|---|---|", flush=True)
        for load in sides[0].bench.loads():
            if arguments.only not in load:
                continue
            ratios = [pair(load, sides, turn) for turn in range(arguments.pairs)]
            low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            print(f"| {load} | {statistics.median(ratios):.3f} | {low:.3f} to {high:.3f} |", flush=True)
    finally:
        for side in sides:
            side.bench.stop()


if __name__ == "__main__":
    main()
