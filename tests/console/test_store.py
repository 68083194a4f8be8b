"""The pages of the store in Debian's Chromium: live numbers, scrubs that find damage, logs, and what they cost."""

import http.cookiejar
import os
import re
import socket
import time
import urllib.parse
import urllib.request

from console.profiles import Profile, client_of, damaged, expect
from harness.server import KEY, SECRET, Server
from harness.wait import eventually

TICKS = 100  # of processor time a second, in /proc
PAGES = 10
WATCHED_SECONDS = 10


def test_numbers_come_live_and_pause(in_store, store):
    profile, page = in_store, in_store.page
    client = client_of(store)
    client.create_bucket(Bucket="live")
    page.get_by_role("link", name="Store", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("All is well.")
    expect(page.get_by_text("Live.", exact=True)).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("cell", name="s3", exact=True))
    body = b"x" * 100_000

    def is_counted():
        client.put_object(Bucket="live", Key="a", Body=body)
        return float(row.get_by_role("cell").nth(1).inner_text().replace("< ", "")) > 0

    eventually(is_counted, "the S3 door's requests are counted")
    expect(page.get_by_role("img", name=re.compile("^Requests a second"))).to_be_visible()
    expect(page.locator(".plot polyline").first).to_be_attached()
    profile.picture("store")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused.")).to_be_visible()
    before = page.locator("[data-part=doors]").inner_text()
    client.put_object(Bucket="live", Key="b", Body=body)
    time.sleep(5)
    assert page.locator("[data-part=doors]").inner_text() == before
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("Live.", exact=True)).to_be_visible()


def test_the_pages_work_by_keyboard_and_back(in_store):
    page = in_store.page
    page.goto("/store")
    for name in ["Requests", "Mounts and locks", "Cluster", "Scrub", "Doctor", "Logs"]:
        page.get_by_role("navigation", name="Store").get_by_role("link", name=name).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        in_store.picture("store-" + name.split()[0].lower())
    page.go_back()
    expect(page.get_by_role("heading", name="Doctor", level=1)).to_be_visible()


def test_they_work_without_scripts(chromium, store):
    profile = Profile(chromium, store, java_script_enabled=False)
    profile.log_in()
    page = profile.page
    page.get_by_role("link", name="Store", exact=True).click()
    expect(page.get_by_text("All is well.")).to_be_visible()
    expect(page.get_by_role("cell", name="console", exact=True)).to_be_visible()
    page.get_by_role("button", name="Make read-only…").click()
    page.get_by_role("button", name="Make read-only", exact=True).click()
    expect(page.get_by_text("The store is read-only: it can be looked at")).to_be_visible()
    page.get_by_role("button", name="Take changes again").click()
    expect(page.get_by_text("The store is read-only: it can be looked at")).to_have_count(0)
    page.get_by_role("link", name="Doctor").click()
    time.sleep(10)
    page.reload()
    expect(page.get_by_role("heading", name="What limits the rest")).to_be_visible()
    profile.close()


def test_on_a_phone_in_the_dark_nothing_is_wider_than_the_screen(chromium, store):
    size = {"width": 360, "height": 740}
    profile = Profile(chromium, store, viewport=size, color_scheme="dark")
    profile.log_in()
    page = profile.page
    expect(page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    for place in ["", "/requests", "/mounts", "/cluster", "/scrub", "/doctor", "/logs"]:
        page.goto("/store" + place)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], place
    page.goto("/store")
    profile.picture("store-phone")
    profile.close()


def test_a_scrub_names_the_object_that_is_damaged(chromium, tmp_path):
    with Server(args=["--console", "127.0.0.1:0"]) as store:
        client = client_of(store)
        client.create_bucket(Bucket="photos")
        body = os.urandom(1 << 20)
        client.put_object(Bucket="photos", Key="damaged.bin", Body=body)
        client.put_object(Bucket="photos", Key="whole.txt", Body=b"x" * 30_000)
        assert damaged(store, body[:4096])
        profile = Profile(chromium, store)
        profile.log_in()
        page = profile.page
        expect(page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
        page.goto("/store/scrub")
        page.get_by_role("button", name="Scrub now").click()
        expect(page.get_by_role("cell", name="photos/damaged.bin")).to_be_visible()
        expect(page.get_by_text("whole.txt")).to_have_count(0)
        profile.picture("store-damage")
        page.goto("/store")
        expect(page.get_by_role("status")).to_have_text("It needs help: 1 failure.")
        profile.close()


def test_a_log_is_tailed(in_store, store):
    page = in_store.page
    client = client_of(store)
    client.create_bucket(Bucket="logs-root")

    def add(text):
        request = urllib.request.Request(f"{store.http}/storage/logs-root/app/today.jsonl?append", text, method="POST")
        password = urllib.request.HTTPPasswordMgrWithPriorAuth()
        password.add_password(None, store.http, KEY, SECRET, is_authenticated=True)
        urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(password)).open(request).close()

    add(b"the first line\n")
    page.goto("/store/logs?bucket=logs-root&key=app%2Ftoday.jsonl")
    log = page.get_by_role("log")
    expect(log).to_contain_text("the first line")
    expect(page.get_by_text("Live.", exact=True)).to_be_visible()
    add(b"<b>the second</b>\n")
    expect(log).to_contain_text("<b>the second</b>")
    assert log.inner_text().count("the first line") == 1


def test_ten_open_pages_cost_little():
    with Server(args=["--console", "127.0.0.1:0"]) as store:
        cookie = logged_in(store.console)
        streams = [events(store.console, cookie) for _ in range(PAGES)]
        time.sleep(3)
        before = cpu_seconds(store.process.pid)
        read = [0] * PAGES
        until = time.monotonic() + WATCHED_SECONDS
        while time.monotonic() < until:
            for number, stream in enumerate(streams):
                try:
                    read[number] += len(stream.recv(1 << 20))
                except TimeoutError:
                    pass
        spent = cpu_seconds(store.process.pid) - before
        assert min(read) > 1000, "each page gets its numbers"
        for stream in streams:
            stream.close()
        print(f"{PAGES} pages: {spent / WATCHED_SECONDS * 100:.2f} % of a core, {sum(read)} bytes")
        assert spent / WATCHED_SECONDS < 0.01


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def logged_in(console):
    cookies = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    form = urllib.parse.urlencode({"key": KEY, "secret": SECRET}).encode()
    opener.open(urllib.request.Request(f"{console}/login", form, {"sec-fetch-site": "same-origin"})).close()
    (cookie,) = cookies
    return f"{cookie.name}={cookie.value}"


def events(console, cookie):
    host, port = console.split("//")[1].split(":")
    stream = socket.create_connection((host, int(port)))
    head = f"GET /store/live?screen=store HTTP/1.1\r\nhost: {host}:{port}\r\ncookie: {cookie}\r\n\r\n"
    stream.sendall(head.encode())
    stream.settimeout(0.05)
    return stream
