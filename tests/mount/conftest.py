"""A server with a bucket, and two mounts of it."""

import itertools

import pytest

from harness.mount import Door, Mount
from harness.server import Server, scratch

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def store():
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def mounts(store):
    """Two mounts, a bucket that both show, and the HTTP door of it."""
    name = f"mounted-{next(numbers)}"
    door = Door(store, name)
    door.ask("PUT", "")
    work = scratch("mounts")
    # Other users come here too.
    work.chmod(0o755)
    with Mount(store, work / "one", bucket=name) as one:
        with Mount(store, work / "two", bucket=name) as two:
            yield one.root, two.root, door


@pytest.fixture
def here(mounts, request):
    """A directory of its own for a test, on the first mount."""
    path = mounts[0] / request.node.name
    path.mkdir()
    return path
