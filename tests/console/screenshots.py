"""Pictures of every screen of the console, light and dark, wide and on a phone: `cargo xtask screenshots`."""

import shutil
import sys
from pathlib import Path

from playwright import sync_api as playwright

from console import screens
from console.profiles import Profile, expect
from harness.server import Server

SIZES = {"wide": (1280, 800), "phone": (390, 780)}


def look(profile, into, size, screen):
    page = profile.page
    screens.show(page, screen)
    page.evaluate("Promise.allSettled([...document.images].map((image) => image.decode()))")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=into / f"{screen.name}-{size}-{scheme}.png", animations="disabled")


def main(into):
    found = shutil.which("chromium")
    if not found:
        sys.exit("chromium is not installed: run tests/install")
    into.mkdir(parents=True, exist_ok=True)
    with Server(args=["--console", "127.0.0.1:0", "--audit-memory"]) as store, playwright.sync_playwright() as play:
        screens.fill(store)
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for size, (width, height) in SIZES.items():
            profile = Profile(browser, store, viewport={"width": width, "height": height}, device_scale_factor=2)
            for screen in screens.SCREENS:
                if screen.is_of_guests:
                    look(profile, into, size, screen)
            profile.log_in()
            expect(profile.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
            screens.make_person(profile.page)
            for screen in screens.all_screens(profile.page):
                if not screen.is_of_guests:
                    look(profile, into, size, screen)
            profile.complaints.clear()  # of bad secrets and of what is not there
            profile.close()
        browser.close()
    print(f"{len(list(into.glob('*.png')))} pictures in {into}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
