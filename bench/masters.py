"""Metadata that three masters keep together, beside those of one master; started by bench/masters.

Two clusters run at the same time: one has three masters on the engine `raft`, the other one has one
on `embedded`. Both have three chunkservers, and all is on one disk. One cluster at a time is
measured, in turning order, while the other one is idle; what CPU time that one takes is shown.
Ratios are those of the rounds.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from compare import (
    BUCKET, FILES, LOAD, MIB, ROOT, commit, cpu_seconds, machine, output, settle, spread,
)  # fmt: skip

sys.path.append(str(ROOT / "tests"))

from harness.cluster import Cluster  # noqa: E402
from harness.server import binary  # noqa: E402

REST_SECONDS, REST_SHARE, PATIENCE_SECONDS = 1, 0.2, 120
# What `control_bench` measures, as the table has it.
SHOWN = {
    "lookups, answered by the master": "lookups that the master answers",
    "creates, one directory": "durable creates, one directory",
    "creates, 1000": "durable creates, 1,000 directories",
}
# The least ratio of three masters to one. None: no difference is expected.
TARGETS = {
    ("durable creates, one directory", 1024): 0.35, ("durable creates, 1,000 directories", 1024): 0.35,
    ("PUT 1 MiB", 16): 0.9, ("GET 430 B, cached", 10): None, ("GET 155 KB, cached", 10): None,
}  # fmt: skip
EXAMPLES = """examples:
  bench/masters                              5 rounds of 4 s for each load
  bench/masters --rounds 1 --only creates    what the masters do by themselves
