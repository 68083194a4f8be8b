"""The matrix of rows against records: for requests of each kind at each door, the rows that users
see are compared with the audit. Whatever changes a row has a record, and what has only records of
refusals has changed nothing.

The doors S3 and HTTP have a larger one for all sorts of callers, in
crates/doors/tests/it/audit_has_each_change_and_refusal.rs.
"""

import fcntl
import gzip
import json
import os
import socket
from pathlib import Path

import pytest

from harness.console import Browser
from harness.doors import S3, XMLNS, Http
from harness.mount import Mount
from harness.rows import rows
from harness.server import KEY, SECRET, Server, scratch
from harness.wait import eventually
from hostile.test_hostile import MALLORY, prepare
from nfs import rpc
from nfs.conftest import export_all

ALICE = ("ALICEKEY000001", "secret-of-alice-0123456789")
JSON = {"Content-Type": "application/json"}
TUS = {"Tus-Resumable": "1.0.0"}
OFFSET_TYPE = {"Content-Type": "application/offset+octet-stream"}
CHANGED, SAME, REFUSED, ANY = "changed", "same", "refused", "any"


class Matrix:
    """Does one thing after another, and looks at rows and records after each."""

    def __init__(self, server, log):
        self.server, self.log = server, log
        self.root, self.marks = Http(server.http), 0
        self.read = 0
        self.steps, self.differences = 0, []
        self.records()

    def records(self):
        """The records since the last look. All of them are there: those of requests before a request
        that has a record are in the file before that."""
        self.marks += 1
        mark = f"mark-{self.marks}"
        assert self.root.object("DELETE", "nosuch", mark).status == 404
        new = []

        def has_come():
            with open(self.log) as file:
                file.seek(self.read)
                lines = file.read()
            new[:] = [json.loads(line) for line in lines.splitlines(True) if line.endswith("\n")]
            return any(one.get("key") == mark for one in new)

        eventually(has_come, "the record of the mark is in the file")
        self.read = self.log.stat().st_size
        return [one for one in new if one.get("key") != mark]

    def step(self, what, expected, act, unrecorded=False):
        """Does something. `unrecorded`: docs/audit.md says that it has no record."""
        before = rows(self.root)
        got = act()
        records = self.records()
        after = rows(self.root)
        self.steps += 1
        changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
        outcomes = [one["outcome"] for one in records]
        operations = [one["operation"] for one in records]
        shown = f"{what}: {getattr(got, 'status', got)}, {len(changed)} rows {changed[:3]}, {outcomes} of {operations}"
        allowed = {"done", "failed", "unknown"}
        if changed and not unrecorded and not allowed.intersection(outcomes):
            self.differences.append(f"changed without a record: {shown}")
        if expected == CHANGED and (not changed or ("done" not in outcomes) != unrecorded):
            self.differences.append(f"not as expected: {shown}: {getattr(got, 'body', b'')[:300]}")
        if expected == SAME and (changed or records):
            self.differences.append(f"a read: {shown}")
        if expected == REFUSED and (changed or outcomes != ["refused"]):
            self.differences.append(f"not refused: {shown}")
        return got


@pytest.fixture
def matrix(whole):
    whole.steps, whole.differences = 0, []
    return whole


@pytest.fixture(scope="module")
def whole():
    work = scratch("matrix")
    log = work / "audit.jsonl"
    doors = ["console", "nfs", "website", "syslog"]
    args = [text for door in doors for text in ("--" + door, "127.0.0.1:0")]
    args += ["--audit-log", str(log), "--syslog-user", "alice", "--website-domain", "sites.test"]
    # The user must be there before the door of syslog.
    with Server(work / "data") as server:
        prepare(server)
        body = json.dumps({"user": "alice", "id": ALICE[0], "secret": ALICE[1]})
        assert Http(server.http).request("POST", "/admin/keys", body.encode(), JSON).status == 201
        assert server.stop() == 0
    with Server(work / "data", args=args) as server:
        made = Matrix(server, log)
        made.work = work
        yield made


def all_as_expected(matrix, least):
    differences = matrix.differences
    assert not differences, "\n".join([f"{len(differences)} differences", *differences])
    assert matrix.steps >= least, matrix.steps


