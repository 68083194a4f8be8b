"""Who may mount what: users and their rights, TLS, credentials that are taken back."""

import errno
import json
import os
import subprocess

import pytest

from harness.mount import Door, Mount, environment, eventually_refused
from harness.server import Server, binary, scratch
from harness.wait import PATIENCE_SECONDS


def cairn(server, *args):
    run = subprocess.run([binary(), *args, "--server", server.http], env=environment(),
                         capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_user_sees_and_changes_what_its_rights_allow(monkeypatch):
    with Server() as server:
        for bucket in ("open", "readable", "hidden"):
            Door(server, bucket).ask("PUT", "")
            Door(server, bucket).put("file", bucket.encode())
        key = json.loads(cairn(server, "key", "create", "alice", "--json"))
        name = key.get("id") or key.get("key") or key.get("access_key")
        cairn(server, "bucket", "set", "open", "--grant", "alice:read,write")
        cairn(server, "bucket", "set", "readable", "--grant", "alice:read")
        mount = Mount(server, scratch("access") / "mnt", key=(name, key["secret"])).start()
        root = mount.path
        assert sorted(os.listdir(root)) == ["open", "readable"]
        (root / "open" / "file").write_bytes(b"changed")
        assert Door(server, "open").get("file") == b"changed"
        assert (root / "readable" / "file").read_bytes() == b"readable"
        for refused in (lambda: (root / "readable" / "file").write_bytes(b"x"),
                        lambda: (root / "readable" / "file").unlink(),
                        lambda: os.listdir(root / "hidden"),
                        lambda: (root / "hidden" / "file").read_bytes()):
            with pytest.raises(OSError) as caught:
                refused()
            assert caught.value.errno in (errno.EACCES, errno.EPERM), caught.value
        # A right that is taken away is gone at once, from the kernel's memory too.
        cairn(server, "bucket", "set", "readable", "--grant", "alice:none")
        with pytest.raises(OSError):
            (root / "readable" / "file").read_bytes()
        # And so is the mount, soon, when its key is.
        cairn(server, "key", "rm", name)
        eventually_refused(root / "open")
        mount.kill()
        mount.stop()


def test_mounts_go_over_tls_and_check_whom_they_speak_with(work):
    def openssl(*args):
        subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=work)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", "key.pem", "-out", "csr.pem", "-subj", "/CN=server")
    (work / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "cert.pem", "-days", "2", "-extfile", "ext")
    arguments = ["--tls-cert", str(work / "cert.pem"), "--tls-key", str(work / "key.pem")]
    with Server(args=arguments) as server:
        trusted = ["--ca", str(work / "ca.pem")]
        with Mount(server, work / "mnt", trusted) as mount:
            assert os.listdir(mount.path) == []
        command = [binary(), "mount", server.http, str(work / "mnt")]
        run = subprocess.run(command, env=environment(), capture_output=True, text=True,
                             timeout=PATIENCE_SECONDS)
        assert run.returncode != 0 and "ertificate" in run.stderr, run.stderr
