"""Waiting for what comes soon on a quiet machine, and late on one with much else to do."""

import time

# What has not come by then never comes. Only a failure takes so long.
PATIENCE_SECONDS = 300


def comes_true(condition, seconds=PATIENCE_SECONDS, pause=0.05):
    """Whether it comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def eventually(condition, what="what is waited for", seconds=PATIENCE_SECONDS):
    """`what` is words, or tells how it is instead."""
    if not comes_true(condition, seconds):
        raise AssertionError(f"not in {seconds} s: {what() if callable(what) else what}")