def test_s3(matrix):
    s3, other = S3(matrix.server.s3, ALICE), S3(matrix.server.s3, MALLORY)
    step = matrix.step

    def ask(expected, method, path, query=None, body=b"", headers=None, client=s3):
        what = f"s3 {method} {path} {query or ''}"
        return step(what, expected, lambda: client.request(method, path, query, body, headers))

    tags = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
    cors = (
        b"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*"
        b"</AllowedOrigin></CORSRule></CORSConfiguration>"
    )
    site = b"<WebsiteConfiguration><IndexDocument><Suffix>i</Suffix></IndexDocument></WebsiteConfiguration>"
    ask(CHANGED, "PUT", "/s3a")
    ask(CHANGED, "PUT", "/s3a/small", body=b"x", headers={"x-amz-meta-a": "b"})
    ask(CHANGED, "PUT", "/s3a/large", body=b"x" * 100_000)
    ask(CHANGED, "PUT", "/s3a/copy", headers={"x-amz-copy-source": "/s3a/large"})
    for sub, body in (("tagging", tags), ("cors", cors), ("website", site)):
        ask(CHANGED, "PUT", "/s3a", {sub: ""}, body)
        ask(SAME, "GET", "/s3a", {sub: ""})
        ask(CHANGED, "DELETE", "/s3a", {sub: ""})
    ask(ANY, "PUT", "/s3a", {"acl": ""}, headers={"x-amz-acl": "private"})
    ask(CHANGED, "PUT", "/s3a/small", {"tagging": ""}, tags)
    ask(SAME, "GET", "/s3a/small", {"tagging": ""})
    ask(CHANGED, "DELETE", "/s3a/small", {"tagging": ""})
    for path, query in (("/", {}), ("/s3a", {"list-type": "2"}), ("/s3a", {"versions": ""})):
        ask(SAME, "GET", path, query)
    ask(SAME, "GET", "/s3a/large")
    ask(SAME, "HEAD", "/s3a/large")
    ask(SAME, "GET", "/s3a/none")
    begun = ask(CHANGED, "POST", "/s3a/parts", {"uploads": ""})
    upload = begun.xml().find(XMLNS + "UploadId").text
    part = {"partNumber": "1", "uploadId": upload}
    etag = ask(CHANGED, "PUT", "/s3a/parts", part, b"x" * (5 << 20)).headers["ETag"]
    copied = {"partNumber": "2", "uploadId": upload}
    ask(CHANGED, "PUT", "/s3a/parts", copied, headers={"x-amz-copy-source": "/s3a/large"})
    ask(SAME, "GET", "/s3a/parts", {"uploadId": upload})
    ask(SAME, "GET", "/s3a", {"uploads": ""})
    parts = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    done = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    ask(CHANGED, "POST", "/s3a/parts", {"uploadId": upload}, done)
    begun = ask(CHANGED, "POST", "/s3a/aborted", {"uploads": ""})
    upload = begun.xml().find(XMLNS + "UploadId").text
    ask(REFUSED, "DELETE", "/s3a/aborted", {"uploadId": upload}, client=other)
    ask(CHANGED, "DELETE", "/s3a/aborted", {"uploadId": upload})
    for method, path in (("PUT", "/s3a/small"), ("DELETE", "/s3a/small"), ("GET", "/s3a/small")):
        ask(REFUSED, method, path, client=other)
    ask(REFUSED, "PUT", "/s3a/small", client=S3(matrix.server.s3, (ALICE[0], "wrong" * 5)))
    ask(CHANGED, "DELETE", "/s3a/copy")
    keys = "".join(f"<Object><Key>{key}</Key></Object>" for key in ("small", "large", "parts", "no"))
    ask(CHANGED, "POST", "/s3a", {"delete": ""}, f"<Delete>{keys}</Delete>".encode())
    ask(CHANGED, "DELETE", "/s3a")
    all_as_expected(matrix, 35)


