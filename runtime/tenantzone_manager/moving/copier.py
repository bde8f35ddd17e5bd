"""Copies blocks from one storage to another, with the same two-phase writes that engines use."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tenantzone_contract.cache.cache_names import copy_name
from tenantzone_manager import spaces
from tenantzone_manager.changing import OtherChanges, change_blocks
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.moving import begin_copy, end_copy, may_be_copied
from tenantzone_manager.core.quota import OverLimit
from tenantzone_manager.core.records import Block, CacheLocation, State
from tenantzone_manager.core.settings import Instance, Spec, Storage
from tenantzone_manager.core.slots import SlotFile
from tenantzone_manager.core.writing import Ending, location_of
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.moving.ladders import RETRY_SECONDS, Ladders
from tenantzone_manager.storages.backend import Place, StorageError
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import Timing
from tenantzone_manager.writes.parts import Parts, SlotsShort, addresses_of

LARGEST_PART: Final = 128 * 2**20
"""Maximum size of a part in bytes, because each part is copied in memory. Blocks with larger parts are not moved."""
_MOST_UNREADABLE: Final = 4096
"""Maximum number of unreadable blocks to remember."""


class Source(NamedTuple):
    """The key of a block, and the location to read."""

    key: bytes
    location: CacheLocation


def is_small_enough(block: Block) -> bool:
    """Returns whether each part of a block is small enough to be copied in memory."""
    return all(part.size <= LARGEST_PART for location in block.serving() for part in location.specs)


class Copier:
    """Copies blocks, one part at a time to bound memory.

    The manager reads a location under a lease, like an engine. The lease begins with the copy. If the lease ends before
    the copy is complete, the copy fails. If the process ends, the copy expires like any write whose writer has died.

    Args:
        index: records of blocks.
        storages: storages to read and write.
        parts: creates the parts of locations.
        ladders: is notified of storages that refuse writes.
        timing: time limits of reads and writes.
        clock: returns Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        storages: DataStorageManager,
        parts: Parts,
        ladders: Ladders,
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._storages = storages
        self._parts = parts
        self._ladders = ladders
        self._timing = timing
        self._clock = clock
        self._unreadable: dict[tuple[str, bytes], float] = {}

    async def copy(
        self, instance: Instance, sources: Sequence[Source], target: Storage, failed: Counter[str]
    ) -> list[Source]:
        """Copy blocks to a storage.

        Args:
            instance: instance of the blocks.
            sources: locations to read.
            target: target storage.
            failed: counts failed copies by reason: ``read``, ``write``, ``size`` (the written object has a different
                size), ``late`` (the lease for reading has ended), ``gone`` (the source was removed).

        Returns:
            The sources whose copies can be read now.

        Raises:
            IndexUnavailable: the index does not answer. Copies that have begun will expire.
        """
        readable_until = self._clock() + self._timing.lease
        copies = await self._begin(instance, sources, target, readable_until + self._timing.write)
        begun = [source for source in sources if source.key in copies]
        whole: set[bytes] = set()
        problem = await self._make_writable(instance, copies, target)
        for source in begun:
            why = problem or await self._copy_parts(instance, source, copies[source.key], readable_until)
            if not why:
                whole.add(source.key)
                continue
            failed[why] += 1
            if why == "read":
                self._note_unreadable(instance, source.key)
            else:
                # The remaining blocks are not tried, because they would fail for the same reason.
                problem = why
        if problem:
            self._ladders.shun(target.name)
        return await self._end(instance, begun, copies, whole, failed)

    def is_readable(self, instance: Instance, key: bytes) -> bool:
        """Returns whether to try to read a block. Returns False for ``RETRY_SECONDS`` after a failed read."""
        return self._unreadable.get((instance.name, key), 0.0) <= self._clock()

    async def _begin(
        self, instance: Instance, sources: Sequence[Source], target: Storage, deadline: float
    ) -> dict[bytes, CacheLocation]:
        """Begin copies of blocks, or none of them if there is not enough room; returns the new locations by key."""
        specs = {each.key: [Spec(part.name, part.size) for part in each.location.specs] for each in sources}
        files = await self._parts.files(instance.group, ((target.name, some) for some in specs.values()))
        ids = {each.key: copy_name(each.location.id, secrets.token_hex(4)) for each in sources}
        copies: dict[bytes, CacheLocation] = {}
        changed: dict[Address, SlotFile] = {}

        def change(draft: Draft, found: Found) -> OtherChanges:
            copies.clear()
            changed.clear()
            for key, source in sources:
                block = draft.get(key)
                own = location_of(block, ids[key])
                if own is not None:
                    # An earlier attempt of this commit took effect, but the answer of the index was lost.
                    copies[key] = own
                elif may_be_copied(block, source.id, target.type):
                    parts = self._parts.take(target.name, specs[key], files, found, changed)
                    copies[key] = CacheLocation(ids[key], target.type, target.name, State.WRITING, deadline, parts)
                    begin_copy(draft, key, copies[key])
            return dict(changed)

        try:
            await change_blocks(self._index, spaces.blocks_of(instance), specs, change, addresses_of(files))
        except OverLimit:
            return {}
        except SlotsShort:
            await self._parts.look_again(files)
            return {}
        self._parts.note(changed)
        return copies

    async def _make_writable(self, instance: Instance, copies: Mapping[bytes, CacheLocation], target: Storage) -> str:
        try:
            places = [_place(instance, key, copy) for key, copy in copies.items()]
            await self._storages.create(target.name, places)
        except StorageError:
            return "write"
        return ""

    async def _copy_parts(self, instance: Instance, source: Source, copy: CacheLocation, readable_until: float) -> str:
        """Copy the parts of a block; returns the reason for a failure, or an empty string."""
        read, written = _place(instance, source.key, source.location), _place(instance, source.key, copy)
        for part, new_part in zip(source.location.specs, copy.specs, strict=True):
            try:
                async with asyncio.timeout(max(0.0, readable_until - self._clock())):
                    content = await self._storages.read(read, part)
            except StorageError:
                return "read"
            except TimeoutError:
                return "late"
            if self._clock() > readable_until:
                # After the lease, the location may have been reused, so the bytes may belong to another block.
                return "late"
            try:
                async with asyncio.timeout(self._timing.write):
                    await self._storages.write(written, new_part, content)
            except (StorageError, TimeoutError):
                return "write"
        try:
            (is_whole,) = await self._storages.exist(copy.storage, [written])
        except StorageError:
            return "write"
        return "" if is_whole else "size"

    async def _end(
        self,
        instance: Instance,
        begun: Sequence[Source],
        copies: Mapping[bytes, CacheLocation],
        whole: set[bytes],
        failed: Counter[str],
    ) -> list[Source]:
        """End copies. Complete copies become readable, and all other copies are deleted.

        Returns:
            The sources whose copies can be read now.
        """
        if not begun:
            return []
        due = self._timing.unread_from(self._clock(), self._index.staleness_seconds)
        endings: dict[bytes, Ending] = {}

        def change(draft: Draft, _: Found) -> None:
            for key, source in begun:
                endings[key] = end_copy(draft, key, source.id, copies[key].id, key in whole, due)

        await change_blocks(self._index, spaces.blocks_of(instance), copies, change)
        served = [source for source in begun if endings[source.key] is Ending.SERVING]
        if lost := len(whole) - len(served):
            failed["gone"] += lost
        return served

    def _note_unreadable(self, instance: Instance, key: bytes) -> None:
        if len(self._unreadable) >= _MOST_UNREADABLE:
            self._unreadable.clear()
        self._unreadable[instance.name, key] = self._clock() + RETRY_SECONDS


def _place(instance: Instance, key: bytes, location: CacheLocation) -> Place:
    return Place(instance.group, instance.name, key, location)
