"""The index's record of a block: its locations and their states, its parent, and its number of children."""

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

RECORDS: Final = ""
"""Key in ``Block.children`` for the number of all child records, whatever their state."""


class State(enum.IntEnum):
    """State of a location. The state changes only in the order of this list, and may skip ``SERVING``."""

    WRITING = 0
    SERVING = 1
    DELETING = 2


class LocationSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One part of a location's bytes, for example the part of one tensor-parallel rank."""

    name: str
    size: int
    """Size in bytes."""
    slot: int = -1
    """Slot in a large file (``blkid``), or -1 if the part is a separate object."""
    file: int = -1
    """Number of the large file, or -1 if the part is a separate object."""


class CacheLocation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One location of a block. All parts of a location are in one storage, and are written and deleted together."""

    id: str
    """Id of the write attempt or copy that created the location. Object names contain this id, so they are unique."""
    type: str
    """Storage type."""
    storage: str
    """Name of the storage."""
    state: State
    until: float
    """In state ``WRITING``, the Unix time at which the writer is presumed dead; in state ``SERVING``, 0.

    In state ``DELETING``, the Unix time after which no reader uses the location.
    """
    specs: tuple[LocationSpec, ...]

    @property
    def size(self) -> int:
        """Size of all parts together, in bytes."""
        return sum(spec.size for spec in self.specs)

    @property
    def is_live(self) -> bool:
        """Whether the location can be read or is being written."""
        return self.state is not State.DELETING

    def has(self, names: frozenset[str]) -> bool:
        """Returns whether the location has all parts with these names."""
        return not names or names <= self.part_names

    @property
    def part_names(self) -> frozenset[str]:
        """Names of the location's parts."""
        return frozenset([spec.name for spec in self.specs])


class Block(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The record of a block. A block is a fixed number of tokens after a given prefix.

    A block without locations is hollow. The record of a hollow block is kept while child blocks exist.
    """

    parent: bytes = b""
    """Key of the previous block, or empty for the first block of a prompt."""
    depth: int = 0
    """Number of blocks before this block in its prompt."""
    used_at: float = 0.0
    """Unix time when a query last ended at this block, or at a later block that has been removed since."""
    hits: int = 0
    """Number of queries that ended at this block, or at later blocks that have been removed since."""
    locations: tuple[CacheLocation, ...] = ()
    children: dict[str, int] = {}
    """Number of live child blocks, by storage type. The key ``RECORDS`` contains the number of all child blocks."""
    heat: int = 0
    """Number of recent reads, as computed by ``core/heat.py``."""
    is_beside: bool = False
    """Whether reads of this block are also recorded at other blocks of the prompt.

    True for the blocks of a sliding window if the model also has full attention.
    """

    @property
    def live_types(self) -> frozenset[str]:
        """Storage types in which the block can be read or is being written."""
        # ``is_live`` is inlined for speed, because each block of a write evaluates this property three times.
        return frozenset([location.type for location in self.locations if location.state is not State.DELETING])

    @property
    def is_hollow(self) -> bool:
        """Whether the block has no locations."""
        return not self.locations

    @property
    def has_live_children(self) -> bool:
        """Whether a child block can be read or is being written."""
        return any(count for where, count in self.children.items() if where != RECORDS)

    def serving(self) -> Iterator[CacheLocation]:
        """Returns an iterator over the locations that can be read."""
        return (location for location in self.locations if location.state is State.SERVING)

    def is_last_in(self, storage_type: str) -> bool:
        """Returns whether the block can be read in this storage type, and no child block is live in this type."""
        return not self.children.get(storage_type) and any(each.type == storage_type for each in self.serving())

    def evictable_from(self, storage_type: str) -> bool:
        """Returns whether the block may be evicted from a storage type without interrupting a readable prefix.

        The block must be readable in this type, and no child block may be live in it. If a child block is live in
        another type, this block must also be readable in another type.
        """
        if not self.is_last_in(storage_type):
            return False
        return not self.has_live_children or any(location.type != storage_type for location in self.serving())


def encode_block(block: Block) -> bytes:
    """Returns the encoded block, as stored in the index."""
    return _ENCODER.encode(block)


def decode_block(data: bytes) -> Block:
    """Returns the decoded block; raises :class:`msgspec.DecodeError` if the data is not an encoded block."""
    return _DECODER.decode(data)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Block)
