"""The throughput phase: generated tokens per second at several concurrencies, with one tenant and with many."""

from collections.abc import Mapping
from typing import Any, Final

from bench.gpu.engines import Engine
from bench.gpu.group import Context
from bench.gpu.loads import caller
from bench.gpu.plan import Plan, Prompts, Stream
from bench.gpu.results import ThroughputRow
from tenantzone_contract.zone_config.config import ZoneConfig

_ATTEMPTS: Final = 4
"""Maximum attempts, each with a longer window, because an engine may get no CPU time in a short one if others run."""


async def run(context: Context) -> Mapping[str, Any]:
    """Measure each engine at each concurrency, once for each seed; returns a `ThroughputRow` for each."""
    rows = []
    for count in (1, context.shape.tenants):
        names = [f"tenant-{number}" for number in range(count)]
        context.say(f"declaring {count:,} zones")
        await context.engines["zones"].apply(_zones(names, context.shape.blocks))
        for turn, seed in enumerate(context.seeds):
            for concurrency, seconds in context.shape.load.throughput_seconds.items():
                for engine in ("stock", "zones")[:: -1 if turn % 2 else 1]:
                    context.say(f"{count:,} tenants, {concurrency} requests at once, seed {seed}: {engine}")
                    row = await _measure(context, context.engines[engine], names, concurrency, seconds, seed)
                    rows.append(row)
                    context.keep({"rows": rows})
    return {"rows": rows}


def _zones(names: list[str], blocks: int) -> tuple[ZoneConfig, ...]:
    """Returns zones that together reserve half of the pool, in equal parts."""
    reserved = blocks // (2 * len(names))
    return tuple(ZoneConfig(name=name, tenant=name, generation=1, reserved=reserved, offload="Never") for name in names)


async def _measure(
    context: Context, engine: Engine, names: list[str], concurrency: int, seconds: float, seed: int
) -> ThroughputRow:
    shape, load = context.shape, context.shape.load
    stream = Stream(
        "all",
        engine.url,
        tuple(caller(engine, name) for name in names),
        Prompts(shape.vocabulary, 0, load.throughput_prompt, f"throughput/{seed}/{len(names)}/{concurrency}"),
        load.throughput_answer,
        at_once=concurrency,
        stagger=True,
    )
    begin = load.throughput_warm_seconds
    for _ in range(_ATTEMPTS):
        loaded = await context.workers.run(Plan((stream,), (begin, begin + seconds)))
        answered = loaded.streams[stream.name]
        if answered.window_generated:
            break
        seconds *= 2
    return {
        "engine": "zones" if engine.has_zones else "stock",
        "tenants": len(names),
        "concurrency": concurrency,
        "seed": seed,
        "tokens_per_second": answered.window_generated / loaded.window_seconds,
        "window_seconds": loaded.window_seconds,
        "failed": answered.failed,
        "errors": answered.errors,
        "client_cpu_share": loaded.client_cpu_share,
    }
