"""The console in Debian's Chromium: files are arranged and shared, and people are managed."""

import io
import os
import re
import zipfile
from pathlib import Path

from console.profiles import Profile, bucket_of, expect, fetch, press_to
from harness.server import Server
from harness.wait import eventually

BUCKETS = {"name": "Buckets", "exact": True}
FILES = int(os.environ.get("CAIRN_TEST_BROWSER_FILES", "40"))


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


def test_metadata_is_changed(in_store, store):
    profile, page = in_store, in_store.page
    client = bucket_of(store, "described", "page.txt")
    before = client.head_object(Bucket="described", Key="page.txt")
    page.goto("/b/described/object?key=page.txt")
    page.get_by_text("Change metadata").click()
    profile.picture("metadata")
    page.get_by_label("Content-Type", exact=True).fill("text/markdown; charset=utf-8")
    page.get_by_label("Name of metadata 1").fill("Author")
    page.get_by_label("Value of metadata 1").fill("Carol")
    page.get_by_role("button", name="Save metadata").click()
    expect(page.get_by_text("x-amz-meta-author")).to_be_visible()
    after = client.head_object(Bucket="described", Key="page.txt")
    assert after["ContentType"] == "text/markdown; charset=utf-8" and after["Metadata"] == {"author": "Carol"}
    assert after["ETag"] == before["ETag"]
    # Somebody else was faster.
    page.get_by_text("Change metadata").click()
    client.put_object(Bucket="described", Key="page.txt", Body=b"other", ContentType="text/html")
    page.get_by_role("button", name="Save metadata").click()
    expect(page.get_by_text("has changed since this form was made")).to_be_visible()
    assert client.head_object(Bucket="described", Key="page.txt")["ContentType"] == "text/html"


def test_the_audit_is_shown_by_user_action_and_outcome(chromium, tmp_path):
    with Server(args=["--console", "127.0.0.1:0", "--audit-bucket", "audit"]) as store:
        client = bucket_of(store, "watched", "a.txt")
        profile = Profile(chromium, store)
        profile.log_in("a wrong secret key")
        expect(profile.page.get_by_role("alert")).to_be_visible()
        profile.log_in()
        page = profile.page
        page.get_by_role("link", name="People").click()
        page.get_by_role("link", name="Audit").click()
        rows = page.locator("tbody tr")
        expect(rows.filter(has_text="PutObject")).to_contain_text("watched/a.txt")
        expect(rows.filter(has_text="refused").filter(has_text="LogIn")).to_have_count(1)
        profile.picture("audit")
        page.get_by_label("Outcome").select_option("refused")
        page.get_by_role("button", name="Show").click()
        expect(rows).to_have_count(1)
        page.get_by_label("Outcome").select_option("")
        page.get_by_label("User").fill("root")
        page.get_by_label("Action").fill("put")
        page.get_by_role("button", name="Show").click()
        expect(rows).to_have_count(1)
        # All records are in the bucket, too.
        eventually(lambda: "audit" in [one["Name"] for one in client.list_buckets()["Buckets"]], "the bucket")
        for number in range(150):
            client.put_object(Bucket="watched", Key=f"many {number:03}", Body=b"")

        def stored():
            keys = keys_in(client, "audit")
            return keys and b"many 149" in client.get_object(Bucket="audit", Key=keys[0])["Body"].read()

        eventually(stored, "the last record is in the bucket")
        page.reload()
        page.get_by_label("Records", exact=True).select_option(index=1)
        page.get_by_role("button", name="Show").click()
        expect(rows).to_have_count(100)
        page.get_by_role("link", name="Older records").click()
        expect(rows.filter(has_text="watched/a.txt")).to_have_count(1)
        expect(rows).to_have_count(51)
        profile.close()


def test_an_upload_by_drag_and_drop_takes_folders(in_store, store, tmp_path):
    page = in_store.page
    client = bucket_of(store, "dropped")
    names = ["photos/one.txt", "photos/inner/two.txt"]
    # In one folder, of which a browser tells some at a time.
    names += [f"photos/many/{number:04}.txt" for number in range(FILES)]
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    page.goto("/b/dropped")
    # As the browser's window gets it, with directories of the disk.
    drags = in_store.context.new_cdp_session(page)
    data = {"items": [], "files": [str(tmp_path / "photos")], "dragOperationsMask": 1}
    for kind in ["dragEnter", "dragOver", "drop"]:
        drags.send("Input.dispatchDragEvent", {"type": kind, "x": 400, "y": 400, "data": data})
        if kind == "dragOver":
            assert "drops" in page.evaluate("document.body.className")
    expect(page.get_by_text(f"{len(names)} files uploaded")).to_be_visible()
    assert keys_in(client, "dropped") == sorted(names)
    for name in [*names[:2], names[-1]]:
        assert client.get_object(Bucket="dropped", Key=name)["Body"].read() == name.encode()
    expect(page.get_by_role("link", name="photos/")).to_be_visible()


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
    expect(page.get_by_role("heading", name="Links", exact=True, level=1)).to_be_visible()
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
    # The page that asked shows neither.
    expect(page.get_by_role("link", name="b.txt")).to_be_visible()
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
