"""Storages of type Mooncake at a real pool, whose nodes listen at all addresses: in their own network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.third_party import mooncake

_ROOT = Path(__file__).parents[2]
_AS_ROOT = () if os.geteuid() == 0 else ("--map-root-user",)
# Also in a process namespace of its own, so that no process outlives it, however it ends.
_ALONE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", *_AS_ROOT)


def _obstacle() -> str:
    """Why such a network is impossible here; empty if it is possible."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    return subprocess.run([*_ALONE, "true"], capture_output=True, text=True, check=False).stderr.strip()


_WHY_NOT = _obstacle()


@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
def test_a_pool_of_memory():
    """Runs the tests of `in_a_pool.py` and `in_a_crowd.py`; see there."""
    files = ("tests/mooncake/in_a_pool.py", "tests/mooncake/in_a_crowd.py")
    done = subprocess.run(
        [*_ALONE, sys.executable, "-m", "tests.mooncake.alone", "-q", "-p", "no:cacheprovider", *files],
        cwd=_ROOT,
        env=os.environ | mooncake.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
