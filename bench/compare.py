"""The measurement behind docs/performance.md; started by bench/run.

Every round runs all contenders of a row one after the other, in turning order; the table shows
medians over the rounds and ratios of these medians. Client and server share the machine.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from harness.doors import Http  # noqa: E402
from harness.presign import presigned_paths  # noqa: E402
from harness.server import Server, binary  # noqa: E402

MIB = 1 << 20
WORK = ROOT / "target/bench"
LOAD = WORK / "load"
PORT, TLS_PORT = 18081, 18444
FILES = {"155k": 155 * 1024, "430": 430, "1m": MIB, "20m": 20 * MIB}
BUCKET = "bench"
S3_PUTS = 60_000  # presigned URLs made ahead of a run


def output(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


# ---------------------------------------------------------------- contenders


class Bench:
    def __init__(self, seconds):
        self.seconds = seconds
        self.plain = self.tls = self.writes = self.nginx = None
        self.stores = 0

    def make_files(self):
        """The files that are read, and a certificate."""
        shutil.rmtree(WORK / "root", ignore_errors=True)
        (WORK / "root").mkdir(parents=True)
        for name, size in FILES.items():
            (WORK / "root" / name).write_bytes(hashlib.shake_128(name.encode()).digest(size))
        output("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=localhost",
               "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
               "-keyout", WORK / "key.pem", "-out", WORK / "cert.pem")  # fmt: skip

    def prepare(self):
        self.remove_stores()
        settle()
        self.make_files()
        self.start_nginx()
        self.plain = self.start_cairn("plain")
        tls = ["--tls-cert", str(WORK / "cert.pem"), "--tls-key", str(WORK / "key.pem")]
        self.tls = self.start_cairn("tls", tls)

    def start_nginx(self):
        text = (ROOT / "bench/nginx.conf").read_text().replace("@WORK@", str(WORK))
        text = text.replace("@PORT@", str(PORT)).replace("@TLS_PORT@", str(TLS_PORT))
        (WORK / "nginx.conf").write_text(text)
        path = os.environ["PATH"] + ":/usr/sbin"
        self.nginx = subprocess.Popen(
            ["nginx", "-c", WORK / "nginx.conf"], env={"PATH": path}, stderr=subprocess.DEVNULL
        )
        time.sleep(1)

    def start_cairn(self, name, args=()):
        shutil.rmtree(WORK / name, ignore_errors=True)
        (WORK / name).mkdir()
        server = Server(WORK / name / "data", args=args).start()
        secure = server.http.replace("http://", "https://") if args else server.http
        http = Http(secure, cafile=WORK / "cert.pem")
        http.create_bucket(BUCKET, "public")
        for file in FILES:
            body = (WORK / "root" / file).read_bytes()
            reply = http.object("PUT", BUCKET, file, body)
            assert reply.status in (200, 201, 204), reply
        return server

    def check_same_bytes(self):
        """All servers that are compared return the same bytes."""
        nginx, nginx_tls = f"http://127.0.0.1:{PORT}", f"https://127.0.0.1:{TLS_PORT}"
        secure = self.tls.http.replace("http://", "https://")
        for file, size in FILES.items():
            body = (WORK / "root" / file).read_bytes()
            urls = [f"{nginx}/{file}", f"{nginx_tls}/{file}", self.url("http", file),
                    self.url("s3", file), f"{secure}/storage/{BUCKET}/{file}"]  # fmt: skip
            for url in urls:
                got = subprocess.run(["curl", "-sS", "--cacert", WORK / "cert.pem", url],
                                     capture_output=True).stdout  # fmt: skip
                assert got == body, f"{url} returns other bytes"
                head = output("curl", "-sSI", "--cacert", WORK / "cert.pem", url).lower()
                assert f"content-length: {size}" in head, (url, head)

    def url(self, who, file):
        return {
            "nginx": f"http://127.0.0.1:{PORT}/{file}",
            "http": f"{self.plain.http}/storage/{BUCKET}/{file}",
            "s3": f"{self.plain.s3}/{BUCKET}/{file}",
        }[who]

    def stop(self):
        for server in (self.plain, self.tls, self.writes):
            if server and server.process.poll() is None:
                server.kill()
        if self.nginx:
            self.nginx.terminate()
            self.nginx.wait()
        self.remove_stores()

    def remove_stores(self):
        for name in ("writes-*", "plain*", "tls*", "master", "fio-4k", "fio-1m"):
            for path in WORK.glob(name):
                shutil.rmtree(path, ignore_errors=True)

    # What is measured: each returns one number.

    def wrk(self, url, connections, *headers):
        options = [arg for header in headers for arg in ("-H", header)]
        text = output("wrk", "-t2", f"-c{connections}", f"-d{self.seconds}s", *options, url)
        assert "Non-2xx" not in text, text
        # With "Connection: close" wrk counts the close of a finished answer as a read error.
        if not headers:
            assert "Socket errors" not in text, text
        return float(re.search(r"Requests/sec: +([\d.]+)", text)[1])

    def get(self, who, file):
        return self.wrk(self.url(who, file), 10)

    def get_tls(self, who, file):
        cairn = self.tls.http.replace("http://", "https://") + f"/storage/{BUCKET}/{file}"
        url = {"nginx": f"https://127.0.0.1:{TLS_PORT}/{file}", "http": cairn}[who]
        return self.wrk(url, 10, "Connection: close")

    def head(self, who, file):
        address, _, path = self.url(who, file).removeprefix("http://").partition("/")
        return self.load("HEAD", address, "/" + path, 10, 0)[0]

    def load(self, method, address, path, connections, size, paths="-", *headers):
        text = output(LOAD, method, address, path, connections, self.seconds, size, paths, *headers)
        return [float(word) for word in text.split()]

    def put(self, who, size):
        """PUTs of new keys by 16 connections, into a store of its own."""
        # Removed only at the end: freeing gigabytes keeps the disk busy for a while.
        self.stores += 1
        self.writes = self.start_cairn(f"writes-{self.stores}")
        if who == "http":
            auth = "Authorization: " + Http(self.writes.http).auth["Authorization"]
            address = self.writes.http.removeprefix("http://")
            path = f"/storage/{BUCKET}/put"
            rate = self.load("PUT", address, path, 16, size, "-", auth)[0]
        else:
            paths = WORK / "paths"
            paths.write_text("\n".join(presigned_paths(self.writes.s3, BUCKET, S3_PUTS)))
            address = self.writes.s3.removeprefix("http://")
            rate = self.load("PUT", address, "", 16, size, paths)[0]
        self.writes.kill()
        settle()
        return rate

    def fio(self, size, jobs):
        """Writes of `size`, each with fdatasync, by so many jobs, each in a file of its own that
        was written before (so that no block is allocated while it is measured)."""
        directory = WORK / f"fio-{size}"
        first = not directory.exists()
        directory.mkdir(exist_ok=True)
        text = output(
            "fio", "--name=write", f"--directory={directory}", "--ioengine=psync", "--rw=write",
            f"--bs={size}", "--fdatasync=1", "--size=64m", "--overwrite=1", f"--numjobs={jobs}",
            "--group_reporting", "--time_based", f"--runtime={self.seconds}",
            "--filename_format=$jobnum", "--output-format=json",
        )  # fmt: skip
        if first:  # this run has made the files; now that they are on the disk, once more
            settle()
            return self.fio(size, jobs)
        return json.loads(text[text.index("{") :])["jobs"][0]["write"]["iops"]


def cpu_seconds(pid):
    """That a process took so far, for itself and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle():
    """Lets the disk finish what a removed store leaves behind."""
    os.sync()
    time.sleep(1)


