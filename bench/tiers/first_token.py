"""Measures the time to a prompt's first token, for several engines and prompts."""

import json
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx

from bench.end_to_end.engines import BLOCK_TOKENS, Engine
from hack.demo.models.model import MODELS, prepare
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.offloading_flags import TierFlags, kv_transfer_config

TENANT: Final = "tenant-0"
BLOCK_BYTES: Final = 30 * 2 * 3 * 64 * 4 * BLOCK_TOKENS
"""Size of a block of SmolLM2-135M in float32: 30 layers, keys and values of three heads with 64 numbers each."""

_WORDS: Final = ["river", "stone", "light", "paper", "garden", "window", "winter", "music", "letter", "harbour"]


def first_token(engine: Engine, prompt: str) -> tuple[float, int]:
    """Send a prompt of the first tenant; returns the seconds to its first token, and how many tokens were cached."""
    body: dict[str, Any] = {
        "model": engine.model,
        "prompt": prompt,
        "max_tokens": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    first, cached, began = 0.0, 0, time.perf_counter()
    url, headers = f"{engine.url}/v1/completions", engine.headers_of(0)
    with httpx.stream("POST", url, json=body, headers=headers, timeout=300) as lines:
        lines.raise_for_status()
        for line in lines.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            if event["choices"]:
                first = first or time.perf_counter() - began
            elif event.get("usage"):
                cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
    return first, cached


def prompts_of(count: int, tokens: int) -> list[str]:
    """Returns ``count`` prompts of about ``tokens`` tokens without a common prefix, the same in each call."""
    chance = random.Random(1)
    return [" ".join(chance.choices(_WORDS, k=int(tokens * 0.95))) for _ in range(count)]


def smollm2_engine(
    name: str,
    folder: Path,
    blocks: int,
    tokens: int,
    tiers: TierFlags,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Engine:
    """Returns an engine with SmolLM2 as converted by the demo, a zone of the tenant without settings, and tiers.

    Args:
        name: the engine's name in logs.
        folder: an existing folder for the engine's config, keys and log.
        blocks: the number of blocks.
        tokens: the approximate length of the longest prompt.
        tiers: the flags of the engine's tiers.
        variables: the engine's environment variables.
    """
    return Engine(
        name,
        [ZoneConfig(name=TENANT, tenant=TENANT, generation=1)],
        model=prepare(MODELS["smollm2"]),
        folder=folder,
        cores=sorted(os.sched_getaffinity(0)),
        flags=[
            "--num-gpu-blocks-override", str(blocks + 1), "--max-model-len", str(tokens + 64),
            "--enable-prompt-tokens-details", "--kv-transfer-config", kv_transfer_config(tiers),
        ],
        variables=variables,
    )  # fmt: skip
