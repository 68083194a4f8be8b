"""`cairn bench reports`: each scenario in small, and what goes wrong; nothing is left behind."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness import metrics
from harness.disk import SmallDisk, Unavailable
from harness.doors import Http
from harness.server import binary, scratch
from harness.wait import PATIENCE_SECONDS, eventually

SMALL = {
    "--seconds": "0.3", "--clients": "1,4", "--writers": "1,2", "--file": "2m",
    "--gateways": "2", "--share": "50", "--object": "10m", "--part": "5m", "--threads": "1,2",
    "--files": "5", "--notifications": "4", "--rates": "100,500", "--keys": "20",
}  # fmt: skip


MOUNTS = ("Cairn mount", "Cairn cluster, replica 1", "Cairn cluster, replica 2")


class Reports:
    """One run in a directory of its own."""

    def __init__(self, *options, directory=None):
        self.work = scratch("reports")
        self.directory = directory or self.work / "data"
        self.directory.mkdir(exist_ok=True)
        self.json, self.html = self.work / "all.json", self.work / "all.html"
        self.markdown = self.work / "all.md"
        files = ["--json", self.json, "--html", self.html, "--markdown", self.markdown]
        small = [pair for pair in SMALL.items() if pair[0] not in options]
        small = [word for pair in small for word in pair]
        self.command = [binary(), "bench", "reports", "--dir", self.directory, *small, *files]
        self.command += options

    @contextlib.contextmanager
    def running(self):
        """It runs meanwhile; if it goes on too long it is told to end."""
        started = self.start()
        try:
            yield started
        finally:
            started.terminate()
            started.wait(timeout=PATIENCE_SECONDS)

    def start(self):
        return subprocess.Popen(
            list(map(str, self.command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self):
        with self.running() as running:
            out, err = running.communicate(timeout=2 * PATIENCE_SECONDS)
        return running.returncode, out, err

    def found(self):
        return json.loads(self.json.read_text())

    def nothing_left(self):
        left = [entry.name for entry in self.directory.iterdir() if entry.name != "lost+found"]
        assert left == [], left
        assert str(self.directory) not in Path("/proc/mounts").read_text().replace(
            f" {self.directory} ", ""
        )
        assert processes(str(self.directory / "cairn-bench-")) == {}
        groups = Path("/sys/fs/cgroup")
        assert not list(groups.glob("cairn-bench-*")) + list(groups.glob("cpu/cairn-bench-*"))
        shutil.rmtree(self.work)


def processes(word):
    """{pid: command line} of those that name a path."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_text(errors="replace").replace("\0", " ")
            if word in line:
                found[int(path.parent.name)] = line
    return found


def sections(scenario):
    return {section["title"]: section for section in scenario["sections"]}


def number(text):
    """The first number of a cell of a table."""
    return float(re.match(r"[\d,.]+", text)[0].replace(",", ""))


def measured(section, target):
    """The numbers of a row, by its first cell."""
    [row] = [row for row in section["rows"] if row[0] == target]
    return [number(text) for text in row[1:] if re.match(r"\d", text)]


def one(name):
    run = Reports("--only", name)
    code, out, err = run.run()
    assert code == 0, (out, err)
    whole = run.found()
    assert whole["schema"] == "cairn-bench/1" and whole["kind"] == "reports"
    [scenario] = whole["scenarios"]
    assert scenario["name"] == name and whole["incomplete"] is None
    assert f"## {name}: " in out and out.strip() == run.markdown.read_text().strip()
    page = run.html.read_text()
    assert "<svg" in page and "<table>" in page and "http://www.w3.org/2000/svg" in page
    assert "<script" not in page and "src=" not in page and "href=" not in page
    for cell in whole["cells"]:
        assert cell["what"].startswith(f"{name}: ") and cell["latency"]["count"] > 0, cell
    for title in sections(scenario):
        assert title in out
    diff = subprocess.run(
        [binary(), "bench", "diff", run.json, run.json], capture_output=True, text=True
    )
    assert diff.returncode == 0 and "within noise" in diff.stdout, diff
    run.nothing_left()
    return whole, sections(scenario)


