"""A real engine with CPU memory and a disk below its blocks, and what is asked of it over HTTP."""

import time

from prometheus_client.parser import text_string_to_metric_families

from tenantzone_contract.tiers import TierShare
from tests.zones.core import declare

BLOCK_TOKENS, BLOCK_BYTES = 32, 32 * 1024
BLOCKS, CHUNKS, FILES = 32, 44, 400
PROMPT_BLOCKS = 10
FILE_BYTES = BLOCK_BYTES + 4096
TENANTS = ("acme", "burst", "calm", "flood", "dusk")
KEPT = (TierShare(tier="cpu", reserved="25%"),)
ZONES = (
    declare("acme", tiers=KEPT, after=0.0),
    *(declare(tenant, after=0.0) for tenant in TENANTS[1:]),
)
"""Quiet as soon as nothing is asked: what they keep cached goes first."""


def options(address, folder):
    """Of an engine with these tiers."""
    return [
        "--num-gpu-blocks-override", str(BLOCKS + 1), "--max-model-len", str(BLOCKS * BLOCK_TOKENS),
        "--cpu-tier", str(CHUNKS * BLOCK_BYTES),
        "--disk-tier", str(folder / "disk"), "--disk-tier-size", str(FILES * FILE_BYTES),
    ]  # fmt: skip


def prompt(name):
    """Of 10 blocks; a byte is a token."""
    return (f"{name}: " * 400)[: PROMPT_BLOCKS * BLOCK_TOKENS + 5]


def ask(engine, tenant, text):
    """What is answered, and how many tokens of the prompt were cached."""
    answer = engine.client(tenant).completions.create(model="tiny", prompt=text, max_tokens=8, temperature=0)
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


def flood(engine, name, prompts=8):
    """Turn the pool over, and so much of CPU memory."""
    for number in range(prompts):
        ask(engine, "flood", prompt(f"{name} {number}"))


def in_tier(engine, tenant, tier):
    """What a report says of a tenant's zone in a tier."""
    return next(each for each in engine.zone(tenant).tiers if each.tier == tier)


def lost_chunks(engine, tenant):
    """Chunks of a tenant that the disk did not give or take, by reason; only what there was."""
    (family,) = (
        each
        for each in text_string_to_metric_families(engine.metrics())
        if each.name == "tenantzone_zone_tier_lost_chunks"
    )
    ours = [each for each in family.samples if {("tenant", tenant), ("tier", "disk")} <= set(each.labels.items())]
    return {each.labels["reason"]: int(each.value) for each in ours if each.value}


def disk_problem(engine):
    """What the disk fails at now, as the engine says."""
    return next(each for each in engine.report().tiers if each.tier == "disk").problem


def at_rest(engine):
    """What was stored is on the disk, too, as far as it goes there."""
    held = -1
    while (now := next(each for each in engine.report().tiers if each.tier == "disk").held_bytes) != held:
        held = now
        time.sleep(0.3)
