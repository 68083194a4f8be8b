"""Every screen of the console: what axe finds, whether it fits, and the main path by the keyboard alone."""

import re

import pytest

from console import screens
from console.profiles import Profile, client_of, expect, fetch, gateway_of, press_to
from harness.cluster import Cluster
from harness.server import KEY, ROOT, SECRET, Server

AXE = ROOT / "target/clients/axe/node_modules/axe-core/axe.min.js"
BAD = ("serious", "critical")
SIZES = {"wide": (1280, 800), "phone": (390, 780)}
RUN = """async () => {
    const found = await axe.run(document, { resultTypes: ["violations"], elementRef: false });
    return found.violations.map(({ id, impact, help, nodes }) => (
        { id, impact, help, nodes: nodes.slice(0, 3).map((node) => node.html + " " + node.failureSummary) }));
}"""


@pytest.fixture(scope="module")
def store():
    with Server(args=["--console", "127.0.0.1:0", "--audit-memory"]) as running:
        screens.fill(running)
        yield running


def check(page, name, scheme):
    """Findings of axe that a person would be stopped by, and whether all of the page can be seen."""
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert over <= 0, (name, scheme, over)
    # What only screen readers say is placed by its parent, or a part that is scrolled would not hold it.
    loose = page.evaluate("[...document.querySelectorAll('.hidden')].filter((one) => one.checkVisibility() "
                          "&& one.offsetParent !== one.parentElement).map((one) => one.textContent)")
    assert not loose, (name, loose)
    found = page.evaluate(RUN)
    return [(name, scheme, one) for one in found if one["impact"] in BAD]


class Axe:
    """A profile of which each screen is looked at, in both schemes."""

    def __init__(self, chromium, store, size):
        if not AXE.exists():
            pytest.skip("axe-core is not installed: run tests/install")
        width, height = SIZES[size]
        # axe is no script of the console, so that its policy would not let it run.
        self.profile = Profile(chromium, store, viewport={"width": width, "height": height}, bypass_csp=True)
        self.page, self.size, self.findings = self.profile.page, size, []
        self.page.add_init_script(path=AXE)

    def look(self, screen):
        self.page.emulate_media(color_scheme="light")
        screens.show(self.page, screen)
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            self.findings.extend(check(self.page, screen.name, scheme))
            self.profile.picture(f"{self.size}-{scheme}-{screen.name}")

    def log_in(self):
        self.profile.log_in()
        expect(self.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()

    def end(self):
        self.profile.complaints.clear()  # of bad secrets and of what is not there
        self.profile.close()
        shown = [f"{name} ({scheme}): {one['impact']} {one['id']}: {one}" for name, scheme, one in self.findings]
        assert not shown, "\n".join(shown)


@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing_serious_on_any_screen(chromium, store, size):
    axe = Axe(chromium, store, size)
    for screen in screens.SCREENS:
        if screen.is_of_guests:
            axe.look(screen)
    axe.log_in()
    screens.make_person(axe.page)
    seen = [screen for screen in screens.all_screens(axe.page) if not screen.is_of_guests]
    for screen in seen:
        axe.look(screen)
    assert len(seen) > 20 and "/store/doctor" in {screen.place for screen in seen}
    axe.end()


def test_axe_finds_nothing_serious_on_the_screens_of_a_cluster(chromium):
    with Cluster(chunkservers=3, gateways=0, replicas=2) as cluster:
        store = gateway_of(cluster, "g1")
        client_of(store).create_bucket(Bucket="shared")
        client_of(store).put_object(Bucket="shared", Key="a", Body=bytes(100_000))
        for size in SIZES:
            axe = Axe(chromium, store, size)
            axe.log_in()
            for screen in screens.OF_CLUSTER:
                axe.look(screen)
            axe.end()


def test_axe_would_find_something(chromium, store):
    """A page with a picture that has no text is not good enough."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run tests/install")
    profile = Profile(chromium, store, bypass_csp=True)
    profile.page.add_init_script(path=AXE)
    profile.page.goto("/login")
    profile.page.evaluate("document.querySelector('.login img').removeAttribute('alt')")
    assert [one[2]["id"] for one in check(profile.page, "login", "light")] == ["image-alt"]
    profile.close()


def test_the_main_path_by_keyboard_alone(profile, store, tmp_path):
    page = profile.page
    page.goto("/")
    expect(page.get_by_label("Access key")).to_be_focused()
    page.keyboard.type(KEY)
    page.keyboard.press("Tab")
    page.keyboard.type(SECRET)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    press_to(page, page.get_by_placeholder("Name", exact=True))
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="by-keyboard")).to_be_visible()
    file = tmp_path / "letter.txt"
    file.write_text("typed")
    press_to(page, page.get_by_role("button", name=re.compile("^Upload files")))
    # The browser's own window to choose files is not part of the page, and not always heard of.
    field = page.locator("cairn-drop input").first
    hear = "event => { event.preventDefault(); event.target.dataset.asked = 1; }"
    field.evaluate(f"field => field.addEventListener('click', {hear})")
    page.keyboard.press("Enter")
    expect(field).to_have_attribute("data-asked", "1")
    field.set_input_files(file)
    expect(page.get_by_text("1 file uploaded")).to_be_visible()
    press_to(page, page.get_by_role("link", name="letter.txt"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="letter.txt")).to_be_visible()
    press_to(page, page.get_by_role("link", name="Share…"))
    page.keyboard.press("Enter")
    press_to(page, page.get_by_role("button", name="Make link"))
    page.keyboard.press("Space")
    expect(page.get_by_role("heading", name="The link is made")).to_be_visible()
    assert fetch(page.get_by_label("Address").input_value()).body == b"typed"
    # A menu opens and closes, and gives the focus back.
    summary = page.locator(".top .menu summary")
    press_to(page, summary)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Log out", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Log out", exact=True)).to_be_hidden()
    assert summary.evaluate("element => element === document.activeElement")
    assert client_of(store).get_object(Bucket="by-keyboard", Key="letter.txt")["Body"].read() == b"typed"
