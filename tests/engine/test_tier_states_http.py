"""Tiers of a real engine with a model of linear attention: a state comes back as it was, with the tokens before it."""

import pytest

from bench.kinds import models
from tests.engine.test_tier_groups_http import (
    ask,
    check_that_it_comes_back_from_storages,
    check_that_it_comes_back_from_the_disk,
    in_tier,
    manager,  # noqa: F401 - a fixture
    prompt,
    started,
)

pytestmark = pytest.mark.flagged_engine

TOKENS = 384
"""Of a prompt that can be found again: four blocks, each with as much room as a state needs."""
CHUNKS = 4 + 3
"""Of a prompt: of full attention all blocks, and of each of three layers with states the last one."""


def options(address, folder):
    states = ["--enable-prefix-caching", "--mamba-cache-mode", "align", "--dtype", "bfloat16"]
    return ["--num-gpu-blocks-override", "49", "--max-model-len", "1024", "--cpu-tier", "32MiB", *states]


@pytest.fixture(scope="module")
def starting(manager):  # noqa: F811 - the fixture
    with started(options, models.qwen3_next, manager) as starting:
        yield starting


@pytest.fixture
def engine(starting):
    return starting.engine


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


@pytest.mark.shows("tiers of several groups")
def test_what_an_engine_stored_whose_disk_was_lost_another_finds_in_storages(starting, manager):  # noqa: F811
    check_that_it_comes_back_from_storages(starting, manager, TOKENS, CHUNKS)