"""


class Side:
    """One of the two clusters. Its gateway `g2` does not run: `control_bench` uses its directory."""

    def __init__(self, masters, engine):
        self.cluster = Cluster(chunkservers=3, gateways=2, masters=masters, engine=engine)
        self.name = f"{masters} master{'s' * (masters > 1)}, `{engine or 'raft'}`"

    def __enter__(self):
        self.cluster.__enter__()
        try:
            self.cluster["g2"].stop()
            http = self.cluster.http("g1")
            http.create_bucket(BUCKET, "public")
            for file, size in FILES.items():
                assert http.object("PUT", BUCKET, file, os.urandom(size)).status == 201
        except BaseException:
            self.cluster.__exit__(BaseException)
            raise
        return self

    def __exit__(self, *trace):
        self.cluster.__exit__(*trace)

    def cpu(self, roles=("master", "chunkserver", "gateway")):
        nodes = [node for node in self.cluster.nodes.values() if node.role in roles and node.process]
        return sum(cpu_seconds(node.process.pid) for node in nodes)

    def masters_cpu(self):
        return self.cpu(["master"])


# ---------------------------------------------------------------- loads

# Each yields what it measured, how many were in flight, how many a second, and the CPU seconds of
# all masters for each.


def control(side, seconds):
    """Lookups and durable creates over the network, as a gateway asks for them."""
    program = Path(binary()).parent / "examples/control_bench"
    command = [program, side.cluster["g2"].directory, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        cpu, began = side.masters_cpu(), time.monotonic()
        # There is a line when each of them has ended.
        for line in process.stdout:
            cpu_now, now = side.masters_cpu(), time.monotonic()
            if found := re.match(r" +(\d+)  (.*?) {2,}(\d+)$", line):
                rate = int(found[3])
                yield SHOWN[found[2]], int(found[1]), rate, (cpu_now - cpu) / (rate * (now - began))
            cpu, began = cpu_now, now
    if process.returncode != 0:
        raise SystemExit(f"{command}: exit {process.returncode}")


def put(side, seconds):
    http = side.cluster.http("g1")
    address, auth = side.cluster["g1"].http.removeprefix("http://"), http.auth["Authorization"]
    path = f"/storage/{BUCKET}/put-{time.monotonic_ns()}"
    cpu = side.masters_cpu()
    text = output(LOAD, "PUT", address, path, 16, seconds, MIB, "-", f"Authorization: {auth}")
    rate, _, _, count = map(float, text.split())
    yield "PUT 1 MiB", 16, rate, (side.masters_cpu() - cpu) / count


def get(file, size):
    def load(side, seconds):
        url = f"{side.cluster['g1'].http}/storage/{BUCKET}/{file}"
        output("curl", "-sSf", "-o", "/dev/null", url)  # from now on it is cached
        cpu = side.masters_cpu()
        text = output("wrk", "-t2", "-c10", f"-d{seconds}s", url)
        assert "Non-2xx" not in text and "Socket errors" not in text, text
        count = int(re.search(r"(\d+) requests in", text)[1])
        rate = float(re.search(r"Requests/sec: +([\d.]+)", text)[1])
        yield f"GET {size}, cached", 10, rate, (side.masters_cpu() - cpu) / count

    return load


LOADS = {
    "lookups and creates": control,
    "GET 430 B, cached": get("430", "430 B"),
    "GET 155 KB, cached": get("155k", "155 KB"),
    "PUT 1 MiB": put,
}


# ---------------------------------------------------------------- rounds


class Rounds:
    def __init__(self, sides, seconds):
        self.sides, self.seconds = sides, seconds
        self.rates, self.cpu, self.idle = {}, {}, []

    def measure(self, load, turn):
        for side in self.sides if turn % 2 == 0 else self.sides[::-1]:
            self.rest()
            others = [other for other in self.sides if other is not side]
            began, before = time.monotonic(), [other.cpu() for other in others]
            for what, flight, rate, cpu in load(side, self.seconds):
                print(f"  {what}, {flight} in flight: {side.name} {rate:.0f}/s", flush=True)
                self.rates.setdefault((what, flight), {}).setdefault(side.name, []).append(rate)
                self.cpu.setdefault((what, flight), {}).setdefault(side.name, []).append(cpu * 1e6)
            used = [other.cpu() - cpu for other, cpu in zip(others, before)]
            self.idle.append(100 * sum(used) / (time.monotonic() - began))

    def rest(self):
        """Waits until what was measured before is on the disk and neither cluster works on it."""
        end = time.monotonic() + PATIENCE_SECONDS
        settle()
        while time.monotonic() < end:
            before = [side.cpu() for side in self.sides]
            time.sleep(REST_SECONDS)
            used = sum(side.cpu() - cpu for side, cpu in zip(self.sides, before))
            if used < REST_SHARE * REST_SECONDS:
                return
        print(f"  not idle after {PATIENCE_SECONDS} s", flush=True)

    def table(self):
        lines = [
            "| | in flight | masters | a second, median (worst to best) | CPU of all masters, us each | ratio |",
            "|---|---|---|---|---|---|",
        ]
        for row, rates in self.rates.items():
            for side in self.sides:
                cpu = statistics.median(self.cpu[row][side.name])
                ratio = "" if side is self.sides[-1] else self.ratio(row)
                lines.append(
                    f"| {row[0]} | {row[1]:,} | {side.name} | {spread(rates[side.name])} | {cpu:,.1f} | {ratio} |"
                )
        return "\n".join(lines)

    def ratio(self, row):
        """Of three masters to one, round by round."""
        three, one = (self.rates[row][side.name] for side in self.sides)
        ratios = [rate / other for rate, other in zip(three, one)]
        ratio, low, high = statistics.median(ratios), min(ratios), max(ratios)
        shown = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
        if row not in TARGETS:
            return shown
        if (target := TARGETS[row]) is None:
            return f"{shown}; {'no difference' if low <= 1 <= high else '**a difference**'}"
        met = "met" if ratio >= target else f"**missed by {1 - ratio / target:.0%}**"
        return f"{shown}; {target}: {met}"


def main():
    parser = argparse.ArgumentParser(
        prog="bench/masters", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each load")
    parser.add_argument("--only", default="", help="only loads with this word")
    options = parser.parse_args()
    loads = {name: load for name, load in LOADS.items() if options.only in name}
    if not loads:
        raise SystemExit(f"no load has the word {options.only!r}; there are: {', '.join(LOADS)}")
    with Side(3, None) as three, Side(1, "embedded") as one:
        found = Rounds([three, one], options.seconds)
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            for load in loads.values():
                found.measure(load, number)
    idle = f"{statistics.median(found.idle):.1f} % of one core, at most {max(found.idle):.1f} %"
    command = " ".join(["bench/masters", *sys.argv[1:]])
    print(f"\n`{command}` on {machine(commit())}.\n")
    print(f"{options.rounds} alternating rounds of {options.seconds} s a load. Both clusters ran all the time, and")
    print(f"the one that was not measured took {idle}.\n\n{found.table()}")


if __name__ == "__main__":
    main()
