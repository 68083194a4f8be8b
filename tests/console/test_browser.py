"""The console in Debian's Chromium: log in, files, a long listing, and uploads of many files.

`CAIRN_TEST_PICTURES=DIR` keeps pictures of the screens. `CAIRN_TEST_BROWSER_FILES`, `_ROWS` and `_TALL` say how
many files are uploaded at once, and how long two listings are.
"""

import io
import json
import os
import re
import urllib.parse
import wave

from console import screens
from console.profiles import Profile, bucket_of, client_of, expect
from harness.server import SECRET
from harness.wait import eventually

FILES = int(os.environ.get("CAIRN_TEST_BROWSER_FILES", "40"))
ROWS = int(os.environ.get("CAIRN_TEST_BROWSER_ROWS", "1500"))
TALL = int(os.environ.get("CAIRN_TEST_BROWSER_TALL", "310000"))
MEBIBYTE = 1 << 20


def heap_of(profile):
    """Bytes that scripts of a page use."""
    measure = profile.context.new_cdp_session(profile.page)
    measure.send("Performance.enable")
    metrics = {one["name"]: one["value"] for one in measure.send("Performance.getMetrics")["metrics"]}
    return metrics["JSHeapUsedSize"]


def test_one_logs_in_by_keyboard_and_out_everywhere(profile, chromium, store):
    page = profile.page
    profile.log_in("a wrong secret key")
    expect(page.get_by_role("alert")).to_contain_text("do not belong together")
    profile.picture("login-refused")
    # The focus is where the secret is typed again.
    page.keyboard.type(SECRET)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    other = Profile(chromium, store)
    other.log_in()
    expect(other.page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    page.locator(".top .menu summary").click()
    page.get_by_role("button", name="Log out everywhere").click()
    expect(page.get_by_role("heading", name="Log in to Cairn")).to_be_visible()
    other.page.goto("/")
    expect(other.page.get_by_role("heading", name="Log in to Cairn")).to_be_visible()
    other.close()


def test_a_folder_of_files_is_uploaded_shown_and_deleted(in_store, tmp_path, store):
    profile, page = in_store, in_store.page
    profile.make_bucket("folders")
    folder = tmp_path / "trip"
    for number in range(FILES):
        path = folder / f"day {number % 3}" / f"note {number:04}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    page.locator("cairn-drop input[webkitdirectory]").set_input_files(folder)
    # The queue goes on while one looks around.
    page.get_by_role("link", name="Cairn").click()
    expect(page.get_by_role("heading", name="Buckets", exact=True)).to_be_visible()
    expect(page.get_by_text(f"{FILES} files uploaded")).to_be_visible()
    page.get_by_role("link", name="folders", exact=True).click()
    page.get_by_role("link", name="trip/").click()
    expect(page.get_by_role("link", name="day 0/")).to_be_visible()
    profile.picture("folder")
    assert client_of(store).list_objects_v2(Bucket="folders")["KeyCount"] == FILES
    page.get_by_role("link", name="day 0/").click()
    page.get_by_role("link", name="note 0000.txt").click()
    expect(page.get_by_role("heading", name="note 0000.txt")).to_be_visible()
    expect(page.frame_locator("iframe").get_by_text("0")).to_be_visible()
    profile.picture("object")
    page.go_back()
    page.get_by_label("Select note 0000.txt").check()
    page.get_by_role("button", name="Delete 1 selected…").click()
    expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    profile.picture("delete")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("link", name="note 0003.txt")).to_be_visible()
    expect(page.get_by_role("link", name="note 0000.txt")).to_have_count(0)


def test_the_queue_shows_the_names_of_files_before_their_folders(in_store):
    page = in_store.page
    in_store.make_bucket("deep")
    folder, long = "a folder with a name/" * 8, "a recording of the meeting about " * 6 + "the bridge.wav"
    page.goto("/b/deep?in=" + urllib.parse.quote(folder, safe=""))
    files = [{"name": name, "mimeType": "audio/wav", "buffer": b"x"} for name in ("short.wav", long)]
    page.locator("cairn-drop input:not([webkitdirectory])").set_input_files(files)
    expect(page.get_by_text("2 files uploaded")).to_be_visible()
    in_store.picture("queue-names")
    panel = page.locator("cairn-uploads .panel").bounding_box()
    for name in ("short.wav", long):
        shown = page.locator(f".job-name[title={json.dumps('deep/' + folder + name)}]")
        expect(shown).to_have_text(name + folder)
        start, end, of = shown.locator("span").all()
        is_cut = "span => span.scrollWidth > span.clientWidth"
        assert start.evaluate(is_cut) == (name == long) and of.evaluate(is_cut)
        # The end of the name is seen, whatever gives way.
        box = end.bounding_box()
        assert name.endswith(end.inner_text()) and len(end.inner_text()) >= min(12, len(name))
        assert box["width"] > 0 and box["x"] + box["width"] <= panel["x"] + panel["width"], (box, panel)
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()


