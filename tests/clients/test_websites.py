"""Sites of static files at the door for websites: put by boto3 and read by curl, and as a generator makes them."""

import functools
import html.parser
import json
import re
import sys
import urllib.parse

from console.screens import png
from harness.doors import S3, Connection
from harness.server import KEY, SECRET, Server, binary


def test_a_static_site_is_served(shell, work):
    import boto3

    with Server(args=["--website", "127.0.0.1:0", "--website-domain", "sites.test"]) as server:
        boto = boto3.client(
            "s3", endpoint_url=server.s3, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
        )
        bucket = "www.example.com"
        S3(server.s3).create_bucket(bucket)
        pages = {"index.html": "<h1>home</h1>", "posts/first/index.html": "first", "404.html": "lost", "a.css": "p {}"}
        for key, text in pages.items():
            boto.put_object(Bucket=bucket, Key=key, Body=text.encode(), ContentType="text/html")
        configuration = {
            "IndexDocument": {"Suffix": "index.html"},
            "ErrorDocument": {"Key": "404.html"},
            "RoutingRules": [
                {"Condition": {"KeyPrefixEquals": "blog/"}, "Redirect": {"ReplaceKeyPrefixWith": "posts/"}}
            ],
        }
        boto.put_bucket_website(Bucket=bucket, WebsiteConfiguration=configuration)
        shown = boto.get_bucket_website(Bucket=bucket)
        assert shown["IndexDocument"] == {"Suffix": "index.html"}
        assert shown["RoutingRules"][0]["Redirect"]["ReplaceKeyPrefixWith"] == "posts/"

        def get(path, host=bucket):
            form = json.dumps({"status": "%{http_code}", "to": "%{redirect_url}"})
            done = shell("curl", "-sS", "-H", f"Host: {host}", "-w", "\n" + form, server.website + path)
            body, _, told = done.stdout.rpartition("\n")
            told = json.loads(told)
            return int(told["status"]), body, told["to"]

        assert get("/")[0] == 403
        auth = ["-u", f"{KEY}:{SECRET}"]
        shell("curl", "-sSf", *auth, "-X", "PATCH", f"{server.http}/storage/{bucket}?visibility=public")
        assert get("/") == (200, "<h1>home</h1>", "")
        assert get("/posts/first/")[1] == "first"
        assert get("/posts/first")[0] == 302
        assert get("/none")[:2] == (404, "lost")
        status, _, to = get("/blog/first/")
        assert status == 301 and to == f"http://{bucket}/posts/first/"
        assert get("/", host="other.sites.test")[0] == 404
        boto.delete_bucket_website(Bucket=bucket)
        assert get("/")[0] == 404


# A site of several pages, with folders, a picture, and names that a URL has to encode.
PAGES = {
    "index.md": "# Home\n\n[Setup](guide/setup.md), [names](guide/names%20with%20spaces%20and%20é.md#last)\n\n![The sea](sea.png)\n",
    "guide/setup.md": "# Setup\n\n[Home](../index.md) and [more](deep/er/more.md#second)\n\n```sh\necho hello\n```\n",
    "guide/names with spaces and é.md": "# Names\n\n[A text](../files/notes%20of%20May.txt)\n\n## Last\n",
    "guide/deep/er/more.md": "# More\n\n![The sea](../../../sea.png)\n\n## Second\n",
    "files/notes of May.txt": "plain text\n",
}
# Without these a browser takes them for something else.
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".png": "image/png",
    ".txt": "text/plain",
    ".woff2": "font/woff2",
}


def generated(shell, work):
    """The directory of what a generator makes of these pages."""
    for name, text in PAGES.items():
        path = work / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (work / "docs/sea.png").write_bytes(png(60, 40))
    (work / "mkdocs.yml").write_text("site_name: Sea\nsite_url: http://sea.sites.test/\nstrict: true\ntheme: mkdocs\n")
    shell(sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", cwd=work)
    return work / "site"


class Links(html.parser.HTMLParser):
    """What a page links to, and loads."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("href", "src") and value]


def links_of(path, kind, body):
    if kind == "text/html":
        found = Links(body.decode()).found
    elif kind == "text/css":
        found = re.findall(r"""url\(["']?([^"')]+)["']?\)""", body.decode())
    else:
        found = []
    for link in found:
        place = urllib.parse.urlsplit(urllib.parse.urljoin(f"http://sea.sites.test{path}", link))
        if (place.scheme, place.netloc) == ("http", "sea.sites.test"):
            yield place.path


def test_the_output_of_a_site_generator_is_a_website(shell, work):
    site = generated(shell, work)
    with Server(args=["--website", "127.0.0.1:0", "--website-domain", "sites.test"]) as server:
        env = {"CAIRN_SERVER": server.http, "CAIRN_KEY": KEY, "CAIRN_SECRET": SECRET}
        cairn = functools.partial(shell, binary(), env=env)
        cairn("bucket", "create", "sea", "--visibility", "public")
        cairn("bucket", "website", "sea", "--index", "index.html", "--error", "404.html")
        cairn("put", "-r", site, "sea/")
        door, seen, waiting = Connection(server.website), {}, ["/"]
        while waiting:
            path = waiting.pop()
            reply = door.send("GET", path, {"host": "sea.sites.test"}, None)
            assert reply.status == 200, (path, reply)
            kind = reply.headers["content-type"].split(";")[0]
            file = site / urllib.parse.unquote(path).lstrip("/")
            file = file / "index.html" if path.endswith("/") else file
            assert reply.body == file.read_bytes(), path
            assert kind == KINDS.get(file.suffix, kind), (path, kind)
            seen[path] = file
            waiting += {*links_of(path, kind, reply.body)} - seen.keys() - {*waiting}
        pages = [path for path in seen if path.endswith("/")]
        assert len(pages) == len(PAGES) - 1, pages
        assert {file.suffix for file in seen.values()} >= KINDS.keys()
        # Links lead to all that has an address of its own.
        left = {file for file in site.rglob("*.html")} - {*seen.values()}
        assert left == {site / "404.html"}, left
        lost = door.send("GET", "/guide/lost", {"host": "sea.sites.test"}, None)
        assert lost.status == 404 and lost.body == (site / "404.html").read_bytes()
        led = door.send("GET", "/guide/setup", {"host": "sea.sites.test"}, None)
        assert led.status == 302 and led.headers["location"] == "/guide/setup/"