def titled(found, start):
    [section] = [section for title, section in found.items() if title.startswith(start)]
    return section


def test_gateway():
    whole, found = one("gateway")
    layers = titled(found, "GET 155 KiB over clients, layer by layer: replies")
    times = titled(found, "GET 155 KiB over clients, layer by layer: p50 / p90")
    for name in ("cairn server", "gateway", "gateway, no cache of blocks", "gateway, GET /healthz"):
        assert min(measured(layers, name)[:2]) > 0, layers
        [row] = [row for row in times["rows"] if row[0] == name]
        assert all(re.fullmatch(r"[\d.,]+ [um]?s / [\d.,]+ [um]?s", cell) for cell in row[1:3]), times
    ways = titled(found, "GET 155 KiB, 10 clients")
    assert len(ways["rows"]) == 4
    handshake = [row for row in ways["rows"] if row[0] == "a TLS handshake each"][0]
    assert re.match(r"\d.* [um]s", handshake[-1]), handshake
    calls = titled(found, "Metadata calls")
    first, again = (number(row[1]) for row in calls["rows"])
    assert first >= 0.5 and again < 0.2, calls
    database = [section for title, section in found.items() if "CPU quota" in title][0]
    assert any(row[1] == "without a quota" for row in database["rows"]), database


def test_writers():
    whole, found = one("writers")
    for who in ("writers of files", "readers of files"):
        table = titled(found, who)
        assert min(measured(table, "local")[:2]) > 0
        if os.path.exists("/dev/fuse"):
            for name in MOUNTS:
                assert min(measured(table, name)[:2]) > 0
        [gluster] = [row for row in table["rows"] if row[0] == "GlusterFS, replica 2"]
        is_there = re.match(r"\d", gluster[1])
        assert is_there or gluster[1] == "not installed: apt-get install glusterfs-server", gluster
    limits = titled(found, "What limits writers")
    if os.path.exists("/dev/fuse"):
        for name in MOUNTS:
            rows = [row for row in limits["rows"] if row[0] == name]
            assert [row[1] for row in rows] == ["1", "2"], limits
            assert all(number(row[5]) >= 0 and row[6] for row in rows), "the busiest thread has a name"


