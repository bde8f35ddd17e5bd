"""Remembers the recently used prompts of zones, as hashes of blocks. It does no I/O.

A block can't be stored or loaded without all blocks before it in its prompt. Its hash does not reveal these blocks. So
this module remembers, for each block, the previous block.
"""

from collections.abc import Iterable, Iterator, Mapping, Reversible, Sequence, Sized
from itertools import islice
from typing import Protocol

_NONE = b""


class Prompts(Sized, Reversible[Sequence[bytes]], Protocol):
    """A sequence of prompts, the most recently used first. Each prompt is a sequence of its blocks' hashes."""


class RecentPrompts:
    """The recently used prompts of each tenant's zone."""

    def __init__(self) -> None:
        self._before: dict[str, dict[bytes, bytes]] = {}
        """For each tenant, a mapping from the hash of each block to the hash of the previous block in the prompt.

        The most recently used block is last. Within a prompt, earlier blocks come after later blocks.
        """

    def note(self, tenant: str, hashes: Sequence[bytes]) -> None:
        """Record the use of a prompt. ``hashes`` has the hashes of its blocks from the beginning."""
        if not hashes:
            return
        before = self._before.setdefault(tenant, {})
        # Add the blocks in reverse order, so that `trim` forgets the end of a prompt first.
        for index in range(len(hashes) - 1, -1, -1):
            before.pop(hashes[index], None)
            before[hashes[index]] = hashes[index - 1] if index else _NONE

    def trim(self, tenant: str, blocks: int) -> None:
        """Forget the least recently used blocks of a zone, so that at most ``blocks`` blocks are left."""
        before = self._before.get(tenant)
        if before is None:
            return
        for gone in list(islice(before, max(0, len(before) - blocks))):
            del before[gone]
        if not before:
            del self._before[tenant]

    def forget(self, tenant: str) -> None:
        """Forget all prompts of a tenant's zone."""
        self._before.pop(tenant, None)

    @property
    def tenants(self) -> list[str]:
        """The tenants that have remembered prompts."""
        return list(self._before)

    def links(self, tenant: str) -> dict[bytes, bytes]:
        """Returns a copy of a zone's links from each block to the previous block, for :class:`WholePrompts`."""
        return self._before.get(tenant, {}).copy()


class WholePrompts:
    """The remembered prompts of a zone, the most recently used first.

    Each prompt is a list of its blocks' hashes from the beginning. A prompt that is a prefix of another prompt is not
    listed. Prompts are built during iteration, because thousands of prompts may share a long prefix.

    Args:
        before: a zone's links from :meth:`RecentPrompts.links`. The caller must not change them.
    """

    def __init__(self, before: Mapping[bytes, bytes]) -> None:
        followed = set(before.values())
        self._before = before
        self._ends = [block for block in reversed(list(before)) if block not in followed]

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[list[bytes]]:
        return map(self._whole, self._ends)

    def __reversed__(self) -> Iterator[list[bytes]]:
        return map(self._whole, reversed(self._ends))

    def _whole(self, block: bytes) -> list[bytes]:
        hashes = []
        while block != _NONE:
            hashes.append(block)
            block = self._before[block]
        return hashes[::-1]


def within(prompts: Iterable[Sequence[bytes]], blocks: int) -> Iterator[Sequence[bytes]]:
    """Returns the first prompts, up to ``blocks`` blocks in total. The last returned prompt may be truncated."""
    for prompt in prompts:
        if blocks <= 0:
            return
        yield prompt[:blocks]
        blocks -= len(prompt)
