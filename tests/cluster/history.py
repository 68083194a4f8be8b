"""What many clients saw, and whether one register per key explains it (linearizability).

An operation has an interval, from when it was sent to when it was answered, and must have taken
effect at one moment of it. One without an answer may take effect at any later moment, or never.
"""

import json
import math
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass

ABSENT = "absent"
STEPS_MAX = 3_000_000


@dataclass
class Op:
    """One operation on one key. It asks for a state (`state`: the key must be in it; `other`: it
    must not be; None: any will do) and, if `makes` is not None, leaves one behind."""

    key: str
    client: str
    what: str
    began: float
    ended: float = math.inf  # without an answer: for ever
    state: str | None = None
    other: str | None = None
    makes: str | None = None

    @property
    def is_certain(self):
        return self.ended < math.inf

    def fits(self, state):
        return self.state in (None, state) and self.other != state

    def __str__(self):
        wants = f" wants {self.state}" * (self.state is not None)
        wants += f" wants other than {self.other}" * (self.other is not None)
        makes = f" makes {self.makes}" * (self.makes is not None)
        ended = f"{self.ended:.4f}" if self.is_certain else "?"
        return f"[{self.began:.4f} {ended}] {self.client} {self.what}{wants}{makes}"


class History:
    """Collects operations of many threads. `sent` notes one as sent and returns it; it counts as
    unanswered until `answered` says what it did, or `refused` that it did nothing."""

    def __init__(self):
        self.lock, self.sent_ops, self.began = threading.Lock(), {}, time.monotonic()

    def now(self):
        return time.monotonic() - self.began

    def sent(self, key, client, what, **effect):
        op = Op(key, client, what, self.now(), **effect)
        with self.lock:
            self.sent_ops[id(op)] = op
        return op

    def answered(self, op, **effect):
        op.ended = self.now()
        for name, value in effect.items():
            setattr(op, name, value)

    def refused(self, op):
        """It did nothing and saw nothing."""
        with self.lock:
            del self.sent_ops[id(op)]

    @property
    def ops(self):
        with self.lock:
            return list(self.sent_ops.values())

    def keys(self):
        by_key = {}
        for op in self.ops:
            by_key.setdefault(op.key, []).append(op)
        return by_key

    def write(self, path):
        with open(path, "w") as file:
            for op in self.ops:
                file.write(json.dumps(asdict(op)) + "\n")

    def violations(self):
        """Of every key whose operations no order explains, what was seen."""
        found = (check(ops) for ops in self.keys().values())
        return [problem for problem in found if problem]


def read(path):
    """The operations of a file that `History.write` wrote."""
    with open(path) as file:
        return [Op(**json.loads(line)) for line in file]


def check(ops):
    """None if some order explains the operations of one key, else what speaks against it."""
    return Search(ops).run()


def needed(ops):
    """Without what was not answered and would not be missed: it may never have been done."""
    certain = [op for op in ops if op.is_certain]
    if any(op.other is not None for op in certain):
        return ops  # states that nobody named may have been met
    wanted = {op.state for op in ops}
    return [op for op in ops if op.is_certain or op.makes in wanted]


