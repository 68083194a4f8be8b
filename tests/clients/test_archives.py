"""`?zip` of the HTTP door, read by programs that did not make it: Python's zipfile and unzip.

CAIRN_TEST_ARCHIVE_GIB is the size of the large archive (0.1 by default; beyond 4 it has zip64).
"""

import hashlib
import os
import shutil
import urllib.parse
import urllib.request
import zipfile

from harness.doors import Http
from harness.server import KEY, SECRET

MIB = 1 << 20
LARGE = int(float(os.environ.get("CAIRN_TEST_ARCHIVE_GIB", 0.1)) * 1024) * MIB
PART = 64 * MIB


def download(shell, server, path, target):
    url = server.http + urllib.parse.quote(path) + "?zip"
    shell("curl", "-sSf", "-u", f"{KEY}:{SECRET}", "-o", target, url)
    return zipfile.ZipFile(target)


def test_a_thousand_objects_with_any_names(server, shell, work):
    http, bucket = Http(server.http), "archive-names"
    http.create_bucket(bucket)
    sizes = [0, 1, 100, 20_000, 300_000]
    objects = {
        f"top/d{n % 10}/größe {n} & 100%.bin": hashlib.shake_256(b"%d" % n).digest(sizes[n % 5])
        for n in range(1000)
    }
    for key, data in objects.items():
        assert http.object("PUT", bucket, key, body=data).status == 201
    assert http.object("PUT", bucket, "topper", body=b"not below").status == 201
    archive = download(shell, server, f"/storage/{bucket}/top/", work / "top.zip")
    assert archive.testzip() is None
    assert sorted(archive.namelist()) == sorted(key.removeprefix("top/") for key in objects)
    for key, data in objects.items():
        assert archive.read(key.removeprefix("top/")) == data
    shell("unzip", "-tq", work / "top.zip")
    shell("unzip", "-q", work / "top.zip", "-d", work / "out")
    extracted = [path for path in (work / "out").rglob("*") if path.is_file()]
    assert len(extracted) == 1000


def test_names_that_would_leave_the_directory_do_not(server, shell, s3, work):
    bucket = "archive-hostile"
    s3.create_bucket(bucket)
    keys = ["../up", "a/../../up", "/etc/absolute", "a//b", "./c", "C:/d", "a\\..\\..\\e", "f\n"]
    for key in keys:
        assert s3.object("PUT", bucket, key, body=key.encode()).status == 200
    archive = download(shell, server, f"/storage/{bucket}/", work / "hostile.zip")
    names = archive.namelist()
    assert len(set(names)) == len(keys)
    for name in names:
        assert not name.startswith("/") and ".." not in name.split("/") and "\\" not in name
    assert sorted(archive.read(name).decode() for name in names) == sorted(keys)
    shell("unzip", "-q", work / "hostile.zip", "-d", work / "inside")
    assert not (work / "up").exists() and not (work.parent / "up").exists()
    assert sum(path.is_file() for path in (work / "inside").rglob("*")) == len(keys)


def test_objects_beyond_4_gib(server, shell, s3, work):
    """Made by copies of one part, which move no bytes."""
    bucket = "archive-large"
    s3.create_bucket(bucket)
    part = hashlib.shake_256(b"part").digest(PART)
    assert s3.object("PUT", bucket, "part", body=part).status == 200
    upload = s3.create_upload(bucket, "large/file")
    listed = ""
    for number in range(1, max(2, LARGE // PART) + 1):
        query = {"partNumber": str(number), "uploadId": upload}
        source = {"x-amz-copy-source": f"/{bucket}/part"}
        copied = s3.object("PUT", bucket, "large/file", query, headers=source)
        assert copied.status == 200, copied
        etag = next(one.text for one in copied.xml().iter() if one.tag.endswith("ETag"))
        listed += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    done = s3.object("POST", bucket, "large/file", {"uploadId": upload}, body)
    assert done.status == 200, done
    assert s3.object("PUT", bucket, "large/last", body=b"behind it").status == 200
    archive = download(shell, server, f"/storage/{bucket}/large/", work / "large.zip")
    assert archive.getinfo("file").file_size == number * PART
    assert archive.read("last") == b"behind it"
    assert archive.testzip() is None
    shell("unzip", "-tq", work / "large.zip")
    shutil.rmtree(work, ignore_errors=True)
