"""Reserves room for the blocks of a write, one part of the write at a time, in storages that have room."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.changing import OtherChanges, change_blocks
from tenantzone_manager.core import placement
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.quota import OverLimit
from tenantzone_manager.core.records import CacheLocation, State
from tenantzone_manager.core.slots import SlotFile
from tenantzone_manager.core.writing import WriteStatus, attempt_id, begin, finish, location_of, use, write_status_of
from tenantzone_manager.index.backend import Address, IndexFull
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.reads.reading import LocationPlace, place_of
from tenantzone_manager.storages.backend import Place, StorageError
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.writes.parts import Parts, SlotsShort, addresses_of
from tenantzone_manager.writes.write_plans import Plan, Write, key_before

_TRIES: Final = 8
"""Maximum number of attempts to reserve room, because concurrent writes may take the room first."""


class Reserver:
    """Reserves locations for blocks.

    Args:
        index: records of blocks.
        catalog: groups and their storages.
        storages: storages for the blocks.
        parts: creates the parts of locations.
    """

    def __init__(self, index: MetaIndex, catalog: Catalog, storages: DataStorageManager, parts: Parts) -> None:
        self._index = index
        self._catalog = catalog
        self._storages = storages
        self._parts = parts

    async def has_room(self, write: Write, wanted: Sequence[int]) -> bool:
        """Returns whether the storages currently have room for all wanted blocks, without reserving room."""
        return len((await self._plan(write, wanted, (), ())).places) == len(wanted)

    async def begin(
        self,
        write: Write,
        wanted: Sequence[int],
        ends: Sequence[int],
        whole: bool,
        failed: set[str],
        made: list[WriteStatus],
        locations: dict[int, LocationPlace],
    ) -> Sequence[int]:
        """Begin one part of a write.

        Args:
            write: the whole write.
            wanted: indices of the part's blocks.
            ends: indices of other blocks whose use is recorded in the same commit.
            whole: if true, begin either all blocks of the part or none of them.
            failed: names of excluded storages; receives the storages that fail in this call.
            made: receives the write status of each block.
            locations: receives the locations of the blocks to write.

        Returns:
            The indices of the blocks for which there is no room.
        """
        for _ in range(_TRIES):
            if not wanted and not ends:
                break
            plan = await self._plan(write, wanted, ends, failed)
            if whole and len(plan.places) < len(wanted):
                break
            try:
                taken, became = await self._reserve(plan, attempt_id(write.id, len(failed)))
            except (OverLimit, SlotsShort):
                continue
            except IndexFull:
                break
            for index in wanted:
                made[index] = became.get(index, WriteStatus.NO_ROOM)
            wanted, ends = await self._make_writable(write, taken, failed, locations), ()
        return wanted

    async def _plan(self, write: Write, wanted: Sequence[int], ends: Sequence[int], failed: Collection[str]) -> Plan:
        instance = write.instance
        group = self._catalog.groups.get(instance.group)
        names = [name for name in (group.storages if group else ()) if name not in failed]
        available = self._storages.get_available_storage(names)
        candidates = [placement.Candidate(each.name, each.type) for each in available]
        owner = spaces.owner_of(spaces.blocks_of(instance))
        accounts = await self._index.accounts(placement.accounts_of(owner, candidates))
        sizes = [sum(spec.size for spec in write.specs[index]) for index in wanted]
        chosen = placement.place(sizes, owner, candidates, accounts)
        places = {index: place for index, place in zip(wanted, chosen, strict=True) if place is not None}
        wanted_parts = ((place.name, write.specs[index]) for index, place in places.items())
        files = await self._parts.files(instance.group, wanted_parts)
        return Plan(write, places, files, ends)

    async def _reserve(self, plan: Plan, location_id: str) -> tuple[dict[int, CacheLocation], dict[int, WriteStatus]]:
        """Begin all locations of a plan, except for blocks that another writer has begun meanwhile.

        Returns:
            The begun locations and the write statuses, by index.
        """
        taken: dict[int, CacheLocation] = {}
        became: dict[int, WriteStatus] = {}
        slot_files: dict[Address, SlotFile] = {}
        write = plan.write
        ends = [write.keys[index] for index in plan.ends]

        def change(draft: Draft, found: Found) -> OtherChanges:
            for kept in (taken, became, slot_files):
                kept.clear()
            for index, place in plan.places.items():
                before = key_before(write, index)
                block = draft.get(write.keys[index])
                own = location_of(block, location_id)
                if own is not None and own.state is State.WRITING:
                    # An earlier attempt of this commit took effect, but the answer of the index was lost.
                    taken[index], became[index] = own, WriteStatus.WRITE
                    continue
                status = write_status_of(block, self._storages.is_available, write.names[index])
                needs_prefix = write.instance.needs_prefix
                if status is WriteStatus.WRITE and needs_prefix and before and not _is_live(draft, before):
                    status = WriteStatus.NO_PREFIX
                became[index] = status
                if status is WriteStatus.WRITE:
                    parts = self._parts.take(place.name, write.specs[index], plan.files, found, slot_files)
                    taken[index] = CacheLocation(location_id, place.type, place.name, State.WRITING, write.until, parts)
                    begin(draft, write.keys[index], before, write.depths[index], taken[index], write.now)
            for key in ends:
                # Record a use of existing blocks of windows. Queries read these blocks together with the new blocks, so
                # they must not be evicted earlier.
                use(draft, key, write.now, 0)
            return dict(slot_files)

        needed = {write.keys[index] for index in plan.places}.union(ends)
        needed |= {before for index in plan.places if (before := key_before(write, index))}
        space = spaces.blocks_of(write.instance)
        try:
            await change_blocks(self._index, space, needed, change, addresses_of(plan.files))
        except SlotsShort:
            await self._parts.look_again(plan.files)
            raise
        self._parts.note(slot_files)
        return taken, became

    async def _make_writable(
        self,
        write: Write,
        taken: Mapping[int, CacheLocation],
        failed: set[str],
        locations: dict[int, LocationPlace],
    ) -> list[int]:
        """Prepare the storages for the reserved locations.

        Returns:
            The indices of the blocks that need another storage.
        """
        again: list[int] = []
        instance, keys = write.instance, write.keys
        for storage in {location.storage for location in taken.values()}:
            here = {index: location for index, location in taken.items() if location.storage == storage}
            places = {index: Place(instance.group, instance.name, keys[index], each) for index, each in here.items()}
            try:
                await self._storages.create(storage, list(places.values()))
            except StorageError:
                failed.add(storage)
                await self.take_back(write, here)
                again += here
                continue
            locations |= {index: place_of(self._storages, place) for index, place in places.items()}
        return sorted(again)

    async def take_back(self, write: Write, indices: Collection[int]) -> None:
        """Mark locations for immediate deletion, which is safe because the writer has not received these locations."""
        keys = [write.keys[index] for index in indices]

        def change(draft: Draft, _: Found) -> None:
            for key in keys:
                finish(draft, key, write.id, False, write.now)

        await change_blocks(self._index, spaces.blocks_of(write.instance), keys, change)


def _is_live(draft: Draft, key: bytes) -> bool:
    block = draft.get(key)
    return block is not None and bool(block.live_types)
