"""Writes statuses that have changed, and limits writes that only update amounts, which change all the time."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from tenantzone_contract.kube_names import POOLS, ZONES
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.api import Api, explain, is_gone
from tenantzone_operator.kube.resources import Meta, Pool, Zone
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.kube.store import Store, View
from tenantzone_operator.status.notices import Notice, Status, pool_notices, zone_notices
from tenantzone_operator.status.statuses import without_gauges
from tenantzone_operator.writing.events import Recorder
from tenantzone_operator.writing.write_all import failures_of, write_all
from tenantzone_operator.writing.write_state import REPAIR_SECONDS, WriteState

logger = logging.getLogger(__name__)

GAUGES_SECONDS = 2.0
"""Minimum number of seconds between two writes of a zone's status if only amounts have changed."""
GAUGE_WRITES_PER_SECOND = 20.0
"""Maximum number of writes per second, for all pools, that only update amounts. With more zones, each waits longer."""

LATE_SECONDS = 0.5
"""Seconds that the writer waits for a write before the write continues in the background."""

_PATIENCE_SECONDS = 0.1
"""Seconds to wait for the turn to make a write that is not urgent. Afterwards, the worker checks for other work."""
_AT_ONCE_IN_A_NAMESPACE = 8


class WritingSlots(asyncio.Semaphore):
    """Limits the concurrent writes of one namespace, so that writes that hang do not block other namespaces."""

    def __init__(self) -> None:
        super().__init__(_AT_ONCE_IN_A_NAMESPACE)


