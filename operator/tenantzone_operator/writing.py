"""Writes what has changed and nothing else, and paces what changes all the time."""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from kubernetes_asyncio.client import ApiException

from tenantzone_operator.api import Api, is_gone
from tenantzone_operator.resources import Meta
from tenantzone_operator.status import without_gauges
from tenantzone_operator.store import Store, View

GAUGES_SECONDS = 2.0
"""What moves with each request is written no more often than this, ..."""
GAUGE_WRITES_PER_SECOND = 20.0
"""... and takes longer in a pool with many zones."""

_WRITES_AT_ONCE = 8


class StatusWriter:
    """Writes the statuses of one pool and its zones."""

    def __init__(self, store: Store, api: Api) -> None:
        self._store = store
        self._api = api
        self._gauges_due_at = 0.0

    async def write(
        self, view: View, zones: Mapping[str, Mapping[str, Any]], pool: Mapping[str, Any] | None
    ) -> float | None:
        """Write each status that differs from the one that the API server has.

        Args:
            view: the objects as the API server has them.
            zones: the status that each zone should have, by name.
            pool: the status that the pool should have; None if it does not exist.

        Returns:
            Seconds after which to come again for what was held back; None if nothing was.
        """
        now = time.monotonic()
        changed = [zone for zone in view.zones if zones[zone.meta.name] != zone.status]
        urgent = [zone for zone in changed if without_gauges(zones[zone.meta.name]) != without_gauges(zone.status)]
        is_due = now >= self._gauges_due_at
        if is_due and len(changed) > len(urgent):
            self._gauges_due_at = now + max(GAUGES_SECONDS, len(view.zones) / GAUGE_WRITES_PER_SECOND)
        writes = [self._write_zone(zone.meta, zones[zone.meta.name]) for zone in (changed if is_due else urgent)]
        if view.pool is not None and pool is not None and pool != view.pool.status:
            writes.append(self._write_pool(view.pool.meta, pool))
        await write_all(writes)
        return None if is_due or len(changed) == len(urgent) else self._gauges_due_at - now

    async def _write_zone(self, meta: Meta, status: Mapping[str, Any]) -> None:
        self._store.zones.update(await self._api.apply_zone_status(meta, status))

    async def _write_pool(self, meta: Meta, status: Mapping[str, Any]) -> None:
        self._store.pools.update(await self._api.apply_pool_status(meta, status))


async def write_all(writes: Iterable[Awaitable[None]]) -> None:
    """Make all writes, a few at a time. Objects that are gone by now are passed over.

    Raises:
        ApiException: one of them failed; the others were made all the same.
    """
    limit = asyncio.Semaphore(_WRITES_AT_ONCE)

    async def make(write: Awaitable[None]) -> None:
        async with limit:
            try:
                await write
            except ApiException as error:
                if not is_gone(error):
                    raise

    results = await asyncio.gather(*(make(write) for write in writes), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
