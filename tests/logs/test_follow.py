"""Following with curl, at a server and from one gateway to another; and `cairn logs`."""

import http.client
import json
import os
import re
import resource
import subprocess
import tarfile
import threading
import urllib.parse

import pytest
from harness.cluster import Cluster
from harness.doors import Http
from harness.server import KEY, SECRET, Server, binary
from harness.wait import PATIENCE_SECONDS, eventually

from logs import sink

# More in the long form.
FOLLOWERS = int(os.environ.get("CAIRN_TEST_LOG_FOLLOWERS", "50"))


@pytest.fixture
def server():
    with Server() as running:
        yield running


def push(url, source, *messages):
    documents = "".join(
        json.dumps({"create": {}}) + "\n" + json.dumps({"message": text, "level": level}) + "\n"
        for text, level in messages
    )
    path = f"/{urllib.parse.quote(source, safe='')}/_bulk"
    reply = Http(url).request("POST", path, documents.encode(), {})
    assert reply.status == 200 and not reply.json()["errors"], reply


class Running:
    """A command whose lines are read as they come."""

    def __init__(self, command, env=None):
        self.lines = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()


def curl(url, path, *args):
    return Running(["curl", "-sN", "-u", f"{KEY}:{SECRET}", *args, url + path])


def command(url, *args):
    return [binary(), "logs", "--server", url, *args]


ENV = dict(os.environ, CAIRN_KEY=KEY, CAIRN_SECRET=SECRET)


def logs(server, *args, code=0):
    done = subprocess.run(command(server.http, *args), env=ENV, capture_output=True, timeout=60)
    assert done.returncode == code, done
    return done.stdout.decode()


def test_curl_follows_an_object_and_its_events_resume(server):
    http = Http(server.http)
    assert http.request("PUT", "/storage/bucket", b"", {}).status == 201
    path = "/storage/bucket/log"
    append = lambda text: http.request("POST", f"{path}?append", text.encode(), {})  # noqa: E731
    append("one\ntwo")
    with (
        curl(server.http, f"{path}?follow&offset=0") as whole,
        curl(server.http, f"{path}?follow", "-H", "Accept: text/event-stream") as events,
    ):
        eventually(lambda: whole.lines == ["one", "two"], "what is there comes")
        eventually(lambda: "id: 8" in events.lines, "where it begins comes")
        for number in range(100):
            append(str(number))
        expected = [str(number) for number in range(100)]
        eventually(lambda: whole.lines[2:] == expected, "what is added comes")
        data = lambda: [line[6:] for line in events.lines if line.startswith("data: ")]  # noqa: E731
        eventually(lambda: data() == expected, "and as events")
        # The server stops at once, although both follow.
        assert server.stop() == 0
        whole.process.wait(timeout=PATIENCE_SECONDS)
        assert whole.process.returncode == 0
    seen = [line[4:] for line in events.lines if line.startswith("id: ")]
    server.start()
    with curl(
        server.http, f"{path}?follow", "-H", "Accept: text/event-stream", "-H", f"Last-Event-ID: {seen[50]}"
    ) as events:
        data = lambda: [line[6:] for line in events.lines if line.startswith("data: ")]  # noqa: E731
        eventually(lambda: data() == expected[50:], "it goes on behind what was seen")


def test_one_gateway_hears_of_what_another_adds():
    with Cluster(chunkservers=1, gateways=2, replicas=1) as cluster:
        urls = [cluster.nodes[name].http for name in ("g1", "g2")]
        push(urls[0], "app", ("zero", "info"))
        path = f"/storage/{sink.BUCKET}/app/?follow"
        with curl(urls[0], path) as here, curl(urls[1], path) as there:
            following = [Http(url) for url in urls]
            for http in following:
                metrics = lambda http=http: http.request("GET", "/metrics", b"", {}).body  # noqa: E731
                eventually(lambda: b"cairn_followers 1" in metrics(), "it follows")
            for number in range(20):
                push(urls[number % 2], "app", (str(number), "info"))
            for stream in (here, there):
                messages = lambda: [json.loads(line)["event"]["message"] for line in stream.lines]  # noqa: E731
                eventually(lambda: len(stream.lines) == 20, "all come")
                assert messages() == [str(number) for number in range(20)]


