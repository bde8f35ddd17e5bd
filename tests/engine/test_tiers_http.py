"""Tiers of a real engine: blocks that left the pool are loaded from CPU memory and disk, for their tenant only."""

import itertools
import time
from collections import Counter
from functools import partial

import pytest

from tests.engine.tiered_engines import BLOCK_BYTES, BLOCK_TOKENS, FILE_BYTES, ZONES, offered
from tests.zones.core import declare

pytestmark = pytest.mark.flagged_engine

PROMPT_BLOCKS = 10


def prompt(name):
    """A prompt of 10 blocks; a byte is a token."""
    return (f"{name}: " * 400)[: PROMPT_BLOCKS * BLOCK_TOKENS + 5]


def ask(engine, tenant, text):
    """Returns the answer, and how many tokens of the prompt were cached."""
    answer = engine.client(tenant).completions.create(model="tiny", prompt=text, max_tokens=8, temperature=0)
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


def flood(engine, name, prompts):
    """Turns over the pool, and CPU memory in proportion to `prompts`."""
    for number in range(prompts):
        ask(engine, "flood", prompt(f"{name} {number}"))


def in_tier(engine, tenant, tier):
    """The report of a tenant's zone in a tier."""
    return next(each for each in engine.zone(tenant).tiers if each.tier == tier)


def has_receipt(engine, tenant, purge):
    """Whether the journal says that the disk has removed everything that a purge removes from it."""
    lines = [line for path in engine.journal_folder.iterdir() for line in path.read_text().splitlines()]
    return any(all(f'"{word}"' in line for word in ("tier_receipt", "disk", tenant, purge)) for line in lines)


def offer(engine, tenant, text):
    """Sends a new prompt. Returns the answer and, once it is known, the outcome of each chunk."""
    became = partial(offered, engine, tenant, "disk", FILE_BYTES)
    before = became()
    answer, _ = ask(engine, tenant, text)
    engine.wait(lambda: (became() - before).total() >= PROMPT_BLOCKS, "what became of the chunks is known", 60)
    return answer, became() - before


def store(engine, tenant, name):
    """Returns a prompt of the tenant that is whole on the disk, and the answer to it.

    On a busy machine, the disk may be late, and is left alone for a while then.
    """
    deadline = time.monotonic() + 120
    outcomes, attempts = Counter(), itertools.count()
    while outcomes != Counter(stored=PROMPT_BLOCKS):
        assert time.monotonic() < deadline, f"not stored: {outcomes}"
        text = prompt(f"{name}, attempt {next(attempts)}")
        answer, outcomes = offer(engine, tenant, text)
    return text, answer


def test_what_a_flood_drives_out_of_the_blocks_comes_back_from_cpu_memory(tiered):
    text, cached = ask(tiered, "acme", prompt("acme"))
    assert cached == 0
    flood(tiered, "cpu", 8)
    hits = in_tier(tiered, "acme", "cpu").hits
    assert ask(tiered, "acme", prompt("acme")) == (text, PROMPT_BLOCKS * BLOCK_TOKENS)
    assert in_tier(tiered, "acme", "cpu").hits == hits + PROMPT_BLOCKS


def test_what_a_flood_drives_out_of_cpu_memory_comes_back_from_the_disk(tiered):
    text, answer = store(tiered, "calm", "calm")
    flood(tiered, "disk", 8)
    assert in_tier(tiered, "calm", "cpu").held_bytes == 0
    hits = in_tier(tiered, "calm", "disk").hits
    assert ask(tiered, "calm", text) == (answer, PROMPT_BLOCKS * BLOCK_TOKENS)
    assert in_tier(tiered, "calm", "disk").hits == hits + PROMPT_BLOCKS


def test_no_tenant_finds_what_another_stored(tiered):
    _, cached = ask(tiered, "burst", prompt("acme"))
    assert cached == 0
    text, _ = store(tiered, "calm", "of another tenant")
    _, cached = ask(tiered, "burst", text)
    assert cached == 0


def test_a_purge_reaches_each_tier_and_gives_a_receipt(tiered):
    text, _ = store(tiered, "dusk", "dusk")
    held = {tier: in_tier(tiered, "dusk", tier).held_bytes for tier in ("cpu", "disk")}
    assert min(held.values()) >= PROMPT_BLOCKS * BLOCK_BYTES
    tiered.declare(*ZONES[:-1], declare("dusk", purge="once", after=0.0))
    tiered.wait(lambda: has_receipt(tiered, "dusk", "once"), "the journal has the disk's receipt")
    assert [in_tier(tiered, "dusk", tier).held_bytes for tier in ("cpu", "disk")] == [0, 0]
    _, cached = ask(tiered, "dusk", text)
    assert cached == 0
    tiered.declare(*ZONES)


def test_what_is_not_to_be_stored_is_in_no_tier(tiered):
    tiered.declare(*ZONES[:-1], declare("dusk", no_store=True))
    ask(tiered, "dusk", prompt("unstored"))
    store(tiered, "calm", "after it")
    assert [in_tier(tiered, "dusk", tier).held_bytes for tier in ("cpu", "disk")] == [0, 0]
    tiered.declare(*ZONES)


def test_chunks_unused_for_a_time_are_gone_from_each_tier(tiered):
    store(tiered, "dusk", "old")
    assert in_tier(tiered, "dusk", "disk").held_bytes
    tiered.declare(*ZONES[:-1], declare("dusk", ttl=0.5))
    tiered.wait(
        lambda: not any(in_tier(tiered, "dusk", tier).held_bytes for tier in ("cpu", "disk")), "it is gone from both"
    )
    tiered.declare(*ZONES)


def test_an_engine_that_was_killed_finds_its_disk_again(tiered, tiered_starting):
    text, answer = store(tiered, "calm", "kept")
    tiered_starting[0].restart()
    tiered.wait(lambda: in_tier(tiered, "calm", "disk").held_bytes, "the disk is listed")
    assert in_tier(tiered, "calm", "cpu").held_bytes == 0, "memory is gone with the process"
    assert ask(tiered, "calm", text) == (answer, PROMPT_BLOCKS * BLOCK_TOKENS)
    _, cached = ask(tiered, "burst", text)
    assert cached == 0
