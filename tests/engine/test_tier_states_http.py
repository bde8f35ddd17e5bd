"""Tiers of a real engine with a model of linear attention: a state is restored with the tokens before it."""

import pytest

from bench.kinds import models
from tests.engine.test_tier_groups_http import (
    PROMPT_TOKENS,
    ask,
    check_that_it_comes_back_from_storages,
    check_that_it_comes_back_from_the_disk,
    in_tier,
    manager,  # noqa: F401 - a fixture
    prompt,
    started,
)

pytestmark = pytest.mark.flagged_engine

LAYERS_WITH_STATES = 3


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


def found_again(engine):
    """Returns the tokens of a prompt that can be found again, and the chunks that hold them.

    A prompt has one chunk for each full block, and one more for the last state of each layer that has states. vLLM
    makes a block as large as a state, whose size depends on the instruction set: 96 tokens with AMX, 64 without.
    """
    block_tokens = engine.report().block_size_tokens
    blocks = PROMPT_TOKENS // block_tokens
    return blocks * block_tokens, blocks + LAYERS_WITH_STATES


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_the_blocks_comes_back_from_memory(engine):
    tokens, chunks = found_again(engine)
    text, cached = ask(engine, "acme", prompt("acme"))
    assert cached == 0
    for number in range(100):
        if not engine.zone("acme").held:
            break
        ask(engine, "flood", prompt(f"flood {number}"))
    hits = in_tier(engine, "acme", "cpu").hits
    assert ask(engine, "acme", prompt("acme")) == (text, tokens)
    assert in_tier(engine, "acme", "cpu").hits - hits == chunks
    assert ask(engine, "burst", prompt("acme")) == (text, 0), "another tenant finds nothing of it"


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_memory_comes_back_from_the_disk(engine):
    check_that_it_comes_back_from_the_disk(engine, *found_again(engine))


@pytest.mark.shows("tiers of several groups")
def test_what_an_engine_stored_whose_disk_was_lost_another_finds_in_storages(starting, manager):  # noqa: F811
    check_that_it_comes_back_from_storages(starting, manager, *found_again(starting.engine))
