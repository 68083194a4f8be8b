"""Browsers for the tests of the console, each with cookies of its own."""

import base64
import os
import re
import urllib.parse
from pathlib import Path
from types import SimpleNamespace

import boto3
from playwright import sync_api as playwright

from harness.doors import Connection
from harness.ports import free_ports
from harness.server import KEY, REGION, SECRET
from harness.wait import PATIENCE_SECONDS, eventually

expect = playwright.expect
expect.set_options(timeout=PATIENCE_SECONDS * 1000)

PICTURES = os.environ.get("CAIRN_TEST_PICTURES")


def client_of(store):
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
    return boto3.client("s3", endpoint_url=store.s3, **keys)


def bucket_of(store, name, *keys):
    """Makes a bucket with objects whose contents are their keys."""
    client = client_of(store)
    client.create_bucket(Bucket=name)
    for key in keys:
        client.put_object(Bucket=name, Key=key, Body=key.encode(), ContentType="text/plain")
    return client


def fetch(address, method="GET", body=None, password=None):
    """The reply to somebody who has an address, and perhaps its password."""
    parts = urllib.parse.urlsplit(address)
    headers = {}
    if password is not None:
        headers["authorization"] = "Basic " + base64.b64encode(f":{password}".encode()).decode()
    query = f"?{parts.query}" if parts.query else ""
    return Connection(f"{parts.scheme}://{parts.netloc}").send(method, parts.path + query, headers, body)


def becomes_true(page, expression):
    """Waits for an expression; the policy of pages forbids that the browser does so by itself."""
    eventually(lambda: page.evaluate(expression), expression)


def gateway_of(cluster, name):
    """Starts a gateway with a console, and returns the doors that a profile wants."""
    gateway = cluster.make(name)
    console = f"127.0.0.1:{free_ports(1)[0]}"
    gateway.arguments += ["--console", console, "--audit-memory"]
    cluster.join(name, cluster.token("gateway"))
    gateway.start()
    gateway.wait_ready()
    return SimpleNamespace(console=f"http://{console}", s3=gateway.s3, http=gateway.http)


def damaged(node, text):
    """Changes bytes of an object in the segments of a server or chunkserver; whether it has them."""
    for path in sorted((node.directory / "blocks").rglob("*")):
        if path.is_file():
            at = path.read_bytes().find(text)
            if at >= 0:
                with open(path, "r+b") as segment:
                    segment.seek(at + 100)
                    segment.write(b"\xff\xff")
                return True
    return False


def press_to(page, target):
    """Presses Tab until something has the focus."""
    for _ in range(60):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError("the keyboard does not reach it")


class Profile:
    """A browser with cookies of its own, and what its pages complained about."""

    def __init__(self, chromium, store, **options):
        self.context = chromium.new_context(base_url=store.console, **options)
        self.context.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.store = store
        self.complaints = []
        self.page = self.context.new_page()
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def log_in(self, secret=SECRET, key=KEY):
        self.page.goto("/")
        self.log_in_here(secret, key)

    def log_in_here(self, secret=SECRET, key=KEY, page=None):
        """On the page to log in that is shown."""
        page = page or self.page
        page.get_by_label("Access key").fill(key)
        page.get_by_label("Secret key").fill(secret)
        page.get_by_role("button", name="Log in").click()

    def make_bucket(self, name):
        self.page.goto("/")
        self.page.get_by_placeholder("Name", exact=True).fill(name)
        self.page.get_by_role("button", name="Make bucket").click()
        expect(self.page.get_by_role("heading", name=name)).to_be_visible()

    def picture(self, name):
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=f"{PICTURES}/{name}.png")

    def close(self):
        self.context.close()
        # What a page may not do is said as an error; so is a script that fails.
        mine = [text for text in self.complaints if not re.search("Failed to load resource|net::ERR", text)]
        assert not mine, mine