# ---------------------------------------------------------------- rows

# A row: what, unit, {contender: (bench, file or size) -> number}, and the targets
# (contender, factor, of which contender or combination of them).


def rows(bench):
    get = lambda who, file: lambda: bench.get(who, file)  # noqa: E731
    tls = lambda who, file: lambda: bench.get_tls(who, file)  # noqa: E731
    head = lambda who: lambda: bench.head(who, "155k")  # noqa: E731
    put = lambda who, size: lambda: bench.put(who, size)  # noqa: E731
    big = {
        "fio": lambda: bench.fio("1m", 16),
        "http": put("http", MIB),
        "s3": put("s3", MIB),
    }
    small = {
        "fio": lambda: bench.fio("4k", 1),
        "http": put("http", 10_000),
        "s3": put("s3", 10_000),
    }
    three = lambda make, *rest: {who: make(who, *rest) for who in ("nginx", "http", "s3")}  # noqa: E731
    return [
        Row("GET 155 KB, keep-alive, c=10", three(get, "155k"), "nginx", {"http": 0.9, "s3": 0.6}),
        Row("GET 430 B, keep-alive, c=10", three(get, "430"), "nginx", {"http": 1.0}),
        Row("HEAD, keep-alive, c=10", three(head), "nginx", {"http": 0.9, "s3": 0.4}),
        Row("GET 430 B, TLS handshake each, c=10",
            {who: tls(who, "430") for who in ("nginx", "http")}, "nginx", {"http": 0.9}),
        Row("GET 155 KB, TLS handshake each, c=10",
            {who: tls(who, "155k") for who in ("nginx", "http")}, "nginx", {"http": 0.9}),
        Row("PUT 1 MiB, synced, c=16", big, "fio", {"http": 0.8}),
        Row("PUT 10 KB, synced, c=16", small, "fio", {"http": 4.0}),
    ]  # fmt: skip