def test_http(matrix):
    alice, other = Http(matrix.server.http, ALICE), Http(matrix.server.http, MALLORY)
    root = Http(matrix.server.http)

    def ask(expected, method, target, body=None, headers=None, client=alice):
        what = f"http {method} {target}"
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        return matrix.step(what, expected, lambda: client.request(method, target, body, headers))

    ask(CHANGED, "PUT", "/storage/hhh")
    for setting in ("cache_control=x", "visibility=public", "html_listing=on", "read_only=on"):
        ask(CHANGED, "PATCH", f"/storage/hhh?{setting}")
    ask(REFUSED, "PUT", "/storage/hhh/small", b"x")
    ask(CHANGED, "PATCH", "/storage/hhh?read_only=off")
    ask(CHANGED, "PATCH", "/storage/hhh", {"grant": {"user": "mallory", "rights": "read"}}, JSON)
    ask(CHANGED, "PATCH", "/storage/hhh?quota_objects=1000", client=root)
    ask(REFUSED, "PATCH", "/storage/hhh?quota_objects=0")
    for sub, body in (("cors", {"rules": []}), ("website", {"index": "i"})):
        ask(ANY, "PUT", f"/storage/hhh?{sub}", body, JSON)
        ask(SAME, "GET", f"/storage/hhh?{sub}")
        ask(ANY, "DELETE", f"/storage/hhh?{sub}")
    ask(CHANGED, "PUT", "/storage/hhh/d/small", b"x")
    ask(CHANGED, "PUT", "/storage/hhh/d/large", b"x" * 100_000)
    ask(CHANGED, "POST", "/storage/hhh/d/log", b"line")
    ask(CHANGED, "POST", "/storage/hhh/d/log?append", b"line\n")
    once = {"Idempotency-Key": "k"}
    ask(CHANGED, "POST", "/storage/hhh/d/log?append", b"line\n", once)
    ask(ANY, "POST", "/storage/hhh/d/log?append", b"line\n", once)
    ask(CHANGED, "POST", "/storage/hhh/d/log?move-to=d/moved")
    reads = ["", "/", "/?recursive", "/d/?zip", "/d?list", "/d/large", "/d/large?lines=1"]
    for target in reads:
        ask(SAME, "GET", f"/storage/hhh{target}")
    ask(SAME, "HEAD", "/storage/hhh/d/large")
    ask(SAME, "GET", "/storage/hhh/d/small", headers={"Range": "bytes=0-0"})
    ask(REFUSED, "PUT", "/storage/hhh/d/small", b"y", client=other)
    ask(REFUSED, "DELETE", "/storage/hhh/d/small", client=other)
    ask(REFUSED, "DELETE", "/storage/hhh?content", client=other)
    ask(CHANGED, "DELETE", "/storage/hhh/d/moved")
    # Resumable uploads.
    half, size = b"x" * (128 << 10), {**TUS, "Upload-Length": str(256 << 10)}
    place = ask(CHANGED, "POST", "/tus/hhh/up", headers=size).headers["Location"]
    ask(SAME, "HEAD", place, headers=TUS)
    first, second = ({**TUS, **OFFSET_TYPE, "Upload-Offset": at} for at in ("0", str(len(half))))
    ask(CHANGED, "PATCH", place, half, first)
    ask(REFUSED, "PATCH", place, half, second, client=Http(matrix.server.http, None))
    ask(ANY, "PATCH", place, half, first)
    ask(CHANGED, "PATCH", place, half, second)
    place = ask(CHANGED, "POST", "/tus/hhh/up", headers=size).headers["Location"]
    ask(CHANGED, "DELETE", place, headers=TUS)
    # Share links, of which each download is counted.
    nobody = Http(matrix.server.http, None)
    shared = {"bucket": "hhh", "prefix": "d/", "downloads": 3, "password": "a password"}
    link = ask(CHANGED, "POST", "/shares", shared, JSON).json()
    ask(SAME, "GET", "/shares")
    path = link["path"]
    ask(REFUSED, "GET", path.rstrip("/") + "/small", client=nobody)
    knows = Http(matrix.server.http, ("", "a password"))
    ask(CHANGED, "GET", path.rstrip("/") + "/small", client=knows)
    ask(SAME, "GET", path, client=knows)
    ask(CHANGED, "DELETE", f"/shares/{link['id']}")
    shared = {"bucket": "hhh", "prefix": "in/", "uploads": {}}
    link = ask(CHANGED, "POST", "/shares", shared, JSON).json()
    path = link["path"].rstrip("/")
    ask(CHANGED, "PUT", f"{path}/added", b"x", client=nobody)
    form = b'--b\r\nContent-Disposition: form-data; name="f"; filename="g"\r\n\r\nx\r\n--b--\r\n'
    ask(CHANGED, "POST", f"{path}/", form, {"Content-Type": "multipart/form-data; boundary=b"}, nobody)
    ask(CHANGED, "DELETE", f"/shares/{link['id']}")
    ask(ANY, "PUT", f"{path}/more", b"x", client=nobody)
    # Keys and users.
    key = ask(CHANGED, "POST", "/keys", {}, JSON).json()
    ask(SAME, "GET", "/keys")
    ask(CHANGED, "DELETE", f"/keys/{key['id']}")
    ask(REFUSED, "POST", "/admin/keys", {"user": "eve"}, JSON)
    key = ask(CHANGED, "POST", "/admin/keys", {"user": "eve"}, JSON, root).json()
    ask(CHANGED, "POST", "/admin/tokens", {"user": "eve"}, JSON, root)
    for setting in ({"disabled": True}, {"requests_per_second": 9}, {"quota_bytes": 9 << 20}):
        ask(CHANGED, "PATCH", "/admin/users/eve", setting, JSON, root)
    ask(CHANGED, "DELETE", f"/admin/keys/{key['id']}", client=root)
    ask(CHANGED, "PUT", "/admin/read-only", {"read_only": True}, JSON, root)
    ask(CHANGED, "PUT", "/admin/read-only", {"read_only": False}, JSON, root)
    hold = ask(CHANGED, "POST", "/admin/holds", {"owner": "o", "seconds": 60}, JSON, root).json()
    ask(CHANGED, "PATCH", f"/admin/holds/{hold['id']}", {"seconds": 600}, JSON, root)
    ask(CHANGED, "DELETE", f"/admin/holds/{hold['id']}", client=root)
    export = {"bucket": "hhh", "user": "alice", "clients": ["10.0.0.0/8"]}
    ask(CHANGED, "POST", "/admin/exports", export, JSON, root)
    ask(CHANGED, "PATCH", "/admin/exports/hhh", {"owner": {"uid": 1, "gid": 1}}, JSON, root)
    ask(CHANGED, "DELETE", "/admin/exports/hhh", client=root)
    ask(ANY, "POST", "/admin/gc", client=root)
    for what in ("users", "keys", "exports", "holds", "status", "traffic", "read-only"):
        ask(SAME, "GET", f"/admin/{what}", client=root)
        ask(REFUSED, "GET", f"/admin/{what}")
    host = {"Host": "hhh.sites.test"}
    site = Http(matrix.server.website, None)
    ask(ANY, "GET", "/d/small", headers=host, client=site)
    ask(CHANGED, "DELETE", "/storage/hhh?content")
    all_as_expected(matrix, 70)