def test_many_followers_of_a_file_cost_one_read(server):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    root, path = Http(server.http), "/storage/bucket/log"
    for made in ("/storage/bucket", path):
        assert root.request("PUT", made, b"", {}).status == 201
    followers, host = [], server.http.removeprefix("http://")
    try:
        for _ in range(FOLLOWERS):
            connection = http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)
            connection.request("GET", f"{path}?follow&offset=0", headers=root.auth)
            followers.append((connection, connection.getresponse()))
            assert followers[-1][1].status == 200
        expected = [b"record %d\n" % number for number in range(100)]
        for line in expected:
            assert root.request("POST", f"{path}?append", line, {}).status == 200
        for _, reply in followers:
            assert [reply.readline() for _ in expected] == expected
    finally:
        for connection, _ in followers:
            connection.close()
    metrics = root.request("GET", "/metrics", b"", {}).body.decode()
    reads = int(re.search(r'^cairn_follow_reads_total\{for="all"\} (\d+)', metrics, re.M)[1])
    print(f"{len(followers)} followers, {len(expected)} appends, {reads} reads")
    assert reads <= 2 * len(expected)


def test_commands_for_logs(server, tmp_path):
    push(server.http, "web", ("a timeout", "error"), ("fine", "info"), ("Timed out", "warn"))
    push(server.http, "other/é", ("x", "debug"))
    assert [line.split()[:2] for line in logs(server, "ls").splitlines()[1:]] == [
        ["other%2F%C3%A9", "1"],
        ["web", "1"],
    ]
    [day] = [json.loads(line) for line in logs(server, "ls", "web", "--json").splitlines()]
    message = lambda text: [json.loads(line)["event"]["message"] for line in text.splitlines()]  # noqa: E731
    assert message(logs(server, "tail", "-n", "2", "web")) == ["fine", "Timed out"]
    assert message(logs(server, "grep", "-i", "timed? ?out|timeout", "web")) == ["a timeout", "Timed out"]
    assert message(logs(server, "grep", "", "web", "--level", "warning")) == ["a timeout", "Timed out"]
    assert message(logs(server, "grep", "-F", "fine", "web", "--since", "1h")) == ["fine"]
    assert logs(server, "grep", "fine", "web", "--until", day["day"], code=1) == ""
    logs(server, "grep", "(", "web", code=2)
    logs(server, "tail", "none", code=1)
    with Running(command(server.http, "tail", "-f", "-n", "1", "web"), ENV) as tail:
        eventually(lambda: message("\n".join(tail.lines)) == ["Timed out"], "the last line comes")
        push(server.http, "web", ("more", "info"))
        eventually(lambda: message(tail.lines[-1]) == ["more"], "it follows")
        server.restart()
        push(server.http, "web", ("again", "info"))
        eventually(lambda: message(tail.lines[-1]) == ["again"], "it goes on")
        assert message("\n".join(tail.lines)) == ["Timed out", "more", "again"]
    target = tmp_path / "web.tar.gz"
    logs(server, "zip", "web", str(target))
    name = f"web/{day['day']}.jsonl"
    with tarfile.open(target) as archive:
        assert archive.getnames() == [name]
        body = Http(server.http).object("GET", sink.BUCKET, name).body
        assert archive.extractfile(name).read() == body


def test_retention_is_set_and_shown(server):
    push(server.http, "web", ("x", "info"))
    assert logs(server, "retention").split() == ["SOURCE", "DAYS", "SIZE", "(all)", "-", "-"]
    logs(server, "retention", "--confirm", code=1)
    logs(server, "retention", "--days", "3", code=2)
    logs(server, "retention", "--all", "--days", "30")
    logs(server, "retention", "web", "--bytes", "10m")
    settings = {"all": {"days": 30}, "sources": {"web": {"bytes": 10 << 20}}}
    assert json.loads(logs(server, "retention", "--json")) == settings
    assert json.loads(logs(server, "retention", "--confirm", "--json")) == settings
    logs(server, "retention", "web", "--inherit")
    logs(server, "retention", "--all", "--off")
    assert json.loads(logs(server, "retention", "--json")) == {"all": {}, "sources": {}}
