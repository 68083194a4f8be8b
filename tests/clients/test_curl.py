"""curl, unchanged, in front of the HTTP door; what it wrote is read through S3."""

import hashlib

import pytest

from harness.doors import S3
from harness.server import KEY, SECRET, Server

ROOT_USER = ["-u", f"{KEY}:{SECRET}"]


@pytest.fixture
def curl(shell, server):
    def run(*arguments, path="", credentials=ROOT_USER):
        done = shell(
            "curl", "-sS", *credentials, "-w", "\n%{http_code}", *arguments, server.http + path
        )
        body, _, status = done.stdout.rpartition("\n")
        return int(status), body

    return run


@pytest.fixture
def namespace(curl, request):
    """A new bucket, made by curl."""
    name = "curl-" + hashlib.md5(request.node.name.encode()).hexdigest()[:12]
    assert curl("-X", "PUT", path=f"/storage/{name}?visibility=private")[0] in (200, 201)
    return name


def test_put_get_head_range_append_delete(curl, namespace, s3, work):
    data = hashlib.shake_256(b"curl").digest(300_000)
    (work / "in").write_bytes(data)
    path = f"/storage/{namespace}/dir/file.bin"
    assert curl("-T", work / "in", path=path)[0] in (200, 201)
    assert s3.object("GET", namespace, "dir/file.bin").body == data

    assert curl("-o", work / "out", path=path)[0] == 200
    assert (work / "out").read_bytes() == data
    assert curl("-r", "100000-199999", "-o", work / "out", path=path)[0] == 206
    assert (work / "out").read_bytes() == data[100_000:200_000]
    assert curl("-r", "-10", "-o", work / "out", path=path)[0] == 206
    assert (work / "out").read_bytes() == data[-10:]
    assert curl("-r", "300000-", path=path)[0] == 416
    status, head = curl("-I", path=path)
    assert status == 200 and "content-length: 300000" in head.lower()

    assert curl("--data-binary", "tail", path=path)[0] in (200, 201, 204)
    assert s3.object("GET", namespace, "dir/file.bin").body == data + b"tail"

    assert curl("-X", "DELETE", path=path)[0] in (200, 204)
    assert curl(path=path)[0] == 404
    assert s3.object("GET", namespace, "dir/file.bin").status == 404


def test_a_download_that_broke_off_is_resumed(curl, namespace, work):
    data = hashlib.shake_256(b"resume").digest(200_000)
    (work / "in").write_bytes(data)
    (work / "out").write_bytes(data[:70_000])
    path = f"/storage/{namespace}/resume"
    assert curl("-T", work / "in", path=path)[0] in (200, 201)
    assert curl("-C", "-", "-o", work / "out", path=path)[0] == 206
    assert (work / "out").read_bytes() == data


def test_chunked_upload_of_unknown_length(shell, server, namespace, s3):
    command = (
        "head -c 3000000 /dev/zero | tr '\\0' x | "
        f"curl -sS --fail -u {KEY}:{SECRET} -T - {server.http}/storage/{namespace}/piped"
    )
    shell("bash", "-c", command)
    assert s3.object("GET", namespace, "piped").body == b"x" * 3_000_000


def test_conditional_requests(curl, namespace, http):
    path = f"/storage/{namespace}/conditional"
    assert curl("-X", "PUT", "-d", "one", path=path)[0] in (200, 201)
    etag = http.request("HEAD", path).headers["ETag"]
    assert curl("-H", f"If-None-Match: {etag}", path=path)[0] == 304
    assert curl("-H", 'If-Match: "0123"', path=path)[0] == 412
    assert curl("-X", "PUT", "-d", "two", "-H", "If-None-Match: *", path=path)[0] == 412
    assert curl("-X", "PUT", "-d", "two", "-H", 'If-Match: "0123"', path=path)[0] == 412
    assert curl(path=path) == (200, "one")
    assert curl("-X", "PUT", "-d", "two", "-H", f"If-Match: {etag}", path=path)[0] in (200, 204)
    assert curl(path=path) == (200, "two")


def test_visibility(curl, server):
    nobody = []
    curl("-X", "PUT", path="/storage/open?visibility=public")
    curl("-X", "PUT", path="/storage/closed")
    for bucket in ("open", "closed"):
        assert curl("-X", "PUT", "-d", "hello", path=f"/storage/{bucket}/f")[0] in (200, 201)
    assert curl(path="/storage/open/f", credentials=nobody) == (200, "hello")
    assert curl(path="/storage/closed/f", credentials=nobody)[0] in (401, 403)
    for bucket in ("open", "closed"):
        path = f"/storage/{bucket}/f"
        assert curl("-X", "PUT", "-d", "x", path=path, credentials=nobody)[0] in (401, 403)
        assert curl("-X", "DELETE", path=path, credentials=nobody)[0] in (401, 403)
        assert curl("-X", "POST", "-d", "x", path=path, credentials=nobody)[0] in (401, 403)
        assert curl(path=path) == (200, "hello")
    assert curl(path="/storage/closed/f", credentials=["-u", f"{KEY}:wrong"])[0] in (401, 403)
    anonymous = S3(server.s3, credentials=None)
    assert anonymous.object("GET", "open", "f").body == b"hello"
    assert anonymous.object("GET", "closed", "f").status == 403
    assert curl("-X", "PATCH", path="/storage/open?visibility=private")[0] in (200, 204)
    assert curl(path="/storage/open/f", credentials=nobody)[0] in (401, 403)


def test_health_and_metrics(curl):
    assert curl(path="/healthz", credentials=[])[0] == 200
    assert curl(path="/readyz", credentials=[])[0] == 200
    status, text = curl(path="/metrics")
    assert status == 200 and "# TYPE" in text


def certificate(directory, name="localhost"):
    """A self-signed ECDSA P-256 certificate; returns the openssl command line."""
    return [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-nodes", "-days", "2", "-subj", f"/CN={name}"),
        *("-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"),
        *("-keyout", directory / "key.pem", "-out", directory / "cert.pem"),
    ]


def test_tls_http1_and_http2(shell, work):
    shell(*certificate(work))
    arguments = ["--tls-cert", str(work / "cert.pem"), "--tls-key", str(work / "key.pem")]
    data = hashlib.shake_256(b"tls").digest(500_000)
    (work / "in").write_bytes(data)
    with Server(args=arguments) as server:
        url = server.http.replace("http://", "https://") + "/storage/secure"
        curl = ["curl", "-sS", "--fail", *ROOT_USER, "--cacert", work / "cert.pem"]
        shell(*curl, "-X", "PUT", url)
        shell(*curl, "--http1.1", "-T", work / "in", url + "/file")
        for version in ("1.1", "2"):
            asked = "--http" + version
            done = shell(*curl, asked, "-o", work / "out", "-w", "%{http_version}", url + "/file")
            assert done.stdout == version
            assert (work / "out").read_bytes() == data
        refused = shell("curl", "-sS", url + "/file", ok=False)
        assert refused.returncode == 60  # a certificate nobody vouches for
        assert S3(server.s3.replace("http://", "https://"), cafile=work / "cert.pem").object(
            "GET", "secure", "file"
        ).body == data
