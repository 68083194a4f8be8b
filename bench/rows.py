"""Metadata with many rows at rest; started by bench/rows.

A dump of a store with one bucket is made: directories with 1,000 files each, every file with 100
bytes in its inode. It is loaded into a new store, whose server then has so little memory, page
cache included, that most rows are on the disk alone. What one file of rows costs is measured:
lookups and creates at random places, checkpoints, starts, dumps, checks.
"""

import argparse
import bisect
import contextlib
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from compare import BUCKET, MIB, ROOT, WORK, commit, machine, output

sys.path.append(str(ROOT / "tests"))

from harness import metrics  # noqa: E402
from harness.cgroup import Cgroup, Unavailable  # noqa: E402
from harness.cluster import Cluster  # noqa: E402
from harness.doors import Http  # noqa: E402
from harness.server import Server, binary  # noqa: E402

LOAD = WORK / "rows-load"
GIB = 1 << 30
CLIENTS = [1, 16]
CREATORS = 16
CRASHES = 3
# What a pass of the scrub of a server reads in a second, at most (server/metadata_check.rs).
SCRUB_RATE = 16 * MIB
# Rows at rest have at least so many times the size of what caches may use.
OUTSIDE = 4
# Beyond this, a master is not waited for: a step ends within 20 minutes.
FILL_SECONDS = 900
EXAMPLES = """examples:
  bench/rows --rows 50000000 --memory 2g             everything on one server
  bench/rows --rows 50000000 --memory 2g --step load
  bench/rows --memory 2g --step create               again, over what `load` has left
  bench/rows --step masters --masters 3              new masters are filled
  bench/rows --step clean                            removes what was made
"""


class Bench:
    """Where everything is, and what was found so far, by step."""

    def __init__(self, options):
        self.options, self.work = options, Path(options.dir).resolve()
        self.data, self.dump = self.work / "data", self.work / "rows.dump"
        self.results = WORK / "rows.json"
        self.found = json.loads(self.results.read_text()) if self.results.exists() else {}

    def note(self, step, figures, **facts):
        """Keeps the lines of a table, and facts that later steps need."""
        self.found[step] = {"on": f"`{shown_command()}` on {machine(commit())}", "figures": figures, **facts}
        self.results.write_text(json.dumps(self.found, indent=1))

    def fact(self, name):
        if "load" not in self.found:
            raise SystemExit(f"nothing is loaded in {self.work}: run `bench/rows --step load` first")
        return self.found["load"][name]

    def table(self):
        lines = ["| step | | |", "|---|---|---|"]
        for step in STEPS:
            for what, value in self.found.get(step, {}).get("figures", []):
                lines.append(f"| {step} | {what} | {value} |")
        sources = sorted({self.found[step]["on"] for step in STEPS if step in self.found})
        return "\n".join([*lines, "", *sources])

    # The server, and the memory that it may use.

    @contextlib.contextmanager
    def server(self, log="serve", env=None):
        """A server that starts with no page of the metadata in memory."""
        self.fact("rows")
        forget(self.data / "meta")
        wrapper = []
        with contextlib.ExitStack() as open_:
            if self.options.memory:
                group = open_.enter_context(Cgroup("memory"))
                group.memory(self.options.memory)
                wrapper = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group.path / "cgroup.procs")]
            path = self.work / f"{log}.log"
            path.unlink(missing_ok=True)
            server = Server(self.data, wrapper=wrapper, log=path, env=env).start()
            try:
                yield server
            finally:
                if server.process.poll() is None and server.stop() != 0:
                    raise SystemExit(f"the server did not end well: {server.tail()}")

    def limited(self):
        """What stands beside figures of a server."""
        if not self.options.memory:
            return "memory without a limit"
        times = allocated(self.data / "meta") / self.options.memory
        warned = "" if times >= OUTSIDE else f"; **less than {OUTSIDE}: much is answered from memory**"
        return f"rows at rest have {times:.1f} times the memory, {shown(self.options.memory)}{warned}"


def shown_command():
    return " ".join(["bench/rows", *sys.argv[1:]])


def shown(size):
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"


def allocated(directory):
    """Bytes on the disk; files of rows have holes."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def forget(directory):
    """Removes files from the page cache: pages there are counted for whoever read them first."""
    for path in directory.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(*command, ok=(0,)):
    """Runs a program; returns what it says, seconds, and the peak of its memory, bytes."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ok:
        raise SystemExit(f"{command}: exit {process.returncode}\n{said}")
    return said, time.monotonic() - began, usage.ru_maxrss * 1024


def numbers(said):
    return {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+)$", said, re.M)}


def example():
    return Path(binary()).parent / "examples/rows"


def told(server):
    return Http(server.http).request("GET", "/metrics").body.decode()


