"""What the index keeps of a block: where it lies, in which state, and what comes before and after it."""

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

RECORDS: Final = ""
"""The key of ``Block.children`` under which child records are counted, in any state."""


class State(enum.IntEnum):
    """Of a location. It goes from each to the next, or from ``writing`` to ``deleting``; never back."""

    WRITING = 0
    SERVING = 1
    DELETING = 2


class LocationSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One part of a location's bytes, such as what one tensor-parallel rank writes."""

    name: str
    size: int
    """Bytes."""
    slot: int = -1
    """In which block of a large file it lies (``blkid``); -1: the part is an object of its own."""
    file: int = -1
    """Which large file."""


class CacheLocation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One place of a block. All its parts are in one storage, live together and are of use together only."""

    id: str
    """Of the write that made it, or of the copy; a part of its objects' names, so that no name is ever used twice."""
    type: str
    """Of its storage."""
    storage: str
    state: State
    until: float
    """``writing``: when its writer is taken for dead. ``deleting``: from when on no reader can be left. Else 0."""
    specs: tuple[LocationSpec, ...]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(spec.size for spec in self.specs)

    @property
    def is_live(self) -> bool:
        """Whether it serves, or is about to."""
        return self.state is not State.DELETING

    def has(self, names: frozenset[str]) -> bool:
        """Whether it has all of these parts."""
        return not names or names <= self.part_names

    @property
    def part_names(self) -> frozenset[str]:
        """The names of its parts."""
        return frozenset([spec.name for spec in self.specs])


class Block(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run of tokens of fixed length behind a given prefix.

    A block without any location is hollow: it holds the place of a prefix that went, for what still hangs on it.
    """

    parent: bytes = b""
    """The key of the block before it; empty: there is none."""
    depth: int = 0
    """How many blocks come before it."""
    used_at: float = 0.0
    """When a query last ended at this block, or at one that hung on it and has gone."""
    hits: int = 0
    """How many did."""
    locations: tuple[CacheLocation, ...] = ()
    children: dict[str, int] = {}
    """By storage type, how many of the next blocks are live there; under ``RECORDS``, how many there are at all."""
    heat: int = 0
    """How often it was read of late, as ``core/heat.py`` counts it."""
    is_beside: bool = False
    """Whether what read it was noted at what its prompt goes on with, too, as of a window beside full attention."""

    @property
    def live_types(self) -> frozenset[str]:
        """Where it serves, or is about to."""
        # Asked three times of each block of a write.
        return frozenset([location.type for location in self.locations if location.state is not State.DELETING])

    @property
    def is_hollow(self) -> bool:
        """Whether nothing of it lies anywhere."""
        return not self.locations

    @property
    def has_live_children(self) -> bool:
        """Whether a block that comes next serves, or is about to."""
        return any(count for where, count in self.children.items() if where != RECORDS)

    def serving(self) -> Iterator[CacheLocation]:
        """The locations that can be read."""
        return (location for location in self.locations if location.state is State.SERVING)

    def is_last_in(self, storage_type: str) -> bool:
        """Whether it serves there, and no block after it does or is about to."""
        return not self.children.get(storage_type) and any(each.type == storage_type for each in self.serving())

    def evictable_from(self, storage_type: str) -> bool:
        """Whether it may be evicted there without leaving a hole before a block that serves.

        It must serve there, and no block after it may; and if one after it serves elsewhere, it must do so, too.
        """
        if not self.is_last_in(storage_type):
            return False
        return not self.has_live_children or any(location.type != storage_type for location in self.serving())


def encode_block(block: Block) -> bytes:
    """As it lies in the index."""
    return _ENCODER.encode(block)


def decode_block(data: bytes) -> Block:
    """Raises :class:`msgspec.DecodeError` for what is no block."""
    return _DECODER.decode(data)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Block)
