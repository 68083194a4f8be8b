"""Metadata that rot on one master of three are found and filled again by themselves."""

from cluster import rot


def test_damaged_metadata_heal_without_a_hand():
    # The one that serves while it runs, and another one that was stopped.
    rounds = [("many_flips", False, True), ("truncation", True, False)]
    assert rot.run(rounds, seed=1, settles=False) == []
