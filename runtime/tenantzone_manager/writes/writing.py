"""StartWriteCache and FinishWriteCache: the two phases of a write. The first phase reserves room for the bytes."""

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
    WriteStatus,
    depths_of,
    finish,
    location_of,
    parents_of,
    write_statuses,
)
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.reads.reading import LocationPlace
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import Timing
from tenantzone_manager.turns import READ_AT_ONCE, WRITE_AT_ONCE, Turns, caller_of, parts_of
from tenantzone_manager.writes.parts import Parts
from tenantzone_manager.writes.reserving import Reserver
from tenantzone_manager.writes.write_plans import Write, specs_and_names, write_parts

_SAME_SECONDS: Final = 1.0
"""If a call takes at most this number of seconds, the writer's deadline is not extended."""


@dataclass(frozen=True, slots=True)
class Started:
    """The answer to StartWriteCache."""

    write_id: str
    """Id of the write for FinishWriteCache; empty if there is nothing to write."""
    deadline: float
    """Unix time at which the writer is presumed dead."""
    statuses: list[WriteStatus]
    """Write status of each block."""
    locations: dict[int, LocationPlace]
    """Locations of the blocks to write, by index."""


class Writer:
    """Handles the calls StartWriteCache and FinishWriteCache.

    Args:
        index: records of blocks.
        catalog: groups and their storages.
        storages: storages for the blocks.
        parts: creates the parts of locations.
        timing: time limits of writes.
        turns: makes writes of many blocks wait for their turns.
        under_way: is notified of the writes for which a call is in progress.
        clock: returns Unix time.
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
        """Reserve room for the missing blocks of a prompt, and return their locations.

        Args:
            instance: instance of the blocks.
            keys: keys of the prompt's blocks from its beginning.
            first: index of the first block whose bytes the caller has. Of earlier blocks, the caller has only the keys.
            parents: for each block, the index of the previous block of its prompt, or -1 for the first block of a
                prompt. If empty, each block follows the preceding block in ``keys``. With parents, one write can
                include blocks of several KV-cache groups, because blocks of a window can follow blocks of full
                attention.
            spec_sets: for each block from ``first`` on, the name of its set of parts. If empty, all blocks have all
                parts.
            whole: if true, reserve room either for all missing blocks or for none of them.
            write_seconds: seconds until the writer is presumed dead; None for the default.

        Raises:
            ValueError: the instance has no such spec set, a parent is not an earlier block, or the number of parents or
                spec sets does not match the number of blocks.
            IndexUnavailable: the index does not answer. Bytes that are already reserved are released when the write
                expires.
        """
        caller, is_long = caller_of(instance), len(keys) > READ_AT_ONCE
        specs, names = specs_and_names(instance, len(keys), first, spec_sets)
        if is_long:
            await self._turns.take(caller)
        parents = parents_of(len(keys), parents)
        depths = depths_of(parents)
        made = await self._write_statuses(instance, keys, parents, first, names)
        if is_long:
            await self._turns.take(caller)
        wanted = [index for index, status in enumerate(made) if status is WriteStatus.WRITE]
        if whole and WriteStatus.NO_PREFIX in made[first:]:
            for index in wanted:
                made[index] = WriteStatus.NO_PREFIX
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
        self, write: Write, wanted: Sequence[int], first: int, whole: bool, made: list[WriteStatus]
    ) -> dict[int, LocationPlace]:
        """Reserve room for the blocks of a write.

        Args:
            write: the requested write.
            wanted: indices of the missing blocks.
            first: index of the first block whose bytes the caller has.
            whole: if true, reserve room either for all missing blocks or for none of them.
            made: write status of each block; updated for the wanted blocks.

        Returns:
            The locations of the blocks to write, by index.
        """
        keys, caller = write.keys, caller_of(write.instance)
        locations: dict[int, LocationPlace] = {}
        failed: set[str] = set()
        # Check that all blocks fit before the first part begins. If a later part failed, the locations of earlier parts
        # would occupy their bytes until the reclaimer deletes them.
        if whole and len(wanted) > WRITE_AT_ONCE and not await self._reserver.has_room(write, wanted):
            for index in wanted:
                made[index] = WriteStatus.NO_ROOM
            wanted = []
        ends = sorted(set(range(len(keys))).difference(write.parents, wanted)) if wanted else []
        parts = zip_longest(write_parts(wanted), write_parts(ends), fillvalue=())
        for number, (some, its_ends) in enumerate(parts):
            if number:
                await self._turns.take(caller)
            left = await self._reserver.begin(write, some, its_ends, whole, failed, made, locations)
            for index in left:
                made[index] = WriteStatus.NO_ROOM
            if whole and left:
                break
        lacking = next((each for each in (WriteStatus.NO_ROOM, WriteStatus.NO_PREFIX) if each in made[first:]), None)
        if whole and lacking and wanted:
            # Undo the begun blocks. When they were begun, the lacking block was still present or seemed to have room.
            for part in write_parts(list(locations)):
                await self._reserver.take_back(write, part)
                await self._turns.take(caller)
            for index in wanted:
                if made[index] is WriteStatus.WRITE:
                    made[index] = lacking
            locations = {}
        return locations

    async def _deadline(self, write: Write, seconds: float, indices: Sequence[int]) -> float:
        """Returns the writer's deadline, which is counted from the answer, not from the beginning of the call.

        The deadline of the begun locations is extended if the call took long.

        Args:
            write: the write, whose locations have been begun.
            seconds: seconds until the writer is presumed dead.
            indices: indices of the blocks to write.
        """
        now, until = self._clock(), write.until
        waited = now - write.now
        if indices and now + seconds > until + _SAME_SECONDS:
            # Add the duration of the call so far, because the extension may take about the same time.
            until = min(now + seconds + waited, self._timing.latest(now, self._index.staleness_seconds))
            await self._extend(write.instance, write.id, [write.keys[index] for index in indices], until)
        return min(self._clock() + seconds, until)

    async def _extend(self, instance: Instance, write_id: str, keys: Sequence[bytes], until: float) -> None:
        """Extend the deadlines of blocks, part by part."""
        for part in parts_of(len(keys), WRITE_AT_ONCE):
            if part.start:
                await self._turns.take(caller_of(instance))

            def change(draft: Draft, _: Found, some: Sequence[bytes] = keys[part]) -> None:
                for key in some:
                    extend(draft, key, write_id, until)

            await change_blocks(self._index, spaces.blocks_of(instance), keys[part], change)

    async def _write_statuses(
        self,
        instance: Instance,
        keys: Sequence[bytes],
        parents: Sequence[int],
        first: int,
        names: Mapping[int, frozenset[str]],
    ) -> list[WriteStatus]:
        """Returns the write status of each block of a write."""
        caller, space = caller_of(instance), spaces.blocks_of(instance)
        blocks: list[Block | None] = []
        async for part in self._turns.parts(caller, len(keys), READ_AT_ONCE):
            blocks += [entry.value if entry else None for entry in await self._index.get(space, keys[part])]
        each = write_statuses(blocks, parents, first, instance.needs_prefix, self._storages.is_available, names)
        made: list[WriteStatus] = []
        async for part in self._turns.parts(caller, len(keys), READ_AT_ONCE):
            made += islice(each, part.stop - part.start)
        return made

    async def finish_write_cache(
        self, instance: Instance, write_id: str, written: Sequence[bytes], failed: Sequence[bytes]
    ) -> list[Ending]:
        """End a write, part by part. Written blocks become readable, and failed blocks are marked for deletion.

        Args:
            instance: instance of the blocks.
            write_id: id from StartWriteCache.
            written: keys of the blocks whose bytes are all stored.
            failed: keys of the other blocks.

        Returns:
            The ending of each block: first of the blocks in ``written``, then of those in ``failed``.

        Raises:
            IndexUnavailable: the index does not answer. The call may be repeated.
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
        """Extend a deadline that is near, because another manager's reclaimer does not know about this call."""
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
