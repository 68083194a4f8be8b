"""The checker of histories finds what it must, and nothing else."""

import random
import time

import pytest

from cluster.history import ABSENT, History, Op, check, read

KINDS = ["read"] * 6 + ["put"] * 3 + ["delete", "create", "cas", "cas"]
# What deletes and creations do to each other is what takes long: a state that comes back.
FEWER_KINDS = ["read"] * 6 + ["put"] * 4 + ["delete", "cas"]
OPS = 40_000
SECONDS = 60


def op(what, began, ended=None, value=None, **effect):
    """`put`, `read` and `delete` in short; other effects are spelled out."""
    effect |= {
        "put": {"makes": value},
        "read": {"state": value},
        "delete": {"makes": ABSENT},
        "create": {"state": ABSENT, "makes": value},
        "exists": {"other": ABSENT},
        "cas": {"makes": value},
        "lost_cas": {},
    }[what]
    ended = float("inf") if ended is None else ended
    return Op("key", "client", what, began, ended, **effect)


VALID = {
    "one after the other": [
        op("put", 0, 1, "a"), op("read", 2, 3, "a"), op("put", 4, 5, "b"), op("read", 6, 7, "b"),
    ],
    "nothing there at first": [op("read", 0, 1, ABSENT), op("put", 2, 3, "a")],
    "either of two that overlap": [
        op("put", 0, 9, "a"), op("put", 0, 9, "b"), op("read", 10, 11, "a"),
    ],
    "seen before it was acknowledged": [
        op("put", 0, 9, "a"), op("read", 1, 2, ABSENT), op("read", 3, 4, "a"),
    ],
    "unanswered, never done": [
        op("put", 0, 1, "a"), op("put", 2, None, "b"), op("read", 9, 10, "a"),
    ],
    "unanswered, done late": [
        op("put", 0, 1, "a"), op("put", 2, None, "b"), op("read", 5, 6, "a"), op("read", 7, 8, "b"),
    ],
    "unanswered delete, done late": [
        op("put", 0, 1, "a"), op("delete", 2, None), op("read", 3, 4, "a"),
        op("read", 7, 8, ABSENT),
    ],
    "deleted and made again": [
        op("create", 0, 1, "a"), op("delete", 2, 3), op("create", 4, 5, "b"), op("read", 6, 7, "b"),
    ],
    "one of two wins": [op("create", 0, 5, "a"), op("exists", 0, 5), op("read", 6, 7, "a")],
    "refused by one that was not answered": [
        op("create", 0, None, "a"), op("exists", 2, 3), op("read", 6, 7, "a"),
    ],
    "refused by one that was deleted unseen": [
        op("put", 0, None, "a"), op("exists", 2, 3), op("delete", 4, 5), op("read", 6, 7, ABSENT),
    ],
    "swapped": [
        op("put", 0, 1, "a"), op("cas", 2, 5, "b", state="a"), op("lost_cas", 2, 5, other="a"),
        op("read", 6, 7, "b"),
    ],
    "a swap without an answer": [
        op("put", 0, 1, "a"), op("put", 2, 9, "x"), op("cas", 2, None, "b", state="a"),
        op("read", 2, 9, "b"), op("read", 10, 11, "x"),
    ],
}  # fmt: skip

