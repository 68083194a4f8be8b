"""The console in a browser; started by bench/screens.

*First paint* is the browser's first contentful paint, and *data* the time until what the screen is about is in the
page, both from the start of the navigation. *Server* is the time until the first byte of the page. Screens that answer
a form are left out. Those of a cluster are of a gateway, whose master and chunkservers run on this machine.
"""

import argparse
import os
import shutil
import statistics
import sys
import time

from compare import cpu_seconds
from playwright import sync_api as playwright

from console import screens
from console.profiles import Profile, becomes_true, client_of, expect, gateway_of
from harness.cluster import Cluster
from harness.server import Server, binary

MIB = 1 << 20
PAGES = 10
TIMES = """() => {
    const [page] = performance.getEntriesByType("navigation");
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    return [paint?.startTime ?? NaN, page.domContentLoadedEventEnd, page.responseStart - page.requestStart];
}"""
# Where a screen gets its data by a script, it is there when this is.
LATE = {"long": ".grid-row a[href]"}


def times_of(page, screen):
    """Milliseconds: first paint, data, and the server's part of it."""
    page.goto(screen.place)
    late = LATE.get(screen.name)
    if late:
        page.wait_for_selector(late)
        seen = page.evaluate("performance.now()")
    becomes_true(page, "performance.getEntriesByName('first-contentful-paint').length > 0")
    paint, data, server = page.evaluate(TIMES)
    return paint, seen if late else data, server


def table(page, found, rounds, only):
    for screen in found:
        if screen.is_of_guests or screen.steps is not screens.nothing and screen.name not in LATE:
            continue
        if only and only not in screen.name:
            continue
        times = [times_of(page, screen) for _ in range(rounds + 1)][1:]  # one to warm up
        medians = [statistics.median(column) for column in zip(*times)]
        print(f"| {screen.name} | " + " | ".join(f"{ms:.0f} ms" for ms in medians) + " |", flush=True)


def table_of_cluster(browser, rounds, only):
    with Cluster(chunkservers=3, gateways=0) as cluster:
        store = gateway_of(cluster, "g1")
        client = client_of(store)
        client.create_bucket(Bucket=screens.BUCKET)
        for number in range(100):
            client.put_object(Bucket=screens.BUCKET, Key=f"{number}", Body=bytes(100_000))
        profile = logged_in(browser, store)
        table(profile.page, screens.OF_CLUSTER, rounds, only)
        profile.close()


def logged_in(browser, store):
    profile = Profile(browser, store)
    profile.log_in()
    expect(profile.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    return profile


def first_load(browser, store):
    """Bytes of the first visit of the list of buckets, as they are sent."""
    profile = Profile(browser, store)
    network = profile.context.new_cdp_session(profile.page)
    network.send("Network.enable")
    loaded, hosts = [], set()
    network.on("Network.loadingFinished", lambda event: loaded.append(event["encodedDataLength"]))
    network.on("Network.requestWillBeSent", lambda event: hosts.add(event["request"]["url"].split("/")[2]))
    profile.log_in()
    expect(profile.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    profile.page.wait_for_timeout(500)
    profile.close()
    print(f"\nfirst load, from the login to the list of buckets: {sum(loaded) / 1024:.1f} KiB in {len(loaded)} replies, "
          f"from {len(hosts)} host")


def first_listing(page, rounds):
    listed = screens.Screen("folder", f"/b/{screens.LONG}?in=")
    found = [times_of(page, listed) for _ in range(rounds + 1)][1:]
    print(f"first listing, 200 of its rows: {statistics.median(one[2] for one in found):.0f} ms at the server, "
          f"{statistics.median(one[1] for one in found):.0f} ms until it is in the page")


def long_scroll(browser, store, rows):
    client_of(store).create_bucket(Bucket="million")
    began = time.monotonic()

    def said(made):
        if made % 10_000 == 0:
            print(f"\r{made:,} objects made", end="", file=sys.stderr)

    screens.make_rows(store, "million", rows, said)
    print(f"\r{rows:,} objects made in {time.monotonic() - began:.0f} s", file=sys.stderr)
    profile = logged_in(browser, store)
    profile.page.goto("/b/million")
    grid = profile.page.locator(".grid-scroll")
    grid.wait_for()
    began, whole = time.monotonic(), profile.page.get_by_text(f"{rows:,} entries", exact=True)
    while not whole.is_visible():
        grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
        profile.page.wait_for_timeout(5)
    measure = profile.context.new_cdp_session(profile.page)
    measure.send("Performance.enable")
    metrics = {one["name"]: one["value"] for one in measure.send("Performance.getMetrics")["metrics"]}
    print(f"scrolled through {rows:,} rows in {time.monotonic() - began:.0f} s; heap {metrics['JSHeapUsedSize'] / MIB:.0f} MiB, "
          f"{metrics['Nodes']:.0f} nodes")
    profile.close()


def idle(browser, store, seconds):
    """What open pages cost beside what the server costs by itself."""
    def share():
        before, began = cpu_seconds(store.process.pid), time.monotonic()
        time.sleep(seconds)
        return (cpu_seconds(store.process.pid) - before) / (time.monotonic() - began)

    alone = share()
    profiles = []
    for number in range(PAGES):
        profile = logged_in(browser, store)
        profile.page.goto("/" if number % 2 else f"/b/{screens.BUCKET}?in={screens.FOLDER}")
        becomes_true(profile.page, "document.querySelector('cairn-changes').source?.readyState === 1")
        profiles.append(profile)
    time.sleep(1)
    print(f"{PAGES} idle pages: {share():.2%} of a core; the server without them: {alone:.2%}")
    for profile in profiles:
        profile.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--only", default="")
    of = parser.parse_args()
    print(f"{binary()}; load of the machine {os.getloadavg()[0]:.1f}\n")
    with Server(args=["--console", "127.0.0.1:0", "--audit-memory"]) as store, playwright.sync_playwright() as play:
        screens.fill(store)
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        profile = logged_in(browser, store)
        screens.make_person(profile.page)
        print("| screen | first paint | data | server |\n|---|---|---|---|")
        table(profile.page, screens.all_screens(profile.page), of.rounds, of.only)
        table_of_cluster(browser, of.rounds, of.only)
        first_load(browser, store)
        first_listing(profile.page, of.rounds)
        profile.complaints.clear()
        profile.close()
        if of.idle_seconds:
            idle(browser, store, of.idle_seconds)
        if of.rows:
            long_scroll(browser, store, of.rows)
        browser.close()


if __name__ == "__main__":
    main()
