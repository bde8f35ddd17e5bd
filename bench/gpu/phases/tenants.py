"""The ten tenants of the default group: three that may have targets, five plain ones, and two that flood."""

from collections.abc import Mapping, Sequence
from typing import Final

from bench.gpu.engines import Engine
from bench.gpu.loads import caller
from bench.gpu.plan import Prompts, Stream
from bench.gpu.shapes import Shape
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle, LatencyTargets

QUIET: Final[Mapping[str, tuple[str, ...]]] = {
    "target": tuple(f"target-{number}" for number in range(1, 4)),
    "plain": tuple(f"plain-{number}" for number in range(1, 6)),
}
"""Measured tenants by kind."""
FLOODING: Final = ("flood-1", "flood-2")

_IDLE: Final = Idle(after_seconds=30)
"""Idle setting of zones; its time is longer than any pause between two requests of a measured tenant."""


def zones(*, target_seconds: float | None = None) -> tuple[ZoneConfig, ...]:
    """Returns the zones of the ten tenants, which store nothing in tiers.

    Args:
        target_seconds: the target between two tokens, for tenants that may have targets; None for no targets.
    """
    targets = LatencyTargets(token_time_seconds=target_seconds)
    quiet = [
        ZoneConfig(
            name=name,
            tenant=name,
            generation=1,
            reserved="6%",
            priority=10,
            weight=10,
            idle=_IDLE,
            offload="Never",
            latency=targets if kind == "target" else LatencyTargets(),
        )
        for kind, names in QUIET.items()
        for name in names
    ]
    return (*quiet, *flooding_zones())


def flooding_zones() -> tuple[ZoneConfig, ...]:
    """Returns the zones of the flooding tenants, which reserve nothing."""
    return tuple(ZoneConfig(name=name, tenant=name, generation=1, offload="Never") for name in FLOODING)


def flood(engine: Engine, shape: Shape, seed: str) -> Sequence[Stream]:
    """Returns streams of the flooding tenants, with distinct prompts and a fixed number of requests in flight."""
    load = shape.load
    return [
        Stream(
            name,
            engine.url,
            (caller(engine, name),),
            Prompts(shape.vocabulary, 0, load.flood_prompt, f"{seed}/{name}"),
            load.flood_answer,
            at_once=load.flood_at_once // len(FLOODING),
        )
        for name in FLOODING
    ]
