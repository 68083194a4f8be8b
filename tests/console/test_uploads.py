"""Uploads of the console in Debian's Chromium that are cut, and go on: nothing that has arrived is sent again.

`CAIRN_TEST_BROWSER_MIB` says how large a file is.
"""

import contextlib
import hashlib
import math
import os
import re
import shutil

import pytest

from console.profiles import Profile, becomes_true, bucket_of, client_of, expect
from harness import metrics
from harness.doors import Http
from harness.server import scratch
from harness.wait import eventually

MIB = int(os.environ.get("CAIRN_TEST_BROWSER_MIB", "40"))
MEBIBYTE = 1 << 20
PART = 16 * MEBIBYTE
RATES = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
SLOW = {"uploadThroughput": MIB * MEBIBYTE / 7}
LOG_IN = {"name": "Log in to Cairn"}


class Film:
    """A file of several parts."""

    def __init__(self, path):
        self.path, digest = path, hashlib.md5()
        with open(path, "wb") as out:
            for _ in range(MIB):
                piece = os.urandom(MEBIBYTE)
                digest.update(piece)
                out.write(piece)
        self.digest, self.parts = digest.digest(), list(range(1, math.ceil(MIB * MEBIBYTE / PART) + 1))

    def is_at(self, store, bucket):
        stored = hashlib.md5()
        for piece in client_of(store).get_object(Bucket=bucket, Key=self.path.name)["Body"].iter_chunks(MEBIBYTE):
            stored.update(piece)
        return stored.digest() == self.digest


@pytest.fixture(scope="module")
def film():
    """On a disk: it may be too large for memory."""
    directory = scratch("film")
    yield Film(directory / "film.bin")
    shutil.rmtree(directory)


class Parts:
    """The parts that a page has sent to the S3 door: those that it began, that were stored, and that were cut."""

    def __init__(self, page):
        self.begun, self.stored, self.cut = [], [], []
        page.on("request", lambda request: self.note(request, self.begun))
        page.on("response", lambda reply: reply.ok and self.note(reply.request, self.stored))
        page.on("requestfailed", lambda request: self.note(request, self.cut))

    def note(self, request, into):
        if found := request.method == "PUT" and re.search(r"[?&]partNumber=(\d+)", request.url):
            into.append(int(found[1]))


class Network:
    """The connection of a page, which can be slow or broken."""

    def __init__(self, profile):
        self.session = profile.context.new_cdp_session(profile.page)
        self.session.send("Network.enable")

    def be(self, **other):
        self.session.send("Network.emulateNetworkConditions", RATES | other)


def received(store):
    """Bytes of bodies that came to the S3 door since the server started."""
    return metrics.total(Http(store.http).request("GET", "/metrics").body.decode(), "cairn_received_bytes_total", door="s3")


def choose(page, *paths):
    page.locator("cairn-drop input:not([webkitdirectory])").set_input_files(paths)


# Parts with odd numbers wait until they are told to go on.
HOLD_PARTS = """
const asked = window.fetch, waiting = [];
window.goOn = () => { window.fetch = asked; waiting.forEach((done) => done()); };
window.fetch = async (place, options) => {
    const [, number] = /"parts":\\[\\[(\\d+),/.exec(String(options?.body)) ?? [];
    if (number % 2 === 1) await new Promise((done) => waiting.push(done));
    return asked(place, options);
};
"""


def begin(page, parts, film):
    """Chooses the file, and waits until a part has arrived while others have not."""
    page.evaluate(HOLD_PARTS)
    choose(page, film.path)

    def one_arrived():
        page.evaluate("1")  # the page says what it has sent when it is asked something
        return parts.stored

    eventually(one_arrived, "one part has arrived")
    assert not [number for number in parts.stored if number % 2], parts.stored


def test_a_large_file_survives_cuts_and_the_death_of_the_server(in_store, film, store):
    profile, page = in_store, in_store.page
    profile.make_bucket("large")
    network, parts, before = Network(profile), Parts(page), received(store)
    network.be(**SLOW)
    begin(page, parts, film)
    state = page.locator(".job-state").first
    expect(state).to_have_text(re.compile(r"^[1-9]\d? % of "))
    expect(page.locator("cairn-uploads .panel-sum")).to_contain_text(re.compile(r"\d [KM]iB/s · \d+ (s|min|h) left"))
    profile.picture("upload")
    page.evaluate("goOn()")
    eventually(lambda: page.evaluate("1") and 1 in parts.begun, "the others go, too")
    page.get_by_role("button", name="Pause all").click()
    expect(state).to_have_text(re.compile("^Paused at"))
    page.get_by_role("button", name="Resume all").click()
    # The connection is cut, and then the server is killed.
    network.be(offline=True)
    expect(state).to_have_text(re.compile("Trying again"))
    profile.picture("upload-cut")
    network.be(**SLOW)
    bytes_before_death = received(store) - before
    store.kill()
    expect(state).to_have_text(re.compile("Trying again"))
    store.start()
    network.be()
    expect(page.get_by_text("1 file uploaded")).to_be_visible()
    assert film.is_at(store, "large")
    assert sorted(parts.stored) == film.parts, (parts.stored, parts.cut)
    at_most = MIB * MEBIBYTE + PART * len(parts.cut) + MEBIBYTE
    assert bytes_before_death + received(store) <= at_most, (parts.stored, parts.cut)


