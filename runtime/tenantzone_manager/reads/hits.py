"""Prefix matching for models with several KV-cache groups: a prefix matches if each group has the blocks it needs.

Full attention needs all blocks of the prefix, a sliding window the last blocks, and a recurrent state the last block.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Meta

_AT_ONCE: Final = 16
"""Minimum number of keys to look up together for a window."""


class KeyGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The blocks that one group of a model's KV caches needs to reuse a prefix."""

    key_suffix: Annotated[bytes, Meta(max_length=64)]
    """Suffix that is appended to the key of a prompt's block to get the key of this group's block."""
    window: Annotated[int, Meta(ge=0, le=2**20)] = 0
    """Number of blocks that are needed at the end of the prefix, or 0 if all blocks are needed."""


class Located(Protocol):
    """The result of looking up a block."""

    @property
    def locations(self) -> Sequence[object]:
        """Locations where the block can be read; empty if it can't be read."""


BlockT = TypeVar("BlockT", bound=Located)
LookUp = Callable[[Sequence[bytes]], Awaitable[list[BlockT]]]
"""Looks up keys; returns one result per key, or fewer results if the lookup stops early."""


@dataclass(frozen=True, slots=True)
class Hit(Generic[BlockT]):
    """A prefix of a prompt that can be read from the cache."""

    length: int
    """Length of the prefix in blocks."""
    blocks: list[BlockT]
    """The needed blocks, group by group, and in prompt order within each group."""
    keys: list[bytes]
    """Keys of ``blocks``, including the suffixes of their groups."""
    ends: list[bytes]
    """The key of the last block of the prefix, for each group that needs all blocks."""
    in_windows: list[bytes]
    """Keys of the needed blocks of groups with a window."""


async def longest_hit(
    keys: Sequence[bytes], groups: Sequence[KeyGroup], look_up: LookUp[BlockT], look_up_prefix: LookUp[BlockT]
) -> Hit[BlockT]:
    """Returns the longest prefix of a prompt for which each group has the blocks it needs.

    Args:
        keys: keys of the prompt's blocks from its beginning, without suffixes.
        groups: KV-cache groups of the model.
        look_up: looks up all given keys.
        look_up_prefix: looks up keys up to the first key without a readable block.
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
    in_windows = [each.name(index) for each, index in needed if each.window]
    return Hit(length, [each.known[index] for each, index in needed], names, ends, in_windows)


async def _end_of_windows(windows: Sequence["_GroupBlocks[BlockT]"], length: int) -> int:
    """Returns the longest prefix length, at most ``length``, for which all windows are complete."""
    index, widest = length - 1, max((each.window for each in windows), default=0)
    while index >= max(0, length - widest):
        for each in windows:
            if length - index <= each.window and not await each.is_there(index):
                # Each longer prefix, up to the current length, would need this block in its window.
                length = index
                break
        index -= 1
    return length


class _GroupBlocks(Generic[BlockT]):
    """The blocks of a prompt in one KV-cache group, with the results of all lookups so far."""

    def __init__(self, group: KeyGroup, keys: Sequence[bytes], look_up: LookUp[BlockT]) -> None:
        self.window = group.window
        self.known: dict[int, BlockT] = {}
        self._suffix, self._keys, self._look_up = group.key_suffix, keys, look_up

    def name(self, index: int) -> bytes:
        """Returns the key of a block in this group."""
        return self._keys[index] + self._suffix

    def needed(self, length: int) -> range:
        """Returns the indices of the blocks that the group needs for a prefix of this length."""
        return range(max(0, length - self.window) if self.window else 0, length)

    async def prefix(self, look_up_prefix: LookUp[BlockT], length: int) -> int:
        """Returns the length of the readable prefix of the group's blocks, at most ``length``."""
        self.known = dict(enumerate(await look_up_prefix([key + self._suffix for key in self._keys[:length]])))
        return len(self.known)

    async def is_there(self, index: int) -> bool:
        """Returns whether a block can be read."""
        if index not in self.known:
            begin = max(0, index + 1 - max(self.window, _AT_ONCE))
            names = [key + self._suffix for key in self._keys[begin : index + 1]]
            self.known.update(enumerate(await self._look_up(names), start=begin))
        return bool(self.known[index].locations)