def test_logs(matrix):
    alice, nobody = Http(matrix.server.http, ALICE), Http(matrix.server.http, None)
    item = b'{"create":{"_index":"app"}}\n{"message":"x"}\n'
    loki = {"streams": [{"stream": {"job": "app"}, "values": [["1795737600000000000", "x"]]}]}
    record = {"timeUnixNano": "1795737600000000000", "body": {"stringValue": "x"}}
    otlp = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    journal = b"__REALTIME_TIMESTAMP=1795737600000000\nMESSAGE=x\n_HOSTNAME=box\n\n"
    intakes = [
        ("/_bulk", item, JSON),
        ("/loki/api/v1/push", json.dumps(loki).encode(), JSON),
        ("/loki/api/v1/push", gzip.compress(json.dumps(loki).encode()), {**JSON, "Content-Encoding": "gzip"}),
        ("/v1/logs", json.dumps(otlp).encode(), JSON),
        ("/upload", journal, {"Content-Type": "application/vnd.fdo.journal"}),
    ]
    for path, body, headers in intakes:
        what = f"logs {path}"
        matrix.step(what, CHANGED, lambda: alice.request("POST", path, body, headers))
        matrix.step(what, REFUSED, lambda: nobody.request("POST", path, body, headers))
        broken = lambda: alice.request("POST", path, body[:9], headers)  # noqa: E731
        matrix.step(f"{what}, broken", ANY, broken)

    def syslog():
        before = rows(matrix.root)
        host, port = matrix.server.syslog.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as sender:
            sender.sendall(b"<13>1 - box app - - - a message\n")
        eventually(lambda: rows(matrix.root) != before, "the message is stored")

    matrix.step("syslog", CHANGED, syslog, unrecorded=True)
    all_as_expected(matrix, 16)


