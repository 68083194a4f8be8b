"""Records are counted by source and level, and a webhook is told of a source with many errors."""

import http.server
import json
import os
import subprocess
import threading

import pytest
from harness.doors import Http
from harness.server import KEY, SECRET, Server, binary
from harness.wait import eventually

JSON = {"Content-Type": "application/json"}
ENV = {**os.environ, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}


@pytest.fixture
def hook():
    """A server that keeps what it is told."""
    told = []

    class Told(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Told)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listener.server_address[1]}/", told
    listener.shutdown()


def push(server, source, levels):
    lines = [line for level in levels for line in ({"create": {}}, {"log.level": level, "message": "x"})]
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert not Http(server.http).request("POST", f"/{source}/_bulk", body, JSON).json()["errors"]


def test_errors_of_a_source_are_told(hook):
    url, told = hook
    with Server(args=["--error-webhook", url, "--source-error-rate", "10"]) as server:
        push(server, "quiet", ["error"] * 9 + ["info"] * 50)
        push(server, "loud", ["ERROR", "fatal", "err"] * 4 + ["warn", "Debug", "trace", "notice"])
        streams = [{"stream": {"job": "loki", "level": "error"}, "values": [["1", "x"]] * 10}]
        body = json.dumps({"streams": streams}).encode()
        assert Http(server.http).request("POST", "/loki/api/v1/push", body, JSON).status == 204
        eventually(lambda: len(told) == 2, "two sources are told of")
        assert {one["source"]: one["errors"] for one in told} == {"logs-root/loud": 12, "logs-root/loki": 10}
        metrics = Http(server.http).request("GET", "/metrics").body.decode()
        counted = {"error": 12, "warning": 1, "info": 1, "debug": 2}
        for level, count in counted.items():
            labels = f'{{bucket="logs-root",source="loud",level="{level}"}}'
            assert f"cairn_log_levels_total{labels} {count}" in metrics
        # They have names, so not everybody sees them.
        local = Http(server.http, None).request("GET", "/metrics")
        assert local.status == 200 and b"log_levels" not in local.body


def test_a_search_finds_what_the_metric_counts():
    with Server() as server:
        documents = [
            {"message": "nested", "request": {"level": "error"}},
            {"message": "plain", "level": "error"},
            {"message": "inner", "log": {"level": "fatal"}},
        ]
        body = "".join(f'{{"create":{{}}}}\n{json.dumps(one)}\n' for one in documents).encode()
        assert not Http(server.http).request("POST", "/app/_bulk", body, JSON).json()["errors"]
        metrics = Http(server.http).request("GET", "/metrics").body.decode()
        labels = '{bucket="logs-root",source="app",level="error"}'
        assert f"cairn_log_levels_total{labels} 2" in metrics
        command = [binary(), "logs", "grep", "", "app", "--level", "err", "--server", server.http]
        found = subprocess.run(command, env=ENV, check=True, capture_output=True).stdout.splitlines()
        assert [json.loads(line)["event"]["message"] for line in found] == ["plain", "inner"]
