"""The console in Debian's Chromium: files are arranged and shared, people are managed, and pages of others get nothing."""

import io
import re
import zipfile
from pathlib import Path

import pytest

from console.conftest import REBOUND
from console.profiles import Profile, client_of, expect, fetch
from harness.server import KEY, SECRET
from harness.wait import eventually

BUCKETS = {"name": "Buckets", "exact": True}


def bucket_of(store, name, *keys):
    """Makes a bucket with objects whose contents are their keys."""
    client = client_of(store)
    client.create_bucket(Bucket=name)
    for key in keys:
        client.put_object(Bucket=name, Key=key, Body=key.encode(), ContentType="text/plain")
    return client


def keys_in(client, bucket):
    return [found["Key"] for found in client.list_objects_v2(Bucket=bucket).get("Contents", [])]


def share(page, place, fields=()):
    """Opens the form for a share link of what a page shows."""
    page.goto(place)
    page.get_by_role("link", name="Share…").click()
    for label, value in fields:
        page.get_by_label(label, exact=True).fill(value)


def address_of(page):
    page.get_by_role("button", name="Make link").click()
    expect(page.get_by_role("heading", name="The link is made")).to_be_visible()
    return page.get_by_label("Address").input_value()


def test_all_of_a_folder_is_selected_copied_and_deleted(in_store, store):
    profile, page = in_store, in_store.page
    client = bucket_of(store, "arrange", *[f"in/{number}.txt" for number in range(5)], "other.txt")
    page.goto("/b/arrange?in=in%2F")
    page.get_by_label("Select all of the folder").check()
    expect(page.get_by_label("Select 0.txt")).to_be_checked()
    page.get_by_role("button", name="Copy or move all…").click()
    page.get_by_label("Folder", exact=True).fill("copies")
    profile.picture("transfer")
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("heading", name="copies")).to_be_visible()
    assert len(keys_in(client, "arrange")) == 11
    page.get_by_label("Select all of the folder").check()
    page.get_by_role("button", name="Delete all…").click()
    expect(page.get_by_role("heading", name="Delete all files and folders in the folder copies/?")).to_be_visible()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("Nothing is here yet")).to_be_visible()
    assert len(keys_in(client, "arrange")) == 6
    # A file gets another name.
    page.goto("/b/arrange/object?key=other.txt")
    page.get_by_role("button", name="Copy, move or rename…").click()
    page.get_by_label("Name", exact=True).fill("renamed.txt")
    page.get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_role("link", name="renamed.txt")).to_be_visible()
    assert "other.txt" not in keys_in(client, "arrange")


def test_a_folder_is_downloaded_as_a_zip(in_store, store):
    page = in_store.page
    bucket_of(store, "zipped", "a/1.txt", "a/b/2.txt", "c.txt")
    page.goto("/b/zipped?in=a%2F")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as zip").click()
    archive = zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert sorted(archive.namelist()) == ["1.txt", "b/2.txt"]
    assert archive.read("b/2.txt") == b"a/b/2.txt"


def test_tags_and_visibility_are_changed(in_store, store):
    profile, page = in_store, in_store.page
    client = bucket_of(store, "tagged", "a.txt")
    page.goto("/b/tagged/object?key=a.txt")
    page.get_by_label("Name of tag 1").fill("colour")
    page.get_by_label("Value of tag 1").fill("green")
    page.get_by_role("button", name="Save tags").click()
    expect(page.get_by_text("Tag colour")).to_be_visible()
    tags = client.get_object_tagging(Bucket="tagged", Key="a.txt")["TagSet"]
    assert tags == [{"Key": "colour", "Value": "green"}]
    assert fetch(f"{store.s3}/tagged/a.txt").status == 403
    page.goto("/b/tagged/settings")
    profile.picture("settings")
    page.get_by_label("Visibility").select_option("public")
    page.get_by_role("button", name="Save settings").click()
    page.goto("/")
    expect(page.get_by_text("public")).to_be_visible()
    assert fetch(f"{store.s3}/tagged/a.txt").body == b"a.txt"


def test_a_link_with_a_password_is_opened_in_another_profile(in_store, chromium, store):
    profile, page = in_store, in_store.page
    bucket_of(store, "shared", "trip/one.txt", "trip/two.txt", "private.txt")
    share(page, "/b/shared?in=trip%2F", [("Password", "open sesame")])
    profile.picture("share")
    address = address_of(page)
    profile.picture("share-made")
    guest = Profile(chromium, store, http_credentials={"username": "any", "password": "open sesame"})
    guest.page.goto(address)
    guest.page.get_by_role("link", name="one.txt").click()
    guest.page.goto(address)
    assert "private.txt" not in guest.page.content()
    guest.close()
    assert fetch(address).status == 401
    assert fetch(address, password="wrong").status == 401
    # It is ended.
    page.goto("/shares")
    expect(page.get_by_text("password", exact=True)).to_be_visible()
    page.get_by_role("button", name="End the link to shared/trip/").click()
    page.get_by_role("button", name="End link").click()
    expect(page.get_by_role("button", name="End the link to shared/trip/")).to_have_count(0)
    assert fetch(address, password="open sesame").status == 404


