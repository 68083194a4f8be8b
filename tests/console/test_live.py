"""The console in Debian's Chromium: what others change appears on pages that are open, without a reload."""

import contextlib
import os
import re
import time
from pathlib import Path

from console.profiles import Profile, becomes_true, client_of, expect
from harness import metrics
from harness.cluster import Cluster
from harness.doors import Connection
from harness.ports import free_ports

LONG = 1300
IDLE_SECONDS = float(os.environ.get("CAIRN_TEST_BROWSER_IDLE_SECONDS", "4"))


def put(client, bucket, key, body=b"x"):
    client.put_object(Bucket=bucket, Key=key, Body=body)


@contextlib.contextmanager
def another(chromium, store):
    """A second browser that has logged in."""
    other = Profile(chromium, store)
    other.log_in()
    expect(other.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    yield other
    other.close()


@contextlib.contextmanager
def not_loaded(page):
    """What is done here loads no page anew."""
    page.evaluate("window.isSame = true")
    yield
    assert page.evaluate("window.isSame"), "the page was loaded anew"


def test_changes_of_another_browser_and_of_s3_appear(in_store, chromium, store, tmp_path):
    page, client = in_store.page, client_of(store)
    client.create_bucket(Bucket="live")
    for name in ("a.txt", "b.txt", "c.txt"):
        put(client, "live", f"docs/{name}")
    page.goto("/b/live?in=docs%2F")
    with another(chromium, store) as other, not_loaded(page):
        other.page.goto("/b/live?in=docs%2F")
        page.get_by_label("Select b.txt").check()
        page.get_by_label("Names that begin with").fill("half a wo")
        # Another browser uploads and deletes.
        file = tmp_path / "from-other.txt"
        file.write_text("other")
        other.page.locator("cairn-drop input:not([webkitdirectory])").set_input_files(file)
        expect(page.get_by_role("link", name="from-other.txt")).to_be_visible()
        other.page.get_by_label("Select a.txt").check()
        other.page.get_by_role("button", name="Delete 1 selected…").click()
        other.page.get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_role("link", name="a.txt")).to_have_count(0)
        # A client of S3 makes and replaces; a folder appears.
        put(client, "live", "docs/new/deep.txt")
        expect(page.get_by_role("link", name="new/")).to_be_visible()
        expect(other.page.get_by_role("link", name="new/")).to_be_visible()
        put(client, "live", "docs/c.txt", bytes(2048))
        expect(page.locator("tr", has=page.get_by_role("link", name="c.txt"))).to_contain_text("2.0 KiB")
        # What was begun here stays as it was.
        expect(page.get_by_label("Select b.txt")).to_be_checked()
        expect(page.get_by_role("button", name="Delete 1 selected…")).to_be_enabled()
        expect(page.get_by_label("Names that begin with")).to_have_value("half a wo")
        expect(page.get_by_label("Names that begin with")).to_be_focused()


def test_buckets_and_their_counters_are_live(in_store, store):
    page, client = in_store.page, client_of(store)
    with not_loaded(page):
        client.create_bucket(Bucket="live-made")
        expect(page.get_by_role("link", name="live-made")).to_be_visible()
        row = page.locator("tr", has=page.get_by_role("link", name="live-made"))
        put(client, "live-made", "x/y/z", bytes(3 << 20))
        expect(row).to_contain_text("3.0 MiB")
        client.delete_object(Bucket="live-made", Key="x/y/z")
        client.delete_bucket(Bucket="live-made")
        expect(page.get_by_role("link", name="live-made")).to_have_count(0)


def test_a_folder_that_goes_away_says_so(in_store, store):
    page, client = in_store.page, client_of(store)
    client.create_bucket(Bucket="live-gone")
    page.goto("/b/live-gone")
    expect(page.get_by_text("Nothing is here yet")).to_be_visible()
    client.delete_bucket(Bucket="live-gone")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()


def test_a_long_list_takes_in_what_others_add_and_remove(in_store, store):
    page, client = in_store.page, client_of(store)
    client.create_bucket(Bucket="live-long")
    for number in range(LONG):
        put(client, "live-long", f"row {number:05}", b"")
    page.goto("/b/live-long")
    grid = page.locator(".grid-scroll")
    whole = re.compile(rf"^{LONG:,} entries$")
    expect(grid.get_by_role("link", name="row 00000")).to_be_visible()
    while not page.get_by_text(whole).is_visible():
        grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
        page.wait_for_timeout(10)
    grid.evaluate("grid => { grid.scrollTop = 0; }")
    grid.get_by_label("Select row 00002").check()
    with not_loaded(page):
        # In a page of rows that is full, at the end, and away.
        put(client, "live-long", "row 00001 and a half", b"")
        expect(grid.get_by_role("link", name="row 00001 and a half")).to_be_visible()
        expect(page.get_by_text(f"{LONG + 1:,} entries", exact=True)).to_be_visible()
        put(client, "live-long", "row 99999", b"")
        expect(page.get_by_text(f"{LONG + 2:,} entries", exact=True)).to_be_visible()
        client.delete_object(Bucket="live-long", Key="row 00000")
        expect(grid.get_by_role("link", name="row 00000")).to_have_count(0)
        expect(page.get_by_text(f"{LONG + 1:,} entries", exact=True)).to_be_visible()
        expect(grid.get_by_label("Select row 00002")).to_be_checked()
        # The end is where it belongs, and no row is shown twice.
        grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
        expect(grid.get_by_role("link", name="row 99999")).to_be_visible()
        expect(grid.get_by_role("link", name=f"row {LONG - 1:05}")).to_be_visible()
        seen = "grid => [...grid.querySelectorAll('.grid-row:not([hidden]) a')].map((one) => one.textContent)"
        names = grid.evaluate(seen)
        assert len(set(names)) == len(names) > 5, names


