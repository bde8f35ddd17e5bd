"""StartWriteCache and FinishWriteCache: two-phase writes, for which bytes are reserved with the first phase."""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.changing import Beside, change_blocks
from tenantzone_manager.core import placement
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.quota import OverLimit
from tenantzone_manager.core.records import Block, CacheLocation, State
from tenantzone_manager.core.settings import Instance
from tenantzone_manager.core.slots import SlotFile
from tenantzone_manager.core.writing import (
    Ending,
    Standing,
    attempt_id,
    begin,
    depths_of,
    finish,
    location_of,
    parents_of,
    standing_of,
    standings,
    use,
)
from tenantzone_manager.index.backend import Address, IndexFull
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.parts import Parts, SlotsShort, addresses_of
from tenantzone_manager.reading import LocationPlace, place_of
from tenantzone_manager.storages.backend import Place, StorageError
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import Timing
from tenantzone_manager.turns import READ_AT_ONCE, WRITE_AT_ONCE, Turns, caller_of, parts_of
from tenantzone_manager.write_plans import Plan, Write, key_before, specs_and_names, write_parts

_TRIES: Final = 8
"""To find room that others take meanwhile."""


@dataclass(frozen=True, slots=True)
class Started:
    """The answer to StartWriteCache."""

    write_id: str
    """For FinishWriteCache; empty: there is nothing to write."""
    deadline: float
    """Unix time at which the writer is taken for dead."""
    standings: list[Standing]
    """Of each block."""
    locations: dict[int, LocationPlace]
    """By index, where to write the blocks that stand at ``write``."""


