"""The console in Debian's Chromium: pages of others get nothing, and guessing is slow."""

import json
import time
from html import escape

import pytest

from console.conftest import REBOUND
from console.profiles import Profile, becomes_true, bucket_of, expect
from harness.doors import Connection
from harness.server import KEY, SECRET
from harness.wait import eventually

BUCKETS = {"name": "Buckets", "exact": True}


# Says of each way to a thing what came by it: in an attribute, as JSON.
ATTACK = """
const said = {}, [at, bucket] = ["%s", "%s"];
const show = () => document.documentElement.setAttribute("data-said", JSON.stringify(said));
const ask = (name, place, mode) => fetch(place, { credentials: "include", mode }).then(
  (reply) => reply.text().then((text) => { said[name] = reply.status + " " + text; show(); }),
  () => { said[name] = "refused"; show(); });
for (const [name, place] of Object.entries({ people: "/people", rows: "/b/" + bucket + "/rows?in=",
    preview: "/b/" + bucket + "/preview?key=victim.txt", download: "/b/" + bucket + "/download?key=victim.txt" })) {
  ask(name, at + place, "cors");
  ask(name + " by other means", at + place, "no-cors");
}
ask("plain", "/" + bucket + "/victim.txt", "cors");
ask("own", location.href, "cors");
"""
# The console leads to the door that this page is from.
FOLLOW = """
const place = at + "/b/" + bucket + "/preview?key=victim.txt";
const frame = document.createElement("iframe");
frame.src = place;
document.body.append(frame);
const opened = open(place);
const read = (of) => { try { return of().document.body.textContent; } catch (error) { return "refused"; } };
window.look = () => [read(() => frame.contentWindow), read(() => opened)];
"""


@pytest.mark.parametrize("kind", ["html", "svg"])
def test_scripts_of_an_object_do_not_read_the_console(in_store, store, kind):
    page, bucket = in_store.page, f"evil-{kind}"
    client = bucket_of(store, bucket, "victim.txt")
    script = ATTACK % (store.console, bucket)
    pages = {
        "html": ("text/html", f"<!doctype html><script>{script}</script>"),
        "svg": ("image/svg+xml", f'<svg xmlns="http://www.w3.org/2000/svg"><script>{escape(script)}</script></svg>'),
    }
    content_type, text = pages[kind]
    client.put_object(Bucket=bucket, Key="page", Body=text.encode(), ContentType=content_type)
    wanted = {"Bucket": bucket, "Key": "page", "ResponseContentDisposition": "inline"}
    # The worst case: the victim opens it as a page at the S3 door.
    page.goto(client.generate_presigned_url("get_object", wanted))
    ways = [name + more for name in ("people", "rows", "preview", "download") for more in ("", " by other means")]

    def outcomes():
        return json.loads(page.locator("[data-said]").get_attribute("data-said"))

    eventually(lambda: set(outcomes()) == {*ways, "plain", "own"}, lambda: str(outcomes()))
    said = outcomes()
    # It runs, in an origin of its own, which is given nothing of a reply, or an empty one.
    assert page.evaluate("origin") == "null"
    assert set(said.values()) <= {"refused", "0 "}, said
    # The console itself shows neither as a page.
    page.goto(f"/b/{bucket}/object?key=page")
    expect(page.get_by_role("heading", name="page")).to_be_visible()
    assert page.locator("html[data-said]").count() == 0
    in_store.complaints.clear()  # of the attack


def test_a_page_that_leads_to_the_bytes_cannot_read_them(in_store, store):
    page, client = in_store.page, bucket_of(store, "led", "victim.txt")
    text = f"<!doctype html><body><script>const [at, bucket] = ['{store.console}', 'led'];{FOLLOW}</script>"
    client.put_object(Bucket="led", Key="page", Body=text.encode(), ContentType="text/html")
    with page.expect_popup() as opened:
        page.goto(client.generate_presigned_url("get_object", {"Bucket": "led", "Key": "page"}))
    # Its window has the sandbox of the page, in which the console does not open.
    expect(opened.value.get_by_text("ERR_BLOCKED_BY_RESPONSE")).to_be_visible()
    assert page.evaluate("look()") == ["refused", "refused"]
    assert "victim" not in page.frames[1].content()
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


