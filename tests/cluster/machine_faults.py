"""What befalls machines, one fault at a time; as in `faults.py`."""

import time

from cluster.deaths import ATTEMPT_SECONDS, Deaths
from cluster.faults import CHUNKSERVER_AWAY, CUT, DISK, LOSSY, PAST_LEASE, WIPED
from cluster.load import BUCKET, LOST
from harness.machines import PLACES, ROLES
from harness.wait import PATIENCE_SECONDS, comes_true
from kill.model import content

# A master that has served for a minute hands over when its disk is full. If that fails, it tries
# again after another one.
HAND_OVER = 2 * 60 + 15

# While such a fault lasts these may wait; they must go on in time once it has ended.
HURTS = {
    "lossy_machine": {"read", "write"},
    "full_chunkserver": {"write"},
    "full_machine": {"write"},
    "full_master": {"write"},
    "slow_machine": {"read", "write"},
    "stuck_chunkserver": {"write"},
    "stuck_machine": {"read", "write"},
}
# How long these are felt is measured.
DEATHS = ["kill_serving_machine", "kill_machine"]
PLAIN = [
    *DEATHS, "pause_machine", "cut_machine", "cut_serving_machine", "cut_pair", "cut_one_way",
    "lossy_machine", "replace_machine", *(f"wipe_{role}" for role in ROLES),
]  # fmt: skip
# Of roles that are processes of their own.
OF_ROLES = [f"{what}_{role}" for what in ("kill", "pause", "cut") for role in ROLES]
# Of places (`disk.SmallDisk`) that single roles, or a machine, have for themselves.
OF_DISKS = [
    *(f"full_{role}" for role in ROLES), "slow_chunkserver", "stuck_chunkserver",
    "full_machine", "slow_machine", "stuck_machine",
]  # fmt: skip
# How a small disk is shown that is all of a machine's.
WHOLE = ""


