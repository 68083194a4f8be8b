"""One browser for all tests of the console, and one server for each file of them."""

import shutil

import pytest
from playwright import sync_api as playwright

from console.profiles import Profile, expect
from harness.server import Server

# A name of another site that leads to this machine.
REBOUND = "rebound.example"
# Below it are names of the doors of a store, for certificates.
SITE = "cairn.example"
ARGUMENTS = ["--no-sandbox", f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1, MAP *.{SITE} 127.0.0.1"]


@pytest.fixture(scope="module")
def store():
    with Server(args=["--console", "127.0.0.1:0"]) as running:
        yield running


@pytest.fixture(scope="package")
def chromium():
    found = shutil.which("chromium")
    assert found, "chromium is not installed: run tests/install"
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def profile(chromium, store):
    profile = Profile(chromium, store)
    yield profile
    profile.close()


@pytest.fixture
def in_store(profile):
    """A profile that has logged in."""
    profile.log_in()
    expect(profile.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    return profile
