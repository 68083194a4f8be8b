"""Records go where templates say, and following, retention and commands find them there."""

import json
import subprocess

import pytest
from harness.doors import Http
from harness.server import KEY, SECRET, Server, binary
from harness.wait import eventually

PATHS = ["--log-path", "logs-{user}/{protocol}-{source}/{day}.jsonl"]
PATHS += ["--log-path", "alice=logs-team/{source}/{day}.jsonl"]


def post(http, path, body):
    return http.request("POST", path, body, {"Content-Type": "application/json"})


def push(http, message, source="app"):
    body = json.dumps({"create": {}}) + "\n" + json.dumps({"message": message}) + "\n"
    return [item["create"]["status"] for item in post(http, f"/{source}/_bulk", body.encode()).json()["items"]]


def test_records_go_where_templates_say(work):
    with Server(args=PATHS) as server:
        root = Http(server.http)
        key = post(root, "/admin/keys", b'{"user":"alice"}').json()
        alice = Http(server.http, (key["id"], key["secret"]))
        assert push(root, "one") == [201]
        streams = {"streams": [{"stream": {"job": "a/b"}, "values": [["1", "two"]]}]}
        assert post(root, "/loki/api/v1/push", json.dumps(streams).encode()).status == 204
        sources = {key.rsplit("/", 1)[0] for key in root.list("logs-root")}
        assert sources == {"bulk-app", "loki-a%2Fb"}
        # A bucket that a template names is not made, and rights decide who writes to it.
        assert push(alice, "no") == [404]
        root.create_bucket("logs-team")
        assert push(alice, "no") == [403]
        reply = root.request("PATCH", "/storage/logs-team?grant=alice:write")
        assert reply.status in (200, 204), reply
        assert push(alice, "three") == [201]
        (day,) = root.list("logs-team")
        assert day.startswith("app/") and "X-Cairn-Meta-Cairn-Log" in root.object("HEAD", "logs-team", day).headers
        env = {"CAIRN_SERVER": server.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET, "HOME": str(work)}
        command = [binary(), "logs", "tail", "--bucket", "logs-root", "-n", "5", "bulk-app"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert json.loads(done.stdout)["event"] == {"message": "one"}, done.stderr
        followed = subprocess.Popen(
            [*command[:-1], "-f", "bulk-app"], env=env, stdout=subprocess.PIPE, text=True
        )
        try:
            assert "one" in followed.stdout.readline()
            assert push(root, "four") == [201]
            assert "four" in followed.stdout.readline()
        finally:
            followed.kill()
            followed.wait()
        counted = 'cairn_log_levels_total{bucket="logs-team",source="app",level="none"} 1'
        eventually(lambda: counted in root.request("GET", "/metrics").body.decode(), "it is counted")


@pytest.mark.parametrize("template", ["logs-{user}/{day}.jsonl", "x/{source}/{day}.jsonl", "a=b"])
def test_a_template_of_another_form_is_refused(work, template):
    command = [binary(), "server", work / "data", "--log-path", template]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "the default is logs-{user}" in done.stderr, done.stderr
