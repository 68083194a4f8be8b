#!/usr/bin/env python3
"""Measures how long the loss of the machine whose master serves is felt, again and again.

    target/venv/bin/python tests/cluster/failover.py [--rounds N] [--how kill|cut|stop]

Each round kills that machine (`kill -9`), cuts it off from the other two, or stops its process
(SIGSTOP). It measures through each machine that is left when a write and an uncached read go on,
and for how long /readyz of these machines was not 200 and did not say that there was no master.
Then the machine comes back. Prints medians, p90 and the most. Ends with 1 if anything was lost or wrong.
"""

import argparse
import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.deaths import Deaths  # noqa: E402
from cluster.load import BUCKET, LOST  # noqa: E402
from cluster.machine_report import percentile  # noqa: E402
from harness.machines import Machines  # noqa: E402

LOOK_SECONDS = 0.1


class Readiness(threading.Thread):
    """Asks one gateway again and again for /readyz. Notes when it first said that no master answers,
    and what it answered but 200."""

    def __init__(self, cluster, name):
        super().__init__()
        self.http = cluster.http(name, timeout=2)
        self.said, self.unready, self.ended = None, [], threading.Event()

    def run(self):
        while not self.ended.wait(LOOK_SECONDS):
            try:
                reply = self.http.request("GET", "/readyz")
            except LOST as error:
                self.unready.append((time.monotonic(), repr(error)))
                continue
            if reply.status != 200:
                self.unready.append((time.monotonic(), reply.body.decode()))
            conditions = json.loads(reply.body)["conditions"]
            [master] = [one for one in conditions if one["name"] == "master"]
            if self.said is None and "no master" in master["state"]:
                self.said = time.monotonic()

    def end(self):
        self.ended.set()
        self.join()


def hurt(cluster, name, how):
    {"kill": cluster[name].kill, "stop": cluster[name].pause, "cut": lambda: cluster.network.cut(name)}[how]()


def heal(cluster, name, how):
    {"kill": cluster[name].start, "stop": cluster[name].resume, "cut": cluster.network.heal}[how]()


def one_round(cluster, deaths, how):
    """Returns the name of the machine, when each survivor said that there was no master, and what
    was not 200."""
    deaths.cold.fill()
    name = cluster.serving().name
    left = [other for other in cluster.machines() if other != name]
    watches = {other: Readiness(cluster, other) for other in left}
    for watch in watches.values():
        watch.start()
    hurt(cluster, name, how)
    struck = time.monotonic()
    deaths.probe_all(struck, left)
    for watch in watches.values():
        watch.end()
    heal(cluster, name, how)
    cluster.wait_whole()
    said = [watch.said - struck for watch in watches.values() if watch.said]
    unready = [(at - struck, text) for watch in watches.values() for at, text in watch.unready]
    return name, said, unready


def run(rounds, how, echo=print):
    """Returns (what was wrong, times of writes and reads, when it was said, what was not ready)."""
    wrong, said, unready = [], [], []
    with Machines() as cluster:
        cluster.s3("n1").create_bucket(BUCKET)
        deaths = Deaths(cluster, wrong)
        for number in range(1, rounds + 1):
            name, when, not_ready = one_round(cluster, deaths, how)
            said, unready = said + when, unready + not_ready
            last = {kind: max(times[-2:]) for kind, times in deaths.times.items()}
            echo(
                f"failover {number}: {how} {name}: write {last['write']:.1f} s, read {last['read']:.1f} s, "
                f"said {max(when, default=0):.1f} s, not ready {len(not_ready)} times"
            )
        cluster.keep = bool(wrong)
        return wrong, deaths.times, said, unready


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--how", choices=["kill", "cut", "stop"], default="kill")
    args = parser.parse_args()
    wrong, times, said, unready = run(args.rounds, args.how)
    for kind, all_times in [*times.items(), ("text of /readyz", said)]:
        if all_times:
            p50, p90 = percentile(all_times, 50), percentile(all_times, 90)
            print(f"failover: {kind}: p50 {p50:.1f} s, p90 {p90:.1f} s, most {max(all_times):.1f} s, {len(all_times)} times")
    for at, text in unready[:5]:
        print(f"failover: not ready {at:.1f} s after: {text}")
    for text in wrong:
        print(f"failover: WRONG: {text}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
