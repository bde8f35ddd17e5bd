"""CacheManager: creates all components of a manager, and runs the background tasks."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core.deadlines import UnderWay
from tenantzone_manager.core.moving import Moved
from tenantzone_manager.core.reclaiming import Reclaimed
from tenantzone_manager.core.settings import Evictions
from tenantzone_manager.ending import end
from tenantzone_manager.events.writer import Events, EventSettings
from tenantzone_manager.index.backend import Address, IndexBackend, IndexFull, IndexUnavailable
from tenantzone_manager.index.meta_index import Found, IndexSettings, MetaIndex
from tenantzone_manager.metrics import Metrics
from tenantzone_manager.moving.ladders import Ladders
from tenantzone_manager.moving.mover import Mover
from tenantzone_manager.reads.reading import Reader
from tenantzone_manager.reads.touches import FLUSH_SECONDS, Touches
from tenantzone_manager.reclaims.evicting import Evictor
from tenantzone_manager.reclaims.orphans import OrphanScan
from tenantzone_manager.reclaims.reclaimer import Reclaimer
from tenantzone_manager.reclaims.recounting import Recount
from tenantzone_manager.reclaims.removing import Remover
from tenantzone_manager.storages.backend import StorageError
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.storages.types import make
from tenantzone_manager.timing import ORPHAN_GRACE_SECONDS, SteadyClock, Timing
from tenantzone_manager.turns import Turns
from tenantzone_manager.writes.parts import Parts
from tenantzone_manager.writes.writing import Writer

REFRESH_SECONDS: Final = 0.5
RECLAIM_SECONDS: Final = 1.0
MOVE_SECONDS: Final = 1.0
RECOUNT_SECONDS: Final = 10.0
ORPHAN_SECONDS: Final = 3600.0
_LEASE_SECONDS: Final = 15.0
"""Seconds after which a leader that does not renew its leadership loses it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a manager."""

    timing: Timing = field(default_factory=Timing)
    index: IndexSettings = field(default_factory=IndexSettings)
    orphan_grace: float = ORPHAN_GRACE_SECONDS
    events: EventSettings | None = None
    """Settings for writing events. If None, no events are written."""
    credentials: Path | None = None
    """Folder with credential files for storages. If None, storages can't use credential files."""


