"""CPU memory of a real engine whose layers see back differently far: what comes back is what was computed."""

import pytest

from bench.kinds import models
from tests.engine.real_engine import StartingEngine
from tests.zones.core import declare

pytestmark = pytest.mark.flagged_engine

BLOCK_TOKENS, WINDOW_BLOCKS = 32, models.WINDOW // 32
PROMPT_BLOCKS = 12
TENANTS = ("acme", "burst", "flood")


def options(address, folder):
    return ["--num-gpu-blocks-override", "257", "--max-model-len", "1024", "--cpu-tier", "16MiB"]


@pytest.fixture(scope="module")
def engine():
    """An engine with a model of full attention beside a window, and CPU memory for many prompts."""
    starting = StartingEngine(options, make_model=models.gemma3)
    try:
        engine = starting.await_health()
        engine.add_keys(*TENANTS)
        # Quiet as soon as nothing is asked: what they keep cached goes first.
        engine.declare(*(declare(tenant, after=0.0) for tenant in TENANTS))
        yield engine
    finally:
        starting.stop()


def prompt(name):
    """Of 12 blocks; a word is a token."""
    numbers = [sum(name.encode()) + 7 * number for number in range(PROMPT_BLOCKS * BLOCK_TOKENS + 1)]
    return " ".join(f"w{number * number % 3989}" for number in numbers)


def ask(engine, tenant, text):
    """What is answered, and how many tokens of the prompt were cached."""
    answer = engine.client(tenant).completions.create(model="tiny", prompt=text, max_tokens=16, temperature=0)
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


def in_memory(engine, tenant):
    """What a report says of a tenant's zone in CPU memory."""
    return next(each for each in engine.zone(tenant).tiers if each.tier == "cpu")


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_the_blocks_comes_back_as_it_was(engine):
    text, cached = ask(engine, "acme", prompt("acme"))
    assert cached == 0
    for number in range(10):
        ask(engine, "flood", prompt(f"flood {number}"))
    hits = in_memory(engine, "acme").hits
    assert ask(engine, "acme", prompt("acme")) == (text, PROMPT_BLOCKS * BLOCK_TOKENS)
    windows = (in_memory(engine, "acme").hits - hits - PROMPT_BLOCKS) / WINDOW_BLOCKS
    assert windows == 5, "of full attention all blocks, of each window the last ones"


def test_nobody_finds_what_another_tenant_stored(engine):
    ask(engine, "acme", prompt("secret"))
    assert ask(engine, "burst", prompt("secret"))[1] == 0
