"""How long the death of a machine is felt through those that are left: by a write, by a read that
no cache answers, and by reads of what gateways have leased."""

import threading
import time

from cluster.load import BUCKET, LOST
from harness.wait import PATIENCE_SECONDS, eventually
from kill.model import content

COLD_OBJECTS = 30
# Inline in the metadata, and in a block.
COLD_SIZES = [12_000, 70_000]
ATTEMPT_SECONDS = 40
LEASED_KEY, LEASED_BYTES = "leased", 70_000
LEASED_PAUSE = 0.01
# Until a master follows another one it takes longer than that: so many reads at least go on.
LEASED_READS = 10


class Cold:
    """Objects that nobody has read: only the gateway that wrote one may have it in a cache."""

    def __init__(self, cluster):
        self.cluster, self.made, self.writers = cluster, 0, {}

    def fill(self):
        """Makes some more."""
        names = self.cluster.machines()
        doors = [self.cluster.s3(name, timeout=ATTEMPT_SECONDS) for name in names]
        for _ in range(COLD_OBJECTS):
            self.made += 1
            key, at = f"cold/{self.made}", self.made % len(names)
            reply = doors[at].object("PUT", BUCKET, key, body=self.body(key))
            assert reply.status == 200, reply
            self.writers[key] = names[at]

    def take(self, name):
        """One that this machine has not written; nobody takes it again."""
        key = next(key for key, writer in self.writers.items() if writer != name)
        del self.writers[key]
        return key

    @staticmethod
    def body(key):
        number = int(key.split("/")[1])
        return content("cold", number, COLD_SIZES[number % len(COLD_SIZES)])


class LeasedReads(threading.Thread):
    """Reads one key that nobody changes, one time after another, through one gateway."""

    body = content("leased", 1, LEASED_BYTES)

    def __init__(self, name, s3):
        super().__init__()
        self.gateway, self.s3 = name, s3
        self.answered, self.wrong, self.ended = [], [], threading.Event()

    def run(self):
        while not self.ended.wait(LEASED_PAUSE):
            try:
                reply = self.s3.object("GET", BUCKET, LEASED_KEY)
            except LOST:
                continue
            if reply.status == 404 or (reply.status == 200 and reply.body != self.body):
                self.wrong.append(f"LOST OR WRONG: {LEASED_KEY} by {self.gateway}: {reply}")
            elif reply.status == 200:
                self.answered.append(time.monotonic())

    def end(self):
        self.ended.set()
        self.join()

    def between(self, began, ended):
        return [moment for moment in self.answered if began < moment < ended]

    def pause(self, began, ended):
        """The longest time of these without an answer: after how long it began, and how long it
        was."""
        moments = [began, *self.between(began, ended), ended]
        longest, since = max((after - before, before) for before, after in zip(moments, moments[1:]))
        return since - began, longest


class Deaths:
    """Problems are noted in `wrong`. `pauses` are those of leased reads."""

    def __init__(self, cluster, wrong):
        self.cluster, self.wrong = cluster, wrong
        self.cold, self.probed = Cold(cluster), 0
        self.times, self.pauses = {"read": [], "write": []}, []

    def strike(self, name):
        """kill -9 of a machine; returns when it died, once all is measured."""
        self.cold.fill()
        left = [other for other in self.cluster.machines() if other != name]
        was_serving = self.cluster.serving().name == name
        readers = self.readers(left)
        try:
            self.cluster[name].kill()
            died = time.monotonic()
            wrote = self.probe_all(died, left)
        finally:
            for reader in readers:
                reader.end()
        for reader in readers:
            self.judge(reader, name, died, wrote if was_serving else None)
        return died

    def readers(self, left):
        """Threads whose gateways have leased and cached what they read."""
        door = self.cluster.s3(left[0], timeout=ATTEMPT_SECONDS)
        if door.object("HEAD", BUCKET, LEASED_KEY).status == 404:
            reply = door.object("PUT", BUCKET, LEASED_KEY, body=LeasedReads.body)
            assert reply.status == 200, reply
        doors = [(name, self.cluster.s3(name, timeout=ATTEMPT_SECONDS)) for name in left]
        readers = [LeasedReads(*one) for one in doors]
        for reader in readers:
            reader.start()
        for reader in readers:
            eventually(lambda reader=reader: len(reader.answered) > 2, f"reads by {reader.gateway}")
        return readers

    def judge(self, reader, name, died, wrote):
        """`wrote` is when the first write went on after the death of the master that served."""
        self.pauses.append(reader.pause(died, time.monotonic()))
        self.wrong += reader.wrong
        if wrote is not None and (count := len(reader.between(died, wrote))) < LEASED_READS:
            self.wrong.append(
                f"PAUSE: {count} leased reads by {reader.gateway} from the death of {name} until a "
                f"write went on, {wrote - died:.1f} s later"
            )

    def probe_all(self, died, left):
        """Measures, through each machine that is left, until when a write and an uncached read
        wait; returns when the first write was answered."""
        work = []
        for name in left:
            self.probed += 1
            work.append((self.write, name, f"probe/{self.probed}"))
            work.append((self.read, name, self.cold.take(name)))
        former = len(self.times["write"])
        threads = [threading.Thread(target=self.probe, args=(died, *one)) for one in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return died + min(self.times["write"][former:], default=PATIENCE_SECONDS)

    def probe(self, died, act, name, key):
        s3 = self.cluster.s3(name, timeout=ATTEMPT_SECONDS)
        while time.monotonic() - died < PATIENCE_SECONDS:
            try:
                if act(s3, key):
                    self.times[act.__name__].append(time.monotonic() - died)
                    return
            except LOST:
                pass
            time.sleep(0.1)
        self.wrong.append(f"NEVER: {act.__name__} {key} by {name} after the death of a machine")

    def write(self, s3, key):
        return s3.object("PUT", BUCKET, key, body=content("probe", key, 70_000)).status == 200

    def read(self, s3, key):
        reply = s3.object("GET", BUCKET, key)
        if reply.status == 404 or (reply.status == 200 and reply.body != self.cold.body(key)):
            self.wrong.append(f"LOST OR WRONG: {key}: {reply}")
            return True
        return reply.status == 200
