"""The metadata in PostgreSQL, which is killed; and directories that meet the wrong database."""

import hashlib
import threading
import time

import pytest

from harness.doors import S3
from harness.postgres import PASSWORD, Postgres
from harness.server import Server, ServerFailed
from harness.wait import eventually


@pytest.fixture
def database():
    with Postgres() as running:
        yield running


def content(number):
    # Some in the metadata, some in blocks.
    return hashlib.shake_256(str(number).encode()).digest(100 if number % 3 else 50_000)


class Writer(threading.Thread):
    """Puts one object after another and notes which were acknowledged."""

    def __init__(self, server, first):
        super().__init__()
        self.s3, self.first = S3(server.s3), first
        self.acked, self.ended = [], threading.Event()

    def run(self):
        number = self.first
        while not self.ended.is_set():
            try:
                if self.s3.object("PUT", "bucket", f"{number}", body=content(number)).status == 200:
                    self.acked.append(number)
            except OSError:
                pass
            number += 1


def test_a_database_killed_under_load_loses_nothing(database):
    with Server(env={"CAIRN_META": database.url}) as server:
        S3(server.s3).create_bucket("bucket")
        writers = [Writer(server, index * 1_000_000) for index in range(8)]
        for writer in writers:
            writer.start()
        count = lambda: sum(len(writer.acked) for writer in writers)  # noqa: E731
        for pause in (1, 0.3, 0.7):
            before = count()
            time.sleep(pause)
            eventually(lambda before=before: count() > before + 30, "writes go on")
            database.kill()
            database.start()
        eventually(lambda: count() > 150, "writes go on")
        for writer in writers:
            writer.ended.set()
        for writer in writers:
            writer.join()
        assert server.process.poll() is None, server.tail()
        acked = [number for writer in writers for number in writer.acked]
        # Another process, other caches.
        server.restart()
        s3 = S3(server.s3)
        for number in acked:
            assert s3.object("GET", "bucket", f"{number}").body == content(number), number
        assert server.stop() == 0
        code, text = server.fsck()
        assert code == 0, text
        assert PASSWORD not in server.tail(1 << 30)


def refused(server):
    with pytest.raises(ServerFailed) as failure:
        server.start()
    text = str(failure.value)
    assert PASSWORD not in text
    return text


def test_a_directory_and_its_database_belong_together(database):
    with Server(env={"CAIRN_META": database.url}) as server:
        S3(server.s3).create_bucket("bucket")
        assert S3(server.s3).object("PUT", "bucket", "a", body=b"x" * 100_000).status == 200
        assert server.stop() == 0
        with_url = dict(server.env)
        del server.env["CAIRN_META"]
        assert "its metadata are in a PostgreSQL database" in refused(server)
        assert "its metadata are in a PostgreSQL database" in server.fsck()[1]
        server.env = with_url
        server.args = ["--meta-schema", "other"]
        assert "has no metadata, but the directory has blocks" in refused(server)
        server.args = []
        # A second directory on the same database: refused, and the first goes on.
        server.start()
        with pytest.raises(ServerFailed, match="metadata of another store"):
            Server(env={"CAIRN_META": database.url}).start()
        assert S3(server.s3).object("GET", "bucket", "a").status == 200
        assert S3(server.s3).object("PUT", "bucket", "b", body=b"x").status == 200
        assert server.stop() == 0
    with Server() as server:
        assert server.stop() == 0
        server.env["CAIRN_META"] = database.url
        assert "leave out --meta and CAIRN_META" in refused(server)