def test_console(matrix):
    url = matrix.server.console
    alice, root, other = Browser(url), Browser(url), Browser(url)

    def ask(expected, method, target, form=None, by=alice):
        shown = {name: value for name, value in (form or {}).items() if name != "secret"}
        what = f"console {method} {target} {shown}"
        return matrix.step(what, expected, lambda: by.ask(method, target, form))

    for browser, (key, secret) in ((alice, ALICE), (root, (KEY, SECRET)), (other, MALLORY)):
        ask(REFUSED, "POST", "/login", {"key": key, "secret": "wrong" * 5}, browser)
        ask(CHANGED, "POST", "/login", {"key": key, "secret": secret}, browser)
    ask(CHANGED, "POST", "/buckets", {"name": "con"})
    ask(CHANGED, "POST", "/buckets", {"name": "con2"})
    ask(CHANGED, "POST", "/b/con/folders", {"in": "", "name": "f"})
    ask(REFUSED, "POST", "/b/con/folders", {"in": "", "name": "g"}, other)
    door = Http(matrix.server.http, ALICE)
    for key in ("a.txt", "b.txt", "f/c.txt"):
        assert door.object("PUT", "con", key, b"x").status == 201
    upload = S3(matrix.server.s3, ALICE).create_upload("con", "unfinished")
    upload = upload.lstrip("u").lstrip("0")
    matrix.records()
    sure = {"confirm": "yes"}
    asked = {"in": "", "key": "a.txt", "do": "copy", "to-bucket": "con2", "to": "x/"}
    ask(CHANGED, "POST", "/b/con/transfer", asked)
    ask(CHANGED, "POST", "/b/con/transfer", {"in": "", "key": "a.txt", "do": "move", "to": "", "name": "e"})
    ask(REFUSED, "POST", "/b/con/transfer", {"in": "", "key": "e", "do": "move", "to": "y/"}, other)
    ask(CHANGED, "POST", "/b/con/tags", {"key": "b.txt", "tag": "kind", "value": "cat"})
    etag = door.object("HEAD", "con", "b.txt").headers["ETag"].strip('"')
    changed = {"key": "b.txt", "etag": etag, "content-type": "text/html"}
    ask(CHANGED, "POST", "/b/con/metadata", changed)
    ask(CHANGED, "POST", "/b/con/settings", {"visibility": "public", "was-visibility": "private"})
    ask(CHANGED, "POST", "/b/con/rights", {"user": "mallory", "right": "read"})
    ask(ANY, "POST", "/b/con/read-only", {"read_only": "yes"})
    ask(CHANGED, "POST", "/b/con/read-only", {"read_only": "yes", **sure})
    ask(CHANGED, "POST", "/b/con/read-only", {"read_only": "no"})
    ask(CHANGED, "POST", "/b/con/end-upload", {"key": "unfinished", "upload": upload, **sure})
    made = ask(CHANGED, "POST", "/b/con/share", {"key": "f/", "expires": "3600"})
    assert made.status == 200, made.status
    (link,) = door.request("GET", "/shares").json()["shares"]
    ask(CHANGED, "POST", "/end-share", {"id": link["id"], **sure})
    before = {key["id"] for key in door.request("GET", "/keys").json()["keys"]}
    ask(CHANGED, "POST", "/keys", {})
    (own,) = {key["id"] for key in door.request("GET", "/keys").json()["keys"]} - before
    ask(CHANGED, "POST", "/end-own-key", {"id": own, **sure})
    for target in ("/", "/b/con", "/b/con?in=f/", "/b/con/object?key=b.txt", "/b/con/settings"):
        ask(SAME, "GET", target)
    for target in ("/b/con/download?key=b.txt", "/shares", "/keys", "/b/con/share?key=f/"):
        ask(SAME, "GET", target)
    for target in ("/people", "/person?user=alice", "/audit", "/store", "/store/requests"):
        ask(SAME, "GET", target, by=root)
    ask(REFUSED, "GET", "/people")
    ask(REFUSED, "POST", "/people", {"user": "dora", "new": "yes"})
    ask(CHANGED, "POST", "/people", {"user": "dora", "new": "yes"}, root)
    ask(CHANGED, "POST", "/grant", {"user": "dora", "bucket": "con", "right": "read"}, root)
    ask(CHANGED, "POST", "/limits", {"user": "dora", "requests": "1200", "bytes": "10 MiB"}, root)
    ask(CHANGED, "POST", "/disable", {"user": "dora", "disabled": "yes", **sure}, root)
    keys = matrix.root.request("GET", "/admin/keys").json()["keys"]
    (of_dora,) = (key["id"] for key in keys if key["user"] == "dora")
    ask(CHANGED, "POST", "/end-key", {"id": of_dora, "user": "dora", **sure}, root)
    ask(CHANGED, "POST", "/store/read-only", {"read_only": "yes", **sure}, root)
    ask(CHANGED, "POST", "/store/read-only", {"read_only": "no"}, root)
    ask(REFUSED, "POST", "/b/con/delete", {"in": "", "key": "e", **sure}, other)
    ask(CHANGED, "POST", "/b/con/delete", {"in": "", "key": ["e", "b.txt", "f/"], **sure})
    ask(REFUSED, "POST", "/b/con/remove", sure, other)
    ask(CHANGED, "POST", "/b/con/remove", sure)
    ask(CHANGED, "POST", "/logout", {})
    ask(CHANGED, "POST", "/logout-everywhere", {}, root)
    all_as_expected(matrix, 50)