PLANTED = {
    "stale read": [op("put", 0, 1, "a"), op("put", 2, 3, "b"), op("read", 4, 5, "a")],
    "stale read by another while it goes on": [
        op("put", 0, 1, "a"), op("put", 2, 9, "b"), op("read", 3, 4, "b"), op("read", 5, 6, "a"),
    ],
    "lost write": [op("put", 0, 1, "a"), op("read", 2, 3, ABSENT)],
    "lost delete": [op("put", 0, 1, "a"), op("delete", 2, 3), op("read", 4, 5, "a")],
    "two winners": [op("create", 0, 5, "a"), op("create", 0, 5, "b")],
    "two winners after a delete": [
        op("put", 0, 1, "x"), op("delete", 2, 3), op("create", 4, 9, "a"), op("create", 4, 9, "b"),
    ],
    "refused by nothing": [op("delete", 0, 1), op("exists", 2, 3), op("put", 4, 5, "a")],
    "two swaps of one": [
        op("put", 0, 1, "a"), op("cas", 2, 9, "b", state="a"), op("cas", 2, 9, "c", state="a"),
    ],
    "a swap that was refused for nothing": [
        op("put", 0, 1, "a"), op("lost_cas", 2, 3, other="a"), op("read", 4, 5, "a"),
    ],
    "out of thin air": [op("put", 0, 1, "a"), op("read", 2, 3, "z")],
    "read before it was written": [op("read", 0, 1, "a"), op("put", 2, 3, "a")],
    "done and undone again": [
        op("put", 0, 1, "a"), op("put", 2, None, "b"), op("read", 3, 4, "b"), op("read", 5, 6, "a"),
    ],
    "seen in two orders": [
        op("put", 0, 20, "a"), op("put", 0, 20, "b"),
        op("read", 1, 2, "a"), op("read", 3, 4, "b"), op("read", 5, 6, "a"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", VALID)
def test_valid(name):
    assert check(VALID[name]) is None


@pytest.mark.parametrize("name", PLANTED)
def test_planted(name):
    assert check(PLANTED[name]), "not found"


class Simulated:
    """A register that is right, and what many clients of it see: each operation takes effect at
    a random moment between its beginning and its end."""

    def __init__(self, seed, clients, kinds=KINDS):
        self.rng, self.state, self.values = random.Random(seed), ABSENT, 0
        self.ops, self.clients, self.kinds = [], clients, kinds

    def run(self, count):
        moments = []
        for client in range(self.clients):
            now = self.rng.random()
            for _ in range(count // self.clients):
                began = now
                at = began + self.rng.expovariate(1)
                ended = at + self.rng.expovariate(1)
                lost = self.rng.random() < 0.01
                moments.append((at, began, None if lost else ended))
                now = ended + self.rng.random() * 0.1
        for _, began, ended in sorted(moments):
            self.step(began, ended)
        return self.ops

    def step(self, began, ended):
        kind = self.rng.choice(self.kinds)
        self.values += 1
        value, before = str(self.values), self.state
        if ended is None and self.rng.random() < 0.5:
            lost = {"create": {"state": ABSENT}, "cas": {"state": before}}.get(kind, {})
            self.note(kind, began, None, value, **lost)  # never done
            return
        if kind == "read":
            self.note("read", began, ended, before)
        elif kind == "put":
            self.change("put", began, ended, value)
        elif kind == "delete":
            self.change("delete", began, ended, ABSENT)
        elif kind == "create" and before != ABSENT:
            self.note("exists", began, ended)
        elif kind == "create":
            self.change("create", began, ended, value)
        elif self.rng.random() < 0.3:
            self.note("lost_cas", began, ended, other="stale")
        else:
            self.change("cas", began, ended, value, state=before)

    def change(self, kind, began, ended, value, **effect):
        self.note(kind, began, ended, value, **effect)
        self.state = value

    def note(self, kind, began, ended, value=None, **effect):
        if ended is not None or kind not in ("read", "exists", "lost_cas"):
            self.ops.append(op(kind, began, ended, value, **effect))


@pytest.mark.parametrize("kinds, clients", [(KINDS, 2), (KINDS, 12), (FEWER_KINDS, 50)])
def test_what_a_right_register_shows_is_valid(kinds, clients):
    for seed in range(40):
        assert check(Simulated(seed, clients, kinds).run(300)) is None, f"seed {seed}"


@pytest.mark.parametrize("clients", [2, 5])
def test_a_value_that_comes_back_is_found(clients):
    """A read is told the value before the one it should see, which all others had left."""
    for seed in range(40):
        ops = Simulated(seed, clients).run(300)
        end = max(op.ended for op in ops if op.is_certain)
        stale = next(op.makes for op in ops if op.what == "put" and op.is_certain)
        ops += [op("put", end + 1, end + 2, "last"), op("read", end + 3, end + 4, stale)]
        assert check(ops), f"seed {seed}"


def test_many_operations_are_checked_in_time(capsys):
    mixes, spent = ((KINDS, 10, 1000), (FEWER_KINDS, 20, 1000), (FEWER_KINDS, 50, 300)), {}
    for kinds, clients, each in mixes:
        histories = [Simulated(seed, clients, kinds).run(each) for seed in range(OPS // each)]
        began = time.monotonic()
        assert not any(check(ops) for ops in histories)
        spent[clients] = time.monotonic() - began
        assert spent[clients] < SECONDS
    with capsys.disabled():
        shown = ", ".join(f"{took:.1f} s with {clients} clients" for clients, took in spent.items())
        print(f"\ncheck of {OPS} operations: {shown}")


def test_a_history_is_written_and_read(tmp_path):
    history = History()
    history.answered(history.sent("k", "c", "PUT", makes="a"))
    history.answered(history.sent("k", "c", "GET"), state=ABSENT)
    history.sent("k", "c", "PUT", makes="b")
    history.refused(history.sent("k", "c", "PUT", makes="c"))
    history.write(tmp_path / "history")
    again = read(tmp_path / "history")
    assert again == history.ops and len(again) == 3
    (problem,) = history.violations()
    assert "NO ORDER" in problem and "GET" in problem