class StatusWriter:
    """Writes the statuses of one pool and its zones, and records an Event for each notable change.

    A slow write continues in the background, so that a write that hangs does not delay others.

    Args:
        store: receives the objects as written.
        api: writes the statuses.
        recorder: records the Events.
        slots: the writing slots of the pool's namespace.
    """

    def __init__(self, store: Store, api: Api, recorder: Recorder, slots: WritingSlots) -> None:
        self._store = store
        self._api = api
        self._recorder = recorder
        self._slots = slots
        self._states: defaultdict[str, WriteState] = defaultdict(WriteState)
        """Write states by uid, of the pool and its zones, and of deleted objects with a write in flight."""
        self._gauges_due_at = 0.0
        self._late_writes_ended = 0
        """Number of writes in the background that have ended, successfully or not."""
        self.writes = 0
        """Number of writes since the start."""

    async def write(
        self, view: View, zones: Mapping[str, Status], pool: Status | None, may_go_on: Callable[[], bool]
    ) -> float | None:
        """Write each status that differs from the status in the API server, starting with zones that users wait for.

        Args:
            view: the objects as stored in the API server.
            zones: the status that each zone should have, by name.
            pool: the status that the pool should have; None if the pool does not exist.
            may_go_on: called before each write; returns False to stop, because thousands of writes may take minutes.

        Returns:
            Seconds after which to call this again for postponed statuses; None if no write was postponed.
        """
        now, ended = time.monotonic(), self._late_writes_ended
        self._forget_all_except(view.uids)
        wanted: list[tuple[Zone | Pool, Status]] = [
            (zone, zones[zone.meta.name]) for zone in (*view.zones, *view.leaving)
        ]
        if view.status_pool is not None and pool is not None:
            wanted.append((view.status_pool, pool))
        found: list[tuple[Zone | Pool, Status]] = []
        for each, status in wanted:
            state = self._state(each)
            if state.in_flight is not None:
                continue
            if state.differs(each.status, status):
                found.append((each, status))
            else:
                state.settle()
        changed = [(each, status) for each, status in found if self._state(each).may_write(status, now)]
        urgent, gauges = self._by_urgency([each for each, _ in changed if isinstance(each, Zone)], zones)
        awaited, others = self._by_waiting_users(urgent, now)
        if gauges and now >= self._gauges_due_at:
            # Use the number of zones in all pools, because all pools share the API server's capacity.
            self._gauges_due_at = now + max(GAUGES_SECONDS, len(self._store.zones) / GAUGE_WRITES_PER_SECOND)
            for zone in gauges:
                self._state(zone).has_gauges_due = True
        due = [zone for zone in gauges if self._state(zone).has_gauges_due]
        pools = [partial(self._write_pool, each, status) for each, status in changed if isinstance(each, Pool)]
        hurried = [*pools, *(partial(self._write_zone, zone, zones[zone.meta.name]) for zone in awaited)]

        def may_begin() -> bool:
            return may_go_on() and not self._slots.locked()

        is_all = await write_all(hurried, may_begin)
        is_all = is_all and await self._write_in_turn([*others, *due], zones, may_begin)
        waits = [REPAIR_SECONDS] if len(found) > len(changed) else []
        if not is_all and not self._slots.locked():
            waits.append(0.0)
        states = self._states.values()
        is_any_in_flight = any(state.in_flight is not None for state in states)
        # Call again soon, because objects with a write in flight were skipped, and may need another write.
        if is_any_in_flight or self._late_writes_ended > ended or not is_all:
            waits.append(LATE_SECONDS)
        if len(gauges) > len(due):
            waits.append(self._gauges_due_at - now)
        later = time.monotonic()
        retries = (state.refusal.retry_seconds(later) for state in states if state.refusal is not None)
        # Leave out retries that are due (0 seconds): their writes have begun, or `waits` already has a time for them.
        waits += [seconds for seconds in retries if seconds]
        return min(waits, default=None)

    async def stop(self) -> None:
        """Stop writing, and return once no write is in flight."""
        writes = [state.in_flight for state in self._states.values() if state.in_flight is not None]
        for writing in writes:
            writing.cancel()
        await asyncio.gather(*writes, return_exceptions=True)

    def _state(self, found: Zone | Pool) -> WriteState:
        return self._states[found.meta.uid]

    def _forget_all_except(self, uids: set[str]) -> None:
        """Discard the states of all objects other than these, except for objects with a write in flight."""
        for uid in self._states.keys() - uids:
            if self._states[uid].in_flight is None:
                del self._states[uid]

    def _by_urgency(self, changed: Iterable[Zone], zones: Mapping[str, Status]) -> tuple[list[Zone], list[Zone]]:
        """Returns the zones with changes other than amounts, and the zones in which only amounts have changed."""
        urgent: list[Zone] = []
        gauges: list[Zone] = []
        for zone in changed:
            before = self._state(zone).own_part(zone.status)
            is_urgent = without_gauges(zones[zone.meta.name]) != without_gauges(before)
            (urgent if is_urgent else gauges).append(zone)
        return urgent, gauges

    def _by_waiting_users(self, zones: Iterable[Zone], now: float) -> tuple[list[Zone], list[Zone]]:
        """Returns the zones that a user waits for, and the other zones, starting with the least recently written."""
        awaited: list[Zone] = []
        others: list[Zone] = []
        for zone in zones:
            self._state(zone).see(zone, now)
            (awaited if self._state(zone).is_awaited(zone, now) else others).append(zone)
        return awaited, sorted(others, key=lambda zone: self._state(zone).unhurried_at)

    async def _write_in_turn(
        self, changed: Sequence[Zone], zones: Mapping[str, Status], may_go_on: Callable[[], bool]
    ) -> bool:
        """Write statuses that no user waits for, one at a time among all pools; return whether all were written.

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
        """Wait briefly for this pool's turn to write; return whether the pool has the turn."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._api.turn.acquire()
        except TimeoutError:
            return False
        return True

    async def _write_zone(self, zone: Zone, status: Status) -> None:
        async def write() -> None:
            written = await self._try("zone", zone.meta, status, self._api.apply_status(ZONES, zone.meta, status))
            if written is None:
                return
            self._store.zones.update(written)
            self._state(zone).note_zone(zone, status, time.monotonic())
            self._note(zone, status, written)
            for notice in zone_notices(zone.status, status):
                self._recorder.record("TenantZone", zone.meta, notice)
                about = {"zone": zone.meta.name, "tenant": zone.tenant, "pool": zone.pool}
                _log(notice, "zone", zone.meta, about)

        await self._start(zone, status, f"zone {zone.meta.namespace}/{zone.meta.name}", write)

    async def _write_pool(self, pool: Pool, status: Status) -> None:
        async def write() -> None:
            written = await self._try("pool", pool.meta, status, self._api.apply_status(POOLS, pool.meta, status))
            if written is None:
                return
            self._store.pools.update(written)
            self._note(pool, status, written)
            for notice in pool_notices(pool.status, status):
                self._recorder.record("ZonePool", pool.meta, notice)
                _log(notice, "pool", pool.meta, {"pool": pool.meta.name})

        await self._start(pool, status, f"pool {pool.meta.namespace}/{pool.meta.name}", write)

    async def _start(self, found: Zone | Pool, status: Status, name: str, write: Callable[[], Awaitable[None]]) -> None:
        """Start the write of an object's status, and wait briefly for its end.

        Args:
            found: the object as stored in the API server.
            status: the status to write.
            name: the object's name for the log.
            write: performs the write.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: the write failed in time. A later failure is only logged.
        """
        state = self._state(found)
        state.begin(status, time.monotonic())
        writing = state.in_flight = asyncio.create_task(self._in_a_slot(write), name=name)
        try:
            await asyncio.wait([writing], timeout=LATE_SECONDS)
        except asyncio.CancelledError:
            writing.cancel()
            raise
        finally:
            if writing.done():
                state.in_flight = None
            else:
                writing.add_done_callback(partial(self._end_late, state))
        if writing.done():
            writing.result()

    async def _in_a_slot(self, write: Callable[[], Awaitable[None]]) -> None:
        async with self._slots:
            await write()

    def _end_late(self, state: WriteState, writing: asyncio.Task[None]) -> None:
        state.in_flight = None
        self._late_writes_ended += 1
        error = None if writing.cancelled() else writing.exception()
        if isinstance(error, Exception) and not (isinstance(error, RestError) and is_gone(error)):
            logger.warning("writing the status of %s failed: %s; retrying", writing.get_name(), explain(error))

    async def _try(self, kind: str, meta: Meta, status: Status, write: Awaitable[Body]) -> Body | None:
        """Write a status, and return the written object; None if the API server refuses the status permanently."""
        try:
            return await write
        except RestError as error:
            if not error.is_lasting:
                raise
            if self._states[meta.uid].refuse(status, time.monotonic()):
                logger.warning("status of %s %s/%s was refused: %s", kind, meta.namespace, meta.name, explain(error))
            return None

    def _note(self, found: Zone | Pool, status: Status, written: Body) -> None:
        self.writes += 1
        self._state(found).note(status, written.get("status", {}))


def _log(notice: Notice, kind: str, meta: Meta, about: Mapping[str, str]) -> None:
    level = logging.WARNING if notice.type == "Warning" else logging.INFO
    extra = {**about, "pool_namespace": meta.namespace}
    logger.log(level, "%s %s/%s: %s", kind, meta.namespace, meta.name, notice.note, extra=extra)
