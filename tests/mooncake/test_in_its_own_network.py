"""Storages of type Mooncake at a real pool, whose nodes listen at all addresses: in a network of their own."""

import os
import subprocess
import sys
from pathlib import Path

from hack import mooncake

_ROOT = Path(__file__).parents[2]


def test_a_pool_of_memory():
    """What `in_a_pool.py` and `in_a_crowd.py` test; see there."""
    # And with process numbers of its own, so that nothing outlives it, however it ends.
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += () if os.geteuid() == 0 else ("--map-root-user",)
    command += [
        sys.executable,
        "-m",
        "tests.mooncake.alone",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/mooncake/in_a_pool.py",
        "tests/mooncake/in_a_crowd.py",
    ]
    done = subprocess.run(
        command, cwd=_ROOT, env=os.environ | mooncake.variables(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
