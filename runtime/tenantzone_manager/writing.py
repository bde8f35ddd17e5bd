"""StartWriteCache and FinishWriteCache: two-phase writes, for which bytes are reserved with the first phase."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Final

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.changing import change_blocks
from tenantzone_manager.core.deadlines import CALL_SECONDS, UnderWay, extend
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.records import Block
from tenantzone_manager.core.settings import Instance
from tenantzone_manager.core.writing import (
    Ending,
    Standing,
    depths_of,
    finish,
    location_of,
    parents_of,
    standings,
)
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.parts import Parts
from tenantzone_manager.reading import LocationPlace
from tenantzone_manager.reserving import Reserver
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import Timing
from tenantzone_manager.turns import READ_AT_ONCE, WRITE_AT_ONCE, Turns, caller_of, parts_of
from tenantzone_manager.write_plans import Write, specs_and_names, write_parts

_SAME_SECONDS: Final = 1.0
"""That a call may take without its writer getting them back."""


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
        under_way: hears of the writes for which calls are under way.
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
        under_way: UnderWay,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._storages = storages
        self._reserver = Reserver(index, catalog, storages, parts)
        self._timing = timing
        self._turns = turns
        self._under_way = under_way
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
        seconds = min(self._timing.write if write_seconds is None else write_seconds, self._timing.longest_write)
        until = now + seconds + (CALL_SECONDS if len(wanted) > WRITE_AT_ONCE else 0.0)
        write_id = secrets.token_urlsafe(9).replace("-", "_")
        write = Write(instance, keys, parents, depths, specs, names, write_id, until, now)
        with self._under_way.of(write_id):
            locations = await self._write(write, wanted, first, whole, made)
            deadline = await self._deadline(write, seconds, list(locations))
        return Started(write_id if locations else "", deadline, made, locations)

    async def _write(
        self, write: Write, wanted: Sequence[int], first: int, whole: bool, made: list[Standing]
    ) -> dict[int, LocationPlace]:
        """Reserve room for the blocks of a write.

        Args:
            write: as it was asked for.
            wanted: the blocks that are missing.
            first: of the blocks that the caller has.
            whole: whether nothing is to be written where not all can be.
            made: what each block is to the writer; gets what became of those that are wanted.

        Returns:
            By index, where the blocks are to be written.
        """
        keys, caller = write.keys, caller_of(write.instance)
        locations: dict[int, LocationPlace] = {}
        failed: set[str] = set()
        # Before any part is begun: what is taken back uses its bytes until its deadline.
        if whole and len(wanted) > WRITE_AT_ONCE and not await self._reserver.has_room(write, wanted):
            for index in wanted:
                made[index] = Standing.NO_ROOM
            wanted = []
        ends = sorted(set(range(len(keys))).difference(write.parents, wanted)) if wanted else []
        parts = zip_longest(write_parts(wanted), write_parts(ends), fillvalue=())
        for number, (some, its_ends) in enumerate(parts):
            if number:
                await self._turns.take(caller)
            left = await self._reserver.begin(write, some, its_ends, whole, failed, made, locations)
            for index in left:
                made[index] = Standing.NO_ROOM
            if whole and left:
                break
        lacking = next((each for each in (Standing.NO_ROOM, Standing.NO_PREFIX) if each in made[first:]), None)
        if whole and lacking and wanted:
            # What it lacks was there, or seemed to have room, when the rest was begun.
            for part in write_parts(list(locations)):
                await self._reserver.take_back(write, part)
                await self._turns.take(caller)
            for index in wanted:
                if made[index] is Standing.WRITE:
                    made[index] = lacking
            locations = {}
        return locations

    async def _deadline(self, write: Write, seconds: float, indices: Sequence[int]) -> float:
        """When the writer is taken for dead, whose time begins with the answer: not while its call waited.

        Args:
            write: whose blocks have been begun.
            seconds: that the writer has.
            indices: of the blocks that are to be written.
        """
        now, until = self._clock(), write.until
        waited = now - write.now
        if indices and now + seconds > until + _SAME_SECONDS:
            # To write that takes no longer than it took to begin them.
            until = min(now + seconds + waited, self._timing.latest(now, self._index.staleness_seconds))
            await self._extend(write.instance, write.id, [write.keys[index] for index in indices], until)
        return min(self._clock() + seconds, until)

    async def _extend(self, instance: Instance, write_id: str, keys: Sequence[bytes], until: float) -> None:
        """Give the writer of these blocks more time, a part of them after the other."""
        for part in parts_of(len(keys), WRITE_AT_ONCE):
            if part.start:
                await self._turns.take(caller_of(instance))

            def change(draft: Draft, _: Found, some: Sequence[bytes] = keys[part]) -> None:
                for key in some:
                    extend(draft, key, write_id, until)

            await change_blocks(self._index, spaces.blocks_of(instance), keys[part], change)

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
        with self._under_way.of(write_id):
            if self._index.backend.is_shared and len(written) > WRITE_AT_ONCE:
                await self._keep_alive(instance, write_id, written)
            for keys, is_written in ((written, True), (failed, False)):
                for part in parts_of(len(keys), WRITE_AT_ONCE):
                    if made:
                        await self._turns.take(caller_of(instance))
                    made += await self._finish(instance, write_id, keys[part], is_written)
        return made

    async def _keep_alive(self, instance: Instance, write_id: str, keys: Sequence[bytes]) -> None:
        """Give a writer more time that has little left: another manager may reclaim, and does not know of its call."""
        (entry,) = await self._index.get(spaces.blocks_of(instance), [keys[-1]])
        location = location_of(entry.value if entry else None, write_id)
        now = self._clock()
        if location is not None and now <= location.until < now + CALL_SECONDS:
            await self._extend(instance, write_id, keys, now + 2 * CALL_SECONDS)

    async def _finish(self, instance: Instance, write_id: str, keys: Sequence[bytes], is_written: bool) -> list[Ending]:
        """End one part of a write."""
        due = self._timing.unread_from(self._clock(), self._index.staleness_seconds)
        endings: list[Ending] = []

        def change(draft: Draft, _: Found) -> None:
            endings[:] = [finish(draft, key, write_id, is_written, due) for key in keys]

        await change_blocks(self._index, spaces.blocks_of(instance), keys, change)
        return endings