def test_a_link_expires_and_counts_downloads(in_store, store):
    page = in_store.page
    bucket_of(store, "counted", "a.txt")
    place = "/b/counted/object?key=a.txt"
    share(page, place, [("Downloads, at most", "1")])
    address = address_of(page)
    assert [fetch(address).status for _ in range(2)] == [200, 404]
    share(page, place)
    page.locator("#expires option").first.evaluate("one => { one.value = 2; }")
    page.get_by_label("Valid for").select_option("2")
    address = address_of(page)
    eventually(lambda: fetch(address).status == 404, "the link has expired")


def test_a_link_for_uploads_takes_files_and_shows_nothing(in_store, chromium, store, tmp_path):
    page = in_store.page
    client = bucket_of(store, "inbox", "bob/secret.txt")
    share(page, "/b/inbox?in=bob%2F", [("Files, at most", "3")])
    page.get_by_label("only add files").check()
    address = address_of(page)
    guest = Profile(chromium, store)
    for text in ["first", "second"]:
        file = tmp_path / "report.txt"
        file.write_text(text)
        guest.page.goto(address)
        assert "secret" not in guest.page.content()
        guest.page.locator("input[type=file]").set_input_files(file)
        with guest.page.expect_navigation():
            guest.page.locator("button, input[type=submit]").first.click()
    guest.close()
    keys = keys_in(client, "inbox")
    assert len(keys) == 3 and "bob/report.txt" in keys, keys
    assert client.get_object(Bucket="inbox", Key="bob/report.txt")["Body"].read() == b"first"
    for place in ["secret.txt", "report.txt", "?zip", "?list"]:
        reply = fetch(address + place)
        assert b"first" not in reply.body and b"bob/secret" not in reply.body, (place, reply)
    assert fetch(address + "secret.txt", "PUT", b"replaced").status < 300
    assert client.get_object(Bucket="inbox", Key="bob/secret.txt")["Body"].read() == b"bob/secret.txt"
    assert fetch(address + "more.txt", "PUT", b"x").status == 413, "it takes three files"


def test_people_get_keys_and_rights(in_store, chromium, store):
    profile, page = in_store, in_store.page
    bucket_of(store, "team", "a.txt")
    page.get_by_role("link", name="People").click()
    page.get_by_label("Name", exact=True).fill("carol")
    page.get_by_role("button", name="Make user and access key").click()
    key = page.get_by_label("Access key", exact=True).input_value()
    secret = page.get_by_label("Secret key", exact=True).input_value()
    carol = Profile(chromium, store)
    carol.log_in(secret, key)
    expect(carol.page.get_by_role("heading", **BUCKETS)).to_be_visible()
    expect(carol.page.get_by_role("link", name="team")).to_have_count(0)
    expect(carol.page.get_by_role("link", name="People")).to_have_count(0)
    page.get_by_role("link", name="To the user").click()
    page.get_by_label("Bucket", exact=True).fill("team")
    page.get_by_role("button", name="Give rights").click()
    expect(page.get_by_role("link", name="team")).to_be_visible()
    profile.picture("person")
    carol.page.goto("/b/team")
    expect(carol.page.get_by_role("link", name="a.txt")).to_be_visible()
    # Carol makes a key of her own, which works at S3.
    carol.page.get_by_role("link", name="Keys").click()
    carol.page.get_by_role("button", name="Make access key").click()
    expect(carol.page.get_by_label("Secret key", exact=True)).to_have_value(re.compile("."))
    page.get_by_role("button", name="Disable…").click()
    page.get_by_role("button", name="Disable", exact=True).click()
    expect(page.get_by_role("button", name="Enable")).to_be_visible()
    carol.page.goto("/b/team")
    expect(carol.page.get_by_role("heading", name="Log in to Cairn")).to_be_visible()
    carol.close()


def press_to(page, target):
    """Presses Tab until something has the focus."""
    for _ in range(60):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError("the keyboard does not reach it")


def test_a_file_is_deleted_by_keyboard_alone(in_store, store):
    page = in_store.page
    client = bucket_of(store, "keyboard", "a.txt", "b.txt")
    page.reload()
    press_to(page, page.get_by_role("link", name="keyboard", exact=True))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="keyboard")).to_be_visible()
    press_to(page, page.get_by_label("Select a.txt"))
    page.keyboard.press("Space")
    press_to(page, page.get_by_role("button", name="Delete 1 selected…"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    press_to(page, page.get_by_role("button", name="Delete", exact=True))
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="a.txt")).to_have_count(0)
    assert keys_in(client, "keyboard") == ["b.txt"]


def test_links_and_keys_work_without_scripts(chromium, store):
    profile = Profile(chromium, store, java_script_enabled=False)
    profile.log_in()
    page = profile.page
    bucket_of(store, "scriptless", "a.txt", "b.txt")
    share(page, "/b/scriptless/object?key=a.txt")
    assert fetch(address_of(page)).body == b"a.txt"
    page.get_by_role("link", name="Keys").click()
    page.get_by_role("button", name="Make access key").click()
    assert len(page.get_by_label("Secret key", exact=True).input_value()) > 20
    page.goto("/b/scriptless")
    page.get_by_label("Select all of the bucket").check()
    page.get_by_role("button", name="Copy or move selected…").click()
    page.get_by_label("Folder", exact=True).fill("copies")
    page.get_by_role("button", name="Copy", exact=True).click()
    # A bucket cannot be copied into itself.
    expect(page.get_by_text("into itself")).to_be_visible()
    profile.close()


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
