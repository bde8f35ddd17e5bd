"""docs/upstream.md has the counts that its script prints, with the installed vLLM and with the patched copy."""

import re
import subprocess
import sys

import pytest

from hack.conformance.source import installed_vllm
from tests.docs.test_site import REPOSITORY
from tests.docs.test_upstream_patch import PAGE, VERSION

pytestmark = pytest.mark.skipif(installed_vllm() != VERSION, reason=f"the figures are of vLLM {VERSION}")


def counted(*prefix: object) -> dict[str, int]:
    """What the script prints, by its names."""
    command = [sys.executable, "-m", *map(str, prefix), "hack.upstream.counts"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    return {name: int(count) for name, count in re.findall(r"^([a-z ]+?) +(\d+)$", done.stdout, re.MULTILINE)}


def test_the_page_has_the_counts_of_both(tmp_path):
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    stock = counted()
    hooked = counted("hack.upstream.patched", tmp_path, sys.executable, "-m")
    assert {name: (int(before), int(after)) for name, before, after in rows} == {
        name: (stock[name], hooked[name]) for name in stock
    }
