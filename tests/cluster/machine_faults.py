"""What befalls machines, one fault at a time; as in `faults.py`."""

import shutil
import threading
import time

from cluster.faults import CHUNKSERVER_AWAY, CUT, DISK, LOSSY, PAST_LEASE, WIPED
from cluster.load import BUCKET, LOST
from harness.machines import ROLES
from harness.wait import PATIENCE_SECONDS
from kill.model import content

COLD_OBJECTS = 30
# Inline in the metadata, and in a block.
COLD_SIZES = [12_000, 70_000]
ATTEMPT_SECONDS = 40

# While such a fault lasts these may wait; they must go on in time once it has ended.
HURTS = {
    "lossy_machine": {"read", "write"},
    "full_disk": {"write"},
    "full_machine": {"write"},
    "slow_machine": {"read", "write"},
    "stuck_disk": {"write"},
    "stuck_machine": {"read", "write"},
}
# Deaths come more often: how long they are felt is measured.
PLAIN = [
    "kill_serving_machine", "kill_serving_machine", "kill_machine", "kill_machine",
    "pause_machine", "cut_machine", "cut_serving_machine", "cut_pair", "cut_one_way",
    "lossy_machine", "wipe_disk", "replace_machine",
]  # fmt: skip
OF_ROLES = ["kill_serving_master", *(f"{what}_{role}" for what in ("kill", "pause") for role in ROLES)]
OF_DISKS = ["full_disk", "slow_disk", "stuck_disk"]
OF_MACHINES = ["full_machine", "slow_machine", "stuck_machine"]


# What goes on after a death, which is measured.
FELT = {
    "read": "an uncached read after the death of a machine",
    "write": "a write after the death of a machine",
    "master-read": "an uncached read after the death of the master that serves",
    "master-write": "a write after the death of the master that serves",
}


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