def test_a_file_that_exists_is_asked_about(in_store, tmp_path):
    profile, page = in_store, in_store.page
    profile.make_bucket("asked")
    file = tmp_path / "a.txt"
    for text, answer in [("first", None), ("second", "Keep"), ("third", "Replace")]:
        file.write_text(text)
        page.locator("cairn-drop input:not([webkitdirectory])").set_input_files(file)
        if answer:
            expect(page.get_by_text("1 file exists already.")).to_be_visible()
            profile.picture("exists")
            page.locator(".job-tools").first.get_by_role("button", name=answer).click()
        expect(page.locator("cairn-uploads h2")).to_contain_text("uploaded")
        page.get_by_role("button", name="Close").click()
    page.get_by_role("link", name="a.txt").click()
    expect(page.frame_locator("iframe").get_by_text("third")).to_be_visible()


def test_what_a_browser_adds_to_a_request_is_no_metadata(in_store, tmp_path, store):
    profile, page = in_store, in_store.page
    profile.make_bucket("metadata")
    file = tmp_path / "a.html"
    file.write_text("<script>document.title = 'owned'</script>")
    page.locator("cairn-drop input:not([webkitdirectory])").set_input_files(file)
    expect(page.get_by_text("1 file uploaded")).to_be_visible()
    kept = client_of(store).head_object(Bucket="metadata", Key="a.html")
    assert kept["ContentType"] == "text/html" and not kept.get("CacheControl"), kept
    # HTML is shown as text.
    page.get_by_role("link", name="a.html").click()
    expect(page.frame_locator("iframe").get_by_text("<script>")).to_be_visible()
    expect(page).to_have_title("a.html · Cairn")


# Half a second of a canvas, as a browser records it.
FILM = """async () => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
    const pen = canvas.getContext("2d");
    const drawn = setInterval(() => pen.fillRect(Math.random() * 64, 0, 9, 48), 20);
    const recorder = new MediaRecorder(canvas.captureStream(25), { mimeType: "video/webm" });
    const pieces = [];
    recorder.ondataavailable = (event) => pieces.push(event.data);
    recorder.start();
    await new Promise((done) => setTimeout(done, 500));
    await new Promise((done) => { recorder.onstop = done; recorder.stop(); });
    clearInterval(drawn);
    return [...new Uint8Array(await new Blob(pieces).arrayBuffer())];
}"""


