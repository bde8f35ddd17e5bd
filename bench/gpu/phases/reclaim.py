"""The reclaim phase: a quiet tenant claims its whole reservation at once while a flood holds the pool."""

import math
from collections.abc import Mapping
from typing import Any, Final

from bench.gpu.engines import Engine
from bench.gpu.group import Context
from bench.gpu.loads import caller, checked, fill_pool
from bench.gpu.phases.tenants import FLOODING, flood, flooding_zones
from bench.gpu.plan import Plan, Prompts, Stream
from bench.gpu.results import ReclaimRow
from bench.gpu.shapes import Shape
from tenantzone_contract.zone_config.config import ZoneConfig

_OWNER: Final = "owner"
"""The tenant that claims its reservation."""


async def run(context: Context) -> Mapping[str, Any]:
    """Measure each engine once for each seed; returns a `ReclaimRow` for each."""
    await context.engines["zones"].apply((_zone(context.shape), *flooding_zones()))
    rows = []
    for turn, seed in enumerate(context.seeds):
        for name in ("stock", "zones")[:: -1 if turn % 2 else 1]:
            context.say(f"seed {seed}: {name}")
            rows.append(await _measure(context, context.engines[name], seed))
            context.keep({"rows": rows})
    return {"rows": rows}


def _zone(shape: Shape) -> ZoneConfig:
    load = shape.load
    blocks = load.reclaim_prompts * (math.ceil((load.flood_prompt + load.answer) / shape.block_tokens) + 1)
    return ZoneConfig(name=_OWNER, tenant=_OWNER, generation=1, reserved=blocks, priority=10, offload="Never")


async def _measure(context: Context, engine: Engine, seed: int) -> ReclaimRow:
    shape, load = context.shape, context.shape.load
    prompts = Prompts(shape.vocabulary, 0, load.flood_prompt, f"reclaim/{seed}")

    def claim(at: float) -> Stream:
        arrivals = (at,) * load.reclaim_prompts
        return Stream(_OWNER, engine.url, (caller(engine, _OWNER),), prompts, load.answer, arrivals=arrivals)

    begin = load.reclaim_warm_seconds
    streams = (claim(begin), *flood(engine, shape, f"reclaim/{seed}"))
    claimed = checked(await context.workers.run(Plan(streams, (0.0, begin)))).streams[_OWNER]
    await fill_pool(context, engine, FLOODING[0], f"reclaim/{seed}/after")
    again = checked(await context.workers.run(Plan((claim(0.0),), (0.0, 0.0)))).streams[_OWNER]
    return {
        "engine": "zones" if engine.has_zones else "stock",
        "seed": seed,
        "tokens": claimed.prompt_tokens,
        "slowest_seconds": max(claimed.first_token_seconds),
        "found_again": again.cached_tokens / again.prompt_tokens,
    }