class MachineFaults:
    """`small` is the disk of n1's chunkserver, `whole` that of all of n2, where they have some."""

    def __init__(self, cluster, rng, small=None, whole=None):
        self.cluster, self.rng, self.small, self.whole = cluster, rng, small, whole
        self.cold, self.probed, self.wrong = Cold(cluster), 0, []
        self.deaths = {kind: [] for kind in FELT}
        self.replaced = lambda: None  # called after another machine has taken the place of one

    def names(self):
        found = list(PLAIN)
        found += OF_ROLES if self.cluster.apart else []
        # A machine that was replaced took its disk with it.
        found += OF_DISKS if self.small and "n1" in self.cluster.nodes else []
        return found + (OF_MACHINES if self.whole and "n2" in self.cluster.nodes else [])

    def machine(self):
        return self.rng.choice(self.cluster.machines())

    def serving(self):
        return self.cluster.serving().name

    def others(self, name):
        return [other for other in self.cluster.machines() if other != name]

    # Deaths, and how long they are felt.

    def _kill(self, name, *roles):
        """All of a machine, or these roles of it."""
        self.cold.fill()
        self.cluster[name].kill(*roles)
        died = time.monotonic()
        self.felt(died, self.others(name), "".join(f"{role}-" for role in roles))
        yield name, max(0.0, died + CHUNKSERVER_AWAY - time.monotonic())
        self.cluster[name].start()

    def kill_machine(self):
        return self._kill(self.machine())

    def kill_serving_machine(self):
        return self._kill(self.serving())

    def kill_serving_master(self):
        return self._kill(self.serving(), "master")

    def felt(self, died, left, of):
        """Measures, through each machine that is left, until when a write and an uncached read wait."""
        work = []
        for name in left:
            self.probed += 1
            work.append((f"{of}write", self.write, name, f"probe/{self.probed}"))
            work.append((f"{of}read", self.read, name, self.cold.take(name)))
        threads = [threading.Thread(target=self.probe, args=(died, *one)) for one in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def probe(self, died, kind, act, name, key):
        s3 = self.cluster.s3(name, timeout=ATTEMPT_SECONDS)
        while time.monotonic() - died < PATIENCE_SECONDS:
            try:
                if act(s3, key):
                    self.deaths[kind].append(time.monotonic() - died)
                    return
            except LOST:
                pass
            time.sleep(0.1)
        self.wrong.append(f"NEVER: {FELT[kind]}: {key} by {name}")

    def write(self, s3, key):
        return s3.object("PUT", BUCKET, key, body=content("probe", key, 70_000)).status == 200

    def read(self, s3, key):
        reply = s3.object("GET", BUCKET, key)
        if reply.status == 404 or (reply.status == 200 and reply.body != self.cold.body(key)):
            self.wrong.append(f"LOST OR WRONG: {key}: {reply}")
            return True
        return reply.status == 200

    # Silence.

    def _pause(self, name, *roles):
        self.cluster[name].pause(*roles)
        yield " ".join([name, *roles]), PAST_LEASE
        self.cluster[name].resume()

    def pause_machine(self):
        return self._pause(self.machine())

    def _cut(self, name):
        self.cluster.network.cut(name)
        yield name, CUT
        self.cluster.network.heal()

    def cut_machine(self):
        return self._cut(self.machine())

    def cut_serving_machine(self):
        return self._cut(self.serving())

    def cut_pair(self):
        """Two machines do not reach each other; the third one reaches both."""
        one, other = self.rng.sample(self.cluster.machines(), 2)
        self.cluster.network.halves([one], [other])
        yield f"{one} and {other}", CUT
        self.cluster.network.heal()

    def cut_one_way(self):
        source, target = self.rng.sample(self.cluster.machines(), 2)
        self.cluster.network.cut_one_way(source, target)
        yield f"{source} to {target}", CUT
        self.cluster.network.heal()

    def lossy_machine(self):
        name = self.machine()
        self.cluster.network.lossy(name, 30)
        yield name, LOSSY
        self.cluster.network.heal()

    # Disks.

    def wipe_disk(self):
        name = self.machine()
        self.cluster[name].kill()
        self.cluster[name].wipe_disk()
        self.cluster[name].start()
        yield name, WIPED

    def replace_machine(self):
        """One that is lost with its disk."""
        name = self.machine()
        lost = self.cluster[name]
        new = self.cluster.replace(name)
        shutil.rmtree(lost.directory, ignore_errors=True)
        self.replaced()
        yield f"{name} by {new.name}", WIPED

    def _disk(self, disk, act, name):
        act(disk)
        yield name, DISK
        disk.heal()

    def full_disk(self):
        return self._disk(self.small, lambda disk: disk.fill(), "n1's chunkserver")

    def slow_disk(self):
        return self._disk(self.small, lambda disk: disk.slow_down(), "n1's chunkserver")

    def stuck_disk(self):
        return self._disk(self.small, lambda disk: disk.stick(), "n1's chunkserver")

    def full_machine(self):
        return self._disk(self.whole, lambda disk: disk.fill(), "n2")

    def slow_machine(self):
        return self._disk(self.whole, lambda disk: disk.slow_down(), "n2")

    def stuck_machine(self):
        return self._disk(self.whole, lambda disk: disk.stick(), "n2")

    # Roles that are processes of their own.

    def _kill_role(self, role):
        name = self.serving() if role == "master" and self.rng.random() < 0.75 else self.machine()
        self.cluster[name].kill(role)
        yield f"{name} {role}", CHUNKSERVER_AWAY
        self.cluster[name].start()

    def _pause_role(self, role):
        name = self.serving() if role == "master" and self.rng.random() < 0.75 else self.machine()
        return self._pause(name, role)

    def kill_master(self):
        return self._kill_role("master")

    def kill_chunkserver(self):
        return self._kill_role("chunkserver")

    def kill_gateway(self):
        return self._kill_role("gateway")

    def pause_master(self):
        return self._pause_role("master")

    def pause_chunkserver(self):
        return self._pause_role("chunkserver")

    def pause_gateway(self):
        return self._pause_role("gateway")
