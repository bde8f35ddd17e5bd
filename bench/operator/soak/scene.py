"""Creates pools in namespaces, with their zones and engines, and checks their state after the soak."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from bench.operator.fleet import Engine
from bench.operator.scenarios import Bench, at_once
from bench.operator.soak.changes import NAME
from hack.progress import say
from tenantzone_contract.zone_config.packing import files_of, unpack_config
from tenantzone_operator.kube.resources import read_zone

_SETTLED_SECONDS = 600.0
"""Maximum time to settle: liars are trusted again only after half a minute, and thousands of statuses are written."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a soak: its duration, and the numbers of pools, zones and liars."""

    minutes: float
    zones: int
    pools: int
    """Number of pools, with two engines each."""
    namespaces: int
    liars: int
    """Number of engines that lie, each in a different pool."""
    rate: float
    """Number of changes per second."""
    seed: int


class Scene:
    """The pools of a soak in their namespaces, with zones and engines.

    Args:
        bench: a bench that watches all namespaces.
        size: the size of the soak.
    """

    def __init__(self, bench: Bench, size: Size) -> None:
        self.bench = bench
        self._pools = {
            f"pool-{number:02}": replace(bench, namespace=namespaces(size)[number % size.namespaces])
            for number in range(size.pools)
        }
        pools = list(self._pools)
        self._zones = {f"zone-{number:04}": pools[number % size.pools] for number in range(size.zones)}
        """Pool of each zone."""
        self._lying = pools[: size.liars]

    async def set_up(self) -> None:
        """Create everything, and wait until it is Ready."""
        say(NAME, f"{len(self._zones):,} zones in {len(self._pools)} pools with two engines each")
        for pool, bench in self._pools.items():
            await bench.add_pool(pool, 2)
        await at_once(self._pools[pool].add_zone(zone, pool) for zone, pool in self._zones.items())
        seen = self.bench.observer.zones
        await self.bench.observer.until(
            lambda: len(seen) == len(self._zones) and all(zone.is_programmed for zone in seen.values())
        )
        await self.bench.settle()

    @property
    def namespaces_of_pools(self) -> dict[str, str]:
        """Returns the namespace of each pool."""
        return {pool: bench.namespace for pool, bench in self._pools.items()}

    @property
    def pools_of_zones(self) -> dict[str, str]:
        """Returns the pool of each zone."""
        return dict(self._zones)

    @property
    def honest_zones(self) -> dict[str, Bench]:
        """Returns the zones of pools whose engines are all honest, each with the bench of its namespace."""
        return {zone: self._pools[pool] for zone, pool in self._zones.items() if pool not in self._lying}

    @property
    def liars(self) -> list[Engine]:
        """Returns the engines that may lie."""
        return [self.bench.fleet.engines[f"{pool}-engine-1"] for pool in self._lying]

    @property
    def honest_engines(self) -> list[Engine]:
        """Returns the engines of pools in which no engine lies."""
        return [engine for engine in self.bench.fleet.engines.values() if engine.pool not in self._lying]

    async def wrong_in_the_end(self) -> AsyncIterator[str]:
        """Yields the failed checks as sentences, once all troubles have ended."""
        seen = self.bench.observer.zones
        try:
            await self.bench.observer.until(lambda: all(zone.is_programmed for zone in seen.values()), _SETTLED_SECONDS)
            async with asyncio.timeout(_SETTLED_SECONDS):
                # The operator polls an engine that it distrusts only after a while.
                while not await self._are_all_ready():  # noqa: ASYNC110 (no event reports that Ready is lost)
                    await asyncio.sleep(1)
                await self.bench.settle()
        except TimeoutError:
            yield f"not settled {_SETTLED_SECONDS:.0f} s after the last disturbance"
        for pool, bench in self._pools.items():
            zones = await self._read_zones(bench, pool)
            for zone, body in zones.items():
                if not _is_ready(body):
                    yield f"zone {zone} is not Ready at generation {body['metadata']['generation']}"
            found = await self.bench.client.call(
                "GET", f"/api/v1/namespaces/{bench.namespace}/configmaps/tenantzone-{pool}"
            )
            config = unpack_config(files_of(found))
            planned = {zone: read_zone(body).config for zone, body in zones.items()}
            if {entry.name: entry for entry in config.zones} != planned:
                yield f"the config of {pool} is not what its zones say"

    async def _are_all_ready(self) -> bool:
        for pool, bench in self._pools.items():
            if not all(map(_is_ready, (await self._read_zones(bench, pool)).values())):
                return False
        return True

    async def _read_zones(self, bench: Bench, pool: str) -> dict[str, Any]:
        listed = await self.bench.client.call(
            "GET", f"/apis/tenantzone.io/v1alpha1/namespaces/{bench.namespace}/tenantzones"
        )
        return {body["metadata"]["name"]: body for body in listed["items"] if body["spec"]["pool"] == pool}


def namespaces(size: Size) -> list[str]:
    """Returns the names of the soak's namespaces."""
    return [f"soak-{number:02}" for number in range(size.namespaces)]


def _is_ready(body: dict[str, Any]) -> bool:
    status: dict[str, Any] = body.get("status", {})
    ready = {found["type"]: found for found in status.get("conditions", [])}.get("Ready", {})
    return (ready.get("status"), ready.get("observedGeneration")) == ("True", body["metadata"]["generation"])
