"""GetCacheLocation: which blocks of a prompt can be read, and where."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tenantzone_manager import spaces
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core.records import Block, CacheLocation, State
from tenantzone_manager.core.settings import Instance
from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.index.search_cache import Entry
from tenantzone_manager.storages.backend import Place
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.touches import Touches

Query = Literal["key", "prefix", "window", "groups"]
_READ_BACKWARDS: Final = 256
"""Keys that a window's query looks up at a time, ..."""
_FIRST_BACKWARDS: Final = 16
"""... and that a query by groups does, at least."""


class SpecPlace(msgspec.Struct, frozen=True, gc=False):
    """A part of a location, for who reads or writes it."""

    name: str
    uri: str
    size: int
    """Bytes."""


class LocationPlace(msgspec.Struct, frozen=True):
    """A location, for who reads or writes it."""

    id: str
    type: str
    storage: str
    specs: list[SpecPlace]


class Readable:
    """Where a block can be read, best first; nowhere, if there is no location."""

    __slots__ = ("as_json", "as_proto", "locations", "version")

    def __init__(self, locations: list[LocationPlace], version: object) -> None:
        self.locations = locations
        self.version = version
        self.as_json: msgspec.Raw | None = None
        """Kept here by who answers: the same block is asked for again and again."""
        self.as_proto: bytes | None = None


class KeyGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one group of a model's KV caches needs, so that a prompt is found again."""

    key_suffix: Annotated[bytes, Meta(max_length=64)]
    """What a block's key ends with that has this group's part of it: it follows the prompt's own key of the block."""
    window: Annotated[int, Meta(ge=0, le=2**20)] = 0
    """How many of the last blocks are needed, at the most; 0: all from the beginning."""


NOWHERE: Final = Readable([], None)


@dataclass(frozen=True, slots=True)
class Match:
    """What was found of a query's keys."""

    first: int
    """The index of the first of ``blocks`` among the keys."""
    blocks: list[Readable]
    """For a query by key one for each key, ``NOWHERE`` for what is not there; else all can be read."""
    hit: int = 0
    """Of a query by groups: how long the prefix is whose ``blocks`` these are, group by group."""


