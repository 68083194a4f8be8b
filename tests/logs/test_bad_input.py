"""Bodies that lie, are far too long, or are partly wrong: clear answers, and bounded memory."""

import gzip
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.doors import Http
from harness.server import Server
from harness.wait import eventually

from logs import sink

MIB = 1 << 20
# All that bodies may take at once, and as much again for what lies around it.
MEMORY = 256 * MIB
JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
PATHS = [
    ("/loki/api/v1/push", JSON),
    ("/app/_bulk", JSON),
    ("/v1/logs", JSON),
    (f"/storage/{sink.BUCKET}/lines?append", {}),
]


@pytest.fixture
def server():
    with Server(args=["--syslog", "127.0.0.1:0", "--syslog-user", "root"]) as running:
        Http(running.http).create_bucket(sink.BUCKET)
        running.reset_rss_peak()
        before = running.rss_peak_bytes()
        yield running
        grown = running.rss_peak_bytes() - before
        assert grown < MEMORY, f"{grown >> 20} MiB"


def refused(reply, *statuses):
    assert reply.status in statuses, reply
    assert reply.json()["message"], "it says why"


def test_bombs_are_refused(server):
    bomb = gzip.compress(bytes(512 * MIB), 1)
    assert len(bomb) < 4 * MIB
    for path, headers in PATHS:
        headers = {**headers, "Content-Encoding": "gzip"}
        for _ in range(3):
            refused(Http(server.http).request("POST", path, bomb, headers), 413)


def test_lengths_of_snappy_that_lie_are_refused(server):
    # 2^32 - 1, 2^63, and more than the bytes could become.
    for claimed in (b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80\x80\x80\x02"):
        body = claimed + b"\x00a"
        refused(Http(server.http).request("POST", "/loki/api/v1/push", body, PROTOBUF), 400, 413)


def test_a_line_of_100_mb_is_refused(server):
    line = b"x" * (100 * 1000 * 1000)
    for path, headers in PATHS:
        refused(Http(server.http).request("POST", path, line, headers), 413)
    # Of a body that may be, but a record may not.
    document = json.dumps({"message": "x" * (2 * MIB)})
    body = f'{{"create":{{}}}}\n{document}\n{{"create":{{}}}}\n{{"message":"good"}}\n'.encode()
    reply = Http(server.http).request("POST", "/app/_bulk", body, JSON).json()
    assert [item["create"]["status"] for item in reply["items"]] == [413, 201]
    host, port = server.syslog.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60) as sender:
        try:
            sender.sendall(b"<13>" + line)
            assert sender.recv(1) == b""
        except ConnectionError:
            pass
    metrics = lambda: Http(server.http).request("GET", "/metrics").body.decode()  # noqa: E731
    lost = 'cairn_log_records_total{protocol="syslog",outcome="lost"} 1'
    eventually(lambda: lost in metrics(), "it is counted")
    assert [line["event"]["message"] for line in sink.lines(server)["app"]] == ["good"]


def field(number, value):
    """Of a message of protocol buffers."""
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(number):
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def snappy(body):
    """Unpacked, in pieces of 60 bytes."""
    pieces = [body[at : at + 60] for at in range(0, len(body), 60)]
    return varint(len(body)) + b"".join(bytes([(len(piece) - 1) << 2]) + piece for piece in pieces)


def test_what_is_not_utf_8_is_kept_or_refused_alone(server):
    http = Http(server.http)
    stream = field(1, b'{job="loki"}') + field(2, field(2, b"caf\xe9"))
    reply = http.request("POST", "/loki/api/v1/push", snappy(field(1, stream)), PROTOBUF)
    assert reply.status == 204, reply
    bulk = b'{"create":{}}\n{"message":"caf\xe9"}\n{"create":{}}\n{"message":"good"}\n'
    reply = http.request("POST", "/app/_bulk", bulk, JSON).json()
    assert [item["create"]["status"] for item in reply["items"]] == [400, 201]
    for path in ("/loki/api/v1/push", "/v1/logs"):
        refused(http.request("POST", path, b'{"streams":"\xe9"}', JSON), 400)
    host, port = server.syslog.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60) as sender:
        sender.sendall(b"<13>1 - box - - - - caf\xe9\n")
    eventually(lambda: "box" in sink.lines(server), "it comes")
    lines = sink.lines(server)
    assert [line["line"] for line in lines["loki"]] == ["caf\ufffd"]
    assert [line["message"] for line in lines["box"]] == ["caf\ufffd"]
    # Bytes of an append are what they were.
    assert http.request("POST", f"/storage/{sink.BUCKET}/raw?append", b"caf\xe9").status == 200
    assert http.object("GET", sink.BUCKET, "raw").body == b"caf\xe9\n"


def statuses(reply):
    assert reply.status == 200, reply
    return [item["create"]["status"] for item in reply.json()["items"]]


