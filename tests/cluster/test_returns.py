"""Machines that all die under load come back by themselves."""

from cluster import returns


def test_all_machines_die_and_come_back():
    assert returns.run(rounds=2, seed=1, always_all=True) == []
