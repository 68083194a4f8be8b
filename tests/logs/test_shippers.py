"""Stock shippers of Debian, configured as docs/logs.md says, while the server is killed."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from harness.server import ROOT, Server
from harness.wait import eventually

from logs import sink
from logs.certificates import Certificates
from logs.documented import documented

RECORDS = 600
UPLOAD = Path("/usr/lib/systemd/systemd-journal-upload")
REMOTE = Path("/usr/lib/systemd/systemd-journal-remote")
SYSLOG_NG = ROOT / "target/syslog-ng"


@pytest.fixture
def server():
    with Server() as running:
        yield running


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


def ships_a_file(server, log, start, text):
    """A shipper sends the lines of a file while the server is killed: they come in their order."""
    log.write_text("".join(f"record {n}\n" for n in range(RECORDS // 2)))
    shipper = start()
    try:
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


def test_rsyslog_loses_nothing(server, work):
    if not shutil.which("rsyslogd"):
        pytest.skip("no rsyslogd here")
    log, state = work / "app.log", work / "state"
    state.mkdir()
    config = documented("rsyslog", server)
    config = config.replace("/var/log/app.log", str(log)).replace("/var/spool/rsyslog", str(state))
    (work / "rsyslog.conf").write_text(config)

    def start():
        command = ["rsyslogd", "-n", "-f", work / "rsyslog.conf", "-i", work / "pid"]
        with open(work / "rsyslog.out", "w") as out:
            return subprocess.Popen(command, stdout=out, stderr=out)

    ships_a_file(server, log, start, lambda line: line["event"]["message"])


def syslog_ng(work, config):
    """Starts the one that tests/install has unpacked."""
    (work / "syslog-ng.conf").write_text(config)
    libraries = [SYSLOG_NG / "usr/lib/syslog-ng"]
    for place in ("usr/lib", "lib"):
        libraries += (SYSLOG_NG / place).glob("*-linux-gnu")
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    command = [SYSLOG_NG / "usr/sbin/syslog-ng", "-F", "-e", "--no-caps", "-f", work / "syslog-ng.conf"]
    command += ["--module-path", next((SYSLOG_NG / "usr/lib/syslog-ng").glob("3.*"))]
    for option in ("persist-file", "control", "pidfile"):
        command += [f"--{option}", work / f"syslog-ng.{option}"]
    with open(work / "syslog-ng.out", "a") as out:
        return subprocess.Popen(command, env=env, stdout=out, stderr=out)


def needs_syslog_ng():
    if not (SYSLOG_NG / "usr/sbin/syslog-ng").exists():
        pytest.skip("no syslog-ng here")


def test_syslog_ng_loses_nothing(server, work):
    needs_syslog_ng()
    log = work / "app.log"
    config = documented("syslog-ng", server).replace("/var/log/app.log", str(log))
    ships_a_file(server, log, lambda: syslog_ng(work, config), lambda line: line["body"])


def test_syslog_ng_sends_over_tls(work):
    needs_syslog_ng()
    certificates = Certificates(work)
    log = work / "app.log"
    with Server(args=certificates.args()) as server:
        server.cafile = work / "cert.pem"
        port = server.syslog.rsplit(":", 1)[1]
        config = documented("syslog-ng over TLS", server, **{"6514": port})
        config = config.replace("/var/log/app.log", str(log)).replace("/etc/ssl", str(work))
        log.write_text("".join(f"record {n}\n" for n in range(RECORDS)))
        shipper = syslog_ng(work, config)
        try:
            host = socket.gethostname()
            eventually(has(server, shipper, host, RECORDS, lambda line: line["message"]), "all come")
        finally:
            shipper.terminate()
            shipper.wait(timeout=60)
        messages = [line["message"] for line in sink.lines(server)[host]]
        assert messages == [f"record {n}" for n in range(RECORDS)]


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


def test_an_uploader_gets_past_an_entry_that_is_too_long(server, work):
    if not UPLOAD.exists():
        pytest.skip("no systemd-journal-upload here")
    entries = b"".join(
        f"__CURSOR=s=1;i={n:x}\n__REALTIME_TIMESTAMP={1_700_000_000_000_000 + n}\n"
        f"__MONOTONIC_TIMESTAMP={n}\n_BOOT_ID=0123456789abcdef0123456789abcdef\n"
        f"_HOSTNAME=box\nMESSAGE={'z' * 1_300_000 if n == 2 else f'record {n}'}\n\n".encode()
        for n in range(1, 21)
    )
    journal = work / "box.journal"
    made = subprocess.run([REMOTE, f"--output={journal}", "-"], input=entries, capture_output=True)
    assert made.returncode == 0, made.stderr
    command = documented("systemd-journal-upload", server).strip().split()
    command = [str(UPLOAD), *command[1:], f"--file={journal}", f"--save-state={work / 'state'}"]
    text = lambda line: line["event"]["MESSAGE"]  # noqa: E731
    with open(work / "upload.out", "w") as out:
        shipper = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        eventually(has(server, shipper, "box", 19, text), "the entries behind it come")
    finally:
        shipper.terminate()
        shipper.wait(timeout=60)
    expected = [f"record {n}" for n in range(1, 21) if n != 2]
    assert [text(line) for line in sink.lines(server)["box"]] == expected
