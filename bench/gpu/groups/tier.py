"""Measures the memory tier: time to first token by cache, copy rates in both directions, and the cost of stores."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.gpu.answers import Answer, ask_each
from bench.gpu.compare import cached_share, first_token, same
from bench.gpu.engines import Engine, EngineSpec
from bench.gpu.group import Context, Group, Phase
from bench.gpu.groups.metrics import OPEN_METRICS, total, vllm_metrics
from bench.gpu.loads import ACME, BURST, caller, flood, prompts, tokens_per_second, zones
from bench.gpu.shapes import Shape

_MIB: Final = float(1 << 20)
_GIB: Final = float(1 << 30)
_POLL_SECONDS: Final = 0.05
_STORE_SECONDS: Final = 10.0
"""Maximum time for stores to complete after the answers."""


@dataclass(frozen=True, slots=True)
class _Copies:
    """The bytes that the engine has copied in one direction so far, and the seconds that the copies took."""

    bytes: float
    seconds: float

    @classmethod
    async def of(cls, engine: Engine, direction: str) -> "_Copies":
        """Read the counters of one direction, ``load`` or ``store``, which only engines with a tier have."""
        shown = await vllm_metrics(engine)
        name = f"vllm:kv_offload_{direction}"
        return cls(total(shown, f"{name}_bytes_total"), total(shown, f"{name}_time_total"))

    def columns_since(self, before: "_Copies", direction: str) -> dict[str, float | None]:
        """Returns the copies since an earlier reading, as columns of a row."""
        moved, seconds = self.bytes - before.bytes, self.seconds - before.seconds
        rate = moved / _GIB / seconds if seconds else None
        return {f"{direction}, MiB": moved / _MIB, f"{direction}, GiB/s": rate}


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    flags = ("--cpu-tier", shape.cpu_tier)
    return EngineSpec("stock", None), EngineSpec("zones", zones(), flags, OPEN_METRICS)


async def _first_tokens(context: Context) -> Mapping[str, Any]:
    await context.engines["zones"].apply(zones())
    return {"rows": [row for seed in context.seeds for row in await _first_tokens_of(context, seed)]}


async def _first_tokens_of(context: Context, seed: int) -> list[Mapping[str, Any]]:
    """Send the same prompts three times: while nothing is cached, while they are in blocks, and while in the tier."""
    load = context.shape.load
    stock, engine = context.engines["stock"], context.engines["zones"]
    asked = prompts(load.equal_prompt, f"tier {seed}", load.equal_answers)

    async def ask(target: Engine, cache: str) -> list[Answer]:
        context.say(f"seed {seed}: {target.name}, {cache}")
        return await ask_each(target, ACME, asked, load.equal_answer)

    answers = {("stock", cache): await ask(stock, cache) for cache in ("cold", "in blocks")}
    expected = await _decided_chunks(engine) + len(asked) * (load.equal_prompt // context.shape.block_tokens)
    answers |= {("zones", cache): await ask(engine, cache) for cache in ("cold", "in blocks")}
    await _wait_stored(engine, expected)
    await _drop_blocks(engine)
    before = await _Copies.of(engine, "load")
    answers["zones", "in tier"] = await ask(engine, "in tier")
    loads = (await _Copies.of(engine, "load")).columns_since(before, "load")
    return [
        {
            "engine": name,
            "seed": seed,
            "cache": cache,
            "first token, s": first_token(each),
            "cached": cached_share(each),
            "answers": len(each),
            # With a prompt in the tier, as with one in blocks, the engine computes only its last tokens.
            "same as stock": same(each, answers["stock", "cold" if cache == "cold" else "in blocks"]),
            **(loads if cache == "in tier" else {}),
        }
        for (name, cache), each in answers.items()
    ]


async def _flood(context: Context) -> Mapping[str, Any]:
    rows = []
    for seed in context.seeds:
        for arm in ("stock", "Never", "All"):
            context.say(f"seed {seed}: {arm}")
            engine = context.engines["stock" if arm == "stock" else "zones"]
            if engine.has_zones:
                await engine.apply(zones(offload=arm))
            before = await _Copies.of(engine, "store")
            loaded = await flood(context, engine, [caller(engine, BURST)], f"tier flood {seed} {arm}")
            columns = (await _Copies.of(engine, "store")).columns_since(before, "store")
            offload = None if arm == "stock" else arm
            rows.append(
                {
                    "engine": engine.name,
                    "offload": offload,
                    "seed": seed,
                    "flood, tokens/s": tokens_per_second(loaded),
                    **columns,
                }
            )
    return {"rows": rows}


async def _decided_chunks(engine: Engine) -> int:
    """Returns the number of acme's chunks that the tier has stored or refused so far."""
    shown = await engine.metrics()
    labels = {"tenant": ACME, "tier": "cpu"}
    stored = total(shown, "tenantzone_zone_tier_stored_bytes_total", **labels)
    refused = total(shown, "tenantzone_zone_tier_refused_chunks_total", **labels)
    return int(stored / total(shown, "tenantzone_tier_chunk_bytes", tier="cpu") + refused)


async def _wait_stored(engine: Engine, chunks: int) -> None:
    """Wait until the tier has stored or refused this many of acme's chunks, or until the time is up."""

    async def is_decided() -> bool:
        return await _decided_chunks(engine) >= chunks

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STORE_SECONDS):
            await _until(is_decided)


async def _drop_blocks(engine: Engine) -> None:
    """Evict acme's cache from blocks, but not from the tier, by limiting its zone to one block."""

    async def has_left() -> bool:
        return not any(zone.tenant == ACME and zone.cached > 1 for zone in (await engine.report()).zones)

    acme, burst = zones()
    await engine.apply((acme.model_copy(update={"reserved": 0, "limit": 1}), burst))
    await _until(has_left)
    await engine.apply(zones())


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    while True:
        if await condition():
            return
        await asyncio.sleep(_POLL_SECONDS)


GROUP: Final = Group("tier", _engines, (Phase("tier", 120.0, _first_tokens), Phase("tier-flood", 120.0, _flood)))
