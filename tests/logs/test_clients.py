"""Clients of each protocol send while the server is killed: nothing acknowledged is lost or torn."""

import gzip
import itertools
import json
import uuid

import pytest
from harness.doors import Http
from harness.server import KEY, SECRET, Server

from logs import sink

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


def bulk(server, source):
    elasticsearch = pytest.importorskip("elasticsearch")
    client = elasticsearch.Elasticsearch(
        server.http,
        basic_auth=(KEY, SECRET),
        max_retries=0,
        retry_on_timeout=False,
        request_timeout=TIMEOUT_SECONDS,
    )

    def send(batch):
        documents = [{"message": line} for line in batch]
        operations = itertools.chain(*(({"create": {}}, document) for document in documents))
        reply = client.bulk(index=source, operations=list(operations))
        assert not reply["errors"], reply
        assert [item["create"]["status"] for item in reply["items"]] == [201] * len(batch)

    return send


def otlp(server, source):
    exporting = pytest.importorskip("opentelemetry.exporter.otlp.proto.http._log_exporter")
    from opentelemetry._logs import LogRecord
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk._logs.export import LogRecordExportResult
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create({"service.name": source})
    headers = Http(server.http).auth
    exporter = exporting.OTLPLogExporter(f"{server.http}/v1/logs", headers=headers, timeout=5)

    def send(batch):
        records = [ReadableLogRecord(LogRecord(body=line), resource) for line in batch]
        assert exporter.export(records) == LogRecordExportResult.SUCCESS

    return send


def message(line):
    """The text of a line of any protocol."""
    return line.get("line") or line.get("body") or line["event"]["message"]


@pytest.mark.parametrize("protocol", [loki, bulk, otlp, keyed])
def test_nothing_acknowledged_is_lost(server, protocol):
    source = protocol.__name__
    if protocol is keyed:
        Http(server.http).create_bucket(sink.BUCKET)
    producers = [sink.Producer(f"p{n}", protocol(server, source)) for n in range(4)]
    sink.run(server, producers)
    stored = [message(line) for line in sink.lines(server)[source]]
    sink.check(producers, stored, is_once=protocol is keyed)


def test_one_bad_record_leaves_the_others(server):
    http = Http(server.http)
    body = b'{"create":{}}\n{"message":"good"}\n{"create":{}}\n{bad\n'
    reply = http.request("POST", "/app/_bulk", body).json()
    assert [item["create"]["status"] for item in reply["items"]] == [201, 400]
    assert [line["event"]["message"] for line in sink.lines(server)["app"]] == ["good"]
    metrics = http.request("GET", "/metrics").body.decode()
    assert 'cairn_log_records_total{protocol="bulk",outcome="refused"} 1' in metrics
