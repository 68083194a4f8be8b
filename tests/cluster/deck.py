"""Which fault strikes in which episode, over several runs: each of them at least twice.

The roles of machines are processes of their own in every second run, so faults of single roles are
dealt to these.
"""

import random

from cluster.machine_faults import DEATHS, OF_DISKS, OF_ROLES, PLAIN

SEED = 100
TIMES = 2
EVERY = PLAIN + OF_DISKS + OF_ROLES


def is_apart(part):
    return part % 2 == 0


def deal(episodes, parts):
    """For each run, from the first on, the names of its faults in their order."""
    rng = random.Random(SEED)
    assert episodes % parts == 0, f"{episodes} episodes in {parts} parts"
    hands = {part: [] for part in range(1, parts + 1)}
    # Once each, where roles share a process; what is left over goes to both kinds.
    anywhere = PLAIN + OF_DISKS
    room = episodes - TIMES * len(EVERY)
    assert room >= 0, f"{episodes} episodes for {len(EVERY)} faults, each {TIMES} times"
    more = rng.sample(anywhere, len(anywhere)) * (TIMES - 1)
    more += [DEATHS[number % len(DEATHS)] for number in range(room)]
    cards = [(name, True) for name in OF_ROLES * TIMES]
    cards += [(name, False) for name in anywhere] + [(name, None) for name in more]
    for name, wants in cards:
        fit = [part for part in hands if wants in (None, is_apart(part))]
        fit = [part for part in fit if len(hands[part]) < episodes // parts]
        # As even as can be, so that a fault does not come twice in one run while others have room.
        hands[min(fit, key=lambda part: (hands[part].count(name), len(hands[part])))].append(name)
    return [rng.sample(hand, len(hand)) for hand in hands.values()]