class MachineFaults:
    """`disks` are small ones by their directories, as `cluster.places` has them. `patience` is how
    much later than on a quiet machine a master may hand over, seconds."""

    def __init__(self, cluster, rng, disks, patience=0):
        self.cluster, self.rng, self.disks, self.patience = cluster, rng, disks, patience
        self.wrong = []
        self.deaths = Deaths(cluster, self.wrong)
        self.replaced = lambda: None  # called after another machine has taken the place of one

    def names(self):
        of_roles, of_disks = OF_ROLES * self.cluster.apart, OF_DISKS * bool(self.disks)
        return PLAIN + of_roles + of_disks

    def machine(self):
        return self.rng.choice(self.cluster.machines())

    def serving(self):
        return self.cluster.serving().name

    def machine_for(self, role):
        """Of masters mostly the one that serves."""
        is_serving = role == "master" and self.rng.random() < 0.75
        return self.serving() if is_serving else self.machine()

    def namespaces(self, *names):
        return [namespace for name in names for namespace in self.cluster[name].namespaces]

    # Deaths.

    def _kill(self, name):
        died = self.deaths.strike(name)
        yield name, max(0.0, died + CHUNKSERVER_AWAY - time.monotonic())
        self.cluster[name].start()

    def kill_machine(self):
        return self._kill(self.machine())

    def kill_serving_machine(self):
        return self._kill(self.serving())

    def replace_machine(self):
        """One that is lost with its disk."""
        name = self.machine()
        self.deaths.strike(name)
        new = self.cluster.replace(name)
        self.replaced()
        yield f"{name} by {new.name}", WIPED

    # Silence.

    def _pause(self, name, *roles):
        self.cluster[name].pause(*roles)
        yield " ".join([name, *roles]), PAST_LEASE
        self.cluster[name].resume()

    def pause_machine(self):
        return self._pause(self.machine())

    def _cut(self, what, namespaces):
        self.cluster.network.cut(namespaces)
        yield what, CUT
        self.cluster.network.heal()

    def cut_machine(self):
        name = self.machine()
        return self._cut(name, self.namespaces(name))

    def cut_serving_machine(self):
        name = self.serving()
        return self._cut(name, self.namespaces(name))

    def cut_pair(self):
        """Two machines do not reach each other; the third one reaches both."""
        one, other = self.rng.sample(self.cluster.machines(), 2)
        self.cluster.network.halves(self.namespaces(one), self.namespaces(other))
        yield f"{one} and {other}", CUT
        self.cluster.network.heal()

    def cut_one_way(self):
        source, target = self.rng.sample(self.cluster.machines(), 2)
        self.cluster.network.cut_one_way(self.namespaces(source), self.namespaces(target))
        yield f"{source} to {target}", CUT
        self.cluster.network.heal()

    def lossy_machine(self):
        name = self.machine()
        self.cluster.network.lossy(self.namespaces(name), 30)
        yield name, LOSSY
        self.cluster.network.heal()

    # Directories that are lost.

    def _stop_role(self, name, role):
        """With its machine, where that is one process."""
        self.cluster[name].kill(*[role] * self.cluster.apart)

    def wipe_chunkserver(self):
        name = self.machine()
        self._stop_role(name, "chunkserver")
        self.cluster[name].wipe_disk()
        self.cluster[name].start()
        yield name, WIPED

    def _replace_role(self, role):
        name = self.machine_for(role)
        if self.cluster.apart:
            self.cluster[name].kill(role)
        else:
            self.deaths.strike(name)
        self.cluster.replace_role(name, role)
        yield name, WIPED

    def wipe_master(self):
        return self._replace_role("master")

    def wipe_gateway(self):
        return self._replace_role("gateway")

    # Disks.

    def placed(self, part):
        """Of each machine with such a place: its name and the disk."""
        keys = [(*key.partition("/"), place) for key, place in self.cluster.places.items()]
        return [(name, self.disks[place]) for name, _, found, place in keys if found == part]

    def _disk(self, part, act):
        name, disk = self.rng.choice(self.placed(part))
        act(disk)
        yield f"{name} {part}".strip(), DISK
        disk.heal()

    def full_chunkserver(self):
        return self._disk(PLACES["chunkserver"], lambda disk: disk.fill())

    def slow_chunkserver(self):
        return self._disk(PLACES["chunkserver"], lambda disk: disk.slow_down())

    def stuck_chunkserver(self):
        return self._disk(PLACES["chunkserver"], lambda disk: disk.stick())

    def full_gateway(self):
        return self._disk(PLACES["gateway"], lambda disk: disk.fill())

    def full_machine(self):
        return self._disk(WHOLE, lambda disk: disk.fill())

    def slow_machine(self):
        return self._disk(WHOLE, lambda disk: disk.slow_down())

    def stuck_machine(self):
        return self._disk(WHOLE, lambda disk: disk.stick())

    def full_master(self):
        """Until the master that serves has handed over, and writes go on through each machine while
        its disk is still full."""
        name, disk = self.serving_with_a_disk()
        disk.fill()
        until = time.monotonic() + HAND_OVER + self.patience
        while self.serving() == name:
            if time.monotonic() > until:
                self.wrong.append(f"NO HAND-OVER: the disk of {name}'s master is full, and it serves")
                break
            time.sleep(1)
        for machine in self.cluster.machines():
            if not comes_true(lambda machine=machine: self.writes(machine), PATIENCE_SECONDS, 0.5):
                self.wrong.append(f"NEVER: a write by {machine} while the disk of {name}'s master is full")
        yield name, DISK
        disk.heal()

    def serving_with_a_disk(self):
        """Masters without a disk of their own die until one with such a disk serves."""
        disks = dict(self.placed(PLACES["master"]))
        while (name := self.serving()) not in disks:
            self._stop_role(name, "master")
            comes_true(lambda name=name: self.serving() != name)
            self.cluster[name].start()
            self.cluster.wait_whole()
        return name, disks[name]

    def writes(self, name):
        s3 = self.cluster.s3(name, timeout=ATTEMPT_SECONDS)
        body = content("full", name, 70_000)
        try:
            return s3.object("PUT", BUCKET, f"full/{name}", body=body).status == 200
        except LOST:
            return False

    # Roles that are processes of their own.

    def _kill_role(self, role):
        name = self.machine_for(role)
        self.cluster[name].kill(role)
        yield f"{name} {role}", CHUNKSERVER_AWAY
        self.cluster[name].start()

    def kill_master(self):
        return self._kill_role("master")

    def kill_chunkserver(self):
        return self._kill_role("chunkserver")

    def kill_gateway(self):
        return self._kill_role("gateway")

    def pause_master(self):
        return self._pause(self.machine_for("master"), "master")

    def pause_chunkserver(self):
        return self._pause(self.machine_for("chunkserver"), "chunkserver")

    def pause_gateway(self):
        return self._pause(self.machine_for("gateway"), "gateway")

    def _cut_role(self, role):
        name = self.machine_for(role)
        return self._cut(f"{name} {role}", [self.cluster[name].namespace_of(role)])

    def cut_master(self):
        return self._cut_role("master")

    def cut_chunkserver(self):
        return self._cut_role("chunkserver")

    def cut_gateway(self):
        return self._cut_role("gateway")
