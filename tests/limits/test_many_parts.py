"""The largest number of parts: 10,000, made by copying, so that no bytes are moved."""

import html
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness.doors import S3, Http
from harness.server import SMALL_CACHES, Server
from kill.model import content

MIB = 1 << 20
PART = 5 * MIB
PARTS = 10_000


def test_an_object_of_ten_thousand_parts(capsys):
    data = content("source", 1, PART)
    with Server(args=SMALL_CACHES) as server:
        s3, http, local = S3(server.s3), Http(server.http), threading.local()
        s3.create_bucket("parts")
        assert s3.object("PUT", "parts", "source", body=data).status == 200
        upload = s3.create_upload("parts", "whole")

        def copy(number):
            if not hasattr(local, "s3"):
                local.s3 = S3(server.s3)
            query = {"partNumber": str(number), "uploadId": upload}
            headers = {"x-amz-copy-source": "/parts/source"}
            reply = local.s3.object("PUT", "parts", "whole", query, headers=headers)
            assert reply.status == 200, reply
            return html.unescape(re.search(r"<ETag>(.*?)</ETag>", reply.body.decode())[1])

        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            etags = list(pool.map(copy, range(1, PARTS + 1)))
        copied = time.monotonic()
        reply = s3.complete_upload("parts", "whole", upload, etags)
        assert reply.status == 200 and b"<Error>" not in reply.body, reply
        completed = time.monotonic()

        def check():
            head = http.object("HEAD", "parts", "whole")
            assert int(head.headers["Content-Length"]) == PARTS * PART
            rng = random.Random(1)
            for _ in range(50):
                at = rng.randrange(PARTS * PART - 3 * PART)
                size = rng.choice([1, 5000, PART, 2 * PART + 17])
                got = rng.choice((http, s3)).object(
                    "GET", "parts", "whole", headers={"Range": f"bytes={at}-{at + size - 1}"}
                )
                start = at % PART
                assert got.status == 206 and got.body == (data * 4)[start : start + size]
            part = s3.object("GET", "parts", "whole", {"partNumber": str(PARTS)})
            assert part.status == 206 and part.body == data

        assert s3.object("DELETE", "parts", "source").status == 204
        check()
        server.restart()
        restarted = server.start_seconds
        s3, http = S3(server.s3), Http(server.http)
        check()
        rss = server.rss_bytes()
        began_delete = time.monotonic()
        assert s3.object("DELETE", "parts", "whole").status == 204
        deleted = time.monotonic() - began_delete
        assert http.list("parts") == {}
        server.kill()
        code, text = server.fsck()
        assert code == 0, text
    with capsys.disabled():
        print(
            f"\n{PARTS} parts ({PARTS * PART // MIB} MiB): copied in {copied - began:.1f} s, "
            f"completed in {completed - copied:.2f} s, restart {restarted:.2f} s, "
            f"deleted in {deleted:.2f} s, RSS {rss / MIB:.0f} MiB"
        )
    assert rss < 256 * MIB