# ---------------------------------------------------------------- load


def fill(bench, base):
    """Makes the dump of many rows from that of a store with an empty bucket."""
    bench.dump.unlink(missing_ok=True)
    said, seconds, peak = timed(example(), "fill", base, bench.dump, BUCKET, bench.options.rows)
    return numbers(said), seconds, peak


def load(bench):
    for path in (bench.data, bench.work / "base.dump"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    bench.data.parent.mkdir(parents=True, exist_ok=True)
    server = Server(bench.data, log=bench.work / "load.log").start()
    Http(server.http).create_bucket(BUCKET, "public")
    assert server.stop() == 0, server.tail()
    base = bench.work / "base.dump"
    timed(binary(), "meta", "dump", bench.data, base)
    made, fill_seconds, fill_peak = fill(bench, base)
    shutil.rmtree(bench.data / "meta")
    _, seconds, peak = timed(binary(), "meta", "load", bench.dump, bench.data)
    bench.dump.unlink()
    rows, live, size = made["rows"], made["live_bytes"], allocated(bench.data / "meta")
    figures = [
        ("rows; directories; files of 100 B", f"{rows:,.0f}; {made['directories']:,.0f}; {made['files']:,.0f}"),
        ("live bytes (keys and values)", f"{shown(live)}, {live / rows:.0f} B a row"),
        ("dump", f"{shown(made['dump_bytes'])}, made in {fill_seconds:.0f} s with {shown(fill_peak)}"),
        ("`cairn meta load`", f"{seconds:.0f} s, {rows / seconds:,.0f} rows/s, at most {shown(peak)}"),
        ("on the disk", f"{shown(size)}, {size / live:.2f} for each live byte"),
    ]
    bench.note("load", figures, **made)


# ---------------------------------------------------------------- lookups


def ask(server, bench, method, door, clients, seconds, times="-", seed=1, headers=()):
    """Runs the client; returns requests a second, p50, p99, p999 and longest in ms, and how many."""
    url, prefix = (server.http, f"/storage/{BUCKET}") if door == "HTTP" else (server.s3, f"/{BUCKET}")
    text = output(LOAD, method, url.removeprefix("http://"), prefix, clients, seconds,
                  int(bench.fact("directories")), seed, times, *headers)  # fmt: skip
    rate, *latencies, count = map(float, text.split())
    return rate, *(latency / 1000 for latency in latencies), int(count)


def serve(bench):
    figures = []
    with bench.server() as server:
        figures.append(("start", f"{server.start_seconds:.2f} s; {bench.limited()}"))
        for door in ("HTTP", "S3"):
            for clients in CLIENTS:
                rate, p50, p99, _, longest, _ = ask(
                    server, bench, "HEAD", door, clients, bench.options.seconds, seed=clients
                )
                text = f"{rate:,.0f}/s, p50 {p50:.2f}, p99 {p99:.2f}, longest {longest:.0f} ms"
                figures.append((f"HEAD of a random file, {door}, {clients} clients", text))
        figures.append(("memory of the server alone", f"now {shown(server.rss_bytes())}"))
    bench.note("serve", figures)


# ---------------------------------------------------------------- creates

CHECKPOINT = re.compile(r"^(\S+Z) +DEBUG .*\bcheckpoint rows=(\d+) bytes=(\d+) seconds=(\S+)", re.M)


def checkpoints(log):
    """(start, end, rows, bytes) of those in a log, in seconds since 1970."""
    found = []
    for stamp, rows, size, seconds in CHECKPOINT.findall(log):
        end = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
        found.append((end - float(seconds), end, int(rows), int(size)))
    return found


def split(times, intervals):
    """Latencies of requests, in ms: of those beside a checkpoint, and of all others."""
    ends, beside, quiet = [end for _, end, *_ in intervals], [], []
    with open(times) as file:
        for line in file:
            start, latency = map(int, line.split())
            first = bisect.bisect_left(ends, start / 1e6)
            is_beside = first < len(ends) and intervals[first][0] <= (start + latency) / 1e6
            (beside if is_beside else quiet).append(latency / 1000)
    return sorted(beside), sorted(quiet)


def latencies(found):
    if len(found) < 1000:
        return f"{len(found)} requests: too few"
    p50, p99, p999 = (found[(len(found) - 1) * permille // 1000] for permille in (500, 990, 999))
    return f"{len(found):,} requests, p50 {p50:.2f}, p99 {p99:.2f}, p99.9 {p999:.2f}, longest {found[-1]:.0f} ms"


def written_by(server):
    return int(re.search(r"^write_bytes: (\d+)", Path(f"/proc/{server.process.pid}/io").read_text(), re.M)[1])


def create(bench):
    times, seconds = bench.work / "creates.txt", bench.options.creates
    env = {"CAIRN_LOG": "info,cairn_meta::engine::row_store=debug"}
    with bench.server("create", env) as server:
        auth = Http(server.http).auth["Authorization"]
        before, size, disk = told(server), allocated(bench.data / "meta"), written_by(server)
        rate, *_, count = ask(server, bench, "PUT", "HTTP", CREATORS, seconds, times,
                              time.time_ns() // 10**9, [f"Authorization: {auth}"])  # fmt: skip
        after, grown = told(server), allocated(bench.data / "meta") - size
        disk = written_by(server) - disk
    intervals = checkpoints(server.log_path.read_text(errors="replace"))
    beside, quiet = split(times, intervals)
    times.unlink()
    live = count * bench.fact("live_bytes") / bench.fact("files")
    table = metrics.total(after, "cairn_meta_checkpoint_bytes_total")
    table -= metrics.total(before, "cairn_meta_checkpoint_bytes_total")
    busy = metrics.total(after, "cairn_meta_checkpoint_seconds_total")
    busy -= metrics.total(before, "cairn_meta_checkpoint_seconds_total")
    passes = metrics.total(after, "cairn_master_scrub_passes_total")
    longest = max(intervals, key=lambda one: one[1] - one[0], default=(0, 0, 0, 0))
    figures = [
        (f"PUT of 100 B at random places, HTTP, {CREATORS} clients, {seconds} s",
         f"{rate:,.0f}/s; {bench.limited()}"),
        ("of these, beside a checkpoint", latencies(beside)),
        ("of these, beside none", latencies(quiet)),
        ("checkpoints", f"{len(intervals)}, {busy / seconds:.0%} of the time"),
        ("the longest checkpoint",
         f"{longest[1] - longest[0]:.2f} s, {longest[2]:,} rows, {shown(longest[3])} written"),
        ("written to the table", f"{shown(table)}, {table / live:.1f} for each live byte"),
        ("written to the disk by the process", f"{shown(disk)}, {disk / live:.1f} for each live byte"),
        ("growth of the metadata on the disk",
         f"{shown(grown)}, {grown / live:.1f} for each live byte; {passes:.0f} passes of the scrub ended meanwhile"),
    ]  # fmt: skip
    bench.note("create", figures)


# ---------------------------------------------------------------- starts


def crash(bench):
    starts = []
    for number in range(CRASHES):
        with bench.server("crash") as server:
            auth = Http(server.http).auth["Authorization"]
            client = subprocess.Popen(
                [LOAD, "PUT", server.http.removeprefix("http://"), f"/storage/{BUCKET}", "64", "3600",
                 str(int(bench.fact("directories"))), str(time.time_ns() // 10**9), "-",
                 f"Authorization: {auth}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(bench.options.seconds)
            assert client.poll() is None, "the client ended"
            server.kill()
            client.wait()
        with bench.server("crash") as server:
            starts.append(server.start_seconds)
        print(f"  start {number + 1} of {CRASHES}: {starts[-1]:.2f} s", flush=True)
    figures = [("start after kill -9 under 64 creators", f"{', '.join(f'{one:.2f}' for one in starts)} s")]
    with bench.server("crash") as server:
        figures.append(("start after a clean end", f"{server.start_seconds:.2f} s; {bench.limited()}"))
    bench.note("crash", figures)


# ---------------------------------------------------------------- dump, scrub, fsck


def dump(bench):
    bench.fact("rows")
    forget(bench.data / "meta")
    path = bench.work / "again.dump"
    _, seconds, peak = timed(binary(), "meta", "dump", bench.data, path)
    size = path.stat().st_size
    path.unlink()
    text = f"{seconds:.0f} s, {shown(size)}, at most {shown(peak)} of memory"
    bench.note("dump", [("`cairn meta dump` of the stopped store", text)])


def scrub(bench):
    bench.fact("rows")
    forget(bench.data / "meta")
    said, _, peak = timed(example(), "check", bench.data / "meta")
    found = numbers(said)
    paced = found["read_bytes"] / SCRUB_RATE
    figures = [
        ("all rows and pages checked, as fast as possible",
         f"{found['checked']:.0f} s, {shown(found['read_bytes'])} read, at most {shown(peak)} of memory"),
        (f"at {shown(SCRUB_RATE)} a second, as a server does", f"at least {paced / 60:.0f} min (computed)"),
    ]  # fmt: skip
    bench.note("scrub", figures)


def fsck(bench):
    bench.fact("rows")
    forget(bench.data / "meta")
    said, seconds, peak = timed(binary(), "fsck", "--quick", "--json", bench.data, ok=(0, 1))
    report = json.loads(said[said.index("{") :])
    if not report["sound"]:
        raise SystemExit(f"the store is not sound: {report['finding_count']} findings, {report['findings'][:5]}")
    text = f"{seconds:.0f} s, {report['rows']:,} rows, at most {shown(peak)} of memory; sound"
    bench.note("fsck", [("`cairn fsck --quick`", text)])


# ---------------------------------------------------------------- masters


def masters(bench):
    """A cluster of one master gets the rows; then others join, one after another."""
    os.environ["CAIRN_TEST_DIR"] = str(bench.work)
    bench.work.mkdir(parents=True, exist_ok=True)
    with Cluster(masters=1, chunkservers=1, gateways=1, replicas=1) as cluster:
        cluster.http("g1").create_bucket(BUCKET, "public")
        first, base = cluster["m1"], cluster.work / "base.dump"
        assert first.stop() == 0
        cluster.command("meta", "dump", first.directory, base)
        made, *_ = fill(bench, base)
        shutil.rmtree(first.directory / "meta")
        _, seconds, _ = timed(binary(), "meta", "load", bench.dump, first.directory)
        bench.dump.unlink()
        figures = [("`cairn meta load` of a cluster", f"{seconds:.0f} s, {made['rows'] / seconds:,.0f} rows/s")]
        first.start()
        cluster.wait_whole()
        for number in range(2, bench.options.masters + 1):
            figures.append(fill_master(cluster, f"m{number}", made))
            print(f"  {': '.join(figures[-1])}", flush=True)
        bench.note("masters", figures)


def fill_master(cluster, name, made):
    node = cluster.make(name)
    cluster.join(name, cluster.token("master"))
    began = time.monotonic()
    node.start()
    while (seconds := time.monotonic() - began) < FILL_SECONDS and not has_all(cluster, node):
        time.sleep(0.5)
    io = re.search(r"^write_bytes: (\d+)", Path(f"/proc/{node.process.pid}/io").read_text(), re.M)
    written, size = int(io[1]), allocated(node.directory / "meta")
    text = f"{seconds:.0f} s, {made['rows'] / seconds:,.0f} rows/s"
    if seconds >= FILL_SECONDS:
        text = f"not within {FILL_SECONDS} s"
    shares = f"{written / made['live_bytes']:.1f} bytes written for each live one"
    return f"master {name} is filled", f"{text}; {shown(size)} on the disk, {shares}"


def has_all(cluster, node):
    """Whether a master has applied what the one that leads has."""
    status = cluster.status("m1")
    found = {one["node"]: one for one in status["members"]["masters"] if one["answers"]} if status else {}
    leads = [one["applied"] for one in found.values() if one["leads"]]
    return node.id in found and bool(leads) and 0 < leads[0] <= found[node.id]["applied"]


# ---------------------------------------------------------------- all

STEPS = {
    "load": load, "serve": serve, "create": create, "crash": crash, "dump": dump, "scrub": scrub,
    "fsck": fsck, "masters": masters,
}  # fmt: skip


def size(text):
    """Bytes of `2g` or `512m`; None for `none`."""
    if text == "none":
        return None
    if not (found := re.fullmatch(r"(\d+)([mg])", text)):
        raise argparse.ArgumentTypeError(f"{text}: use 2g, 512m or none")
    return int(found[1]) * {"m": MIB, "g": GIB}[found[2]]


def main():
    parser = argparse.ArgumentParser(
        prog="bench/rows", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--rows", type=int, default=50_000_000, help="of the store that `load` makes")
    parser.add_argument("--memory", type=size, default="2g", help="of the server, page cache included: 2g, none")
    parser.add_argument("--masters", type=int, default=1, help="measure also how masters up to this number are filled")
    parser.add_argument("--seconds", type=int, default=20, help="of each load of lookups")
    parser.add_argument("--creates", type=int, default=600, help="seconds of creates")
    parser.add_argument("--step", choices=[*STEPS, "clean"], help="only this one")
    parser.add_argument("--dir", default=WORK / "rows", help="where everything is made")
    options = parser.parse_args()
    bench = Bench(options)
    if options.step == "clean":
        shutil.rmtree(bench.work, ignore_errors=True)
        return
    if options.step == "masters" and options.masters < 2:
        raise SystemExit("--step masters: add --masters 3")
    steps = [options.step] if options.step else [name for name in STEPS if name != "masters" or options.masters > 1]
    bench.work.mkdir(parents=True, exist_ok=True)
    for name in steps:
        print(f"{name}", flush=True)
        try:
            STEPS[name](bench)
        except Unavailable as error:
            raise SystemExit(f"{error}: run as root, or with --memory none") from None
    table = bench.table()
    (WORK / "rows.md").write_text(table + "\n")
    print(f"\n{table}")


if __name__ == "__main__":
    main()
