"""The recently used prompts of zones, by the hashes of their blocks; pure.

A block can't be stored or loaded without all blocks before it, but its hash does not reveal which these are. So the
order of blocks is remembered here, for as many blocks as the zone has cached.
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
        """By tenant, the hash of each block, mapped to the hash of the previous block of its prompt.

        The most recently used block is last. A block comes after all blocks that continue it.
        """

    def note(self, tenant: str, hashes: Sequence[bytes]) -> None:
        """Record the use of a prompt, given by the hashes of its blocks from the beginning."""
        if not hashes:
            return
        before = self._before.setdefault(tenant, {})
        # In reverse order, because the end of a prompt is forgotten first.
        for index in range(len(hashes) - 1, -1, -1):
            before.pop(hashes[index], None)
            before[hashes[index]] = hashes[index - 1] if index else _NONE

    def trim(self, tenant: str, blocks: int) -> None:
        """Forget all but the ``blocks`` most recently used blocks of a zone."""
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
        """A list of the tenants with remembered prompts."""
        return list(self._before)

    def links(self, tenant: str) -> dict[bytes, bytes]:
        """Returns a copy of a zone's links, from which :class:`WholePrompts` builds prompts."""
        return self._before.get(tenant, {}).copy()


class WholePrompts:
    """The remembered prompts of a zone, each from its beginning, the most recently used first.

    A prompt that is a prefix of another prompt is not listed separately. Prompts are built on access, because thousands
    of them may share a long prefix.

    Args:
        before: a zone's links from :meth:`RecentPrompts.links`. They must not change.
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
    """Generate the first prompts, with at most ``blocks`` blocks in total. The last prompt may be truncated."""
    for prompt in prompts:
        if blocks <= 0:
            return
        yield prompt[:blocks]
        blocks -= len(prompt)
