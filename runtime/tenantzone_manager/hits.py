"""Matching where a model has several groups of KV caches: a prompt is found up to where each has what it needs.

Full attention needs all blocks from the beginning, a sliding window its last ones, and a state the last one alone.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Meta

_AT_ONCE: Final = 16
"""Keys of a window that are looked up together, at least."""


class KeyGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one group of a model's KV caches needs, so that a prompt is found again."""

    key_suffix: Annotated[bytes, Meta(max_length=64)]
    """What a block's key ends with that has this group's part of it: it follows the prompt's own key of the block."""
    window: Annotated[int, Meta(ge=0, le=2**20)] = 0
    """How many of the last blocks are needed, at most; 0: all from the beginning."""


class Located(Protocol):
    """A block that may be there."""

    @property
    def locations(self) -> Sequence[object]:
        """Where it can be read."""


BlockT = TypeVar("BlockT", bound=Located)
LookUp = Callable[[Sequence[bytes]], Awaitable[list[BlockT]]]
"""Says of each key what is there."""


@dataclass(frozen=True, slots=True)
class Hit(Generic[BlockT]):
    """A prefix of a prompt that need not be computed."""

    length: int
    """In blocks."""
    blocks: list[BlockT]
    """What is needed of it, group by group, each in the order of the prompt."""
    keys: list[bytes]
    """Their own, with what groups add."""
    ends: list[bytes]
    """The keys of its last block, as far as groups need all from the beginning."""
    beside: list[bytes]
    """The keys of what windows need of it."""


async def longest_hit(
    keys: Sequence[bytes], groups: Sequence[KeyGroup], look_up: LookUp[BlockT], look_up_prefix: LookUp[BlockT]
) -> Hit[BlockT]:
    """The longest prefix of a prompt of which each group has what it needs.

    Args:
        keys: of the prompt's blocks, from its beginning, without what groups add.
        groups: of the model.
        look_up: looks up any keys.
        look_up_prefix: looks up keys, up to the first of which nothing is there.
    """
    length = len(keys)
    looked_at = [_GroupBlocks[BlockT](group, keys, look_up) for group in groups]
    for each in looked_at:
        if not each.window:
            length = await each.prefix(look_up_prefix, length)
    length = await _end_of_windows([each for each in looked_at if each.window], length)
    needed = [(each, index) for each in looked_at for index in each.needed(length)]
    names = [each.name(index) for each, index in needed]
    ends = [each.name(length - 1) for each in looked_at if length and not each.window]
    beside = [each.name(index) for each, index in needed if each.window]
    return Hit(length, [each.known[index] for each, index in needed], names, ends, beside)


async def _end_of_windows(windows: Sequence["_GroupBlocks[BlockT]"], length: int) -> int:
    """The last place up to ``length`` of which all windows are there."""
    index, widest = length - 1, max((each.window for each in windows), default=0)
    while index >= max(0, length - widest):
        for each in windows:
            if length - index <= each.window and not await each.is_there(index):
                # No prefix that ends behind this block has all of this window.
                length = index
                break
        index -= 1
    return length


class _GroupBlocks(Generic[BlockT]):
    """The blocks of a prompt that one group has, as far as they were looked up."""

    def __init__(self, group: KeyGroup, keys: Sequence[bytes], look_up: LookUp[BlockT]) -> None:
        self.window = group.window
        self.known: dict[int, BlockT] = {}
        self._suffix, self._keys, self._look_up = group.key_suffix, keys, look_up

    def name(self, index: int) -> bytes:
        """The key of a block."""
        return self._keys[index] + self._suffix

    def needed(self, length: int) -> range:
        """The blocks that the group needs of a prefix so long."""
        return range(max(0, length - self.window) if self.window else 0, length)

    async def prefix(self, look_up_prefix: LookUp[BlockT], length: int) -> int:
        """How many blocks are there from the beginning, of so many."""
        self.known = dict(enumerate(await look_up_prefix([key + self._suffix for key in self._keys[:length]])))
        return len(self.known)

    async def is_there(self, index: int) -> bool:
        """Whether a block can be read."""
        if index not in self.known:
            begin = max(0, index + 1 - max(self.window, _AT_ONCE))
            names = [key + self._suffix for key in self._keys[begin : index + 1]]
            self.known.update(enumerate(await self._look_up(names), start=begin))
        return bool(self.known[index].locations)
