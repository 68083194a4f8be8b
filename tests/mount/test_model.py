"""Random operations on a mount and, the same ones, on a directory of the local disk."""

import os
import random
import shutil

import pytest

from harness.server import scratch
from harness.side import Side, draw, shown

OPERATIONS = int(os.environ.get("CAIRN_TEST_MOUNT_OPERATIONS", "20000"))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_mount_does_what_a_local_directory_does(here, seed):
    rng = random.Random(seed)
    local = scratch("model")
    mounted, model = Side(here), Side(local)
    for number in range(OPERATIONS // 2):
        operation = draw(rng)
        got, expected = mounted.do(*operation), model.do(*operation)
        assert got == expected, f"seed {seed}, operation {number}: {shown(operation)}"
    mounted.close()
    model.close()
    shutil.rmtree(local)
