"""The demo's prompts: of the wanted size, repeatable, and all different."""

import pytest

from hack.demo.engines import BLOCK_TOKENS
from hack.demo.models.model import MODELS
from hack.demo.story.asking import make_prompt


@pytest.mark.parametrize("blocks", [1, 32, 60])
def test_a_prompt_has_about_the_wanted_blocks(blocks: int):
    tiny = MODELS["tiny"]
    size = len(make_prompt(tiny, blocks, seed="any"))
    # The tiny model has one token per byte; the last word may go past the size.
    assert blocks * BLOCK_TOKENS <= size < blocks * BLOCK_TOKENS + 20


def test_the_same_seed_gives_the_same_prompt():
    assert make_prompt(MODELS["tiny"], 4, seed="a") == make_prompt(MODELS["tiny"], 4, seed="a")


def test_prompts_of_different_seeds_differ_within_their_first_block():
    starts = {make_prompt(MODELS["tiny"], 32, seed=f"flood {number}")[:BLOCK_TOKENS] for number in range(100)}
    assert len(starts) == 100