def sound():
    """A tenth of a second of silence as a WAV."""
    out = io.BytesIO()
    with wave.open(out, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(2)
        made.setframerate(8000)
        made.writeframes(bytes(1600))
    return out.getvalue()


def document():
    """A PDF of one empty page."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>"]
    objects += [b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]>>"]
    text, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(text))
        text += b"%d 0 obj%sendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % len(text)
    return text + b"xref\n0 4\n0000000000 65535 f \n" + table + end


def test_images_sounds_films_and_documents_are_shown(in_store, store):
    page, client = in_store.page, bucket_of(store, "shown")
    bodies = {
        "a.png": ("image/png", screens.png(7, 5)),
        "a.wav": ("audio/wav", sound()),
        "a.webm": ("video/webm", bytes(page.evaluate(FILM))),
        "a.pdf": ("application/pdf", document()),
        "torn.png": ("image/png", b"no picture"),
    }
    for key, (content_type, body) in bodies.items():
        client.put_object(Bucket="shown", Key=key, Body=body, ContentType=content_type)

    def is_shown(key, kind, expression):
        page.goto(f"/b/shown/object?key={key}")
        shown = page.locator(f"figure.preview {kind}")
        expect(shown).to_be_visible()
        eventually(lambda: shown.evaluate(expression), f"{key} is shown")

    is_shown("a.png", "img", "one => one.complete && one.naturalWidth === 7 && one.naturalHeight === 5")
    is_shown("torn.png", "img", "one => one.complete && one.naturalWidth === 0")
    is_shown("a.wav", "audio", "one => one.readyState >= 2 && Math.abs(one.duration - 0.1) < 0.02")
    is_shown("a.webm", "video", "one => one.readyState >= 2 && one.videoWidth === 64 && one.videoHeight === 48")
    page.goto("/b/shown/object?key=a.pdf")
    assert page.locator("figure.preview").count() == 0
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Open in a new tab").click()
    pdf = opened.value
    pdf.wait_for_url(re.compile(re.escape(f"{store.s3}/shown/a.pdf?")))
    # The browser's viewer has it, and it was not saved as a file.
    eventually(lambda: pdf.evaluate("document.contentType") == "application/pdf", "the document is shown")


def scroll_to_the_end(page, grid, rows):
    """Scrolls until all rows have come, of which the page keeps few."""
    down = """async (grid, whole) => {
        const said = () => document.querySelector(".grid-foot span")?.textContent;
        while (said() !== whole) {
            grid.scrollTop = grid.scrollHeight;
            await new Promise((done) => setTimeout(done, 4));
        }
        grid.scrollTop = grid.scrollHeight;
    }"""
    grid.evaluate(down, f"{rows:,} entries")
    expect(grid.get_by_role("link", name=f"row {rows - 1:07}")).to_be_visible()
    assert page.locator(".grid-row").count() < 100


def test_a_long_folder_scrolls_with_few_rows(in_store, store):
    profile, page = in_store, in_store.page
    profile.make_bucket("long")
    screens.make_rows(store, "long", ROWS)
    page.goto("/b/long")
    grid = page.locator(".grid-scroll")
    expect(grid.get_by_role("link", name="row 0000000")).to_be_visible()
    profile.picture("long")
    scroll_to_the_end(page, grid, ROWS)
    assert heap_of(profile) < 200 * MEBIBYTE
    # By the arrows, from the first row that is seen.
    grid.evaluate("grid => { grid.scrollTop = 0; grid.focus(); }")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(grid.get_by_role("link", name="row 0000001")).to_be_focused()
    grid.get_by_label("Select row 0000001").check()
    page.get_by_role("button", name="Delete 1 selected…").click()
    expect(page.get_by_text("row 0000001")).to_be_visible()


# The rows are made up in the browser, so that there can be many, and soon.
MANY_ROWS = """
const all = %d;
window.asked = [];
window.slow = 0;
const fetched = window.fetch;
window.fetch = async (place, ...more) => {
    if (!String(place).startsWith("/b/long/rows?")) return fetched(place, ...more);
    const query = new URLSearchParams(String(place).split("?")[1]);
    const first = query.get("after") ? Number(query.get("after").split(" ")[1]) + 1 : 0;
    const last = Math.min(all, first + Number(query.get("rows")));
    window.asked.push(first);
    await new Promise((done) => setTimeout(done, window.slow));
    const name = (number) => `row ${String(number).padStart(7, "0")}`;
    const rows = Array.from({ length: last - first }, (_, at) => (
        { key: name(first + at), size: first + at, changed: "2026-01-01T00:00:00Z" }));
    const headers = { "x-cairn-console": "1" };
    return Response.json({ rows, next: last < all ? name(last - 1) : null }, { headers });
};
"""


def test_a_list_that_is_taller_than_a_browser_allows_scrolls_exactly(in_store):
    profile, page = in_store, in_store.page
    page.add_init_script(MANY_ROWS % TALL)
    page.goto("/b/long")
    grid = page.locator(".grid-scroll")
    scroll_to_the_end(page, grid, TALL)
    assert heap_of(profile) < 200 * MEBIBYTE

    def first_seen():
        seen = """grid => {
            const top = grid.getBoundingClientRect().top;
            const rows = [...grid.querySelectorAll(".grid-row:not([hidden])")];
            const seen = rows.filter((row) => row.getBoundingClientRect().top >= top - 1);
            return Math.min(...seen.map((row) => row.ariaRowIndex ?? row.getAttribute("aria-rowindex")));
        }"""
        return grid.evaluate(seen) - 1

    # In the middle, where rows were let go and are asked for again.
    count = page.evaluate("asked.length")
    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight / 2; }")
    eventually(lambda: abs(first_seen() - TALL // 2) < 50, "the scroll is drawn")
    before = first_seen()
    expect(grid.get_by_role("link", name=f"row {before:07}")).to_be_visible()
    assert page.evaluate("asked.length") > count
    grid.hover()
    page.mouse.wheel(0, 400)
    eventually(lambda: abs(first_seen() - before - 10) <= 1, "a turn of the wheel moves by ten rows")
    grid.focus()
    top = first_seen()
    for _ in range(30):
        page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.textContent")
    assert 29 <= int(focused.split()[1]) - top <= 31, (focused, top)
    # At the top, where rows were let go as well: the arrows do not wait for them.
    page.evaluate("window.slow = 300")
    grid.evaluate("grid => { grid.scrollTop = 0; grid.focus(); }")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(grid.get_by_role("link", name="row 0000001")).to_be_focused()
    profile.picture("tall")


def test_pages_work_without_scripts(chromium, store):
    profile = Profile(chromium, store, java_script_enabled=False)
    profile.log_in()
    profile.make_bucket("plain")
    page = profile.page
    page.get_by_text("New folder").click()
    page.get_by_label("Name of the folder").fill("one")
    page.get_by_role("button", name="Make folder").click()
    expect(page.get_by_role("heading", name="one")).to_be_visible()
    page.get_by_role("link", name="plain").click()
    page.get_by_label("Select one/").check()
    page.get_by_role("button", name="Delete selected…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("Nothing is here yet")).to_be_visible()
    profile.close()
