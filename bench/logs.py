"""The measurement of the log service; started by bench/logs.

Every round runs all rows one after the other, each on a store of its own; the table shows medians
over the rounds, with the worst and the best. Client and server share the machine.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import time
from pathlib import Path

from compare import BUCKET, ROOT, WORK, cpu_seconds, output, settle
from harness.doors import Http
from harness.server import Server, binary

CLIENT = WORK / "logs"
RECORDS, RECORD_BYTES = 1000, 200
AT_ONCE = 64
READERS = 16
FOLLOWERS = 1000


def message(length):
    """A line of an access log."""
    line = '10.1.2.3 - - [26/Nov/2026:20:00:00 +0000] "GET /items/%d HTTP/1.1" 200 %d "-" "curl/8.0" '
    text = line % (length, length * 7)
    return (text * (length // len(text) + 1))[:length]


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(tag, body):
    return varint(tag << 3 | 2) + varint(len(body)) + body


def snappy(body):
    """Valid, but not packed."""
    out = varint(len(body))
    for start in range(0, len(body), 60):
        piece = body[start : start + 60]
        out += bytes([len(piece) - 1 << 2]) + piece
    return out


def loki(count):
    """As Promtail sends it: protobuf in snappy."""
    stamp = b"\x08" + varint(1_700_000_000)
    line = message(RECORD_BYTES).encode()
    entries = field(2, field(1, stamp) + field(2, line)) * count
    return snappy(field(1, field(1, b'{job="app"}') + entries))


def loki_json(count):
    values = [["1700000000000000000", message(RECORD_BYTES)]] * count
    return json.dumps({"streams": [{"stream": {"job": "app"}, "values": values}]}).encode()


def bulk(count, length=RECORD_BYTES):
    document = json.dumps({"message": ""})
    document = json.dumps({"message": message(length - len(document))})
    return (f'{{"create":{{}}}}\n{document}\n' * count).encode()


def lines(count, length=RECORD_BYTES):
    return (message(length - 1) + "\n").encode() * count


class Row:
    """What is measured in each round. `beside` names a row of the same rounds, to which this one is
    compared round by round, and the least ratio if there is one to reach."""

    def __init__(self, what, unit, measure, target=None, is_time=False, beside=None):
        self.what, self.unit, self.measure, self.target = what, unit, measure, target
        self.is_time, self.beside, self.numbers, self.cpu = is_time, beside, [], []

    def median(self):
        return statistics.median(self.numbers)

    def verdict(self, rows):
        if self.target is not None:
            target, shown = self.target
            is_met = self.median() <= target if self.is_time else self.median() >= target
            return f"{shown}: {'met' if is_met else '**missed**'}"
        if self.beside is None:
            return ""
        name, least = self.beside
        ratios = [own / other for own, other in zip(self.numbers, rows[name].numbers, strict=True)]
        ratio = statistics.median(ratios)
        shown = f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) x {rows[name].what}"
        if least is None:
            return shown
        return f"{shown}; {least}: {'met' if ratio >= least else '**missed**'}"

    def line(self, rows):
        worst, best = sorted([min(self.numbers), max(self.numbers)], reverse=self.is_time)
        figure = f"{self.median():,.0f} ({worst:,.0f} to {best:,.0f})"
        cpu = ""
        if self.cpu:
            cpu = f"{statistics.median(self.cpu):,.0f} ({min(self.cpu):,.0f} to {max(self.cpu):,.0f})"
        return f"| {self.what} | {self.unit} | {figure} | {cpu} | {self.verdict(rows)} |"


class Bench:
    def __init__(self, seconds):
        self.seconds, self.stores, self.cpu = seconds, 0, None

    def fresh(self, *args):
        """A server; `WORK` in its arguments is a directory of its own."""
        self.stores += 1
        directory = WORK / f"log-store-{self.stores}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        own = [arg.replace("WORK", str(directory)) for arg in args]
        server = Server(directory / "data", args=own).start()
        Http(server.http).create_bucket(BUCKET)
        return server

    def end(self, server):
        server.kill()
        shutil.rmtree(server.work)
        settle()

    def headers(self, server, *more):
        return ["Authorization: " + Http(server.http).auth["Authorization"], *more]

    def post(self, path, body, records, *headers, connections=AT_ONCE):
        def measure():
            server = self.fresh()
            # Once before, so that buckets and files are there; and it must be taken.
            named = dict(header.split(": ") for header in headers)
            reply = Http(server.http).request("POST", path, body, named)
            assert reply.status in (200, 204) and b'"errors":true' not in reply.body, reply
            (WORK / "body").write_bytes(body)
            address = server.http.removeprefix("http://")
            rate = self.requests(server, CLIENT, "post", address, path, connections, self.seconds,
                                 WORK / "body", *self.headers(server, *headers))  # fmt: skip
            self.end(server)
            return rate * records

        return measure

    def put(self, *args):
        def measure():
            server = self.fresh(*args)
            address = server.http.removeprefix("http://")
            rate = self.requests(server, WORK / "load", "PUT", address, f"/storage/{BUCKET}/put",
                                 AT_ONCE, self.seconds, 430, "-", *self.headers(server))  # fmt: skip
            self.end(server)
            return rate

        return measure

    def get(self, *args):
        def measure():
            server = self.fresh(*args)
            reply = Http(server.http).object("PUT", BUCKET, "small", message(430).encode())
            assert reply.status == 201, reply
            address = server.http.removeprefix("http://")
            rate = self.requests(server, CLIENT, "get", address, f"/storage/{BUCKET}/small", READERS,
                                 self.seconds, *self.headers(server))  # fmt: skip
            self.end(server)
            return rate

        return measure

    def requests(self, server, *command):
        """Runs a client; returns requests a second, and notes the server's CPU time for each."""
        before = cpu_seconds(server.process.pid)
        rate, _, _, count = map(float, output(*command).split())
        self.cpu = (cpu_seconds(server.process.pid) - before) / count * 1e6
        metrics = Http(server.http).request("GET", "/metrics").body.decode()
        if lost := re.findall(r'^cairn_sink_lines_total\{.*outcome="lost".*\} ([1-9]\d*)', metrics, re.M):
            print(f"    {sum(map(int, lost)):,} of {count:,.0f} lines were lost: a sink was too slow", flush=True)
        return rate

    def follow(self, followers, rate, batch):
        def measure():
            server = self.fresh()
            http = Http(server.http)
            path = f"/storage/{BUCKET}/followed"
            assert http.request("PUT", path, b"").status == 201
            text = output(CLIENT, "follow", server.http.removeprefix("http://"), path, followers,
                          rate, batch, self.seconds * 2, *self.headers(server))  # fmt: skip
            p50, p99, most, records, late = map(float, text.split())
            metrics = http.request("GET", "/metrics").body.decode()
            count = re.search(r'^cairn_follow_reads_total\{for="all"\} (\d+)', metrics, re.M)[1]
            appends = records / batch
            print(f"    p50 {p50:.0f} us, max {most:.0f} us, {late:.0f} of {records:.0f} late, "
                  f"{int(count)} reads for {appends:.0f} appends", flush=True)  # fmt: skip
            self.end(server)
            return p99 / 1000

        return measure

    def rsyslog(self):
        """Messages over TCP into a file that is synced after each batch."""
        directory = WORK / "rsyslog"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        target = directory / "out.log"
        (directory / "conf").write_text(f"""
global(workDirectory="{directory}")
module(load="imtcp")
template(name="line" type="string" string="%msg%\\n")
input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="all")
ruleset(name="all") {{
    action(type="omfile" file="{target}" template="line" sync="on" flushOnTXEnd="on")
}}
""")
        command = ["rsyslogd", "-n", "-f", directory / "conf", "-i", directory / "pid"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   env={"PATH": "/usr/sbin:/usr/bin:/bin"})  # fmt: skip
        try:
            while True:
                try:
                    connection = socket.create_connection(("127.0.0.1", port))
                    break
                except OSError:
                    time.sleep(0.05)
            text = message(RECORD_BYTES)
            line = f"<14>1 2026-11-26T20:00:00Z host app - - - {text}\n".encode()
            count = 50_000 * self.seconds
            begun = time.monotonic()
            with connection:
                for _ in range(count // 1000):
                    connection.sendall(line * 1000)
            before, changed = 0, time.monotonic()
            # Until all are there, or nothing comes any more.
            while before < count * RECORD_BYTES and time.monotonic() < changed + 10:
                size = target.stat().st_size if target.exists() else 0
                if size > before:
                    before, changed = size, time.monotonic()
                time.sleep(0.01)
            return before / (RECORD_BYTES + 1) / (changed - begun)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def rows(bench):
    append = f"/storage/{BUCKET}/lines?append"
    as_json, protobuf = "Content-Type: application/json", "Content-Type: application/x-protobuf"
    at_least = lambda number: (number, f"{number:,}")  # noqa: E731
    at_most = lambda number: (number, f"{number} ms")  # noqa: E731
    audited, accessed = ("--audit-log", "WORK/audit.jsonl"), ("--access-log", "WORK/access.jsonl")
    found = {
        "put": Row("PUT of 430 B, 64 clients", "requests/s", bench.put()),
        "one": Row("`?append`, one record of 430 B, 64 clients", "requests/s",
                   bench.post(append, lines(1, 430), 1), beside=("put", 0.8)),
        "one-bulk": Row("`_bulk`, one record of 430 B, 64 clients", "requests/s",
                        bench.post("/app/_bulk", bulk(1, 430), 1, as_json), beside=("put", 0.8)),
        "audit-file": Row("the same PUT with `--audit-log`", "requests/s",
                          bench.put(*audited), beside=("put", 0.9)),
        "audit-bucket": Row("the same PUT with `--audit-bucket`", "requests/s",
                            bench.put("--audit-bucket", "audit"), beside=("put", 0.9)),
        "get": Row("GET of 430 B, 16 clients", "requests/s", bench.get()),
        "access-log": Row("the same GET with `--access-log`", "requests/s",
                          bench.get(*accessed), beside=("get", None)),
        "ndjson": Row("`?append`, 1,000 records of 200 B", "records/s",
                      bench.post(append, lines(RECORDS), RECORDS), at_least(500_000)),
        "loki": Row("Loki, protobuf, 1,000 records of 200 B", "records/s",
                    bench.post("/loki/api/v1/push", loki(RECORDS), RECORDS, protobuf),
                    at_least(200_000)),
        "loki-json": Row("Loki, JSON, 1,000 records of 200 B", "records/s",
                         bench.post("/loki/api/v1/push", loki_json(RECORDS), RECORDS, as_json)),
        "bulk": Row("`_bulk`, 1,000 records of 200 B", "records/s",
                    bench.post("/app/_bulk", bulk(RECORDS), RECORDS, as_json), at_least(200_000)),
        "follow": Row("follower's p99 at 10,000 records/s", "ms",
                      bench.follow(1, 10_000, 100), at_most(20), is_time=True),
        "followers": Row("p99 of 1,000 followers at 100 records/s", "ms",
                         bench.follow(FOLLOWERS, 100, 1), at_most(100), is_time=True),
    }  # fmt: skip
    if shutil.which("rsyslogd", path="/usr/sbin:/usr/bin:/bin"):
        found["rsyslog"] = Row("rsyslog, TCP to a synced file, records of 200 B", "records/s",
                               bench.rsyslog)  # fmt: skip
    return found


def machine():
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    fs = output("findmnt", "-no", "FSTYPE", "-T", WORK).strip()
    commit = output("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip()
    return (
        f"{cpu}, {os.cpu_count()} cores shared by client and server, Linux {platform.release()}, "
        f"{fs}; {time.strftime('%Y-%m-%d')}, Cairn {commit}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", help="rows whose names have one of these words: audit|access")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.seconds)
    all_rows = rows(bench)
    words = args.only.split("|") if args.only else [""]
    chosen = {name for name in all_rows if any(word in name for word in words)}
    # And those that they are compared to.
    chosen |= {all_rows[name].beside[0] for name in chosen if all_rows[name].beside}
    wanted = {name: row for name, row in all_rows.items() if name in chosen}
    if not wanted:
        parser.error(f"--only {args.only}: rows are {', '.join(all_rows)}")
    for turn in range(args.rounds):
        names = list(wanted)
        turn %= len(names)
        for name in names[turn:] + names[:turn]:
            bench.cpu = None
            wanted[name].numbers.append(wanted[name].measure())
            wanted[name].cpu += [bench.cpu] if bench.cpu else []
            print(f"  {wanted[name].what}: {wanted[name].numbers[-1]:,.1f}", flush=True)
    program = f"the profile `{os.environ['PROFILE']}`" if "PROFILE" in os.environ else binary()
    only = f" --only '{args.only}'" if args.only else ""
    shown = f"bench/logs --rounds {args.rounds} --seconds {args.seconds}{only}"
    print(f"\n`{shown}` with {program} on {machine()}\n")
    print("| | | median (worst to best) | CPU of the server, us a request | target |\n|---|---|---|---|---|")
    for row in wanted.values():
        print(row.line(wanted))


if __name__ == "__main__":
    main()
