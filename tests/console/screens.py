"""Every screen of the console, over a sample of a store: for tests of all pages, pictures and measurements."""

import concurrent.futures
import itertools
import re
import struct
import threading
import zlib
from dataclasses import dataclass
from typing import Callable

from console.profiles import client_of, expect
from harness.doors import Http

BUCKET = "holidays"
LONG = "measurements"
EMPTY = "empty"
FOLDER = "2026%2Fcoast%2F"
KEY = "2026%2Fcoast%2Fdiary.txt"


def nothing(_):
    pass


@dataclass
class Screen:
    name: str
    place: str
    # Leads from the place to the screen: some screens are answers to forms.
    steps: Callable = nothing
    is_of_guests: bool = False


def press(button, **fields):
    """Fills fields by their labels and presses a button."""

    def steps(page):
        for label, value in fields.items():
            page.get_by_label(label.replace("_", " "), exact=True).fill(value)
        page.get_by_role("button", name=button, exact=True).click()

    return steps


def select_and_press(button):
    def steps(page):
        page.get_by_label("Select diary.txt").check()
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("this file")

    return steps


def open_menu(page):
    page.locator(".top .menu summary").click()


def share(page):
    press("Make link")(page)
    expect(page.get_by_role("heading", name="The link is made")).to_be_visible()


def log_in_wrongly(page):
    press("Log in", Access_key="NOBODY", Secret_key="wrong")(page)
    expect(page.get_by_role("alert")).to_be_visible()


def long_list(page):
    expect(page.locator(".grid-row a").first).to_be_visible()


TAKES = itertools.count(1)


def uploads(page):
    take = next(TAKES)
    files = [{"name": f"film {take}-{n}.bin", "mimeType": "video/mp4", "buffer": bytes(n << 20)} for n in (1, 2, 3)]
    page.locator("cairn-drop input:not([webkitdirectory])").set_input_files(files)
    expect(page.get_by_text("3 files uploaded")).to_be_visible()


SCREENS = [
    Screen("login", "/login", is_of_guests=True),
    Screen("login-refused", "/login", log_in_wrongly, is_of_guests=True),
    Screen("buckets", "/"),
    Screen("menu", "/", open_menu),
    Screen("folder", f"/b/{BUCKET}?in={FOLDER}"),
    Screen("bucket", f"/b/{BUCKET}"),
    Screen("empty", f"/b/{EMPTY}"),
    Screen("filtered", f"/b/{BUCKET}?filter=zzz"),
    Screen("long", f"/b/{LONG}", long_list),
    Screen("object", f"/b/{BUCKET}/object?key={KEY}"),
    Screen("metadata", f"/b/{BUCKET}/object?key={KEY}", lambda page: page.get_by_text("Change metadata").click()),
    Screen("picture", f"/b/{BUCKET}/object?key=2026%2Fcoast%2Fsea.png"),
    Screen("settings", f"/b/{BUCKET}/settings"),
    Screen("transfer", f"/b/{BUCKET}?in={FOLDER}", select_and_press("Copy or move 1 selected…")),
    Screen("delete", f"/b/{BUCKET}?in={FOLDER}", select_and_press("Delete 1 selected…")),
    Screen("share", f"/b/{BUCKET}/share?key={FOLDER}"),
    Screen("share-made", f"/b/{BUCKET}/share?key={KEY}", share),
    Screen("links", "/shares"),
    Screen("keys", "/keys"),
    Screen("people", "/people"),
    Screen("person", "/person?name=carol"),
    Screen("audit", "/audit"),
    Screen("disable", "/person?name=carol", press("Disable…")),
    Screen("not-found", "/b/there-is-none"),
    Screen("uploads", f"/b/{EMPTY}?in=films%2F", uploads),
]


def press_first(name):
    return lambda page: page.get_by_role("button", name=re.compile(name)).first.click()


def looked_up(page):
    page.get_by_role("button", name="List them now").click()
    expect(page.get_by_text(re.compile(r"\(UTC\): \d+ lost blocks"))).to_be_visible()


# Of a gateway: what the pages of a single server do not have.
OF_CLUSTER = [
    Screen("cluster-overview", "/store"),
    Screen("cluster-map", "/store/cluster"),
    Screen("cluster-scrub", "/store/scrub"),
    Screen("cluster-objects", "/store/scrub", looked_up),
    Screen("cluster-drain", "/store/cluster", press_first("^Drain node .*…")),
    Screen("cluster-remove", "/store/cluster", press_first("^Remove node .*…")),
]