class Search:
    """Wing's and Gong's search, as improved by Lowe: operations are put in order one by one; those
    that no other must precede are candidates; what was tried is remembered by the set of placed
    operations and the state they leave.

    Operations whose place costs the others nothing are placed at once; only among the rest there
    is a choice. A state is not left for good while there are operations that saw it.
    """

    def __init__(self, ops):
        # Those without an answer go last: they never end, and hold up nobody.
        self.ops = sorted(needed(ops), key=lambda op: (not op.is_certain, op.began))
        self.certain, self.left = sum(op.is_certain for op in self.ops), 0
        self.placed = bytearray(len(self.ops))
        self.first, self.order, self.state = 0, [], ABSENT
        self.makers, self.wanted = Counter(), Counter()
        self.readers, self.others = Counter(), Counter()
        for op in self.ops:
            self._count(op, 1)
        self.seen, self.steps, self.farthest = set(), 0, ([], [])

    def run(self):
        if strange := self._out_of_thin_air():
            return strange
        choices = []  # (operations placed before, state before, candidates still to be tried)
        while True:
            while self._place_observers() or self._place_unread():
                pass
            if self.left == 0:
                return None
            choices.append((len(self.order), self.state, self._options()))
            while not choices[-1][2]:
                self._note_farthest()
                choices.pop()
                if not choices:
                    return self._explain()
                self._take_back(*choices[-1][:2])
            self._place(choices[-1][2].pop())

    def _out_of_thin_air(self):
        for op in self.ops:
            if op.is_certain and op.state not in (None, ABSENT) and not self.makers[op.state]:
                return f"{op.key}: OUT OF THIN AIR: nobody made what this saw: {op}"
        return None

    def _candidates(self):
        """Indices of those not placed that began before any of those not placed ended."""
        found, earliest = [], math.inf
        for index in range(self.first, self.certain):
            op = self.ops[index]
            if op.began > earliest:
                break
            if not self.placed[index]:
                found.append(index)
                earliest = min(earliest, op.ended)
        return [index for index in found + self._unanswered() if self.ops[index].began <= earliest]

    def _unanswered(self):
        """Of those without an answer the first of each kind: another would serve no better."""
        found = {}
        for index in range(self.certain, len(self.ops)):
            if not self.placed[index]:
                found.setdefault((self.ops[index].state, self.ops[index].makes), index)
        return list(found.values())

    def _place_observers(self):
        """Those that see the state as it is. That never hurts."""
        fitting = [
            index for index in self._candidates()
            if self.ops[index].makes is None and self.ops[index].fits(self.state)
        ]  # fmt: skip
        for index in fitting:
            self._place(index)
        return bool(fitting)

    def _place_unread(self):
        """A write that nobody read, where nobody needs the state before either: nor does that."""
        if self.wanted[self.state] or self._minds_strangers():
            return False
        for index in self._candidates():
            op = self.ops[index]
            is_free = op.is_certain and op.makes is not None and op.state is None
            if is_free and not self.wanted[op.makes]:
                self._place(index)
                return True
        return False

    def _minds_strangers(self):
        """Whether a state may still be met that some operation must not meet."""
        return any(
            count > 0 and (other == self.state or self.makers[other] > 0)
            for other, count in self.others.items()
        )

    def _options(self):
        """Writes that could come next, the likeliest last; none if this was tried before."""
        self.steps += 1
        assert self.steps < STEPS_MAX, f"{self.ops[0].key}: undecided after {self.steps} steps"
        at = self.first, bytes(self.placed[self.first : self.placed.rfind(1) + 1]), self.state
        if at in self.seen:
            return []
        self.seen.add(at)
        fitting = [
            index for index in self._candidates()
            if self.ops[index].fits(self.state) and self._may_leave(self.ops[index])
        ]  # fmt: skip
        return sorted(fitting, key=lambda index: -self.ops[index].ended)

    def _may_leave(self, op):
        """Whether all who saw the state have been placed, or it can come back."""
        readers = self.readers[self.state] - (op.is_certain and op.state == self.state)
        return readers == 0 or self.makers[self.state] > 0

    def _place(self, index):
        op = self.ops[index]
        self._count(op, -1)
        self.placed[index] = 1
        self.order.append(index)
        if op.makes is not None:
            self.state = op.makes
        while self.first < self.certain and self.placed[self.first]:
            self.first += 1

    def _take_back(self, count, state):
        while len(self.order) > count:
            index = self.order.pop()
            self.placed[index] = 0
            self.first = min(self.first, index)
            self._count(self.ops[index], 1)
        self.state = state

    def _count(self, op, change):
        """What those not placed want and make."""
        self.makers[op.makes] += change
        self.wanted[op.state] += change
        if op.is_certain:
            self.left += change
            self.readers[op.state] += change
            if op.other is not None:
                self.others[op.other] += change

    def _note_farthest(self):
        if len(self.order) >= len(self.farthest[0]):
            next_ones = [index for index in self._candidates() if self.ops[index].is_certain]
            left = [index for index in range(self.certain) if not self.placed[index]]
            saw = [index for index in left if self.ops[index].state == self.state]
            self.farthest = list(self.order), next_ones, saw

    def _explain(self):
        order, next_ones, saw = self.farthest
        show = lambda indices: [f"  {self.ops[index]}" for index in indices]  # noqa: E731
        key, count = self.ops[0].key, len(order)
        lines = [f"{key}: NO ORDER explains it. Farthest after {count} operations:"]
        lines += show(order[-8:]) + ["One of these would have to be next:"] + show(next_ones[:12])
        if saw:
            lines += ["But these saw what was before it:"] + show(saw[:4])
        return "\n".join(lines)
