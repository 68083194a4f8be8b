"""Where the time of requests goes: what a reply, the metrics, the log and traces say of it."""

import http.server
import json
import os
import re
import subprocess
import threading
import time

import pytest

from harness import metrics
from harness.cgroup import Cgroup, Unavailable
from harness.cluster import Cluster
from harness.doors import S3, Http
from harness.mount import Mount
from harness.server import Server, binary
from harness.wait import eventually

MIB = 1 << 20
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def check_sum(reply):
    spent = metrics.stages(reply)
    total = spent.pop("total")
    # The header rounds down to microseconds.
    assert sum(spent.values()) <= total + 1e-9, spent
    return spent


def test_no_stage_is_counted_twice(server):
    http, s3 = Http(server.http), S3(server.s3)
    http.create_bucket("stages-http")
    s3.create_bucket("stages-s3")
    for size in (0, 100, 100_000, 9 * MIB):
        body = bytes(size)
        for door, bucket in ((http, "stages-http"), (s3, "stages-s3")):
            put = door.object("PUT", bucket, "a", body=body)
            assert put.status in (200, 201, 204), put
            assert {"admit", "meta", "sync"} <= check_sum(put).keys()
            for _ in range(2):
                got = door.object("GET", bucket, "a")
                assert got.body == body
                check_sum(got)
            check_sum(door.object("HEAD", bucket, "a"))
            check_sum(door.object("DELETE", bucket, "a"))


def test_who_is_refused_learns_nothing(server):
    http, s3 = Http(server.http), S3(server.s3)
    http.create_bucket("refused")
    http.object("PUT", "refused", "a", body=b"secret")
    nobody, wrong = Http(server.http, credentials=None), Http(server.http, ("AAAAAAAA", "wrong"))
    replies = [nobody.object("GET", "refused", key) for key in ("a", "none")]
    replies += [wrong.object("GET", "refused", key) for key in ("a", "none")]
    replies += [S3(server.s3, credentials=None).object("GET", "refused", "a")]
    replies += [S3(server.s3, (s3.credentials[0], "wrong")).object("GET", "refused", "a")]
    for reply in replies:
        assert reply.status in (401, 403), reply
        assert "Server-Timing" not in reply.headers
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", reply.headers["traceresponse"])
    assert "Server-Timing" in http.object("GET", "refused", "a").headers


def test_a_slow_client_shows_in_its_stage(server):
    http = Http(server.http)
    http.create_bucket("slow-client")

    def trickle():
        for _ in range(3):
            time.sleep(0.1)
            yield b"x" * 1000

    def shows():
        put = http.object("PUT", "slow-client", "a", trickle(), {"Content-Length": "3000"})
        spent = check_sum(put)
        return max(spent, key=spent.get) == "receive"

    # Where a disk has much else to do it may be slower once.
    eventually(shows, "receiving is what takes longest")


def test_a_slow_disk_shows_in_its_stage():
    try:
        with Server() as server, Cgroup("blkio") as group:
            http, s3 = Http(server.http), S3(server.s3)
            http.create_bucket("slow")
            group.writes_a_second(server.directory, 10)
            group.add(server.process.pid)
            for door in (http, s3):
                for size in (100, MIB):
                    spent = check_sum(door.object("PUT", "slow", "a", body=bytes(size)))
                    assert max(spent, key=spent.get) in ("sync", "write"), spent
            text = http.request("GET", "/metrics").body.decode()
            for door in ("http", "s3"):
                by_stage = {
                    stage: metrics.total(text, "cairn_stage_seconds_sum", door=door, stage=stage)
                    for stage in ("admit", "receive", "meta", "cache", "sync", "send")
                }
                assert max(by_stage, key=by_stage.get) == "sync", by_stage
    except Unavailable as error:
        pytest.skip(str(error))


def test_a_slow_peer_shows_in_its_stage_and_in_its_log():
    with Cluster(chunkservers=3, gateways=1) as cluster:
        http = cluster.http("g1")
        http.create_bucket("slow")
        # Where c1 is the first of the chain nobody but the gateway waits for it: again, then.
        for attempt in range(12):
            trace = f"{attempt + 1:032x}"
            timer = threading.Timer(1.4, cluster["c1"].resume)
            cluster["c1"].pause()
            timer.start()
            headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-00"}
            put = http.object("PUT", "slow", "a", bytes(MIB), headers)
            timer.join()
            assert put.status in (201, 204), put
            spent = check_sum(put)
            assert max(spent, key=spent.get) == "peer", spent
            assert put.headers["traceresponse"][3:35] == trace
            told = lambda trace=trace: trace in cluster["g1"].log.read_text()  # noqa: E731
            eventually(told, "the gateway logs it")
            logs = [cluster[name].log.read_text() for name in ("c2", "c3")]
            if any(f"trace={trace}" in log for log in logs):
                return
        raise AssertionError(cluster.tails())


