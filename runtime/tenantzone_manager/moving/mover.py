"""The mover: moves hot blocks up and cold blocks down in the background."""

import asyncio
from collections.abc import Callable

from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core.moving import Moved
from tenantzone_manager.core.settings import InstanceGroup
from tenantzone_manager.events.writer import Events
from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.moving.ascent import Ascent
from tenantzone_manager.moving.carrier import Carrier
from tenantzone_manager.moving.copier import Copier
from tenantzone_manager.moving.descent import Descent
from tenantzone_manager.moving.ladders import Ladders
from tenantzone_manager.moving.rounds import Allowances, Round
from tenantzone_manager.moving.used import Used
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import Timing
from tenantzone_manager.writes.parts import Parts


class Mover:
    """Moves blocks of groups whose field ``moves`` is set. Of the managers of an index, only the leader does so.

    Args:
        index: records of blocks.
        catalog: groups and their instances.
        storages: storages to read and write.
        parts: creates the parts of locations.
        ladders: storages that accept copies.
        events: records moved blocks.
        taking: lock held while locations of an instance are chosen and removed.
        timing: time limits of reads and writes.
        clock: returns Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        catalog: Catalog,
        storages: DataStorageManager,
        parts: Parts,
        ladders: Ladders,
        events: Events,
        taking: asyncio.Lock,
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self._catalog = catalog
        self._ladders = ladders
        self._allowances = Allowances(clock)
        self.used = Used(self._moves)
        copier = Copier(index, storages, parts, ladders, timing, clock)
        carrier = Carrier(index, storages, copier, ladders, events, taking, timing, clock)
        self._descent = Descent(index, carrier, copier, ladders)
        self._ascent = Ascent(index, self.used, carrier, copier, self._descent, ladders, clock)

    async def move(self) -> Moved:
        """Run one pass over all groups.

        Raises:
            IndexUnavailable: the index does not answer. Unfinished copies will expire.
        """
        done = Moved()
        for group in list(self._catalog.groups.values()):
            if group.moves is not None:
                await self._move(group, group.moves.bytes_per_second, done)
        return done

    async def _move(self, group: InstanceGroup, bytes_per_second: int, done: Moved) -> None:
        allowance = self._allowances.of(group.name, bytes_per_second)
        round_ = Round(group, self._catalog.instances_of(group.name), self._ladders.of(group), allowance, done)
        if len(round_.rungs) > 1:
            await self._descent.below_watermarks(round_)
            await self._ascent.of_hot_blocks(round_)

    def _moves(self, group: str) -> bool:
        known = self._catalog.groups.get(group)
        return known is not None and known.moves is not None