class Writer:
    """Lets blocks be written, by two calls.

    Args:
        index: what is known of blocks.
        catalog: groups and their storages.
        storages: where blocks may go.
        parts: makes what locations consist of.
        timing: how long writes may take.
        turns: in which many blocks are written.
        clock: Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        catalog: Catalog,
        storages: DataStorageManager,
        parts: Parts,
        timing: Timing,
        turns: Turns,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._storages = storages
        self._parts = parts
        self._timing = timing
        self._turns = turns
        self._clock = clock

    async def start_write_cache(
        self,
        instance: Instance,
        keys: Sequence[bytes],
        *,
        first: int = 0,
        parents: Sequence[int] = (),
        spec_sets: Sequence[str] = (),
        whole: bool = False,
        write_seconds: float | None = None,
    ) -> Started:
        """Reserve room for those blocks of a prompt that are missing, and say where they are to be written.

        Args:
            instance: whose.
            keys: of the prompt's blocks, from its beginning.
            first: of the blocks that the caller has; those before it are named only.
            parents: of each block, the index of the block before it in its prompt, and -1 where there is none; empty:
                each follows the one that is named before it. So a write may have what several groups of a model's KV
                caches keep of a prompt: of a window, the last blocks hang on those of full attention.
            spec_sets: of each block from ``first`` on, which parts it has; empty: all, of all blocks.
            whole: whether nothing is to be written where not all that is missing can be: a part would be of no use.
            write_seconds: after how long the writer is taken for dead; None: as usual.

        Raises:
            ValueError: a spec set is none of the instance's, a parent none of the blocks before its own, or there are
                more or fewer of either than blocks.
            IndexUnavailable: the index does not answer; what may be reserved is given back when its time is over.
        """
        caller, is_long = caller_of(instance), len(keys) > READ_AT_ONCE
        specs, names = specs_and_names(instance, len(keys), first, spec_sets)
        if is_long:
            await self._turns.take(caller)
        parents = parents_of(len(keys), parents)
        depths = depths_of(parents)
        made = await self._standings(instance, keys, parents, first, names)
        if is_long:
            await self._turns.take(caller)
        wanted = [index for index, standing in enumerate(made) if standing is Standing.WRITE]
        if whole and Standing.NO_PREFIX in made[first:]:
            for index in wanted:
                made[index] = Standing.NO_PREFIX
            wanted = []
        now = self._clock()
        deadline = now + min(self._timing.write if write_seconds is None else write_seconds, self._timing.longest_write)
        write_id = secrets.token_urlsafe(9).replace("-", "_")
        write = Write(instance, keys, parents, depths, specs, names, write_id, deadline, now)
        locations: dict[int, LocationPlace] = {}
        failed: set[str] = set()
        if whole and len(wanted) > WRITE_AT_ONCE:
            # Before any part is begun: what is taken back uses its bytes until its deadline.
            plan = await self._plan(write, wanted, (), failed)
            if len(plan.places) < len(wanted):
                for index in wanted:
                    made[index] = Standing.NO_ROOM
                wanted = []
        ends = sorted(set(range(len(keys))).difference(parents, wanted)) if wanted else []
        parts = zip_longest(write_parts(wanted), write_parts(ends), fillvalue=())
        for number, (some, its_ends) in enumerate(parts):
            if number:
                await self._turns.take(caller)
            left = await self._begin(write, some, its_ends, whole, failed, made, locations)
            for index in left:
                made[index] = Standing.NO_ROOM
            if whole and left:
                break
        lacking = next((each for each in (Standing.NO_ROOM, Standing.NO_PREFIX) if each in made[first:]), None)
        if whole and lacking and wanted:
            # What it lacks was there, or seemed to have room, when the rest was begun.
            for part in write_parts(list(locations)):
                await self._take_back(write, part)
                await self._turns.take(caller)
            for index in wanted:
                if made[index] is Standing.WRITE:
                    made[index] = lacking
            locations = {}
        return Started(write_id if locations else "", deadline, made, locations)

    async def _standings(
        self,
        instance: Instance,
        keys: Sequence[bytes],
        parents: Sequence[int],
        first: int,
        names: Mapping[int, frozenset[str]],
    ) -> list[Standing]:
        """What each block of a write is to its writer."""
        caller, space = caller_of(instance), spaces.blocks_of(instance)
        blocks: list[Block | None] = []
        async for part in self._turns.parts(caller, len(keys), READ_AT_ONCE):
            blocks += [entry.value if entry else None for entry in await self._index.get(space, keys[part])]
        each = standings(blocks, parents, first, instance.needs_prefix, self._storages.is_available, names)
        made: list[Standing] = []
        async for part in self._turns.parts(caller, len(keys), READ_AT_ONCE):
            made += islice(each, part.stop - part.start)
        return made

    async def _begin(
        self,
        write: Write,
        wanted: Sequence[int],
        ends: Sequence[int],
        whole: bool,
        failed: set[str],
        made: list[Standing],
        locations: dict[int, LocationPlace],
    ) -> Sequence[int]:
        """Begin one part of a write.

        Args:
            write: the whole write.
            wanted: the blocks of the part.
            ends: other blocks whose use is noted in the same commit.
            whole: whether nothing is to be begun where not all of the part can be.
            failed: storages that are not written to any more; gets those that fail now.
            made: gets what each block is to the writer.
            locations: gets where blocks are to be written.

        Returns:
            The blocks for which there is no room.
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
                made[index] = became.get(index, Standing.NO_ROOM)
            wanted, ends = await self._make_writable(write, taken, failed, locations), ()
        return wanted

    async def finish_write_cache(
        self, instance: Instance, write_id: str, written: Sequence[bytes], failed: Sequence[bytes]
    ) -> list[Ending]:
        """End a write: what was written serves from now on, the rest goes; a part of it after the other.

        Args:
            instance: whose.
            write_id: from StartWriteCache.
            written: keys of blocks of which all bytes are in the storage.
            failed: keys of blocks of which not.

        Returns:
            What became of each block, first of the written ones.

        Raises:
            IndexUnavailable: the index does not answer. It may be repeated.
        """
        made: list[Ending] = []
        for keys, is_written in ((written, True), (failed, False)):
            for part in parts_of(len(keys), WRITE_AT_ONCE):
                if made:
                    await self._turns.take(caller_of(instance))
                made += await self._finish(instance, write_id, keys[part], is_written)
        return made

    async def _finish(self, instance: Instance, write_id: str, keys: Sequence[bytes], is_written: bool) -> list[Ending]:
        """End one part of a write."""
        due = self._timing.unread_from(self._clock(), self._index.staleness_seconds)
        endings: list[Ending] = []

        def change(draft: Draft, _: Found) -> None:
            endings[:] = [finish(draft, key, write_id, is_written, due) for key in keys]

        await change_blocks(self._index, spaces.blocks_of(instance), keys, change)
        return endings

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

    async def _reserve(self, plan: Plan, location_id: str) -> tuple[dict[int, CacheLocation], dict[int, Standing]]:
        """Make all of a plan's locations ``writing``, as far as nobody else has come first."""
        taken: dict[int, CacheLocation] = {}
        became: dict[int, Standing] = {}
        slot_files: dict[Address, SlotFile] = {}
        write = plan.write
        ends = [write.keys[index] for index in plan.ends]

        def change(draft: Draft, found: Found) -> Beside:
            for kept in (taken, became, slot_files):
                kept.clear()
            for index, place in plan.places.items():
                before = key_before(write, index)
                block = draft.get(write.keys[index])
                own = location_of(block, location_id)
                if own is not None and own.state is State.WRITING:
                    # An earlier try was made, and its answer was lost.
                    taken[index], became[index] = own, Standing.WRITE
                    continue
                standing = standing_of(block, self._storages.is_available, write.names[index])
                needs_prefix = write.instance.needs_prefix
                if standing is Standing.WRITE and needs_prefix and before and not _is_live(draft, before):
                    standing = Standing.NO_PREFIX
                became[index] = standing
                if standing is Standing.WRITE:
                    parts = self._parts.take(place.name, write.specs[index], plan.files, found, slot_files)
                    taken[index] = CacheLocation(
                        location_id, place.type, place.name, State.WRITING, write.deadline, parts
                    )
                    begin(draft, write.keys[index], before, write.depths[index], taken[index], write.now)
            for key in ends:
                # What is there of windows is of use with what is written now, and is not to go before it.
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
        """Have the storages ready for what was reserved; returns the blocks for which another one has to be found."""
        again: list[int] = []
        instance, keys = write.instance, write.keys
        for storage in {location.storage for location in taken.values()}:
            here = {index: location for index, location in taken.items() if location.storage == storage}
            places = {index: Place(instance.group, instance.name, keys[index], each) for index, each in here.items()}
            try:
                await self._storages.create(storage, list(places.values()))
            except StorageError:
                failed.add(storage)
                await self._take_back(write, here)
                again += here
                continue
            locations |= {index: place_of(self._storages, place) for index, place in places.items()}
        return sorted(again)

    async def _take_back(self, write: Write, indices: Collection[int]) -> None:
        """Let go of locations that the caller was never given: nobody writes there, so their bytes are free at once."""
        keys = [write.keys[index] for index in indices]

        def change(draft: Draft, _: Found) -> None:
            for key in keys:
                finish(draft, key, write.id, False, write.now)

        await change_blocks(self._index, spaces.blocks_of(write.instance), keys, change)


def _is_live(draft: Draft, key: bytes) -> bool:
    block = draft.get(key)
    return block is not None and bool(block.live_types)
