"""Two builds beside each other; started by bench/pairs.

Each pair runs a load with one program and then with the other, the first one in turn. The table shows the
median of NEW / OLD over the pairs, and its quartiles.
"""

import argparse
import os
import statistics
from pathlib import Path

from compare import MIB, WORK, Bench


class Side(Bench):
    """One program, with a plain server and one with TLS."""

    def __init__(self, name, program, seconds):
        super().__init__(seconds)
        self.name, self.program = name, str(Path(program).resolve(strict=True))

    def start_cairn(self, name, args=()):
        os.environ["CAIRN_BIN"] = self.program
        return super().start_cairn(f"{name}-{self.name}", args)

    def start(self):
        self.plain = self.start_cairn("plain")
        tls = ["--tls-cert", str(WORK / "cert.pem"), "--tls-key", str(WORK / "key.pem")]
        self.tls = self.start_cairn("tls", tls)


LOADS = {
    "GET 155 KB, HTTP, c=10": lambda side: side.get("http", "155k"),
    "GET 155 KB, S3, c=10": lambda side: side.get("s3", "155k"),
    "GET 430 B, HTTP, c=10": lambda side: side.get("http", "430"),
    "GET 430 B, S3, c=10": lambda side: side.get("s3", "430"),
    "HEAD, HTTP, c=10": lambda side: side.head("http"),
    "GET 430 B, TLS handshake each, c=10": lambda side: side.get_tls("http", "430"),
    "PUT 1 MiB, HTTP, synced, c=16": lambda side: side.put("http", MIB),
    "PUT 10 KB, HTTP, synced, c=16": lambda side: side.put("http", 10_000),
    "PUT 10 KB, S3, synced, c=16": lambda side: side.put("s3", 10_000),
}


def pair(load, sides, turn):
    """NEW / OLD of one pair."""
    order = sides if turn % 2 == 0 else sides[::-1]
    rates = {side.name: load(side) for side in order}
    return rates["new"] / rates["old"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=3, help="of each load")
    parser.add_argument("--only", default="", help="only loads with this in their name")
    arguments = parser.parse_args()
    first, *_ = sides = [
        Side("old", arguments.old, arguments.seconds),
        Side("new", arguments.new, arguments.seconds),
    ]
    first.make_files()
    try:
        for side in sides:
            side.start()
        print("| load | NEW / OLD, median | quartiles |\n|---|---|---|")
        for name, load in LOADS.items():
            if arguments.only not in name:
                continue
            ratios = [pair(load, sides, turn) for turn in range(arguments.pairs)]
            low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            print(f"| {name} | {statistics.median(ratios):.3f} | {low:.3f} to {high:.3f} |", flush=True)
    finally:
        for side in sides:
            side.stop()


main()
