"""Writes what has changed and nothing else, and paces what changes all the time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping
from itertools import islice

from tenantzone_operator.api import Api, explain, is_gone
from tenantzone_operator.awaited import Awaited
from tenantzone_operator.events import Recorder
from tenantzone_operator.notices import Notice, Status, pool_notices, zone_notices
from tenantzone_operator.refusals import Refusals
from tenantzone_operator.repairs import REPAIR_SECONDS, Repairs
from tenantzone_operator.resources import Body, Meta, Pool, Zone
from tenantzone_operator.rest import RestError
from tenantzone_operator.status import without_gauges
from tenantzone_operator.store import Store, View

logger = logging.getLogger(__name__)

GAUGES_SECONDS = 2.0
"""What moves with each request is written no more often than this, ..."""
GAUGE_WRITES_PER_SECOND = 20.0
"""... and takes longer where there are many zones, in all pools together."""

_WRITES_AT_ONCE = 8

_FEW_ZONES = 16
_CALLS = 20
"""What nobody waits for is written a few zones at a time, all of it in about so many calls. In between it is looked
whether somebody waits."""

_TURN_SECONDS = 0.5
"""A write of those that takes longer lets others have their turn meanwhile."""


class StatusWriter:
    """Writes the statuses of one pool and its zones, and tells what a person should notice about each change."""

    def __init__(self, store: Store, api: Api, recorder: Recorder) -> None:
        self._store = store
        self._api = api
        self._recorder = recorder
        self._gauges_due_at = 0.0
        self.writes = 0
        """How many were made since the start."""
        self._repairs = Repairs()
        self._awaited = Awaited()
        self._refusals = Refusals()
        self._merged: dict[str, tuple[Status, Status]] = {}
        """By uid: what was written, and what the API server made of it, where these differ."""

    async def write(self, view: View, zones: Mapping[str, Status], pool: Status | None) -> float | None:
        """Write each status that differs from the one that the API server has.

        Args:
            view: the objects as the API server has them.
            zones: the status that each zone should have, by name.
            pool: the status that the pool should have; None if it does not exist.

        Returns:
            Seconds after which to come again for what was held back; None if nothing was.
        """
        now = time.monotonic()
        self._repairs.look(view)
        self._refusals.keep(view.uids)
        self._awaited.keep(view.uids)
        found = [zone for zone in (*view.zones, *view.leaving) if self._differs(zone, zones[zone.meta.name])]
        urgent: list[Zone] = []
        gauges: list[Zone] = []
        for zone in found:
            is_urgent = without_gauges(zones[zone.meta.name]) != without_gauges(zone.status)
            (urgent if is_urgent else gauges).append(zone)
        is_due = now >= self._gauges_due_at
        if is_due and gauges:
            # All pools share what the API server can take.
            self._gauges_due_at = now + max(GAUGES_SECONDS, len(self._store.zones) / GAUGE_WRITES_PER_SECOND)
        awaited, others = self._awaited.sort(urgent, now)

        def may_write(zone: Zone) -> bool:
            return self._may_write(zone.meta, zones[zone.meta.name], now)

        at_once = [*awaited, *gauges] if is_due else awaited
        hurried = list(filter(may_write, at_once))
        left = iter(others)
        few = list(islice(filter(may_write, left), max(_FEW_ZONES, len(others) // _CALLS)))
        more = len(list(left))
        writes = [self._write_zone(zone, zones[zone.meta.name]) for zone in hurried]
        is_held_back = len(hurried) + len(few) + more < len(at_once) + len(others)
        if view.told_pool is not None and pool is not None and self._differs(view.told_pool, pool):
            if self._may_write(view.told_pool.meta, pool, now):
                writes.append(self._write_pool(view.told_pool, pool))
            else:
                is_held_back = True
        await write_all(writes)
        await write_all(self._write_unhurried(zone, zones[zone.meta.name]) for zone in few)
        waits = [REPAIR_SECONDS] if is_held_back else []
        if more:
            waits.append(0.0)
        if not is_due and gauges:
            waits.append(self._gauges_due_at - now)
        if (retry := self._refusals.retry_seconds(time.monotonic())) is not None:
            waits.append(retry)
        return min(waits, default=None)

    def _may_write(self, meta: Meta, status: Status, now: float) -> bool:
        return self._refusals.may_try(meta.uid, status, now) and self._repairs.may_write(meta.uid, status, now)

    def _differs(self, found: Zone | Pool, status: Status) -> bool:
        """Whether there is anything to write. What others have added to a status is theirs, and no difference."""
        return found.status != status and self._merged.get(found.meta.uid) != (status, found.status)

    async def _write_unhurried(self, zone: Zone, status: Status) -> None:
        async with self._api.unhurried:
            writing = asyncio.create_task(self._write_zone(zone, status))
            try:
                await asyncio.wait([writing], timeout=_TURN_SECONDS)
            except asyncio.CancelledError:
                writing.cancel()
                raise
        await writing

    async def _write_zone(self, zone: Zone, status: Status) -> None:
        written = await self._try("zone", zone.meta, status, self._api.apply_zone_status(zone.meta, status))
        if written is None:
            return
        self._store.zones.update(written)
        self._awaited.note(zone, status, time.monotonic())
        self._note(zone, status, written)
        for notice in zone_notices(zone.status, status):
            self._recorder.record("TenantZone", zone.meta, notice)
            about = {"zone": zone.meta.name, "tenant": zone.tenant, "pool": zone.pool}
            _log(notice, "zone", zone.meta, about)

    async def _write_pool(self, pool: Pool, status: Status) -> None:
        written = await self._try("pool", pool.meta, status, self._api.apply_pool_status(pool.meta, status))
        if written is None:
            return
        self._store.pools.update(written)
        self._note(pool, status, written)
        for notice in pool_notices(pool.status, status):
            self._recorder.record("ZonePool", pool.meta, notice)
            _log(notice, "pool", pool.meta, {"pool": pool.meta.name})

    async def _try(self, kind: str, meta: Meta, status: Status, write: Awaitable[Body]) -> Body | None:
        """What it returns; None if it is refused for good: that is this object's trouble and delays no other one."""
        try:
            written = await write
        except RestError as error:
            if not error.is_lasting:
                raise
            if self._refusals.note(meta.uid, status, time.monotonic()):
                logger.warning("the status of %s %s/%s is refused: %s", kind, meta.namespace, meta.name, explain(error))
            return None
        self._refusals.done(meta.uid)
        return written

    def _note(self, found: Zone | Pool, status: Status, written: Body) -> None:
        self.writes += 1
        self._repairs.note(found.meta.uid, status)
        if written.get("status") == status:
            self._merged.pop(found.meta.uid, None)
        else:
            self._merged[found.meta.uid] = status, written.get("status", {})


def _log(notice: Notice, kind: str, meta: Meta, about: Mapping[str, str]) -> None:
    level = logging.WARNING if notice.type == "Warning" else logging.INFO
    extra = {**about, "pool_namespace": meta.namespace}
    logger.log(level, "%s %s/%s: %s", kind, meta.namespace, meta.name, notice.note, extra=extra)


async def write_all(writes: Iterable[Awaitable[None]]) -> None:
    """Make all writes, a few at a time. Objects that are gone by now are passed over.

    Raises:
        RestError: one of them failed; the others were made all the same.
    """
    limit = asyncio.Semaphore(_WRITES_AT_ONCE)

    async def make(write: Awaitable[None]) -> None:
        async with limit:
            try:
                await write
            except RestError as error:
                if not is_gone(error):
                    raise

    results = await asyncio.gather(*(make(write) for write in writes), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
