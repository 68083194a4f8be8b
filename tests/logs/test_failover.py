"""Records that were acknowledged once are there once, whole and in order, whatever is killed: the
server, or a master and a gateway of a cluster. Followers see each of them once, too.

The long form kills a server 50 times (`CAIRN_TEST_LOG_KILLS`), and 25 masters and gateways
(`CAIRN_TEST_LOG_FAILOVERS`).
"""

import http.client
import itertools
import json
import os
import threading
import time
import urllib.parse

from harness.cluster import Cluster
from harness.doors import Http
from harness.server import Server
from harness.wait import eventually

from logs import sink

KILLS = int(os.environ.get("CAIRN_TEST_LOG_KILLS", "4"))
FAILOVERS = int(os.environ.get("CAIRN_TEST_LOG_FAILOVERS", "2"))
DAY_SECONDS = 24 * 3600


def appended(client, messages, key):
    body = "".join(json.dumps({"message": text}) + "\n" for text in messages)
    path = f"/storage/{sink.BUCKET}/{key}/2000-01-01.jsonl?append"
    return client.request("POST", path, body.encode(), {"Idempotency-Key": messages[0]})


def bulk(client, messages, key):
    body = "".join(
        json.dumps({"create": {}}) + "\n" + json.dumps({"message": text}) + "\n" for text in messages
    )
    reply = client.request("POST", f"/{key}/_bulk", body.encode(), {"Idempotency-Key": messages[0]})
    assert reply.status != 200 or not reply.json()["errors"], reply
    return reply


def loki(client, messages, key):
    values = [["1700000000000000000", text] for text in messages]
    body = {"streams": [{"stream": {"job": key}, "values": values}]}
    headers = {"Idempotency-Key": messages[0], "Content-Type": "application/json"}
    return client.request("POST", "/loki/api/v1/push", json.dumps(body).encode(), headers)


def producer(name, way, urls, source):
    """One that goes to the next gateway when the one that it has does not answer."""
    turn = itertools.cycle(urls)
    clients = {url: Http(url, timeout=20) for url in urls}
    current = [next(turn)]

    def send(messages):
        try:
            reply = way(clients[current[0]], messages, source)
            assert reply.status in (200, 204), reply
        except BaseException:
            current[0] = next(turn)
            raise

    return sink.Producer(name, send)


def message(line):
    return line.get("message") or line.get("line") or line["event"]["message"]


class Follower(threading.Thread):
    """Follows a source from its first line on, and goes on elsewhere when its stream ends."""

    def __init__(self, urls, source, day):
        super().__init__(daemon=True)
        self.urls, self.source = itertools.cycle(urls), source
        self.place, self.messages, self.streams = f"{day}:0", [], 0
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            try:
                self.follow(urllib.parse.urlsplit(next(self.urls)))
            except (OSError, http.client.HTTPException, AssertionError):
                time.sleep(0.1)

    def follow(self, url):
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
        headers = {**Http(url.geturl()).auth, "Accept": "text/event-stream"}
        path = f"/storage/{sink.BUCKET}/{self.source}/?follow&offset={self.place}"
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        assert reply.status == 200, reply.status
        self.streams += 1
        event = {}
        while line := reply.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
                continue
            # An event counts when all of it has come.
            assert event.get("event") != "end", event
            if "data" in event:
                self.messages.append(message(json.loads(event["data"])))
            self.place = event.get("id", self.place)
            event = {}

    def stop(self):
        """It may wait for the next line until the process ends."""
        self.stopping.set()


def check(producers, found, followers):
    for source in ("appended", "bulk", "loki"):
        own = [one for one in producers if one.name.startswith(source)]
        sink.check(own, [message(line) for line in found[source]], is_once=True)
    for follower in followers:
        stored = [message(line) for line in found[follower.source]]
        eventually(lambda: len(follower.messages) >= len(stored), "all of it is followed")  # noqa: B023
        follower.stop()
        assert follower.messages == stored, f"{follower.source}: a gap, or a line twice"


def producers_of(urls):
    ways = {"appended": appended, "bulk": bulk, "loki": loki}
    return [producer(f"{name} {n}", way, urls, name) for name, way in ways.items() for n in range(2)]


