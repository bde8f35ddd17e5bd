"""GetCacheLocation: returns the blocks of a prompt that can be read, and their locations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core.records import Block, CacheLocation, State
from tenantzone_manager.core.settings import Instance
from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.index.search_cache import Entry
from tenantzone_manager.reads.hits import KeyGroup, longest_hit
from tenantzone_manager.reads.touches import Touches
from tenantzone_manager.storages.backend import Place
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.turns import READ_AT_ONCE, Turns, caller_of, parts_of

Query = Literal["key", "prefix", "window", "groups"]
_READ_BACKWARDS: Final = 256
"""Number of keys that a window query looks up at a time."""


class SpecPlace(msgspec.Struct, frozen=True, gc=False):
    """A part of a location, as readers and writers get it."""

    name: str
    uri: str
    size: int
    """Size in bytes."""


class LocationPlace(msgspec.Struct, frozen=True):
    """A location, as readers and writers get it."""

    id: str
    type: str
    storage: str
    specs: list[SpecPlace]


class Readable:
    """The locations where a block can be read, best first. If there are no locations, the block can't be read."""

    __slots__ = ("as_json", "as_proto", "locations", "version")

    def __init__(self, locations: list[LocationPlace], version: object) -> None:
        self.locations = locations
        self.version = version
        self.as_json: msgspec.Raw | None = None
        """Encoded answer, which the server caches here because the same blocks are requested repeatedly."""
        self.as_proto: bytes | None = None


NOWHERE: Final = Readable([], None)


@dataclass(frozen=True, slots=True)
class Match:
    """The blocks found for a query."""

    first: int
    """Index of the key of the first block in ``blocks``."""
    blocks: list[Readable]
    """The blocks that can be read. For a query by key, one item per key; ``NOWHERE`` for unreadable blocks."""
    hit: int = 0
    """For a query by groups, the length of the prefix in blocks. ``blocks`` are then ordered by group."""
    hit_keys: Sequence[bytes] = ()
    """For a query by groups, the keys of ``blocks``, including the suffixes of their groups."""