class CacheManager:
    """A manager of the blocks in an index. Several managers may share the index.

    Args:
        backend: store of the index.
        settings: settings of this manager.
        clock: returns Unix time; if None, a ``SteadyClock`` is used.
        monotonic: returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        backend: IndexBackend,
        settings: Settings | None = None,
        clock: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or Settings()
        self.clock = clock or SteadyClock()
        self.name = secrets.token_hex(8)
        self.index = MetaIndex(backend, spaces.codec, self.settings.index, monotonic)
        self.catalog = Catalog(self.index)
        self.metrics = Metrics()
        self.turns = Turns()
        self.events: Events
        self.leads = False
        """Whether this manager is the leader. The leader reclaims bytes for all managers that share the index."""
        self.is_ready = False
        """Whether the index answered the last call of a background task."""
        self.problem = ""
        """Reason why the index does not answer or refuses new blocks; empty if there is no problem."""
        self._logged = ""
        """The last problem that was logged, or empty after the problem was solved."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, in_background: bool = True) -> None:
        """Open the events file and the index, and load the catalog. If this fails, close everything again.

        Args:
            in_background: whether to start the background tasks. Tests run single passes instead.

        Raises:
            IndexUnavailable: the index does not answer.
            OSError: a file can't be opened.
        """
        self.events = Events(self.settings.events, self.clock, self.metrics.dropped_events.inc)
        try:
            await self._start_index()
        except BaseException:
            self.events.close()
            raise
        if in_background:
            for seconds, work in (
                (REFRESH_SECONDS, self.refresh),
                (FLUSH_SECONDS, self.touches.flush),
                (RECLAIM_SECONDS, self._reclaim_if_leader),
                (MOVE_SECONDS, self._move_if_leader),
                (RECOUNT_SECONDS, self._recount_if_leader),
                (ORPHAN_SECONDS, self._scan_if_leader),
            ):
                self._tasks.append(asyncio.create_task(self._repeat(seconds, work)))
            self._tasks.append(asyncio.create_task(self.storages.probe_always()))

    async def _start_index(self) -> None:
        await self.index.start()
        try:
            await self._open()
        except BaseException:
            await self.index.close()
            raise

    async def _open(self) -> None:
        timing = self.settings.timing
        make_backend = partial(make, credentials=self.settings.credentials)
        self.storages = DataStorageManager(await self._identity(), self.clock, make_backend, self._has_storage)
        parts = Parts(self.index, self.storages)
        ladders = Ladders(self.storages, self.clock)
        taking = asyncio.Lock()
        self.mover = Mover(
            self.index, self.catalog, self.storages, parts, ladders, self.events, taking, timing, self.clock
        )
        self.index.on_change(self.mover.used.note)
        self.touches = Touches(self.index, self.mover.used.note)
        self.reader = Reader(self.index, self.catalog, self.storages, self.touches, self.turns, self.clock)
        under_way = UnderWay()
        self.writer = Writer(self.index, self.catalog, self.storages, parts, timing, self.turns, under_way, self.clock)
        self.remover = Remover(self.index, timing, self.turns, self.clock)
        evictor = Evictor(self.index, self.catalog, self.remover, ladders, self.events, taking, self.clock)
        self.reclaimer = Reclaimer(
            self.index,
            self.catalog,
            self.storages,
            evictor,
            parts,
            self.events,
            timing,
            self.turns,
            under_way,
            self.clock,
        )
        self.recount = Recount(self.index, self.catalog, self.turns)
        self.orphans = OrphanScan(self.index, self.storages, self.clock, self.settings.orphan_grace)
        await self.refresh()
        self.is_ready = True

    async def stop(self) -> None:
        """End the background tasks, write the pending uses of blocks to the index, and close everything."""
        await end(self._tasks)
        try:
            await self.touches.flush()
        except IndexUnavailable as error:
            _log.warning("the last uses of blocks were not recorded: %s", error)
        try:
            await self.storages.close()
            await self.index.close()
        finally:
            self.events.close()

    async def refresh(self) -> None:
        """Reload the catalog if another manager may have changed it."""
        if self.catalog.is_stale:
            await self.storages.belong_to(await self._identity(self.storages.owner))
            await self.catalog.load()
            await self.storages.keep(self.catalog.storages.values())

    async def reclaim(self) -> Reclaimed:
        """Run one pass of the reclaimer, even if this manager is not the leader."""
        began = time.monotonic()
        done = await self.reclaimer.reclaim()
        self.metrics.reclaimed(done, time.monotonic() - began)
        await self._count_evictions(done)
        return done

    async def move(self) -> Moved:
        """Run one pass of the mover, even if this manager is not the leader."""
        done = await self.mover.move()
        self.metrics.moved(done)
        return done

    async def _count_evictions(self, done: Reclaimed) -> None:
        """Add evictions to the totals per group in the index, where all managers and later leaders can read them."""
        lost = {Address(spaces.EVICTIONS, name.encode()): removed for name, removed in done.evicted_of.items()}

        def modifier(found: Found) -> dict[Address, Evictions]:
            before = {address: found[address] or Evictions() for address in lost}
            return {
                address: Evictions(before[address].blocks + removed.blocks, before[address].bytes + removed.bytes)
                for address, removed in lost.items()
            }

        if lost:
            await self.index.read_modify_write(list(lost), modifier)

    async def _identity(self, known: str = "") -> str:
        """Returns the name of the index. Storages record this name as their owner.

        If the index has lost its name but has storages, it gets the name ``known`` again, because under another name
        each storage would need a takeover. An index without name and storages gets a new name.

        Args:
            known: name of the index that this manager read before, or empty.
        """
        address = Address(spaces.IDENTITY, b"name")
        names: list[str] = []
        is_empty = not await self.index.count(spaces.STORAGES)

        def modifier(found: Found) -> dict[Address, str]:
            names[:] = [found[address] or ("" if is_empty else known) or secrets.token_hex(8)]
            return {} if found[address] else {address: names[0]}

        await self.index.read_modify_write([address], modifier)
        return names[0]

    async def _look_at_identity(self) -> None:
        """Discard all cached records if the store now contains a different index, for example after a restore."""
        (found,) = await self.index.get_stored(spaces.IDENTITY, [b"name"])
        if found is None or found.value != self.storages.owner:
            self.index.forget()

    async def _has_storage(self, name: str) -> bool:
        (found,) = await self.index.get_stored(spaces.STORAGES, [name.encode()])
        return found is not None

    async def _reclaim_if_leader(self) -> None:
        self.leads = await self.index.backend.lead(self.name, _LEASE_SECONDS)
        # This call also checks that the index answers, because with some stores ``lead`` sends no request.
        await self._look_at_identity()
        self._note_shortage(await self.index.backend.keep_reserve())
        self.is_ready = True
        if self.leads:
            await self.catalog.mend_zones()
            await self.reclaim()
        # Log the recovery only after a complete pass, because the index may answer some calls but still fail each pass.
        if self._logged and not self.problem:
            self._logged = ""
            _log.info("the index answers and has room again")

    def _note_shortage(self, shortage: str) -> None:
        self.problem = shortage
        if shortage:
            self._tell(f"new blocks are refused: {shortage}")

    def _tell(self, problem: str) -> None:
        if problem != self._logged:
            self._logged = problem
            _log.warning("%s", problem)

    async def _move_if_leader(self) -> None:
        if self.leads:
            await self.move()

    async def _recount_if_leader(self) -> None:
        if self.leads:
            await self.recount.recount_if_needed()

    async def _scan_if_leader(self) -> None:
        if self.leads:
            removed = await self.orphans.scan()
            self.metrics.orphans.inc(removed)
            if removed:
                _log.info("removed %d objects without a record", removed)

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except IndexFull as error:
                # The manager stays ready and leader, because only new blocks need room in the index.
                self._note_shortage(str(error))
            except IndexUnavailable as error:
                if self.is_ready:
                    self._tell(str(error))
                self.is_ready = False
                self.leads = False
                self.problem = str(error)
            except StorageError as error:
                _log.warning("%s", error)
            except Exception:
                # Catch every exception, because a failed pass must not end the task.
                _log.exception("a background task failed; retrying")
            await asyncio.sleep(seconds)
