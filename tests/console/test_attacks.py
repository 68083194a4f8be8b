"""The console in Debian's Chromium: pages of others get nothing, and guessing is slow."""

import time

import pytest

from console.conftest import REBOUND
from console.profiles import Profile, bucket_of, expect
from harness.doors import Connection
from harness.server import KEY, SECRET

BUCKETS = {"name": "Buckets", "exact": True}


ATTACK = """
const [at, tell] = ["%s", (word) => { document.documentElement.setAttribute("data-said", word); }];
fetch(at + "/people", { credentials: "include" }).then((reply) => reply.text()).then(
  (text) => tell("read " + text.length), () => tell("refused"));
"""


@pytest.mark.parametrize("kind", ["html", "svg"])
def test_scripts_of_an_object_do_not_read_the_console(in_store, store, kind):
    page = in_store.page
    client = bucket_of(store, f"evil-{kind}", "victim.txt")
    script = f"<script>{ATTACK % store.console}</script>"
    pages = {
        "html": ("text/html", f"<!doctype html>{script}"),
        "svg": ("image/svg+xml", f'<svg xmlns="http://www.w3.org/2000/svg">{script.replace("=>", "=&gt;")}</svg>'),
    }
    content_type, text = pages[kind]
    client.put_object(Bucket=f"evil-{kind}", Key="page", Body=text.encode(), ContentType=content_type)
    wanted = {"Bucket": f"evil-{kind}", "Key": "page", "ResponseContentDisposition": "inline"}
    # The worst case: the victim opens it as a page at the S3 door.
    page.goto(client.generate_presigned_url("get_object", wanted))
    said = page.locator("[data-said]")
    if said.count() or kind == "html":
        expect(said).to_have_attribute("data-said", "refused")
    # The console itself shows neither as a page.
    page.goto(f"/b/evil-{kind}/object?key=page")
    expect(page.get_by_role("heading", name="page")).to_be_visible()
    assert page.locator("html[data-said]").count() == 0
    in_store.complaints.clear()  # of the attack


def test_pages_of_other_origins_can_neither_frame_nor_change(in_store, store):
    page = in_store.page
    client = bucket_of(store, "foreign")
    text = f"""<!doctype html><iframe src="{store.console}/"></iframe>
        <form method="post" action="{store.console}/buckets"><input name="name" value="forged"></form>"""
    client.put_object(Bucket="foreign", Key="page", Body=text.encode(), ContentType="text/html")
    address = client.generate_presigned_url("get_object", {"Bucket": "foreign", "Key": "page"})
    page.goto(address)
    frame = page.frames[1]
    assert "Log out" not in frame.content() and "foreign" not in frame.content()
    with page.expect_navigation() as sent:
        page.locator("form").evaluate("form => form.submit()")
    assert sent.value.status == 403
    assert "forged" not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
    in_store.complaints.clear()  # of the attack


def test_a_login_is_a_new_one_and_leads_nowhere_else(profile, chromium, store):
    page = profile.page
    fixed = {"name": f"cairn-{store.console.rsplit(':', 1)[1]}", "value": f"1.{'A' * 43}", "url": store.console}
    profile.context.add_cookies([fixed])
    profile.log_in()
    expect(page.get_by_role("heading", **BUCKETS)).to_be_visible()
    cookies = [cookie for cookie in profile.context.cookies() if cookie["name"] == fixed["name"]]
    assert len(cookies) == 1 and cookies[0]["value"] != fixed["value"] and cookies[0]["httpOnly"]
    thief = Profile(chromium, store)
    thief.context.add_cookies([fixed])
    thief.page.goto("/")
    expect(thief.page.get_by_role("heading", name="Log in to Cairn")).to_be_visible()
    thief.close()


def test_guessing_is_slow_and_locks_nobody_out(store):
    def log_in(secret, key=KEY):
        began = time.monotonic()
        form = f"key={key}&secret={secret}"
        headers = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
        reply = Connection(store.console).send("POST", "/login", headers, form)
        return reply.status, time.monotonic() - began

    for _ in range(5):
        assert log_in("a-guess", "SOMEBODY")[0] == 401
    status, seconds = log_in("a-guess", "SOMEBODY")
    assert status == 401 and seconds >= 1, seconds
    # Another account from this network, and the right secret.
    assert log_in("a-guess", "ANOTHER")[1] >= 1
    status, seconds = log_in(SECRET)
    assert status == 303 and seconds < 1, seconds


def test_a_login_leads_to_the_console_alone(profile, store):
    page = profile.page
    for place in ["//evil.example/", "https://evil.example/", "/\\evil.example/"]:
        page.context.clear_cookies()
        page.goto(f"/login?to={place}")
        page.get_by_label("Access key").fill(KEY)
        page.get_by_label("Secret key").fill(SECRET)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", **BUCKETS)).to_be_visible()
        assert page.url.startswith(store.console + "/"), page.url


def test_another_name_of_this_machine_is_no_console(in_store, store):
    port = store.console.rsplit(":", 1)[1]
    reply = in_store.page.goto(f"http://{REBOUND}:{port}/")
    assert reply.status == 421
    assert "Log in" not in in_store.page.content()
    in_store.complaints.clear()  # not even its style is loaded
