"""Stock shippers of Debian, configured as docs/logs.md says, while the server is killed."""

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from harness.server import KEY, ROOT, SECRET, Server
from harness.wait import eventually

from logs import sink

RECORDS = 600
UPLOAD = Path("/usr/lib/systemd/systemd-journal-upload")
REMOTE = Path("/usr/lib/systemd/systemd-journal-remote")


@pytest.fixture
def server():
    with Server() as running:
        yield running


def documented(heading, server, **replaced):
    """The configuration below a heading of docs/logs.md, for this server."""
    text = (ROOT / "docs/logs.md").read_text()
    section = text.split(f"\n### {heading}\n")[1]
    block = re.search(r"```\w*\n(.*?)```", section, re.S).group(1)
    host, port = server.http.removeprefix("http://").rsplit(":", 1)
    words = {"127.0.0.1": host, "8080": port, "KEY": KEY, "SECRET": SECRET, **replaced}
    for word, instead in words.items():
        block = re.sub(rf"\b{re.escape(word)}\b", str(instead), block)
    return block


def has(server, shipper, source, count, text):
    """Whether so many different records have come."""

    def condition():
        assert shipper.poll() is None, "the shipper has ended"
        try:
            lines = sink.lines(server).get(source, [])
        except AssertionError:  # there is no bucket yet
            return False
        return len({text(line) for line in lines}) >= count

    return condition


def test_rsyslog_loses_nothing(server, work):
    if not shutil.which("rsyslogd"):
        pytest.skip("no rsyslogd here")
    log, state = work / "app.log", work / "state"
    state.mkdir()
    log.write_text("".join(f"record {n}\n" for n in range(RECORDS // 2)))
    config = documented("rsyslog", server)
    config = config.replace("/var/log/app.log", str(log)).replace("/var/spool/rsyslog", str(state))
    (work / "rsyslog.conf").write_text(config)
    command = ["rsyslogd", "-n", "-f", work / "rsyslog.conf", "-i", work / "pid"]
    with open(work / "rsyslog.out", "w") as out:
        shipper = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        text = lambda line: line["event"]["message"]  # noqa: E731
        eventually(has(server, shipper, "app", 1, text), "the first records come")
        server.kill()
        with open(log, "a") as more:
            more.writelines(f"record {n}\n" for n in range(RECORDS // 2, RECORDS))
        server.start()
        eventually(has(server, shipper, "app", RECORDS, text), "all records come")
    finally:
        shipper.send_signal(signal.SIGTERM)
        shipper.wait(timeout=60)
    messages = [text(line) for line in sink.lines(server)["app"]]
    first = list(dict.fromkeys(messages))
    assert first == [f"record {n}" for n in range(RECORDS)]


def test_a_journal_is_uploaded_whole(server, work):
    if not UPLOAD.exists():
        pytest.skip("no systemd-journal-upload here")
    entries = "".join(
        f"__CURSOR=s=1;i={n}\n__REALTIME_TIMESTAMP={1_700_000_000_000_000 + n}\n"
        f"__MONOTONIC_TIMESTAMP={n}\n_BOOT_ID=0123456789abcdef0123456789abcdef\n"
        f"_HOSTNAME=box\nMESSAGE=record {n}\n\n"
        for n in range(RECORDS)
    )
    journal = work / "box.journal"
    made = subprocess.run(
        [REMOTE, f"--output={journal}", "-"], input=entries.encode(), capture_output=True
    )
    assert made.returncode == 0, made.stderr
    command = documented("systemd-journal-upload", server).strip().split()
    command = [str(UPLOAD), *command[1:], f"--file={journal}", f"--save-state={work / 'state'}"]
    text = lambda line: line["event"]["MESSAGE"]  # noqa: E731
    with open(work / "upload.out", "w") as out:
        shipper = subprocess.Popen(command, stdout=out, stderr=out)
        eventually(has(server, shipper, "box", 1, text), "the first entries come")
        server.restart()
        # It ends when its server does, and is started again as its unit would.
        shipper.terminate()
        shipper.wait(timeout=60)
        shipper = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        eventually(has(server, shipper, "box", RECORDS, text), "all entries come")
    finally:
        shipper.terminate()
        shipper.wait(timeout=60)
    lines = sink.lines(server)["box"]
    first = list(dict.fromkeys(text(line) for line in lines))
    assert first == [f"record {n}" for n in range(RECORDS)]
    assert lines[0]["time"] == "2023-11-14T22:13:20.000000000Z"