class Reader:
    """Answers where blocks can be read.

    Args:
        index: what is known of blocks.
        catalog: groups and their storages.
        storages: which of them can be read.
        touches: where it is noted that blocks were used.
        clock: Unix time.
    """

    def __init__(
        self,
        index: MetaIndex,
        catalog: Catalog,
        storages: DataStorageManager,
        touches: Touches,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._storages = storages
        self._touches = touches
        self._clock = clock

    async def get_cache_location(
        self,
        instance: Instance,
        keys: Sequence[bytes],
        query: Query,
        window: int = 0,
        specs: frozenset[str] = frozenset(),
    ) -> Match:
        """Which blocks can be read, and where.

        Args:
            instance: whose.
            keys: of blocks; but for a query by key, those of a prompt from its beginning.
            query: ``key``: each by itself. ``prefix``: up to the first that can't be read. ``window``: the last blocks
                of the longest prompt whose last ``window`` blocks can be read, or that has fewer and all can.
            window: blocks.
            specs: parts that a location must have to count; none: any that it was written with.
        """
        space = spaces.blocks_of(instance)
        if query == "key":
            found = await self._index.get(space, keys)
            blocks = [
                NOWHERE if entry is None else self._readable(instance, key, entry, specs)
                for key, entry in zip(keys, found, strict=True)
            ]
            self._touches.note(
                space, [key for key, block in zip(keys, blocks, strict=True) if block.locations], self._clock()
            )
            return Match(0, blocks)
        if query == "prefix":
            match = await self._prefix(instance, space, keys, specs)
        else:
            match = await self._window(instance, space, keys, window, specs)
        if match.blocks:
            self._touches.note(space, [keys[match.first + len(match.blocks) - 1]], self._clock())
        return match

    async def _prefix(self, instance: Instance, space: str, keys: Sequence[bytes], specs: frozenset[str]) -> Match:
        blocks: list[Readable] = []
        for key, entry in zip(keys, await self._index.get_prefix(space, keys), strict=False):
            block = self._readable(instance, key, entry, specs)
            if not block.locations:
                break
            blocks.append(block)
        return Match(0, blocks)

    async def _window(
        self, instance: Instance, space: str, keys: Sequence[bytes], window: int, specs: frozenset[str]
    ) -> Match:
        run: list[Readable] = []
        first = 0
        step = max(window, _READ_BACKWARDS)
        for end in range(len(keys), 0, -step):
            begin = max(0, end - step)
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
        """The longest prefix of a prompt of which each group can read what it needs.

        Args:
            instance: whose.
            keys: of the prompt's blocks, from its beginning, without what groups add.
            groups: of the model.

        Returns:
            what is needed of it, group by group, each in the order of the prompt.
        """
        space = spaces.blocks_of(instance)
        length = len(keys)
        found: list[_GroupBlocks] = []
        for group in groups:
            blocks = _GroupBlocks(group, keys)
            if not group.window:
                whole = await self._prefix(instance, space, blocks.names(0, length), frozenset())
                blocks.known = dict(enumerate(whole.blocks))
                length = len(whole.blocks)
            found.append(blocks)
        length = await self._end_of_windows(instance, space, [each for each in found if each.window], length)
        needed = [(each, index) for each in found for index in each.needed(length)]
        ends = [each.name(index) for each, index in needed if each.window or index == length - 1]
        self._touches.note(space, ends, self._clock())
        return Match(0, [each.known[index] for each, index in needed], length)

    async def _end_of_windows(
        self, instance: Instance, space: str, windows: Sequence["_GroupBlocks"], length: int
    ) -> int:
        """The last place up to ``length`` at which all windows can be read."""
        index, widest = length - 1, max((each.window for each in windows), default=0)
        while index >= max(0, length - widest):
            for each in windows:
                if length - index <= each.window and not await self._can_read(instance, space, each, index):
                    # No prefix that ends behind this block has all of this window.
                    length = index
                    break
            index -= 1
        return length

    async def _can_read(self, instance: Instance, space: str, blocks: "_GroupBlocks", index: int) -> bool:
        if index not in blocks.known:
            begin = max(0, index + 1 - max(blocks.window, _FIRST_BACKWARDS))
            names = blocks.names(begin, index + 1)
            for at, entry in enumerate(await self._index.get(space, names), start=begin):
                key = names[at - begin]
                blocks.known[at] = NOWHERE if entry is None else self._readable(instance, key, entry, frozenset())
        return bool(blocks.known[index].locations)

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


class _GroupBlocks:
    """The blocks of a prompt that one group has, as far as they were looked up.

    Args:
        group: what it needs.
        keys: of the prompt's blocks.
    """

    def __init__(self, group: KeyGroup, keys: Sequence[bytes]) -> None:
        self.window = group.window
        self.known: dict[int, Readable] = {}
        self._suffix, self._keys = group.key_suffix, keys

    def name(self, index: int) -> bytes:
        """The key of a block."""
        return self._keys[index] + self._suffix

    def names(self, begin: int, end: int) -> list[bytes]:
        """The keys of blocks."""
        return [key + self._suffix for key in self._keys[begin:end]]

    def needed(self, length: int) -> range:
        """The blocks that it needs of a prefix so long."""
        return range(max(0, length - self.window) if self.window else 0, length)


def place_of(storages: DataStorageManager, place: Place) -> LocationPlace:
    """A location as engines are told of it."""
    location: CacheLocation = place.location
    backend = storages.backend(location.storage)
    assert backend is not None, "it is available"
    specs = [SpecPlace(spec.name, backend.uri(place, spec), spec.size) for spec in location.specs]
    return LocationPlace(location.id, location.type, location.storage, specs)
