"""Which prompts a zone has used of late, by the hashes of their blocks; pure.

A block's hash says nothing of the block before it, and without all that come before it none can be stored or loaded. So
it is remembered here which one follows which, for as many blocks as the zone has cached.
"""

from collections.abc import Iterable, Iterator, Mapping, Reversible, Sequence, Sized
from itertools import islice
from typing import Protocol

_NONE = b""


class Prompts(Sized, Reversible[Sequence[bytes]], Protocol):
    """Prompts by the hashes of their blocks, the one first that was used last."""


class RecentPrompts:
    """The prompts of each tenant's zone."""

    def __init__(self) -> None:
        self._before: dict[str, dict[bytes, bytes]] = {}
        """By tenant: each block's hash, and that of the block before it.

        What was used last is at the end, and what comes before a block was used no earlier than the block itself.
        """

    def note(self, tenant: str, hashes: Sequence[bytes]) -> None:
        """Note that a prompt was used, from its beginning on."""
        if not hashes:
            return
        before = self._before.setdefault(tenant, {})
        # In reverse: of a prompt, its end is forgotten first.
        for index in range(len(hashes) - 1, -1, -1):
            before.pop(hashes[index], None)
            before[hashes[index]] = hashes[index - 1] if index else _NONE

    def trim(self, tenant: str, blocks: int) -> None:
        """Remember no more than so many blocks of a zone: those that were used last."""
        before = self._before.get(tenant)
        if before is None:
            return
        for gone in list(islice(before, max(0, len(before) - blocks))):
            del before[gone]
        if not before:
            del self._before[tenant]

    def forget(self, tenant: str) -> None:
        """Remember nothing of a zone."""
        self._before.pop(tenant, None)

    @property
    def tenants(self) -> list[str]:
        """Of whom anything is remembered; a list of its own."""
        return list(self._before)

    def links(self, tenant: str) -> dict[bytes, bytes]:
        """A copy of what is remembered of a zone, which :class:`WholePrompts` makes prompts of."""
        return self._before.get(tenant, {}).copy()


class WholePrompts:
    """The prompts that are linked so, each from its beginning on, the one first that was used last.

    One that another goes on from is a part of that. Each is put together when it is asked for: thousands may have a
    long beginning in common.

    Args:
        before: of a zone, as :meth:`RecentPrompts.links` has it; it does not change any more.
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
    """The first of these prompts, as far as they name no more than so many blocks together."""
    for prompt in prompts:
        if blocks <= 0:
            return
        yield prompt[:blocks]
        blocks -= len(prompt)
