"""Writes only statuses that have changed, and limits the writes for amounts, which change all the time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.resources import Meta, Pool, Zone
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.kube.store import Store, View
from tenantzone_operator.status.notices import Notice, Status, pool_notices, zone_notices
from tenantzone_operator.status.statuses import without_gauges
from tenantzone_operator.writing.awaited import Awaited
from tenantzone_operator.writing.events import Recorder
from tenantzone_operator.writing.refusals import Refusals
from tenantzone_operator.writing.repairs import REPAIR_SECONDS, Repairs
from tenantzone_operator.writing.under_way import LATE_SECONDS, UnderWay, WritingSlots
from tenantzone_operator.writing.write_all import failures_of, write_all

logger = logging.getLogger(__name__)

GAUGES_SECONDS = 2.0
"""Minimum number of seconds between two writes of a zone's amounts, which change with each request."""
GAUGE_WRITES_PER_SECOND = 20.0
"""Maximum number of such writes per second for all pools. With more zones, each is written less often."""

_PATIENCE_SECONDS = 0.1
"""Seconds that a write without a waiting user waits for its turn before the worker checks for other work."""


class StatusWriter:
    """Writes the statuses of one pool and its zones, and records an Event for each notable change."""

    def __init__(self, store: Store, api: Api, recorder: Recorder, slots: WritingSlots) -> None:
        self._store = store
        self._api = api
        self._recorder = recorder
        self._gauges_due_at = 0.0
        self._gauges_due: set[str] = set()
        """Uids of zones whose amounts are written first, because many zones take several calls."""
        self.writes = 0
        """Number of writes since the start."""
        self._under_way = UnderWay(slots)
        self._repairs = Repairs()
        self._awaited = Awaited()
        self._refusals = Refusals()
        self._merged: dict[str, tuple[Status, Status]] = {}
        """Written status, and the API server's different result, by uid; only for statuses where the two differ."""

    async def write(
        self, view: View, zones: Mapping[str, Status], pool: Status | None, may_go_on: Callable[[], bool]
    ) -> float | None:
        """Write each status that differs from the status at the API server, starting with awaited zones.

        Args:
            view: the objects as the API server has them.
            zones: the status that each zone should have, by name.
            pool: the status that the pool should have; None if it does not exist.
            may_go_on: called before each write, because thousands of writes take minutes, and other work may come up.

        Returns:
            Seconds after which to write the postponed statuses; None if none were postponed.
        """
        now, ended = time.monotonic(), self._under_way.ended
        uids = view.uids
        self._merged = {uid: merged for uid, merged in self._merged.items() if uid in uids}
        self._repairs.look(view)
        self._refusals.keep(uids)
        self._awaited.keep(uids)
        found = [zone for zone in (*view.zones, *view.leaving) if self._differs(zone, zones[zone.meta.name])]
        changed = [zone for zone in found if self._may_write(zone.meta, zones[zone.meta.name], now)]
        urgent, gauges = self._by_urgency(changed, zones)
        awaited, others = self._awaited.sort(urgent, now)
        if gauges and now >= self._gauges_due_at:
            # All pools share the API server's capacity.
            self._gauges_due_at = now + max(GAUGES_SECONDS, len(self._store.zones) / GAUGE_WRITES_PER_SECOND)
            self._gauges_due.update(zone.meta.uid for zone in gauges)
        due = [zone for zone in gauges if zone.meta.uid in self._gauges_due]
        self._gauges_due = {zone.meta.uid for zone in due}
        hurried = [partial(self._write_zone, zone, zones[zone.meta.name]) for zone in awaited]
        is_held_back = len(found) > len(changed)
        if view.status_pool is not None and pool is not None and self._differs(view.status_pool, pool):
            if self._may_write(view.status_pool.meta, pool, now):
                hurried.insert(0, partial(self._write_pool, view.status_pool, pool))
            else:
                is_held_back = True

        def may_begin() -> bool:
            return may_go_on() and self._under_way.has_room

        is_all = await write_all(hurried, may_begin)
        is_all = is_all and await self._write_in_turn([*others, *due], zones, may_begin)
        waits = [REPAIR_SECONDS] if is_held_back else []
        if not is_all and self._under_way.has_room:
            waits.append(0.0)
        # Objects with a write in flight were skipped, and may need another write.
        if self._under_way or self._under_way.ended > ended or not is_all:
            waits.append(LATE_SECONDS)
        if len(gauges) > len(due):
            waits.append(self._gauges_due_at - now)
        if (retry := self._refusals.retry_seconds(time.monotonic())) is not None:
            waits.append(retry)
        return min(waits, default=None)

    async def stop(self) -> None:
        """Stop writing, and return once no write is in flight."""
        await self._under_way.stop()

    def _may_write(self, meta: Meta, status: Status, now: float) -> bool:
        return self._refusals.may_try(meta.uid, status, now) and self._repairs.may_write(meta.uid, status, now)

    def _differs(self, found: Zone | Pool, status: Status) -> bool:
        """Returns whether the status must be written now; additional fields by other clients do not count."""
        if found.meta.uid in self._under_way:
            return False
        return found.status != status and self._merged.get(found.meta.uid) != (status, found.status)

    def _by_urgency(self, changed: Iterable[Zone], zones: Mapping[str, Status]) -> tuple[list[Zone], list[Zone]]:
        """Returns the zones whose statuses changed in more than amounts, and the zones with other changes."""
        urgent: list[Zone] = []
        gauges: list[Zone] = []
        for zone in changed:
            written, merged = self._merged.get(zone.meta.uid, (None, None))
            # Ignore fields that other clients have added.
            before = written if written is not None and merged == zone.status else zone.status
            is_urgent = without_gauges(zones[zone.meta.name]) != without_gauges(before)
            (urgent if is_urgent else gauges).append(zone)
        return urgent, gauges

    async def _write_in_turn(
        self, changed: Sequence[Zone], zones: Mapping[str, Status], may_go_on: Callable[[], bool]
    ) -> bool:
        """Write statuses without a waiting user, one at a time for all pools, and return whether all were written.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: a write failed; the other writes were made nevertheless.
        """
        failures: list[Exception] = []
        left = iter(changed)
        while may_go_on() and (zone := next(left, None)) is not None:
            while not await self._has_turn():
                if not may_go_on():
                    return False
            try:
                failures += await failures_of(partial(self._write_zone, zone, zones[zone.meta.name]))
            finally:
                self._api.turn.release()
        for failure in failures:
            raise failure
        return next(left, None) is None

    async def _has_turn(self) -> bool:
        """Wait briefly for this pool's turn, and return whether it has the turn."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._api.turn.acquire()
        except TimeoutError:
            return False
        return True

    async def _write_zone(self, zone: Zone, status: Status) -> None:
        self._gauges_due.discard(zone.meta.uid)

        async def write() -> None:
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

        await self._under_way.make(zone.meta.uid, f"zone {zone.meta.namespace}/{zone.meta.name}", write)

    async def _write_pool(self, pool: Pool, status: Status) -> None:
        async def write() -> None:
            written = await self._try("pool", pool.meta, status, self._api.apply_pool_status(pool.meta, status))
            if written is None:
                return
            self._store.pools.update(written)
            self._note(pool, status, written)
            for notice in pool_notices(pool.status, status):
                self._recorder.record("ZonePool", pool.meta, notice)
                _log(notice, "pool", pool.meta, {"pool": pool.meta.name})

        await self._under_way.make(pool.meta.uid, f"pool {pool.meta.namespace}/{pool.meta.name}", write)

    async def _try(self, kind: str, meta: Meta, status: Status, write: Awaitable[Body]) -> Body | None:
        """Write a status, and return the written object; None if the API server refuses the status permanently."""
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