def png(width, height):
    """A picture: the sky above the sea."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def row(y):
        blue = (170 + y // 4, 205, 235) if y < height // 2 else (20, 80 + y // 5, 120 + y // 6)
        return b"\0" + bytes(min(255, value) for value in blue) * width

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(row(y) for y in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


DIARY = """Monday. The train was late, and nobody minded.
Tuesday. Rain in the morning; we sorted the pictures of last year.
Wednesday. To the lighthouse on foot, eleven kilometres.
"""


def fill(store, rows=400):
    """Makes the sample: buckets with folders, texts, a picture, tags, a user and a long folder."""
    client = client_of(store)
    for bucket in (BUCKET, LONG, EMPTY):
        client.create_bucket(Bucket=bucket)

    def put(key, body, content_type):
        client.put_object(Bucket=BUCKET, Key=key, Body=body, ContentType=content_type, Metadata={"camera": "old"})

    put("2026/coast/diary.txt", DIARY.encode(), "text/plain; charset=utf-8")
    put("2026/coast/sea.png", png(640, 400), "image/png")
    for number in range(12):
        put(f"2026/coast/picture {number:02}.png", png(64 + number, 40), "image/png")
    for name in ("2025/mountains/route.json", "2026/coast/plans/packing.txt", "readme.md"):
        put(name, b"{}\n" * 40, "application/json")
    tags = {"TagSet": [{"Key": "project", "Value": "summer"}]}
    client.put_object_tagging(Bucket=BUCKET, Key="2026/coast/diary.txt", Tagging=tags)
    for number in range(rows):
        client.put_object(Bucket=LONG, Key=f"sensor {number:06}.csv", Body=b"1,2,3\n")
    return client


ROW_MAKERS = 32  # they wait for the disk, together


def make_rows(store, bucket, count, said=lambda made: None):
    """Makes empty objects `row 0000000` and so on, as fast as may be: there may be a million."""
    numbers, lock = iter(range(count)), threading.Lock()

    def work(_):
        http = Http(store.http)
        while True:
            with lock:
                some = list(itertools.islice(numbers, 100))
            if not some:
                return
            for number in some:
                reply = http.object("PUT", bucket, f"row {number:07}", b"")
                assert reply.status in (200, 201, 204), reply
            said(some[-1] + 1)

    with concurrent.futures.ThreadPoolExecutor(ROW_MAKERS) as pool:
        list(pool.map(work, range(ROW_MAKERS)))


def fill_for_documents(store):
    """Makes the sample of the pictures in documents: what somebody might keep."""
    client = client_of(store)
    for bucket in ("backups", "logs-root", "measurements", "music", "photos", "website"):
        client.create_bucket(Bucket=bucket)

    def put(bucket, key, kib, content_type="application/octet-stream"):
        client.put_object(Bucket=bucket, Key=key, Body=bytes(kib << 10), ContentType=content_type)

    for number, kib in enumerate([3120, 2875, 4410, 2230, 3705, 1990, 2640, 3350, 2915]):
        put("photos", f"2026/coast/img_{2041 + number}.jpg", kib, "image/jpeg")
    put("photos", "2026/coast/album/poster.tiff", 900, "image/tiff")
    put("photos", "2026/coast/waves.mp4", 18_400, "video/mp4")
    put("photos", "2026/lighthouse/img_2070.jpg", 2510, "image/jpeg")
    for key, body, content_type in [
        ("2026/coast/diary.txt", DIARY.encode(), "text/plain; charset=utf-8"),
        ("2026/coast/sea.png", png(960, 480), "image/png"),
    ]:
        client.put_object(Bucket="photos", Key=key, Body=body, ContentType=content_type, Metadata={"camera": "old"})
    tags = {"TagSet": [{"Key": "project", "Value": "summer"}]}
    client.put_object_tagging(Bucket="photos", Key="2026/coast/sea.png", Tagging=tags)
    put("website", "index.html", 4, "text/html")
    put("music", "live/1 prelude.flac", 9800, "audio/flac")
    return client


def make_person(page, name="carol"):
    """Makes a user by the console, if there is none of that name."""
    page.goto("/people")
    if page.get_by_role("link", name=name, exact=True).count():
        return
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Make user and access key").click()
    expect(page.get_by_label("Secret key", exact=True)).to_be_visible()


def places_of_parts(page):
    """The places of all parts of the console and of the pages of the store, as pages lead to them."""
    found = []
    for place, links in (("/", ".top nav a"), ("/store", ".tabs a")):
        page.goto(place)
        found += page.locator(links).evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    return list(dict.fromkeys(found))


def all_screens(page):
    """The screens above, and those of parts that are not among them."""
    known = {screen.place for screen in SCREENS}
    more = [place for place in places_of_parts(page) if place not in known]
    return SCREENS + [Screen(place.strip("/").replace("/", "-"), place) for place in more]


def show(page, screen):
    page.goto(screen.place)
    screen.steps(page)