def test_a_mount_says_where_the_time_of_its_requests_goes():
    try:
        with Server() as server, Cgroup("blkio") as group:
            Http(server.http).create_bucket("mounted")
            with Mount(server, server.work / "mnt", bucket="mounted") as mount:
                root = mount.root
                (root / "before").write_bytes(bytes(MIB))
                group.writes_a_second(server.directory, 10)
                group.add(server.process.pid)
                before = waited(mount.path)
                began = time.monotonic()
                for number in range(5):
                    with open(root / f"file-{number}", "wb", buffering=0) as file:
                        file.write(bytes(1000))
                        os.fsync(file)
                took = (time.monotonic() - began) * 1e6
                assert mount_stages(mount.path)["create"]["meta"] > 0
                # Each file waits for the server's disk until it is durable.
                assert took / 2 < waited(mount.path) - before < took
    except Unavailable as error:
        pytest.skip(str(error))


def waited(mountpoint):
    """For the server's metadata, until files were made, written and durable: microseconds."""
    spent = mount_stages(mountpoint)
    of = [spent[name] for name in ("create", "flush", "fsync") if name in spent]
    return sum(stages.get("meta", 0) * stages["count"] for stages in of)


def mount_stages(mountpoint):
    """{operation: {stage: mean microseconds, "count": n}}, as `cairn stats` shows them."""
    shown = subprocess.run(
        [binary(), "stats", str(mountpoint)], capture_output=True, text=True, check=True
    ).stdout
    found = {}
    for line in shown.splitlines()[1:]:
        name, count, *rest = line.split()
        if len(rest) >= 3:
            stages = dict(zip(rest[3::2], map(float, rest[4::2])))
            assert sum(stages.values()) <= float(rest[0]) + 1, line
            found[name] = {"count": int(count), **stages}
    return found


def test_slow_and_failed_requests_are_logged_by_their_trace():
    with Server(args=["--slow-ms", "0"]) as server:
        headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-00"}
        Http(server.http).request("GET", "/storage/", headers=headers)

        def logged():
            return [line for line in server.tail(100_000).splitlines() if TRACE in line]

        eventually(logged, "the request is logged")
        line = logged()[0]
        assert "slow request" in line and "door=" in line and "status=200" in line, line


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes what an OpenTelemetry collector would."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_traces_are_exported():
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    collector.taken = []
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{collector.server_port}"
    with Server(args=["--otlp", url, "--otlp-ratio", "0"]) as server:
        s3 = S3(server.s3)
        s3.create_bucket("not-sampled")
        headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        s3.object("PUT", "not-sampled", "a", body=b"x", headers=headers)
        eventually(lambda: collector.taken, "a trace is exported")
    collector.shutdown()
    [(path, kind, message)] = collector.taken
    assert (path, kind) == ("/v1/traces", "application/json")
    [span] = message["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert span["traceId"] == TRACE and span["parentSpanId"] == "00f067aa0ba902b7"
    assert span["name"] == "s3 PutObject"
    assert int(span["startTimeUnixNano"]) < int(span["endTimeUnixNano"])
    assert "cairn.stage.sync_us" in {entry["key"] for entry in span["attributes"]}


def test_spans_of_the_master_are_below_those_of_the_gateway():
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    collector.taken = []
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{collector.server_port}"

    def spans():
        scopes = [message["resourceSpans"][0]["scopeSpans"][0] for *_, message in list(collector.taken)]
        return [span for scope in scopes for span in scope["spans"]]

    with Cluster(chunkservers=1, gateways=1, replicas=1) as cluster:
        for name in ("m1", "g1"):
            cluster[name].kill()
            cluster[name].arguments += ["--otlp", url]
            cluster[name].start()
        cluster["g1"].wait_ready()
        s3 = S3(cluster["g1"].s3)
        s3.create_bucket("bucket")
        headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        reply = s3.object("PUT", "bucket", "a", body=b"x", headers=headers)
        assert reply.status == 200, reply

        def traced():
            named = {span["name"]: span for span in spans() if span["traceId"] == TRACE}
            return named.get("s3 PutObject"), named.get("session put_object")

        eventually(lambda: all(traced()), "both are exported")
        asked, ran = traced()
        assert asked["parentSpanId"] == "00f067aa0ba902b7"
        assert ran["parentSpanId"] == asked["spanId"] != ran["spanId"]
    collector.shutdown()
