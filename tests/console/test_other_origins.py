"""Pages of other sites in Debian's Chromium: they use a bucket at both doors as its rules say, and no more."""

import http.server
import threading

import pytest

from console.profiles import bucket_of
from harness.doors import Http
from harness.server import KEY, SECRET

MEBIBYTE = 1 << 20
BUCKET = "crossed"


class Page(http.server.BaseHTTPRequestHandler):
    """An empty page at every path."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_):
        pass


class Site:
    """Another site: a server of static files with an origin of its own."""

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def site():
    with Site() as running:
        yield running


@pytest.fixture(scope="module")
def other_site():
    with Site() as running:
        yield running


@pytest.fixture(scope="module")
def client(store, site):
    """A bucket with a rule for one site, which has to be given for one name and kind of request after another."""
    client = bucket_of(store, BUCKET, "kept.txt")
    rule = {"AllowedOrigins": [site.origin], "AllowedMethods": ["GET", "PUT", "POST"], "ExposeHeaders": ["ETag"]}
    rule["AllowedHeaders"] = ["content-type", "authorization", "x-amz-meta-*"]
    client.put_bucket_cors(Bucket=BUCKET, CORSConfiguration={"CORSRules": [rule]})
    return client


@pytest.fixture
def page_of(chromium):
    """Pages of a site; what they may not do is said as errors, and expected."""
    contexts = []

    def opened(site):
        contexts.append(chromium.new_context())
        page = contexts[-1].new_page()
        page.goto(site.origin)
        return page

    yield opened
    for context in contexts:
        context.close()


# What a page makes of a request: all that it may read, or nothing.
ASK = """async ([method, place, headers, body]) => {
    const parts = body.map(([text, count]) => text.repeat(count));
    try {
        const reply = await fetch(place, { method, headers, body: parts.length ? new Blob(parts) : undefined });
        const { status } = reply;
        return { status, text: await reply.text(), etag: reply.headers.get("etag"), read: [...reply.headers.keys()] };
    } catch (error) {
        return { refused: String(error) };
    }
}"""


def ask(page, method, place, headers=None, body=()):
    return page.evaluate(ASK, [method, place, headers or {}, [list(part) for part in body]])


def signed(client, operation, key, **more):
    return client.generate_presigned_url(operation, {"Bucket": BUCKET, "Key": key, **more})


def test_a_page_of_a_site_with_a_rule_puts_and_reads(page_of, site, client):
    page = page_of(site)
    place = signed(client, "put_object", "put.txt", ContentType="text/plain", Metadata={"color": "green"})
    headers = {"content-type": "text/plain", "x-amz-meta-color": "green"}
    put = ask(page, "PUT", place, headers, [("by a page", 1)])
    head = client.head_object(Bucket=BUCKET, Key="put.txt")
    assert put["status"] == 200 and put["etag"] == head["ETag"], put
    assert head["Metadata"] == {"color": "green"} and head["ContentType"] == "text/plain"
    got = ask(page, "GET", signed(client, "get_object", "put.txt"))
    assert (got["status"], got["text"], got["etag"]) == (200, "by a page", head["ETag"])
    # An error is read, too, and no header that the rule does not name.
    got = ask(page, "GET", signed(client, "get_object", "none.txt"))
    assert got["status"] == 404 and "<Code>NoSuchKey</Code>" in got["text"]
    assert "x-amz-request-id" not in got["read"], got


def test_a_page_uploads_in_parts(page_of, site, client):
    page, lengths = page_of(site), [5 * MEBIBYTE, 5 * MEBIBYTE, 1000]
    upload = client.create_multipart_upload(Bucket=BUCKET, Key="parts.bin")["UploadId"]
    lines = []
    for number, length in enumerate(lengths, 1):
        place = signed(client, "upload_part", "parts.bin", UploadId=upload, PartNumber=number)
        sent = ask(page, "PUT", place, body=[(str(number), length)])
        assert sent["status"] == 200 and sent["etag"], sent
        lines.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{sent['etag']}</ETag></Part>")
    body = f"<CompleteMultipartUpload>{''.join(lines)}</CompleteMultipartUpload>"
    place = signed(client, "complete_multipart_upload", "parts.bin", UploadId=upload)
    done = ask(page, "POST", place, body=[(body, 1)])
    assert done["status"] == 200 and "CompleteMultipartUploadResult" in done["text"], done
    stored = client.get_object(Bucket=BUCKET, Key="parts.bin")["Body"].read()
    assert stored == b"".join(str(number).encode() * length for number, length in enumerate(lengths, 1))


def test_a_page_reads_and_writes_with_a_token(page_of, site, store, client):
    page = page_of(site)
    made = Http(store.http).request("POST", "/admin/tokens", '{"user":"root"}', {"content-type": "application/json"})
    bearer = {"authorization": f"Bearer {made.json()['token']}"}
    place = f"{store.http}/storage/{BUCKET}"
    got = ask(page, "GET", f"{place}/kept.txt", bearer)
    assert (got["status"], got["text"]) == (200, "kept.txt"), got
    assert ask(page, "GET", f"{place}/kept.txt", {"authorization": "Bearer none"})["status"] == 401
    assert ask(page, "PUT", f"{place}/token.txt", bearer, [("by token", 1)])["status"] in (200, 201, 204)
    assert client.get_object(Bucket=BUCKET, Key="token.txt")["Body"].read() == b"by token"
    # A method that the rule does not have.
    assert "refused" in ask(page, "DELETE", f"{place}/token.txt", bearer)
    client.head_object(Bucket=BUCKET, Key="token.txt")


def test_a_page_of_a_site_without_a_rule_is_refused(page_of, other_site, store, client):
    page = page_of(other_site)
    place = signed(client, "put_object", "refused.txt")
    assert "refused" in ask(page, "PUT", place, body=[("x", 1)])
    assert "refused" in ask(page, "GET", signed(client, "get_object", "kept.txt"))
    made = Http(store.http).request("POST", "/admin/tokens", '{"user":"root"}', {"content-type": "application/json"})
    bearer = {"authorization": f"Bearer {made.json()['token']}"}
    http_place = f"{store.http}/storage/{BUCKET}"
    assert "refused" in ask(page, "GET", f"{http_place}/kept.txt", bearer)
    assert "refused" in ask(page, "PUT", f"{http_place}/refused.txt", bearer, [("x", 1)])
    keys = [found["Key"] for found in client.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert "refused.txt" not in keys
    # The addresses are good: it is the browser that keeps them from the page.
    assert page.request.get(signed(client, "get_object", "kept.txt")).text() == "kept.txt"


def test_credentials_that_a_browser_adds_by_itself_change_nothing(chromium, site, store, client):
    """Basic auth is given to every request of a page, whoever made the page."""
    context = chromium.new_context(http_credentials={"username": KEY, "password": SECRET})
    page = context.new_page()
    place = f"{store.http}/storage/{BUCKET}/forged.txt"
    # The browser has learned them.
    assert page.goto(f"{store.http}/storage/{BUCKET}/kept.txt").ok
    page.goto(site.origin)
    send = """place => fetch(place, { method: "POST", mode: "no-cors", credentials: "include", body: "forged" })
        .then((reply) => reply.type, (error) => "refused")"""
    page.evaluate(send, f"{place}?append")
    page.evaluate(send, place)
    with page.expect_navigation() as sent:
        page.evaluate(
            """place => { document.body.innerHTML = `<form method="post" enctype="text/plain"><input name="a" value="b"></form>`;
            document.forms[0].action = place; document.forms[0].submit(); }""",
            f"{place}?append",
        )
    assert sent.value.status == 403
    assert "forged.txt" not in [found["Key"] for found in client.list_objects_v2(Bucket=BUCKET)["Contents"]]
    context.close()
