"""The reclaimer: ends expired writes, deletes locations that are due and evicts surplus blocks, in the background."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.changing import OtherChanges, change_blocks
from tenantzone_manager.core import books
from tenantzone_manager.core.deadlines import UnderWay, expire
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.reclaiming import Reclaimed
from tenantzone_manager.core.records import CacheLocation, State
from tenantzone_manager.core.settings import InstanceGroup
from tenantzone_manager.core.slots import SlotFile
from tenantzone_manager.core.writing import forget, hasten, postpone
from tenantzone_manager.events.writer import Events
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.reclaims.evicting import Evictor
from tenantzone_manager.storages.backend import Place, StorageError, slot_bytes
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import Timing
from tenantzone_manager.turns import IN_BACKGROUND, WRITE_AT_ONCE, Turns, parts_of
from tenantzone_manager.writes.parts import Parts
from tenantzone_manager.writes.slot_files import file_key

_AT_ONCE: Final = 256
"""Maximum number of blocks to delete together."""
RETRY_SECONDS: Final = 10.0
"""Seconds after which a failed deletion is retried."""
_WORKERS: Final = 8
"""Maximum number of concurrent deletions."""

_log = logging.getLogger(__name__)


class Reclaimer:
    """Reclaims bytes. Of the managers that share an index, only the leader runs a reclaimer.

    Args:
        index: records of blocks.
        catalog: groups with their quotas. Blocks of groups that are not in the catalog are not reclaimed.
        storages: storages that delete the bytes.
        evictor: takes surplus blocks out of service.
        parts: is notified of free slots.
        events: records expired writes and deleted blocks.
        timing: time limits of readers and writers.
        turns: makes long passes wait for their turns.
        under_way: the writes for which this process is handling a call.
        clock: returns Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        catalog: Catalog,
        storages: DataStorageManager,
        evictor: Evictor,
        parts: Parts,
        events: Events,
        timing: Timing,
        turns: Turns,
        under_way: UnderWay,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._storages = storages
        self._under_way = under_way
        self._evictor = evictor
        self._parts = parts
        self._events = events
        self._timing = timing
        self._turns = turns
        self._clock = clock
        self._workers = asyncio.Semaphore(_WORKERS)
        self._not_deleting: set[str] = set()
        """Names of the storages whose last deletion failed."""

    async def reclaim(self) -> Reclaimed:
        """Run one pass over all groups.

        Raises:
            IndexUnavailable: the index does not answer. Completed steps are not undone.
        """
        done = Reclaimed()
        for group in list(self._catalog.groups.values()):
            await self._hasten(group)
            done.expired += await self._expire(group)
            await self._delete_due(group, done)
        await self._evictor.evict(done)
        return done

    async def _hasten(self, group: InstanceGroup) -> None:
        """Correct implausibly late due times, which a manager with a wrong clock may have set."""
        now, staleness = self._clock(), self._index.staleness_seconds
        latest = self._timing.latest(now, staleness)
        ways = (
            (books.WRITING, State.WRITING, now + self._timing.write),
            (books.DELETING, State.DELETING, self._timing.unread_from(now, staleness)),
        )
        for kind, state, until in ways:
            change = partial(_hasten, state=state, latest=latest, until=until)
            queue = books.queue(kind, group.name)
            while late := await self._index.lowest(queue, WRITE_AT_ONCE, above=latest):
                await self._turns.take(IN_BACKGROUND)
                for instance, keys in _by_instance(late).items():
                    await change_blocks(self._index, _space(group.name, instance), keys, partial(change, keys))

    async def _expire(self, group: InstanceGroup) -> int:
        """Mark the locations of dead writers for deletion; returns the number of marked locations."""
        expired = 0
        while True:
            await self._turns.take(IN_BACKGROUND)
            now = self._clock()
            due = await self._index.lowest(books.queue(books.WRITING, group.name), WRITE_AT_ONCE, now)
            if not due:
                return expired
            until = self._timing.unread_from(now, self._index.staleness_seconds)
            for instance, keys in _by_instance(due).items():
                gone: dict[bytes, list[CacheLocation]] = {}

                def change(
                    draft: Draft,
                    _: Found,
                    keys: list[bytes] = keys,
                    now: float = now,
                    until: float = until,
                    gone: dict[bytes, list[CacheLocation]] = gone,
                ) -> None:
                    gone.clear()
                    for key in keys:
                        left = expire(draft, key, now, until, self._under_way.has)
                        if left:
                            gone[key] = left

                await change_blocks(self._index, _space(group.name, instance), keys, change)
                self._note("expire_write", group.name, instance, list(gone))
                expired += sum(map(len, gone.values()))

    async def _delete_due(self, group: InstanceGroup, done: Reclaimed) -> None:
        """Delete locations that no reader uses any more, and release their bytes."""
        until = self._clock()
        while due := await self._index.lowest(books.queue(books.DELETING, group.name), _AT_ONCE, until):
            await asyncio.gather(
                *(self._delete(group.name, instance, keys, until, done) for instance, keys in _by_instance(due).items())
            )

    async def _delete(self, group: str, instance: str, keys: list[bytes], until: float, done: Reclaimed) -> None:
        async with self._workers:
            space = _space(group, instance)
            entries = await self._index.get(space, keys)
            by_storage: dict[str, list[Place]] = defaultdict(list)
            for key, entry in zip(keys, entries, strict=True):
                for location in books.locations_due(entry.value, State.DELETING, until) if entry else ():
                    by_storage[location.storage].append(Place(group, instance, key, location))
            for storage, places in by_storage.items():
                try:
                    await self._storages.delete(storage, places)
                except StorageError as error:
                    if storage not in self._not_deleting:
                        self._not_deleting.add(storage)
                        _log.warning("storage %s: %d locations could not be deleted: %s", storage, len(places), error)
                    done.failed += len(places)
                    for part in parts_of(len(places), WRITE_AT_ONCE):
                        await self._turns.take(IN_BACKGROUND)
                        await self._postpone(space, places[part], until + RETRY_SECONDS)
                    continue
                if storage in self._not_deleting:
                    self._not_deleting.discard(storage)
                    _log.info("storage %s: locations can be deleted again", storage)
                gone: list[Place] = []
                for part in parts_of(len(places), WRITE_AT_ONCE):
                    await self._turns.take(IN_BACKGROUND)
                    gone += await self._forget(space, places[part])
                self._note("delete", group, instance, list(dict.fromkeys(place.key for place in gone)), storage)
                done.deleted += len(gone)

    async def _postpone(self, space: str, places: list[Place], until: float) -> None:
        """Postpone failed deletions, so that they do not block deletions in other storages."""

        def change(draft: Draft, _: Found) -> None:
            for place in places:
                postpone(draft, place.key, place.location.id, until)

        await change_blocks(self._index, space, [place.key for place in places], change)

    async def _forget(self, space: str, places: list[Place]) -> list[Place]:
        """Remove locations from the records after their bytes were deleted, and free their slots."""
        gone: list[Place] = []
        files: dict[Address, SlotFile] = {}

        def change(draft: Draft, found: Found) -> OtherChanges:
            gone.clear()
            files.clear()
            slots: dict[Address, list[int]] = defaultdict(list)
            for place in places:
                for location in forget(draft, place.key, {place.location.id}):
                    gone.append(place)
                    for address, slot in _slots(place.group, location):
                        slots[address].append(slot)
            for address, freed in slots.items():
                if found[address] is not None:
                    files[address] = found[address].give_back(freed)
            return dict(files)

        addresses = {address for place in places for address, _ in _slots(place.group, place.location)}
        await change_blocks(self._index, space, [place.key for place in places], change, addresses)
        self._parts.note(files)
        return gone

    def _note(self, event: str, group: str, instance: str, keys: Sequence[bytes], storage: str = "") -> None:
        if keys:
            known = self._catalog.instances.get(instance)
            pool = known.pool if known else ""
            self._events.note(event, pool=pool, group=group, instance=instance, storage=storage, keys=keys)


def _hasten(keys: list[bytes], draft: Draft, _: Found, *, state: State, latest: float, until: float) -> None:
    for key in keys:
        hasten(draft, key, state, latest, until)


def _space(group: str, instance: str) -> str:
    return f"blocks/{group}/{instance}"


def _by_instance(due: Iterable[tuple[bytes, float]]) -> dict[str, list[bytes]]:
    made: dict[str, list[bytes]] = defaultdict(list)
    for name, _ in due:
        instance, key = books.of_member(name)
        made[instance].append(key)
    return made


def _slots(group: str, location: CacheLocation) -> list[tuple[Address, int]]:
    """Returns the slots of large files that a location uses."""
    space = spaces.slots_of(group, location.storage)
    return [
        (Address(space, file_key(slot_bytes(spec.size), spec.file)), spec.slot)
        for spec in location.specs
        if spec.slot >= 0
    ]
