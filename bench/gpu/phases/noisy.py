"""The noisy-neighbour phase: eight quiet tenants, alone and during a flood, on stock and on zones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from bench.gpu.engines import Engine
from bench.gpu.group import Context
from bench.gpu.load import Loaded
from bench.gpu.loads import caller
from bench.gpu.phases.tenants import FLOODING, QUIET, flood, zones
from bench.gpu.plan import Answered, Plan, Prompts, Stream, poisson
from bench.gpu.results import FloodRates, NoisyArm, Tenants
from bench.gpu.shapes import Shape

_WARM_UP: Final = "warm up"


@dataclass(frozen=True, slots=True)
class _Arm:
    name: Literal["solo, stock", "solo, zones", "stock", "zones", "zones with targets"]
    engine: str
    has_flood: bool
    has_targets: bool = False


_ARMS: Final = (
    _Arm("solo, stock", "stock", has_flood=False),
    _Arm("solo, zones", "zones", has_flood=False),
    _Arm("stock", "stock", has_flood=True),
    _Arm("zones", "zones", has_flood=True),
    _Arm("zones with targets", "zones", has_flood=True, has_targets=True),
)


async def run(context: Context) -> Mapping[str, Any]:
    """Measure each arm once per seed, in reverse order for every other seed; returns `NoisyArm` values."""
    arms = []
    for turn, seed in enumerate(context.seeds):
        for arm in _ARMS[:: -1 if turn % 2 else 1]:
            context.say(f"seed {seed}: {arm.name}")
            arms.append(await _measure(context, arm, seed))
            context.keep({"arms": arms})
    return {"arms": arms}


async def _measure(context: Context, arm: _Arm, seed: int) -> NoisyArm:
    shape, load = context.shape, context.shape.load
    engine = context.engines[arm.engine]
    if engine.has_zones:
        await engine.apply(zones(target_seconds=load.target_seconds if arm.has_targets else None))
    begin = load.warm_seconds if arm.has_flood else load.solo_warm_seconds
    streams = [*quiet_streams(engine, shape, seed, arm.name, begin)]
    if arm.has_flood:
        streams += flood(engine, shape, f"{seed}/{arm.name}")
    loaded = await context.workers.run(Plan(tuple(streams), (begin, begin + load.window_seconds)))
    return {
        "arm": arm.name,
        "seed": seed,
        "window_seconds": loaded.window_seconds,
        "tenants": {kind: tenants(loaded, names) for kind, names in QUIET.items()},
        "flood": flood_rates(loaded) if arm.has_flood else None,
        "target_seconds": load.target_seconds if arm.has_targets else None,
        "conditions": await _conditions(engine) if arm.has_targets else {},
        "client_cpu_share": loaded.client_cpu_share,
    }


def quiet_streams(engine: Engine, shape: Shape, seed: int, arm: str, begin: float) -> Sequence[Stream]:
    """Returns a stream for each measured tenant, whose first request computes the tenant's prefix before the window.

    The arrival times in the window depend only on the seed and the tenant. The prompts differ between arms, because an
    engine would find the prompts of an earlier arm cached.

    Args:
        engine: the engine to load.
        shape: the shape with the sizes of the load.
        seed: the seed of the times and the prompts.
        arm: the name of the arm.
        begin: the start of the window, in seconds after the plan's start.
    """
    load = shape.load
    streams = []
    for name in (name for names in QUIET.values() for name in names):
        prompts = Prompts(shape.vocabulary, load.prefix, load.own, f"{seed}/{arm}/{name}")
        callers = (caller(engine, name),)
        arrivals = poisson(load.tenant_rate, begin, begin + load.window_seconds, f"{seed}/{name}")
        streams += [
            Stream(f"{name}, {_WARM_UP}", engine.url, callers, prompts, load.answer, arrivals=(0.0,)),
            Stream(name, engine.url, callers, prompts, load.answer, arrivals=arrivals, first=1),
        ]
    return streams


def tenants(loaded: Loaded, names: Sequence[str]) -> Tenants:
    """Returns the combined figures of several tenants' requests."""
    together = Answered()
    for name in names:
        together.add(loaded.streams[name])
    return {
        "requests": together.requests,
        "failed": together.failed,
        "first_token_seconds": together.first_token_seconds,
        "token_seconds": together.token_seconds,
        "errors": together.errors,
    }


def flood_rates(loaded: Loaded) -> FloodRates:
    """Returns the flooding tenants' tokens and completed requests per second of the window."""
    flooding = [loaded.streams[name] for name in FLOODING]
    return {
        "tokens_per_second": sum(each.window_tokens for each in flooding) / loaded.window_seconds,
        "requests_per_second": sum(each.window_requests for each in flooding) / loaded.window_seconds,
    }


async def _conditions(engine: Engine) -> dict[str, str]:
    """Returns the reasons that the engine reports for the state of the latency targets, by tenant."""
    return {
        zone.tenant: zone.latency.token_time.reason
        for zone in (await engine.report()).zones
        if zone.latency is not None and zone.latency.token_time is not None
    }
