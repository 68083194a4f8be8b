"""Clients of each protocol send while the server is killed: nothing acknowledged is lost or torn."""

import gzip
import itertools
import json
import logging
import os
import shlex
import subprocess
import uuid

import pytest
from harness.doors import Http
from harness.server import ROOT, Server

from logs import sink
from logs.documented import documented

NODE = ROOT / "target/clients/logs_js"

# Clients that tell the server to send again would hide what the server does.
TIMEOUT_SECONDS = 20


@pytest.fixture
def server():
    with Server() as running:
        yield running


def poster(server, path, headers, body):
    """Sends by a plain request; `body` makes it from messages."""
    http = Http(server.http, timeout=TIMEOUT_SECONDS)

    def send(batch):
        reply = http.request("POST", path, body(batch), headers)
        assert 200 <= reply.status < 300, reply
        return reply

    return send


def loki(server, source):
    def body(batch):
        values = [[str(1_700_000_000_000_000_000 + n), line] for n, line in enumerate(batch)]
        streams = [{"stream": {"job": source}, "values": values}]
        return gzip.compress(json.dumps({"streams": streams}).encode())

    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    return poster(server, "/loki/api/v1/push", headers, body)


def keyed(server, source):
    """Lines with an Idempotency-Key that stays while a batch is sent again."""
    http = Http(server.http, timeout=TIMEOUT_SECONDS)
    keys, target = {}, f"/storage/{sink.BUCKET}/{source}/lines.jsonl?append"

    def send(batch):
        key = keys.setdefault(batch[0], str(uuid.uuid4()))
        body = "".join(json.dumps({"line": line}) + "\n" for line in batch).encode()
        reply = http.request("POST", target, body, {"Idempotency-Key": key})
        assert reply.status == 200, reply
        assert reply.json()["length"] == len(body)

    return send


def executed(heading, server, **names):
    """The names that a documented program of Python defines."""
    exec(compile(documented(heading, server), heading, "exec"), names)  # noqa: S102: our own
    return names


def bulk(server, source):
    pytest.importorskip("elasticsearch")
    client = executed("Elasticsearch's client for Python", server)["client"]
    client = client.options(max_retries=0, retry_on_timeout=False, request_timeout=TIMEOUT_SECONDS)

    def send(batch):
        documents = [{"message": line} for line in batch]
        operations = itertools.chain(*(({"create": {}}, document) for document in documents))
        reply = client.bulk(index=source, operations=list(operations))
        assert not reply["errors"], reply
        assert [item["create"]["status"] for item in reply["items"]] == [201] * len(batch)

    return send


def loki_python(server, source):
    pytest.importorskip("logging_loki")
    # A logger belongs to the process, a handler to a producer.
    handler = executed("Loki from Python", server)["handler"]
    logging.getLogger("app").removeHandler(handler)
    assert handler.emitter.tags == {"job": source}

    def send(batch):
        for line in batch:
            record = logging.LogRecord("tests", logging.ERROR, "", 0, line, None, None)
            # As the handler does, which hides failures.
            handler.emitter(record, handler.format(record))

    return send


def environment(server):
    """What the SDKs of OpenTelemetry read."""
    kind = {"Content-Type": "application/json"}
    made = Http(server.http).request("POST", "/admin/tokens", b'{"user":"root"}', kind).json()
    lines = documented("OpenTelemetry", server, TOKEN=made["token"]).split("\n")
    return dict(shlex.split(line)[0].split("=", 1) for line in lines if line)


def otlp(server, source, monkeypatch):
    exporting = pytest.importorskip("opentelemetry.exporter.otlp.proto.http._log_exporter")
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk._logs.export import LogRecordExportResult
    from opentelemetry.sdk.resources import Resource

    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    resource = Resource.create({"service.name": source})
    exporter = exporting.OTLPLogExporter(timeout=5)
    error = SeverityNumber.ERROR

    def send(batch):
        logged = [LogRecord(body=line, severity_number=error) for line in batch]
        records = [ReadableLogRecord(record, resource) for record in logged]
        assert exporter.export(records) == LogRecordExportResult.SUCCESS

    return send


class Node:
    """A program for Node: a documented configuration, and behind it what sends batches."""

    def __init__(self, what, configuration, env, work):
        if not (NODE / "node_modules").exists():
            pytest.skip("no clients for Node here")
        # Beside the packages that it imports.
        self.program = NODE / f"{work.name}-{uuid.uuid4()}.mjs"
        self.program.write_text(configuration + "\n" + (NODE / "send.mjs").read_text())
        command = ["node", self.program, what]
        self.process = subprocess.Popen(
            command, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert self.process.stdout.readline() == "ready\n"
        finally:
            self.program.unlink()

    def __call__(self, batch):
        self.process.stdin.write(json.dumps(batch) + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        assert reply == "ok\n", reply


@pytest.fixture
def nodes(server, work):
    """Starts programs for Node, and ends them."""
    started = []

    def start(what, heading=None):
        configuration = documented(heading, server) if heading else ""
        env = {} if heading else environment(server)
        started.append(Node(what, configuration, env, work))
        return started[-1]

    yield start
    for node in started:
        node.process.kill()
        node.process.wait()


def message(line):
    """The text of a line of any protocol."""
    text = line.get("line") or line.get("body") or line["event"]["message"]
    # As pino-loki sends it.
    return json.loads(text)["msg"] if text.startswith("{") else text


def survives(server, source, send, is_once=False):
    """Producers send while the server is killed, each with a client of its own."""
    producers = [sink.Producer(f"p{n}", send()) for n in range(4)]
    sink.run(server, producers)
    stored = [message(line) for line in sink.lines(server)[source]]
    # Documented configurations send this.
    stored = [text for text in stored if text != "it works"]
    sink.check(producers, stored, is_once)


@pytest.mark.parametrize("protocol", [loki, loki_python, bulk, keyed])
def test_nothing_acknowledged_is_lost(server, protocol):
    source = "lines" if protocol is keyed else "app"
    if protocol is keyed:
        Http(server.http).create_bucket(sink.BUCKET)
    survives(server, source, lambda: protocol(server, source), is_once=protocol is keyed)


def test_nothing_acknowledged_to_opentelemetry_is_lost(server, monkeypatch):
    survives(server, "app", lambda: otlp(server, "app", monkeypatch))
    metrics = Http(server.http).request("GET", "/metrics").body.decode()
    level = '{bucket="logs-root",source="app",level="error"}'
    assert f"cairn_log_levels_total{level} " in metrics


@pytest.mark.parametrize(
    ("what", "heading"),
    [
        ("elasticsearch", "Elasticsearch's client for Node"),
        ("loki", "Loki from Node"),
        ("otlp", None),
    ],
)
def test_nothing_acknowledged_to_node_is_lost(server, nodes, what, heading):
    survives(server, "app", lambda: nodes(what, heading))
