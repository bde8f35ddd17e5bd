"""The prompts that a zone has used recently, by the hashes of their blocks; pure.

A block's hash does not reveal the block before it, and a block can't be stored or loaded without all blocks before it.
So the order of blocks is remembered here, for as many blocks as the zone has cached.
"""

from collections.abc import Iterable, Iterator, Mapping, Reversible, Sequence, Sized
from itertools import islice
from typing import Protocol

_NONE = b""


class Prompts(Sized, Reversible[Sequence[bytes]], Protocol):
    """Prompts by the hashes of their blocks, the most recently used first."""


class RecentPrompts:
    """The recent prompts of each tenant's zone."""

    def __init__(self) -> None:
        self._before: dict[str, dict[bytes, bytes]] = {}
        """By tenant, each block's hash with that of the block before it.

        The most recently used is last; a preceding block was not used earlier than the block itself.
        """

    def note(self, tenant: str, hashes: Sequence[bytes]) -> None:
        """Record the use of a prompt, given from its beginning on."""
        if not hashes:
            return
        before = self._before.setdefault(tenant, {})
        # In reverse order, because the end of a prompt is forgotten first.
        for index in range(len(hashes) - 1, -1, -1):
            before.pop(hashes[index], None)
            before[hashes[index]] = hashes[index - 1] if index else _NONE

    def trim(self, tenant: str, blocks: int) -> None:
        """Remember at most this many blocks of a zone: the most recently used."""
        before = self._before.get(tenant)
        if before is None:
            return
        for gone in list(islice(before, max(0, len(before) - blocks))):
            del before[gone]
        if not before:
            del self._before[tenant]

    def forget(self, tenant: str) -> None:
        """Forget all of a zone's prompts."""
        self._before.pop(tenant, None)

    @property
    def tenants(self) -> list[str]:
        """The tenants with remembered prompts; a copy."""
        return list(self._before)

    def links(self, tenant: str) -> dict[bytes, bytes]:
        """Returns a copy of a zone's links, from which :class:`WholePrompts` builds prompts."""
        return self._before.get(tenant, {}).copy()


class WholePrompts:
    """The linked prompts, each from its beginning on, the most recently used first.

    A prompt that another one continues is a part of that one. Each prompt is built on access: thousands may share a
    long beginning.

    Args:
        before: a zone's links from :meth:`RecentPrompts.links`; they must not change.
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
    """Yields the first prompts, with at most this many blocks in all; the last one may be cut."""
    for prompt in prompts:
        if blocks <= 0:
            return
        yield prompt[:blocks]
        blocks -= len(prompt)