def test_a_page_out_of_sight_does_not_listen(in_store, store):
    """It is told of nothing, and shows what changed when it is seen again."""
    page, client = in_store.page, client_of(store)
    client.create_bucket(Bucket="live-hidden")
    page.goto("/b/live-hidden")
    hide = """isHidden => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    listens = "document.querySelector('cairn-changes').source !== undefined"
    becomes_true(page, listens)
    page.evaluate(hide, True)
    assert not page.evaluate(listens)
    put(client, "live-hidden", "meanwhile.txt")
    time.sleep(1.5)
    expect(page.get_by_role("link", name="meanwhile.txt")).to_have_count(0)
    page.evaluate(hide, False)
    expect(page.get_by_role("link", name="meanwhile.txt")).to_be_visible()


def test_one_change_is_listed_twice(in_store, store):
    """Once to find out whether the page would show something else, and once for the page."""
    page, client = in_store.page, client_of(store)
    client.create_bucket(Bucket="live-cheap")
    page.goto("/b/live-cheap")
    becomes_true(page, "document.querySelector('cairn-changes').source?.readyState === 1")

    def reads():
        pages = counted(store, "cairn_requests_total", door="console", verb="ListFiles")
        return pages, counted(store, "cairn_console_listings_total"), counted(store, "cairn_console_looks_total")

    for name in ("first.txt", "second.txt", "third.txt"):
        before = reads()
        put(client, "live-cheap", name)
        expect(page.get_by_role("link", name=name)).to_be_visible()
        time.sleep(1.5)  # longer than the least time between two events: what is too much would come now
        pages, listings, looks = (now - then for now, then in zip(reads(), before))
        assert (pages, listings) == (1, 1) and looks <= 2, (name, pages, listings, looks)


def cpu_seconds(store):
    fields = Path(f"/proc/{store.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def counted(store, name, **labels):
    text = Connection(store.http).send("GET", "/metrics", {}, None).body.decode()
    return metrics.total(text, name, **labels)


def requests_of(store):
    return counted(store, "cairn_requests_total", door="console")


def test_ten_open_pages_cost_nothing_while_nothing_changes(chromium, store):
    client = client_of(store)
    client.create_bucket(Bucket="live-idle")
    for number in range(50):
        put(client, "live-idle", f"file {number}")
    with contextlib.ExitStack() as open_pages:
        for _ in range(10):
            profile = open_pages.enter_context(another(chromium, store))
            profile.page.goto("/b/live-idle")
            becomes_true(profile.page, "document.querySelector('cairn-changes').source?.readyState === 1")
        requests = requests_of(store)
        before, began = cpu_seconds(store), time.monotonic()
        time.sleep(IDLE_SECONDS)
        share = (cpu_seconds(store) - before) / (time.monotonic() - began)
        assert requests_of(store) == requests, "idle pages ask for something"
        print(f"10 idle pages: {share:.2%} of a core")
        # All that the server does by itself is in it, too, and a tick is much of a short time.
        assert share < 0.01 + 0.02 / IDLE_SECONDS, share


def test_a_page_of_one_gateway_shows_what_clients_of_another_change(chromium):
    with Cluster(chunkservers=1, gateways=0, replicas=1) as cluster:
        port = free_ports(1)[0]
        cluster.make("g1").arguments += ["--console", f"127.0.0.1:{port}"]
        cluster.join("g1", cluster.token("gateway"))
        cluster.nodes["g1"].start()
        cluster.nodes["g1"].wait_ready()
        cluster.add("g2")
        cluster.nodes["g1"].console = f"http://127.0.0.1:{port}"
        profile = Profile(chromium, cluster.nodes["g1"])
        profile.log_in()
        page = profile.page
        expect(page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
        client = client_of(cluster.nodes["g2"])
        client.create_bucket(Bucket="far")
        expect(page.get_by_role("link", name="far")).to_be_visible()
        page.get_by_role("link", name="far").click()
        for number in range(3):
            put(client, "far", f"file {number}", bytes(1024))
            expect(page.get_by_role("link", name=f"file {number}")).to_be_visible()
        put(client, "far", "file 1", bytes(3072))
        expect(page.locator("tr", has=page.get_by_role("link", name="file 1"))).to_contain_text("3.0 KiB")
        client.delete_object(Bucket="far", Key="file 0")
        expect(page.get_by_role("link", name="file 0")).to_have_count(0)
        profile.close()