def test_nfs(matrix):
    assert Http(matrix.server.http).create_bucket("exported")
    export_all(matrix.server.http, "exported")
    matrix.records()
    client = rpc.Client(matrix.server.nfs)
    top = matrix.step("nfs mount", ANY, lambda: client.mount("/exported"))

    def ask(expected, name, call):
        return matrix.step(f"nfs {name}", expected, lambda: client.ask(call)[0])

    def nfs(procedure, *arguments):
        return rpc.call(rpc.NFS, procedure, b"".join(arguments))

    data, number = rpc.data, rpc.number
    ask(CHANGED, "MKDIR", rpc.mkdir(top, "d"))
    directory = client.lookup(top, "d")
    ask(CHANGED, "CREATE", rpc.create(directory, "f"))
    file = client.lookup(directory, "f")
    ask(CHANGED, "WRITE FILE_SYNC", rpc.write(file, 0, b"x" * 1000, rpc.FILE_SYNC))

    def unstable():
        client.ask(rpc.write(file, 1000, b"y" * 1000, rpc.UNSTABLE))
        return client.ask(rpc.commit(file))[0]

    matrix.step("nfs WRITE UNSTABLE, COMMIT", CHANGED, unstable)
    mode = number(1) + number(0o600) + number(0) * 5 + number(0)
    ask(CHANGED, "SETATTR", nfs(2, data(file), mode))
    ask(CHANGED, "SYMLINK", nfs(10, data(directory), data("s"), rpc.MODE_ONLY, data("f")))
    ask(CHANGED, "LINK", rpc.link(file, directory, "hard"))
    ask(CHANGED, "MKNOD", nfs(11, data(directory), data("fifo"), number(7), rpc.MODE_ONLY))
    ask(CHANGED, "RENAME", rpc.rename(directory, "f", "g"))
    link = client.lookup(directory, "s")
    ask(SAME, "GETATTR", nfs(1, data(file)))
    ask(SAME, "LOOKUP", nfs(3, data(directory), data("g")))
    ask(SAME, "ACCESS", nfs(4, data(file), number(63)))
    ask(SAME, "READLINK", nfs(5, data(link)))
    ask(SAME, "READ", nfs(6, data(file), rpc.long(0), number(100)))
    ask(SAME, "READDIR", nfs(16, data(directory), rpc.long(0), rpc.long(0), number(4096)))
    ask(SAME, "READDIRPLUS", nfs(17, data(directory), rpc.long(0) * 2, number(4096) * 2))
    for procedure, name in ((18, "FSSTAT"), (19, "FSINFO"), (20, "PATHCONF")):
        ask(SAME, name, nfs(procedure, data(top)))
    ask(ANY, "RMDIR of what is not empty", rpc.remove(top, "d", rpc.RMDIR))
    for name in ("g", "hard", "s", "fifo"):
        ask(CHANGED, "REMOVE", rpc.remove(directory, name))
    ask(CHANGED, "RMDIR", rpc.remove(top, "d", rpc.RMDIR))
    client.close()
    all_as_expected(matrix, 24)
    # What was open when its name went is freed later.
    usage = lambda: matrix.root.request("GET", "/storage/exported").json()  # noqa: E731
    eventually(lambda: usage()["objects"] == 0, "the files are freed")