class Reader:
    """Answers queries for the locations of blocks.

    Args:
        index: records of blocks.
        catalog: groups and their storages.
        storages: all storages. Locations in unavailable storages are left out.
        touches: collects the uses of blocks.
        turns: makes long queries wait for their turns.
        clock: returns Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        catalog: Catalog,
        storages: DataStorageManager,
        touches: Touches,
        turns: Turns,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._storages = storages
        self._touches = touches
        self._turns = turns
        self._clock = clock

    async def get_cache_location(
        self,
        instance: Instance,
        keys: Sequence[bytes],
        query: Query,
        window: int = 0,
        specs: frozenset[str] = frozenset(),
    ) -> Match:
        """Returns the blocks that can be read, with their locations.

        Args:
            instance: instance of the blocks.
            keys: keys of blocks. Except for a query by key, these are the keys of a prompt from its beginning.
            query: ``key`` returns each block on its own. ``prefix`` returns the blocks before the first one that can't
                be read. ``window`` finds the longest prefix whose last ``window`` blocks can be read, and returns these
                blocks. A prefix that is shorter than the window needs all of its blocks.
            window: number of blocks in the window.
            specs: names of the parts that a location must have. If empty, locations with any parts are returned.
        """
        space = spaces.blocks_of(instance)
        if query == "key":
            return Match(0, await self._each(instance, space, keys, specs))
        if query == "prefix":
            match = await self._prefix(instance, space, keys, specs)
        else:
            match = await self._window(instance, space, keys, window, specs)
        if match.blocks:
            self._touches.note(space, [keys[match.first + len(match.blocks) - 1]], self._clock())
        return match

    async def _each(
        self, instance: Instance, space: str, keys: Sequence[bytes], specs: frozenset[str]
    ) -> list[Readable]:
        blocks: list[Readable] = []
        async for part in self._turns.parts(caller_of(instance), len(keys), READ_AT_ONCE):
            here = await self._look_up(instance, space, keys[part], specs)
            used = [key for key, block in zip(keys[part], here, strict=True) if block.locations]
            self._touches.note(space, used, self._clock())
            blocks += here
        return blocks

    async def _look_up(
        self, instance: Instance, space: str, keys: Sequence[bytes], specs: frozenset[str]
    ) -> list[Readable]:
        """Looks up all blocks without waiting for a turn; returns the locations of each block."""
        found = await self._index.get(space, keys)
        return [
            NOWHERE if entry is None else self._readable(instance, key, entry, specs)
            for key, entry in zip(keys, found, strict=True)
        ]

    async def _prefix(self, instance: Instance, space: str, keys: Sequence[bytes], specs: frozenset[str]) -> Match:
        blocks: list[Readable] = []
        for part in parts_of(len(keys), READ_AT_ONCE):
            if blocks:
                await self._turns.take(caller_of(instance))
            for key, entry in zip(keys[part], await self._index.get_prefix(space, keys[part]), strict=False):
                block = self._readable(instance, key, entry, specs)
                if not block.locations:
                    return Match(0, blocks)
                blocks.append(block)
            if len(blocks) < part.stop:
                break
        return Match(0, blocks)

    async def _window(
        self, instance: Instance, space: str, keys: Sequence[bytes], window: int, specs: frozenset[str]
    ) -> Match:
        run: list[Readable] = []
        first = 0
        for end in range(len(keys), 0, -_READ_BACKWARDS):
            if end < len(keys):
                await self._turns.take(caller_of(instance))
            begin = max(0, end - _READ_BACKWARDS)
            found = await self._index.get(space, keys[begin:end])
            for index in range(end - 1, begin - 1, -1):
                entry = found[index - begin]
                block = NOWHERE if entry is None else self._readable(instance, keys[index], entry, specs)
                if block.locations:
                    run.append(block)
                else:
                    run.clear()
                first = index
                if len(run) == window:
                    return Match(first, run[::-1])
        return Match(first if run else 0, run[::-1])

    async def get_hit(self, instance: Instance, keys: Sequence[bytes], groups: Sequence[KeyGroup]) -> Match:
        """Returns the longest prefix of a prompt for which each KV-cache group can read the blocks it needs.

        Args:
            instance: instance of the blocks.
            keys: keys of the prompt's blocks from its beginning, without suffixes.
            groups: KV-cache groups of the model.

        Returns:
            The needed blocks, group by group, each in prompt order.
        """
        space = spaces.blocks_of(instance)

        async def look_up(names: Sequence[bytes]) -> list[Readable]:
            found: list[Readable] = []
            for part in parts_of(len(names), READ_AT_ONCE):
                # Take a turn even for the first part, because one query may need thousands of small lookups.
                await self._turns.take(caller_of(instance))
                found += await self._look_up(instance, space, names[part], frozenset())
            return found

        async def look_up_prefix(names: Sequence[bytes]) -> list[Readable]:
            return (await self._prefix(instance, space, names, frozenset())).blocks

        hit = await longest_hit(keys, groups, look_up, look_up_prefix)
        now = self._clock()
        self._touches.note(space, hit.ends, now)
        self._touches.note(space, hit.in_windows, now, is_beside=bool(hit.ends))
        return Match(0, hit.blocks, hit.length, hit.keys)

    def _readable(self, instance: Instance, key: bytes, entry: Entry, specs: frozenset[str]) -> Readable:
        known: Readable | None = entry.rendered.get(specs)
        version = self._storages.version
        if known is None or known.version != version:
            known = entry.rendered[specs] = Readable(self._locations(instance, key, entry.value, specs), version)
        return known

    def _locations(self, instance: Instance, key: bytes, block: Block, specs: frozenset[str]) -> list[LocationPlace]:
        usable = [
            each
            for each in block.locations
            if each.state is State.SERVING
            and self._storages.is_available(each.storage)
            and (not specs or each.has(specs))
        ]
        if len(usable) > 1:
            group = self._catalog.groups.get(instance.group)
            order = {name: index for index, name in enumerate(group.storages if group else ())}
            usable.sort(key=lambda each: order.get(each.storage, len(order)))
        return [place_of(self._storages, Place(instance.group, instance.name, key, each)) for each in usable]


def place_of(storages: DataStorageManager, place: Place) -> LocationPlace:
    """Returns a location in the form that the manager reports to engines."""
    location: CacheLocation = place.location
    backend = storages.backend(location.storage)
    assert backend is not None, "the storage is available"
    specs = [SpecPlace(spec.name, backend.uri(place, spec), spec.size) for spec in location.specs]
    return LocationPlace(location.id, location.type, location.storage, specs)
