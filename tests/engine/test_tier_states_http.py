"""Tiers of a real engine with a model of linear attention: a state comes back as it was, with the tokens before it."""

import pytest

from bench.kinds import models
from tests.engine.real_engine import StartingEngine
from tests.engine.test_tier_groups_http import TENANTS, ask, drive_out, in_tier, prompt, stored
from tests.zones.core import declare

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
    starting = StartingEngine(options, make_model=models.qwen3_next)
    try:
        engine = starting.await_health()
        engine.add_keys(*TENANTS)
        engine.declare(*(declare(tenant, after=0.0) for tenant in TENANTS))
        yield engine
    finally:
        starting.stop()


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_the_blocks_comes_back_from_memory(engine):
    text, cached = ask(engine, "acme", prompt("acme"))
    assert cached == 0
    number = 0
    while engine.zone("acme").held:
        ask(engine, "flood", prompt(f"flood {number}"))
        number += 1
    hits = in_tier(engine, "acme", "cpu").hits
    assert ask(engine, "acme", prompt("acme")) == (text, TOKENS)
    assert in_tier(engine, "acme", "cpu").hits - hits == CHUNKS
    assert ask(engine, "burst", prompt("acme")) == (text, 0), "another tenant finds nothing of it"


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_memory_comes_back_from_the_disk(engine):
    for attempt in range(5):
        text, answer = stored(engine, "acme", f"below {attempt}")
        drive_out(engine, "acme")
        hits = in_tier(engine, "acme", "disk").hits
        again, cached = ask(engine, "acme", text)
        assert again == answer
        if cached:
            break
    assert cached == TOKENS
    assert in_tier(engine, "acme", "disk").hits - hits == CHUNKS
