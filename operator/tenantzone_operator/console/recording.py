"""Samples the store every two seconds, for the console's history and list of changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tenantzone_operator.console.changes import Changes
from tenantzone_operator.console.history import SAMPLE_SECONDS, History
from tenantzone_operator.console.live import LiveEngines
from tenantzone_operator.kube.store import Key, Store


class Recording:
    """Records how many blocks zones hold, and which zones and pools have changed.

    Args:
        store: contains the objects; filled by watches.
        live: provides newer numbers than the store while a page is open.
        has_listed: returns whether the first listing has filled the store.
    """

    def __init__(self, store: Store, live: LiveEngines, has_listed: Callable[[], bool]) -> None:
        self.history = History()
        self.changes = Changes()
        self._store = store
        self._live = live
        self._has_listed = has_listed

    def sample(self) -> None:
        """Record how many blocks each zone holds now, and what has changed since the last sample."""
        live = {pool: self._live.held(pool) for pool in self._store.pool_keys()}
        held: dict[Key, int | None] = {}
        for zone in self._store.zones:
            reported: int | None = zone.status.get("held")
            heard = live.get((zone.meta.namespace, zone.pool))
            held[zone.meta.namespace, zone.meta.name] = (
                reported if heard is None else heard.get(zone.meta.name, reported)
            )
        self.history.add(held)
        self.changes.look(self._store.zones, self._store.pools)
        self._live.forget_unseen()

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Take samples while the ``with`` block runs."""
        running = asyncio.create_task(self._run(), name="console")
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            if self._has_listed():
                self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)