def page_of_another(page):
    """A page that the scripts of the console would take for one of its own, if they looked at nothing but the page."""
    styles = page.locator("link[rel=stylesheet]").evaluate("one => one.outerHTML")
    taken = "<h1>Taken over</h1>"
    return f"<!doctype html>{styles}<header class='top'></header><main>{taken}<div data-live='rows'>{taken}</div></main>"


def test_what_a_proxy_answers_is_no_page_of_the_console(in_store, store):
    page, client = in_store.page, bucket_of(store, "proxied", "a.txt")
    taken, said = page.get_by_role("heading", name="Taken over"), page.get_by_role("alert")
    text = page_of_another(page)

    def answer_scripts(status):
        def answer(route):
            if route.request.resource_type in ("fetch", "xhr"):
                route.fulfill(status=status, content_type="text/html", body=text)
            else:
                route.continue_()

        page.unroute_all()
        page.route("**/*", answer)

    page.goto("/")
    answer_scripts(502)
    page.get_by_role("link", name="proxied").click()
    expect(said).to_contain_text("Something else has answered")
    expect(page.get_by_role("heading", **BUCKETS)).to_be_visible()
    # The browser itself asks again, and gets the page.
    answer_scripts(200)
    page.get_by_role("link", name="proxied").click()
    expect(page.get_by_role("heading", name="proxied")).to_be_visible()
    client.put_object(Bucket="proxied", Key="b.txt", Body=b"")
    expect(said).to_contain_text("Something else has answered")
    expect(page.get_by_role("link", name="a.txt")).to_be_visible()
    assert taken.count() == 0
    page.unroute_all()
    client.put_object(Bucket="proxied", Key="c.txt", Body=b"")
    expect(page.get_by_role("link", name="c.txt")).to_be_visible()
    expect(said).to_have_count(0)


def test_rows_and_urls_of_a_proxy_are_not_taken(in_store, store, tmp_path):
    page, client = in_store.page, bucket_of(store, "proxied-rows")
    for number in range(201):
        client.put_object(Bucket="proxied-rows", Key=f"row {number:03}", Body=b"")
    page.route("**/rows?*", lambda route: route.fulfill(json={"rows": [{"key": "taken"}], "next": None}))
    page.goto("/b/proxied-rows")
    becomes_true(page, "document.querySelector('cairn-listing').fetching?.size === 0")
    expect(page.get_by_role("link", name="row 000")).to_be_visible()
    assert page.get_by_role("link", name="taken").count() == 0
    uploads = "**/b/proxied-rows/uploads"
    page.route(uploads, lambda route: route.fulfill(json={"urls": [store.console + "/taken"]}))
    file = tmp_path / "sent.txt"
    file.write_text("sent")
    page.locator("cairn-drop input:not([webkitdirectory])").set_input_files(file)
    expect(page.locator(".job-state").first).to_contain_text("Something else has answered")
    page.unroute(uploads)
    expect(page.get_by_text("1 file uploaded")).to_be_visible()


def test_bytes_of_an_object_are_not_taken_for_a_page(in_store, store):
    page, client = in_store.page, bucket_of(store, "bytes")
    text = page_of_another(page)
    client.put_object(Bucket="bytes", Key="page.html", Body=text.encode(), ContentType="text/html")
    page.goto("/b/bytes")
    lead = """place => {
        const link = Object.assign(document.createElement("a"), { href: place, textContent: "lead" });
        document.querySelector("main").append(link);
    }"""
    # A link that the scripts follow, to where the console leads to the S3 door.
    page.evaluate(lead, "/b/bytes/download?key=page.html")
    with page.expect_download():
        page.get_by_role("link", name="lead").click()
    assert page.get_by_role("heading", name="Taken over").count() == 0
    expect(page.get_by_role("heading", name="bytes")).to_be_visible()
