"""The index's record of a block: its locations, their states, and the blocks before and after it."""

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

RECORDS: Final = ""
"""The key in ``Block.children`` for the number of child records in any state."""


class State(enum.IntEnum):
    """A location's state. It changes to the next one, or from ``writing`` to ``deleting``, and never back."""

    WRITING = 0
    SERVING = 1
    DELETING = 2


class LocationSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One part of a location's bytes, such as that of one tensor-parallel rank."""

    name: str
    size: int
    """Bytes."""
    slot: int = -1
    """The slot in a large file (``blkid``); -1: the part is a separate object."""
    file: int = -1
    """The number of the large file."""


class CacheLocation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One location of a block. All its parts are in one storage, share a lifetime and are useful only together."""

    id: str
    """The id of the write or copy that made it. Object names contain it, so that no name is used twice."""
    type: str
    """The type of its storage."""
    storage: str
    state: State
    until: float
    """Unix time: when its writer is presumed dead (``writing``), or when no reader is left (``deleting``). Else 0."""
    specs: tuple[LocationSpec, ...]

    @property
    def size(self) -> int:
        """The bytes of all parts."""
        return sum(spec.size for spec in self.specs)

    @property
    def is_live(self) -> bool:
        """Whether it serves or is being written."""
        return self.state is not State.DELETING

    def has(self, names: frozenset[str]) -> bool:
        """Returns whether it has all the parts."""
        return not names or names <= self.part_names

    @property
    def part_names(self) -> frozenset[str]:
        """The names of its parts."""
        return frozenset([spec.name for spec in self.specs])


class Block(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run of tokens of fixed length behind a given prefix.

    A block without locations is hollow: it keeps the place of a removed block for the blocks after it.
    """

    parent: bytes = b""
    """The key of the previous block; empty: there is none."""
    depth: int = 0
    """The number of blocks before it."""
    used_at: float = 0.0
    """Unix time when a query last ended at this block, or at a removed block after it."""
    hits: int = 0
    """The number of queries that ended there."""
    locations: tuple[CacheLocation, ...] = ()
    children: dict[str, int] = {}
    """The number of next blocks that are live, by storage type; under ``RECORDS``, the number of all next blocks."""
    heat: int = 0
    """Its recent reads, as computed by ``core/heat.py``."""
    is_beside: bool = False
    """Whether its reads are noted at other blocks of the prompt, too: a sliding window next to full attention."""

    @property
    def live_types(self) -> frozenset[str]:
        """The storage types where it serves or is being written."""
        # Evaluated three times for each block of a write.
        return frozenset([location.type for location in self.locations if location.state is not State.DELETING])

    @property
    def is_hollow(self) -> bool:
        """Whether it has no locations."""
        return not self.locations

    @property
    def has_live_children(self) -> bool:
        """Whether a next block serves or is being written."""
        return any(count for where, count in self.children.items() if where != RECORDS)

    def serving(self) -> Iterator[CacheLocation]:
        """Returns the locations that can be read."""
        return (location for location in self.locations if location.state is State.SERVING)

    def is_last_in(self, storage_type: str) -> bool:
        """Returns whether it serves in a storage type where no block after it serves or is being written."""
        return not self.children.get(storage_type) and any(each.type == storage_type for each in self.serving())

    def evictable_from(self, storage_type: str) -> bool:
        """Returns whether it may be evicted from a storage type without leaving a hole before a block that serves.

        It must serve in the type, and no block after it may. If a block after it serves elsewhere, so must this one.
        """
        if not self.is_last_in(storage_type):
            return False
        return not self.has_live_children or any(location.type != storage_type for location in self.serving())


def encode_block(block: Block) -> bytes:
    """Returns the block as stored in the index."""
    return _ENCODER.encode(block)


def decode_block(data: bytes) -> Block:
    """Returns the block; raises :class:`msgspec.DecodeError` for other data."""
    return _DECODER.decode(data)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Block)