def test_writers_on_two_disks():
    """A replica is on each of them, and both are as they were afterwards."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse here")
    disk = scratch("disk")
    run = Reports("--only", "writers", "--rounds", "10000", "--disk", str(disk))
    with run.running() as running:
        begun(run, running, "cairn mount http")
        names = lambda: {path.name for path in disk.glob("cairn-bench-*/replica-*")}  # noqa: E731
        eventually(lambda: goes_on(running) and names() == {"replica-2-of-2"}, "the second replica")
        running.send_signal(signal.SIGTERM)
        ended_by_signal(running)
    run.nothing_left()
    assert list(disk.iterdir()) == []
    disk.rmdir()



def test_scaling():
    whole, found = one("scaling")
    for start in ("multipart PUT", "ranged GET", "PUT of 1 MiB", "HEAD"):
        table = titled(found, start)
        assert len(table["rows"][0]) == 3 and table["rows"][1][0] == "of linear", table
    of_heads = [cell for cell in whole["cells"] if "HEAD" in cell["what"]]
    assert [cell["axis"]["value"] for cell in of_heads] == [1, 2]
    assert not any(cell["errors"] for cell in whole["cells"])


def test_files():
    whole, found = one("files")
    assert len(found) == 4
    for title, table in found.items():
        for name in ("local", "Cairn mount", "Cairn HTTP", "Cairn NFS", "nginx over Cairn mount"):
            average, least, *_ = measured(table, name)
            assert average > 0 and least > 0, table
        rows = {row[0]: row for row in table["rows"]}
        times = 1 if title.endswith("once each") else 4
        asked = float(rows["Cairn NFS"][8])
        assert asked == pytest.approx((3 + times - 1) / times, abs=0.01), table
        assert "of the kernel" in rows["Cairn mount"][8], table
        ganesha = rows["nfs-ganesha"][1]
        is_there = re.match(r"\d", ganesha)
        assert is_there or ganesha.startswith("not installed: apt-get install"), ganesha
    served = [cell for cell in whole["cells"] if cell["what"].endswith("4 times each")]
    assert {cell["latency"]["count"] for cell in served} == {5 * 4}


def test_redirects():
    whole, found = one("redirects")
    table = titled(found, "Redirects over the rate")
    rows = [row for row in table["rows"] if row[0] == "Cairn gateway"]
    assert [row[1] for row in rows] == ["100", "500"], rows
    assert all(re.match(r"\d+ of \d+", row[9]) for row in rows), rows
    many = [row for row in table["rows"] if row[0] == "Cairn gateway, many keys"]
    assert [row[1] for row in many] == ["100", "500"], table
    for title in ("PUT and GET, bodies of 5 KiB to 15 KiB: replies", "PUT and GET, bodies of 5 KiB to 15 KiB: p50"):
        bodies = titled(found, title)
        for method in ("PUT", "GET"):
            [row] = [row for row in bodies["rows"] if row[:2] == [method, "Cairn gateway"]]
            assert all(number(cell) > 0 for cell in row[2:4]), bodies
    small = [cell for cell in whole["cells"] if "small bodies" in cell["what"]]
    assert small and not any(cell["errors"] for cell in small)
    assert {status for cell in small for status in cell["statuses"]} <= {"200", "201", "204"}, small
    redirected = [cell for cell in whole["cells"] if "redirects at a rate" in cell["what"]]
    answers = [cell["statuses"] for cell in redirected if cell["target"].startswith("Cairn gateway")]
    assert all(set(statuses) == {"307"} for statuses in answers), answers


def test_a_directory_that_is_measured_besides():
    work = scratch("beside")
    run = Reports("--only", "files", "--beside", f"other={work}")
    code, out, err = run.run()
    assert code == 0 and "| other " in out, (out, err)
    run.nothing_left()
    assert list(work.iterdir()) == []
    work.rmdir()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "nonsense"], "possible values: gateway, writers, scaling, files, redirects"),
        (["--part", "11m"], "--part is larger than --object"),
        (["--clients", "0"], "is not a count"),
        (["--seconds", "nan"], "is not a number of seconds"),
        (["--beside", "x"], "write NAME=DIR"),
        (["--share", "0"], "is not a percentage"),
        (["--bodies", "15k,5k"], "--bodies: give the least and the most bytes"),
        (["--bodies", "5k"], "--bodies: give the least and the most bytes"),
        (["--keys", "1000001"], "is not a count from 1 to 65536"),
    ],
)
def test_senseless_command_lines(options, said):
    run = Reports(*options)
    code, out, err = run.run()
    assert code == 2 and said in err, (code, out, err)
    run.nothing_left()


def test_what_cannot_be_begun_says_why():
    for options, said in [
        (["--dir", "/nowhere"], "/nowhere: No such file or directory"),
        (["--cairn", "/bin/true"], "/bin/true: is not the program of Cairn: give the program"),
        (["--cairn", "/nowhere"], "give the program of Cairn with --cairn PATH"),
        (["--html", "/nowhere/x.html"], "/nowhere/x.html: No such file or directory"),
    ]:
        run = Reports("--only", "files")
        if options[0] in run.command:
            at = run.command.index(options[0])
            del run.command[at : at + 2]
        run.command += options
        code, out, err = run.run()
        assert code == 1 and said in err and len(err.splitlines()) == 1, (code, out, err)
        run.nothing_left()


def test_a_directory_without_space():
    try:
        with SmallDisk(64) as disk:
            run = Reports("--only", "writers", directory=disk.mount)
            code, out, err = run.run()
            assert code == 1 and "are needed" in err and "give another --dir" in err, err
            run.nothing_left()
    except Unavailable as error:
        pytest.skip(str(error))


def goes_on(running):
    """Fails with what it said if the run has ended: what is waited for never comes then."""
    assert running.poll() is None, running.communicate()
    return True


def begun(run, running, word):
    """Waits until a process that was started has this in its command line."""
    inside = str(run.directory / "cairn-bench-")
    lines = lambda: [pid for pid, line in processes(inside).items() if word in line]  # noqa: E731
    eventually(lambda: lines() or not goes_on(running), word)
    return lines()


def written_to(running, mounts):
    """Waits until somebody has written to one of these mounts for some rounds."""
    taken = [Path(f"/proc/{mount}/io") for mount in mounts]
    size = lambda io: int(re.search(r"rchar: (\d+)", io.read_text())[1])  # noqa: E731
    read = lambda: any(size(io) > 16 << 20 for io in taken if io.exists())  # noqa: E731
    eventually(lambda: goes_on(running) and read(), "bytes written")


def ended(run, running):
    """What it said, and what it has saved."""
    out, err = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 1, (out, err)
    return out, err, run.found()


def test_a_disk_that_fills_up():
    try:
        with SmallDisk(1600) as disk:
            run = Reports("--only", "writers", "--rounds", "10000", directory=disk.mount)
            with run.running() as running:
                written_to(running, begun(run, running, "cairn mount http"))
                disk.fill()
                out, err, whole = ended(run, running)
            assert "the results measured until then are kept" in err, err
            assert "No space" in err or "507" in err, err
            assert whole["cells"] and "Incomplete: " in out
            disk.filler.unlink()
            run.nothing_left()
    except Unavailable as error:
        pytest.skip(str(error))


def door_of(pid):
    """The address of the HTTP door of a gateway, once it says it."""
    said = Path(os.readlink(f"/proc/{pid}/fd/1")).read_text(errors="replace")
    found = re.search(r"^http (http://\S+)$", said, re.M)
    return found and found[1]


def redirected(url):
    """How often a gateway has sent a client elsewhere."""
    with contextlib.suppress(OSError):
        text = Http(url, credentials=None).request("GET", "/metrics").body.decode()
        return metrics.total(text, "cairn_requests_total", status="3xx")
    return 0


class Redirecting(BaseHTTPRequestHandler):
    """Another program, which answers everything as the gateway did."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(307)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def listening(address):
    """Another program has this address, unless yet another one was faster."""
    host, port = address.split("//")[1].split(":")
    try:
        server = ThreadingHTTPServer((host, int(port)), Redirecting)
    except OSError:
        yield
        return
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_target_that_dies():
    """Also where its address is another program's at once, which answers its requests."""
    run = Reports("--only", "redirects", "--rounds", "10000", "--rates", "200")
    with run.running() as running:
        [gateway] = begun(run, running, "cairn gateway /")
        eventually(lambda: goes_on(running) and door_of(gateway), "the gateway's door")
        door = door_of(gateway)
        # More than one round.
        eventually(lambda: goes_on(running) and redirected(door) > 100, "redirects")
        os.kill(gateway, signal.SIGKILL)
        with listening(door):
            out, err, whole = ended(run, running)
    [redirects] = whole["scenarios"]
    assert "cairn gateway ended by itself (signal: 9" in redirects["incomplete"], redirects
    assert whole["cells"] and redirects["sections"]
    run.nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop(number):
    run = Reports("--only", "writers", "--rounds", "10000")
    with run.running() as running:
        written_to(running, begun(run, running, "cairn mount http"))
        running.send_signal(number)
        out, err, whole = ended(run, running)
    assert "stopped by a signal" in err and "the results measured until then are kept" in err, err
    assert whole["cells"] and whole["incomplete"] == "stopped by a signal"
    assert "Incomplete: stopped by a signal" in out
    run.nothing_left()


def test_told_to_stop_while_it_starts():
    run = Reports("--only", "gateway")
    with run.running() as running:
        begun(run, running, "cairn master /")
        running.send_signal(signal.SIGINT)
        ended_by_signal(running)
    run.nothing_left()


def ended_by_signal(running):
    out, err = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 1 and "stopped by a signal" in err, (out, err)
