"""Tiers of a real engine with a model of linear attention: a state comes back as it was, with the tokens before it."""

import pytest

from bench.kinds import models
from tests.engine.test_tier_groups_http import (
    ask,
    check_that_it_comes_back_from_the_disk,
    in_tier,
    prompt,
    started,
)

pytestmark = pytest.mark.flagged_engine

TOKENS = 384
"""Of a prompt that can be found again: four blocks, each with as much room as a state needs."""
CHUNKS = 4 + 3
"""Of a prompt: of full attention all blocks, and of each of three layers with states the last one."""


def options(address, folder):
    disk = ["--disk-tier", str(folder / "disk"), "--disk-tier-size", "256MiB"]
    states = ["--enable-prefix-caching", "--mamba-cache-mode", "align", "--dtype", "bfloat16"]
    return ["--num-gpu-blocks-override", "49", "--max-model-len", "1024", "--cpu-tier", "32MiB", *disk, *states]


@pytest.fixture(scope="module")
def engine():
    with started(options, models.qwen3_next) as starting:
        yield starting.engine


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_the_blocks_comes_back_from_memory(engine):
    text, cached = ask(engine, "acme", prompt("acme"))
    assert cached == 0
    for number in range(100):
        if not engine.zone("acme").held:
            break
        ask(engine, "flood", prompt(f"flood {number}"))
    hits = in_tier(engine, "acme", "cpu").hits
    assert ask(engine, "acme", prompt("acme")) == (text, TOKENS)
    assert in_tier(engine, "acme", "cpu").hits - hits == CHUNKS
    assert ask(engine, "burst", prompt("acme")) == (text, 0), "another tenant finds nothing of it"


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_memory_comes_back_from_the_disk(engine):
    check_that_it_comes_back_from_the_disk(engine, TOKENS, CHUNKS)