def synced(act, root):
    """Does something at a mount, and waits until the store has it."""

    def whole():
        result = act()
        directory = os.open(root, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        return result

    return whole


def test_mount(matrix):
    Http(matrix.server.http, ALICE).create_bucket("mounted")
    matrix.records()
    step = matrix.step
    with Mount(matrix.server, matrix.work / "mount", bucket="mounted", key=ALICE) as mount:
        root = Path(mount.root)
        os.listdir(root)

        def do(expected, what, act):
            return step(f"mount {what}", expected, synced(act, root))

        directory, file = root / "d", root / "d" / "f"
        do(CHANGED, "mkdir", directory.mkdir)
        do(CHANGED, "write", lambda: file.write_bytes(b"x" * 1000))
        large = root / "d" / "large"
        do(CHANGED, "write of blocks", lambda: large.write_bytes(b"x" * 100_000))

        def append():
            with open(file, "ab") as opened:
                opened.write(b"more")
                opened.flush()
                os.fsync(opened.fileno())

        do(CHANGED, "append", append)
        do(CHANGED, "truncate", lambda: os.truncate(file, 10))
        do(CHANGED, "chmod", lambda: os.chmod(file, 0o600))
        do(CHANGED, "utime", lambda: os.utime(file, (1, 2)))
        do(CHANGED, "setxattr", lambda: os.setxattr(file, "user.a", b"b"))
        do(SAME, "getxattr", lambda: os.getxattr(file, "user.a"))
        do(CHANGED, "removexattr", lambda: os.removexattr(file, "user.a"))
        do(CHANGED, "symlink", lambda: os.symlink("f", directory / "s"))
        do(CHANGED, "link", lambda: os.link(file, directory / "hard"))
        do(CHANGED, "rename", lambda: os.rename(file, directory / "g"))
        do(SAME, "read", lambda: len((directory / "g").read_bytes()))
        do(SAME, "list", lambda: len(os.listdir(directory)))
        do(SAME, "stat", lambda: os.stat(large).st_size)
        # It may open a further connection of the mount, which is recorded.
        do(ANY, "statvfs", lambda: os.statvfs(root).f_files)

        def lock():
            with open(directory / "g", "rb+") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX)

        do(SAME, "flock", lock)

        def copy():
            with open(large, "rb") as source, open(directory / "copy", "wb") as target:
                os.copy_file_range(source.fileno(), target.fileno(), 100_000)
                os.fsync(target.fileno())

        do(CHANGED, "copy_file_range", copy)
        for name in ("g", "hard", "s", "large", "copy"):
            do(CHANGED, f"unlink {name}", lambda name=name: os.unlink(directory / name))
        do(CHANGED, "rmdir", lambda: os.rmdir(directory))
    all_as_expected(matrix, 24)
