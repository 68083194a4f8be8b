"""Pictures of the console: `cargo xtask screenshots`.

Of every screen, light and dark, wide and on a phone; or with `--docs` those that README.md and docs/console.md show.
"""

import argparse
import os
import re
import shutil
import sys
import threading
from pathlib import Path

from playwright import sync_api as playwright

from console import screens
from console.profiles import Profile, expect
from harness.server import Server

SIZES = {"wide": (1280, 800), "phone": (390, 780)}
# A picture of a document is shown some 900 pixels wide.
SIZE_OF_DOCUMENTS, SCALE_OF_DOCUMENTS = (1080, 720), 1.5
# Plots show five minutes.
PLOTTED_SECONDS = int(os.environ.get("CAIRN_PICTURES_SECONDS", "310"))
MIB = 1 << 20


def look(profile, into, size, screen):
    page = profile.page
    screens.show(page, screen)
    wait_for_images(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=into / f"{screen.name}-{size}-{scheme}.png", animations="disabled")


def wait_for_images(page):
    page.evaluate("Promise.allSettled([...document.images].map((image) => image.decode()))")


def log_in(profile):
    profile.log_in()
    expect(profile.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()


def all_screens(browser, store, into):
    screens.fill(store)
    for size, (width, height) in SIZES.items():
        profile = Profile(browser, store, viewport={"width": width, "height": height}, device_scale_factor=2)
        for screen in screens.SCREENS:
            if screen.is_of_guests:
                look(profile, into, size, screen)
        log_in(profile)
        screens.make_person(profile.page)
        for screen in screens.all_screens(profile.page):
            if not screen.is_of_guests:
                look(profile, into, size, screen)
        profile.complaints.clear()  # of bad secrets and of what is not there
        profile.close()


def work(client, stop):
    """Reads and writes at a rate that rises and falls, so that plots have something to show."""
    for turn in range(1 << 30):
        for number in range(3 + turn // 30 % 4 * 3 + turn % 7):
            client.get_object(Bucket="photos", Key=f"2026/coast/img_{2041 + number % 9}.jpg")["Body"].read()
        client.put_object(Bucket="backups", Key=f"nightly/part {turn % 50:02}", Body=bytes((1 + turn % 5) << 16))
        if stop.wait(0.5):
            return


def of_uploads(profile):
    """Three files on their way."""
    page, network = profile.page, profile.context.new_cdp_session(profile.page)
    network.send("Network.enable")
    rates = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": MIB}
    page.goto("/b/photos?in=2026%2Flighthouse%2F")
    network.send("Network.emulateNetworkConditions", rates)
    names = ["img_2071.jpg", "img_2072.jpg", "img_2073.jpg", "stairs.mp4", "img_2074.jpg"]
    sizes = [2, 1, 9, 14, 4]
    files = [{"name": name, "mimeType": "image/jpeg", "buffer": bytes(size * MIB)} for name, size in zip(names, sizes)]
    page.locator("cairn-drop input:not([webkitdirectory])").set_input_files(files)
    expect(page.locator("cairn-uploads h2")).to_have_text(re.compile("to go, [1-4] done"))


def of_documents(browser, store, into):
    client = screens.fill_for_documents(store)
    width, height = SIZE_OF_DOCUMENTS
    viewport = {"width": width, "height": height}
    profile = Profile(browser, store, viewport=viewport, device_scale_factor=SCALE_OF_DOCUMENTS, color_scheme="light")
    page = profile.page

    def picture(name):
        wait_for_images(page)
        page.mouse.move(0, 0)
        page.screenshot(path=into / f"console-{name}.png", animations="disabled")

    log_in(profile)
    # It measures while the others are made, and until plots are full.
    page.goto("/store")
    stop = threading.Event()
    worker = threading.Thread(target=work, args=(client, stop))
    worker.start()
    try:
        page.wait_for_timeout(PLOTTED_SECONDS * 1000)
        picture("store")
    finally:
        stop.set()
        worker.join()
    page.goto("/b/photos?in=2026%2Fcoast%2F")
    picture("folder")
    page.goto("/b/photos/object?key=2026%2Fcoast%2Fsea.png")
    picture("object")
    page.goto("/b/photos/share?key=2026%2Fcoast%2F")
    picture("share")
    of_uploads(profile)
    picture("uploads")
    page.get_by_role("button", name="Pause all").click()
    profile.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("into", type=Path)
    parser.add_argument("--docs", action="store_true")
    of = parser.parse_args()
    found = shutil.which("chromium")
    if not found:
        sys.exit("chromium is not installed: run tests/install")
    of.into.mkdir(parents=True, exist_ok=True)
    with Server(args=["--console", "127.0.0.1:0", "--audit-memory"]) as store, playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        (of_documents if of.docs else all_screens)(browser, store, of.into)
        browser.close()
    pictures = list(of.into.glob("*.png"))
    print(f"{len(pictures)} pictures in {of.into}, {sum(one.stat().st_size for one in pictures) >> 10} KiB")


if __name__ == "__main__":
    main()
