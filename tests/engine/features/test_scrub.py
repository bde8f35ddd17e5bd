"""What remains in the memory of a block that moved to another tenant, read from a real engine's worker."""

import json
import os
import subprocess
import sys

import pytest

from tests.engine.features.scrub_story import BLOCK_TOKENS

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def memory():
    story = subprocess.run(
        [sys.executable, "-m", "tests.engine.features.scrub_story"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["operator", "runtime", "."])},
        capture_output=True,
        text=True,
    )
    assert story.returncode == 0, story.stderr[-3000:]
    return json.loads(story.stdout.splitlines()[-1])


def share_kept(before: list[float], after: list[float]) -> float:
    return sum(old == new != 0 for old, new in zip(before, after, strict=True)) / len(before)


def share_of_zeros(content: list[float]) -> float:
    return content.count(0.0) / len(content)


@pytest.mark.parametrize("scrub", ["OnTransfer", "Never"])
def test_the_previous_tenants_blocks_were_full(memory, scrub):
    assert len(memory[scrub]["before"]) >= 5
    assert all(share_of_zeros(content) < 0.01 for content in memory[scrub]["before"])


@pytest.mark.shows("`scrub: OnTransfer`")
def test_a_transferred_block_holds_zeros_next_to_the_new_tenants_token(memory):
    story = memory["OnTransfer"]
    for before, after in zip(story["before"], story["after"], strict=True):
        assert share_of_zeros(after) == pytest.approx(1 - 1 / BLOCK_TOKENS, abs=0.001)
        assert share_kept(before, after) == 0


@pytest.mark.shows("`scrub: OnTransfer`")
def test_a_transferred_block_holds_the_old_bytes_where_scrubbing_was_not_asked_for(memory):
    story = memory["Never"]
    for before, after in zip(story["before"], story["after"], strict=True):
        assert share_kept(before, after) == pytest.approx(1 - 1 / BLOCK_TOKENS, abs=0.01)
