"""What befalls a cluster, one fault at a time.

Each fault is a generator: it strikes, yields what it struck and for how many seconds, and ends.
"""

CHUNKSERVER_AWAY = 8  # longer than a chunkserver may be silent and still be waited for
PAST_LEASE = 13  # longer than the lease of a gateway, and of a master
CUT = 12
LOSSY = 10
WIPED = 2  # it is back at once: the wait for a whole cluster is the rest
DATABASE_AWAY = 2
DISK = 8

# While such a fault lasts these may wait; they must go on in time once it has ended.
HURTS = {
    "lossy_chunkserver": {"read", "write"},
    "lossy_gateway": {"read", "write"},
    "lossy_master": {"read", "write"},
    "restart_database": {"read", "write"},
    "full_disk": {"write"},
    "stuck_disk": {"write"},
}
NEEDS_NETWORK = [
    "cut_chunkserver", "cut_gateway", "cut_master", "cut_one_way", "halves",
    "lossy_chunkserver", "lossy_gateway", "lossy_master",
]  # fmt: skip
NEEDS_DISK = ["full_disk", "slow_disk", "stuck_disk"]
PLAIN = [
    "kill_chunkserver", "kill_gateway", "kill_master", "pause_chunkserver", "pause_gateway",
    "pause_master", "restart_database", "wipe_chunkserver",
]  # fmt: skip


class Faults:
    """`disk` is the one of chunkserver c1, if it has one of its own."""

    def __init__(self, cluster, rng, disk=None):
        self.cluster, self.rng, self.disk = cluster, rng, disk

    def names(self):
        found = list(PLAIN)
        found += NEEDS_NETWORK if self.cluster.network else []
        return found + (NEEDS_DISK if self.disk else [])

    def chunkserver(self):
        return self.rng.choice(self.cluster.chunkservers())

    def gateway(self):
        return self.rng.choice(self.cluster.gateways())

    def master(self):
        """Mostly the one that serves."""
        if self.rng.random() < 0.75:
            return self.cluster.serving().name
        return self.rng.choice(self.cluster.masters())

    def _kill(self, name):
        self.cluster.kill(name)
        yield name, CHUNKSERVER_AWAY
        self.cluster.start(name)

    def kill_chunkserver(self):
        return self._kill(self.chunkserver())

    def kill_gateway(self):
        return self._kill(self.gateway())

    def kill_master(self):
        return self._kill(self.master())

    def _pause(self, name):
        self.cluster[name].pause()
        yield name, PAST_LEASE
        self.cluster[name].resume()

    def pause_chunkserver(self):
        return self._pause(self.chunkserver())

    def pause_gateway(self):
        return self._pause(self.gateway())

    def pause_master(self):
        return self._pause(self.master())

    def _cut(self, name):
        # The database is a neighbour of masters.
        self.cluster.network.cut(name, ["host"] if name in self.cluster.masters() else [])
        yield name, CUT
        self.cluster.network.heal()

    def cut_chunkserver(self):
        return self._cut(self.chunkserver())

    def cut_gateway(self):
        return self._cut(self.gateway())

    def cut_master(self):
        return self._cut(self.master())

    def cut_one_way(self):
        """Between a chunkserver or gateway and any other node, in either direction."""
        some = self.rng.choice([self.chunkserver(), self.gateway()])
        other = self.rng.choice([name for name in self.cluster.nodes if name != some])
        source, target = self.rng.sample([some, other], 2)
        self.cluster.network.cut_one_way(source, target)
        yield f"{source} to {target}", CUT
        self.cluster.network.heal()

    def halves(self):
        """The half with the master that serves can go on: it has enough of the others."""
        cut_off = [
            self.rng.choice([name for name in self.cluster.masters() if name != self.serving()]),
            self.chunkserver(), self.gateway(),
        ]  # fmt: skip
        others = [name for name in self.cluster.nodes if name not in cut_off]
        self.cluster.network.halves(cut_off, others)
        yield " ".join(cut_off), CUT
        self.cluster.network.heal()

    def serving(self):
        return self.cluster.serving().name

    def _lossy(self, name):
        self.cluster.network.lossy(name, 30)
        yield name, LOSSY
        self.cluster.network.heal()

    def lossy_chunkserver(self):
        return self._lossy(self.chunkserver())

    def lossy_gateway(self):
        return self._lossy(self.gateway())

    def lossy_master(self):
        return self._lossy(self.master())

    def restart_database(self):
        self.cluster.database.stop()
        yield "PostgreSQL", DATABASE_AWAY
        self.cluster.database.start()

    def wipe_chunkserver(self):
        name = self.chunkserver()
        self.cluster.wipe(name)
        yield name, WIPED

    def full_disk(self):
        self.disk.fill()
        yield "c1", DISK
        self.disk.heal()

    def slow_disk(self):
        self.disk.slow_down()
        yield "c1", DISK
        self.disk.heal()

    def stuck_disk(self):
        self.disk.stick()
        yield "c1", DISK
        self.disk.heal()