def test_many_items_and_long_actions_take_no_more_memory_than_others(server):
    bulk = lambda body, index="app": Http(server.http).request("POST", f"/{index}/_bulk", body, JSON)  # noqa: E731
    tiny = b'{"create":{}}\n{}\n'
    # A million items: refused as a whole. As many as may be: answered one by one.
    refused(bulk(tiny * (16 * MIB // len(tiny))), 413)
    with ThreadPoolExecutor(4) as pool:
        bad = b'{"create":{}}\n[]\n' * 65_536
        for reply in pool.map(bulk, [tiny * 65_536, bad, tiny * 65_536, bad]):
            assert len(set(statuses(reply))) == 1
    # The index of the path is in the answer to each item.
    refused(bulk(tiny * 65_536, "x" * 50_000), 400)
    # One action of 15 MiB, and many sources: items are refused, and the others kept.
    long = json.dumps({"create": {"_index": "\x01" * (15 * MIB // 6)}}).encode()
    assert statuses(bulk(long + b"\n{}\n" + tiny)) == [400, 201]
    long = json.dumps({"create": {"_id": "x" * (15 * MIB)}}).encode()
    assert statuses(bulk(long + b"\n{}\n" + tiny)) == [400, 201]
    many = b"".join(b'{"create":{"_index":"s%d"}}\n[]\n' % number for number in range(60_000))
    assert statuses(bulk(many + tiny)) == [400] * 60_000 + [201]
    assert list(sink.lines(server)) == ["app"]


def test_one_bad_record_leaves_the_others(server):
    http = Http(server.http)
    values = [["1", "one"], ["no time", "two"], ["3", "three"]]
    body = {"streams": [{"stream": {"job": "loki"}, "values": values}]}
    reply = http.request("POST", "/loki/api/v1/push", json.dumps(body).encode(), JSON)
    refused(reply, 400)
    assert "1 of 3 records were refused" in reply.json()["message"]
    records = [{"body": {"stringValue": "one"}}, {"timeUnixNano": "x"}, {"body": {"stringValue": "two"}}]
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    reply = http.request("POST", "/v1/logs", json.dumps(body).encode(), JSON)
    assert reply.status == 200
    assert reply.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    bulk = b'{"create":{}}\n{"message":"good"}\n{"create":{}}\n{bad\n'
    reply = http.request("POST", "/app/_bulk", bulk).json()
    assert [item["create"]["status"] for item in reply["items"]] == [201, 400]
    lines = sink.lines(server)
    assert [line["line"] for line in lines["loki"]] == ["one", "three"]
    assert [line["body"] for line in lines["otlp"]] == ["one", "two"]
    assert [line["event"]["message"] for line in lines["app"]] == ["good"]
    metrics = http.request("GET", "/metrics").body.decode()
    for protocol in ("loki", "otlp", "bulk"):
        assert f'cairn_log_records_total{{protocol="{protocol}",outcome="refused"}} 1' in metrics


def entry(message):
    return b"_HOSTNAME=box\nMESSAGE\n" + len(message).to_bytes(8, "little") + message + b"\n\n"


def test_a_bad_entry_of_a_journal_leaves_the_others(server):
    http, kind = Http(server.http), {"Content-Type": "application/vnd.fdo.journal"}
    long = entry(b"z" * (3 * MIB) + b"\n\nMESSAGE=forged\n\n")
    damaged = entry(b"bad").replace(b"\x03\0", b"\xff\xff", 1)
    good = [entry(b"record %d" % number) for number in range(5)]
    body = good[0] + long + good[1] + good[2] + damaged + good[3] + good[4] + good[4][:20]
    reply = http.request("POST", "/upload", body, kind)
    assert reply.status == 202 and reply.body.startswith(b"3 entries were refused"), reply
    messages = [line["event"]["MESSAGE"] for line in sink.lines(server)["box"]]
    assert messages == [f"record {number}" for number in range(5)]
    refused = 'cairn_log_records_total{protocol="journal",outcome="refused"} 3'
    assert refused in http.request("GET", "/metrics").body.decode()


def test_a_record_that_is_too_long_leaves_the_others(server):
    http, long = Http(server.http), "z" * (2 * MIB)
    values = [["1", "one"], ["2", long], ["3", "three"]]
    loki = json.dumps({"streams": [{"stream": {"job": "loki"}, "values": values}]}).encode()
    refused(http.request("POST", "/loki/api/v1/push", loki, JSON), 400)
    records = [{"body": {"stringValue": text}} for text in ("one", long, "three")]
    otlp = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()
    reply = http.request("POST", "/v1/logs", otlp, JSON)
    assert reply.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    texts = ("one", long, "three")
    records = b"".join(field(2, field(5, field(1, text.encode()))) for text in texts)
    reply = http.request("POST", "/v1/logs", field(1, field(2, records)), PROTOBUF)
    assert reply.status == 200 and b"1 of 3 records were refused" in reply.body, reply
    # A connection of syslog ends there, and its sender begins another.
    host, port = server.syslog.rsplit(":", 1)
    for text in texts:
        with socket.create_connection((host, int(port)), 60) as sender:
            try:
                sender.sendall(f"<13>1 - box - - - - {text}\n".encode())
            except ConnectionError:
                pass
    eventually(lambda: len(sink.lines(server).get("box", [])) == 2, "both come")
    lines = sink.lines(server)
    assert [line["line"] for line in lines["loki"]] == ["one", "three"]
    assert [line["body"] for line in lines["otlp"]] == ["one", "three"] * 2
    assert sorted(line["message"] for line in lines["box"]) == ["one", "three"]


def test_errors_of_otlp_have_the_type_of_the_request(server):
    bad = b"\xff\xff\xff"
    for kind in ("application/x-protobuf", "application/protobuf; charset=utf-8"):
        reply = Http(server.http).request("POST", "/v1/logs", bad, {"Content-Type": kind})
        assert (reply.status, reply.headers["content-type"]) == (400, "application/x-protobuf")
        # A google.rpc.Status: INVALID_ARGUMENT, and a text.
        assert reply.body.startswith(b"\x08\x03\x12") and b"no message" in reply.body, reply
    reply = Http(server.http, None).request("POST", "/v1/logs", b"", PROTOBUF)
    assert reply.status == 401 and reply.body.startswith(b"\x08\x10\x12"), reply
    reply = Http(server.http).request("POST", "/v1/logs", b"[]", JSON)
    assert reply.status == 400 and reply.headers["content-type"] == "application/json"
    refused(reply, 400)