def start(producers, urls, day):
    reply = Http(urls[0]).request("PUT", f"/storage/{sink.BUCKET}?visibility=private")
    assert reply.status == 201, reply
    followers = [Follower(urls, "bulk", day), Follower(urls[::-1], "loki", day)]
    for thread in [*producers, *followers]:
        thread.start()
    return followers


def day(number):
    """The day by which files are named, so many days from now."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() + number * DAY_SECONDS))


class Night:
    """A source that goes over to the file of the next day, as by gateways whose clocks are ahead."""

    def __init__(self, number, urls):
        self.source, self.days, self.chosen = f"night{number}", [day(0), day(1)], {}
        self.producers = [producer(f"{self.source} {n}", self.append, urls, self.source) for n in range(2)]
        self.follower = Follower(urls, self.source, self.days[0])
        for thread in [*self.producers, self.follower]:
            thread.start()

    def append(self, client, messages, source):
        # One that is sent again is the same request, although the day has ended.
        chosen = self.chosen.setdefault(messages[0], self.days[0])
        body = "".join(json.dumps({"message": text}) + "\n" for text in messages)
        path = f"/storage/{sink.BUCKET}/{source}/{chosen}.jsonl?append"
        return client.request("POST", path, body.encode(), {"Idempotency-Key": messages[0]})

    def fall(self):
        self.days.reverse()

    def end(self):
        for one in self.producers:
            one.stop()
        assert len(set(self.chosen.values())) == 2, "records of both days were sent"

    def check(self, http, found):
        sink.check(self.producers, [message(line) for line in found[self.source]], is_once=True)
        seen = self.follower.messages
        eventually(lambda: len(seen) >= len(found[self.source]), "all of it is followed")
        self.follower.stop()
        assert len(seen) == len(found[self.source]), f"{self.source}: a line twice"
        for name in self.days:
            body = http.object("GET", sink.BUCKET, f"{self.source}/{name}.jsonl").body
            stored = [message(json.loads(line)) for line in body.splitlines()]
            own = set(stored)
            assert [text for text in seen if text in own] == stored, f"{self.source}: a gap on {name}"


def test_a_server_that_is_killed_keeps_each_record_once():
    with Server() as server:
        producers = producers_of([server.http])
        followers = start(producers, [server.http], day(0))
        for _ in range(KILLS):
            time.sleep(0.6)
            server.restart()
        time.sleep(0.6)
        for one in producers:
            one.stop()
        assert server.process.poll() is None, server.tail()
        found = sink.lines(server)
        check(producers, found, followers)
        records = sum(len(one.acknowledged) for one in producers)
        print(f"{KILLS} kills, {records} records acknowledged, none lost, torn or twice")
        server.kill()
        code, output = server.fsck()
        assert code == 0, output


def test_masters_and_gateways_that_are_killed_keep_each_record_once():
    with Cluster(masters=2, gateways=2, postgres=True) as cluster:
        gateways = [cluster.nodes[name] for name in ("g1", "g2")]
        urls = [node.http for node in gateways]
        producers = producers_of(urls)
        followers = start(producers, urls, day(0))
        nights = []
        for number in range(FAILOVERS):
            nights.append(Night(number, urls))
            time.sleep(1)
            node = cluster.serving() if number % 2 == 0 else gateways[number // 2 % 2]
            node.kill()
            nights[-1].fall()
            before = [len(one.acknowledged) for one in producers]
            # Others take over before it is back.
            eventually(
                lambda: sum(len(one.acknowledged) for one in producers) > sum(before),  # noqa: B023
                "records are taken while it is away",
            )
            node.start()
            if node in gateways:
                node.wait_ready()
            eventually(lambda: day(1) in nights[-1].follower.place, "the next day is followed")  # noqa: B023
            nights[-1].end()
        time.sleep(1)
        for one in producers:
            one.stop()
        found = sink.lines(gateways[1])
        check(producers, found, followers)
        for night in nights:
            night.check(Http(urls[1]), found)
        records = sum(len(one.acknowledged) for one in [*producers, *(p for n in nights for p in n.producers)])
        print(f"{FAILOVERS} fail-overs and nights, {records} records acknowledged, none lost, torn or twice")