def test_an_upload_goes_on_after_the_page_was_closed(in_store, film, store):
    profile, page = in_store, in_store.page
    profile.make_bucket("closed")
    parts, asked = Parts(page), []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    begin(page, parts, film)
    remembered = "Object.keys(localStorage).filter((name) => name.startsWith('upload:')).length"
    assert page.evaluate(remembered) == 1
    # The browser asks before it leaves an upload.
    page.reload()
    assert asked == ["beforeunload"]
    expect(page.locator("cairn-uploads .job")).to_have_count(0)
    arrived, before = list(parts.stored), received(store)
    choose(page, film.path)
    expect(page.get_by_text("1 file uploaded")).to_be_visible()
    assert film.is_at(store, "closed")
    assert sorted(parts.stored) == film.parts, (arrived, parts.stored, parts.cut)
    rest = MIB * MEBIBYTE - sum(min(PART, MIB * MEBIBYTE - PART * (number - 1)) for number in arrived)
    assert received(store) - before <= rest + MEBIBYTE, (arrived, parts.stored)
    assert page.evaluate(remembered) == 0
    assert not client_of(store).list_multipart_uploads(Bucket="closed").get("Uploads")


def test_what_failed_is_tried_again_by_a_button(in_store, store, tmp_path):
    page = in_store.page
    client = bucket_of(store, "failing")
    http = Http(store.http)
    page.goto("/b/failing")
    assert http.request("PATCH", "/storage/failing?read_only=on").status < 300
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(name)
    choose(page, tmp_path / "one.txt", tmp_path / "two.txt")
    expect(page.locator(".job-state", has_text=re.compile("^Failed: .*read-only"))).to_have_count(2)
    expect(page.locator("cairn-uploads .panel-sum")).to_contain_text("2 failed")
    assert http.request("PATCH", "/storage/failing?read_only=off").status < 300
    page.get_by_role("button", name="Retry one.txt").click()
    expect(page.get_by_role("heading", name="1 file to go, 1 done")).to_be_visible()
    page.get_by_role("button", name="Cancel two.txt").click()
    expect(page.get_by_text("1 file uploaded")).to_be_visible()
    expect(page.get_by_role("link", name="one.txt")).to_be_visible()
    assert [found["Key"] for found in client.list_objects_v2(Bucket="failing")["Contents"]] == ["one.txt"]


COPY_PICTURE = """async () => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 3, height: 2 });
    canvas.getContext("2d").fillRect(0, 0, 3, 2);
    const picture = await new Promise((done) => canvas.toBlob(done, "image/png"));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
}"""


def test_a_picture_is_pasted(in_store, store):
    profile, page = in_store, in_store.page
    client = bucket_of(store, "pasted")
    profile.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/b/pasted?in=from%2F")
    page.evaluate(COPY_PICTURE)
    page.keyboard.press("Control+V")
    expect(page.get_by_text("1 file uploaded")).to_be_visible()
    [found] = client.list_objects_v2(Bucket="pasted")["Contents"]
    assert found["Key"] == "from/image.png"
    assert client.get_object(Bucket="pasted", Key="from/image.png")["Body"].read().startswith(b"\x89PNG")


@contextlib.contextmanager
def logged_out_elsewhere(chromium, store):
    """Another browser of the same user ends all logins."""
    other = Profile(chromium, store)
    other.log_in()
    yield
    other.page.locator(".top .menu summary").click()
    other.page.get_by_role("button", name="Log out everywhere").click()
    expect(other.page.get_by_role("heading", **LOG_IN)).to_be_visible()
    other.close()


def test_a_page_whose_login_has_ended_asks_for_one_and_goes_on(in_store, chromium, store):
    page = in_store.page
    bucket_of(store, "ended", "docs/a.txt")
    page.goto("/b/ended")
    with logged_out_elsewhere(chromium, store):
        pass
    page.get_by_role("link", name="docs/").click()
    expect(page.get_by_role("heading", **LOG_IN)).to_be_visible()
    in_store.log_in_here()
    expect(page.get_by_role("link", name="a.txt")).to_be_visible()
    expect(page.get_by_role("heading", name="docs")).to_be_visible()


# The last request of an upload to the console waits until it is told to go on.
HOLD = """
const asked = window.fetch;
window.fetch = async (place, options) => {
    if (String(options?.body).includes('"do":"complete"')) {
        window.fetch = asked;
        await new Promise((done) => { window.goOn = done; });
    }
    return asked(place, options);
};
"""


def test_an_upload_whose_login_has_ended_asks_for_one_and_goes_on(in_store, film, chromium, store):
    profile, page = in_store, in_store.page
    bucket_of(store, "ending", "docs/a.txt")
    page.goto("/b/ending")
    parts = Parts(page)
    with logged_out_elsewhere(chromium, store):
        page.evaluate(HOLD)
        choose(page, film.path)
        becomes_true(page, "Boolean(window.goOn)")
    page.evaluate("goOn()")
    expect(page.locator(".job-state").first).to_contain_text("Log in again in another tab")
    profile.picture("upload-login")
    # To go elsewhere would end the queue.
    page.get_by_role("link", name="docs/").click()
    expect(page.get_by_role("alert")).to_contain_text("The login has ended")
    expect(page.locator(".job-state").first).to_contain_text("Log in again in another tab")
    other = profile.context.new_page()
    other.goto("/")
    profile.log_in_here(page=other)
    expect(other.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    page.get_by_role("button", name="Resume all").click()
    expect(page.get_by_text("1 file uploaded")).to_be_visible()
    assert film.is_at(store, "ending")
    assert sorted(parts.stored) == film.parts, (parts.stored, parts.cut)
    page.get_by_role("link", name="docs/").click()
    expect(page.get_by_role("link", name="a.txt")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
