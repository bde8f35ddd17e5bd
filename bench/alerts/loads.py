"""The simulated loads: ordinary days, days with a high load, and a day with a flood."""

import dataclasses
import heapq
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from bench.simulator.engine import Model
from bench.simulator.request import BLOCK_TOKENS, Request
from bench.simulator.simulation import Plan, Simulation
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config

WARM_SECONDS = 3600.0
"""Time before which alerts don't count, because the pool is still filling and there is no previous hour to compare."""
FLOOD_STARTS = 90 * 60.0
FLOOD_SECONDS = 10 * 60.0
_FLOOD_REQUESTS_PER_SECOND = 20.0
_FLOOD_BLOCKS = 16
_FLOOD_BLOCK_IDS = 1 << 40
"""First block id of the flood, above all ids of the generated load, so that all prompts of the flood are unique."""


class Ordinary(Simulation):
    """A run with one config, in which every fourth zone reserves 4 %, and all other fields have the API's defaults."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        zones = tuple(
            ZoneConfig(
                name=f"tenant-{number}",
                tenant=f"tenant-{number}",
                generation=1,
                reserved="4%" if number % 4 == 1 else 0,
            )
            for number in range(plan.tenants)
        )
        self._config = make_config(1, PoolConfig(namespace="simulator", name="pool"), zones)
        self.engine.apply(self._config)

    def _schedule(self) -> dict[int, str]:
        return {}


class Flooded(Ordinary):
    """A load in which the largest tenant, which has no reservation, sends unique prompts for ten minutes."""

    def _make_load(self, tenants: list[str], sleepers: list[str]) -> Iterator[Request]:
        usual = super()._make_load(tenants, sleepers)
        both = heapq.merge(usual, _flood(tenants[0]), key=lambda request: request.arrival)
        for number, request in enumerate(itertools.islice(both, self.plan.requests)):
            yield dataclasses.replace(request, number=number)


def _flood(tenant: str) -> Iterator[Request]:
    rng = random.Random("flood")
    ids = itertools.count(_FLOOD_BLOCK_IDS)
    now = FLOOD_STARTS
    while now < FLOOD_STARTS + FLOOD_SECONDS:
        now += rng.expovariate(_FLOOD_REQUESTS_PER_SECOND)
        prefix = tuple(itertools.islice(ids, _FLOOD_BLOCKS))
        yield Request(0, tenant, now, _FLOOD_BLOCKS * BLOCK_TOKENS + 1, 1, prefix)


@dataclass(frozen=True, slots=True)
class Load:
    """A simulated day, with its description."""

    name: str
    text: str
    simulation: type[Simulation]
    plan: Plan


def loads(tenants: int, seed: int) -> tuple[Load, ...]:
    """Returns several days without a flood, followed by a day with a flood."""
    plan = Plan(requests=30_000, tenants=tenants, seed=seed, speed=0.5, model=Model(capacity=8_192))
    trace = dataclasses.replace(plan, requests=18_000, trace=True, model=Model(capacity=32_768))
    rough = dataclasses.replace(plan, requests=40_000, speed=1.0, model=Model(capacity=4_096))
    crowded = dataclasses.replace(plan, requests=12_000, tenants=8, model=Model(capacity=192))
    return (
        Load("generated", "bursts and pauses, 8,192 blocks, one config", Ordinary, plan),
        Load("trace", "recorded conversations, 32,768 blocks, one config", Ordinary, trace),
        Load("rough", "twice the load on half the blocks, random configs, a restart", Simulation, rough),
        Load("crowded", "requests alone fill the engine of 192 blocks, random configs", Simulation, crowded),
        Load("flood", "as `generated`, and ten minutes of flood", Flooded, plan),
    )
