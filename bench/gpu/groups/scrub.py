"""Measures the cost of zeroing blocks that change owners (``scrub: OnTransfer``), in a load where every block does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.gpu.engines import Engine, EngineSpec
from bench.gpu.group import Context, Group, Phase
from bench.gpu.groups.metrics import total
from bench.gpu.loads import TENANTS, caller, flood, tokens_per_second
from bench.gpu.shapes import Shape
from tenantzone_contract.zone_config.config import ZoneConfig

_STOCK: Final = "stock"


def _zones(how: str) -> tuple[ZoneConfig, ...]:
    """Returns zones without reservations, so that each tenant takes blocks that the other tenant has freed."""
    return tuple(
        ZoneConfig.model_validate({"name": tenant, "tenant": tenant, "generation": 1, "scrub": how})
        for tenant in TENANTS
    )


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    return EngineSpec(_STOCK, None), EngineSpec("zones", _zones("Never"), ("--scrub-blocks",))


async def _run(context: Context) -> Mapping[str, Any]:
    rows = []
    for seed in context.seeds:
        for how in (_STOCK, "Never", "OnTransfer"):
            context.say(f"seed {seed}: {how}")
            engine = context.engines[_STOCK if how == _STOCK else "zones"]
            if engine.has_zones:
                await engine.apply(_zones(how))
            before = await _scrubbed(engine)
            callers = [caller(engine, tenant) for tenant in TENANTS]
            loaded = await flood(context, engine, callers, f"scrub {seed} {how}")
            rows.append(
                {
                    "engine": engine.name,
                    "scrub": "" if how == _STOCK else how,
                    "seed": seed,
                    "tokens/s": tokens_per_second(loaded),
                    "scrubbed blocks": await _scrubbed(engine) - before,
                    "window, s": loaded.window_seconds,
                }
            )
    return {"rows": rows}


async def _scrubbed(engine: Engine) -> int:
    """Returns the number of blocks that the engine has zeroed so far; 0 on stock vLLM."""
    return int(total(await engine.metrics(), "tenantzone_zone_scrubbed_blocks_total")) if engine.has_zones else 0


GROUP: Final = Group("scrub", _engines, (Phase("scrub", 120.0, _run),))
