"""What a server has of records of logs, and what of it may not be."""

import json
import os
import threading
import time

from harness.doors import Http
from harness.server import ServerFailed

BUCKET = "logs-root"


def lines(server, bucket=BUCKET):
    """The lines of each source in the order of its days, each of them whole."""
    http, found = Http(server.http, cafile=server.cafile), {}
    for key in sorted(http.list(bucket)):
        body = http.object("GET", bucket, key).body
        assert body.endswith(b"\n"), f"{key} ends within a line"
        source = key.rsplit("/", 1)[0]
        # A line that is torn is no JSON.
        found.setdefault(source, []).extend(json.loads(line) for line in body.splitlines())
    return found


class Producer(threading.Thread):
    """Sends numbered records in batches until it is stopped, each batch until it is acknowledged.

    `send` takes a list of messages and raises if they were not acknowledged.
    """

    def __init__(self, name, send, size=7):
        super().__init__(daemon=True)
        self.name, self.send, self.size = name, send, size
        self.acknowledged, self.failures, self.stopping = [], 0, threading.Event()

    def run(self):
        number = 0
        while not self.stopping.is_set():
            batch = [f"{self.name} {n}" for n in range(number, number + self.size)]
            while True:
                try:
                    self.send(batch)
                    break
                except Exception:  # noqa: BLE001: whatever a client makes of a dead server
                    self.failures += 1
                    if self.stopping.is_set():
                        return
                    time.sleep(0.05)
            self.acknowledged += batch
            number += self.size

    def stop(self):
        self.stopping.set()
        self.join()


# More in the long form.
KILLS = int(os.environ.get("CAIRN_TEST_LOG_KILLS", "2"))


def run(server, producers, kills=KILLS, pause=0.7):
    """Lets them send while the server is killed and started again."""
    for producer in producers:
        producer.start()
    for _ in range(kills):
        time.sleep(pause)
        server.restart()
    time.sleep(pause)
    for producer in producers:
        producer.stop()
    if server.process.poll() is not None:
        raise ServerFailed(server.tail())


def check(producers, messages, is_once=False):
    """All that was acknowledged is there, in the order of its producer; once, or at least once."""
    stored = {}
    for message in messages:
        stored.setdefault(message.rsplit(" ", 1)[0], []).append(message)
    for producer in producers:
        own = stored.get(producer.name, [])
        assert producer.acknowledged, f"{producer.name}: nothing was acknowledged"
        lost = set(producer.acknowledged) - set(own)
        assert not lost, f"{producer.name}: {len(lost)} acknowledged records lost"
        first = list(dict.fromkeys(own))
        expected = sorted(first, key=lambda message: int(message.rsplit(" ", 1)[1]))
        assert first == expected, f"{producer.name}: out of order"
        if is_once:
            assert first == own, f"{producer.name}: {len(own) - len(first)} records twice"