class Row:
    def __init__(self, what, contenders, base, targets):
        self.what, self.contenders, self.base, self.targets = what, contenders, base, targets
        self.numbers = {who: [] for who in contenders}

    def measure(self, turn):
        names = list(self.contenders)
        for who in names[turn % len(names) :] + names[: turn % len(names)]:
            number = self.contenders[who]()
            self.numbers[who].append(number)
            print(f"  {self.what}: {who} {number:.0f}/s", flush=True)

    def median(self, who):
        return statistics.median(self.numbers[who])

    def cell(self, who):
        if who not in self.numbers:
            return ""
        numbers = self.numbers[who]
        return f"{self.median(who):,.0f} ({min(numbers):,.0f} to {max(numbers):,.0f})"

    def ratio(self, who):
        if who not in self.numbers:
            return ""
        ratio = self.median(who) / self.median(self.base)
        target = self.targets.get(who)
        if target is None:
            return f"{ratio:.2f}"
        verdict = "met" if ratio >= target else f"**missed by {1 - ratio / target:.0%}**"
        return f"{ratio:.2f} (target {target}: {verdict})"


def table(measured):
    lines = [
        "| a second, median (worst to best) | nginx or fio | Cairn HTTP | ratio | Cairn S3 | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row in measured:
        cells = [row.cell(row.base), row.cell("http"), row.ratio("http"), row.cell("s3"), row.ratio("s3")]
        lines.append(f"| {row.what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# ---------------------------------------------------------------- in process


class InProcess:
    """Rows of `cairn bench meta`: F, the disk's syncs a second, is measured beside each."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.lookups, self.creates = [], {}

    def measure(self):
        (WORK / "master").mkdir(exist_ok=True)
        result = WORK / "master.json"
        output(
            binary(), "bench", "meta", WORK / "master", "--loads", "lookup,create,create-spread",
            "--in-flight", "1,64,1024", "--rounds", 1, "-d", f"{self.seconds}s", "--json", result,
        )  # fmt: skip
        cells = json.loads(result.read_text())["cells"]
        rates = {
            (cell["target"], cell["what"], int(cell["axis"]["value"])): cell["rate"]["median"]
            for cell in cells
        }
        for (target, what, flight), rate in rates.items():
            if target != "master":
                continue
            print(f"  {what}, {flight} in flight: {rate:.0f}/s", flush=True)
            if what.startswith("create"):
                found = self.creates.setdefault((flight, what), [])
                found.append((rate, rates["disk", what, flight]))
            elif flight == 1:
                self.lookups.append(rate)

    def table(self):
        lines = [
            "| in process, a second, median (worst to best) | | F | target |",
            "|---|---|---|---|",
            f"| lookups, one at a time | {spread(self.lookups)} | | {verdict(statistics.median(self.lookups), 200_000)} |",
        ]
        for (flight, what), found in sorted(self.creates.items()):
            rate, f = (statistics.median(column) for column in zip(*found))
            where = what.removeprefix("create, in ")
            target = ""
            if flight == 64:
                target = "0.6 x 64 x F: " + verdict(rate, 0.6 * 64 * f)
            elif flight == 1024:
                target = verdict(rate, 50_000) + ("" if f >= 400 else " (F is below 400)")
            rates = spread([rate for rate, _ in found])
            lines.append(
                f"| durable creates, {flight} in flight, {where} | {rates} | {f:,.0f} | {target} |"
            )
        return "\n".join(lines)


def spread(numbers):
    return f"{statistics.median(numbers):,.0f} ({min(numbers):,.0f} to {max(numbers):,.0f})"


def verdict(number, target):
    met = "met" if number >= target else f"**missed by {1 - number / target:.0%}**"
    return f"{target:,.0f}: {met}"


# ---------------------------------------------------------------- the report


def machine(software):
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())[1]) >> 20
    fs = output("findmnt", "-no", "FSTYPE", "-T", WORK).strip()
    return (
        f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores shared by client and "
        f"server, {memory} GiB, Linux {platform.release()}, {fs}; {software}; "
        f"{time.strftime('%Y-%m-%d')}"
    )


def versions():
    nginx = subprocess.run(["/usr/sbin/nginx", "-v"], capture_output=True, text=True).stderr
    return f"{nginx.split(': ')[1].strip()}, {output('fio', '--version').strip()}, {commit()}"


def commit():
    return "Cairn " + output("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", default="", help="only rows with this word; `process` too")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    bench, inside = Bench(options.seconds), InProcess(min(options.seconds, 3))
    try:
        bench.prepare()
        bench.check_same_bytes()
        measured = [row for row in rows(bench) if options.only in row.what]
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            for row in measured:
                row.measure(number)
            if options.only in ("", "process"):
                settle()
                inside.measure()
    finally:
        bench.stop()
    command = "bench/run " + " ".join(sys.argv[1:])
    parts = [
        f"`{command.strip()}` on {machine(versions())}.",
        f"Medians of {options.rounds} alternating runs of {options.seconds} s; wrk 2 threads, "
        "HEAD and PUT by bench/load.rs; all servers were seen to return the same bytes.",
        table(measured),
    ]
    if inside.lookups:
        parts.append(inside.table())
    text = "\n\n".join(parts) + "\n"
    (ROOT / "target/bench/result.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
